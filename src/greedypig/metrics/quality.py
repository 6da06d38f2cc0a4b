"""Attribution quality, Definition 4.1 of the paper: how near a ranking's top k is to the best set.

The best set of k features is found by trying all sets where they are few. Where they are many,
greedy search gives a lower bound on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..core.features import Elements, Features
from ..core.maximize import best_subset, maximize
from ..core.numbers import check_count
from ..core.objective import Objective
from ..core.scorers import MarginalGains
from ..core.two_sided import as_objective
from ..results.curve import Curve
from ..types import Ranking, SetFunctionLike
from .curves import counts_of
from .ranking import feature_order, permutation

MOST_SUBSETS = 200_000
"""Up to this many sets of k features are all tried."""


@dataclass(frozen=True)
class Quality:
    """G(top k) / max over |S| = k of G(S), or bounds on it."""

    k: int
    """How many features the sets have."""
    value: float
    """G of the ranking's top k."""
    best: float
    """The largest G of k features that was found; the largest there is if `exact`."""
    best_features: tuple[int, ...]
    """The features that reach `best`, in rising order."""
    exact: bool
    """Were all sets of k features tried?"""

    @property
    def quality(self) -> float:
        """value / best: the attribution quality if `exact`, else an upper bound on it."""
        return self.value / self.best

    def __str__(self) -> str:
        sign = "=" if self.exact else "≤"
        return f"quality {sign} {self.quality:.4g} at k = {self.k}"


def attribution_quality(
    objective: SetFunctionLike,
    a: Ranking,
    k: int,
    *,
    ranking: str | None = None,
    most_subsets: int = MOST_SUBSETS,
) -> Quality:
    """Definition 4.1: G({r_1, …, r_k}) / max over |S| = k of G(S), for a ranking r.

    objective: a positive set function, as for `gp.maximize`. a: an Attribution of it, or a
    permutation of its values, best first. Where there are more than `most_subsets` sets, the best
    is the better of discrete greedy and the ranking itself.
    """
    with torch.inference_mode(False):
        problem = as_objective(objective)
        features, order = _ranked(a, problem, ranking)
        check_count("k", k, features.count)
        value = _values(problem, features, [order[:k]])[0]
        if comb(features.count, k) <= most_subsets:
            chosen, best = best_subset(problem, k, features=features)
            quality = Quality(k, value, best, chosen, True)
        else:
            greedy = maximize(problem, MarginalGains(), features=features, k=k).order
            options = [
                (value, order[:k]),
                (_values(problem, features, [greedy[:k]])[0], greedy[:k]),
            ]
            best, top = max(options, key=lambda option: option[0])
            quality = Quality(k, value, best, tuple(sorted(top.tolist())), False)
    if quality.best <= 0:
        raise InvalidInput(
            f"Expected an objective with positive values, as Definition 4.1 divides by them (got "
            f"at most {quality.best:.3g} for k = {k}). Try the objective minus its least value."
        )
    return quality


def quality_curve(
    objective: SetFunctionLike,
    a: Ranking,
    *,
    ranking: str | None = None,
    points: int | Sequence[float] = 100,
) -> Curve:
    """Attribution quality without reference to k: the curve of G({r_1, …, r_k}) over k.

    Definition 4.1's area is `curve.auc`: fractions are k over the number of features, at `points`
    equally spaced k from none to all (every k where there are fewer features).
    """
    with torch.inference_mode(False):
        problem = as_objective(objective)
        features, order = _ranked(a, problem, ranking)
        counts = counts_of(points, features.count)
        values = _values(problem, features, [order[:k] for k in (*counts, features.count)])
    fractions = torch.tensor(counts, dtype=torch.float64) / features.count
    return Curve(fractions, torch.tensor(values[:-1], dtype=torch.float64), "quality", values[-1])


def _ranked(a: Any, problem: Objective, ranking: str | None) -> tuple[Features, Tensor]:
    """The features and their order; one-shot scores are ranked by signed value by default."""
    if isinstance(a, Attribution):
        if a.features.n != problem.n:
            raise InvalidInput(
                f"Expected an attribution of {problem.n} values (got one of {a.features.n})."
            )
        return a.features, feature_order(a, ranking, one_shot="signed")
    if not isinstance(a, Tensor | list | tuple):
        raise InvalidType(
            f"Expected an Attribution or a permutation of the values (got {type(a).__name__})."
        )
    return Elements(problem.n), permutation(torch.as_tensor(a), problem.n)


def _values(problem: Objective, features: Features, sets: Sequence[Tensor]) -> list[float]:
    """G of each set of features."""
    values: list[float] = []
    for first in range(0, len(sets), problem.points):
        part = sets[first : first + problem.points]
        taken = torch.zeros(len(part), features.count, dtype=torch.bool)
        for row, chosen in zip(taken, part, strict=True):
            row[chosen.cpu()] = True
        masks = features.mask(taken.to(problem.end.device)).unsqueeze(0)
        values += problem.values(masks)[0].double().tolist()
    return values
