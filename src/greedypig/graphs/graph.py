"""One checked graph for node classification: features, edges, labels, split.

Every edge is stored once: in an undirected graph as a pair u < v, which is one feature of every
explanation. Corrections of the input (loops, duplicates, a split that was drawn) are listed in
`notes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import InvalidInput
from .edges import EdgeGraph, index_edges

UNLABELLED = -1
MOST_CLASSES = 10_000
"""A network has an output for every class number: larger ones are refused."""
PARTS = {"train": 20, "val": 500, "test": 1000}
"""The split where none is given, that of Yang et al. (2016): so many of each class for train, in
all for val and test."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph whose nodes have features and, mostly, classes. Made by `make_graph`."""

    x: Tensor
    """(nodes, features) float32."""
    edges: Tensor
    """(2, m) long, no loops, each once; u < v where undirected, else from row 0 to row 1."""
    y: Tensor | None = None
    """(nodes,) long: the class of each node, −1 where it has none; None without labels."""
    train: Tensor | None = None
    """Node ids, rising; None (like the other two) without labels."""
    val: Tensor | None = None
    test: Tensor | None = None
    name: str = "graph"
    undirected: bool = True
    weight: Tensor | None = None
    """(m,) float32 where edges have weights of their own."""
    classes: tuple[str, ...] | None = None
    """Names of the classes."""
    names: tuple[str, ...] | None = None
    """Names of the nodes."""
    notes: tuple[str, ...] = ()
    """Corrections of the content, a sentence each."""

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return self.x.shape[0]

    @property
    def m(self) -> int:
        """How many edges; a pair of directions counts once."""
        return self.edges.shape[1]

    @cached_property
    def class_count(self) -> int:
        """How many classes there are, by name or by label; 0 without labels."""
        labels = 0 if self.y is None else int(self.y.max()) + 1
        return max(labels, len(self.classes or ()))

    @cached_property
    def edge_index(self) -> Tensor:
        """(2, directions) as graph networks take it: both directions of an undirected edge."""
        return self.part()[0]

    @cached_property
    def edge_weight(self) -> Tensor:
        """One weight per column of `edge_index`; 1 where edges have none."""
        return self.part()[1]

    @cached_property
    def indexed(self) -> EdgeGraph:
        """Edges and weights as `explain_node` takes them for one node after the other."""
        return index_edges(self.x, self.edge_index, self.edge_weight, undirected=self.undirected)

    def part(self, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`edge_index` and `edge_weight` of some of the edges, or of all.

        Edge i is in column i, and the other direction in column i + len(ids).
        """
        weight = self.x.new_ones(self.m) if self.weight is None else self.weight
        edges = self.edges
        if ids is not None:
            edges, weight = edges[:, ids], weight[ids]
        if self.undirected:
            edges, weight = torch.cat([edges, edges.flip(0)], 1), torch.cat([weight, weight])
        return edges, weight

    @cached_property
    def degrees(self) -> Tensor:
        """(nodes,) float64: how many edges touch each node."""
        return torch.bincount(self.edges.reshape(-1), minlength=self.nodes).double()

    def class_name(self, index: int) -> str:
        """The name of a class, else "class 3"."""
        named = self.classes is not None and index < len(self.classes)
        return self.classes[index] if self.classes and named else f"class {index}"

    def node_name(self, index: int) -> str:
        """The name of a node, else its number."""
        return str(index) if self.names is None else self.names[index]

    def to(self, device: torch.device) -> Graph:
        """The same graph with its tensors on a device."""
        content: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in content.items():
            content[name] = value.to(device) if isinstance(value, Tensor) else value
        return Graph(**content)


def make_graph(
    x: Any,
    edges: Any,
    y: Any = None,
    *,
    train: Any = None,
    val: Any = None,
    test: Any = None,
    name: str = "graph",
    undirected: bool = True,
    weight: Any = None,
    classes: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> Graph:
    """A checked graph from arrays or tensors.

    edges: (2, m) node ids; with undirected=True an edge may come in one direction or both, and
        every edge counts once. Loops are left out: graph convolutions add their own.
    y: classes from 0, below 10,000; −1 or NaN for nodes without one.
    train, val, test: ids, or booleans per node. Where one is missing it is drawn by the seed from
        the labelled nodes that are in no other: 20 of each class, 500, 1,000 (fewer in small
        graphs).
    """
    remarks = list(notes)
    features = _features(x, name)
    nodes = features.shape[0]
    pairs, weights = _edges(edges, weight, nodes, name, undirected, remarks)
    parts = {"train": train, "val": val, "test": test}
    split = {k: _ids(ids, nodes, k, name) for k, ids in parts.items() if ids is not None}
    labels = None if y is None else _labels(y, nodes, name, remarks)
    if labels is not None:
        split = _split(split, labels, name, seed, remarks)
    _require(labels is not None or not split, f"labels y beside the split in {name}", "none")
    if names is not None:
        _require(len(names) == nodes, f"{nodes:,} names in {name}, one per node", len(names))
    if labels is not None and classes is not None:
        most = int(labels.max()) + 1
        _require(
            len(classes) >= most, f"names for each of the {most} classes in {name}", len(classes)
        )
    return Graph(
        x=torch.from_numpy(features),
        edges=torch.from_numpy(pairs),
        y=None if labels is None else torch.from_numpy(labels),
        name=name,
        undirected=undirected,
        weight=None if weights is None else torch.from_numpy(weights),
        classes=None if classes is None else tuple(map(str, classes)),
        names=None if names is None else tuple(map(str, names)),
        notes=tuple(remarks),
        **{part: torch.from_numpy(ids) for part, ids in split.items()},
    )


def _require(fits: bool, expected: str, got: Any, advice: str = "") -> None:
    if not fits:
        raise InvalidInput(f"Expected {expected} (got {got}). {advice}".strip())


def _array(value: Any) -> NDArray[Any]:
    return np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"


def _features(x: Any, name: str) -> NDArray[np.float32]:
    array = _array(x)
    fits = array.ndim == 2 and 0 not in array.shape and array.dtype.kind in "fiub"
    _require(fits, f"numbers as features x of shape (nodes, features) in {name}", _kind(array))
    features = np.array(array, dtype=np.float32, order="C")
    bad = np.flatnonzero(~np.isfinite(features).all(1))
    got = f"NaN or infinity in {len(bad):,} nodes, first node {bad[:1].sum()}"
    _require(not len(bad), f"finite features in {name}", got, "Try filling them, with 0 say.")
    return features


def _edges(
    edges: Any, weight: Any, nodes: int, name: str, undirected: bool, remarks: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Every edge once, without loops, and its weight."""
    array = _array(edges)
    fits = array.ndim == 2 and array.shape[0] == 2 and array.dtype.kind in "iu"
    expected = f"whole numbers as node ids in edges of shape (2, m) in {name}"
    _require(fits, expected, _kind(array), "Try edges.astype(int), or its transpose.")
    pairs = array.astype(np.int64)
    wrong = pairs[(pairs < 0) | (pairs >= nodes)]
    expected = f"node ids from 0 to {nodes - 1:,} in the edges of {name}"
    _require(not wrong.size, expected, wrong[:1].sum(), "Try counting nodes from 0.")
    weights = None
    if weight is not None:
        given = _array(weight).reshape(-1)
        fits = len(given) == pairs.shape[1] and given.dtype.kind in "fiub"
        expected = f"{pairs.shape[1]:,} finite edge weights in {name}, one per edge"
        _require(fits, expected, _kind(given))
        weights = given.astype(np.float32)
        _require(bool(np.isfinite(weights).all()), expected, "NaN or infinity")
    between = pairs[0] != pairs[1]
    if not between.all():
        remarks.append(f"Edges from a node to itself were left out: {int((~between).sum()):,}.")
        pairs = pairs[:, between]
        weights = None if weights is None else weights[between]
    repeats = pairs.shape[1] - len(np.unique(pairs[0] * nodes + pairs[1]))
    if repeats:
        remarks.append(f"{repeats:,} edges that were there twice count once.")
    if undirected:
        pairs = np.sort(pairs, 0)
    keys, first, inverse = np.unique(
        pairs[0] * nodes + pairs[1], return_index=True, return_inverse=True
    )
    if undirected and weights is not None:
        expected = f"one weight for both directions of an edge in {name}"
        fits = np.allclose(weights[first][inverse], weights)
        _require(fits, expected, "two that differ", "Try reading it as a directed graph.")
    return np.stack([keys // nodes, keys % nodes]), None if weights is None else weights[first]


def _labels(y: Any, nodes: int, name: str, remarks: list[str]) -> NDArray[np.int64]:
    array = _array(y)
    fits = array.shape in ((nodes,), (nodes, 1)) and array.dtype.kind in "iufb"
    _require(fits, f"{nodes:,} whole numbers as labels y in {name}, one per node", _kind(array))
    labels = np.nan_to_num(array.reshape(-1).astype(np.float64), nan=UNLABELLED)
    wrong = labels[(labels != np.floor(labels)) | (labels < UNLABELLED) | (labels >= MOST_CLASSES)]
    expected = f"labels y from 0 to {MOST_CLASSES - 1:,}, or −1 for nodes without one, in {name}"
    _require(not wrong.size, expected, f"{wrong[:1].sum():g}", "Try numbering the classes 0, 1, …")
    absent = int((labels == UNLABELLED).sum())
    _require(absent < nodes, f"labels y in {name}", "none that is not missing")
    if absent:
        remarks.append(f"{absent:,} nodes have no label.")
    return labels.astype(np.int64)


def _ids(value: Any, nodes: int, part: str, name: str) -> NDArray[np.int64]:
    array = _array(value)
    if array.dtype.kind == "b":
        array = array[:, 0] if array.ndim == 2 else array  # One column per split: the first.
        _require(array.shape == (nodes,), f"a mask {part} over {nodes:,} nodes", _kind(array))
        array = np.flatnonzero(array)
    fits = array.ndim == 1 and array.dtype.kind in "iu" and len(array) > 0
    _require(fits, f"{part} of {name} as a list of node ids", _kind(array))
    ids: NDArray[np.int64] = np.unique(array.astype(np.int64))
    wrong = ids[(ids < 0) | (ids >= nodes)]
    expected = f"node ids from 0 to {nodes - 1:,} in {part} of {name}"
    _require(not wrong.size, expected, wrong[:1].sum())
    return ids


def _split(
    parts: dict[str, NDArray[np.int64]],
    labels: NDArray[np.int64],
    name: str,
    seed: int,
    remarks: list[str],
) -> dict[str, NDArray[np.int64]]:
    """The parts given, checked, and those that are missing drawn by the seed."""
    free = labels != UNLABELLED
    for part, ids in parts.items():
        expected = f"labelled nodes in {part} of {name} that are in no other part of the split"
        _require(bool(free[ids].all()), expected, f"{int((~free[ids]).sum()):,} others")
        free[ids] = False
    order = np.random.default_rng([seed % 2**32, 0x5711]).permutation(len(labels))
    split, missing = dict(parts), [part for part in PARTS if part not in parts]
    for i, part in enumerate(missing):
        left = order[free[order]]
        if part == "train":  # At most half of a class.
            classes = [left[labels[left] == c] for c in np.unique(labels[left])]
            own = [nodes[: min(PARTS[part], max(len(nodes) // 2, 1))] for nodes in classes]
            ids = np.concatenate([*own, left[:0]])
        else:
            ids = left[: min(PARTS[part], len(left) // (len(missing) - i))]
        _require(
            len(ids) > 0, f"labelled nodes left for {part} in {name}", "none", "Try giving it."
        )
        split[part] = np.sort(ids)
        free[ids] = False
    if missing:
        sizes = ", ".join(f"{part} {len(split[part]):,}" for part in missing)
        remarks.append(f"The split was drawn by seed {seed}: {sizes} nodes.")
    return split
