"""How far a job of several stages is, and how long it will take: what its bar shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

from ..results.files import write_whole
from .terminal import Bar

GUESSED_EPOCHS, OF_FEW_ROWS, FEW = 4, 15, 10_000
"""Of a training, before any has ended; and of one on fewer than FEW rows."""
KEPT_EVERY = 5.0
"""Seconds between two notes of how long the job has taken."""


class Meter:
    """How far the whole job is, over stages of different costs."""

    def __init__(self) -> None:
        self.bar: Bar | None = None
        self.epochs = float(GUESSED_EPOCHS)
        self._costs: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._began = monotonic()
        self._before = 0.0
        self._clock: Path | None = None
        self._kept = float("-inf")

    def plan(self, costs: Mapping[str, float]) -> None:
        """What stages will cost."""
        self._costs = dict(costs)
        self._follow()

    def guess(self, rows: int) -> None:
        """How long trainings on so many rows will be, before any has ended."""
        self.epochs = float(GUESSED_EPOCHS if rows >= FEW else OF_FEW_ROWS)

    def learn_epochs(self, epochs: float) -> None:
        """A first training tells how long the others will be."""
        before, self.epochs = self.epochs, max(1.0, epochs)
        if "retrain" in self._costs:
            self._costs["retrain"] *= self.epochs / before
            self._follow()

    def label(self, text: str) -> None:
        """Say what is being done."""
        if self.bar is not None:
            self.bar.label = text

    def seconds(self) -> float:
        """In all, with those of earlier sittings."""
        return self._before + monotonic() - self._began

    def take_up(self, clock: Path) -> None:
        """Count on from the seconds in this file, and keep them there."""
        self._clock = clock
        try:
            self._before = max(0.0, float(clock.read_text()))
        except (OSError, ValueError):
            self._before = 0.0

    def note_time(self) -> None:
        """Keep the seconds now, at the end of a stage or of a stopped one."""
        self._kept = float("-inf")
        self._keep()

    def _keep(self) -> None:
        """Seldom enough to cost nothing; a killed run loses no more than KEPT_EVERY."""
        if self._clock is not None and monotonic() - self._kept >= KEPT_EVERY:
            self._kept = monotonic()
            with suppress(OSError):  # A full disk is told of by what matters more.
                write_whole(self._clock, f"{self.seconds():.3f}")

    def stage(self, label: str, name: str) -> _Stage:
        """A stage, as a context that gives a function to tell its share done."""
        self.label(label)
        return _Stage(self, name)

    def tell(self, name: str, share: float) -> None:
        """A stage is so far."""
        self._done[name] = min(max(share, 0.0), 1.0)
        self._keep()

    def _follow(self) -> None:
        if self.bar is not None:
            self.bar.follow(
                lambda: sum(cost * self._done.get(n, 0.0) for n, cost in self._costs.items()),
                sum(self._costs.values()),
            )


class _Stage:
    def __init__(self, meter: Meter, name: str) -> None:
        self.meter, self.name = meter, name

    def __enter__(self) -> Callable[[float], object]:
        return lambda share: self.meter.tell(self.name, min(share, 0.97))

    def __exit__(self, *_: object) -> None:
        self.meter.tell(self.name, 1.0)
        self.meter.note_time()
