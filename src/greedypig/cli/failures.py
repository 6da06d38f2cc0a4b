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
        raise UsageError(*error.pieces) from error
    except FileNotFoundError as error:
        missing = f"Expected a file at {error.filename} (got nothing there)."
        raise UsageError(missing if error.filename else str(error)) from error
