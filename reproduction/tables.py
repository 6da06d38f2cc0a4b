"""Tables of a reproduction as Markdown and CSV, and the words around them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from greedypig.results.files import write_whole

from .request import Result, Table

MARK = "Made by `python -m reproduction"


def cell(table: Table, row: Mapping[str, Any], column: str, *, errors: bool = False) -> str:
    """A value as it stands in a table, perhaps with its standard error; – where there is none."""
    value = row.get(column)
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    error = row.get(table.errors.get(column, "")) if errors else None
    text = table.formats.get(column, "{:.3f}").format(value)
    return text if error is None else f"{text} ± {error:.{table.digits.get(column, 3)}f}"


def markdown(result: Result, command: str, pictures: Iterable[Path] = ()) -> str:
    """The whole page: table, setting, what differs, what was left out."""
    table = result.table
    lines = [f"# {result.title}", "", f"{MARK} {command}`.", ""]
    lines.append("| " + " | ".join(table.columns.values()) + " |")
    texts = [c for c in table.columns if any(isinstance(r.get(c), str) for r in table.rows)]
    lines.append("|" + "".join("---|" if c in texts else "---:|" for c in table.columns))
    for row in table.rows:
        cells = (cell(table, row, c, errors=True).replace("|", "\\|") for c in table.columns)
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"- {remark}" for remark in result.remarks)]
    for picture in pictures:
        lines += ["", f"![{result.title}]({picture.name})"]
    if result.failed:
        lines += ["", "Left out, as they could not be read or explained:", ""]
        lines += [f"- {Path(name).name}: {reason}" for name, reason in result.failed]
    return "\n".join(lines) + "\n"


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], first: str = "method") -> None:
    """Rows with the union of their columns, `first` before the others."""
    columns = list(dict.fromkeys([first, *(key for row in rows for key in row)]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (row.get(column) for column in columns)
        writer.writerow(["" if v is None else _number(v) for v in values])
    write_whole(path, text.getvalue())


def _number(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean and its standard error, as far as there are values for them."""
    if not values:
        return None, None
    return fmean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else None
