"""Methods: a one-shot scorer, and how many features each greedy round takes.

A method is a frozen object that carries its knobs. One-shot methods are the scorers themselves:
one round that ranks everything. `Greedy` makes any of them adaptive; Algorithm 1 is `GreedyPIG`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from .errors import Argument, InvalidInput, InvalidType, did_you_mean
from .features import Features
from .numbers import check_count, check_knobs, real, whole
from .quadrature import Rule
from .schedule import equal, geometric
from .scorers import (
    IG,
    Gradient,
    GuidedIG,
    LeaveOneOut,
    MarginalGains,
    Random,
    SmoothIG,
    TwoSidedIG,
    cost_of,
)

MEASURED = "measured"
SCHEDULES = ("equal", "geometric", MEASURED)
"""Names of schedules."""


@dataclass(frozen=True, kw_only=True)
class InRounds:
    """Greedy rounds: how many, and how many features each takes.

    rounds: how many (default 20, or 100 where a round costs one gradient).
    per_round: features of each round, Algorithm 1's z; with rounds = R only R · z are selected.
    schedule: "geometric" (the last round takes `ratio` times the first), "equal", "measured", or a
        list. A measured round takes the next best feature as long as each raises G by half of its
        score; each that is tried costs one value. The last round takes the rest.
    """

    rounds: int | None = None
    per_round: int | None = None
    schedule: str | Sequence[int] = "geometric"
    ratio: float = 50.0

    def __post_init__(self) -> None:
        counts = [name for name in ("rounds", "per_round") if getattr(self, name) is not None]
        check_knobs(self, *counts, ratio=(1e-6, 1e6))
        if isinstance(self.schedule, str) and self.schedule in SCHEDULES:
            if self.schedule == MEASURED and self.per_round is not None:
                raise InvalidInput(
                    "Expected no per_round beside ",
                    Argument("schedule", MEASURED),
                    f" (got {self.per_round}).",
                    advice=Argument("schedule", "equal"),
                )
            return
        if isinstance(self.schedule, str) or not hasattr(self.schedule, "__iter__"):
            raise InvalidInput(
                f"Expected schedule to be one of {', '.join(SCHEDULES)} or a list of counts "
                f"(got {self.schedule!r})."
            )
        picks = tuple(check_count(f"schedule[{r}]", n) for r, n in enumerate(self.schedule))
        other = self.rounds not in (type(self).rounds, len(picks)) or self.per_round is not None
        if not picks or other:
            raise InvalidInput(
                "Expected a list of picks, at least one round, without rounds or per_round "
                f"(got {len(picks)} rounds, rounds={self.rounds}, per_round={self.per_round})."
            )
        object.__setattr__(self, "schedule", picks)
        object.__setattr__(self, "rounds", len(picks))

    @property
    def scorer(self) -> Any:
        """The one-shot scorer of every round."""
        raise NotImplementedError

    @property
    def most_rounds(self) -> int:
        """How many rounds are run where the features are enough for them."""
        return self.rounds or (100 if cost_of(self.scorer) == 1 else 20)

    def picks(self, features: Features, k: int | None = None) -> tuple[int, ...]:
        """How many features every round takes, until k (default: all) are selected.

        There are never more rounds than features to select. Where features overlap, few can hold
        everything. Rounds that are to select everything share that number, and the last one takes
        what is left: shares of all features would have held everything after a few rounds.
        """
        if not isinstance(self.schedule, str):
            picks = tuple(self.schedule)
            if k is not None or sum(picks) > features.count:
                raise InvalidInput(
                    f"Expected a list that picks at most {features.count} features, without k "
                    f"(got {sum(picks)} in all, k={k})."
                )
            return picks
        count = features.count if k is None else k
        if self.per_round is not None:
            check_count("per_round", self.per_round, features.count)
            count = count if self.rounds is None else min(count, self.rounds * self.per_round)
            full, rest = divmod(count, self.per_round)
            return (self.per_round,) * full + (rest,) * (rest > 0)
        rounds = min(self.most_rounds, count)
        if self.schedule == MEASURED:
            return (1,) * rounds  # At least; `Run` measures how many more.
        shared = count if k is not None else max(min(features.cover, count), rounds)
        parts = equal(shared, rounds)
        if self.schedule == "geometric":
            parts = geometric(shared, rounds, self.ratio)
        return (*parts[:-1], parts[-1] + count - shared)


@dataclass(frozen=True, kw_only=True)
class GreedyPIG(InRounds):
    """Algorithm 1: each round integrates the gradient by `steps` nodes of `rule`.

    rounds: how many (default 20, or 100 with one step). per_round: features of each round.
    schedule: "geometric" (the last round takes `ratio` times the first), "equal", "measured" (as
        many as raise G by half of their score), or a list.
    complete: change the nodes' weights as little as possible so that a round's scores sum to
        G(everything) − G(S) (`gp.IG`).
    """

    steps: int = 5
    rule: str | Rule = "midpoint"
    complete: bool = False
    name = "greedy-pig"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "steps", self.scorer.steps)

    @property
    def scorer(self) -> IG:
        """Integrated gradients."""
        return IG(self.steps, self.rule, self.complete)


@dataclass(frozen=True, kw_only=True)
class TwoSidedPIG(InRounds):
    """Greedy rounds for features that are enough and whose removal changes the output, too.

    steps: nodes of each of a round's two integrals. necessity: the weight of what removal changes.
    """

    steps: int = 5
    rule: str | Rule = "midpoint"
    necessity: float = 0.7
    name = "two-sided-pig"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "steps", self.scorer.steps)

    @property
    def scorer(self) -> TwoSidedIG:
        """Both integrals."""
        return TwoSidedIG(self.steps, self.rule, self.necessity)


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
        inner = scorer_of(as_method(self.one_shot))
        # A method that scores otherwise in rounds says so, as `from_captum(Saliency)` does.
        object.__setattr__(self, "one_shot", getattr(inner, "in_rounds", inner))

    @property
    def scorer(self) -> Any:
        """The one-shot method."""
        return self.one_shot


METHODS: dict[str, Callable[[], Any]] = {
    "greedy-pig": GreedyPIG,
    "two-sided-pig": TwoSidedPIG,
    "sequential-gradient": SequentialGradient,
    "ig": IG,
    "gradient": Gradient,
    "smooth-ig": SmoothIG,
    "guided-ig": GuidedIG,
    "random": Random,
    "marginal-gains": MarginalGains,
    "leave-one-out": LeaveOneOut,
}
"""Names of methods; rooms add the methods of their kind of data."""


def with_knobs(method: Any, **knobs: Any) -> Any:
    """The method, by name or as an object, with these knobs set; None leaves a knob as it is.

    steps: gradients of a round, or of a one-shot method; for steady-pig they are its views.
    """
    method = as_method(method)
    for name, value in knobs.items():
        known = getattr(method, "__dataclass_fields__", ())
        knob = "views" if name == "steps" and "views" in known else name
        if value is None:
            continue
        if knob in known:
            method = replace(method, **{knob: value})
        elif name == "steps" and isinstance(method, SmoothIG):
            method = replace(method, scorer=with_knobs(method.scorer, steps=value))
        else:
            title = getattr(method, "name", type(method).__name__)
            end = f" for method {title!r} (got {value!r})."
            raise InvalidInput("Expected no ", Argument(name), end)
    return method


def as_method(method: Any) -> Any:
    """A method by name, with its defaults, or as an object or a callable (objective, mask) →
    scores, checked."""
    if isinstance(method, str):
        if method in METHODS:
            return METHODS[method]()
        near = "ig" if method.lower() == "integrated-gradients" else method
        raise InvalidInput(
            f"Expected method to be one of {', '.join(METHODS)} (got {method!r})."
            f"{did_you_mean(near, METHODS)}"
        )
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
    return method


def scorer_of(method: Any) -> Any:
    """The scorer of every round; a one-shot method is its own, also where it holds another."""
    return method if callable(method) else getattr(method, "scorer", method)


def picks_of(method: Any, features: Features, k: int | None) -> tuple[int, ...]:
    """How many features every round takes; a one-shot method takes all, or k, in one round."""
    if k is not None:
        k = check_count("k", k, features.count)
    if not hasattr(method, "picks"):
        return (features.count if k is None else k,)
    picks: tuple[int, ...] = method.picks(features, k)
    return picks


def describe(method: Any) -> dict[str, Any]:
    """A method's name and knobs, for the record."""
    name = getattr(method, "name", None) or getattr(method, "__name__", type(method).__name__)
    if callable(knobs := getattr(method, "settings", None)):
        return {"method": name, **knobs()}
    own = fields(method) if is_dataclass(method) else ()
    return {"method": name} | {f.name: _plain(getattr(method, f.name)) for f in own}


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
