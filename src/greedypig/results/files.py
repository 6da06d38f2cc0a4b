"""The one way to write a file: whole or not at all.

The content goes to a hidden file in the same folder, is flushed to the disk, and takes the place of
`path` only then. After an error, a full disk or Ctrl-C, `path` is as it was before. A hidden file
that a killed process has left is removed when the same file is written again.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import IO

from ..core.errors import DiskFull

if sys.platform != "win32":
    import fcntl

Content = str | bytes | Callable[[IO[bytes]], object]
"""Text (written as UTF-8), bytes, or a function that writes to an open binary file."""
MARK, CSV_MARK, HEAD = b"greedypig", b"method,", 65536
"""Every file of greedypig has the first in its first bytes, so many; tables as CSV begin with the
other."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PART = re.compile(r"\.(.*)\.[0-9a-f]{16}\.part")
"""Names of the hidden files: the start of the target's name, and a random number."""


def write_whole(path: str | PathLike[str], content: Content) -> None:
    """Write `content` to `path`, whole or not at all. A symbolic link stays a link.

    A full disk raises `DiskFull`, another failure the OSError it is; both name `path`.
    """
    remove_stale_parts(path)
    target = Path(os.path.realpath(path))
    try:
        with _part_of(target) as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # Some file systems find out only here that they are full.
            if sys.platform == "win32":
                file.close()  # Windows moves no open file; others keep the lock to the end.
            os.replace(file.name, target)
    except OSError as error:
        name = os.path.basename(str(error.filename))
        if error.errno is None or not (error.filename is None or _PART.fullmatch(name)):
            raise
        raise _named(error, fspath(path)) from error


def is_ours(path: Path, mark: bytes = MARK) -> bool:
    """Has greedypig written this file? Its first bytes hold the mark, or begin as a table does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(HEAD)
    return mark in head or (path.suffix == ".csv" and head.startswith(CSV_MARK))


def remove_stale_parts(*paths: str | PathLike[str]) -> None:
    """Remove the hidden files that killed processes have left while they wrote these files.

    A process holds a lock on the hidden file it writes, which ends with the process, also in
    another container; a network folder that knows no locks is left as it is.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        target = Path(os.path.realpath(path))
        names[fspath(target.parent)].add(_start(target))
    for folder, starts in names.items():
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                match = _PART.fullmatch(entry.name)
                if match is not None and match[1] in starts:
                    _remove_unlocked(entry.path)


def _start(target: Path) -> str:
    return target.name[:50]  # The names of files are limited, to 255 bytes on most disks.


@contextmanager
def _part_of(target: Path) -> Iterator[IO[bytes]]:
    """A new hidden file beside the target, locked until it is closed or the process ends."""
    while True:
        part = target.with_name(f".{_start(target)}.{secrets.token_hex(8)}.part")
        try:
            with open(part, "xb") as file:
                if sys.platform != "win32":
                    with suppress(OSError):  # Not every network folder knows locks.
                        fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:  # Else it was removed before it was locked.
                    yield file
                    return
        finally:
            part.unlink(missing_ok=True)


def _remove_unlocked(part: str) -> None:
    with suppress(OSError):  # It is locked, or of another user.
        if sys.platform == "win32":
            os.remove(part)  # Windows refuses it while the file is open.
        else:
            with open(part, "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(part)


def _named(error: OSError, path: str) -> OSError:
    """The same error in one sentence, with the name that the caller gave."""
    kind, folder = type(error), os.path.dirname(path) or "."
    text = (
        f"Expected a file that can be written at {path} "
        f"(got {'a folder' if os.path.isdir(path) else error.strerror}). Try another name."
    )
    if error.errno in _FULL:
        kind = DiskFull
        text = (
            f"Expected space on the disk for {path} (got: {error.strerror}). Try again after "
            "making space; no part of the file was written."
        )
    elif not os.path.isdir(folder):
        text = f"Expected a folder for {path} (got none at {folder}). Try making it first."
    named = kind(text)
    named.errno = error.errno
    return named
