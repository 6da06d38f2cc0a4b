"""Methods: a one-shot scorer, and how many features each greedy round takes.

A method is a frozen object that carries its knobs. One-shot methods are the scorers themselves:
one round that ranks everything. `Greedy` makes any of them adaptive; Algorithm 1 is `GreedyPIG`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from .errors import InvalidInput, InvalidType, did_you_mean
from .features import Features
from .numbers import check_count, real, whole
from .quadrature import Rule
from .schedule import plan_picks
from .scorers import IG, Gradient, GuidedIG, MarginalGains, Random, Smooth, cost_of


@dataclass(frozen=True, kw_only=True)
class InRounds:
    """Greedy rounds: how many, and how many features each takes.

    rounds: how many (default 20, or 100 where a round costs one gradient).
    per_round: features of each round, Algorithm 1's z; with rounds = R only R · z are selected.
    schedule: "geometric" (the last round takes `ratio` times the first), "equal", or a list.
    """

    rounds: int | None = None
    per_round: int | None = None
    schedule: str | Sequence[int] = "geometric"
    ratio: float = 50.0

    def __post_init__(self) -> None:
        for name, number in (("rounds", whole), ("per_round", whole), ("ratio", real)):
            object.__setattr__(self, name, number(getattr(self, name)))
        if not isinstance(self.schedule, str) and hasattr(self.schedule, "__iter__"):
            object.__setattr__(self, "schedule", tuple(map(whole, self.schedule)))
            if self.rounds not in (type(self).rounds, len(self.schedule)):
                raise InvalidInput(
                    f"Expected no rounds beside a schedule of {len(self.schedule)} rounds "
                    f"(got rounds={self.rounds!r})."
                )
            object.__setattr__(self, "rounds", len(self.schedule) or None)

    @property
    def scorer(self) -> Any:
        """The one-shot scorer of every round."""
        raise NotImplementedError

    def picks(self, features: Features, k: int | None) -> tuple[int, ...]:
        """How many features every round takes."""
        return plan_picks(
            features.units, cover=features.cover, rounds=self.rounds, per_round=self.per_round,
            k=k, schedule=self.schedule, ratio=self.ratio,
            default_rounds=100 if cost_of(self.scorer) == 1 else 20,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GreedyPIG(InRounds):
    """Algorithm 1: each round integrates the gradient by `steps` nodes of `rule`.

    rounds: how many (default 20, or 100 with one step). per_round: features of each round.
    schedule: "geometric" (the last round takes `ratio` times the first), "equal", or a list.
    """

    steps: int = 5
    rule: str | Rule = "midpoint"
    name = "greedy-pig"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "steps", self.scorer.steps)

    @property
    def scorer(self) -> IG:
        """Integrated gradients."""
        return IG(self.steps, self.rule)


@dataclass(frozen=True, kw_only=True)
class SequentialGradient(InRounds):
    """Greedy rounds of one gradient ∇g(1_S): Algorithm 1 with a single left node."""

    name = "sequential-gradient"

    @property
    def scorer(self) -> Gradient:
        """The gradient at 1_S."""
        return Gradient(at=0.0)


@dataclass(frozen=True)
class Greedy(InRounds):
    """Greedy rounds around any one-shot method: `Greedy(GuidedIG())`, `Greedy(from_captum(…))`."""

    one_shot: Any
    name = "greedy"

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = named(self.one_shot) if isinstance(self.one_shot, str) else self.one_shot
        inner = scorer_of(inner)
        # A method that scores otherwise in rounds says so, as `from_captum(Saliency)` does.
        object.__setattr__(self, "one_shot", getattr(inner, "in_rounds", inner))
        check_method(self.one_shot)

    @property
    def scorer(self) -> Any:
        """The one-shot method."""
        return self.one_shot


METHODS: dict[str, Callable[[], Any]] = {
    "greedy-pig": GreedyPIG,
    "sequential-gradient": SequentialGradient,
    "ig": IG,
    "gradient": Gradient,
    "smooth-ig": Smooth,
    "guided-ig": GuidedIG,
    "random": Random,
    "marginal-gains": MarginalGains,
}
"""Names of methods; rooms add the methods of their kind of data."""


def named(name: str) -> Any:
    """The method called `name` with its defaults."""
    if name not in METHODS:
        near = did_you_mean("ig" if name.lower() == "integrated-gradients" else name, METHODS)
        raise InvalidInput(
            f"Expected method to be one of {', '.join(METHODS)} (got {name!r}).{near}"
        )
    return METHODS[name]()


def with_knobs(method: Any, **knobs: Any) -> Any:
    """The method, by name or as an object, with these knobs set; None leaves a knob as it is.

    steps: gradients of a round, or of a one-shot method; for steady-pig they are its views.
    """
    method = as_method(method)
    known = [f.name for f in fields(method)] if is_dataclass(method) else []
    for name, value in knobs.items():
        if value is None:
            continue
        if name == "steps" and isinstance(method, Smooth) and is_dataclass(method.scorer):
            method = replace(method, scorer=replace(method.scorer, steps=value))
            continue
        knob = "views" if name == "steps" and "views" in known else name
        if knob not in known:
            title = getattr(method, "name", type(method).__name__)
            raise InvalidInput(f"Expected no {name} for method {title!r} (got {value!r}).")
        method = replace(method, **{knob: value})
    return method


def as_method(method: Any) -> Any:
    """A method by name or as an object, checked."""
    if isinstance(method, str):
        return named(method)
    check_method(method)
    return method


def check_method(method: Any) -> None:
    """Refuse what is neither a method object nor a callable (objective, mask) → scores."""
    kind = method if isinstance(method, type) else type(method)
    if kind.__module__.partition(".")[0] == "captum":
        raise InvalidType(
            f"Expected a method of greedypig (got Captum's {kind.__name__}). "
            f"Try gp.from_captum(captum.attr.{kind.__name__})."
        )
    if isinstance(method, type):
        raise InvalidType(f"Expected a method (got the class). Try {method.__name__}().")
    if not callable(method) and not hasattr(method, "scorer"):
        raise InvalidType(
            "Expected method to be a name, a method such as gp.GreedyPIG() or a callable "
            f"(objective, mask) → scores (got {type(method).__name__})."
        )


def scorer_of(method: Any) -> Any:
    """The scorer of every round; a one-shot method is its own, also where it holds another."""
    return method if callable(method) else getattr(method, "scorer", method)


def picks_of(method: Any, features: Features, k: int | None) -> tuple[int, ...]:
    """How many features every round takes; a one-shot method takes all, or k, in one round."""
    k = whole(k)
    if k is not None:
        check_count("k", k, features.units)
    if hasattr(method, "picks"):
        picks: tuple[int, ...] = method.picks(features, k)
        return picks
    return (features.units if k is None else k,)


def describe(method: Any) -> dict[str, Any]:
    """A method's name and knobs, for the record."""
    name = getattr(method, "name", None) or getattr(method, "__name__", type(method).__name__)
    knobs = getattr(method, "settings", None)
    if callable(knobs):
        return {"method": name, **knobs()}
    if not is_dataclass(method):
        return {"method": name}
    return {"method": name} | {f.name: _plain(getattr(method, f.name)) for f in fields(method)}


def _plain(knob: Any) -> Any:
    """A knob as JSON holds it."""
    knob = real(whole(knob))
    if knob is None or isinstance(knob, str | int | float):
        return knob
    if isinstance(knob, Rule):
        return [list(knob.nodes), list(knob.weights)]
    if isinstance(knob, Sequence):
        return list(knob)
    return dict(knob) if isinstance(knob, Mapping) else describe(knob)
