"""What ends a command early, and with which exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..core.errors import GreedyPigError

DONE, FAILED, USAGE = 0, 1, 2


class UsageError(GreedyPigError):
    """The command was wrong: exit code 2."""


class Unfit(GreedyPigError):
    """The settings do not fit this one input; where they fit none, the command was wrong."""


class Stopped(GreedyPigError):
    """Stopped by the user; the message says at what, and what was done is kept: exit code 1."""


def sentence(error: BaseException, debug: bool = False) -> str:
    """An error in one sentence: ours say all; others get their kind and the way to see more."""
    text = " ".join(str(error).split())
    if isinstance(error, GreedyPigError):
        return text
    more = "" if debug else " Try --debug to see where."
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        return f"{name}{error.strerror or text}".rstrip(".") + "."
    if isinstance(error, MemoryError):
        return "The memory ran out. Try a smaller --batch-size."
    return f"{type(error).__name__}: {text[:300]}.{more}"


class Failures:
    """What could not be done, each with its reason, told as it comes and named at the end.

    Settings that do not fit are held back until an input is done or fails otherwise: where all
    fail by the same reason it is the command that was wrong, and that is said once.
    """

    def __init__(self, tell: Callable[[str], None], *, several: bool) -> None:
        self.all: list[tuple[str, str]] = []
        self._tell, self._several = tell, several
        self._held: list[tuple[str, str]] = []
        self._fits = False

    def add(self, path: str, error: str | Exception) -> None:
        """Tell one failure, by name where there are several inputs."""
        reason = error if isinstance(error, str) else sentence(error)
        same = all(reason == held for _, held in self._held)
        hold = isinstance(error, Unfit) and same and len(self._held) == len(self.all)
        if not hold or self._fits:
            self.release()
        self.all.append((path, reason))
        if hold and not self._fits:
            self._held.append((path, reason))
        else:
            self._told(path, reason)

    def release(self) -> None:
        """Something else happened: what was held back is told."""
        self._fits = True
        for path, reason in self._held:
            self._told(path, reason)
        self._held.clear()

    def check(self) -> None:
        """At the end: settings that fitted no input at all are a wrong command."""
        if self._held:
            raise UsageError(self._held[0][1])

    def names(self) -> str:
        """All that failed, for a sentence."""
        return ", ".join(path for path, _ in self.all)

    def _told(self, path: str, reason: str) -> None:
        named = path in reason or Path(path).name in reason or not self._several
        self._tell(reason if named else f"{path}: {reason}")
