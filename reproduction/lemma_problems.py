"""Problems with m copies of one column, and closed forms to hold the lemmas against.

A scene has n columns, of which one is there 1 + t times; its objective is g over n + t gates. In
the scenes of the lemma g(w) = h(…, max of the copies' gates, …): any copy does as well as all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from greedypig.core.methods import IG, GreedyPIG, MarginalGains
from greedypig.core.run import maximize
from greedypig.core.attribution import Attribution
from greedypig.core.errors import MissingPackage
from greedypig.core.objective import objective
from greedypig.models import TabularMLP
from greedypig.tables.api import select_features
from greedypig.tables.finetune import mask_finetune

PARTS = 8
"""Batches that a small table is learned from in."""
CUT = 5.0


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


def diabetes() -> Data:
    """scikit-learn's diabetes table: 442 people, 10 columns, how the disease went on."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise MissingPackage(
            "Expected the package scikit-learn for its diabetes table (it is not installed). "
            'Try pip install "greedypig[sklearn]".'
        ) from error
    found = load_diabetes()
    x, y = torch.tensor(found.data), torch.tensor(found.target)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return Data(x.float().clamp(-CUT, CUT), y.float(), tuple(map(str, found.feature_names)))


Selector = Callable[[str], Attribution]
"""From "ig", "greedy-pig" or "greedy" to its result."""


@dataclass(frozen=True)
class Knobs:
    """How the methods run."""

    top: int
    steps: int
    greedy_steps: int


def planted(worth: Sequence[float], t: int, knobs: Knobs) -> Selector:
    """G(S) = Σ worth of the columns of S, the first counted once however many copies S has."""
    values = torch.tensor(worth, dtype=torch.float64)

    def g(w: Tensor) -> Tensor:
        return torch.mv(any_copy(w, 0, len(values)), values)

    return _by_core(g, len(values) + t, knobs)


def either(data: Data, network: Any, best: int, t: int, knobs: Knobs) -> Selector:
    """A network of the columns without copies; the copied column is there if any copy is."""
    n = len(data.names)

    def g(w: Tensor) -> Tensor:
        gates = any_copy(w.float(), best, n)
        said = network((data.x * gates[:, None]).flatten(0, 1))[:, 0].view(len(w), -1)
        off: Tensor = said - data.y
        return -off.double().square().mean(1)

    return _by_core(g, n + t, knobs)


def any_copy(w: Tensor, best: int, n: int) -> Tensor:
    """(m, n + t) gates, copies of `best` at the end → (m, n): the largest of a column's gates.

    Of equal gates every one has the same share of the gradient, as the lemma's symmetry wants.
    """
    most = torch.cat([w[:, best : best + 1], w[:, n:]], 1).amax(1, keepdim=True)
    return torch.cat([w[:, :best], most, w[:, best + 1 : n]], 1)


def trained(
    data: Data, network: Any, best: int, t: int, knobs: Knobs, baseline: str = "zero"
) -> Selector:
    """A network trained on the table with the copies in it."""
    batches = [(with_copies(data, best, t), data.y)]

    def select(method: str) -> Attribution:
        k = None if method == "ig" else knobs.top
        search = IG(knobs.steps) if method == "ig" else (
            GreedyPIG(per_round=1, steps=knobs.greedy_steps)
        )  # fmt: skip
        with warnings.catch_warnings():
            # That columns are equal is what the scene is about.
            warnings.simplefilter("ignore")
            return select_features(network, batches, loss="squared-error", method=search, k=k,
                                   baseline=baseline)  # fmt: skip

    return select


def with_copies(data: Data, best: int, t: int) -> Tensor:
    """The columns, then t copies of one."""
    return torch.cat([data.x, data.x[:, [best] * t]], 1)


def learned(
    x: Tensor, y: Tensor, *, hidden: Sequence[int], batches: int, masked: bool, seed: int
) -> Any:
    """A small network after some batches of whole rows, or of rows with columns absent."""
    fresh = TabularMLP(x.shape[1], (), hidden=hidden, seed=seed)
    parts = [(x[i::PARTS], y[i::PARTS]) for i in range(PARTS)]
    return mask_finetune(fresh, parts, steps=batches, loss="squared-error", seed=seed,
                         whole_rows=0.25 if masked else 1.0)  # fmt: skip


def _by_core(g: Callable[[Tensor], Tensor], n: int, knobs: Knobs) -> Selector:
    def select(method: str) -> Attribution:
        problem = objective(g, n, dtype=torch.float64)
        if method == "ig":
            return maximize(problem, IG(knobs.steps))
        if method == "greedy":
            return maximize(problem, MarginalGains(), k=knobs.top)
        greedy = GreedyPIG(rounds=knobs.top, per_round=1, steps=knobs.greedy_steps)
        return maximize(problem, greedy)

    return select
