"""How far a job of several stages is, and how long it will take: what its bar shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from .terminal import Bar

GUESSED_EPOCHS = 4
"""Of a training, before any has ended."""


class Meter:
    """How far the whole job is, over stages of different costs."""

    def __init__(self) -> None:
        self.bar: Bar | None = None
        self.epochs = float(GUESSED_EPOCHS)
        self._costs: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._began = monotonic()

    def plan(self, costs: Mapping[str, float]) -> None:
        """What stages will cost."""
        self._costs = dict(costs)
        self._follow()

    def learn_epochs(self, epochs: float) -> None:
        """A first training tells how long the others will be."""
        self.epochs = max(1.0, epochs)
        if "retrain" in self._costs:
            self._costs["retrain"] *= self.epochs / GUESSED_EPOCHS
            self._follow()

    def label(self, text: str) -> None:
        """Say what is being done."""
        if self.bar is not None:
            self.bar.label = text

    def seconds(self) -> float:
        """Since the beginning."""
        return monotonic() - self._began

    def stage(self, label: str, name: str) -> _Stage:
        """A stage, as a context that gives a function to tell its share done."""
        self.label(label)
        return _Stage(self, name)

    def tell(self, name: str, share: float) -> None:
        """A stage is so far."""
        self._done[name] = min(max(share, 0.0), 1.0)

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
