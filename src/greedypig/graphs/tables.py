"""Node and edge tables from CSV, with or without headings, and Parquet: columns by name."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidFile, MissingPackage, first_line

TEXT = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
ENDINGS = (*TEXT, *(f"{ending}.gz" for ending in TEXT), *PARQUET)
LABELS = ("label", "y", "class")
IDS = ("id", "node", "node_id", "name")
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
ABSENT = ("", "nan", "none")


class Table:
    """A file by columns; those of a CSV file without headings are called 0, 1, …"""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
        except ImportError as error:
            raise MissingPackage(
                "Expected the package pyarrow for tables of nodes and edges (it is not installed). "
                'Try pip install "greedypig[tables]", or a graph as .npz.'
            ) from error
        self.path, self._arrow = path, pyarrow
        self._parquet = path.suffix in PARQUET
        self.names = list(self._table.column_names) if self._parquet else self._csv_names()
        if len(set(self.names)) != len(self.names):
            raise InvalidFile(f"Expected columns of different names in {path.name} (got repeats).")

    def numbers(self, names: Sequence[str] | None = None) -> NDArray[np.float64]:
        """(rows, columns) of numbers; of all columns where no names are given."""
        wanted = list(self.names if names is None else names)
        table = self._read(wanted, self._arrow.float64())
        for name in wanted:
            if table.column(name).null_count:
                raise InvalidFile(
                    f"Expected a number in every row of column {name!r} in {self.path.name} "
                    "(got an empty cell)."
                )
        return np.stack([table.column(name).to_numpy() for name in wanted], 1)

    def words(self, name: str) -> NDArray[Any]:
        """A column as text without surrounding spaces."""
        column = self._read([name], self._arrow.string()).column(name)
        return np.char.strip(np.asarray([word or "" for word in column.to_pylist()], dtype=str))

    def _read(self, names: list[str], kind: Any) -> Any:
        from pyarrow import csv as reader

        try:
            if self._parquet:
                schema = self._arrow.schema([(name, kind) for name in names])
                return self._table.select(names).cast(schema)
            return reader.read_csv(
                self.path,
                read_options=reader.ReadOptions(
                    column_names=self.names, skip_rows=self._skipped, use_threads=False
                ),
                parse_options=reader.ParseOptions(delimiter=self._delimiter),
                convert_options=reader.ConvertOptions(
                    include_columns=names, column_types=dict.fromkeys(names, kind)
                ),
            )
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            raise InvalidFile(
                f"Expected a whole table in {self.path.name} (got: {first_line(error)})."
            ) from error

    def _csv_names(self) -> list[str]:
        """The headings of the first line; the delimiter and the lines to skip with it."""
        opener = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opener(self.path, "rt", encoding="utf-8-sig") as file:
                head = file.readline().rstrip("\r\n")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            if isinstance(error, FileNotFoundError | IsADirectoryError):
                raise
            raise InvalidFile(f"Expected text in {self.path.name} (got {error}).") from error
        self._delimiter = max(",;\t", key=head.count) if any(c in head for c in ",;\t") else " "
        cells = [cell.strip() for cell in next(csv.reader([head], delimiter=self._delimiter), [])]
        if not any(cells):
            raise InvalidFile(f"Expected a table in {self.path.name} (got an empty file).")
        self._skipped = 0 if all(map(_is_number, cells)) else 1
        return cells if self._skipped else [str(i) for i in range(len(cells))]

    @cached_property
    def _table(self) -> Any:
        from pyarrow import parquet

        try:
            return parquet.read_table(self.path)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise InvalidFile(
                f"Expected a whole Parquet file (got {self.path.name}: {error})."
            ) from error


def read_tables(
    edges: Path, nodes: Path, labels: Path | None = None, *, label: str | None = None
) -> dict[str, Any]:
    """The arguments of `make_graph` from an edge list, a table of nodes and perhaps one of labels.

    The edge list's first two columns are the ends (a column `weight` is its weight). Of the nodes'
    columns `label` (else label, y or class) is the class, `split` says train, val or test, `id`
    names the node as the edge list does, and all others are features.
    """
    content = _node_columns(Table(nodes), label, optional=labels is not None)
    if labels is not None:
        second = _node_columns(Table(labels), label, only_labels=True)
        if not np.array_equal(content.get("ids", []), second.pop("ids", content.get("ids", []))):
            raise InvalidFile(
                f"Expected the nodes of {nodes.name} in {labels.name}, in the same order "
                "(got others)."
            )
        content |= {name: part for name, part in second.items() if name != "x"}
    if label is not None and "y" not in content:
        raise InvalidFile(f"Expected a column {label!r} in {(labels or nodes).name} (got none).")
    if "x" not in content:
        raise InvalidFile(f"Expected columns of features in {nodes.name} (got none).")
    ids = content.pop("ids", None)
    if ids is not None and not np.array_equal(ids, np.arange(len(ids)).astype(ids.dtype)):
        content["names"] = ids.tolist()
    return content | _edge_columns(Table(edges), ids)


def _node_columns(
    table: Table, label: str | None, *, optional: bool = False, only_labels: bool = False
) -> dict[str, Any]:
    """ids, y and classes, split and x of one table, as far as it has them."""
    free = list(table.names)
    content: dict[str, Any] = {}
    if label is not None and label not in free and not optional:
        raise InvalidFile(
            f"Expected a column {label!r} in {table.path.name} (got {', '.join(free[:12])})."
        )
    key = next((name for name in free if name.lower() in IDS and name != label), None)
    if key is not None:
        free.remove(key)
        content["ids"] = table.words(key)
    known = [name for name in free if name.lower() in LABELS]
    if only_labels and not known and len(free) == 1:
        known = free
    chosen = known[:1] if label is None else [name for name in free if name == label]
    for name in list(chosen):
        free.remove(name)
        content["y"], content["classes"] = _classes(table.words(name))
    if "split" in free:
        free.remove("split")
        content |= _split(table.words("split"), table.path)
    if free and not only_labels:
        try:
            content["x"] = table.numbers(free)
        except InvalidFile as error:
            if "y" in content:
                raise
            raise InvalidFile(f"{error} Try label= if a column holds the classes.") from error
    return content


def _edge_columns(table: Table, ids: NDArray[Any] | None) -> dict[str, Any]:
    """The ends of every edge as numbers of nodes, and the weights if there are some."""
    if len(table.names) < 2:
        raise InvalidFile(
            f"Expected two columns in {table.path.name}, the ends of each edge "
            f"(got {len(table.names)})."
        )
    ends = table.names[:2]
    content: dict[str, Any] = {}
    known = next((name for name in table.names[2:] if name.lower() == "weight"), None)
    if known is not None:
        content["weight"] = table.numbers([known])[:, 0]
    if ids is None:
        return content | {"edges": table.numbers(ends).T}
    order = np.argsort(ids)
    ordered = ids[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise InvalidFile("Expected every node's id once (got some twice).")
    words = np.stack([table.words(name) for name in ends])
    at = np.minimum(np.searchsorted(ordered, words), len(ids) - 1)
    unknown = ordered[at] != words
    if unknown.any():
        raise InvalidFile(
            f"Expected the ids of nodes in {table.path.name} (got {str(words[unknown][0])[:40]!r}, "
            f"which no node has; {int(unknown.sum()):,} such ends)."
        )
    return content | {"edges": order[at]}


def _classes(words: NDArray[Any]) -> tuple[NDArray[np.int64], list[str] | None]:
    """Classes by number where all are numbers, else by name in the order of the alphabet."""
    absent = np.isin(np.char.lower(words), (*ABSENT, "-1"))
    y = np.full(len(words), -1, dtype=np.int64)
    if all(_is_number(w) and float(w).is_integer() for w in np.unique(words[~absent])):
        y[~absent] = words[~absent].astype(np.float64).astype(np.int64)
        return y, None
    names, places = np.unique(words[~absent], return_inverse=True)
    y[~absent] = places
    return y, names.tolist()


def _split(words: NDArray[Any], path: Path) -> dict[str, NDArray[np.int64]]:
    words = np.char.lower(words)
    unknown = set(words.tolist()) - set(SPLITS) - set(ABSENT)
    if unknown:
        raise InvalidFile(
            f"Expected train, val or test in the column split of {path.name} "
            f"(got {sorted(unknown)[0][:40]!r})."
        )
    parts = np.asarray([SPLITS.get(word, "") for word in words.tolist()])
    ids = {part: np.flatnonzero(parts == part) for part in ("train", "val", "test")}
    return {part: own for part, own in ids.items() if len(own)}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
