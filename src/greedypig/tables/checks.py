"""A look at a sample of the rows before the work: what would make an answer meaningless.

A constant column, a column that is the label in disguise, a label of one class only: none of them
is an error, each deserves a warning that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .columns import Table
from .stream import Batch

LOOKED_AT = 64
"""Batches of the sample that are looked at, at most."""
FEWEST = 10
LEAK = 1 - 1e-6
"""A correlation with the label beyond which a column is suspected to be the label."""
FEW_IDS = 20
"""Rows per category, on average, from which pure categories are no accident."""


FAR = 3.0
"""Deviations from 0 beyond which a column's zero is no natural absence."""


class Members(Protocol):
    """Processes whose numbers can be summed."""

    @property
    def first(self) -> bool:
        """Does this one speak for all?"""
        ...

    def sum(self, tensor: Tensor, /) -> Tensor:
        """Σ over the processes."""
        ...


class Look(NamedTuple):
    """What a look at the sample found."""

    warnings: list[str]
    constant: list[int]
    """Columns with one value throughout: known to all processes alike."""


def look(
    table: Table, sample: Iterator[Batch], start: Batch, group: Members, *, at_zero: bool = False
) -> Look:
    """Columns that are constant or leak the label, and a label that is constant; and where
    absent is zero, numbers that are far from it."""
    origin, _ = _read(table, start)
    at = origin[0] if len(origin) else torch.zeros(table.columns, dtype=torch.float64)
    sums = torch.zeros(6, table.columns, dtype=torch.float64)
    categorical = torch.nonzero(torch.tensor(table.categorical)).squeeze(1)
    ids, labels = [at.new_empty(0, len(categorical))], [at.new_empty(0)]
    for batch in islice(sample, LOOKED_AT):
        columns, answers = _read(table, batch)
        sums += _moments(columns - at, answers)
        # Of numbers sums are enough: many wide batches would not fit in memory.
        ids.append(columns[:, categorical])
        labels.append(answers)
    sums = group.sum(sums)
    if float(sums[0, 0]) < 2:
        return Look([], [])
    # Columns were taken relative to one of their values: a constant one is exactly 0.
    constant = torch.nonzero(sums[2] == 0).squeeze(1).tolist()
    if not group.first:
        return Look([], constant)
    found = _from_moments(table, sums, constant)
    if at_zero:
        found += _far_from_zero(table, sums, at, constant)
    answers, seen = torch.cat(labels), torch.cat(ids)
    leaking = [
        column for place, column in enumerate(categorical.tolist())
        if _decides(seen[:, place], answers)
    ]  # fmt: skip
    if leaking:
        found.append(
            f"The categories of {table.listed(leaking)} decide the label. If that is the label "
            "in another guise, leave it out."
        )
    return Look(found, constant)


def _far_from_zero(table: Table, sums: Tensor, at: Tensor, constant: list[int]) -> list[str]:
    rows, x, xx = sums[:3]
    mean = x / rows
    deviation = (xx / rows - mean * mean).clamp(min=0).sqrt()
    far = (mean + at).abs() > FAR * deviation
    far &= ~torch.tensor(table.categorical)
    far[constant] = False
    if not bool(far.any()):
        return []
    return [
        f"The values of {table.listed(torch.nonzero(far).squeeze(1).tolist())} are more than "
        f"{FAR:g} deviations from 0, which stands for their absence. Try baseline='mean', or "
        "standardise them."
    ]


def _read(table: Table, batch: Batch) -> tuple[Tensor, Tensor]:
    """(rows, columns) and (rows,) in float64; a bag counts by its first entry."""
    parts, answer, _ = table.read(batch)
    if not len(answer):
        return torch.empty(0, table.columns).double(), torch.empty(0).double()
    pieces = [
        part.reshape(len(part), -1)[:, : of.width].double().cpu()
        for part, of in zip(parts, table.parts, strict=True)
    ]
    labels = answer.reshape(len(answer), -1)[:, :1].reshape(-1).double().cpu()
    return torch.cat(pieces, dim=1), labels


def _moments(x: Tensor, y: Tensor) -> Tensor:
    """(6, columns): rows, Σx, Σx², Σxy, Σy, Σy²."""
    ones = torch.ones(x.shape[1], dtype=torch.float64)
    return torch.stack([
        ones * len(x), x.sum(0), (x * x).sum(0), (x * y.unsqueeze(1)).sum(0),
        ones * y.sum(), ones * (y * y).sum(),
    ])  # fmt: skip


def _from_moments(table: Table, sums: Tensor, constant: list[int]) -> list[str]:
    rows, x, xx, xy, y, yy = sums
    found = []
    if constant:
        found.append(
            f"The values of {table.listed(constant)} are constant in the rows looked at. Such a "
            "column acts as a bias of the model, which is no reason to select it."
        )
    spread = (rows * yy - y * y)[0]
    if float(spread) <= 1e-12 * float((rows * yy)[0]):
        found.append("The label is the same in all rows looked at: nothing is to be told apart.")
        return found
    of_x = rows * xx - x * x
    correlation = (rows * xy - x * y) / (of_x * spread).clamp(min=1e-300).sqrt()
    numbers = ~torch.tensor(table.categorical)
    close = torch.nonzero((correlation.abs() > LEAK) & (of_x > 0) & numbers).squeeze(1).tolist()
    if close and int(rows[0]) >= FEWEST:  # A line leads through any two points.
        found.append(
            f"The values of {table.listed(close)} equal the label up to scale. If that is the "
            "label in another guise, leave it out."
        )
    return found


def _decides(ids: Tensor, labels: Tensor) -> bool:
    """Has every category one label only, with enough rows that this is no accident?"""
    if len(ids) < FEW_IDS or bool((labels == labels[0]).all()):
        return False
    found, place = torch.unique(ids, return_inverse=True)
    if len(found) * FEW_IDS > len(ids):
        return False
    count = torch.bincount(place, minlength=len(found)).double()
    total = torch.zeros(len(found)).double().index_add_(0, place, labels)
    square = torch.zeros(len(found)).double().index_add_(0, place, labels * labels)
    return bool((count * square - total * total <= 1e-9 * count * square.clamp(min=1e-300)).all())
