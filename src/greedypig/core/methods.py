"""Methods: a one-shot scorer, and how many features each greedy round takes.

A method is a frozen object that carries its knobs. One-shot methods are the scorers themselves:
one round that ranks everything. `Greedy` makes any of them adaptive; Algorithm 1 is `GreedyPIG`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from .errors import Argument, InvalidInput, InvalidType, did_you_mean
from .features import Features
from .numbers import check_count, check_knobs
from .objective import Objective
from .quadrature import Rule
from .registry import METHODS, SCHEDULES
from .revisions import Revision, WhileGRises
from .rounds import Round
from .schedule import equal, geometric
from .scorers import IG, Custom, Gradient, OneShot, SmoothIG, TwoSidedIG, described
from .stopping import Stop


class Method(Protocol):
    """What ranks features: a scorer, and how many features each round takes."""

    @property
    def name(self) -> str:
        """The name in results."""
        ...

    @property
    def round_scorer(self) -> OneShot:
        """The scorer of every round."""
        ...

    def picks(self, features: Features, k: int | None = None) -> tuple[int, ...]:
        """How many features every round takes, until k (default: all) are selected."""
        ...

    def revisions(self, k: int | None, stop: Stop) -> tuple[Revision, ...]:
        """Changes of what a round takes."""
        ...

    def settings(self) -> dict[str, Any]:
        """The method's name and knobs, for the record."""
        ...

    def fitted(self, objective: Objective, features: Features, *, by_name: bool) -> Method:
        """The method for one input; by_name: was it chosen, or given by its name?"""
        ...

    @property
    def fits_each_input(self) -> bool:
        """Is the method another one for some inputs?"""
        ...


MethodLike: TypeAlias = Method | OneShot | str | Callable[[Any, Round], Tensor]
"""A method by name, as an object, or as a function (objective, round) → scores."""

MEASURED = "measured"


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

    name = "rounds"
    fits_each_input = False

    def fitted(self, objective: Objective, features: Features, *, by_name: bool) -> InRounds:
        """The method for one input: itself."""
        return self

    @property
    def scorer(self) -> Any:
        """The one-shot scorer of every round."""
        raise NotImplementedError

    @property
    def round_scorer(self) -> OneShot:
        """The scorer of every round."""
        scorer: OneShot = self.scorer
        return scorer

    @property
    def most_rounds(self) -> int:
        """How many rounds are run where the features are enough for them."""
        return self.rounds or (100 if self.scorer.cost == 1 else 20)

    def revisions(self, k: int | None, stop: Stop) -> tuple[Revision, ...]:
        """A measured round takes more features as long as G rises."""
        if self.schedule != MEASURED:
            return ()
        return (WhileGRises(k, float("inf") if stop.value is None else stop.value),)

    def settings(self) -> dict[str, Any]:
        """The method's name and knobs, for the record."""
        return described(self)

    def picks(self, features: Features, k: int | None = None) -> tuple[int, ...]:
        """How many features every round takes, until k (default: all) are selected.

        There are never more rounds than features to select. Where features overlap, few can hold
        everything. Rounds that are to select everything share that number, and the last one takes
        what is left: shares of all features would have held everything after a few rounds.
        """
        if k is not None:
            k = check_count("k", k, features.count)
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
            return (1,) * rounds  # At least; `WhileGRises` measures how many more.
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

    one_shot: MethodLike
    name = "greedy"

    def __post_init__(self) -> None:
        super().__post_init__()
        # A method that scores otherwise in rounds says so, as `from_captum(Saliency)` does.
        inner = as_method(self.one_shot).round_scorer.in_rounds
        object.__setattr__(self, "one_shot", inner)

    @property
    def scorer(self) -> Any:
        """The one-shot method."""
        return self.one_shot


def with_knobs(method: MethodLike, **knobs: Any) -> Any:
    """The method, by name or as an object, with these knobs set; None leaves a knob as it is.

    steps: gradients of a round, or of a one-shot method; for steady-pig they are its views.
    """
    made: Any = as_method(method)
    for name, value in knobs.items():
        fields = getattr(made, "__dataclass_fields__", ())
        knob = "views" if name == "steps" and "views" in fields else name
        if value is None:
            continue
        if knob in fields:
            made = replace(made, **{knob: value})
        elif name == "steps" and isinstance(made, SmoothIG):
            made = replace(made, scorer=with_knobs(made.scorer, steps=value))
        else:
            end = f" for method {made.name!r} (got {value!r})."
            raise InvalidInput("Expected no ", Argument(name), end)
    return made


def as_method(method: MethodLike) -> Method:
    """A method by name, with its defaults, or as an object or a function, checked."""
    if isinstance(method, str):
        if method in METHODS:
            made: Method = METHODS[method].factory()
            return made
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
    if isinstance(method, OneShot | InRounds):
        return method
    if not callable(method):
        raise InvalidType(
            "Expected method to be a name, a method such as gp.GreedyPIG() or a callable "
            f"(objective, round) → scores (got {type(method).__name__})."
        )
    return Custom(method)
