"""What ends a command early, and with which exit code."""

from __future__ import annotations

from ..core.errors import GreedyPigError

DONE, FAILED, USAGE = 0, 1, 2


class UsageError(GreedyPigError):
    """The command was wrong: exit code 2."""


class Stopped(GreedyPigError):
    """Stopped by the user, and all that is to be said was said: exit code 1."""


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
