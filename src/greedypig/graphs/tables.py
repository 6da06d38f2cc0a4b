"""Graphs from tables: an edge list beside a table of nodes, CSV or Parquet, and OGB's folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import Argument, InvalidFile, MissingPackage, first_line

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")
LABELS = ("label", "y", "class")
IDS = ("id", "node", "node_id", "name")
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def read_tables(edges: Path, nodes: Path, label: str | None = None) -> dict[str, Any]:
    """The arguments of `make_graph` from an edge list and a table of nodes.

    The edge list's first two columns are the ends (a column `weight` is its weight). Of the nodes'
    columns `label` (else label, y or class) is the class, `split` says train, val or test, `id`
    names the node as the edge list does, and all others are features.
    """
    table = _table(nodes)
    free, content = list(table.column_names), dict[str, Any]()
    kind = label or next((name for name in free if name.lower() in LABELS), None)
    if kind is not None:
        _remove(kind, free, nodes)
        content["y"], content["classes"] = _classes(table[kind])
    if "split" in free:
        _remove("split", free, nodes)
        content |= _split(_words(table["split"]), nodes)
    key = next((name for name in free if name.lower() in IDS), None)
    if key is not None:
        _remove(key, free, nodes)
    if not free:
        raise InvalidFile(f"Expected columns of features in {nodes.name} (got none).")
    content["x"] = _numbers(table, free, nodes)
    return content | _ends(edges, None if key is None else _words(table[key]))


def _remove(name: str, names: list[str], path: Path) -> None:
    if name not in names:
        raise InvalidFile(
            f"Expected a column {name!r} in {path.name} (got {', '.join(names[:12])})."
        )
    names.remove(name)


def _ends(path: Path, ids: list[str] | None) -> dict[str, Any]:
    """The ends of every edge as numbers of nodes, the weights if there are some, and names."""
    table = _table(path, words=0 if ids is None else 2)
    if len(table.column_names) < 2:
        raise InvalidFile(f"Expected two columns in {path.name}, the ends of each edge (got one).")
    ends, content = table.column_names[:2], dict[str, Any]()
    if "weight" in table.column_names[2:]:
        content["weight"] = _numbers(table, ["weight"], path)
    if ids is None:
        return content | {"edges": _numbers(table, ends, path, "int64").T}
    numbers = {name: i for i, name in enumerate(ids)}
    if len(numbers) != len(ids):
        raise InvalidFile("Expected every node's id once (got some twice).")
    words = [_words(table[name]) for name in ends]
    unknown = [word for side in words for word in side if word not in numbers]
    if unknown:
        raise InvalidFile(
            f"Expected the ids of nodes in {path.name} (got {unknown[0][:40]!r}, which no node "
            f"has; {len(unknown):,} such ends)."
        )
    if ids != [str(i) for i in range(len(ids))]:
        content["names"] = ids
    return content | {"edges": np.array([[numbers[word] for word in side] for side in words])}


def _classes(column: Any) -> tuple[NDArray[Any], list[str] | None]:
    """Classes by number where all are numbers, else by name in the order of the alphabet."""
    from pyarrow import types

    if types.is_integer(column.type) or types.is_floating(column.type):
        return column.cast("float64").fill_null(-1).to_numpy(), None
    words = _words(column)
    names = sorted(set(words) - {""})
    places = {name: i for i, name in enumerate(names)}
    return np.array([places.get(word, -1) for word in words]), names


def _split(words: Sequence[str], path: Path) -> dict[str, NDArray[np.int64]]:
    parts = np.array([SPLITS.get(word.lower(), word) for word in words])
    unknown = sorted(set(parts.tolist()) - {*SPLITS.values(), ""})
    if unknown:
        raise InvalidFile(
            f"Expected train, val or test in the column split of {path.name} "
            f"(got {unknown[0][:40]!r})."
        )
    return {part: np.flatnonzero(parts == part) for part in set(parts.tolist()) - {""}}


def read_ogb(path: Path) -> dict[str, Any]:
    """raw/edge, node-feat and node-label; split/SCHEME/train, valid and test; all without heads."""

    def numbers(folder: Path, stem: str, kind: str = "int64") -> NDArray[Any]:
        file = table_in(folder, stem)
        if file is None:
            raise InvalidFile(f"Expected {stem}.csv.gz in {folder} (there is none).")
        table = _table(file)
        return _numbers(table, table.column_names, file, kind)

    raw, schemes = path / "raw", sorted(p for p in (path / "split").glob("*") if p.is_dir())
    content = {"x": numbers(raw, "node-feat", "float64"), "edges": numbers(raw, "edge").T}
    content["y"] = numbers(raw, "node-label", "float64")  # NaN where a node has none.
    if schemes:
        for part, stem in (("train", "train"), ("val", "valid"), ("test", "test")):
            content[part] = numbers(schemes[0], stem)[:, 0]
    return content


def table_in(folder: Path, stem: str) -> Path | None:
    """The table of this name in a folder, whatever its ending."""
    files = (folder / f"{stem}{ending}" for ending in ENDINGS)
    return next((file for file in files if file.is_file()), None)


def _table(path: Path, words: int = 0) -> Any:
    """The table in a file, its first so many columns as words.

    Columns without heads, where the first row is of numbers, are called f0, f1, …
    """
    try:
        import pyarrow
        from pyarrow import csv, parquet
    except ImportError as error:
        raise MissingPackage(
            "Expected the package pyarrow for tables of nodes and edges (it is not installed). "
            'Try pip install "greedypig[tables]", or a graph as .npz.'
        ) from error
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing there"
        raise InvalidFile(f"Expected a table at {path} (got {got}). Try its full path.")
    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            parse = csv.ParseOptions(delimiter="\t" if ".tsv" in path.name else ",")
            table = csv.read_csv(path, parse_options=parse)
            bare = all(map(_is_number, table.column_names))
            if bare or words:
                read = csv.ReadOptions(autogenerate_column_names=bare)
                names = [f"f{i}" for i in range(words)] if bare else table.column_names[:words]
                convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
                table = csv.read_csv(path, read, parse, convert)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InvalidFile(
            f"Expected a whole table in {path.name} (got: {first_line(error)})."
        ) from error
    if len(set(table.column_names)) != len(table.column_names):
        raise InvalidFile(f"Expected columns of different names in {path.name} (got repeats).")
    return table


def _numbers(table: Any, names: Sequence[str], path: Path, kind: str = "float64") -> NDArray[Any]:
    """(rows, columns) of numbers."""
    columns = []
    for name in names:
        try:
            columns.append(table[name].cast(kind).to_numpy())
            filled = not table[name].null_count
        except (ValueError, TypeError, NotImplementedError):  # Words, fractions, dates.
            filled = False
        if not filled:
            raise InvalidFile(
                f"Expected a number ({kind}) in every row of column {name!r} in {path.name} "
                f"(got {table[name].type}).",
                advice=("Try ", Argument("label", name), " if it holds the classes."),
            )
    return np.stack(columns, 1)


def _words(column: Any) -> list[str]:
    """A column as text without surrounding spaces."""
    return ["" if word is None else str(word).strip() for word in column.to_pylist()]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
