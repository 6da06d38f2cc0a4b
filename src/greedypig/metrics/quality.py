"""Attribution quality, Definition 4.1 of the paper: how near a ranking's top k is to the best set.

The best set of k units is found by trying all where they are few. Where they are many it is
bounded: from below by greedy search, from above by what submodular functions allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, nan
from typing import Any

import torch
from torch import Tensor

from ..core.algorithms import ObjectiveLike, best_subset, greedy
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, NonFinite
from ..core.features import Elements, Features
from ..core.lockstep import Undisturbed
from ..core.objective import MeanObjective, PointObjective, as_objective
from ..core.schedule import check_count
from ..results.curve import Curve
from .curves import counts_of
from .ranking import unit_order

MOST_SUBSETS = 200_000
"""Up to this many sets of k units are all tried."""


@dataclass(frozen=True)
class Quality:
    """G(top k) / max over |S| = k of G(S), or what is known of it."""

    k: int
    """How many units the sets have."""
    value: float
    """G of the ranking's top k."""
    best: float
    """The largest G of k units that was found; the largest there is if `exact`."""
    best_units: tuple[int, ...]
    """The units that reach `best`, in rising order."""
    exact: bool
    """Were all sets of k units tried?"""
    most: float
    """An upper bound on G of k units: `best` if exact, else valid where G is monotone and
    submodular, NaN where that was not said."""

    @property
    def quality(self) -> float:
        """value / best: the attribution quality if `exact`, else an upper bound on it."""
        return self.value / self.best

    @property
    def at_least(self) -> float:
        """value / most: a lower bound on the attribution quality; NaN where none is known."""
        return self.value / self.most

    def __str__(self) -> str:
        sign = "=" if self.exact else "≤"
        return f"quality {sign} {self.quality:.4g} at k = {self.k}"


def attribution_quality(
    objective: ObjectiveLike,
    a: Any,
    k: int,
    *,
    ranking: str | None = None,
    submodular: bool = False,
    most_subsets: int = MOST_SUBSETS,
) -> Quality:
    """Definition 4.1: G({r_1, …, r_k}) / max over |S| = k of G(S), for a ranking r.

    objective: a positive set function, as for `gp.greedy_pig`. a: an Attribution of it, or a
    permutation of its elements, best first. Where there are more than `most_subsets` sets the
    best is the better of discrete greedy and the ranking itself. submodular=True says that G is
    monotone and submodular, which bounds it from above: by G(S) + the k largest marginal gains at
    S (Minoux 1978), at the greedy set and at the empty one.
    """
    with Undisturbed():
        problem = as_objective(objective)
        features, order = _ranked(a, problem, ranking)
        check_count("k", k, features.units)
        value = _values(problem, features, [order[:k]])[0]
        if comb(features.units, k) <= most_subsets:
            units, best = best_subset(problem, k, features=features)
            found = Quality(k, value, best, units, True, best)
        else:
            found = _bounded(problem, features, order[:k], value, submodular)
    if found.best <= 0:
        raise InvalidInput(
            f"Expected an objective with positive values, as Definition 4.1 divides by them (got "
            f"at most {found.best:.3g} for k = {k}). Try the objective minus its least value."
        )
    return found


def quality_curve(
    objective: ObjectiveLike,
    a: Any,
    *,
    ranking: str | None = None,
    points: int | Sequence[float] = 100,
) -> Curve:
    """Attribution quality without reference to k: the curve of G({r_1, …, r_k}) over k.

    Definition 4.1's area is `curve.auc`, per unit: fractions are k over the number of units, at
    `points` equally spaced k from none to all (every k where there are fewer units).
    """
    with Undisturbed():
        problem = as_objective(objective)
        features, order = _ranked(a, problem, ranking)
        counts = counts_of(points, features.units)
        wanted = [order[:count] for count in (*counts, features.units)]
        values = _values(problem, features, wanted)
    fractions = torch.tensor(counts, dtype=torch.float64) / features.units
    return Curve(fractions, torch.tensor(values[:-1], dtype=torch.float64), "quality", values[-1])


def _ranked(
    a: Any, problem: PointObjective | MeanObjective, ranking: str | None
) -> tuple[Features, Tensor]:
    """The units, and their order: by default that of the Attribution, signed scores and all."""
    if isinstance(a, Attribution):
        if a.features.n != problem.n:
            raise InvalidInput(
                f"Expected an attribution of {problem.n} elements (got one of {a.features.n})."
            )
        return a.features, unit_order(a, ranking, one_shot="signed")
    features = Elements(problem.n)
    if not isinstance(a, Tensor | list | tuple):
        raise InvalidType(
            f"Expected an Attribution or a permutation of the elements (got {type(a).__name__})."
        )
    order = torch.as_tensor(a)
    whole = order.shape == (problem.n,) and not order.is_floating_point()
    if not whole or sorted(order.tolist()) != list(range(problem.n)):
        raise InvalidInput(
            f"Expected a permutation of the {problem.n} elements, best first "
            f"(got {order.dtype} {tuple(order.shape)})."
        )
    return features, order.long()


def _values(
    problem: PointObjective | MeanObjective, features: Features, sets: Sequence[Tensor]
) -> list[float]:
    """G of each set of units, a few masks at a time."""
    found: list[float] = []
    for lo in range(0, len(sets), 64):
        masks = torch.stack([features.members(units) for units in sets[lo : lo + 64]])
        found += problem.values(masks.to(problem.start)).double().tolist()
    for units, value in zip(sets, found, strict=True):
        if not abs(value) < float("inf"):
            raise NonFinite(f"G of the top {len(units)} units is not finite.")
    return found


def _bounded(
    problem: PointObjective | MeanObjective,
    features: Features,
    top: Tensor,
    value: float,
    submodular: bool,
) -> Quality:
    k = len(top)
    by_greedy = greedy(problem, k, features=features)
    units = by_greedy.order[:k]
    reached = _values(problem, features, [units])[0]
    best, best_units = (reached, units) if reached >= value else (value, top)
    most = nan
    if submodular:
        bounds = [_ceiling(problem, features, held, k) for held in (units[:0], units)]
        most = max(min(bounds), best)  # Rounding must not put the bound below what was reached.
    return Quality(k, value, best, tuple(sorted(best_units.tolist())), False, most)


def _ceiling(
    problem: PointObjective | MeanObjective, features: Features, held: Tensor, k: int
) -> float:
    """G(S) + the k largest of G(S ∪ u) − G(S): no k units are worth more, if G is submodular."""
    others = [torch.cat([held, torch.tensor([u])]) for u in range(features.units)]
    start, *grown = _values(problem, features, [held, *others])
    gains = sorted((g - start for g in grown), reverse=True)
    return start + sum(max(gain, 0.0) for gain in gains[:k])
