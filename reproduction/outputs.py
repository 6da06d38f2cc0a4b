"""The files of a result: CSV, figure and the page around them, all in one folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greedypig.results.files import write_whole

from . import tables
from .request import Request, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Written:
    """Writes a result's files and remembers them."""

    def __init__(self, request: Request, result: Result) -> None:
        self.folder, self.result = request.out, result
        self.command = request.words(result.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files: list[Path] = []
        self.pictures: list[Path] = []

    def csv(self, name: str, rows: Sequence[Mapping[str, Any]], first: str = "method") -> None:
        """A CSV file of rows."""
        tables.write_csv(self.folder / name, rows, first)
        self.files.append(self.folder / name)

    def figure(self, name: str, draw: Callable[[], Figure]) -> None:
        """A PNG, where matplotlib is there to draw it."""
        if importlib.util.find_spec("matplotlib") is None:
            return
        figure, facts = draw(), {"Software": "greedypig"}
        write_whole(
            self.folder / name,
            lambda file: figure.savefig(file, format="png", dpi=130, metadata=facts),
        )
        self.files.append(self.folder / name)
        self.pictures.append(self.folder / name)

    def page(self, name: str) -> Result:
        """The Markdown page with the table and the pictures; the result with all its files."""
        text = tables.markdown(self.result, self.command, self.pictures)
        write_whole(self.folder / name, text)
        return replace(self.result, files=[self.folder / name, *self.files])
