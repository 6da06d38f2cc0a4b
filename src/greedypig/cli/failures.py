"""Errors that end a command, and their exit codes."""

from __future__ import annotations

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
    if isinstance(error, OSError):
        name = "" if error.filename is None else f"{error.filename}: "
        return f"{name}{error.strerror or text}".rstrip(".") + "."
    if isinstance(error, MemoryError):
        return "The memory ran out. Try smaller batches or a smaller input."
    more = "" if debug else " Try --debug to see where."
    return f"{type(error).__name__}: {text[:300]}.{more}"
