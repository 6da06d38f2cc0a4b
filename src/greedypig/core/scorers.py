"""One-shot scores at a mask: how much each element adds on the way from 1_S to 1.

Every scorer follows a path of points from place(1_S) to place(1) and sums gradient · movement
along it, so elements of S, which do not move, score 0. Any of them is made adaptive by the loop
in `rounds`, which calls it again after every pick. Sources: integrated gradients, Sundararajan
et al. 2017; SmoothGrad, Smilkov et al. 2017; Guided IG, Kapishnikov et al. 2021, Algorithm 1.
Scorers that need no gradient are in `unit_scorers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType
from .features import Elements, Features
from .lockstep import Plan, Request, ask, complete, together
from .objective import MeanObjective, PointObjective
from .quadrature import Rule, rule
from .schedule import check_count, whole


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """Where a round stands: the problem, the mask 1_S, and what the round is for."""

    objective: PointObjective
    mask: Tensor
    features: Features
    taken: Tensor
    z: int
    round: int = 0
    seed: int = 0
    last: Tensor | None = None
    """The unit scores of the round before, where there was one."""
    alone: bool = True
    """False where the objective is one of several whose scores are averaged."""
    before: Tensor | None = None
    """The element scores of the round before, for scorers that remember."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of the elements, or of whole units; and what came for free: g(1_S), Σ elements."""

    elements: Tensor | None = None
    units: Tensor | None = None
    value: Tensor | None = None
    total: float | None = None


def mean_of(found: list[Scored]) -> Scored:
    """The mean of several objectives' scores over the same units."""

    def mean(tensors: list[Tensor | None]) -> Tensor | None:
        known = [t for t in tensors if t is not None]
        return torch.stack(known).mean(0) if len(known) == len(tensors) else None

    return Scored(
        mean([s.elements for s in found]),
        mean([s.units for s in found]),
        mean([s.value for s in found]),
    )


class Scorer(Protocol):
    """Any callable (objective, mask (n,)) → scores (n,). Selected elements are ignored."""

    def __call__(self, objective: PointObjective, mask: Tensor, /) -> Tensor:
        """scores_i: how much element i would add to S, where mask = 1_S."""
        ...


class PlannedScorer:
    """A scorer whose requests are visible, so that many problems can share device batches."""

    name = ""
    of_elements = True
    """Does it score elements (rather than whole units)?"""
    remembers = False
    """Does it go on from the element scores of the round before?"""

    def plan(self, at: Situation) -> Plan[Scored]:
        """The scores at 1_S, as a generator of requests."""
        raise NotImplementedError

    def cost(self) -> int:
        """Gradient evaluations of one call."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """The name and every knob, for provenance."""
        knobs = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"scorer": self.name} | {
            k: v.settings() if isinstance(v, PlannedScorer) else v for k, v in knobs.items()
        }

    def __call__(self, objective: PointObjective | MeanObjective, mask: Tensor, /) -> Tensor:
        features = Elements(objective.n)
        mask = mask.to(objective.start)
        nobody = torch.zeros(objective.n, dtype=torch.bool, device=mask.device)
        scores = [
            complete(self.plan(Situation(part, mask, features, nobody, features.units)))
            for part in objective.parts
        ]
        found = [s.units if s.elements is None else s.elements for s in scores]
        return torch.stack([f for f in found if f is not None]).mean(0)


@dataclass(frozen=True)
class IntegratedGradients(PlannedScorer):
    """Algorithm 1's integral: scores_i = Σ_k weights_k · ∂_i g(mask + nodes_k · (1 − mask))."""

    steps: int = 20
    rule: str | Rule = "midpoint"
    name = "integrated-gradients"

    def __post_init__(self) -> None:
        self._quadrature  # noqa: B018  # Raises if there is no such rule.

    def plan(self, at: Situation) -> Plan[Scored]:
        begin, end = at.objective.place(at.mask), at.objective.end
        ahead = at.features.ahead(at.taken, at.z)
        if ahead is not None:
            end = at.objective.place(ahead.to(at.mask))
        nodes, weights = self._tensors(begin)
        count = len(self._quadrature.nodes)
        along, first, last, back = at.objective.line(begin, end)

        def points(lo: int, hi: int) -> Tensor:
            return torch.lerp(first, last, nodes if hi - lo == count else nodes[lo:hi])

        (answer,) = yield [Request(along, count, points, weights, end - begin, back)]
        free = answer.values[0] if self._quadrature.nodes[0] == 0.0 else None
        return Scored(answer.gradient, None, free, answer.sum)

    def cost(self) -> int:
        return len(self._quadrature.nodes)

    @property
    def integrates(self) -> bool:
        """Are its scores an integral along the path? A single gradient is none."""
        return self.cost() > 1

    def settings(self) -> dict[str, Any]:
        own = self.rule if isinstance(self.rule, str) else [
            list(self.rule.nodes), list(self.rule.weights)
        ]  # fmt: skip
        return {"scorer": self.name, "steps": self.cost(), "rule": own}

    @cached_property
    def _quadrature(self) -> Rule:
        return rule(self.rule, self.steps) if isinstance(self.rule, str) else self.rule

    @cached_property
    def _made(self) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]]:
        return {}

    def _tensors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes (count, 1) and weights (count,), made once for every dtype and device."""
        key = (like.dtype, like.device)
        if key not in self._made:
            nodes = torch.tensor(self._quadrature.nodes, dtype=like.dtype, device=like.device)
            weights = torch.tensor(self._quadrature.weights, dtype=like.dtype, device=like.device)
            self._made[key] = nodes.unsqueeze(1), weights
        return self._made[key]


@dataclass(frozen=True)
class Gradient(PlannedScorer):
    """scores_i = ∂_i g(mask + at · (1 − mask)): one gradient, at 1_S unless told otherwise.

    Greedy rounds around it are the paper's Sequential Gradient; at=1 is gradient × input.
    """

    at: float = 0.0
    name = "gradient"

    def __post_init__(self) -> None:
        self._inner  # noqa: B018  # Raises if there is no such point.

    def plan(self, at: Situation) -> Plan[Scored]:
        return (yield from self._inner.plan(at))

    def cost(self) -> int:
        return 1

    @cached_property
    def _inner(self) -> IntegratedGradients:
        return IntegratedGradients(rule=Rule((float(self.at),), (1.0,)))


GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it modulo 1 are spread evenly, whichever run of them one looks at."""


@dataclass(frozen=True)
class RollingGradients(PlannedScorer):
    """Algorithm 1's integral rolled over the rounds: a point or a few a round, remembered.

    new_i = mean over the round's points t of ∂_i g(mask + t · (1 − mask))
    scores = (new + memory · W_before · scores_before) / W,  W = Σ_{j ≤ round} memory^j

    S grows little from round to round, so the gradients of the last rounds are still good points
    of this round's integral. The points t are multiples of the golden ratio modulo 1: every run
    of consecutive rounds covers [0, 1] evenly.
    """

    points: int = 1
    memory: float = 0.5
    name = "rolling-gradients"
    remembers = True

    def __post_init__(self) -> None:
        _count(self, "points")
        if not 0 <= self.memory < 1:
            raise InvalidInput(f"Expected memory from 0 to below 1 (got {self.memory!r}).")

    def plan(self, at: Situation) -> Plan[Scored]:
        begin, end = at.objective.place(at.mask), at.objective.end
        first = at.round * self.points
        nodes = [((first + i) * GOLDEN + 0.5) % 1.0 for i in range(self.points)]
        where = torch.tensor(nodes, dtype=begin.dtype, device=begin.device).unsqueeze(1)
        weights = torch.full_like(where[:, 0], 1 / self.points)

        def points(lo: int, hi: int) -> Tensor:
            return torch.lerp(begin, end, where[lo:hi])

        answer = yield from ask(Request(at.objective, self.points, points, weights))
        new = answer.gradient * (end - begin)
        if at.before is None or not self.memory:
            return Scored(elements=new)
        older = sum(self.memory**j for j in range(1, at.round + 1))
        remembered = torch.where(at.mask == 0, at.before, 0)
        return Scored(elements=(new + older * remembered) / (1 + older))

    def cost(self) -> int:
        return self.points


@dataclass(frozen=True)
class Smooth(PlannedScorer):
    """The mean of a scorer's scores over noisy inputs: x + noise · span · N(0, 1) off S.

    noise is a share of the input's range (max − min). The mean is of signed scores;
    square=True gives the mean of squares, which some libraries do silently.
    """

    scorer: PlannedScorer = IntegratedGradients(steps=50)
    samples: int = 25
    noise: float = 0.15
    square: bool = False
    name = "smooth"

    def __post_init__(self) -> None:
        _count(self, "samples")
        if not isinstance(self.scorer, PlannedScorer) or not self.scorer.of_elements:
            raise InvalidType(
                "Expected a scorer that follows a path, such as IntegratedGradients "
                f"(got {type(self.scorer).__name__})."
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InvalidInput(f"Expected noise ≥ 0, a share of the range (got {self.noise!r}).")

    def plan(self, at: Situation) -> Plan[Scored]:
        limit = at.objective.oracle.batch_size
        total = torch.zeros_like(at.mask)
        for lo in range(0, self.samples, limit):
            found = yield from together(self._plans(at, lo, min(lo + limit, self.samples)), limit)
            for scored in found:
                assert scored.elements is not None
                total += scored.elements**2 if self.square else scored.elements
        return Scored(elements=total / self.samples)

    def cost(self) -> int:
        return self.samples * self.scorer.cost()

    def _plans(self, at: Situation, lo: int, hi: int) -> Iterator[Plan[Scored]]:
        problem = at.objective
        off = (at.mask == 0).to(problem.end)
        for sample in range(lo, hi):
            noise = seeded_normal(problem.end, at.seed, at.round, sample)
            noisy = problem.toward(problem.end + noise * off * (self.noise * problem.span))
            yield self.scorer.plan(replace(at, objective=noisy))


@dataclass(frozen=True)
class GuidedIG(PlannedScorer):
    """Integrated gradients along a path that moves the least sensitive elements first.

    Each of `steps` steps moves the `fraction` of elements with the smallest |∂g/∂x| towards the
    input, none further than max_dist (a share of its way) from the straight line. The defaults
    are those of the authors' implementation.
    """

    steps: int = 200
    fraction: float = 0.25
    max_dist: float = 0.02
    name = "guided-ig"

    def __post_init__(self) -> None:
        _count(self, "steps")
        for name, share in (("fraction", self.fraction), ("max_dist", self.max_dist)):
            if not 0 <= share <= 1:
                raise InvalidInput(f"Expected {name} from 0 to 1 (got {share!r}).")

    def plan(self, at: Situation) -> Plan[Scored]:
        problem = at.objective
        # The path is kept in float64: thousands of small moves must add up to the whole way.
        begin = problem.place(at.mask).double()
        end = problem.end.double()
        x, scores = begin.clone(), torch.zeros_like(begin)
        first = None
        for step in range(self.steps if bool((end != begin).any()) else 0):
            answer = yield from ask(point_request(problem, x.to(problem.end.dtype)))
            first = answer.values[0] if first is None else first
            gradient = answer.gradient.double()
            moved = self._move(x, begin, end, gradient, (step + 1) / self.steps)
            scores += (moved - x) * gradient
            x = moved
        return Scored(elements=scores.to(problem.end.dtype), value=first)

    def cost(self) -> int:
        return self.steps

    def _move(
        self, x: Tensor, begin: Tensor, end: Tensor, gradient: Tensor, alpha: float
    ) -> Tensor:
        """Where the path is after the step that ends at `alpha` of its L1 length."""
        way = end - begin
        floor = begin + way * max(alpha - self.max_dist, 0.0)
        ceiling = begin + way * min(alpha + self.max_dist, 1.0)
        behind = (x - begin).abs() < (floor - begin).abs()
        x = torch.where(behind, floor, x)
        goal = float(way.abs().sum()) * (1 - alpha)
        size = torch.where(x == ceiling, torch.inf, gradient.abs())
        rank = int(self.fraction * (x.numel() - 1)) + 1
        while True:
            left = float((x - end).abs().sum())
            if left <= goal or math.isclose(left, goal, rel_tol=1e-9, abs_tol=1e-9):
                return x
            cut = torch.kthvalue(size, rank).values
            pick = (size <= cut) & torch.isfinite(size)
            gain = float(((x - ceiling).abs() * pick).sum())
            if gain == 0.0:
                return x
            share = min((left - goal) / gain, 1.0)
            x = torch.where(pick, ceiling if share == 1.0 else x + (ceiling - x) * share, x)
            if (left - goal) <= gain:
                return x
            size = torch.where(pick, torch.inf, size)


def point_request(objective: PointObjective, point: Tensor) -> Request:
    """The gradient at a single point (n,)."""
    weight = torch.ones(1, dtype=point.dtype, device=point.device)
    return Request(objective, 1, lambda lo, hi: point.unsqueeze(0), weight)


def seeded_normal(like: Tensor, *seed: int) -> Tensor:
    """N(0, 1) shaped like `like`, the same on every device, from these seeds alone."""
    generator = _generator(*seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)


def seeded_uniform(count: int, *seed: int) -> Tensor:
    """(count,) float64, uniform in [0, 1), from these seeds alone."""
    return torch.rand(count, generator=_generator(*seed), dtype=torch.float64)


def _count(scorer: PlannedScorer, name: str) -> None:
    """Check one of a frozen scorer's knobs: a whole number of any make, kept as Python's own."""
    number = whole(getattr(scorer, name))
    check_count(name, number)
    object.__setattr__(scorer, name, number)


def _generator(*seed: int) -> torch.Generator:
    # A digest keeps neighbouring seeds, rounds and samples apart, on every platform alike.
    digest = blake2b(repr(seed).encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))
