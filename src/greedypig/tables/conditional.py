"""What the columns that are there let one expect of those that are not: `baseline="conditional"`.

With a baseline of zero or the mean a network is asked about rows that nobody ever saw: a column
there, its copy absent. It answers half, having learnt to use both, and the copy seems to be worth
the other half. Here the copy is not absent but expected: every number x_j outside S is put at

    E[x_j | x_S] = mean_j + Σ_{i in S} (x_i − mean_i) · A_ij,    A = (C_SS + ridge)⁻¹ C_Sj,

the linear regression on the numbers of S, C being their covariance where the gates act (of a
category, its embedding). What S tells already is then no news any more.

A column that comes to S moves what is expected of all the others, too: from E[x | x_S] to
E[x | x_S, x_j]. So its score is the path's gradient along that direction, not along x_j alone.
For a linear model fitted by least squares it is exactly what a fresh fit would gain by x_j, and
G(S) is the loss of a model fitted to S alone (but for the ridge).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from .networks import Encoded
from .objective import Adding
from .stream import Batch

MOST = 4096
"""Numbers of a row, at most: their covariance is held, and a part of it solved in every round."""
ROUNDING = 1e-12
"""Of a number's mean square about some row: a variance below that is none."""
HELD = 256 * 2**20
"""Bytes of the regressions that are kept, for the sets asked about last."""


def ridge_for(numbers: int, rows: float) -> float:
    """Share of its own variance that is added to each number's: copies would make C_SS singular,
    and so many numbers as rows would tell everything."""
    return 1e-4 + numbers / rows


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and covariance of the numbers of a row."""

    mean: Tensor
    covariance: Tensor
    rows: float
    """How many they were found from, (Σ w)² / Σ w² of their weights."""
    column_of: Tensor

    def ridge(self, which: Tensor, numbers: int) -> Tensor:
        """What is added to these numbers' variances where `numbers` of them tell of others."""
        own = self.covariance.diagonal()[which]
        # A number that never moves tells nothing, and must not be divided by.
        return torch.where(own > 0, ridge_for(numbers, self.rows) * own, torch.ones_like(own))


class Regression:
    """From the numbers that are there to those that are not."""

    def __init__(self, moments: Moments, there: Tensor, like: Tensor) -> None:
        """there: (columns,) bool. like: has the network's dtype and device."""
        taken = there[moments.column_of]
        on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
        c = moments.covariance
        inside = c[on][:, on] + torch.diag(moments.ridge(on, len(on)))
        exact = torch.linalg.solve(inside, c[on][:, off])
        self.on, self.off = on.to(like.device), off.to(like.device)
        self.coefficients = exact.to(like)
        """(on, off)."""
        self.bytes = self.coefficients.nbytes + self.on.nbytes + self.off.nbytes


def told(moments: Moments, given: Regression) -> Tensor:
    """(off, off), float64: row i has what one unit of news in number i, together with the other
    numbers of its column, says about every number that is not there."""
    c, on, off = moments.covariance, given.on.cpu(), given.off.cpu()
    news = c[off][:, off] - c[off][:, on] @ given.coefficients.cpu().double()
    owners = moments.column_of[off]
    made = torch.empty_like(news)
    for column in sorted(set(owners.tolist())):
        here = torch.nonzero(owners == column).squeeze(1)
        own = news[here][:, here] + torch.diag(moments.ridge(off[here], len(here)))
        made[here] = torch.linalg.solve(own, news[here])
    return made.to(given.off.device)


class Expected:
    """Regressions of absent columns on those that are there, kept for the sets asked about."""

    def __init__(self, moments: Moments, like: Tensor, *, credit: bool) -> None:
        """credit: is a column's score also what it says about the others?"""
        self.moments, self.like, self.credit = moments, like, credit
        self._held: OrderedDict[bytes, Regression] = OrderedDict()
        self._told: tuple[Regression, Tensor] | None = None

    def given(self, gates: Tensor) -> Regression:
        """The regression on the columns whose gate is 1."""
        there = (gates == 1).cpu()
        if there.dim() != 1:
            raise InvalidInput("Expected one set of gates for all rows (got several).")
        key = bytes(there.tolist())
        if key in self._held:
            self._held.move_to_end(key)
        else:
            self._held[key] = Regression(self.moments, there, self.like)
            while len(self._held) > 1 and sum(r.bytes for r in self._held.values()) > HELD:
                self._held.popitem(last=False)
        return self._held[key]

    def rows(self, x: Tensor, gates: Tensor) -> Tensor:
        """(rows, inputs): x where a column is there, what is expected elsewhere."""
        found = self.given(gates)
        mean = self.moments.mean.to(x)
        made = x.clone()
        known = x.index_select(1, found.on) - mean[found.on]
        made[:, found.off] = torch.addmm(mean[found.off], known, found.coefficients)
        return made

    def gathered(self, news: Tensor, slopes: Tensor) -> Tensor:
        """What `per_number` needs of some rows, to be added up, float64.

        news, slopes: (rows, off), how far the absent numbers are from what is expected, and the
        gradient in them.
        """
        return (news.T @ slopes if self.credit else (slopes * news).sum(0)).double()

    def per_number(self, given: Regression, gathered: Tensor) -> Tensor:
        """(off,) float64: Σ over rows of number i's news times the slope along what they say."""
        if not self.credit:
            return gathered
        if self._told is None or self._told[0] is not given:
            self._told = (given, told(self.moments, given))  # Of one round at a time: it is large.
        return (gathered * self._told[1]).sum(1)

    @contextmanager
    def without_credit(self) -> Iterator[None]:
        """Scores of the columns' own slopes alone."""
        before, self.credit = self.credit, False
        try:
            yield
        finally:
            self.credit = before


def expect(
    network: Encoded, sample: Iterator[Batch], group: Adding, example: Batch, *, credit: bool
) -> Expected:
    """Mean and covariance of what the network's gates act on, over the rows of the sample.

    example: the same batch on all processes. Sums are of distances from its first row: squares of
    numbers far from 0 would swallow their spread.
    """
    width = len(network.column_of)
    if width > MOST:
        raise InvalidInput(
            f"Expected at most {MOST:,} numbers in a row for baseline='conditional', embeddings "
            f"included (got {width:,}). Try baseline='mean'."
        )
    first = [part[:1] for part in network.table.read(example).to(network.device).parts]
    origin = network.numbers(first)[0].double().cpu()
    total = torch.zeros(2 + width + width * width, dtype=torch.float64)
    for batch in sample:
        rows = network.table.read(batch).to(network.device)
        if not len(rows.labels):
            continue
        numbers = network.numbers(rows.parts).double().cpu() - origin
        count = rows.counts().double().cpu()
        total[0] += count.sum()
        total[1] += (count**2).sum()
        total[2 : width + 2] += count @ numbers
        total[width + 2 :] += ((numbers * count.unsqueeze(1)).T @ numbers).reshape(-1)
    total = group.sum(total)
    if not total[0] > 0:
        raise InvalidInput("Expected at least one row that counts in the batches (got none).")
    shift = total[2 : width + 2] / total[0]
    squares = total[width + 2 :].reshape(width, width) / total[0]
    spread = squares - torch.outer(shift, shift)
    # What is left of a number that never moves is rounding.
    still = spread.diagonal() <= ROUNDING * squares.diagonal()
    spread[still], spread[:, still] = 0, 0
    rows_seen = float(total[0] ** 2 / total[1])
    moments = Moments(origin + shift, spread, rows_seen, network.column_of.cpu())
    return Expected(moments, network.baseline, credit=credit)
