"""Graph file readers: .npz, tensors, tables of edges and nodes, OGB folders.

Nothing that could run code is loaded: .npz without pickles, and torch files with `weights_only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from ..core.errors import Argument, InvalidFile, InvalidInput
from ..results.files import write_whole
from .graph import PARTS, Graph, make_graph
from .tables import ENDINGS, read_ogb, read_tables, table_in

KINDS = (
    "graph.npz, tensors as .pt or .safetensors, a table of edges beside one of nodes, a folder of "
    "both, or an OGB folder"
)
ARRAYS = (".npz", ".pt", ".safetensors")
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
        `nodes`; a folder with edges.csv and nodes.csv (or Parquet); a folder as OGB ships
        node-property sets.
    nodes, label: the table of nodes for an edge list, and its column of classes.
    undirected: an edge in one direction counts as both, as in the paper; False keeps directions.
    seed: of the split, where the file has none.
    """
    where = Path(fspath(path))
    if not where.exists():
        raise FileNotFoundError(f"Expected a graph at {where} (there is none).")
    try:
        content = _content(where, None if nodes is None else Path(fspath(nodes)), label)
        x, edges = content.pop("x"), content.pop("edges")
        ending = next((e for e in (*ARRAYS, *ENDINGS) if where.name.endswith(e)), "")
        name = where.name.removesuffix(ending)
        return make_graph(x, edges, name=name, undirected=undirected, seed=seed, **content)
    except InvalidInput as error:
        raise InvalidFile(str(error)) from error


def save_graph(graph: Graph, path: str | PathLike[str], **more: NDArray[Any]) -> None:
    """Write a graph as .npz that `load_graph` reads again; `more` arrays come along.

    The features are left sparse where most of them are 0.
    """
    arrays: dict[str, Any] = {"greedypig": np.array("graph")}  # The program that wrote the file.
    x = graph.x.cpu().numpy()
    if np.count_nonzero(x) * 3 < x.size:
        rows, columns = x.nonzero()
        arrays |= {"x_row": rows.astype(np.int32), "x_col": columns.astype(np.int32)}
        arrays |= {"x_val": x[rows, columns], "x_shape": np.array(x.shape)}
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
    edges = path if path.name.endswith(ENDINGS) else table_in(path, "edges")
    if edges is None and (nodes is not None or label is not None):
        raise InvalidInput(
            "Expected a table of nodes, or the name of its label, only beside an edge list "
            f"(got {path.name})."
        )
    if edges is not None:
        nodes = nodes or table_in(path, "nodes")
        if nodes is None:
            raise InvalidFile(
                f"Expected a table of nodes beside the edges in {edges.name} (got none).",
                advice=Argument("nodes", "nodes.csv"),
            )
        return read_tables(edges, nodes, label)
    if path.is_dir() and table_in(path / "raw", "edge") is not None:
        return read_ogb(path)
    if path.suffix in ARRAYS:
        return _named(_arrays(path), path.name)
    raise InvalidFile(f"Expected a graph: {KINDS} (got {path.name}).")


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file that have a meaning here, by name."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {key: file[key] for key in file.files if key in KNOWN}
        stored = dict(read_tensors(path))
    except Exception as error:  # A damaged file can fail in any of its steps.
        raise InvalidFile(
            f"Expected plain arrays or a dict of tensors in {path.name} (got a damaged file, or "
            f"objects, which are not loaded: {type(error).__name__}). "
            "Try torch.save(data.to_dict(), path)."
        ) from error
    return {key: value for key, value in stored.items() if key in KNOWN and value is not None}


def read_tensors(path: Path) -> Any:
    """What a file of safetensors or of torch holds; no code of the file is run."""
    if path.suffix == ".safetensors":
        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _named(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    """From the names in files to the arguments of `make_graph`."""
    content: dict[str, Any] = {}
    for argument, keys in ALIASES.items():
        key = next((key for key in keys if key in arrays), None)
        if key is not None:
            content[argument] = arrays[key]
    if "edges" not in content:
        raise InvalidInput(f"Expected edges or edge_index in {name} (got neither).")
    if "x" in arrays:
        x = arrays["x"]
        content["x"] = x.to_dense() if isinstance(x, torch.Tensor) else x
    elif all(key in arrays for key in SPARSE):
        content["x"] = _dense(arrays, name)
    else:
        raise InvalidInput(
            f"Expected features x, or x_row, x_col, x_val and x_shape, in {name} (got neither)."
        )
    for words in {"classes", "names"} & set(content):
        content[words] = [str(word) for word in np.ravel(content[words])]
    return content


def _dense(arrays: Mapping[str, Any], name: str) -> torch.Tensor:
    row, col, val, shape = (np.asarray(arrays[key]) for key in SPARSE)
    try:
        size = [int(number) for number in shape]
        if np.prod(size, dtype=float) > MOST_NUMBERS:
            raise ValueError(f"x_shape {size}, more than 2³¹ numbers")
        places = torch.from_numpy(np.stack([row, col]))
        values = torch.from_numpy(val).float()
        return torch.sparse_coo_tensor(places, values, size, check_invariants=True).to_dense()
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidInput(
            f"Expected x_row and x_col within x_shape (2 numbers) and as many x_val in {name} "
            f"(got {reason})."
        ) from error
