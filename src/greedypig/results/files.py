"""The one way to write a file: whole or not at all.

The content goes to a hidden file in the same folder, is flushed to the disk, and takes the place of
`path` only then. After an error, a full disk or Ctrl-C, `path` is as it was before.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import IO

from ..core.errors import DiskFull

Content = str | bytes | Callable[[IO[bytes]], object]
"""Text (written as UTF-8), bytes, or a function that writes to an open binary file."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: str | PathLike[str], content: Content) -> None:
    """Write `content` to `path`, whole or not at all. A symbolic link stays a link.

    A full disk raises `DiskFull`, another failure the OSError it is; both name `path`.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # Some file systems find out only here that they are full.
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, fspath(temporary)):
            raise
        raise _named(error, fspath(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _named(error: OSError, path: str) -> OSError:
    """The error with the name that the caller gave instead of the temporary one, or none."""
    if error.errno not in _FULL:
        return OSError(error.errno, error.strerror, path)
    full = DiskFull(
        f"Expected space on the disk for {path} (got: {error.strerror}). Try again after making "
        "space; no part of the file was written."
    )
    full.errno = error.errno
    return full
