"""Columns in the names of folders, country=DE/part.parquet, as Hive and Spark write them.

The files do not hold such a column, so each is read with its folder's value beside its own columns.
A name with one value for all files, as of a single partition, tells nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .arrow import arrow
from .files import TableFile

NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""How a missing value is written."""


class Partitioned:
    """A file of a table, with the values that its folders tell."""

    def __init__(self, file: TableFile, told: dict[str, str | None]) -> None:
        self.file, self.path, self.told = file, file.path, told
        self.decimal = getattr(file, "decimal", ".")
        # As text, like a CSV's: what is a number is seen by the values of all files.
        self.kinds = {**file.kinds, **dict.fromkeys(told, "text")}

    @property
    def pieces(self) -> int:
        """Those of the file."""
        return self.file.pieces

    def bytes_of(self, piece: int) -> int:
        """As the file says."""
        return self.file.bytes_of(piece)

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """The file's own columns, and the others repeated for every row."""
        pa = arrow()
        own = [c for c in columns if c not in self.told]
        # Some column is read in any case: it tells how many rows there are.
        rows = self.file.read(piece, own or list(self.file.kinds)[:1])
        found = {c: rows[c] for c in own}
        for name, value in self.told.items():
            if name in columns:
                places = pa.repeat(pa.scalar(0 if value is not None else None, pa.int32()),
                                   rows.num_rows)  # fmt: skip
                found[name] = pa.DictionaryArray.from_arrays(places, pa.array([value or ""]))
        return pa.table([found[c] for c in columns], names=list(columns))


def with_partitions(
    files: Sequence[TableFile], keep: Collection[str] = ()
) -> tuple[TableFile, ...]:
    """The files, those in folders of the form name=value with these columns.

    keep: names that stay even if they have one value.
    """
    told = [_told(file.path, file.kinds) for file in files]
    values: dict[str, set[str | None]] = {}
    for one in told:
        for name, value in one.items():
            values.setdefault(name, set()).add(value)
    telling = {name for name, found in values.items() if len(found) > 1 or name in keep}
    return tuple(
        Partitioned(file, kept)
        if (kept := {n: v for n, v in one.items() if n in telling})
        else file
        for file, one in zip(files, told, strict=True)
    )


def _told(path: Path, own: dict[str, str]) -> dict[str, str | None]:
    """Names and values of the folders above a file; a column of its own goes before."""
    found: dict[str, str | None] = {}
    for folder in path.parent.parts:
        name, sign, value = folder.partition("=")
        if sign and name and unquote(name) not in own:
            found[unquote(name)] = None if value in ("", NOTHING) else unquote(value)
    return found
