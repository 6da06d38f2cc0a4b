"""Names and folders of the files that a command writes.

Files of greedypig may be overwritten, because a repeated run gives the same. A foreign file is
never overwritten; that is an error before any work is done.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..results.files import MARK, is_ours, remove_stale_parts, write_whole
from .failures import UsageError

ENDINGS = (".gpig", ".html")


def stems(out: str | None, photos: Sequence[Path]) -> list[Path]:
    """Each photo's files without their endings: in `out`, else in the current directory.

    out: a folder, which is made; or, for one photo, a file that ends in .gpig or .html.
    """
    if out is not None and Path(out).suffix.lower() in ENDINGS and not Path(out).is_dir():
        if len(photos) != 1:
            raise UsageError(f"Expected a folder as --out for several files (got the file {out}).")
        return [folder(Path(out).parent) / Path(out).stem]
    names: dict[str, str] = {}
    for photo in photos:
        name, number = photo.stem, 2
        while name.casefold() in names:  # File systems may take Cat and cat for one name.
            name, number = f"{photo.stem}-{number}", number + 1
        names[name.casefold()] = name
    where = folder(Path(out or "."))
    return [where / name for name in names.values()]


def result_folder(out: str | None, default: str) -> Path:
    """The folder that --out names, which is made."""
    if out is not None and Path(out).suffix.lower() in (*ENDINGS, ".npz"):
        raise UsageError(f"Expected a folder as --out (got {out}).")
    return folder(Path(out or default))


def folder(path: Path) -> Path:
    """A folder that can be written to, made if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = "a file" if path.is_file() else error.strerror or error
        raise UsageError(f"Expected a folder for the results at {path} (got {got}).") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(
            f"Expected a folder that may be written to at {path} (got none). Try --out FOLDER."
        )
    return path


def refuse_foreign(paths: Iterable[Path], mark: bytes = MARK) -> None:
    """Refuse to overwrite files that greedypig has not written; removes what a killed run left."""
    paths = list(paths)
    for path in paths:
        if not path.exists() and not path.is_symlink():
            continue
        if is_ours(path, mark):
            continue
        raise UsageError(
            f"Expected {path} to be free, or a file of greedypig (got another, which is left "
            "alone). Try --out FOLDER."
        )
    remove_stale_parts(*paths)


def shown(path: Path) -> str:
    """A path as people type it: relative where that is shorter."""
    try:
        return min(str(path), os.path.relpath(path), key=len)
    except ValueError:  # Another drive.
        return str(path)


def wrote(files: Sequence[Path]) -> str:
    """Files for a line of output: those of one folder after its name."""
    folders = {file.parent for file in files}
    if len(folders) > 1 or Path(".") in folders:
        return f"wrote {', '.join(map(shown, files))}"
    return f"wrote {shown(files[0].parent)}/: {', '.join(file.name for file in files)}"


def write_csv(file: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows, the heads first, as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(file, text.getvalue())


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: a column of names, then numbers, aligned to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def save_figure_of(result: Any, draw: Callable[[Any], Any], file: Path) -> list[Path]:
    """Save the figure of a result where matplotlib is installed; returns what was written."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    save_figure(draw(result), file)
    return [file]


def save_figure(figure: Any, file: Path) -> None:
    """Save a figure as PNG, with the program's name in it."""
    from greedypig import __version__

    facts = {"Software": f"greedypig {__version__}"}
    write_whole(file, lambda to: figure.savefig(to, format="png", dpi=150, metadata=facts))
