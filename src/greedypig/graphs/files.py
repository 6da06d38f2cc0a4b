"""Graph file readers: .npz, tensors, tables, planetoid and OGB folders.

Nothing that could run code is loaded: .npz without pickles, torch files with `weights_only`, and
planetoid's pickles by an unpickler that knows arrays and lists alone.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from ..core.errors import GreedyPigError, InvalidFile, InvalidInput
from ..results.files import write_whole
from . import planetoid
from .graph import PARTS, Graph, make_graph
from .tables import ENDINGS, Table, read_tables

KINDS = (
    "graph.npz, tensors as .pt or .safetensors, a table of edges beside one of nodes, a planetoid "
    "or OGB folder"
)
SPARSE = ("x_row", "x_col", "x_val", "x_shape")
ALIASES = {
    "edges": ("edges", "edge_index"),
    "y": ("y",),
    "weight": ("edge_weight",),
    "classes": ("classes",),
    "names": ("names",),
    **{part: (part, f"{part}_mask") for part in PARTS},
}
"""Arguments of `make_graph`, and what the arrays are called in files."""
KNOWN = {"x", *SPARSE, *(name for names in ALIASES.values() for name in names)}
MOST_NUMBERS = 2**31
"""Features become a dense array: a larger one is refused before it is allocated."""
TABLES = {"edges": ("edges", "edge"), "nodes": ("nodes", "node"),
          "features": ("features", "node-feat"), "labels": ("labels", "node-label")}  # fmt: skip


def load_graph(
    path: str | PathLike[str],
    *,
    nodes: str | PathLike[str] | None = None,
    label: str | None = None,
    undirected: bool = True,
    seed: int = 0,
) -> Graph:
    """The graph in a file or folder.

    path: graph.npz (`edges` or `edge_index` (2, m); `x`, or `x_row`, `x_col`, `x_val`, `x_shape`;
        `y`; perhaps `train`, `val`, `test`, `edge_weight`, `classes`, `names`); a dict of tensors
        by those names saved by torch.save or safetensors; an edge list as CSV or Parquet, with
        `nodes`; a folder with edges.csv and nodes.csv (or Parquet, or features.csv and
        labels.csv); a planetoid folder (ind.NAME.*); a folder as OGB ships node-property sets.
    nodes, label: the table of nodes for an edge list, and its column of classes.
    undirected: an edge in one direction counts as both, as in the paper; False keeps directions.
    seed: of the split, where the file has none.
    """
    where = Path(fspath(path))
    if not where.exists():
        raise FileNotFoundError(f"Expected a graph at {where} (there is none).")
    try:
        content = _content(where, None if nodes is None else Path(fspath(nodes)), label)
        return make_graph(
            content.pop("x"), content.pop("edges"), content.pop("y", None), seed=seed,
            name=content.pop("name", _stem(where)), undirected=undirected, **content,
        )  # fmt: skip
    except InvalidInput as error:
        raise InvalidFile(str(error)) from error


def save_graph(graph: Graph, path: str | PathLike[str], **more: NDArray[Any]) -> None:
    """Write a graph as .npz that `load_graph` reads again; `more` arrays come along.

    The features are left sparse where most of them are 0.
    """
    arrays: dict[str, Any] = {"greedypig": np.array("graph")}  # The program that wrote the file.
    x = graph.x.cpu().numpy()
    if np.count_nonzero(x) * 3 < x.size:
        rows, cols = x.nonzero()
        arrays |= {"x_row": rows.astype(np.int32), "x_col": cols.astype(np.int32),
                   "x_val": x[rows, cols], "x_shape": np.array(x.shape)}  # fmt: skip
    else:
        arrays["x"] = x
    arrays["edges" if graph.undirected else "edge_index"] = graph.edges.cpu().numpy()
    tensors = {name: getattr(graph, name) for name in ("y", *PARTS)}
    tensors["edge_weight"] = graph.weight
    arrays |= {name: t.cpu().numpy() for name, t in tensors.items() if t is not None}
    words = {"classes": graph.classes, "names": graph.names}
    arrays |= {name: np.array(w) for name, w in words.items() if w is not None}
    write_whole(path, lambda file: np.savez_compressed(file, **(arrays | more)))


def _content(path: Path, nodes: Path | None, label: str | None) -> dict[str, Any]:
    """The arguments of `make_graph` that the file holds."""
    name = path.name.lower()
    is_table = name.endswith(ENDINGS)
    if nodes is not None and not is_table:
        raise InvalidInput(
            f"Expected a table of nodes beside an edge list alone (got it beside {path.name})."
        )
    if path.is_dir():
        return _folder(path, label)
    if label is not None and not is_table:
        raise InvalidInput(
            f"Expected the name of a label only for tables of nodes (got {label!r} for "
            f"{path.name}, whose classes are called y)."
        )
    if is_table:
        if nodes is None:
            raise InvalidFile(
                f"Expected a table of nodes beside the edges in {path.name} (got none). "
                "Try nodes='nodes.csv'."
            )
        return read_tables(path, nodes, label=label)
    if name.endswith(".npz"):
        return _npz(path)
    if name.endswith((".pt", ".pth", ".safetensors")):
        return _tensors(path)
    raise InvalidFile(f"Expected a graph: {KINDS} (got {path.name}).")


def _npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            # Only the arrays that have a meaning here are read.
            arrays = {key: file[key] for key in file.files if key in KNOWN}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        # NumPy reads anything that is no archive as a pickle.
        pickled = zipfile.is_zipfile(path) and "object array" in str(error).lower()
        got = "objects, which are not loaded" if pickled else "none, or one that is damaged"
        raise InvalidFile(
            f"Expected a .npz file of plain arrays in {path.name} (got {got})."
        ) from error
    return _named(arrays, path.name)


def read_tensors(path: Path) -> Any:
    """What a file of safetensors or of torch holds; no code of the file is run."""
    if path.suffix == ".safetensors":
        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _tensors(path: Path) -> dict[str, Any]:
    try:
        stored = read_tensors(path)
    except pickle.UnpicklingError as error:
        raise InvalidFile(
            f"Expected a dict of tensors in {path.name} (got objects, which are not loaded). "
            "Try torch.save(data.to_dict(), path)."
        ) from error
    except Exception as error:  # A damaged file can fail in any of its steps.
        raise InvalidFile(
            f"Expected a whole file of tensors in {path.name} (got one that is damaged: "
            f"{type(error).__name__})."
        ) from error
    if isinstance(stored, tuple | list) and stored and isinstance(stored[0], Mapping):
        stored = stored[0]  # As PyG's datasets are stored: the content, then slices.
    if not isinstance(stored, Mapping):
        raise InvalidFile(
            f"Expected a dict of tensors in {path.name} (got {type(stored).__name__})."
        )
    # A dict of PyG may hold its tensors one level deeper.
    if "x" not in stored and isinstance(stored.get("_store"), Mapping):
        stored = stored["_store"]
    arrays = {k: v for k, v in stored.items() if k in KNOWN and v is not None}
    return _named(arrays, path.name)


def _named(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    """From the names in files to the arguments of `make_graph`."""
    content: dict[str, Any] = {}
    if "x" in arrays:
        x = arrays["x"]
        content["x"] = x.to_dense() if isinstance(x, torch.Tensor) and x.is_sparse else x
    elif all(name in arrays for name in SPARSE):
        content["x"] = _dense(arrays, name)
    else:
        raise InvalidInput(
            f"Expected features x, or x_row, x_col, x_val and x_shape, in {name} (got neither)."
        )
    for argument, keys in ALIASES.items():
        key = next((key for key in keys if key in arrays), None)
        if key is not None:
            content[argument] = arrays[key]
    if "edges" not in content:
        raise InvalidInput(f"Expected edges or edge_index in {name} (got neither).")
    for words in {"classes", "names"} & set(content):
        content[words] = [str(word) for word in content[words]]
    return content


def _dense(arrays: Mapping[str, Any], name: str) -> NDArray[np.float32]:
    row, col, val, shape = (np.asarray(arrays[key]) for key in SPARSE)
    if shape.shape != (2,) or (shape < 1).any() or not len(row) == len(col) == len(val):
        raise InvalidInput(
            f"Expected x_shape of two numbers and equally many x_row, x_col and x_val in {name} "
            f"(got {shape.shape}, {len(row)}, {len(col)}, {len(val)})."
        )
    if any(a.dtype.kind not in "iu" for a in (row, col, shape)) or val.dtype.kind not in "fiub":
        raise InvalidInput(
            f"Expected whole numbers in x_row, x_col and x_shape and numbers in x_val of {name} "
            f"(got {row.dtype}, {col.dtype}, {shape.dtype} and {val.dtype})."
        )
    if int(shape[0]) * int(shape[1]) > MOST_NUMBERS:
        raise InvalidInput(
            f"Expected at most 2³¹ features in all (8 GiB) in {name} (got x_shape {shape[0]} × "
            f"{shape[1]}). Try fewer columns."
        )
    if len(row) and (
        min(row.min(), col.min()) < 0 or row.max() >= shape[0] or col.max() >= shape[1]
    ):
        raise InvalidInput(
            f"Expected x_row and x_col within {shape[0]} × {shape[1]} in {name} (got others)."
        )
    x = np.zeros((int(shape[0]), int(shape[1])), dtype=np.float32)
    np.add.at(x, (row, col), val)
    return x


def _folder(path: Path, label: str | None) -> dict[str, Any]:
    if any(path.glob("ind.*.graph")) or any((path / "raw").glob("ind.*.graph")):
        return _planetoid(path)
    if any((path / "raw").glob("edge.csv*")):
        return _ogb(path)
    files = {what: _table(path, stems) for what, stems in TABLES.items()}
    edges, nodes = files["edges"], files["nodes"] or files["features"]
    if edges is not None and nodes is not None:
        return read_tables(edges, nodes, files["labels"], label=label) | {"name": path.name}
    raise InvalidFile(
        f"Expected a graph in the folder {path.name}: edges.csv and nodes.csv (or .parquet), "
        "planetoid's ind.NAME.*, or OGB's raw/edge.csv.gz (got none of these)."
    )


def _table(folder: Path, stems: tuple[str, ...]) -> Path | None:
    files = (folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS)
    return next((file for file in files if file.is_file()), None)


def _planetoid(path: Path) -> dict[str, Any]:
    """The eight files of planetoid."""
    folder = path if any(path.glob("ind.*.graph")) else path / "raw"
    graphs = sorted(folder.glob("ind.*.graph"))
    if len(graphs) > 1:
        names = ", ".join(g.name for g in graphs)
        raise InvalidFile(f"Expected one planetoid graph in {folder.name} (got {names}).")
    name = graphs[0].name.split(".")[1]
    files = {part: folder / f"ind.{name}.{part}" for part in planetoid.PARTS}
    missing = [file.name for file in files.values() if not file.is_file()]
    if missing:
        raise InvalidFile(f"Expected {missing[0]} in {folder.name} (there is none).")
    try:
        arrays = planetoid.from_pickles({part: f.read_bytes() for part, f in files.items()})
    except GreedyPigError as error:
        raise InvalidFile(f"{str(error).rstrip('.')} in {folder.name}.") from error
    except Exception as error:  # Parts that do not fit together fail in any step.
        raise InvalidFile(
            f"Expected the eight files of planetoid to fit together in {folder.name} "
            f"(got {type(error).__name__})."
        ) from error
    return _named(arrays, name) | {"name": name}


def _ogb(path: Path) -> dict[str, Any]:
    """raw/edge, node-feat, node-label, num-node-list; split/SCHEME/train, valid, test."""
    raw = path / "raw"
    need = {what: _csv(raw, what) for what in ("edge", "node-feat", "node-label")}
    content: dict[str, Any] = {
        "x": Table(need["node-feat"]).numbers(),
        "edges": Table(need["edge"]).numbers().T,
        "y": Table(need["node-label"]).numbers(),
        "name": path.name,
    }
    if content["y"].shape[1] != 1:
        raise InvalidInput(
            f"Expected one label per node in {path.name} (got {content['y'].shape[1]} columns): a "
            "set of several tasks has no node classes."
        )
    listed = raw / "num-node-list.csv.gz"
    if listed.is_file():
        count = int(Table(listed).numbers().sum())
        if count != len(content["x"]):
            raise InvalidInput(
                f"Expected {count:,} nodes in {path.name}, as num-node-list says "
                f"(got {len(content['x']):,} rows of features)."
            )
    schemes = sorted(p for p in (path / "split").glob("*") if p.is_dir())
    if schemes:
        for part, file in (("train", "train"), ("val", "valid"), ("test", "test")):
            content[part] = Table(_csv(schemes[0], file)).numbers()[:, 0].astype(np.int64)
    words = path / "mapping" / "labelidx2arxivcategeory.csv.gz"  # The publisher's own spelling.
    if words.is_file():
        table = Table(words)
        content["classes"] = table.words(table.names[1]).tolist()
    return content


def _csv(folder: Path, stem: str) -> Path:
    file = _table(folder, (stem,))
    if file is None:
        raise InvalidFile(f"Expected {stem}.csv.gz in {folder} (there is none).")
    return file


def _stem(path: Path) -> str:
    name = path.name
    for ending in (".npz", ".pt", ".pth", ".safetensors", *ENDINGS):
        name = name.removesuffix(ending)
    return name or "graph"
