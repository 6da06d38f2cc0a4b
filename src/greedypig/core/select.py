"""The one tie rule: highest score first, equal scores by lowest index."""

from __future__ import annotations

import torch
from torch import Tensor


def top_z(scores: Tensor, available: Tensor | None, z: int) -> Tensor:
    """Indices of the z best available units, sorted by (−score, index).

    scores (u,), available (u,) bool or None for all. Fewer than z come back if fewer are left.
    A full stable sort would cost more than a small network's gradient, so the z-th score is
    found first and only what reaches it is sorted; ties at the cut go to the lowest index.
    """
    if available is None:
        left = scores.numel()
    else:
        scores = scores.masked_fill(~available, -torch.inf)
        left = int(available.sum())
    z = min(z, left)
    if z == 0:
        return torch.empty(0, dtype=torch.long, device=scores.device)
    if 4 * z >= scores.numel():
        return torch.sort(scores, descending=True, stable=True).indices[:z]
    cut = torch.topk(scores, z, sorted=False).values.min()
    reach = torch.nonzero(scores >= cut).squeeze(1)
    order = torch.sort(scores[reach], descending=True, stable=True).indices
    return reach[order[:z]]
