"""What the columns that are there let one expect of those that are not: `baseline="conditional"`.

With a baseline of zero or the mean a network is asked about rows that nobody ever saw: a column
there, its copy absent. It answers half, having learnt to use both, and the copy seems to be worth
the other half. Here the copy is not absent but expected: every number x_j outside S is put at

    E[x_j | x_S] = mean_j + Σ_{i in S} (x_i − mean_i) · A_ij,    A = (C_SS + ridge)⁻¹ C_Sj,

the linear regression on the numbers of S, C being their covariance where the gates act (of a
category, its embedding). What S tells already is then no news any more. For a linear model fitted
by least squares G(S) is then the loss of the model fitted anew to S alone (but for the ridge).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.errors import InvalidInput
from .batches import Batch
from .networks import Encoded
from .objective import Adding

MOST = 4096
"""Numbers of a row, at most: their covariance is held, and a part of it solved in every round."""
ROUNDING = 1e-12
"""Of a number's square: a variance below that is none."""
HELD = 64
"""Sets whose regression is kept."""


@dataclass(frozen=True, eq=False)
class Regression:
    """Which numbers are there, which are not, and the coefficients from those to these."""

    on: Tensor
    off: Tensor
    coefficients: Tensor
    """(on, off)."""


def ridge_for(numbers: int, rows: float) -> float:
    """Share of its own variance that is added to each number's: copies would make C_SS singular,
    and so many numbers as rows would tell everything."""
    return 1e-4 + numbers / rows


class Expected:
    """Linear regression of the numbers of absent columns on those of the columns that are there."""

    def __init__(
        self, mean: Tensor, covariance: Tensor, rows: float, column_of: Tensor, like: Tensor
    ) -> None:
        """rows: how many mean and covariance were found from, (Σ w)² / Σ w² of their weights."""
        self.mean, self.covariance, self.seen = mean, covariance, rows
        self.column_of, self.like = column_of, like
        self._held: OrderedDict[bytes, Regression] = OrderedDict()
        self._only: Tensor | None = None

    @contextmanager
    def only(self, mask: Tensor) -> Iterator[None]:
        """Let the columns of this mask alone be there, whatever the gates."""
        self._only = mask
        try:
            yield
        finally:
            self._only = None

    def given(self, gates: Tensor) -> Regression:
        """The regression on the columns whose gate is 1."""
        there = ((gates if self._only is None else self._only) == 1).cpu()
        if there.dim() != 1:
            raise InvalidInput("Expected one set of gates for all rows (got several).")
        key = bytes(there.tolist())
        if key in self._held:
            self._held.move_to_end(key)
        else:
            self._held[key] = self._solved(there)
            if len(self._held) > HELD:
                self._held.popitem(last=False)
        return self._held[key]

    def rows(self, x: Tensor, gates: Tensor) -> Tensor:
        """(rows, inputs): x where a column is there, what is expected elsewhere."""
        found = self.given(gates)
        mean = self.mean.to(x)
        made = x.clone()
        known = x.index_select(1, found.on) - mean[found.on]
        made[:, found.off] = torch.addmm(mean[found.off], known, found.coefficients)
        return made

    def _solved(self, there: Tensor) -> Regression:
        taken = there[self.column_of]
        on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
        inside = self.covariance[on][:, on]
        own = inside.diagonal()
        ridge = ridge_for(len(on), self.seen)
        # A number that never moves tells nothing, and must not be divided by.
        inside = inside + torch.diag(torch.where(own > 0, ridge * own, torch.ones_like(own)))
        solved = torch.linalg.solve(inside, self.covariance[on][:, off])
        device = self.like.device
        return Regression(on.to(device), off.to(device), solved.to(self.like))


def expect(network: Encoded, sample: Iterator[Batch], group: Adding) -> Expected:
    """Mean and covariance of what the network's gates act on, over the rows of the sample."""
    width = len(network.column_of)
    if width > MOST:
        raise InvalidInput(
            f"Expected at most {MOST:,} numbers in a row for baseline='conditional', embeddings "
            f"included (got {width:,}). Try baseline='mean'."
        )
    total = torch.zeros(2 + width + width * width, dtype=torch.float64)
    for batch in sample:
        rows = network.table.read(batch).to(network.device)
        if not len(rows.labels):
            continue
        numbers, count = network.numbers(rows.parts).double().cpu(), rows.counts().double().cpu()
        total[0] += count.sum()
        total[1 : width + 1] += count @ numbers
        total[width + 1 : -1] += ((numbers * count.unsqueeze(1)).T @ numbers).reshape(-1)
        total[-1] += (count**2).sum()
    total = group.sum(total)
    if not total[0] > 0:
        raise InvalidInput("Expected at least one row that counts in the batches (got none).")
    mean = total[1 : width + 1] / total[0]
    spread = total[width + 1 : -1].reshape(width, width) / total[0] - torch.outer(mean, mean)
    # What is left of a number that never moves is rounding.
    still = spread.diagonal() <= ROUNDING * mean**2
    spread[still], spread[:, still] = 0, 0
    return Expected(
        mean, spread, float(total[0] ** 2 / total[-1]), network.column_of.cpu(), network.baseline
    )
