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

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..core.registry import BASELINES, COLUMNS, serving
from ..network.distributed import Group
from .batch import Batch
from .networks import Network

CONDITIONAL = "conditional"
NAMES = serving(BASELINES, COLUMNS)
MOST = 4096
"""The most numbers of a row: their covariance is a matrix, a part of it solved in every round."""
ROUNDING = 1e-12
"""A variance below this share of the mean square about some row is rounding."""
CACHED = 256 * 2**20
"""Bytes of regressions that are cached for the values of many sets."""


def set_baseline(network: Network, baseline: Any, sample: Iterator[Batch], group: Group) -> Any:
    """Put the network's absent columns at this baseline; returns a description for the record.

    baseline: "zero", "mean", "conditional", or a number for each column (a category's is the id
    that stands for absence).
    """
    if isinstance(baseline, str) and baseline == "zero":
        return "zero"
    if network.gates_itself:
        raise InvalidInput(
            f"Expected baseline='zero' for a model that gates its columns itself "
            f"(got {baseline!r})."
        )
    if isinstance(baseline, str):
        if baseline not in NAMES:
            raise InvalidInput(
                f"Expected baseline to be {', '.join(map(repr, NAMES))} or a number for each "
                f"column (got {baseline!r}).{did_you_mean(baseline, NAMES)}"
            )
        if baseline == CONDITIONAL:
            network.conditional = fit_conditional(network, sample, group)
            network.put_absent_at(network.conditional.mean)
        else:
            network.put_absent_at(_mean(network, sample, group))
        return baseline
    columns = network.columns
    if isinstance(baseline, int | float):
        baseline = [baseline] * columns
    try:
        numbers = torch.as_tensor(baseline, dtype=torch.float64).reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidType(
            f"Expected a number for each column as baseline (got {type(baseline).__name__})."
        ) from None
    if len(numbers) != columns:
        raise InvalidInput(
            f"Expected a baseline for each of the {columns} columns (got {len(numbers)})."
        )
    network.put_absent_at(_encoded(network, numbers))
    return numbers.tolist()


def keep_constant(network: Network, constant: list[int]) -> None:
    """Constant columns stay at their value: the network uses it as a bias, and without that bias
    every other column would seem useful to make up for it."""
    if constant and not network.gates_itself and network.conditional is None:
        first = network.inputs(network.example.features)[0].detach()
        here = torch.isin(network.column_of, torch.tensor(constant, device=network.device))
        network.put_absent_at(torch.where(here, first.to(network.baseline), network.baseline))


def _mean(network: Network, sample: Iterator[Batch], group: Group) -> Tensor:
    total = torch.zeros(len(network.baseline) + 1, dtype=torch.float64)
    for rows in filter(len, map(network.read, sample)):
        x, count = network.inputs(rows.features).detach().double(), rows.counts()
        total += torch.cat([count @ x, count.sum().reshape(1)]).cpu()
    total = group.sum(total)
    return (total[:-1] / total[-1].clamp(min=1e-300)).to(network.baseline)


def _encoded(network: Network, numbers: Tensor) -> Tensor:
    """(inputs,): one row with these numbers and ids, where the gates act."""
    widths = [part.width for part in network.table.parts]
    parts = []
    for part, row in zip(network.table.parts, torch.split(numbers, widths), strict=True):
        if part.categorical and not torch.equal(row, row.round()):
            raise InvalidInput("Expected a whole-number id as a category's baseline.")
        kind = torch.long if part.categorical else network.dtype
        parts.append(row.reshape(1, *part.shape).to(network.device, kind))
    return network.inputs(parts)[0].detach().to(network.baseline)


def ridge_for(numbers: int, rows: float) -> float:
    """Share of its own variance that is added to each number's: copies would make C_SS singular,
    and as many numbers as rows would explain everything."""
    return 1e-4 + numbers / rows


class Conditional:
    """Regressions of absent columns on selected ones, from the covariance of the inputs."""

    def __init__(
        self, mean: Tensor, covariance: Tensor, rows: float, column_of: Tensor, like: Tensor
    ) -> None:
        """rows: how many rows the moments are of, (Σ w)² / Σ w² of the rows' weights. like: has
        the network's dtype and device."""
        self.mean, self.covariance, self.rows = mean, covariance, rows
        self.column_of, self.like = column_of, like
        self._coefficients: dict[bytes, Tensor] = {}
        self._effects: tuple[bytes, Tensor] | None = None

    def _split(self, selected: Tensor) -> tuple[Tensor, Tensor]:
        taken = selected.cpu()[self.column_of]
        return torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)

    def _solve(self, covariance: Tensor, which: Tensor, right: Tensor) -> Tensor:
        """(covariance + ridge)⁻¹ right, for these numbers."""
        own = self.covariance.diagonal()[which]
        # A number that never moves explains nothing, and must not be divided by.
        ridge = torch.where(own > 0, ridge_for(len(which), self.rows) * own, 1.0)
        solution: Tensor = torch.linalg.solve(covariance + torch.diag(ridge), right)
        return solution

    def coefficients(self, selected: Tensor) -> Tensor:
        """(on, off): the regression on these columns (columns,) bool."""
        if selected.dim() != 1:
            raise InvalidInput("Expected one set of gates for all rows (got several).")
        key = bytes(selected.tolist())
        if key not in self._coefficients:
            if sum(each.nbytes for each in self._coefficients.values()) > CACHED:
                self._coefficients.clear()
            (on, off), c = self._split(selected), self.covariance
            self._coefficients[key] = self._solve(c[on][:, on], on, c[on][:, off]).to(self.like)
        return self._coefficients[key]

    def per_number(self, selected: Tensor, products: Tensor) -> Tensor:
        """(off,) float64: Σ over rows of number i's news times the gradient along its effects.

        products: (off, off) Σ over rows of news · slopes.
        """
        key = bytes(selected.tolist())
        if self._effects is None or self._effects[0] != key:
            # The matrix is large: only the last one is stored.
            self._effects = (key, self._effects_of(selected).to(products.device))
        return (products * self._effects[1]).sum(1)

    def _effects_of(self, selected: Tensor) -> Tensor:
        """(off, off), float64: row i is how every absent number moves with one unit of number i
        beyond what S explains, the other numbers of its column included."""
        (on, off), c = self._split(selected), self.covariance
        residual = c[off][:, off] - c[off][:, on] @ self.coefficients(selected).cpu().double()
        owners, effects = self.column_of[off], torch.empty_like(residual)
        for column in sorted(set(owners.tolist())):
            here = torch.nonzero(owners == column).squeeze(1)
            effects[here] = self._solve(residual[here][:, here], off[here], residual[here])
        return effects


def fit_conditional(network: Network, sample: Iterator[Batch], group: Group) -> Conditional:
    """Mean and covariance of the numbers that the network's gates act on, over the sample."""
    width = len(network.column_of)
    if width > MOST:
        raise InvalidInput(
            f"Expected at most {MOST:,} numbers in a row for baseline='conditional', embeddings "
            f"included (got {width:,}). Try baseline='mean'."
        )
    # Of distances from one row: squares of numbers far from 0 would lose their spread to rounding.
    origin = network.inputs(network.example.features)[:1].detach().double().cpu()
    total = torch.zeros(2 + width + width * width, dtype=torch.float64)
    for rows in filter(len, map(network.read, sample)):
        x = network.inputs(rows.features).detach().double().cpu() - origin
        count = rows.counts().cpu()
        head = torch.stack([count.sum(), (count**2).sum()])
        squares = (x * count.unsqueeze(1)).T @ x
        total += torch.cat([head, count @ x, squares.flatten()])
    total = group.sum(total)
    if not total[0] > 0:
        raise InvalidInput("Expected at least one row that counts in the batches (got none).")
    shift = total[2 : width + 2] / total[0]
    squares = total[width + 2 :].reshape(width, width) / total[0]
    covariance = squares - torch.outer(shift, shift)
    # What is left of a number that never moves is rounding.
    still = covariance.diagonal() <= ROUNDING * squares.diagonal()
    covariance[still], covariance[:, still] = 0, 0
    effective = float(total[0] ** 2 / total[1])
    mean, owners = origin[0] + shift, network.column_of.cpu()
    return Conditional(mean, covariance, effective, owners, network.baseline)
