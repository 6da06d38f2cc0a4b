"""Where units without names lie in the caller's tensors, written as one would index them.

An element is x[0, 3, 4], a token x[2, :], a square x[:, 0:16, 16:32]. Of an input with one axis the
index says it all, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .features import Elements, Features
from .layout import Layout


def unit_names(features: Features, layout: Layout, units: Sequence[int]) -> list[str] | list[int]:
    """The names of these units, else where they lie, else their indices.

    A group that is no box is told by its index and the smallest box around it.
    """
    if features.names is not None:
        return [features.names[unit] for unit in units]
    if len(layout.shapes) == 1 and len(layout.shapes[0]) < 2:
        return list(units)
    if isinstance(features, Elements):
        return [layout.place(unit) for unit in units]
    if len(layout.shapes) > 1:  # Groups may then reach over several inputs.
        return list(units)
    return [_box(features, layout, unit) for unit in units]


def unit_texts(features: Features, layout: Layout, units: Sequence[int]) -> list[str]:
    """The same, indices as text too."""
    return [str(name) for name in unit_names(features, layout, units)]


def _box(features: Features, layout: Layout, unit: int) -> str:
    """As in an index: 3 for one place, 2:5 for several, : for the whole axis."""
    one = torch.zeros(1, features.units, dtype=torch.bool)
    one[0, unit] = True
    places = torch.nonzero(features.mask(one)[0].view(layout.shapes[0]))
    ends = zip(places.amin(0).tolist(), places.amax(0).tolist(), layout.shapes[0], strict=True)
    parts, size = [], 1
    for first, last, length in ends:
        size *= last - first + 1
        whole = last - first + 1 == length
        part = ":" if whole else f"{first}:{last + 1}"
        parts.append(str(first) if first == last and length > 1 else part)
    text = f"{layout.label(0)}[{', '.join(parts)}]"
    return text if size == len(places) else f"{unit} in {text}"
