"""Checks before a selection: does the model use its gates, does it return logits, do the columns
of a sample of the rows make sense?

A gate works if the outputs do not change when the values of a column whose gate is closed change
places among the rows. A constant column, a column that equals or decides the label, a label of one
class: none of them is an error, each gets a warning that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from ..core.errors import GreedyPigError, InvalidInput, first_line
from ..tensors.targets import PROBABILITIES, look_like_probabilities
from . import losses
from .columns import Batch, Rows, Table
from .distributed import Group
from .networks import Network

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


def check_model(network: Network, loss: str) -> list[str]:
    """Warnings about a model; gates that cannot be used are an error."""
    if len(network.example) < 2:
        return []
    with torch.no_grad():
        warnings = _check_gates(network) if network.gates_itself else []
        if loss in losses.OF_PROBABILITIES and _returns_probabilities(network, loss):
            warnings.append(f"{PROBABILITIES} Or leave out the model's last sigmoid or softmax.")
    return warnings


def _returns_probabilities(network: Network, loss: str) -> bool:
    """Are these rows that sum to 1? Or single numbers from 0 to 1 that fit the labels better as
    probabilities, or as logits worse than a constant output?"""
    rows = network.example.changed(lambda tensor: tensor[:OUTPUT_ROWS])
    outputs = network.outputs(network.encoded(rows), _gates(network, 1.0))
    if not isinstance(outputs, Tensor) or not look_like_probabilities(outputs):
        return False
    if loss != "binary-cross-entropy":
        return True
    as_logits, as_probabilities = (
        losses.per_row(function, outputs, rows.labels).mean()
        for function in (losses.LOSSES[loss], losses.OF_PROBABILITIES[loss])
    )
    rate = rows.labels.double().mean()
    constant = -torch.xlogy(rate, rate) - torch.xlogy(1 - rate, 1 - rate)
    return bool(as_logits > as_probabilities) or bool(as_logits > WORSE * constant)


def _check_gates(network: Network) -> list[str]:
    """Columns that change the output with their gate closed."""
    rows = network.example.changed(lambda tensor: tensor[:GATE_ROWS])
    opened = _gates(network, 1.0)
    everything = _outputs(network, rows, opened)
    if not _same(everything, _outputs(network, rows, opened)):
        return []  # A model whose outputs are random cannot be checked.
    closed = _outputs(network, rows, _gates(network, 0.0))
    if _same(everything, closed) and not _same(everything, everything[:1]):
        raise InvalidInput(
            "Expected a model that uses its gates (got the same outputs with all of them 0 as with "
            "all of them 1). Try x * gates where a column enters, or a forward without gates."
        )
    leaking = []
    for column in range(min(network.columns, MOST_GATES)):
        gates = opened.clone()
        gates[column] = 0
        parts = network.table.changed(rows.features, column, lambda values: values.roll(1, 0))
        moved = _outputs(network, Rows(parts, rows.labels), gates)
        if not _same(_outputs(network, rows, gates), moved):
            leaking.append(column)
    if not leaking:
        return []
    return [
        f"The model's outputs change with {network.table.listed(leaking)} although the gate of "
        "that column is closed, so scores and order mean little. Expected one gate per column, in "
        "the order of the columns, numbers first, on everything made from the column, such as its "
        "embedding."
    ]


def _outputs(network: Network, rows: Rows, gates: Tensor) -> Tensor:
    """The model's outputs; an error that comes with gates alone is about the gates."""
    try:
        outputs = network.outputs(network.encoded(rows), gates)
    except GreedyPigError:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        try:
            network.table.call(network.model, rows.features)
        except Exception:  # The model's own error.
            raise error from None
        raise InvalidInput(
            f"Expected a model that takes gates of shape ({network.columns},), one for each column "
            f"(got {type(error).__name__}: {first_line(error)}). Try gates[column_of] for columns "
            "that become several numbers."
        ) from error
    losses.check_outputs(outputs, len(rows))
    return outputs  # type: ignore[no-any-return]


def _gates(network: Network, value: float) -> Tensor:
    return torch.full((network.columns,), value, dtype=torch.float64, device=network.device)


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b.expand_as(a), rtol=1e-4, atol=1e-6, equal_nan=True)


def check_rows(
    network: Network, sample: Iterator[Batch], group: Group, *, at_zero: bool = False
) -> tuple[list[str], list[int]]:
    """Warnings about columns that are constant, equal the label or decide it, and about a constant
    label; and the constant columns, the same list on all processes.

    at_zero: absent columns are at 0, so columns far from 0 are warned of.
    """
    table = network.table
    first = _matrix(table, network.example)[:1, :-1]
    is_category = torch.tensor(table.categorical)
    sums = torch.zeros(4, table.columns + 1, dtype=torch.float64)
    ids = [torch.zeros(0, int(is_category.sum()) + 1, dtype=torch.float64)]
    for batch in islice(sample, BATCHES):
        rows = _matrix(table, table.read(batch))
        # Of numbers sums are enough: many wide batches would not fit in memory.
        ids.append(rows[:, torch.cat([is_category, torch.ones(1, dtype=torch.bool)])])
        rows[:, :-1] -= first
        counts = torch.full((table.columns + 1,), len(rows), dtype=torch.float64)
        sums += torch.stack([counts, rows.sum(0), (rows**2).sum(0), rows[:, -1] @ rows])
    sums = group.sum(sums)
    rows_seen = float(sums[0, 0])
    if rows_seen < 2:
        return [], []
    # Columns were taken relative to one of their values: a constant one is exactly 0.
    is_constant = sums[2, :-1] == 0
    if not group.first:
        return [], _places(is_constant)
    mean, square, product = sums[1:] / rows_seen
    variance = (square - mean**2).clamp(min=0)
    correlation = (product - mean * mean[-1]) / (variance * variance[-1]).clamp(min=1e-300).sqrt()
    varies = bool(variance[-1] > 1e-12 * square[-1])
    is_equal = (correlation[:-1].abs() > SAME) & ~is_constant & ~is_category & varies
    is_far = (mean[:-1] + first[0]).abs() > FAR * variance[:-1].sqrt()
    every = torch.cat(ids)
    deciding = [_decides(column, every[:, -1]) for column in every[:, :-1].T]
    is_deciding = torch.zeros_like(is_category)
    is_deciding[is_category] = torch.tensor(deciding, dtype=torch.bool)
    warnings = [
        (
            is_constant,
            "The values of {} are constant in the rows checked. Such a column acts as a bias of "
            "the model, which is no reason to select it.",
        ),
        (
            is_equal & (rows_seen >= FEWEST),
            "The values of {} equal the label up to scale. If that is the label in another form, "
            "leave it out.",
        ),
        (
            is_far & ~is_constant & ~is_category & at_zero,
            f"The values of {{}} are more than {FAR:g} standard deviations from 0, the baseline of "
            "absent columns. Try baseline='mean', or standardise them.",
        ),
        (
            is_deciding,
            "The categories of {} decide the label. If that is the label in another form, leave "
            "it out.",
        ),
    ]
    texts = [text.format(table.listed(_places(which))) for which, text in warnings if which.any()]
    if not varies:
        texts.append("The label is the same in all rows checked: there is nothing to predict.")
    return texts, _places(is_constant)


def _places(which: Tensor) -> list[int]:
    return torch.nonzero(which).squeeze(1).tolist()


def _matrix(table: Table, rows: Rows) -> Tensor:
    """(rows, columns and the label) in float64; a bag counts by its first entry."""
    widths = [*(part.width for part in table.parts), 1]
    tensors = [
        t.unsqueeze(1) if t.dim() == 1 else t.flatten(1) for t in (*rows.features, rows.labels)
    ]
    parts = [tensor[:, :width] for tensor, width in zip(tensors, widths, strict=True)]
    return torch.cat([part.double().cpu() for part in parts], dim=1)


def _decides(ids: Tensor, labels: Tensor) -> bool:
    """Has every category one label only, with enough rows that chance is unlikely?"""
    if len(ids) < ROWS_PER_ID or bool((labels == labels[0]).all()):
        return False
    kinds = torch.unique(ids)
    pairs = torch.unique(torch.stack([ids, labels]), dim=1)
    return len(kinds) * ROWS_PER_ID <= len(ids) and pairs.shape[1] == len(kinds)
