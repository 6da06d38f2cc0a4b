"""A table in one file or many, read piece by piece; and columns as numbers, texts and classes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InvalidInput, did_you_mean
from .arrow import arrow
from .files import TableFile, TextLayout, find_tables, open_files

HUGE = 1e90
"""Numbers beyond count as infinite."""


@dataclass(frozen=True, eq=False)
class Table:
    """One or several files with the same columns."""

    source: str
    """The name that it was opened by."""
    files: tuple[TableFile, ...]
    kinds: dict[str, str]
    """Column → "number", or "text" where some file holds text."""

    @cached_property
    def pieces(self) -> tuple[tuple[TableFile, int], ...]:
        """Runs of rows that can be read alone: a file, and which of its pieces. Text is converted
        for it."""
        return tuple((file, i) for file in self.files for i in range(file.pieces))

    def convert(self, folder: Path) -> None:
        """Convert text to Parquet in this folder; what is there already is used again."""
        for file in self.files:
            file.convert(folder)

    def without(self, names: Sequence[str]) -> Table:
        """The same table without these columns."""
        for name in names:
            self.check(name)
        return replace(self, kinds={n: k for n, k in self.kinds.items() if n not in set(names)})

    def check(self, name: str) -> None:
        """Refuse a column that is not there."""
        if name not in self.kinds:
            names = list(self.kinds)
            # The label is the first or the last one in most tables.
            listed = ", ".join(names if len(names) <= 12 else [*names[:8], "…", *names[-3:]])
            raise InvalidInput(
                f"Expected a column of {self.source}: {listed} (got {name!r})."
                f"{did_you_mean(name, self.kinds)}"
            )

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """A pyarrow Table of a piece."""
        file, index = self.pieces[piece]
        return file.read(index, columns)


def open_table(
    *where: str | PathLike[str], layout: TextLayout | None = None, keep: Collection[str] = ()
) -> Table:
    """Open files, folders or patterns; text that looks like Criteo's is taken as such.

    Columns may stand in another order in each file, but must be the same; a column that is a
    number in one file and text in another is taken as text. Folders of the form name=value, as
    Hive and Spark write them, are columns, too, if they tell files apart or are among `keep`.
    """
    paths = list(dict.fromkeys(path for one in where for path in find_tables(one)))
    if not paths:
        raise InvalidInput("Expected at least one table (got none).")
    files = open_files(paths, layout, keep)
    first = files[0]
    kinds = dict(first.kinds)
    for file in files[1:]:
        theirs = file.kinds
        if set(theirs) != set(kinds):
            raise InvalidInput(
                f"Expected the columns of {first.path} in {file.path} too (got "
                f"{_difference(set(kinds), set(theirs))}). Try tables of the same columns."
            )
        for name, kind in theirs.items():
            if kind != kinds[name]:
                kinds[name] = "text" if {kind, kinds[name]} == {"text", "number"} else "other"
    source = fspath(where[0]) + (f" and {len(where) - 1} more" if len(where) > 1 else "")
    return Table(source, files, kinds)


def _difference(ours: set[str], theirs: set[str]) -> str:
    parts = []
    for names, what in ((ours - theirs, "without"), (theirs - ours, "with a further")):
        if names:
            shown = sorted(names)
            more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
            parts.append(f"{what} {', '.join(map(repr, shown[:3]))}{more}")
    return "one " + " and ".join(parts)


def as_numbers(column: Any) -> tuple[np.ndarray[Any, Any], int, str]:
    """(float64 values with NaN where nothing or no number is, texts that are none, one of them)."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    if types.is_dictionary(column.type) and types.is_string(column.type.value_type):
        texts = as_texts(column)  # Each different text is parsed once.
        found, _, example = as_numbers(texts.dictionary)
        places = texts.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        values = np.append(found, np.nan)[places]
        return values, int(np.isnan(values).sum()) - texts.null_count, example
    column = _plain(column)
    if types.is_string(column.type) or types.is_large_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            return _forgiving(column)
    elif types.is_temporal(column.type):
        width = column.type.bit_width
        column = pc.cast(pc.cast(column, pa.int32() if width == 32 else pa.int64()), pa.float64())
    elif types.is_boolean(column.type) or types.is_null(column.type):
        column = pc.cast(pc.cast(column, pa.int8()), pa.float64())
    else:
        column = pc.cast(column, pa.float64(), safe=False)
    return _bounded(column), 0, ""


def _forgiving(column: Any) -> tuple[np.ndarray[Any, Any], int, str]:
    pa, pc = arrow(), arrow("compute")
    number = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|Inf|infinity|nan|NaN)$"
    fits = pc.fill_null(pc.match_substring_regex(column, number), True)
    odd = pc.filter(column, pc.invert(fits))
    example = odd[0].as_py() if len(odd) else ""
    kept = pc.if_else(fits, column, pa.scalar(None, column.type))
    # Arrow's cast knows no leading plus.
    values = pc.cast(pc.utf8_ltrim(kept, "+"), pa.float64())
    return _bounded(values), len(odd), example


def _bounded(column: Any) -> np.ndarray[Any, Any]:
    """Numbers whose cube would overflow, a mark of nothing in most tables, are infinite."""
    values = np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    huge = np.abs(values) > HUGE
    return np.where(huge, np.copysign(np.inf, values), values) if huge.any() else values


def as_texts(column: Any) -> Any:
    """A dictionary-encoded array of strings; nothing there is null."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not types.is_dictionary(column.type):
        if not types.is_string(column.type):
            column = pc.cast(column, pa.string())
        return pc.dictionary_encode(column)
    if types.is_string(column.type.value_type):
        return column
    return pc.dictionary_encode(pc.cast(_plain(column), pa.string()))


def as_classes(column: Any) -> Any:
    """`as_texts` of a label: 1, 1.0 and true are one class, whatever type a file gives them."""
    pa, types = arrow(), arrow("types")
    if types.is_string(_value_type(column)) or types.is_large_string(_value_type(column)):
        return as_texts(column)
    values, _, _ = as_numbers(column)
    different, places = np.unique(values, return_inverse=True)
    texts = pa.array([None if np.isnan(v) else f"{v:.15g}" for v in different], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), texts)


def _value_type(column: Any) -> Any:
    of = column.type
    return of.value_type if arrow("types").is_dictionary(of) else of


def _plain(column: Any) -> Any:
    pa, types = arrow(), arrow("types")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column.dictionary_decode() if types.is_dictionary(column.type) else column
