"""The one tie rule: highest score first, equal scores by lowest index."""

from __future__ import annotations

import torch
from torch import Tensor


def top_z(scores: Tensor, blocked: Tensor, z: int) -> tuple[Tensor, Tensor]:
    """The z best units that are not blocked, sorted by (−score, index), and their scores.

    scores (u,) finite, blocked (u,) bool; at least z units must be free. A full stable sort
    costs more than a small network's gradient, so only what reaches the z-th score is sorted.
    `topk` promises nothing about ties; where a few units have none among the z + 1 best, its
    own order is the answer.
    """
    scores = scores.masked_fill(blocked, -torch.inf)
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
