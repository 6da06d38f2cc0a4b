"""Ctrl-C while the program is still being loaded ends it in one line.

Importing torch takes seconds, and Python would answer an interrupt in them with a traceback through
somebody else's files; a package half imported may even swallow it. Nothing is done yet that could
be lost, so the process simply ends. Only where greedypig is the program that was started: for those
who import it, Ctrl-C is theirs. Imported before everything else, so it knows nothing heavy.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

INTERRUPTED = 130
"""What shells report for a program that ended by Ctrl-C: 128 + SIGINT."""

_MODULES = ("greedypig", "greedypig.assets")
"""Those that `python -m` runs."""

_FLAG = re.compile(r"-[A-Za-z]*?m(.*)")
"""-m with what it runs, if that is not the next word; other flags may go before it: -um."""


def watch() -> None:
    """From here to `over()` Ctrl-C ends the process, if greedypig is the program of this one."""
    # A job in the background, or a host program, has its own mind about SIGINT.
    untouched = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_main = threading.current_thread() is threading.main_thread()
    if untouched and in_main and is_program(sys.argv, sys.orig_argv):
        signal.signal(signal.SIGINT, _end)


def over() -> None:
    """Everything is loaded: Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_program(argv: Sequence[str], typed: Sequence[str]) -> bool:
    """Whether `typed`, the interpreter's own command line, starts greedypig; argv is sys.argv."""
    name = argv[0] if argv else ""
    if name == "-m":  # What argv[0] is until `python -m` has found its module.
        words = iter(typed)
        flags = (match for word in words if (match := _FLAG.fullmatch(word)))
        return any((match[1] or next(words, "")) in _MODULES for match in flags)
    stem = os.path.splitext(os.path.basename(name))[0]
    # A process that multiprocessing spawned bears its parent's argv, but was not typed so.
    return stem == "greedypig" and name in typed


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(INTERRUPTED)  # An exception could be caught by whatever is being imported.
