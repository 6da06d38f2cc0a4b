"""What one feature of a tensor is, and which tensors are pictures (channels, height, width)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..core.errors import Argument, InvalidInput
from ..core.features import Elements, Features, Groups
from ..core.layout import Layout

FeatureMaker = Callable[[Layout], Features]
"""Features from an input's shape. One with `reads_input = True` is called with the input too."""


def elements(layout: Layout) -> Features:
    """Every value by itself."""
    return Elements(layout.n)


def tokens(layout: Layout) -> Features:
    """All values of a row of a (length, size) input together: a token's embedding."""
    if len(layout.shapes) != 1 or len(layout.shapes[0]) != 2:
        raise InvalidInput(
            "Expected one input (length, size) for ",
            Argument("features", "tokens"),
            f" (got {layout.shapes}).",
        )
    length, size = layout.shapes[0]
    return Groups(torch.arange(length).repeat_interleave(size))


def is_picture(layout: Layout) -> bool:
    """Is the input one tensor (channels, height, width) with one or three channels?"""
    shape = layout.shapes[0]
    return len(layout.shapes) == 1 and len(shape) == 3 and shape[0] in (1, 3)


def picture_shape(layout: Layout, what: str | Argument) -> tuple[int, int, int]:
    """(channels, height, width) of an input that is one picture; what: who asks."""
    if len(layout.shapes) != 1 or len(layout.shapes[0]) not in (2, 3):
        raise InvalidInput(
            "Expected one picture (channels, height, width) for ",
            what,
            f" (got {layout.shapes}).",
        )
    shape = (1, *layout.shapes[0])[-3:]
    return shape[0], shape[1], shape[2]
