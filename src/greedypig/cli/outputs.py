"""Names and folders of the files that a command writes.

Files of greedypig may be overwritten, because a repeated run gives the same. A foreign file is
never overwritten; that is an error before any work is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import greedypig as gp

from ..results.files import write_whole
from .failures import UsageError

MARK = b"greedypig"
"""Every file of greedypig has this in its first bytes."""
_HEAD = 65536
ENDINGS = (".gpig", ".html")


def stems(out: str | None, photos: Sequence[Path]) -> list[Path]:
    """Each photo's files without their endings: in `out`, else in the current directory.

    out: a folder, which is made; or, for one photo, a file that ends in .gpig or .html.
    """
    if out is not None and Path(out).suffix.lower() in ENDINGS and not Path(out).is_dir():
        if len(photos) != 1:
            raise UsageError(
                f"Expected a folder as --out for {len(photos)} photos (got the file {out})."
            )
        file = Path(out)
        return [folder(file.parent) / file.stem]
    where = folder(Path(out if out is not None else "."))
    names: list[Path] = []
    taken: dict[str, int] = {}
    for photo in photos:
        # File systems may take Cat and cat for one name.
        taken[photo.stem.casefold()] = again = taken.get(photo.stem.casefold(), 0) + 1
        name = photo.stem if again == 1 else f"{photo.stem}-{again}"
        while again > 1 and name.casefold() in taken:
            name += "-"
        taken.setdefault(name.casefold(), 1)
        names.append(where / name)
    return names


def folder(path: Path) -> Path:
    """A folder that can be written to, made if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"Expected a folder for the results at {path} (got {error.strerror or error})."
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(
            f"Expected a folder that may be written to at {path} (got none). Try --out FOLDER."
        )
    return path


def refuse_foreign(paths: Iterable[Path], mark: bytes = MARK) -> None:
    """Refuse to overwrite files that greedypig has not written."""
    for path in paths:
        if not path.exists() and not path.is_symlink():
            continue
        if path.is_file():
            with path.open("rb") as file:
                if mark in file.read(_HEAD):
                    continue
        raise UsageError(
            f"Expected {path} to be free, or a file of greedypig (got another, which is left "
            "alone). Try --out FOLDER."
        )


def shown(path: Path) -> str:
    """A path as people type it: relative where that is shorter."""
    text = str(path)
    try:
        near = os.path.relpath(path)
    except ValueError:  # Another drive.
        return text
    return near if len(near) < len(text) else text


def save_figure(figure: Any, file: Path) -> None:
    """Save a figure as PNG, with the program's name in it."""
    facts = {"Software": f"greedypig {gp.__version__}"}
    write_whole(file, lambda to: figure.savefig(to, format="png", dpi=150, metadata=facts))
