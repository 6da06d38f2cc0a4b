"""Where units without names lie in the caller's tensors, written as one would index them.

An element is x[0, 3, 4], a token x[2, :], a square x[:, 0:16, 16:32]. Of an input with one axis the
index says it all, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from .features import Elements, Features, Groups, Windows
from .layout import Layout

Box = Sequence[tuple[int, int]]
"""First and last index along each axis, both included."""


def unit_texts(features: Features, layout: Layout, units: Sequence[int]) -> list[str]:
    """The names of these units, else where they lie, else their indices.

    A group that is no box is told by its index and the smallest box around it.
    """
    plain = len(layout.shapes) == 1 and len(layout.shapes[0]) < 2
    if features.names is not None or plain:
        return [features.name(u) for u in units]
    if isinstance(features, Elements):
        return [layout.place(u) for u in units]
    if len(layout.shapes) > 1:  # Groups may then reach over several inputs.
        return [str(u) for u in units]
    shape, name = layout.shapes[0], layout.label(0)
    if isinstance(features, Windows) and features.shape == shape:
        return [f"{name}{_written(_window(features, u), shape)}" for u in units]
    if isinstance(features, Groups):
        first, last, counts = _boxes(features, shape)
        boxes = [list(zip(first[u], last[u], strict=True)) for u in units]
        texts = [f"{name}{_written(box, shape)}" for box in boxes]
        return [
            text if counts[u] == prod(b - a + 1 for a, b in box) else f"{u} in {text}"
            for u, box, text in zip(units, boxes, texts, strict=True)
        ]
    return [str(u) for u in units]


def _window(features: Windows, unit: int) -> Box:
    box = [(0, length - 1) for length in features.shape]
    for axis, start in zip(features.axes, features.corners[unit], strict=True):
        box[axis] = (start, start + features.size - 1)
    return box


def _boxes(
    features: Groups, shape: tuple[int, ...]
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Of every group the first and the last index along each axis, and its number of elements."""
    ids = features.ids.cpu()
    places = torch.unravel_index(torch.arange(features.n), shape)

    def ends(kind: str) -> list[list[int]]:
        found: list[Tensor] = [
            torch.zeros(features.units, dtype=torch.long)
            .scatter_reduce_(0, ids, place, kind, include_self=False)
            for place in places
        ]  # fmt: skip
        return torch.stack(found, 1).tolist()

    return ends("amin"), ends("amax"), torch.bincount(ids, minlength=features.units).tolist()


def _written(box: Box, shape: tuple[int, ...]) -> str:
    """As in an index: 3 for one place, 2:5 for several, : for the whole axis."""
    parts = [
        str(a) if a == b and length > 1 else ":" if b - a + 1 == length else f"{a}:{b + 1}"
        for (a, b), length in zip(box, shape, strict=True)
    ]
    return f"[{', '.join(parts)}]"
