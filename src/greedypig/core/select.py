"""The one tie rule: highest score first, equal scores by lowest index."""

from __future__ import annotations

import torch
from torch import Tensor


def top_z(scores: Tensor, blocked: Tensor, z: int) -> Tensor:
    """Indices of the z best units that are not blocked, sorted by (−score, index).

    scores (u,) finite, blocked (u,) bool; at least z units must be free. A full stable sort
    costs more than a small network's gradient, so only what reaches the z-th score is sorted.
    `topk` promises nothing about ties; where a few units have none among the z + 1 best, its
    own order is the answer.
    """
    scores = scores.masked_fill(blocked, -torch.inf)
    if 4 * z >= scores.numel():
        return torch.sort(scores, descending=True, stable=True).indices[:z]
    if scores.numel() <= 4096:
        best = torch.topk(scores, z + 1)
        if bool((best.values[1:] < best.values[:-1]).all()):
            return best.indices[:z]
        cut = best.values[z - 1]
    else:  # Among many units ties are the rule, and finding the cut is all that topk is for.
        cut = torch.topk(scores, z, sorted=False).values.min()
    reach = torch.nonzero(scores >= cut).squeeze(1)
    order = torch.sort(scores[reach], descending=True, stable=True).indices
    return reach[order[:z]]
