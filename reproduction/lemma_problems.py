"""Problems with copies of one column, and the lemmas of Section 4 as numbers.

A scene has n columns, of which one is there 1 + t times; its objective is g over n + t gates. In
the scenes of the lemma g(w) = h(…, max of the copies' gates, …): any copy does as well as all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.models import TabularMLP

PARTS = 8
"""Batches of one pass over a small table."""
LARGEST = 5.0
"""Standardised values are cut to this size."""
T = 4
"""Copies in the check of the redundancy lemma."""
G = Callable[[Tensor], Tensor]
Selector = Callable[[Any, int | None], gp.Attribution]
"""From a method and the number of columns to select, None for all, to the result."""


@dataclass(frozen=True)
class Data:
    """A small table, standardised."""

    x: Tensor
    """(rows, columns)"""
    y: Tensor
    """(rows,)"""
    names: tuple[str, ...]

    def worth(self, columns: Sequence[int]) -> float:
        """R² of least squares on these columns: what they are worth to a fresh linear model."""
        a, y = self.x[:, sorted(set(columns))].double(), self.y.double()
        fitted = a @ torch.linalg.lstsq(a, y[:, None]).solution
        return float(1 - (fitted[:, 0] - y).square().sum() / y.square().sum())

    @cached_property
    def best(self) -> int:
        """The column that is worth most alone."""
        return max(range(len(self.names)), key=lambda i: self.worth([i]))

    def with_copies(self, t: int) -> Tensor:
        """The columns, then t copies of the best one."""
        return torch.cat([self.x, self.x[:, [self.best] * t]], 1)


def diabetes() -> Data:
    """scikit-learn's diabetes table: 442 people, 10 columns, the progress of the disease."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise gp.MissingPackage(
            "Expected the package scikit-learn for its diabetes table (it is not installed). "
            'Try pip install "greedypig[sklearn]".'
        ) from error
    table = load_diabetes()
    x, y = torch.tensor(table.data), torch.tensor(table.target)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return Data(x.float().clamp(-LARGEST, LARGEST), y.float(), tuple(map(str, table.feature_names)))


def any_copy(w: Tensor, best: int, n: int) -> Tensor:
    """(m, n + t) gates, copies of `best` at the end → (m, n): the largest of a column's gates.

    Equal gates share the gradient equally, as the lemma's symmetry requires.
    """
    most = torch.cat([w[:, best : best + 1], w[:, n:]], 1).amax(1, keepdim=True)
    return torch.cat([w[:, :best], most, w[:, best + 1 : n]], 1)


def planted(worth: Sequence[float]) -> G:
    """G(S) = Σ worth of the columns of S, the first counted once however many copies S has."""
    values = torch.tensor(worth, dtype=torch.float64)
    return lambda w: torch.mv(any_copy(w, 0, len(values)), values)


def either(data: Data, network: Any) -> G:
    """A network of the columns without copies; the copied column is there if any copy is."""

    def g(w: Tensor) -> Tensor:
        gates = any_copy(w.float(), data.best, len(data.names))
        outputs = network((data.x * gates[:, None]).flatten(0, 1))[:, 0].view(len(w), -1)
        errors: Tensor = outputs - data.y
        return -errors.double().square().mean(1)

    return g


def by_core(g: G, n: int) -> Selector:
    """Selects by maximizing g over n gates."""
    return lambda method, k: gp.maximize(gp.objective(g, n, dtype=torch.float64), method, k=k)


def trained(data: Data, network: Any, t: int, baseline: str = "zero") -> Selector:
    """Selects by a network that was trained on the table with the copies in it."""
    batches = [(data.with_copies(t), data.y)]

    def select(method: Any, k: int | None) -> gp.Attribution:
        with warnings.catch_warnings():  # Equal columns are what the scene is about.
            warnings.simplefilter("ignore")
            return gp.select_features(
                network, batches, loss="squared-error", baseline=baseline, method=method, k=k
            )

    return select


def train(
    x: Tensor, y: Tensor, *, hidden: Sequence[int], batches: int, masked: bool, seed: int
) -> Any:
    """A small network after some batches of whole rows, or of rows with columns absent."""
    fresh = TabularMLP(x.shape[1], (), hidden=hidden, seed=seed)
    parts = [(x[i::PARTS], y[i::PARTS]) for i in range(PARTS)]
    share = 0.25 if masked else 1.0
    return gp.mask_finetune(
        fresh, parts, steps=batches, loss="squared-error", seed=seed, whole_rows=share
    )


@dataclass(frozen=True)
class Check:
    """One statement of a lemma, as a number."""

    lemma: str
    statement: str
    number: float
    """How far apart the two sides are, or what the statement says."""
    comparison: str
    """What the number is to be compared with."""


def redundancy(worth: Sequence[float]) -> list[Check]:
    """Equal scores for copies; none for the others once one is selected."""
    g, n = planted(worth), len(worth)

    def g_after(w: Tensor) -> Tensor:
        selected = torch.zeros_like(w)
        selected[:, 0] = 1
        return g(torch.maximum(w, selected))

    scores = _ig(g, n + T)
    copies = torch.cat([scores[:1], scores[n:]])
    after = _ig(g_after, n + T)[n:]
    return [
        Check(
            "Feature redundancy",
            f"IG's scores of {T + 1} equal columns differ by at most",
            float(copies.max() - copies.min()),
            f"each is {float(copies.mean()):.3g}, their sum what one alone had",
        ),
        Check(
            "Feature redundancy",
            "once one is selected, the others' largest score is",
            float(after.abs().max()),
            "0 by the lemma",
        ),
    ]


def regression(data: Data) -> list[Check]:
    """g(w) = −‖A(x ⊙ w) − b‖² at the least-squares x, on the table's own columns."""
    a, b = data.x.double(), data.y.double()
    x = torch.linalg.lstsq(a, b[:, None]).solution[:, 0]

    def g(w: Tensor) -> Tensor:
        errors: Tensor = torch.mm(x * w, a.T) - b
        return -errors.square().sum(1)

    n = len(x)
    scores, closed_form = _ig(g, n), x * (a.T @ b)
    gains = g(torch.eye(n, dtype=a.dtype)) - g(torch.zeros(1, n, dtype=a.dtype))
    # The Hessian is −2 diag(x) AᵀA diag(x) everywhere; its mixed terms bound the gap.
    hessian = -2 * x[:, None] * (a.T @ a) * x
    bound = (hessian.sum(1) - hessian.diagonal()).abs() / 2
    return [
        Check(
            "Linear regression",
            "∫∇g(t·1) dt and x ⊙ Aᵀb differ by at most",
            float((scores - closed_form).abs().max()),
            f"the largest score is {float(closed_form.max()):.3g}",
        ),
        Check(
            "PIG and marginal gain",
            "a score misses the column's marginal gain by at most",
            float((scores - gains).abs().max()),
            f"the lemma's bound is {float(bound.max()):.3g}, which a quadratic g attains",
        ),
    ]


def _ig(g: G, n: int) -> Tensor:
    return by_core(g, n)(gp.IG(39), None).feature_scores.double()
