"""The one tie rule: highest score first, equal scores by lowest index."""

from __future__ import annotations

import torch
from torch import Tensor


def top_z(scores: Tensor, blocked: Tensor, z: int) -> Tensor:
    """Indices of the z best units that are not blocked, sorted by (−score, index).

    scores (u,) finite, blocked (u,) bool; at least z units must be free. A full stable sort of
    many units costs more than a network's gradient, so the z-th score is found first and only
    what reaches it is sorted; ties at the cut go to the lowest index.
    """
    scores = scores.masked_fill(blocked, -torch.inf)
    if scores.numel() <= 4096 or 4 * z >= scores.numel():
        return torch.sort(scores, descending=True, stable=True).indices[:z]
    cut = torch.topk(scores, z, sorted=False).values.min()
    reach = torch.nonzero(scores >= cut).squeeze(1)
    order = torch.sort(scores[reach], descending=True, stable=True).indices
    return reach[order[:z]]
