"""Errors that end a command, and their exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import DiskFull, GreedyPigError, MissingPackage

DONE, FAILED, USAGE = 0, 1, 2


class UsageError(GreedyPigError):
    """The command was wrong: exit code 2."""


class Unfit(GreedyPigError):
    """The settings do not fit this input; if they fit none, the command was wrong."""


class Stopped(GreedyPigError):
    """Stopped by the user; the message says at what: exit code 1."""


@contextmanager
def wrong_command() -> Iterator[None]:
    """What the library refuses inside the block is a wrong command."""
    try:
        yield
    except (UsageError, Stopped, MissingPackage, DiskFull):
        raise
    except GreedyPigError as error:
        raise UsageError(" ".join(str(error).split())) from error
    except FileNotFoundError as error:
        missing = f"Expected a file at {error.filename} (got nothing there)."
        raise UsageError(missing if error.filename else str(error)) from error


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
