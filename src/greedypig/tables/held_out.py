"""From which column on nothing is gained: the loss of the first 1, 2, … columns on held-out rows.

The rows are cut into pieces, and every piece is asked about all sets of columns. So two sets are
compared on the same rows, and the standard error of their difference comes from the pieces:

    gain(S, T) = mean over rows of loss(S) − loss(T).

Nothing is gained after S if no larger set T has a gain of more than one standard error, the rule by
which the size of a model is often chosen. (Two would call too many useful columns of a small table
useless.) Training rows would not do: the model has learned their noise by heart, and so gains by
every column, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .columns import Rows
from .networks import Network, Prepared
from .stream import Batch

PIECES = 32
"""Pieces of a batch; errors need many of them, also from a single batch."""
MOST_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class HeldOut:
    """G on rows that were held out."""

    values: tuple[float, ...]
    """G of the first 0, 1, 2, … columns, then of all."""
    columns: int | None
    """Nothing is gained after so many columns; None where all columns are better than those
    selected."""
    rows: int


def measure(
    network: Network, batches: Iterator[Batch], order: Sequence[int], selected: int
) -> HeldOut:
    """G of the first 0, 1, …, `selected` columns of an order and of all, on these rows."""
    masks = torch.zeros(selected + 2, network.columns, dtype=torch.float64)
    for place, column in enumerate(order[:selected]):
        masks[place + 1 :, column] = 1
    masks[-1] = 1
    sums, weights, rows = [], [], 0
    for batch in batches:
        for piece in _pieces(network.table.read(batch).to(network.device)):
            prepared = Prepared(network.encode(piece.parts), piece.labels, piece.weights)
            sums.append(network.values(prepared, masks).cpu())
            weights.append(prepared.weight)
            rows += prepared.rows
        if rows >= MOST_ROWS:
            break
    if not rows:
        return HeldOut((), None, 0)
    total, weight = torch.stack(sums), torch.tensor(weights, dtype=torch.float64)
    values = total.sum(0) / weight.sum()
    return HeldOut(tuple(values.tolist()), _enough(total, weight), rows)


def _enough(sums: Tensor, weights: Tensor) -> int | None:
    """The fewest columns after which no larger set gains more than one standard error.

    sums: (pieces, sets) of −loss, the last of all columns. weights: (pieces,).
    """
    pieces = len(weights)
    if pieces < 2:
        return None
    for few in range(sums.shape[1] - 1):
        gains = sums[:, few + 1 :] - sums[:, few : few + 1]
        mean = gains.sum(0) / weights.sum()
        spread = (gains - weights.unsqueeze(1) * mean).square().sum(0)
        error = (spread * pieces / (pieces - 1)).sqrt() / weights.sum()
        if bool((mean <= error).all()):
            return few
    return None


def _pieces(rows: Rows) -> Iterator[Rows]:
    n = len(rows.labels)
    size = max(1, n // PIECES)
    for lo in range(0, n, size):
        hi = lo + size
        weights = None if rows.weights is None else rows.weights[lo:hi]
        yield Rows([part[lo:hi] for part in rows.parts], rows.labels[lo:hi], weights)
