"""Numbers of any make as tensors: arrays of NumPy, columns and DataFrames of pandas or polars."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidType

NUMBERS = "fiub"
"""NumPy's kinds of numbers."""
NAMED = 3
"""How many columns an error names."""


def as_tensor(given: Any, name: str) -> Tensor:
    """Numbers of any make as a tensor; a DataFrame as a matrix (rows, columns)."""
    if isinstance(given, Tensor):
        return given.detach()
    if is_frame(given):
        return _tensor(_matrix(given), name)
    if not hasattr(given, "__array__"):
        raise InvalidType(
            f"Expected {name} to be a tensor, an array or a DataFrame (got {type(given).__name__})."
        )
    return _tensor(np.asarray(given), name)


def is_frame(given: Any) -> bool:
    """A DataFrame of pandas or polars, by its looks: neither package is needed here."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def frame_names(given: Any) -> tuple[str, ...] | None:
    """The names of a DataFrame's columns; None for all else."""
    return tuple(str(name) for name in given.columns) if is_frame(given) else None


def _matrix(frame: Any) -> Any:
    # By columns: a DataFrame of numbers and flags as one array is an array of objects.
    pairs = frame.items() if hasattr(frame, "items") else zip(frame.columns, frame, strict=True)
    found = [(name, np.asarray(column)) for name, column in pairs]
    odd = [(name, column) for name, column in found if column.dtype.kind not in NUMBERS]
    if odd:
        more = f" and {len(odd) - NAMED} more" if len(odd) > NAMED else ""
        said = ", ".join(f"{name!r} of {column.dtype}" for name, column in odd[:NAMED])
        raise InvalidType(
            f"Expected a DataFrame of numbers (got {said}{more}). Try numbers in every row, and "
            "whole-number ids for categories, in a DataFrame of their own."
        )
    columns = [column for _, column in found]
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _tensor(array: Any, name: str) -> Tensor:
    if array.dtype.kind not in NUMBERS:
        raise InvalidType(
            f"Expected {name} to hold numbers (got {array.dtype}). "
            "Try whole-number ids for categories."
        )
    # Torch takes no backward strides, and warns of what it may not write on.
    plain = array.flags.writeable and all(step >= 0 for step in array.strides)
    try:
        return torch.as_tensor(array if plain else array.copy())
    except TypeError:  # float128, uint16 in older versions
        return torch.as_tensor(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))
