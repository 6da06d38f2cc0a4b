"""Progress of a run, or of many: a function of the caller's, or a line on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeAlias

from .errors import InvalidType

ProgressLike: TypeAlias = bool | Callable[[float, float | None], object] | None
"""True for a line on standard error, or a function (done, total). Of one explanation these are its
rounds; of many they are examples, and the total is None where it is not known."""


class Progress:
    """Reports how much is done to a function or to standard error."""

    def __init__(self, wanted: ProgressLike, unit: str = "rounds") -> None:
        if not (callable(wanted) or isinstance(wanted, bool | None)):
            raise InvalidType(
                f"Expected progress to be True or a function (done, total) (got {wanted!r}).",
                argument="progress",
            )
        self.wanted, self.unit, self.began = wanted, unit, time.monotonic()
        self._line_is_open = False

    def __call__(self, done: float, total: float | None) -> None:
        """Report it."""
        if callable(self.wanted):
            self.wanted(done, total)
        elif self.wanted:
            self._print(done, total)

    def end(self) -> None:
        """End the line of a run that stopped before all was done."""
        if self._line_is_open:
            print(file=sys.stderr)
        self._line_is_open = False

    def _print(self, done: float, total: float | None) -> None:
        count = f"{done:,.0f}" if done == int(done) else f"{done:,.1f}"
        of = "" if total is None else f" of {total:,.0f}"
        left = ""
        if total and done:
            seconds = (time.monotonic() - self.began) * (total - done) / done
            left = f", {seconds:,.0f} s left"
        print(f"\r{count}{of} {self.unit}{left}   ", end="", file=sys.stderr, flush=True)
        self._line_is_open = True
        if done == total:
            self.end()
