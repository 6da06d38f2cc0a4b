"""The one tie rule: highest score first, equal scores by lowest index."""

from __future__ import annotations

import torch
from torch import Tensor


def top_z(scores: Tensor, blocked: Tensor, z: int) -> Tensor:
    """Indices of the z best units that are not blocked, sorted by (−score, index).

    scores (u,) finite, blocked (u,) bool; at least z units must be free. A full stable sort
    costs more than a small network's gradient. `topk` is cheap and right where no two of the
    z + 1 best scores are equal; it promises nothing about ties, so those are sorted apart.
    """
    scores = scores.masked_fill(blocked, -torch.inf)
    if 4 * z >= scores.numel():
        return torch.sort(scores, descending=True, stable=True).indices[:z]
    best = torch.topk(scores, z + 1)
    if bool((best.values[1:] < best.values[:-1]).all()):
        return best.indices[:z]
    reach = torch.nonzero(scores >= best.values[z - 1]).squeeze(1)
    order = torch.sort(scores[reach], descending=True, stable=True).indices
    return reach[order[:z]]
