"""The one tie rule: highest score first, equal scores by lowest index."""

from __future__ import annotations

import torch
from torch import Tensor

LOWEST = {
    dtype: torch.finfo(dtype).min
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
}


def top_z(scores: Tensor, blocked: Tensor, z: int) -> tuple[Tensor, Tensor]:
    """The z best units that are not blocked, sorted by (−score, index), and their scores.

    scores (u,) finite, blocked (u,) bool, or a mask of 0 and 1 in the dtype of the scores, which
    is faster; at least z units must be free. A full stable sort
    costs more than a small network's gradient, so only what reaches the z-th score is sorted.
    `topk` promises nothing about ties; where a few units have none among the z + 1 best, its
    own order is the answer.
    """
    if blocked.dtype == torch.bool:
        scores = scores.masked_fill(blocked, -torch.inf)
    else:
        scores = torch.add(scores, blocked, alpha=LOWEST[scores.dtype])
    count = scores.numel()
    if 4 * z >= count:
        best, order = torch.sort(scores, descending=True, stable=True)
        return order[:z], best[:z]
    if count <= 4096:
        best, order = torch.topk(scores, z + 1)
        if len(set(best.tolist())) > z:
            return order[:z], best[:z]
        cut = best[z - 1]
    else:  # Among many units ties are the rule, and finding the cut is all that topk is for.
        cut = torch.topk(scores, z, sorted=False).values.min()
    reach = torch.nonzero(scores >= cut).squeeze(1)
    chosen = reach[torch.sort(scores[reach], descending=True, stable=True).indices[:z]]
    return chosen, scores[chosen]
