"""Checks before a selection: does the model use its gates, does it return logits, do the columns
of a sample of the rows make sense?

A gate works if the outputs do not change when the values of a column whose gate is closed change
places among the rows. A constant column, a column that equals or decides the label, a label of one
class: none of them is an error, each gets a warning that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ..core.errors import GreedyPigError, InvalidInput, first_line
from ..tensors.targets import PROBABILITIES, look_like_probabilities
from . import losses
from .columns import Batch, Rows, Table
from .distributed import Group
from .networks import GatedModel, Network

GATE_ROWS, OUTPUT_ROWS = 64, 1024
"""Rows of the first batch on which gates are tried, and outputs compared with labels."""
WORSE = 1.05
"""Logits whose loss is so many times that of a constant output are probably no logits."""
MOST_GATES = 64
"""Columns whose gates are tried one by one."""
BATCHES = 64
"""Batches of the sample whose columns are checked, at most."""
FEWEST = 10
"""Rows from which a column that equals the label is warned of: with two it always does."""
SAME = 1 - 1e-6
"""Correlation with the label beyond which a column equals it."""
FAR = 3.0
"""Standard deviations from 0 beyond which a column's zero is no natural absence."""
ROWS_PER_ID = 20
"""Rows per category, on average, from which categories of one label each are warned of."""


def check_model(network: Network, example: Batch, loss: str) -> list[str]:
    """Warnings about a model; gates that cannot be used are an error."""
    rows = network.read(example)
    if len(rows) < 2:
        return []
    warnings = []
    with torch.no_grad():
        if isinstance(network, GatedModel):
            warnings = _check_gates(network, [part[:GATE_ROWS] for part in rows.features])
        if loss in losses.OF_PROBABILITIES:
            first = network.encoded(next(rows.pieces(OUTPUT_ROWS)))
            warnings += _check_logits(network, first, loss)
    return warnings


def _check_logits(network: Network, batch: Rows, loss: str) -> list[str]:
    """Probabilities that are read as logits: rows that sum to 1; single numbers from 0 to 1 that
    fit the labels better as probabilities, or as logits worse than a constant output."""
    outputs = network.outputs(batch.features, _gates(network, 1.0))
    if not isinstance(outputs, Tensor) or not look_like_probabilities(outputs):
        return []
    if loss == "binary-cross-entropy":
        as_logits, as_probabilities = (
            losses.per_row(function, outputs, batch.labels).mean()
            for function in (losses.LOSSES[loss], losses.OF_PROBABILITIES[loss])
        )
        rate = batch.labels.double().mean()
        constant = -torch.xlogy(rate, rate) - torch.xlogy(1 - rate, 1 - rate)
        if bool(as_logits <= as_probabilities) and bool(as_logits <= WORSE * constant):
            return []
    return [f"{PROBABILITIES} Or leave out the model's last sigmoid or softmax."]


def _check_gates(network: GatedModel, parts: list[Tensor]) -> list[str]:
    """Columns that change the output with their gate closed."""
    opened, closed = _gates(network, 1.0), _gates(network, 0.0)
    everything = _outputs(network, parts, opened)
    if not _same(everything, _outputs(network, parts, opened)):
        return []  # A model whose outputs are random cannot be checked.
    if _same(everything, _outputs(network, parts, closed)) and not _same(
        everything, everything[:1]
    ):
        raise InvalidInput(
            "Expected a model that uses its gates (got the same outputs with all of them 0 as with "
            "all of them 1). Try x * gates where a column enters, or a forward without gates."
        )
    leaking = []
    for column in range(min(network.columns, MOST_GATES)):
        gates = opened.clone()
        gates[column] = 0
        moved = network.table.changed(parts, column, lambda values: values.roll(1, 0))
        if not _same(_outputs(network, parts, gates), _outputs(network, moved, gates)):
            leaking.append(column)
    if not leaking:
        return []
    return [
        f"The model's outputs change with {network.table.listed(leaking)} although the gate of "
        "that column is closed, so scores and order mean little. Expected one gate per column, in "
        "the order of the columns, numbers first, on everything made from the column, such as its "
        "embedding."
    ]


def _outputs(network: GatedModel, parts: list[Tensor], gates: Tensor) -> Tensor:
    """The model's outputs; an error that comes with gates alone is about the gates."""
    try:
        outputs = network.outputs(network.encode(parts), gates)
    except GreedyPigError:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        try:
            network.table.call(network.model, parts)
        except Exception:  # The model's own error.
            raise error from None
        raise InvalidInput(
            f"Expected a model that takes gates of shape ({network.columns},), one for each column "
            f"(got {type(error).__name__}: {first_line(error)}). Try gates[column_of] for columns "
            "that become several numbers."
        ) from error
    if not isinstance(outputs, Tensor) or outputs.dim() == 0 or len(outputs) != len(parts[0]):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InvalidInput(f"Expected one output per row, {len(parts[0])} of them (got {got}).")
    return outputs


def _gates(network: Network, value: float) -> Tensor:
    return torch.full((network.columns,), value, dtype=torch.float64, device=network.device)


def _same(a: Any, b: Any) -> bool:
    return torch.allclose(a, b.expand_as(a), rtol=1e-4, atol=1e-6, equal_nan=True)


def check_rows(
    table: Table, sample: Iterator[Batch], first: Batch, group: Group, *, at_zero: bool = False
) -> tuple[list[str], list[int]]:
    """Warnings about columns that are constant, equal the label or decide it, and about a constant
    label; and the constant columns, the same list on all processes.

    at_zero: absent columns are at 0, so columns far from 0 are warned of.
    """
    origin, _ = _read(table, first)
    at = origin[0] if len(origin) else torch.zeros(table.columns, dtype=torch.float64)
    sums = torch.zeros(6, table.columns, dtype=torch.float64)
    categorical = torch.nonzero(torch.tensor(table.categorical)).squeeze(1)
    ids, labels = [at.new_empty(0, len(categorical))], [at.new_empty(0)]
    for batch in islice(sample, BATCHES):
        columns, answers = _read(table, batch)
        sums += _moments(columns - at, answers)
        # Of numbers sums are enough: many wide batches would not fit in memory.
        ids.append(columns[:, categorical])
        labels.append(answers)
    sums = group.sum(sums)
    if float(sums[0, 0]) < 2:
        return [], []
    # Columns were taken relative to one of their values: a constant one is exactly 0.
    constant = torch.nonzero(sums[2] == 0).squeeze(1).tolist()
    if not group.first:
        return [], constant
    warnings = _from_moments(table, sums, constant)
    if at_zero:
        warnings += _far_from_zero(table, sums, at)
    every, answers = torch.cat(ids), torch.cat(labels)
    decides = [_decides(column, answers) for column in every.T]
    deciding = categorical[torch.tensor(decides, dtype=torch.bool)].tolist()
    if deciding:
        warnings.append(
            f"The categories of {table.listed(deciding)} decide the label. If that is the label in "
            "another form, leave it out."
        )
    return warnings, constant


def _read(table: Table, batch: Batch) -> tuple[Tensor, Tensor]:
    """(rows, columns) and (rows,) in float64; a bag counts by its first entry."""
    rows = table.read(batch)
    parts, labels = rows.features, rows.labels
    if not len(rows):
        return torch.empty(0, table.columns).double(), torch.empty(0).double()
    pieces = [
        part.reshape(len(part), -1)[:, : of.width].double().cpu()
        for part, of in zip(parts, table.parts, strict=True)
    ]
    first = labels.reshape(len(labels), -1)[:, :1].reshape(-1).double().cpu()
    return torch.cat(pieces, dim=1), first


def _moments(x: Tensor, y: Tensor) -> Tensor:
    """(6, columns): rows, Σx, Σx², Σxy, Σy, Σy²."""
    of_labels = torch.stack([y.sum(), (y * y).sum()]).unsqueeze(1).expand(2, x.shape[1])
    rows = torch.full((x.shape[1],), len(x), dtype=torch.float64)
    return torch.stack([rows, x.sum(0), (x * x).sum(0), y @ x, *of_labels])


def _from_moments(table: Table, sums: Tensor, constant: list[int]) -> list[str]:
    rows, x, xx, xy, y, yy = sums
    warnings = []
    if constant:
        warnings.append(
            f"The values of {table.listed(constant)} are constant in the rows checked. Such a "
            "column acts as a bias of the model, which is no reason to select it."
        )
    spread = (rows * yy - y * y)[0]
    if float(spread) <= 1e-12 * float((rows * yy)[0]):
        warnings.append("The label is the same in all rows checked: there is nothing to predict.")
        return warnings
    of_x = rows * xx - x * x
    correlation = (rows * xy - x * y) / (of_x * spread).clamp(min=1e-300).sqrt()
    numbers = ~torch.tensor(table.categorical)
    equal = torch.nonzero((correlation.abs() > SAME) & (of_x > 0) & numbers).squeeze(1).tolist()
    if equal and int(rows[0]) >= FEWEST:
        warnings.append(
            f"The values of {table.listed(equal)} equal the label up to scale. If that is the "
            "label in another form, leave it out."
        )
    return warnings


def _far_from_zero(table: Table, sums: Tensor, at: Tensor) -> list[str]:
    rows, x, xx = sums[:3]
    mean = x / rows
    deviation = (xx / rows - mean * mean).clamp(min=0).sqrt()
    far = ((mean + at).abs() > FAR * deviation) & (xx > 0) & ~torch.tensor(table.categorical)
    if not bool(far.any()):
        return []
    return [
        f"The values of {table.listed(torch.nonzero(far).squeeze(1).tolist())} are more than "
        f"{FAR:g} standard deviations from 0, the baseline of absent columns. Try "
        "baseline='mean', or standardise them."
    ]


def _decides(ids: Tensor, labels: Tensor) -> bool:
    """Has every category one label only, with enough rows that chance is unlikely?"""
    if len(ids) < ROWS_PER_ID or bool((labels == labels[0]).all()):
        return False
    kinds, place = torch.unique(ids, return_inverse=True)
    if len(kinds) * ROWS_PER_ID > len(ids):
        return False
    count = torch.bincount(place, minlength=len(kinds)).double()
    total = torch.zeros(len(kinds)).double().index_add_(0, place, labels)
    square = torch.zeros(len(kinds)).double().index_add_(0, place, labels * labels)
    return bool((count * square - total * total <= 1e-9 * count * square.clamp(min=1e-300)).all())
