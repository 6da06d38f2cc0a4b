"""Rules that are asked before every round: one for each reason to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from .rounds import State
from .stopping import Stop, StopReason


def rules_of(stop: Stop) -> tuple[StopRule, ...]:
    """The rules that `stop` asks for, in the order in which they are asked."""
    rules: list[StopRule] = []
    if stop.gradients is not None:
        rules.append(GradientLimit(stop.gradients))
    if stop.seconds is not None:
        rules.append(TimeLimit(stop.seconds))
    if stop.value is not None:
        rules.append(ValueReached(stop.value))
    return tuple(rules)


class StopRule(Protocol):
    """A rule that is asked before every round."""

    measures: ClassVar[bool]
    """Does the rule need G(S)?"""
    side_by_side: ClassVar[bool]
    """Does the rule hold for several problems at once?"""

    @property
    def name(self) -> str:
        """The argument that asks for the rule, for errors."""
        ...

    def reason(self, state: State, cost: int) -> StopReason | None:
        """Why the next round, which costs this many gradients, is not begun; else None."""
        ...


@dataclass(frozen=True)
class GradientLimit:
    """At most this many gradients."""

    gradients: int
    name = "gradients"
    measures: ClassVar[bool] = False
    side_by_side: ClassVar[bool] = True

    def reason(self, state: State, cost: int) -> StopReason | None:
        """Would the next round need more?"""
        return StopReason.GRADIENTS if state.gradients + cost > self.gradients else None


@dataclass(frozen=True)
class TimeLimit:
    """No round after this many seconds."""

    seconds: float
    name = "seconds"
    measures: ClassVar[bool] = False
    side_by_side: ClassVar[bool] = False

    def reason(self, state: State, cost: int) -> StopReason | None:
        """Is the time over?"""
        return StopReason.SECONDS if state.seconds >= self.seconds else None


@dataclass(frozen=True)
class ValueReached:
    """No round once G(S) is at least this value."""

    value: float
    name = "value"
    measures: ClassVar[bool] = True
    side_by_side: ClassVar[bool] = False

    def reason(self, state: State, cost: int) -> StopReason | None:
        """Is the value reached?"""
        values = state.values[len(state.picks)]
        return StopReason.VALUE if bool((values >= self.value).all()) else None
