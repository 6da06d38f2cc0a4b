"""Files of tables: what they hold, and reading them one piece at a time.

A piece is what can be read alone: a row group of Parquet, a record batch of Arrow, a block of lines
of text. Opening a file learns its columns and its pieces and reads no more than that takes.
"""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import InvalidFile, InvalidInput
from .arrow import arrow
from .gzip_text import BLOCK, Block, Gzip, Plain, blocks

TEXT = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = (*PARQUET, *ARROW, *TEXT, *(f"{e}.gz" for e in TEXT))
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A")
"""Texts that mean nothing is there."""
INDEX = re.compile(r"__index_level_\d+__")
CRITEO = ("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27)))
"""The columns of Criteo's files, which carry no names."""


@dataclass(frozen=True)
class Layout:
    """How text files are written; None is found out from the first line."""

    separator: str | None = None
    names: tuple[str, ...] | None = None
    """The columns' names, of files without a line of names."""
    quotes: bool = True
    decimal: str = "."
    """What stands for the point of a number."""


class TableFile(Protocol):
    """One file of a table."""

    path: Path

    @property
    def kinds(self) -> dict[str, str]:
        """Column → "number" or "text"; "other" cannot be used."""

    @property
    def pieces(self) -> int:
        """How many pieces there are."""

    def bytes_of(self, piece: int) -> int:
        """About how large a piece is."""

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """A pyarrow Table of these columns."""


def find_tables(where: str | PathLike[str]) -> list[Path]:
    """The files behind a path: one file, a folder's (with those below), or a pattern's; sorted."""
    text = fspath(where)
    path = Path(text)
    if path.is_dir():
        found = _below(path)
    elif path.exists():
        if not _is_table(path):
            raise InvalidInput(
                f"Expected a table that ends in {', '.join(ENDINGS)} (got {path.name})."
            )
        return [path]
    else:
        matches = [p for p in map(Path, glob.glob(text, recursive=True)) if not _is_hidden(p.name)]
        found = [p for p in matches if p.is_file()]
        if not found:
            found = [p for folder in matches for p in _below(folder)]
    if not found:
        raise InvalidInput(
            f"Expected tables at {text} (got none). Try a file, a folder or a quoted pattern; "
            f"endings: {', '.join(ENDINGS)}."
        )
    return sorted(set(found))


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


def open_file(path: Path, layout: Layout | None = None) -> TableFile:
    """Open one file by its ending."""
    name = path.name.lower()
    if path.stat().st_size == 0:
        raise InvalidFile(f"Expected a table in {path} (got an empty file). Try leaving it out.")
    if name.endswith(PARQUET):
        return ParquetTable(path)
    if name.endswith(ARROW):
        return ArrowTable(path)
    return TextTable(path, layout or Layout())


def kind_of(of: Any) -> str:
    """What a column of this Arrow type is to us."""
    types = arrow("types")
    if types.is_dictionary(of):
        return kind_of(of.value_type)
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return "text"
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal,
               types.is_temporal)  # fmt: skip
    if any(test(of) for test in numeric) and not types.is_interval(of):
        return "number"
    return "number" if types.is_null(of) else "other"


def _kinds(names: Sequence[str], types: Sequence[Any]) -> dict[str, str]:
    """Of all columns but the index that pandas writes beside them without a name."""
    found = zip(names, types, strict=True)
    return {name: kind_of(of) for name, of in found if not INDEX.fullmatch(name)}


class ParquetTable:
    """Pieces are row groups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = self._open()
        self._metadata = file.metadata
        stored = file.schema_arrow
        names = _named(path, stored.names)
        self._stored = dict(zip(names, stored.names, strict=True))
        self.kinds = _kinds(names, stored.types)

    @property
    def pieces(self) -> int:
        """Row groups."""
        return int(self._metadata.num_row_groups)

    def bytes_of(self, piece: int) -> int:
        """As the file says."""
        return int(self._metadata.row_group(piece).total_byte_size)

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """Texts come as they are stored, each different one once: far quicker to look up."""
        texts = [self._stored[c] for c in columns if self.kinds[c] == "text"]
        stored = [self._stored[c] for c in columns]
        try:
            file = self._open(metadata=self._metadata, read_dictionary=texts)
            read = file.read_row_group(piece, columns=stored).select(stored)
            return read.rename_columns(list(columns))
        except (arrow().ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _open(self, **more: Any) -> Any:
        try:
            return arrow("parquet").ParquetFile(self.path, **more)
        except (arrow().ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InvalidFile:
        return _damaged(self.path, "Parquet", error)


class ArrowTable:
    """Pieces are record batches of an IPC file (Feather's second version is one)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reader() as file:
            schema = file.schema
            self._bytes = [file.get_batch(i).nbytes for i in range(file.num_record_batches)]
        self._names = _named(path, schema.names)
        self.kinds = _kinds(self._names, schema.types)

    @property
    def pieces(self) -> int:
        """Record batches."""
        return len(self._bytes)

    def bytes_of(self, piece: int) -> int:
        """As in memory."""
        return int(self._bytes[piece])

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """Mapped from the file, not copied."""
        try:
            with self._reader() as file:
                read = arrow().Table.from_batches([file.get_batch(piece)])
                chosen = read.rename_columns(self._names).select(list(columns))
                return arrow().table([_viewless(c) for c in chosen.columns], names=list(columns))
        except (arrow().ArrowException, OSError) as error:
            raise _damaged(self.path, "Arrow", error) from error

    def _reader(self) -> Any:
        pa = arrow()
        try:
            return arrow("ipc").open_file(pa.memory_map(fspath(self.path)))
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, "Arrow", error) from error


class TextTable:
    """Pieces are blocks of lines. Everything is read as text: what is a number is seen later."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        packed = path.name.lower().endswith(".gz")
        self._source = Gzip(path) if packed else Plain(path)
        first = self._first_line()
        if layout.names is None and layout.separator is None and is_criteo(first):
            layout = criteo_layout()
        self.separator = layout.separator or _separator(path, first)
        self.quotes, self.decimal = layout.quotes, layout.decimal
        self._headed = layout.names is None
        names = _split(first, self.separator) if layout.names is None else list(layout.names)
        names = _named(path, names)
        self._names = names
        self.kinds = dict.fromkeys(names, "text")
        width = len(_split(first, self.separator))
        if width != len(names):
            raise InvalidInput(
                f"Expected {len(names)} columns in {path} (got {width} in its first line)."
            )

    @cached_property
    def _blocks(self) -> list[Block]:
        return list(blocks(self._source, quotes=self.quotes, size=BLOCK))

    @property
    def pieces(self) -> int:
        """Blocks of lines."""
        return len(self._blocks)

    def bytes_of(self, piece: int) -> int:
        """As text."""
        return self._blocks[piece].length

    def read(self, piece: int, columns: Sequence[str]) -> Any:
        """Parse one block."""
        pa, csv = arrow(), arrow("csv")
        raw = self._source.read(self._blocks[piece])
        skip = 1 if self._headed and piece == 0 else 0
        try:
            return self._pointed(csv.read_csv(
                io.BytesIO(raw),
                read_options=csv.ReadOptions(column_names=self._names, skip_rows=skip,
                                             block_size=max(len(raw), 1)),
                parse_options=csv.ParseOptions(delimiter=self.separator, newlines_in_values=True,
                                               quote_char='"' if self.quotes else False),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True,
                    quoted_strings_can_be_null=True, null_values=list(MISSING),
                    include_columns=list(columns)),
            ))  # fmt: skip
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # Nothing but the line of names.
                return pa.table({c: pa.array([], pa.string()) for c in columns})
            said = str(error).splitlines()[0][:200]
            raise InvalidFile(
                f"Expected lines of {len(self._names)} columns in {self.path} (got {said}; rows "
                f"counted from byte {self._blocks[piece].start:,}). Try another separator, or "
                "mending the file."
            ) from error

    def _pointed(self, table: Any) -> Any:
        """1,5 as 1.5 where that is asked for; texts that are no such numbers stay."""
        if self.decimal == ".":
            return table
        pattern = rf"^(\s*[+-]?\d*){re.escape(self.decimal)}(\d+([eE][+-]?\d+)?\s*)$"
        changed = [
            arrow("compute").replace_substring_regex(column, pattern, r"\1.\2")
            for column in table.columns
        ]
        return arrow().table(changed, names=table.column_names)

    def _first_line(self) -> str:
        raw = b""
        for chunk in self._source.stream(1 << 16):
            raw += chunk
            if b"\n" in chunk or len(raw) > BLOCK:
                break
        raw = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidFile(
                f"Expected text in UTF-8 in {self.path} (got other bytes). Try converting it."
            ) from error


def is_criteo(line: str) -> bool:
    """Is this a line of Criteo's files: a label of 0 or 1 before 39 fields, tabs between them?"""
    fields = line.split("\t")
    return len(fields) == len(CRITEO) and fields[0] in ("0", "1")


def criteo_layout() -> Layout:
    """Criteo's files as published: tabs, no names, nothing quoted."""
    return Layout("\t", CRITEO, quotes=False)


def _split(line: str, separator: str) -> list[str]:
    import csv

    return [field.strip() for field in next(csv.reader([line], delimiter=separator), [])]


def _separator(path: Path, line: str) -> str:
    if ".tsv" in path.name.lower():
        return "\t"
    if "," in line:
        return ","
    return next((s for s in ("\t", ";", "|") if s in line), ",")


def _named(path: Path, names: Sequence[str]) -> list[str]:
    """Names for all columns: one without is called as pandas calls it, by its place."""
    made = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    twice = sorted({name for name in made if made.count(name) > 1})
    if twice:
        raise InvalidInput(
            f"Expected columns of different names in {path} (got {', '.join(map(repr, twice))} "
            "more than once). Try other names in its first line, or --names if that holds none."
        )
    return made


def _viewless(column: Any) -> Any:
    """Texts as strings rather than views, as polars writes them: Arrow computes little on views."""
    pa, types = arrow(), arrow("types")
    if types.is_string_view(column.type):
        return column.cast(pa.string())
    if not (types.is_dictionary(column.type) and types.is_string_view(column.type.value_type)):
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.string()))


def _damaged(path: Path, kind: str, error: Exception) -> InvalidFile:
    said = (str(error).strip().splitlines() or [""])[0][:160]
    return InvalidFile(
        f"Expected a whole {kind} file at {path} (got one that is cut off or damaged: {said}). "
        "Try writing it again, or leave it out."
    )
