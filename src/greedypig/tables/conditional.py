"""Absent columns imputed from the selected ones: `baseline="conditional"`.

With a baseline of zero or the mean a network is given rows that it never saw in training: a column
present, its copy absent. Its output is then halfway, as it has learned to use both, and the copy
seems to be worth the other half. Here every number x_j outside S is imputed by linear regression,

    E[x_j | x_S] = mean_j + Σ_{i in S} (x_i − mean_i) · A_ij,    A = (C_SS + ridge)⁻¹ C_Sj,

where C is the covariance of the numbers that the gates act on (of a category, its embedding). So
a copy of a selected column adds nothing.

A column that joins S also moves what is imputed for all the others, from E[x | x_S] to
E[x | x_S, x_j]. So its score is the path's gradient along that direction, not along x_j alone.
For a linear model fitted by least squares it is exactly what a new fit would gain by x_j, and
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
from .columns import Batch
from .distributed import Group
from .networks import Network

MOST = 4096
"""The most numbers of a row: their covariance is held, and a part of it solved in every round."""
ROUNDING = 1e-12
"""A variance below this share of the mean square about some row is rounding."""
CACHED = 256 * 2**20
"""Bytes of the regressions that are kept, for the sets used last."""


def ridge_for(numbers: int, rows: float) -> float:
    """Share of its own variance that is added to each number's: copies would make C_SS singular,
    and as many numbers as rows would explain everything."""
    return 1e-4 + numbers / rows


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and covariance of the numbers of a row."""

    mean: Tensor
    covariance: Tensor
    rows: float
    """How many rows they are of: (Σ w)² / Σ w² of the rows' weights."""
    column_of: Tensor

    def ridge(self, which: Tensor, numbers: int) -> Tensor:
        """What is added to these numbers' variances in a regression on `numbers` of them."""
        own = self.covariance.diagonal()[which]
        # A number that never moves explains nothing, and must not be divided by.
        return torch.where(own > 0, ridge_for(numbers, self.rows) * own, torch.ones_like(own))


class Regression:
    """From the numbers of the selected columns to those of the others."""

    def __init__(self, moments: Moments, selected: Tensor, like: Tensor) -> None:
        """selected: (columns,) bool. like: has the network's dtype and device."""
        taken = selected[moments.column_of]
        on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
        c = moments.covariance
        inside = c[on][:, on] + torch.diag(moments.ridge(on, len(on)))
        exact = torch.linalg.solve(inside, c[on][:, off])
        self.on, self.off = on.to(like.device), off.to(like.device)
        self.coefficients = exact.to(like)
        """(on, off)."""
        self.bytes = self.coefficients.nbytes + self.on.nbytes + self.off.nbytes


def effects(moments: Moments, regression: Regression) -> Tensor:
    """(off, off), float64: row i is how every absent number moves with one unit of number i beyond
    what S explains, the other numbers of its column included."""
    c, on, off = moments.covariance, regression.on.cpu(), regression.off.cpu()
    residual = c[off][:, off] - c[off][:, on] @ regression.coefficients.cpu().double()
    owners = moments.column_of[off]
    solved = torch.empty_like(residual)
    for column in sorted(set(owners.tolist())):
        here = torch.nonzero(owners == column).squeeze(1)
        own = residual[here][:, here] + torch.diag(moments.ridge(off[here], len(here)))
        solved[here] = torch.linalg.solve(own, residual[here])
    return solved.to(regression.off.device)


class Conditional:
    """Regressions of absent columns on selected ones, kept for the sets used last."""

    def __init__(self, moments: Moments, like: Tensor, *, credit: bool) -> None:
        """credit: does a column's score include what it says about the others?"""
        self.moments, self.like, self.credit = moments, like, credit
        self._regressions: OrderedDict[bytes, Regression] = OrderedDict()
        self._effects: tuple[Regression, Tensor] | None = None

    def regression(self, selected: Tensor) -> Regression:
        """The regression on these columns (columns,) bool."""
        if selected.dim() != 1:
            raise InvalidInput("Expected one set of gates for all rows (got several).")
        key = bytes(selected.tolist())
        cache = self._regressions
        if key not in cache:
            cache[key] = Regression(self.moments, selected.cpu(), self.like)
            while len(cache) > 1 and sum(r.bytes for r in cache.values()) > CACHED:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return cache[key]

    def rows(self, x: Tensor, selected: Tensor) -> Tensor:
        """(rows, inputs): x in the selected columns, what they let one expect in the others."""
        regression = self.regression(selected)
        mean = self.moments.mean.to(x)
        imputed = x.clone()
        known = x.index_select(1, regression.on) - mean[regression.on]
        off = regression.off
        imputed[:, off] = torch.addmm(mean[off], known, regression.coefficients)
        return imputed

    def gather(self, news: Tensor, slopes: Tensor) -> Tensor:
        """What `per_number` needs of some rows, to be added up, float64.

        news, slopes: (rows, off), how far the absent numbers are from what is imputed, and the
        gradient in them.
        """
        return (news.T @ slopes if self.credit else (slopes * news).sum(0)).double()

    def per_number(self, regression: Regression, gathered: Tensor) -> Tensor:
        """(off,) float64: Σ over rows of number i's news times the gradient along its effects."""
        if not self.credit:
            return gathered
        if self._effects is None or self._effects[0] is not regression:
            # The matrix is large: only the last one is stored.
            self._effects = (regression, effects(self.moments, regression))
        return (gathered * self._effects[1]).sum(1)

    @contextmanager
    def without_credit(self) -> Iterator[None]:
        """Scores of the columns' own gradients alone."""
        before, self.credit = self.credit, False
        try:
            yield
        finally:
            self.credit = before


def fit_conditional(
    network: Network, sample: Iterator[Batch], group: Group, example: Batch, *, credit: bool
) -> Conditional:
    """Mean and covariance of the numbers that the network's gates act on, over the sample.

    example: the same batch on all processes. Sums are of distances from its first row: squares of
    numbers far from 0 would lose their spread to rounding.
    """
    assert network.column_of is not None
    width = len(network.column_of)
    if width > MOST:
        raise InvalidInput(
            f"Expected at most {MOST:,} numbers in a row for baseline='conditional', embeddings "
            f"included (got {width:,}). Try baseline='mean'."
        )
    first = [part[:1] for part in network.read(example).features]
    origin = network.numbers(first)[0].double().cpu()
    total = torch.zeros(2 + width + width * width, dtype=torch.float64)
    for batch in sample:
        rows = network.read(batch)
        if not len(rows):
            continue
        numbers = network.numbers(rows.features).double().cpu() - origin
        count = rows.counts().cpu()
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
    effective = float(total[0] ** 2 / total[1])
    moments = Moments(origin + shift, spread, effective, network.column_of.cpu())
    return Conditional(moments, network.baseline, credit=credit)
