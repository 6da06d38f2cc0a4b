"""One-shot scores at a mask: how much each value adds on the way from 1_S to 1.

A scorer is a function (objective, round) → scores (b, n). It follows a path of masks from 1_S,
`round.mask`, to 1 and sums gradient · movement along it, so values of S, which do not move, score
0. Any of them becomes adaptive by the rounds in `rounds.py`, which call it again after every pick.
Every scorer here is a one-shot method, too: one round that ranks everything. Sources:
integrated gradients, Sundararajan et al. 2017; SmoothGrad, Smilkov et al. 2017; Guided IG,
Kapishnikov et al. 2021, Algorithm 1; greedy by marginal gains, Nemhauser et al. 1978.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from math import isclose
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType
from .features import Features
from .numbers import check_count, check_knobs, check_switch, real, whole
from .objective import Objective
from .quadrature import Rule, completed, rule
from .revisions import Revision
from .rounds import Round
from .stopping import Stop


class OneShot:
    """A scorer that is a method by itself: one round that takes everything, or k features."""

    name: str
    integrates: ClassVar[bool] = False
    """Are scores integrals along the path to everything?"""
    measures_gains: ClassVar[bool] = False
    """Are scores differences of G?"""
    may_be_flat: ClassVar[bool] = False
    """May every score be 0 although the objective depends on its features?"""

    @property
    def cost(self) -> int:
        """Gradients of one call; 0 where that is not known."""
        return 0

    fits_each_input: ClassVar[bool] = False

    def fitted(self, objective: Objective, features: Features, *, by_name: bool) -> Self:
        """The method for one input: itself."""
        return self

    @property
    def round_scorer(self) -> Self:
        """The scorer of the only round: the method itself."""
        return self

    @property
    def in_rounds(self) -> OneShot:
        """The scorer that greedy rounds around this method call."""
        return self

    def revisions(self, k: int | None, stop: Stop) -> tuple[Revision, ...]:
        """Changes of what a round takes: none."""
        return ()

    def picks(self, features: Features, k: int | None = None) -> tuple[int, ...]:
        """One round of all features, or of k."""
        return (features.count if k is None else check_count("k", k, features.count),)

    def settings(self) -> dict[str, Any]:
        """The method's name and knobs, for the record."""
        return described(self)

    def __call__(self, objective: Any, round: Round, /) -> Tensor:
        """(b, n): how much each value would add to S."""
        raise NotImplementedError


@dataclass(frozen=True)
class Custom(OneShot):
    """A function (objective, round) → scores of the caller's, as a one-shot method."""

    function: Callable[[Any, Round], Tensor]

    @property
    def name(self) -> str:  # type: ignore[override]
        """The function's name."""
        kind = type(self.function).__name__
        name = getattr(self.function, "name", None) or getattr(self.function, "__name__", kind)
        return str(name)

    @property
    def cost(self) -> int:
        """What the function says."""
        return int(getattr(self.function, "cost", 0))

    def settings(self) -> dict[str, Any]:
        """The function's name, and its fields if it is a dataclass."""
        return described(self.function) | {"method": self.name}

    def __call__(self, objective: Any, round: Round, /) -> Tensor:
        """What the function returns."""
        return self.function(objective, round)


def described(method: Any) -> dict[str, Any]:
    """The name and the fields of a method, as JSON holds them."""
    knobs = fields(method) if is_dataclass(method) else ()
    name = getattr(method, "name", type(method).__name__)
    return {"method": name} | {f.name: _plain(getattr(method, f.name)) for f in knobs}


def _plain(knob: Any) -> Any:
    knob = real(whole(knob))
    if knob is None or isinstance(knob, str | int | float):
        return knob
    if isinstance(knob, Rule):
        return [list(knob.nodes), list(knob.weights)]
    if isinstance(knob, Sequence):
        return list(knob)
    if isinstance(knob, Mapping):
        return dict(knob)
    return knob.settings() if isinstance(knob, OneShot) else described(knob)


@dataclass(frozen=True)
class IG(OneShot):
    """Integrated gradients: scores_i = Σ_k weights_k · ∂_i g(mask + nodes_k · (1 − mask)).

    complete: change the weights as little as possible so that the scores sum to g(1) − g(mask)
    (`quadrature.completed`). It costs two values, and no gradient.
    """

    steps: int = 50
    rule: str | Rule = "midpoint"
    complete: bool = False
    name = "ig"

    def __post_init__(self) -> None:
        # A rule of one's own has its own number of nodes.
        object.__setattr__(self, "steps", len(self.quadrature))
        check_switch("complete", self.complete)

    @property
    def integrates(self) -> bool:  # type: ignore[override]
        """One node is a gradient, not an integral."""
        return self.steps > 1

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        if self.complete:
            return self._completed(objective, round)
        mask, rest = round.mask, round.rest
        nodes = mask.new_tensor(self.quadrature.nodes).unsqueeze(1)
        weights = mask.new_tensor(self.quadrature.weights)
        total, size = torch.zeros_like(mask), objective.points
        for first in range(0, nodes.shape[0], size):  # So memory does not grow with steps.
            part = slice(first, first + size)
            path = torch.addcmul(mask.unsqueeze(1), nodes[part], rest.unsqueeze(1))
            total += objective.gradient(path, weights[part], step=round.step + first)
        return total * rest

    def _completed(self, objective: Objective, round: Round) -> Tensor:
        """The scores with the weights that make their sum right: the gradient at each node is a
        call of its own."""
        mask, rest, one = round.mask, round.rest, round.mask.new_ones(1)
        slopes = torch.stack(
            [
                rest * objective.gradient((mask + node * rest).unsqueeze(1), one, step=step)
                for step, node in enumerate(self.quadrature.nodes, round.step)
            ],
            1,
        )
        ends = objective.values(torch.stack([mask, mask + rest], 1)).to(mask)
        weights = mask.new_tensor(self.quadrature.weights)
        weights = completed(weights, slopes.sum(2), ends[:, 1] - ends[:, 0])
        return (weights.unsqueeze(1) @ slopes).squeeze(1)

    @property
    def cost(self) -> int:
        """One gradient for every node."""
        return self.steps

    @cached_property
    def quadrature(self) -> Rule:
        """The nodes and weights."""
        if isinstance(self.rule, Rule):
            return self.rule
        if not isinstance(self.rule, str):
            raise InvalidType(
                f"Expected rule to be a name or a gp.Rule (got {type(self.rule).__name__})."
            )
        return rule(self.rule, self.steps)


@dataclass(frozen=True)
class TwoSidedIG(OneShot):
    """What the selected features lack to be enough, and what is still there without them:

    scores = (1 − necessity) · a / max |a| + necessity · b / max |b|, with the integrals
    a_i = Σ_k weights_k · ∂_i g(mask + nodes_k · (1 − mask)) and
    b_i = Σ_k weights_k · ∂_i g(nodes_k · (1 − mask)), which are the same while nothing is selected.
    """

    steps: int = 5
    rule: str | Rule = "midpoint"
    necessity: float = 0.7
    name = "two-sided-ig"

    def __post_init__(self) -> None:
        check_knobs(self, necessity=(0, 1))
        object.__setattr__(self, "steps", self._integral.steps)

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        present, mask = self._integral(objective, round), round.mask
        if not bool(mask.any()):
            return present
        without = replace(round, mask=torch.zeros_like(mask), goal=round.rest, step=self.steps)
        absent = self._integral(objective, without)
        sides = [
            side / side.abs().amax(1, keepdim=True).clamp_min(torch.finfo(side.dtype).tiny)
            for side in (present, absent)
        ]
        return (1 - self.necessity) * sides[0] + self.necessity * sides[1]

    @property
    def cost(self) -> int:
        """Two gradients for every node; the first round takes half of that."""
        return 2 * self.steps

    @property
    def _integral(self) -> IG:
        return IG(self.steps, self.rule)


@dataclass(frozen=True)
class Gradient(OneShot):
    """scores_i = ∂_i g(mask + at · (1 − mask)): one gradient, at the full input by default.

    For a model that is gradient × (x − baseline). Greedy rounds around Gradient(at=0), the gradient
    at 1_S, are the paper's Sequential Gradient.
    """

    at: float = 1.0
    name = "gradient"

    def __post_init__(self) -> None:
        check_knobs(self, at=(0, 1))

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        point = (round.mask + self.at * round.rest).unsqueeze(1)
        return objective.gradient(point, point.new_ones(1)) * round.rest

    @property
    def cost(self) -> int:
        """One gradient."""
        return 1


@dataclass(frozen=True)
class SmoothIG(OneShot):
    """The mean of a scorer's scores over noisy inputs: x + noise · (range of x) · N(0, 1) off S."""

    scorer: Callable[[Any, Round], Tensor] = IG()
    samples: int = 25
    noise: float = 0.15
    name = "smooth-ig"

    def __post_init__(self) -> None:
        check_knobs(self, "samples", noise=(0, 10))
        if not callable(self.scorer) or isinstance(self.scorer, Random | MarginalGains):
            raise InvalidType(
                "Expected a scorer that follows a path, such as gp.IG "
                f"(got {type(self.scorer).__name__})."
            )

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        total = torch.zeros_like(round.mask)
        span = objective.end.amax(-1, keepdim=True) - objective.end.amin(-1, keepdim=True)
        span = torch.where(span > 0, span, 1) * self.noise * (1 - round.mask)
        for sample in range(self.samples):
            drawn = [round.generator(problem, sample) for problem in range(objective.b)]
            noise = torch.stack([torch.randn(objective.n, generator=each) for each in drawn])
            total += self.scorer(objective.toward(objective.end + span * noise.to(span)), round)
        return total / self.samples

    @property
    def cost(self) -> int:
        """The scorer's, for every sample."""
        return self.samples * int(getattr(self.scorer, "cost", 0))


@dataclass(frozen=True)
class GuidedIG(OneShot):
    """Integrated gradients along a path that moves the least sensitive values first.

    Each of `steps` steps moves the `fraction` of values with the smallest |∂g/∂x| towards the
    input, none further than max_dist (a share of its way) from the straight line. The defaults
    are those of the authors' implementation.
    """

    steps: int = 200
    fraction: float = 0.25
    max_dist: float = 0.02
    name = "guided-ig"

    def __post_init__(self) -> None:
        check_knobs(self, "steps", fraction=(0, 1), max_dist=(0, 1))

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        # The path is kept in float64: thousands of small moves must add up to the whole way. With
        # several baselines it is a path of masks all the same, and lengths are those of the mean.
        mask, length = round.mask, (objective.end - objective.start).abs().mean(0).double()
        at, one = mask.double(), mask.new_ones(1)
        scores = torch.zeros_like(at)
        for step in range(self.steps):
            point = at.to(mask).unsqueeze(1)
            gradient = objective.gradient(point, one, step=step).double()
            slope = torch.where(length > 0, gradient.abs() / length, torch.inf)
            paths = zip(at, mask.double(), slope, length, strict=True)
            moved = torch.stack([self._move(*path, (step + 1) / self.steps) for path in paths])
            scores += (moved - at) * gradient
            at = moved
        return scores.to(mask)

    @property
    def cost(self) -> int:
        """One gradient a step."""
        return self.steps

    def _move(
        self, at: Tensor, begin: Tensor, slope: Tensor, length: Tensor, alpha: float
    ) -> Tensor:
        """Where one path (n,) is after the step that ends at `alpha` of its L1 length."""
        rest = 1 - begin
        floor = begin + rest * max(alpha - self.max_dist, 0.0)
        ceiling = begin + rest * min(alpha + self.max_dist, 1.0)
        at = torch.where(at < floor, floor, at)
        goal = float((rest * length).sum()) * (1 - alpha)
        slope = torch.where(at == ceiling, torch.inf, slope)
        rank = int(self.fraction * (at.numel() - 1)) + 1
        while True:
            left = float(((1 - at) * length).sum())
            if left <= goal or isclose(left, goal, rel_tol=1e-9, abs_tol=1e-9):
                return at
            cut = torch.kthvalue(slope, rank).values
            pick = (slope <= cut) & torch.isfinite(slope)
            gain = float(((ceiling - at) * length * pick).sum())
            if gain == 0.0:
                return at
            share = min((left - goal) / gain, 1.0)
            at = torch.where(pick, ceiling if share == 1.0 else at + (ceiling - at) * share, at)
            if (left - goal) <= gain:
                return at
            slope = torch.where(pick, torch.inf, slope)


@dataclass(frozen=True)
class Random(OneShot):
    """Uniform random scores by seed: the floor any method must beat."""

    name = "random"
    may_be_flat = True

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        drawn = [round.generator(problem, 0) for problem in range(objective.b)]
        count = round.features.count
        scores = [torch.rand(count, generator=each, dtype=torch.float64) for each in drawn]
        return round.features.spread(torch.stack(scores).to(round.mask))


@dataclass(frozen=True)
class MarginalGains(OneShot):
    """scores_i = G(S ∪ i) − G(S) for every feature i, by values alone. One feature a round."""

    name = "marginal-gains"
    measures_gains = may_be_flat = True

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        features, mask = round.features, round.mask
        if features.kind == "windows":
            raise InvalidInput(
                "Expected features that do not overlap for marginal gains (got windows). "
                "Try gp.grid(b)."
            )
        free = features.sum(1 - mask) > 0
        left = torch.nonzero(free)[:, 1].view(objective.b, -1)
        sets = (~free).unsqueeze(1).repeat(1, left.shape[1], 1).scatter(2, left.unsqueeze(2), True)
        before = objective.values(mask.unsqueeze(1))
        gains = (values_of(objective, features, sets) - before).to(mask)
        return features.spread(mask.new_zeros(free.shape).scatter(1, left, gains))

    def picks(self, features: Features, k: int | None = None) -> tuple[int, ...]:
        """One feature a round."""
        return (1,) * (features.count if k is None else check_count("k", k, features.count))


@dataclass(frozen=True)
class LeaveOneOut(OneShot):
    """scores_i = G(all) − G(all without i) for every feature i, by values alone."""

    name = "leave-one-out"

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        features, mask = round.features, round.mask
        others = ~torch.eye(features.count, dtype=torch.bool, device=mask.device)
        whole = objective.values(torch.ones_like(mask).unsqueeze(1))
        without = values_of(objective, features, others.expand(objective.b, -1, -1))
        return features.spread((whole - without).to(mask))


def values_of(objective: Objective, features: Features, sets: Tensor) -> Tensor:
    """(b, s, features) bool → (b, s): G of each set of features.

    Masks are made for one batch at a time: they may be much larger than the sets.
    """
    values = []
    for part in torch.split(sets, objective.points, 1):
        masks = features.mask(part.flatten(0, 1)).view(*part.shape[:2], -1)
        values.append(objective.values(masks))
    return torch.cat(values, 1)
