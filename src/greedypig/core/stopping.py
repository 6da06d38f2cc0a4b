"""Reasons to stop a run before its schedule ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isnan

from .errors import InvalidInput, InvalidType
from .numbers import check_switch, real, whole


@dataclass(frozen=True)
class Stop:
    """When to stop before the schedule ends. Several may be set; the first one met counts."""

    gradients: int | None = None
    """Gradients in all; a round that would need more is not begun."""
    seconds: float | None = None
    """No round is begun after this many seconds."""
    value: float | None = None
    """Stop once G(S) ≥ value."""
    gain: bool = False
    """Take only features with a positive score, and stop when there is none."""

    def __post_init__(self) -> None:
        gradients = whole(self.gradients)
        object.__setattr__(self, "gradients", gradients)
        if gradients is not None and (type(gradients) is not int or gradients < 0):
            raise InvalidInput(f"Expected gradients to be a whole number ≥ 0 (got {gradients!r}).")
        check_switch("gain", self.gain)
        for name in ("seconds", "value"):
            number = real(getattr(self, name))
            if number is not None and (type(number) not in (int, float) or isnan(number)):
                raise InvalidInput(f"Expected {name} to be a number (got {number!r}).")
            object.__setattr__(self, name, number)
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidInput(f"Expected seconds > 0 (got {self.seconds!r}).")


def as_stop(stop: Stop | None) -> Stop:
    """The rules, or none of them; checked."""
    if not isinstance(stop, Stop | None):
        raise InvalidType(
            f"Expected stop to be a gp.Stop (got {type(stop).__name__}). "
            "Try stop=gp.Stop(gradients=100).",
            argument="stop",
        )
    return stop or Stop()


class StopReason(Enum):
    """Why a run ended; the value is a sentence for people."""

    ROUNDS = "all rounds were done"
    K = "k features were selected"
    ALL = "nothing is left to select"
    GRADIENTS = "the gradient budget was spent"
    SECONDS = "the time limit was reached"
    VALUE = "the objective reached its target"
    NO_GAIN = "no feature left had a positive score"
    RUNNING = "still running when this was taken"

    def __str__(self) -> str:
        return self.value
