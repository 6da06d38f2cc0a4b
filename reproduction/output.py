"""The result of a reproduction and its files: a page, CSV files and figures in one folder."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from greedypig.results.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = "Made by `python -m reproduction"


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean and its standard error, None where there are too few values."""
    if not values:
        return None, None
    return fmean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else None


@dataclass(frozen=True)
class Table:
    """Our numbers beside the paper's."""

    columns: Mapping[str, str]
    """From a column's key to its heading."""
    rows: Sequence[Mapping[str, Any]]
    formats: Mapping[str, str] = field(default_factory=dict)
    """Format of a column's numbers; three decimals where there is none."""
    digits: int = 3
    """Decimals of standard errors, which are in the column KEY_error."""

    def cell(self, row: Mapping[str, Any], column: str, *, errors: bool = False) -> str:
        """A value as text, with its standard error if there is one; – where there is no value."""
        value = row.get(column)
        if value is None or value == "":
            return "–"
        if isinstance(value, str):
            return value
        error = row.get(f"{column}_error") if errors else None
        text = self.formats.get(column, "{:.3f}").format(value)
        return text if error is None else f"{text} ± {error:.{self.digits}f}"

    def is_text(self, column: str) -> bool:
        """Does the column hold text?"""
        return any(isinstance(row.get(column), str) for row in self.rows)


@dataclass(frozen=True)
class Result:
    """What was measured, for people, for files and for programs."""

    name: str
    title: str
    table: Table
    remarks: Sequence[str] = ()
    """The setting, then what differs from the paper's, a sentence or two each."""
    failed: Sequence[tuple[str, str]] = ()
    """What could not be measured, each with the reason."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Model, judge, seed and the like, for --json."""
    files: Sequence[Path] = ()

    def markdown(self, command: str, pictures: Iterable[Path] = ()) -> str:
        """The page: table, remarks, pictures, failures."""
        table = self.table
        lines = [f"# {self.title}", "", f"{MARK} {command}`.", ""]
        lines.append("| " + " | ".join(table.columns.values()) + " |")
        lines.append("|" + "".join("---|" if table.is_text(c) else "---:|" for c in table.columns))
        for row in table.rows:
            cells = [table.cell(row, c, errors=True).replace("|", "\\|") for c in table.columns]
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", *(f"- {remark}" for remark in self.remarks)]
        for picture in pictures:
            lines += ["", f"![{self.title}]({picture.name})"]
        if self.failed:
            lines += ["", "Left out, as they could not be read or explained:", ""]
            lines += [f"- {Path(name).name}: {reason}" for name, reason in self.failed]
        return "\n".join(lines) + "\n"


class Files:
    """Writes files to a folder and remembers them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.paths: list[Path] = []

    @property
    def pictures(self) -> list[Path]:
        """The figures that were written."""
        return [path for path in self.paths if path.suffix == ".png"]

    def write(self, name: str, content: Any) -> None:
        """A file, whole or not at all."""
        write_whole(self.folder / name, content)
        self.paths.append(self.folder / name)

    def csv(
        self,
        name: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        first: str = "method",
        without: Sequence[str] = (),
    ) -> None:
        """Rows with the union of their columns, `first` before the others."""
        rows = list(rows)
        columns = dict.fromkeys([first, *(key for row in rows for key in row)])
        names = [column for column in columns if column not in without]
        text = io.StringIO()
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            short = {k: f"{v:.6g}" for k, v in row.items() if isinstance(v, float)}
            writer.writerow({**row, **short})
        self.write(name, text.getvalue())

    def figure(self, name: str, draw: Callable[[], Figure]) -> None:
        """A PNG, where matplotlib is installed."""
        if importlib.util.find_spec("matplotlib") is None:
            return
        figure, metadata = draw(), {"Software": "greedypig"}
        self.write(
            name, lambda file: figure.savefig(file, format="png", dpi=130, metadata=metadata)
        )
