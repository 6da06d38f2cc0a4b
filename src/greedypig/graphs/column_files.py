"""Node and edge lists from CSV (NumPy alone) or Parquet (pyarrow): columns by name."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidFile, MissingPackage

TEXT = (".csv", ".tsv", ".txt")
ENDINGS = (*TEXT, *(f"{e}.gz" for e in TEXT), ".parquet", ".pq")
LABELS = ("label", "y", "class")
IDS = ("id", "node", "node_id", "name")
SPLIT = "split"


class Columns(Protocol):
    """A table by columns."""

    names: tuple[str, ...]

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """(rows, columns) of numbers."""

    def words(self, name: str) -> NDArray[Any]:
        """A column as text."""


def open_columns(path: Path) -> Columns:
    """The table in a file."""
    return Parquet(path) if path.suffix in (".parquet", ".pq") else Csv(path)


class Csv:
    """A text file with one line of headings; without one, columns are called 0, 1, …"""

    def __init__(self, path: Path) -> None:
        self.path = path
        head = self._head()
        self.delimiter = max(",;\t", key=head.count) if any(c in head for c in ",;\t") else None
        cells = next(csv.reader([head], delimiter=self.delimiter or " "), [])
        cells = [cell.strip() for cell in cells if self.delimiter or cell]
        if not cells:
            raise InvalidFile(f"Expected a table in {path.name} (got an empty file).")
        self.skip = 0 if all(_is_number(cell) for cell in cells) else 1
        self.names = tuple(cells) if self.skip else tuple(map(str, range(len(cells))))
        if len(set(self.names)) != len(self.names):
            raise InvalidFile(f"Expected columns of different names in {path.name} (got repeats).")

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """(rows, columns) of numbers."""
        return self._read(names, np.float64)

    def words(self, name: str) -> NDArray[Any]:
        """A column as text."""
        return self._read([name], np.dtype("U"))[:, 0]

    def _read(self, names: Sequence[str], dtype: Any) -> NDArray[Any]:
        places = [self.names.index(name) for name in names]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of files without rows, which are told below.
                found = np.loadtxt(self.path, dtype, delimiter=self.delimiter, comments=None,
                                   skiprows=self.skip, usecols=places, ndmin=2, quotechar='"',
                                   encoding="utf-8")  # fmt: skip
        except (ValueError, EOFError, OSError, UnicodeDecodeError) as error:
            text = str(error).partition(";")[0].rstrip(".")
            raise InvalidFile(
                f"Expected a whole table in {self.path.name} (got: {text})."
            ) from error
        return found

    def _head(self) -> str:
        try:
            with _opened(self.path) as file:
                return file.readline().rstrip("\r\n").removeprefix("\ufeff")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            if isinstance(error, FileNotFoundError | IsADirectoryError):
                raise
            raise InvalidFile(f"Expected text in {self.path.name} (got {error}).") from error


class Parquet:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet as pq
        except ImportError as error:
            raise MissingPackage(
                "Expected the package pyarrow for Parquet files (it is not installed). "
                'Try pip install "greedypig[tables]", or CSV.'
            ) from error
        self.path = path
        try:
            self._table = pq.read_table(path)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise InvalidFile(
                f"Expected a whole Parquet file (got {path.name}: {error})."
            ) from error
        self.names = tuple(self._table.column_names)

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """(rows, columns) of numbers."""
        columns = [self._table.column(name).to_numpy() for name in names]
        try:
            return np.stack([np.asarray(c, dtype=np.float64) for c in columns], 1)
        except (TypeError, ValueError) as error:
            raise InvalidFile(f"Expected numbers in {self.path.name} (got: {error}).") from error

    def words(self, name: str) -> NDArray[Any]:
        """A column as text."""
        return np.asarray([str(v) for v in self._table.column(name).to_pylist()])


def from_columns(
    edges: Path, nodes: Sequence[Path], *, label: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The arguments of `make_graph` from an edge list and one or two tables of nodes.

    The edge list's first two columns are the ends (a column `weight` is its weight). Of the nodes'
    columns `label` (else label, y or class) is the class, `split` says train, val or test, `id`
    names the node as the edge list does, and all others are features.
    """
    told: list[str] = []
    found: dict[str, Any] = {}
    ids: NDArray[Any] | None = None
    features = []
    for path in nodes:
        table = open_columns(path)
        free = list(table.names)
        if label is not None and len(nodes) == 1 and label not in free:
            raise InvalidFile(
                f"Expected a column {label!r} in {path.name} (got {', '.join(free[:12])})."
            )
        key = next((n for n in free if n.lower() in IDS), None)
        if key is not None:
            free.remove(key)
            own = _canonical(table.words(key))
            if ids is not None and not np.array_equal(own, ids):
                raise InvalidFile(
                    f"Expected the nodes of {nodes[0].name} in {path.name}, in the same order "
                    "(got others)."
                )
            ids = own
        wanted = [label] if label is not None else [n for n in free if n.lower() in LABELS][:1]
        if len(nodes) == 2 and path is nodes[1] and not wanted and len(free) == 1:
            wanted = free[:1]
        if wanted and wanted[0] in free:
            free.remove(wanted[0])
            found["y"], found["classes"] = _classes(table.words(wanted[0]))
        if SPLIT in free:
            free.remove(SPLIT)
            found |= _split(table.words(SPLIT), path)
        if free and (path is nodes[0] or len(nodes) == 1):
            features.append(_features(table, free, found))
    if label is not None and "y" not in found:
        raise InvalidFile(f"Expected a column {label!r} in {nodes[-1].name} (got none).")
    if not features:
        raise InvalidFile(f"Expected columns of features in {nodes[0].name} (got none).")
    found["x"] = features[0]
    if ids is not None:
        plain = np.array_equal(ids, np.arange(len(ids)).astype(ids.dtype))
        found["names"] = None if plain else ids.tolist()
    found["edges"], weight = _ends(edges, ids)
    if weight is not None:
        found["weight"] = weight
    return found, told


def _ends(path: Path, ids: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    table = open_columns(path)
    if len(table.names) < 2:
        raise InvalidFile(
            f"Expected two columns in {path.name}, the ends of each edge (got {len(table.names)})."
        )
    known = next((n for n in table.names[2:] if n.lower() == "weight"), None)
    weight = None if known is None else table.numbers([known])[:, 0]
    if ids is None:
        return table.numbers(table.names[:2]).T, weight
    order = np.argsort(ids)
    ordered = ids[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise InvalidFile("Expected every node's id once (got some twice).")
    ends = []
    for name in table.names[:2]:
        words = _canonical(table.words(name))
        at = np.minimum(np.searchsorted(ordered, words), len(ids) - 1)
        unknown = ordered[at] != words
        if unknown.any():
            raise InvalidFile(
                f"Expected the ids of nodes in {path.name} (got {str(words[unknown][0])[:40]!r}, "
                f"which no node has; {int(unknown.sum()):,} such ends)."
            )
        ends.append(order[at])
    return np.stack(ends), weight


def _canonical(words: NDArray[Any]) -> NDArray[Any]:
    return np.char.strip(words.astype(str))


def _features(
    table: Columns, names: Sequence[str], found: Mapping[str, Any]
) -> NDArray[np.float64]:
    try:
        return table.numbers(names)
    except InvalidFile as error:
        if "y" in found:
            raise
        raise InvalidFile(f"{error} Try --label NAME if a column holds the classes.") from error


def _classes(words: NDArray[Any]) -> tuple[NDArray[np.int64], list[str] | None]:
    """Classes by number where all are numbers, else by name in the order of the alphabet."""
    plain = _canonical(words)
    absent = np.isin(np.char.lower(plain), ("", "nan", "none", "-1"))
    numbers = [_is_number(w) and float(w) == int(float(w)) for w in np.unique(plain[~absent])]
    y = np.full(len(plain), -1, dtype=np.int64)
    if all(numbers):
        y[~absent] = plain[~absent].astype(np.float64).astype(np.int64)
        return y, None
    names, y[~absent] = np.unique(plain[~absent], return_inverse=True)
    return y, names.tolist()


def _split(words: NDArray[Any], path: Path) -> dict[str, NDArray[np.int64]]:
    plain = np.char.lower(_canonical(words))
    meant = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
    unknown = set(np.unique(plain).tolist()) - set(meant) - {"", "none", "nan"}
    if unknown:
        raise InvalidFile(
            f"Expected train, val or test in the column split of {path.name} "
            f"(got {sorted(unknown)[0][:40]!r})."
        )
    parts: dict[str, NDArray[np.int64]] = {}
    for part in ("train", "val", "test"):
        ids = np.flatnonzero(np.isin(plain, [w for w, m in meant.items() if m == part]))
        if len(ids):
            parts[part] = ids
    return parts


def _opened(path: Path) -> io.TextIOBase:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
