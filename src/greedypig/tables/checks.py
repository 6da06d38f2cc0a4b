"""Checks before a selection: does the model return logits, do the columns make sense?

A constant column and a column that equals the label are no errors; each gets a warning that names
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from ..network.distributed import Group
from ..tensors.targets import PROBABILITIES, look_like_probabilities
from . import losses
from .batch import Batch, Rows
from .networks import Network

OUTPUT_ROWS = 1024
"""Rows of the first batch whose outputs are compared with labels."""
WORSE = 1.05
"""Logits whose loss is so many times that of a constant output are probably no logits."""
BATCHES = 64
"""Batches of the sample whose columns are checked, at most."""
FEWEST = 10
"""Rows from which a column that equals the label is warned of: with two it always does."""
SAME = 1 - 1e-6
"""Correlation with the label beyond which a column equals it."""


def check_model(network: Network, loss: str) -> list[str]:
    """A warning about a model that seems to return probabilities where logits are expected."""
    if len(network.example) < 2 or loss not in losses.OF_PROBABILITIES:
        return []
    with torch.no_grad():
        if not _returns_probabilities(network, loss):
            return []
    return [f"{PROBABILITIES} Or leave out the model's last sigmoid or softmax."]


def _returns_probabilities(network: Network, loss: str) -> bool:
    """Are these rows that sum to 1? Or single numbers from 0 to 1 that fit the labels better as
    probabilities, or as logits worse than a constant output?"""
    rows = network.example.changed(lambda tensor: tensor[:OUTPUT_ROWS])
    gates = torch.ones(network.columns, device=network.device)
    outputs = network.outputs(network.encoded(rows), gates)
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


def check_rows(
    network: Network, sample: Iterator[Batch], group: Group
) -> tuple[list[str], list[int]]:
    """Warnings about columns that are constant or equal the label; and the constant columns."""
    table = network.table
    first = _matrix(network.example)[:1]
    sums = torch.zeros(4, table.columns + 1, dtype=torch.float64)
    for batch in islice(sample, BATCHES):
        # Relative to one of its values a constant column is exactly 0.
        rows = _matrix(table.read(batch)) - first
        counts = torch.full_like(sums[0], len(rows))
        sums += torch.stack([counts, rows.sum(0), (rows**2).sum(0), rows[:, -1] @ rows])
    sums = group.sum(sums)
    count = float(sums[0, 0])
    if count < 2:
        return [], []
    mean, square, product = sums[1:] / count
    variance = (square - mean**2).clamp(min=0)
    correlation = (product - mean * mean[-1]) / (variance * variance[-1]).clamp(min=1e-300).sqrt()
    is_constant, is_number = square[:-1] == 0, ~torch.tensor(table.categorical)
    is_equal = (correlation[:-1].abs() > SAME) & ~is_constant & is_number & (count >= FEWEST)
    constant, equal = (
        torch.nonzero(which).squeeze(1).tolist() for which in (is_constant, is_equal)
    )
    texts = []
    if constant:
        texts.append(
            f"The values of {table.listed(constant)} are constant in the rows checked. Such a "
            "column acts as a bias of the model, which is no reason to select it."
        )
    if equal:
        texts.append(
            f"The values of {table.listed(equal)} equal the label up to scale. If that is the "
            "label in another form, leave it out."
        )
    return texts, constant


def _matrix(rows: Rows) -> Tensor:
    """(rows, columns and the label) in float64; of a label of several numbers the first."""
    *parts, labels = (t[:, None] if t.dim() == 1 else t for t in (*rows.features, rows.labels))
    return torch.cat([part.double().cpu() for part in (*parts, labels[:, :1])], dim=1)
