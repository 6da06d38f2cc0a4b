"""A table in one file or many: what columns it holds, and reading it one piece at a time.

A piece is a row group of Parquet. Text (CSV, TSV, also .gz) and Arrow files are converted to
Parquet once, into the job's folder or a temporary one. Opening a file reads no rows.
"""

from __future__ import annotations

import csv
import glob
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from io import StringIO, TextIOWrapper
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
from .arrow import arrow, as_texts, kind_of
from .batch import check_different

TEXT = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = (*PARQUET, *ARROW, *TEXT, *(f"{e}.gz" for e in TEXT))
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A"]
MISSING += ["__HIVE_DEFAULT_PARTITION__"]
"""Texts that stand for a missing value, in text files and in the names of folders."""
INDEX = re.compile(r"__index_level_\d+__")
"""The unnamed index that pandas writes."""
BLOCK = 1 << 23
"""Bytes of text that become one piece, about."""
HEAD = 1 << 16
"""Characters in which the first line is looked for separators."""
QUOTED = re.compile(r'(?<![^,\t;|\r\n])"(?:[^"]|"")*"')
"""A field in quotes, which may hold separators and ends of lines."""
CRITEO = ("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27)))
"""The columns of Criteo's files, which carry no names."""


def find_tables(where: str | PathLike[str]) -> list[Path]:
    """The files behind a path: one file, a folder's (with those below), or a pattern's; sorted."""
    path = Path(where)
    roots = [path] if path.exists() else list(map(Path, glob.glob(fspath(where), recursive=True)))
    files = {
        file
        for root in roots
        for file in ([root] if root.is_file() else root.rglob("*"))
        if file.is_file()
        and file.name.lower().endswith(ENDINGS)
        and (file == path or not any(map(_is_hidden, (file.name, *file.relative_to(root).parts))))
    }
    if not files:
        raise InvalidInput(
            f"Expected tables at {fspath(where)} (got none). Try a file, a folder or a quoted "
            f"pattern; endings: {', '.join(ENDINGS)}."
        )
    return sorted(files)


def _is_hidden(name: str) -> bool:
    # Spark leaves _metadata, and unfinished files in a folder _temporary; _day=1 is a partition.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


class TableFile:
    """One file of a table: its columns, and its pieces."""

    def __init__(self, path: Path) -> None:
        self.path, self.separator, self.is_criteo, self.head_lines = path, ",", False, 0
        if path.stat().st_size == 0:
            raise InvalidFile(
                f"Expected a table in {path} (got an empty file). Try writing it again."
            )
        with self._checked():
            schema = self._schema()
        names = [name or f"Unnamed: {i}" for i, name in enumerate(schema.names)]
        check_different(names, fspath(path), ", or adding a line of names if there is none")
        self.stored = dict(zip(names, schema.names, strict=True))
        """Column → its name in the file."""
        kinds = zip(names, map(kind_of, schema.types), strict=True)
        self.kinds = {name: kind for name, kind in kinds if not INDEX.fullmatch(name)}
        """Column → "number" or "text"; "other" cannot be used."""
        self.folder_values: dict[str, str | None] = {}
        """Columns in the names of the folders, country=DE/part.parquet, with their value here."""
        self._folder: Path | None = None

    def _schema(self) -> Any:
        pa, name = arrow(), self.path.name.lower()
        if name.endswith(PARQUET):
            return arrow("parquet").read_schema(self.path)
        if name.endswith(ARROW):
            return arrow("ipc").open_file(pa.memory_map(fspath(self.path))).schema
        opened = gzip.open if name.endswith(".gz") else open
        with opened(self.path, "rb") as file, TextIOWrapper(file, "utf-8-sig", newline="") as text:
            start = text.read(BLOCK)
        line, *_ = re.split("[\r\n]", QUOTED.sub("", start[:HEAD]).lstrip("\r\n"), maxsplit=1)
        fields = line.split("\t")
        self.is_criteo = len(fields) == len(CRITEO) and fields[0] in ("0", "1")
        signs = "\t" if self.is_criteo or ".tsv" in name else ",\t;|"
        self.separator = next((sign for sign in signs if sign in line), ",")
        names = list(CRITEO) if self.is_criteo else self._names(start)
        # All columns are text: a survey of all rows decides which are numbers.
        return pa.schema([(n, pa.string()) for n in names])

    def _names(self, start: str) -> list[str]:
        """The names in the first line that is not empty; in quotes it may be several lines."""
        reader = csv.reader(StringIO(start, newline=""), delimiter=self.separator, strict=True)
        try:
            names = next((fields for fields in reader if fields), [])
        except csv.Error as error:
            raise InvalidFile(
                f"Expected a line of column names in {self.path} (got one that cannot be read: "
                f"{error}). Try correcting its quotation marks."
            ) from error
        if not names:
            raise InvalidFile(
                f"Expected a line of column names in {self.path} (got none). "
                "Try writing the table again."
            )
        self.head_lines = reader.line_num
        return [re.sub(r"\s*[\r\n]\s*", " ", name.strip()) for name in names]

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """A context in which errors of Arrow and of unpacking name the file."""
        try:
            yield
        except GreedyPigError:  # A full disk is no damaged file.
            raise
        except UnicodeDecodeError as error:
            raise InvalidFile(
                f"Expected text in UTF-8 in {self.path} (got other bytes). Try saving it as UTF-8."
            ) from error
        except (arrow().ArrowException, OSError, EOFError, zlib.error) as error:
            raise InvalidFile(
                f"Expected a whole file at {self.path} (got one that is cut off or damaged: "
                f"{first_line(error)}). Try writing it again, or leave it out."
            ) from error

    def converted(self, folder: Path) -> TableFile:
        """The file as Parquet in this folder, converted unless it is Parquet or that was done."""
        if self.path.name.lower().endswith(PARQUET):
            return self
        folder.mkdir(parents=True, exist_ok=True)
        file = copy(self)
        file._folder = folder
        vars(file).pop("_parquet", None)
        _ = file._parquet
        return file

    @cached_property
    def _parquet(self) -> tuple[Path, Any]:
        """The Parquet file and its metadata."""
        path = self.path
        if not path.name.lower().endswith(PARQUET):
            if self._folder is None:
                self._temporary = TemporaryDirectory(prefix="greedypig-")
                self._folder = Path(self._temporary.name)
            identity = sha256(fspath(path.absolute()).encode()).hexdigest()
            path = self._folder / f"{identity[:16]}.parquet"
            if not path.exists():
                with self._checked():
                    write_whole(path, self._write)
        with self._checked():
            return path, arrow("parquet").ParquetFile(path).metadata

    def _write(self, file: IO[bytes]) -> None:
        """Write the columns that can be used as Parquet, a row group for each record batch."""
        pa, parquet = arrow(), arrow("parquet")
        names = [name for name in self.stored if self.kinds.get(name, "other") != "other"]
        is_arrow = self.path.name.lower().endswith(ARROW)
        writer = None
        for batch in self._arrow_batches() if is_arrow else self._text_batches():
            rows = pa.Table.from_batches([batch]).rename_columns(list(self.stored)).select(names)
            for i, column in enumerate(rows.columns):
                if is_arrow and kind_of(column.type) == "text":
                    rows = rows.set_column(i, names[i], as_texts(column).dictionary_decode())
            writer = writer or parquet.ParquetWriter(file, rows.schema)
            writer.write_table(rows)
        if writer is None:  # Nothing but the line of names.
            writer = parquet.ParquetWriter(file, pa.schema([(name, pa.string()) for name in names]))
        writer.close()

    def _arrow_batches(self) -> Iterator[Any]:
        reader = arrow("ipc").open_file(arrow().memory_map(fspath(self.path)))
        return map(reader.get_batch, range(reader.num_record_batches))

    def _text_batches(self) -> Iterator[Any]:
        pa, reader, names, quotes = arrow(), arrow("csv"), list(self.stored), not self.is_criteo
        read = reader.ReadOptions(column_names=names, skip_rows=self.head_lines, block_size=BLOCK)
        parse = reader.ParseOptions(
            delimiter=self.separator,
            newlines_in_values=quotes,
            quote_char='"' if quotes else False,
        )
        convert = reader.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            null_values=MISSING,
        )
        try:
            yield from reader.open_csv(self.path, read, parse, convert)
        except pa.ArrowInvalid as error:
            # The second is said of a line of names without an end.
            if not re.search("Empty CSV|Could not skip initial", str(error)):
                raise InvalidFile(
                    f"Expected lines of {len(names)} columns in {self.path} (got "
                    f"{first_line(error)}). Try correcting the file."
                ) from error

    @property
    def pieces(self) -> int:
        """How many row groups there are."""
        return int(self._parquet[1].num_row_groups)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self._parquet[1].num_rows)

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """A pyarrow Table of these columns, those of the folders' names included."""
        pa, (path, metadata) = arrow(), self._parquet
        stored = self.stored if path == self.path else {name: name for name in self.stored}
        own = [c for c in columns if c not in self.folder_values]
        # At least one column is read, for the number of rows.
        names = [stored[c] for c in own or list(stored)[:1]]
        # Texts are read dictionary-encoded, as they are stored: far quicker to encode.
        texts = [stored[c] for c in own if self.kinds[c] == "text"]
        with self._checked():
            file = arrow("parquet").ParquetFile(path, metadata=metadata, read_dictionary=texts)
            rows = file.read_row_group(piece, columns=names).select(names)
        arrays = dict(zip(own, rows.columns, strict=False))
        for name, value in self.folder_values.items():
            arrays[name] = pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
        return pa.table([arrays[c] for c in columns], names=list(columns))


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
        """Runs of rows that can be read alone: a file, and which of its row groups."""
        return tuple((file, i) for file in self.files for i in range(file.pieces))

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    def converted(self, folder: Path) -> Table:
        """The table with text and Arrow files as Parquet in this folder; those there are used."""
        return replace(self, files=tuple(file.converted(folder) for file in self.files))

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


def open_table(*where: str | PathLike[str], keep: Collection[str] = ()) -> Table:
    """Open files, folders or patterns; text that looks like Criteo's is taken as such.

    Columns may stand in another order in each file, but must be the same; a column that is a
    number in one file and text in another is taken as text. Folders of the form name=value, as
    Hive and Spark write them, are columns, too, if they tell files apart or are among `keep`.
    """
    paths = dict.fromkeys(path for one in where for path in find_tables(one))
    if not paths:
        raise InvalidInput("Expected at least one table (got none).")
    files = list(map(TableFile, paths))
    _add_folder_values(files, keep)
    kinds = dict(files[0].kinds)
    for file in files[1:]:
        if different := sorted(set(file.kinds) ^ set(kinds)):
            raise InvalidInput(
                f"Expected the columns of {files[0].path} in {file.path} too (got "
                f"{quoted(different)} in one of them alone). Try tables of the same columns."
            )
        for name, kind in file.kinds.items():
            if kind != kinds[name]:
                kinds[name] = "text" if {kind, kinds[name]} == {"text", "number"} else "other"
    source = fspath(where[0]) + (f" and {len(where) - 1} more" if len(where) > 1 else "")
    return Table(source, tuple(files), kinds)


def _add_folder_values(files: Sequence[TableFile], keep: Collection[str]) -> None:
    """Give each file the columns in its folders' names that differ between files or are kept."""
    of_files = []
    for file in files:
        pairs = [folder.split("=", 1) for folder in file.path.parent.parts if "=" in folder]
        values = {unquote(name): unquote(value) for name, value in pairs}
        # A column of the file's own goes before.
        of_files.append({n: v for n, v in values.items() if n and n not in file.kinds})
    different = Counter(name for name, _ in {one for values in of_files for one in values.items()})
    for file, values in zip(files, of_files, strict=True):
        file.folder_values = {
            name: None if value in MISSING else value
            for name, value in values.items()
            if different[name] > 1 or name in keep
        }
        # As text, like a CSV's: a survey of all files decides which are numbers.
        file.kinds |= dict.fromkeys(file.folder_values, "text")
