"""Changes of what a round takes, asked after the round: more features, or fewer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from .errors import Argument, InvalidInput
from .features import Features
from .objective import Objective
from .rounds import State
from .stopping import Stop


class Revision(Protocol):
    """Changes the state after a round; a state without new features says that none is left."""

    @property
    def name(self) -> str:
        """The argument that asks for the revision, for errors."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a result records of the revision beside the method's knobs."""
        ...

    def check(self, features: Features) -> None:
        """Refuse features that the revision does not fit."""

    def __call__(
        self, objective: Objective, features: Features, before: State, after: State, last: bool
    ) -> State:
        """The state after the round.

        before, after: the states that the round began and ended with, for one problem. last: is it
        the last round?
        """
        ...


def revisions_of(stop: Stop) -> tuple[Revision, ...]:
    """What `stop` changes of the picks: gain=True takes those with a positive score."""
    return (OnlyPositive(),) if stop.gain else ()


@dataclass(frozen=True)
class WhileGRises:
    """The next best features too, as long as each raises G by half of its score.

    The last round takes the rest. k: how many features are selected at most. enough: the value of
    G at which a round stops to take more.
    """

    k: int | None = None
    enough: float = float("inf")
    name = "schedule='measured'"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The value at which rounds stop to take more, where there is one."""
        return {"value": self.enough} if isfinite(self.enough) else {}

    def check(self, features: Features) -> None:
        """Refuse windows: the gain of one depends on those that it overlaps."""
        if features.kind == "windows":
            raise InvalidInput(
                "Expected features that do not overlap for ",
                Argument("schedule", "measured"),
                " (got windows).",
                advice="Try gp.grid(b).",
            )

    def __call__(
        self, objective: Objective, features: Features, before: State, after: State, last: bool
    ) -> State:
        """As many features as raise G; their number costs a value each."""
        done, picks = before.order.shape[1], len(before.picks)
        ranked = after.ranking()[:, done:][:, : (self.k or features.count) - done]
        scores = after.last.gather(1, ranked)
        if last:
            return _retaken(before, after, ranked, scores)

        def value(chosen: Tensor) -> float:
            taken = before.taken.scatter(1, chosen, True)
            return float(objective.values(features.mask(taken).unsqueeze(1)))

        g, count = value(ranked[:, :1]), 1
        for score in scores[0, 1:].tolist():
            if g >= self.enough or score <= 0:
                break
            larger = value(ranked[:, : count + 1])
            if larger - g < score / 2:
                break
            g, count = larger, count + 1
        state = _retaken(before, after, ranked[:, :count], scores[:, :count])
        measured = torch.tensor([g], dtype=torch.float64)
        return replace(state, values={**state.values, picks + 1: measured})


@dataclass(frozen=True)
class OnlyPositive:
    """The picks whose score is positive."""

    name = "gain=True"
    settings: ClassVar[Mapping[str, Any]] = {"gain": True}

    def check(self, features: Features) -> None:
        """Any features will do."""

    def __call__(
        self, objective: Objective, features: Features, before: State, after: State, last: bool
    ) -> State:
        """Without the picks that gain nothing; their scores rank what is left."""
        chosen = after.order[:, before.order.shape[1] :]
        gaining = chosen[:, after.scores.gather(1, chosen)[0] > 0]
        if gaining.shape[1] == 0:
            return replace(before, last=after.last, gradients=after.gradients)
        return _retaken(before, after, gaining, after.scores.gather(1, gaining))


def _retaken(before: State, after: State, chosen: Tensor, scores: Tensor) -> State:
    """The state after the round, had it taken these features with these scores."""
    state = before.take(chosen, scores, after.last, after.totals[-1])
    return replace(state, gradients=after.gradients)
