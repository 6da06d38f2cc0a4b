"""Inputs that are passed along and not explained: fixed= of `explain`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..network.fingerprint import identity

_ATOMS = (str, bytes, int, float, complex, torch.dtype, torch.device)


def items_of(fixed: Any) -> Iterable[tuple[Any, Any]]:
    """Each of them, with its name or its position."""
    return fixed.items() if isinstance(fixed, Mapping) else enumerate(_as_tuple(fixed))


def key_of(fixed: Any) -> object:
    """Fixed inputs may share a batch if their tensors have one shape and the rest is equal."""
    if fixed is None:
        return None
    return tuple(
        (k, tuple(v.shape), v.dtype) if isinstance(v, Tensor) else (k, _same(v))
        for k, v in items_of(fixed)
    )


def described(fixed: Any) -> list[tuple[Any, Any]]:
    """What is no tensor, as text that tells it from others."""
    rest = [(k, v) for k, v in items_of(fixed) if not isinstance(v, Tensor)]
    return [(k, v if _plain(v) else identity(v)) for k, v in rest]


def expanded(runs: Sequence[tuple[Any, int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The fixed inputs of every row: tensors get the batch axis in front, the rest passes as is."""
    first = runs[0][0]
    if isinstance(first, Mapping):
        return (), {k: _expand([(f[k], c) for f, c in runs]) for k in first}
    rows = [(_as_tuple(f), c) for f, c in runs]
    return tuple(_expand([(f[i], c) for f, c in rows]) for i in range(len(rows[0][0]))), {}


def _as_tuple(fixed: Any) -> tuple[Any, ...]:
    """By position; a lone one stands for a tuple of it."""
    return fixed if isinstance(fixed, tuple) else (fixed,)


def _expand(runs: Sequence[tuple[Any, int]]) -> Any:
    if not isinstance(runs[0][0], Tensor):
        return runs[0][0]
    return torch.cat([t.detach().unsqueeze(0).expand(count, *t.shape) for t, count in runs])


def _plain(value: Any) -> bool:
    """Does its text tell all of it? That of an array leaves numbers out."""
    if type(value) in (tuple, list):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(map(_plain, value)) and all(map(_plain, value.values()))
    return value is None or isinstance(value, _ATOMS)


def _same(value: Any) -> object:
    """Equal for values that may stand for each other: plain ones, or one and the same object."""
    return (type(value), repr(value)) if _plain(value) else id(value)
