"""What an absent column looks like: zero, its mean, a value of its own, or imputed.

Zero is zero where the gates act: of a standardised number its mean, of a category a vector of
zeros. The mean is taken there too, over the rows of the sample.

With a baseline of zero or the mean a network is given rows that it never saw in training: a column
present, its copy absent. Its output is then halfway, as it has learned to use both, and the copy
seems to be worth the other half. baseline="conditional" imputes every number x_j outside S by
linear regression,

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..network.fingerprint import digest
from .columns import Batch, Table, as_tensor
from .distributed import Group
from .networks import Network

NAMES = ("zero", "mean")
CONDITIONAL = "conditional"
MOST = 4096
"""The most numbers of a row: their covariance is a matrix, a part of it solved in every round."""
ROUNDING = 1e-12
"""A variance below this share of the mean square about some row is rounding."""
CACHED = 256 * 2**20
"""Bytes of the cached regressions, for the sets used last."""


def set_baseline(
    network: Network, baseline: Any, sample: Iterator[Batch], group: Group, *,
    example: Batch | None = None, credit: bool = True,
) -> Any:  # fmt: skip
    """Put the network's absent columns at this baseline; returns a description for the record.

    baseline: "zero", "mean", "conditional", a number for each column (a
    category's is the id that stands for absence), a tensor with a number for each input of the
    first layer, or a dict from columns (by name or index) to any of "zero", "mean" and numbers,
    the others being zero.
    example, credit: of "conditional", see `fit_conditional` and `Conditional`.
    """
    if isinstance(baseline, str) and baseline == "zero":
        return "zero"
    if network.column_of is None:
        raise InvalidInput(
            f"Expected baseline='zero' for a model that gates its columns itself "
            f"(got {baseline!r})."
        )
    if isinstance(baseline, str) and baseline == CONDITIONAL:
        assert example is not None
        if network.refusal:
            raise InvalidInput(
                f"Expected baseline='zero', 'mean' or numbers for {network.refusal} "
                "(got 'conditional')."
            )
        imputed = fit_conditional(network, sample, group, example, credit=credit)
        network.put_absent_at(imputed.moments.mean)
        network.conditional = imputed
        return CONDITIONAL
    wanted = _wanted(baseline, network)
    if isinstance(wanted, Tensor):
        network.put_absent_at(wanted)
        return f"tensor {digest({'baseline': wanted})}"
    rest = torch.zeros_like(network.baseline)
    means = _mean(network, sample, group) if "mean" in wanted else rest
    fixed = _encoded(network, wanted) if any(not isinstance(w, str) for w in wanted) else rest
    for column, choice in enumerate(wanted):
        here = network.column_of == column
        if choice == "mean":
            rest[here] = means[here]
        elif not isinstance(choice, str):
            rest[here] = fixed[here]
    network.put_absent_at(rest)
    same = isinstance(baseline, str)
    return baseline if same else [w if isinstance(w, str) else float(w) for w in wanted]


def keep_constant(network: Network, constant: list[int], example: Batch) -> None:
    """Constant columns stay at their value: the network uses it as a bias, and without that bias
    every other column would seem useful to make up for it."""
    if not constant or network.column_of is None or network.conditional is not None:
        return  # A number that never moves is imputed by its value.
    rows = network.table.read(example)
    if not len(rows):
        return
    first = network.numbers([part[:1].to(network.device) for part in rows.features])[0]
    here = torch.isin(network.column_of, torch.tensor(constant, device=network.device))
    network.put_absent_at(torch.where(here, first.to(network.baseline), network.baseline))


def _wanted(baseline: Any, network: Network) -> list[Any] | Tensor:
    """What is asked of every column, or the numbers of the inputs themselves."""
    table = network.table
    if isinstance(baseline, str):
        return [_choice(baseline)] * table.columns
    if isinstance(baseline, Mapping):
        choices: list[Any] = ["zero"] * table.columns
        for column, choice in baseline.items():
            choices[_index(column, table)] = _choice(choice)
        return choices
    if isinstance(baseline, int | float) and not isinstance(baseline, bool):
        return [float(baseline)] * table.columns
    if isinstance(baseline, list | tuple):
        choices = [_choice(choice) for choice in baseline]
    else:
        numbers = as_tensor(baseline, "the baseline").reshape(-1)
        if len(numbers) == len(network.baseline) != table.columns:
            return numbers
        choices = numbers.tolist()
    if len(choices) != table.columns:
        raise InvalidInput(
            f"Expected a baseline for each of the {table.columns} columns (got {len(choices)})."
        )
    return choices


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        if choice == CONDITIONAL:
            raise InvalidInput(
                "Expected 'conditional' as the baseline of all columns (got it for some of them)."
            )
        if choice not in NAMES:
            raise InvalidInput(
                "Expected baseline to be 'zero', 'mean', numbers or a dict of these, or "
                f"'conditional' (got {choice!r}).{did_you_mean(choice, (*NAMES, CONDITIONAL))}"
            )
        return choice
    if isinstance(choice, int | float) and not isinstance(choice, bool):
        return float(choice)
    if isinstance(choice, Tensor) and choice.numel() == 1:
        return float(choice)
    raise InvalidType(f"Expected 'zero', 'mean' or a number (got {type(choice).__name__}).")


def _index(column: Any, table: Table) -> int:
    if column in table.names:
        return table.names.index(column)
    if isinstance(column, int) and 0 <= column < table.columns:
        return column
    raise InvalidInput(
        f"Expected a column of the table in the baseline (got {column!r})."
        f"{did_you_mean(str(column), table.names)}"
    )


def _mean(network: Network, sample: Iterator[Batch], group: Group) -> Tensor:
    total = torch.zeros(len(network.baseline) + 1, dtype=torch.float64)
    for batch in sample:
        rows = network.read(batch)
        if len(rows):
            numbers, count = network.numbers(rows.features).double(), rows.counts()
            total[:-1] += (count @ numbers).cpu()
            total[-1] += count.sum().cpu()
    total = group.sum(total)
    return (total[:-1] / total[-1].clamp(min=1e-300)).to(network.baseline)


def _encoded(network: Network, wanted: list[Any]) -> Tensor:
    """What one row with these numbers and ids looks like where the gates act."""
    parts, column = [], 0
    for part in network.table.parts:
        width = part.width
        values = [0.0 if isinstance(w, str) else w for w in wanted[column : column + width]]
        column += width
        if part.shape != () and part.shape != (width,):
            raise InvalidInput("Expected 'zero' or 'mean' for a bag of categories (got a number).")
        row = torch.tensor(values, dtype=torch.float64).reshape(1, *part.shape)
        if part.categorical and not torch.equal(row, row.round()):
            raise InvalidInput("Expected a whole-number id as a category's baseline.")
        kind = torch.long if part.categorical else network.dtype
        parts.append(row.to(network.device, kind))
    return network.numbers(parts)[0].to(network.baseline)


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
