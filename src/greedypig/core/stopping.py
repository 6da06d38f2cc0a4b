"""Reasons to stop a run before its schedule ends."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidInput
from .schedule import check_switch, real, whole


@dataclass(frozen=True)
class Stop:
    """When to stop before the schedule ends. Several may be set; the first one met counts."""

    budget: int | None = None
    """Gradient evaluations in all; a round that would exceed it is not begun."""
    seconds: float | None = None
    """No round is begun after this many seconds."""
    reach: float | None = None
    """Stop once G(S) ≥ reach · G(full). Where G(full) < 0 (log-likelihoods, losses) a share
    below 1 lies above G(full): there take reach > 1, a multiple of the full input's loss."""
    gain: bool = False
    """Take only units with a positive score, and stop when there is none."""

    def __post_init__(self) -> None:
        budget = whole(self.budget)
        object.__setattr__(self, "budget", budget)
        if budget is not None and (type(budget) is not int or budget < 0):
            raise InvalidInput(f"Expected budget to be a whole number ≥ 0 (got {budget!r}).")
        check_switch("gain", self.gain)
        for name in ("seconds", "reach"):
            number = real(getattr(self, name))
            if number is not None and not isinstance(number, int | float):
                raise InvalidInput(f"Expected {name} to be a number (got {number!r}).")
            object.__setattr__(self, name, number)
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidInput(f"Expected seconds > 0 (got {self.seconds!r}).")
        if self.reach is not None and not self.reach > 0:
            raise InvalidInput(f"Expected reach > 0, a share of G(full) (got {self.reach!r}).")
