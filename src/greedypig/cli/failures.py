"""Errors that end a command, and their exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..core.errors import GreedyPigError

DONE, FAILED, USAGE = 0, 1, 2


class UsageError(GreedyPigError):
    """The command was wrong: exit code 2."""


class Unfit(GreedyPigError):
    """The settings do not fit this input; if they fit none, the command was wrong."""


class Stopped(GreedyPigError):
    """Stopped by the user; the message says at what: exit code 1."""


def sentence(error: BaseException, debug: bool = False) -> str:
    """An error in one sentence; errors of others get their type and the option to see more."""
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
    """Inputs that failed, each with its reason, printed as they come and listed at the end.

    Settings that do not fit are held back until an input is done or fails for another reason. If
    all inputs fail for the same reason, the command was wrong, and the reason is printed once.
    """

    def __init__(self, tell: Callable[[str], None], *, several: bool) -> None:
        self.all: list[tuple[str, str]] = []
        self._tell, self._several = tell, several
        self._held: list[tuple[str, str]] = []
        self._fits = False

    def add(self, path: str, error: str | Exception) -> None:
        """Print one failure, by name where there are several inputs."""
        reason = error if isinstance(error, str) else sentence(error)
        same = all(reason == held for _, held in self._held)
        hold = isinstance(error, Unfit) and same and len(self._held) == len(self.all)
        if not hold or self._fits:
            self.release()
        self.all.append((path, reason))
        if hold and not self._fits:
            self._held.append((path, reason))
        else:
            self._print(path, reason)

    def release(self) -> None:
        """Print what was held back."""
        self._fits = True
        for path, reason in self._held:
            self._print(path, reason)
        self._held.clear()

    def check(self) -> None:
        """At the end: raise for settings that fitted no input at all."""
        if self._held:
            raise UsageError(self._held[0][1])

    def names(self) -> str:
        """The names of all inputs that failed."""
        return ", ".join(path for path, _ in self.all)

    def _print(self, path: str, reason: str) -> None:
        named = path in reason or Path(path).name in reason or not self._several
        self._tell(reason if named else f"{path}: {reason}")
