"""The methods a user names: a one-shot scorer, and whether greedy rounds go around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..core.quadrature import Rule
from ..core.schedule import GEOMETRIC_RATIO, check_count, whole
from ..core.scorers import (
    Gradient,
    GuidedIG,
    IntegratedGradients,
    PlannedScorer,
    RollingGradients,
    Scorer,
    Smooth,
)
from ..core.unit_scorers import RandomOrder
from .pictures import BlurIG
from .steady import SteadyGradients


@dataclass(frozen=True)
class Greedy:
    """Greedy rounds around any one-shot scorer: `Greedy(GuidedIG())`, `Greedy(from_captum(…))`.

    The knobs are those of `explain`; what is given there goes first.
    """

    scorer: PlannedScorer | Scorer | str
    rounds: int | None = None
    per_round: int | None = None
    schedule: str | Sequence[int] | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.scorer, str):  # Any method by name, made adaptive.
            object.__setattr__(self, "scorer", resolve(self.scorer)[0])
        if isinstance(self.scorer, type):
            raise InvalidType(f"Expected a scorer (got the class). Try {self.scorer.__name__}().")
        if not callable(self.scorer):
            raise InvalidType(
                "Expected a scorer, a callable (objective, mask) → scores "
                f"(got {type(self.scorer).__name__})."
            )


ROUNDS = 20
STEPS = 5
SCHEDULE = "geometric"
"""Defaults of "greedy-pig": 100 gradients; early rounds are small because early picks decide."""
ROUNDS_OF_ONE = 100
"""Rounds for scorers that take one gradient a round, for the same 100 gradients."""


MATCHING = IntegratedGradients(1, "left")
"""The default scorer where a picture's whole answer is to be matched: there many rounds of one
gradient at what is chosen so far come far nearer than few fine integrals (reproduction/study)."""


STEADY = SteadyGradients()
"""The default scorer where a picture's class is to be made as likely as can be: an integral whose
points are met under other views convinces a second network too (reproduction/study)."""
ROUNDS_OF_VIEWS = 33
"""Its rounds, for 99 gradients: more rounds of fewer views serve every judge."""
RATIO_OF_VIEWS = 100.0
"""Its last geometric round over the first: finer first rounds help the own curve for nothing."""
COLOURS, LEAST_SIDE = 3, 128
"""A photo has so many channels and at least so many pixels a side: nothing else was studied, and
a crop of less shows little."""


def default_scorer(objective: str, shape: Sequence[int]) -> PlannedScorer | None:
    """What "greedy-pig" takes for a picture where no steps and no rule are asked for; None where
    that is what it takes elsewhere."""
    if objective == "log-likelihood":
        return MATCHING
    photo = shape[0] == COLOURS and min(shape[-2:]) >= LEAST_SIDE
    return STEADY if objective == "softmax" and photo else None


def default_rounds(scorer: PlannedScorer | Scorer) -> int:
    """Rounds where none are asked for."""
    if isinstance(scorer, SteadyGradients):
        return ROUNDS_OF_VIEWS
    single = isinstance(scorer, PlannedScorer) and scorer.cost() == 1
    return ROUNDS_OF_ONE if single else ROUNDS


def default_ratio(scorer: PlannedScorer | Scorer) -> float:
    """The last geometric round over the first where no ratio is asked for."""
    return RATIO_OF_VIEWS if isinstance(scorer, SteadyGradients) else GEOMETRIC_RATIO


Maker = Callable[[int | None, "str | Rule | None"], PlannedScorer]


def _fixed_rule(name: str, make: Callable[[int | None], PlannedScorer]) -> Maker:
    def maker(steps: int | None, rule: str | Rule | None) -> PlannedScorer:
        if rule is not None:
            raise InvalidInput(f"Expected no rule for method={name!r} (got {rule!r}).")
        return make(steps)

    return maker


def _no_steps(name: str, scorer: PlannedScorer) -> Maker:
    def make(steps: int | None) -> PlannedScorer:
        if steps is not None:
            raise InvalidInput(f"Expected no steps for method={name!r} (got {steps}).")
        return scorer

    return _fixed_rule(name, make)


_MAKERS: dict[str, tuple[bool, Maker]] = {
    "greedy-pig": (True, lambda t, r: IntegratedGradients(t or STEPS, r or "midpoint")),
    "steady-pig": (True, _fixed_rule("steady-pig", lambda t: SteadyGradients(t or STEADY.steps))),
    "rolling-pig": (True, _fixed_rule("rolling-pig", lambda t: RollingGradients(t or 1))),
    "sequential-gradient": (True, _no_steps("sequential-gradient", Gradient())),
    "ig": (False, lambda t, r: IntegratedGradients(t or 50, r or "midpoint")),
    "gradient": (False, _no_steps("gradient", Gradient())),
    "smooth-ig": (False, lambda t, r: Smooth(IntegratedGradients(t or 50, r or "midpoint"))),
    "blur-ig": (False, _fixed_rule("blur-ig", lambda t: BlurIG(t or 100))),
    "guided-ig": (False, _fixed_rule("guided-ig", lambda t: GuidedIG(t or 200))),
    "random": (False, _no_steps("random", RandomOrder())),
}

NAMES = tuple(_MAKERS)


def resolve(
    method: Any, *, steps: int | None = None, rule: str | Rule | None = None
) -> tuple[PlannedScorer | Scorer, Greedy | None]:
    """The scorer of a method, and its greedy rounds or None for a one-shot method."""
    if isinstance(method, str):
        if method not in _MAKERS:
            long = method.lower() == "integrated-gradients"
            hint = did_you_mean("ig" if long else method, NAMES)
            raise InvalidInput(
                f"Expected method to be one of {', '.join(NAMES)} (got {method!r}).{hint}"
            )
        steps = whole(steps)
        if steps is not None:
            check_count("steps", steps)
        if not isinstance(rule, str | Rule | None):
            raise InvalidType(
                f"Expected rule to be a name or a gp.Rule (got {type(rule).__name__})."
            )
        if steps is not None and isinstance(rule, Rule) and steps != len(rule):
            raise InvalidInput(
                f"Expected no steps besides a rule of its own {len(rule)} nodes (got {steps})."
            )
        adaptive, make = _MAKERS[method]
        scorer = make(steps, rule)
        return scorer, Greedy(scorer) if adaptive else None
    if steps is not None or rule is not None:
        name, value = ("steps", steps) if steps is not None else ("rule", rule)
        raise InvalidInput(
            f"Expected {name} inside the scorer of a method object (got {value!r} beside it)."
        )
    if isinstance(method, type):
        raise InvalidType(f"Expected a scorer (got the class). Try {method.__name__}().")
    if isinstance(method, Greedy):
        assert not isinstance(method.scorer, str)
        return method.scorer, method
    if callable(method):
        return method, None
    raise InvalidType(
        f"Expected method to be a name, gp.Greedy(scorer) or a scorer "
        f"(got {type(method).__name__})."
    )
