"""A table in one file or many: what columns it holds, and reading it one piece at a time.

A piece is what can be read alone: a row group of Parquet, a record batch of Arrow. Text (CSV, TSV,
also .gz) is converted to Parquet once, into the job's folder or a temporary one. Opening a file
reads no rows.
"""

from __future__ import annotations

import csv
import glob
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any
from urllib.parse import unquote

from ..core.errors import (
    GreedyPigError,
    InvalidFile,
    InvalidInput,
    did_you_mean,
    first_line,
    quoted,
)
from ..results.files import write_whole
from .arrow import arrow, kind_of, without_views

TEXT = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = (*PARQUET, *ARROW, *TEXT, *(f"{e}.gz" for e in TEXT))
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A")
"""Texts that stand for a missing value."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""A missing value in the name of a folder."""
INDEX = re.compile(r"__index_level_\d+__")
BLOCK = 1 << 23
"""Bytes of text that become one piece, about."""
CRITEO = ("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27)))
"""The columns of Criteo's files, which carry no names."""


@dataclass(frozen=True)
class TextLayout:
    """How text files are written; None is decided from the first line."""

    separator: str | None = None
    names: tuple[str, ...] | None = None
    """The columns' names, for files whose first line does not hold them."""
    quotes: bool = True
    decimal: str = "."
    """The decimal sign of numbers."""


def find_tables(where: str | PathLike[str]) -> list[Path]:
    """The files behind a path: one file, a folder's (with those below), or a pattern's; sorted."""
    text = fspath(where)
    path = Path(text)
    if path.is_dir():
        paths = _below(path)
    elif path.exists():
        if not _is_table(path):
            raise InvalidInput(
                f"Expected a table that ends in {', '.join(ENDINGS)} (got {path.name})."
            )
        return [path]
    else:
        matches = [p for p in map(Path, glob.glob(text, recursive=True)) if not _is_hidden(p.name)]
        paths = [p for p in matches if p.is_file()] or [p for f in matches for p in _below(f)]
    if not paths:
        raise InvalidInput(
            f"Expected tables at {text} (got none). Try a file, a folder or a quoted pattern; "
            f"endings: {', '.join(ENDINGS)}."
        )
    return sorted(set(paths))


def _below(folder: Path) -> list[Path]:
    """The tables in a folder and in those below it."""
    return [
        p for p in folder.rglob("*")
        if _is_table(p) and p.is_file() and not any(map(_is_hidden, p.relative_to(folder).parts))
    ]  # fmt: skip


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS) and not _is_hidden(path.name)


def _is_hidden(name: str) -> bool:
    # Writers of Spark and the like leave ._SUCCESS.crc and _metadata, and what they have not
    # finished in a folder _temporary; _day=1 is a partition.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


class TableFile:
    """One file of a table: its columns, and its pieces."""

    kind = ""
    decimal = "."

    def __init__(self, path: Path) -> None:
        self.path = path
        names, types = self.open()
        self.stored = dict(zip(_unique(path, names), names, strict=True))
        kinds = dict(zip(self.stored, map(kind_of, types), strict=True))
        self.kinds = {n: k for n, k in kinds.items() if not INDEX.fullmatch(n)}
        """Column → "number" or "text"; "other" cannot be used. Without pandas' unnamed index."""
        self.folder_values: dict[str, str | None] = {}
        """Columns in the names of the folders, country=DE/part.parquet, with their value here."""

    def open(self) -> tuple[list[str], list[Any]]:
        """The names and Arrow types of the columns."""
        raise NotImplementedError

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        raise NotImplementedError

    def read_stored(self, piece: int, columns: list[str]) -> Any:
        """A pyarrow Table of these columns, by the file's own names."""
        raise NotImplementedError

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """A pyarrow Table of these columns, those of the folders' names included."""
        pa = arrow()
        own = [c for c in columns if c not in self.folder_values]
        # At least one column is read, for the number of rows.
        stored = [self.stored[c] for c in own or list(self.stored)[:1]]
        with self.checked():
            rows = self.read_stored(piece, stored).select(stored)
        arrays = dict(zip(own, rows.columns, strict=False))
        for name in (c for c in columns if c in self.folder_values):
            value = self.folder_values[name]
            places = pa.repeat(pa.scalar(None if value is None else 0, pa.int32()), rows.num_rows)
            arrays[name] = pa.DictionaryArray.from_arrays(places, pa.array([value or ""]))
        return pa.table([arrays[c] for c in columns], names=list(columns))

    @contextmanager
    def checked(self) -> Iterator[None]:
        """A context in which Arrow's errors become errors that name the file."""
        try:
            yield
        except GreedyPigError:
            raise
        except (arrow().ArrowException, OSError, EOFError, zlib.error) as error:
            raise InvalidFile(
                f"Expected a whole {self.kind} file at {self.path} (got one that is cut off or "
                f"damaged: {first_line(error)}). Try writing it again, or leave it out."
            ) from error

    def convert(self, folder: Path) -> None:
        """Convert the file to Parquet there, if it has to be."""


class ParquetTable(TableFile):
    """Pieces are row groups."""

    kind = "Parquet"

    def open(self) -> tuple[list[str], list[Any]]:
        """From the file's metadata."""
        with self.checked():
            file = arrow("parquet").ParquetFile(self.path)
        self.metadata, schema = file.metadata, file.schema_arrow
        kinds = [kind_of(of) for of in schema.types]
        self._texts = [n for n, k in zip(schema.names, kinds, strict=True) if k == "text"]
        return schema.names, schema.types

    @property
    def pieces(self) -> int:
        """Row groups."""
        return int(self.metadata.num_row_groups)

    def read_stored(self, piece: int, columns: list[str]) -> Any:
        """Texts are dictionary-encoded, as they are stored: far quicker to encode."""
        texts = [c for c in columns if c in self._texts]
        file = arrow("parquet").ParquetFile(
            self.path, metadata=self.metadata, read_dictionary=texts
        )
        return file.read_row_group(piece, columns=columns)


class ArrowTable(TableFile):
    """Pieces are record batches of an IPC file (Feather's second version is one)."""

    kind = "Arrow"

    def open(self) -> tuple[list[str], list[Any]]:
        """From the file's schema."""
        with self.checked():
            file = self._reader()
        self._pieces = int(file.num_record_batches)
        return file.schema.names, file.schema.types

    @property
    def pieces(self) -> int:
        """Record batches."""
        return self._pieces

    def read_stored(self, piece: int, columns: list[str]) -> Any:
        """Mapped from the file, not copied."""
        rows = arrow().Table.from_batches([self._reader().get_batch(piece)]).select(columns)
        return arrow().table([without_views(c) for c in rows.columns], names=columns)

    def _reader(self) -> Any:
        return arrow("ipc").open_file(arrow().memory_map(fspath(self.path)))


class TextTable(TableFile):
    """Text, converted to Parquet once. All columns are text: a survey decides which are numbers."""

    kind = "text"

    def __init__(self, path: Path, layout: TextLayout) -> None:
        self._layout = layout
        self._temporary: TemporaryDirectory[str] | None = None
        self._folder: Path | None = None
        super().__init__(path)

    def open(self) -> tuple[list[str], list[Any]]:
        """From the first line."""
        layout, first = self._layout, self._first_line()
        if layout.names is None and layout.separator is None and _is_criteo(first):
            layout = TextLayout("\t", CRITEO, quotes=False)
        self.separator = layout.separator or _separator(self.path, first)
        self.quotes, self.decimal = layout.quotes, layout.decimal
        fields = next(csv.reader([first], delimiter=self.separator), [])
        self._has_names = layout.names is None
        names = [f.strip() for f in fields] if layout.names is None else list(layout.names)
        if len(fields) != len(names):
            raise InvalidInput(
                f"Expected {len(names)} columns in {self.path} (got {len(fields)} in its first "
                "line)."
            )
        return names, [arrow().string()] * len(names)

    @property
    def pieces(self) -> int:
        """Row groups of the converted file."""
        return self._parquet.pieces

    def read_stored(self, piece: int, columns: list[str]) -> Any:
        """From the converted file."""
        places = list(self.stored.values())
        return self._parquet.read_stored(
            piece, [str(places.index(c)) for c in columns]
        ).rename_columns(columns)

    def convert(self, folder: Path) -> None:
        """Convert into this folder, unless that was done there."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        assert self._parquet

    @cached_property
    def _parquet(self) -> ParquetTable:
        if self._folder is None:
            self._temporary = TemporaryDirectory(prefix="greedypig-")
            self._folder = Path(self._temporary.name)
        about = (fspath(self.path.absolute()), self.separator, self.quotes, self.decimal)
        name = sha256(repr(about).encode()).hexdigest()[:16]
        file = self._folder / f"{name}.parquet"
        if not file.exists():
            write_whole(file, partial(_write, self._batches()))
        return ParquetTable(file)

    def _batches(self) -> Iterator[Any]:
        """Record batches of text; columns are named by their places, as some have no name."""
        pa, reader = arrow(), arrow("csv")
        names = [str(i) for i in range(len(self.stored))]
        convert = reader.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True,
            quoted_strings_can_be_null=True, null_values=list(MISSING),
        )  # fmt: skip
        yield pa.schema([(name, pa.string()) for name in names])
        read = reader.ReadOptions(
            column_names=names, skip_rows=int(self._has_names), block_size=BLOCK
        )
        parse = reader.ParseOptions(
            delimiter=self.separator,
            newlines_in_values=self.quotes,
            quote_char='"' if self.quotes else False,
        )
        with self.checked():
            try:
                yield from map(self._with_points, reader.open_csv(self.path, read, parse, convert))
            except pa.ArrowInvalid as error:
                if "Empty CSV" not in str(error):  # Else nothing but the line of names.
                    raise InvalidFile(
                        f"Expected lines of {len(names)} columns in {self.path} (got "
                        f"{first_line(error)}). Try another separator, or correct the file."
                    ) from error

    def _with_points(self, batch: Any) -> Any:
        """1,5 as 1.5 where the decimal sign is a comma; other texts stay."""
        if self.decimal == ".":
            return batch
        pattern = rf"^(\s*[+-]?\d*){re.escape(self.decimal)}(\d+([eE][+-]?\d+)?\s*)$"
        change = arrow("compute").replace_substring_regex
        columns = [change(c, pattern, r"\1.\2") for c in batch.columns]
        return arrow().record_batch(columns, schema=batch.schema)

    def _first_line(self) -> str:
        with self.checked():
            opened = gzip.open if self.path.name.lower().endswith(".gz") else open
            with opened(self.path, "rb") as file:
                raw = file.readline(BLOCK)
        try:
            return raw.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise InvalidFile(
                f"Expected text in UTF-8 in {self.path} (got other bytes). Try converting it."
            ) from error


def _write(batches: Iterator[Any], file: IO[bytes]) -> None:
    """A schema, then record batches, as a Parquet file of one row group each."""
    with arrow("parquet").ParquetWriter(file, next(batches)) as writer:
        for batch in batches:
            writer.write_table(arrow().Table.from_batches([batch]))


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
            some = ", ".join(names if len(names) <= 12 else [*names[:8], "…", *names[-3:]])
            raise InvalidInput(
                f"Expected a column of {self.source}: {some} (got {name!r})."
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
    files = [_open_file(path, layout or TextLayout()) for path in paths]
    _take_folder_values(files, keep)
    first = files[0]
    kinds = dict(first.kinds)
    for file in files[1:]:
        if set(file.kinds) != set(kinds):
            gone, new = sorted(set(kinds) - set(file.kinds)), sorted(set(file.kinds) - set(kinds))
            parts = [f"without {quoted(gone)}"] * bool(gone)
            parts += [f"with a further {quoted(new)}"] * bool(new)
            raise InvalidInput(
                f"Expected the columns of {first.path} in {file.path} too (got one "
                f"{' and '.join(parts)}). Try tables of the same columns."
            )
        for name, kind in file.kinds.items():
            if kind != kinds[name]:
                kinds[name] = "text" if {kind, kinds[name]} == {"text", "number"} else "other"
    source = fspath(where[0]) + (f" and {len(where) - 1} more" if len(where) > 1 else "")
    return Table(source, tuple(files), kinds)


def _open_file(path: Path, layout: TextLayout) -> TableFile:
    name = path.name.lower()
    if path.stat().st_size == 0:
        raise InvalidFile(f"Expected a table in {path} (got an empty file). Try leaving it out.")
    if name.endswith(PARQUET):
        return ParquetTable(path)
    return ArrowTable(path) if name.endswith(ARROW) else TextTable(path, layout)


def _take_folder_values(files: Sequence[TableFile], keep: Collection[str]) -> None:
    """Give each file the columns in its folders' names that differ between files or are kept."""
    values = [_folder_values(file.path, file.kinds) for file in files]
    different: dict[str, set[str | None]] = {}
    for one in values:
        for name, value in one.items():
            different.setdefault(name, set()).add(value)
    for file, one in zip(files, values, strict=True):
        file.folder_values = {n: v for n, v in one.items() if len(different[n]) > 1 or n in keep}
        # As text, like a CSV's: a survey of all files decides which are numbers.
        file.kinds |= dict.fromkeys(file.folder_values, "text")


def _folder_values(path: Path, own: Collection[str]) -> dict[str, str | None]:
    """Names and values of the folders above a file; a column of its own goes before."""
    values: dict[str, str | None] = {}
    for folder in path.parent.parts:
        name, sign, value = folder.partition("=")
        if sign and name and unquote(name) not in own:
            values[unquote(name)] = None if value in ("", NO_VALUE) else unquote(value)
    return values


def _is_criteo(line: str) -> bool:
    """Is this a line of Criteo's files: a label of 0 or 1 before 39 fields, tabs between them?"""
    fields = line.split("\t")
    return len(fields) == len(CRITEO) and fields[0] in ("0", "1")


def _separator(path: Path, line: str) -> str:
    if ".tsv" in path.name.lower():
        return "\t"
    return next((s for s in (",", "\t", ";", "|") if s in line), ",")


def _unique(path: Path, names: Sequence[str]) -> list[str]:
    """Names for all columns: one without is called as pandas calls it, by its place."""
    full = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    twice = sorted({name for name in full if full.count(name) > 1})
    if twice:
        raise InvalidInput(
            f"Expected columns of different names in {path} (got {quoted(twice)} more "
            "than once). Try other names in its first line, or name the columns if that line "
            "holds none."
        )
    return full
