"""A function of the caller's own as an objective: `gp.objective`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..core.errors import InvalidType
from ..core.numbers import check_count
from ..core.objective import Objective
from .randomness import Forked


def objective(
    g: Callable[[Tensor], Tensor],
    n: int,
    *,
    batch_size: int | Literal["auto"] = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Objective:
    """The objective of g: masks (m, n) in [0, 1] → values (m,), in differentiable torch.

    dtype None tries the default dtype and, where g's own tensors do not fit it, float64.
    """
    if not callable(g):
        raise InvalidType(f"Expected g to be callable (got {type(g).__name__}).")
    n = check_count("n", n)
    forked = Forked(g)
    if dtype is None:
        dtype = _fitting_dtype(forked, torch.ones(1, n, device=device))
    elif not dtype.is_floating_point:
        raise InvalidType(f"Expected a floating-point dtype (got {dtype}).")
    start = torch.zeros(1, 1, n, dtype=dtype, device=device)
    made = Objective(
        lambda points, _: forked(points), start, torch.ones_like(start), batch_size=batch_size
    )
    made.origin = g
    return made


def _fitting_dtype(g: Callable[[Tensor], Tensor], mask: Tensor) -> torch.dtype:
    with torch.no_grad():
        try:
            value = g(mask)
        except RuntimeError as error:
            if "dtype" not in str(error) and "Double" not in str(error):
                raise
            return torch.float64
    # Sums of products promote quietly; float64 constants ask for float64 masks all the same.
    return torch.float64 if getattr(value, "dtype", None) == torch.float64 else mask.dtype
