"""One checked graph for node classification: features, edges, labels, split.

Every edge is stored once: in an undirected graph as a pair u < v, which is one feature of every
explanation. Corrections of the input (loops, duplicates, a split that was drawn) are listed in
`notes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import InvalidInput
from .edges import IndexedEdges, index_edges

UNLABELLED = -1
MOST_CLASSES = 10_000
"""Larger numbers as labels are names of classes: a network would need an output for each number."""
PER_CLASS, VALIDATION, TEST = 20, 500, 1000
"""The split where none is given: that of Yang et al. (2016)."""
PARTS = ("train", "val", "test")


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
    def indexed(self) -> IndexedEdges:
        """Edges and weights as `explain_node` takes them for one node after the other."""
        return index_edges(self.x, self.edge_index, self.edge_weight)

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
        if self.classes is not None and 0 <= index < len(self.classes):
            return self.classes[index]
        return f"class {index}" if index >= 0 else "no class"

    def node_name(self, index: int) -> str:
        """The name of a node, else its number."""
        return str(index) if self.names is None else self.names[index]

    def to(self, device: torch.device) -> Graph:
        """The same graph with its tensors on a device."""
        moved = {
            f.name: getattr(self, f.name).to(device)
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


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
    y: classes from 0; −1 or NaN for nodes without one. Where numbers
        reach 10,000 they are names: the classes are then numbered 0, 1, … in their order.
    train, val, test: ids, or booleans per node. Where one is missing it is drawn by the seed from
        the labelled nodes that are in no other: 20 of each class, 500, 1,000 (fewer in small
        graphs).
    """
    remarks = list(notes)
    features = _features(x, name)
    nodes = features.shape[0]
    pairs, weights = _edges(edges, weight, nodes, name, undirected, remarks)
    labels = None if y is None else _labels(y, nodes, name, remarks)
    if labels is not None and classes is None and labels.max() >= MOST_CLASSES:
        labels, classes = _numbered(labels, remarks)
    given = {"train": train, "val": val, "test": test}
    parts = {k: _ids(ids, nodes, k, name) for k, ids in given.items() if ids is not None}
    if labels is None and parts:
        raise InvalidInput(f"Expected labels y beside {', '.join(parts)} in {name} (got none).")
    if labels is not None:
        parts = _split(parts, labels, name, seed, remarks)
    if names is not None and len(names) != nodes:
        raise InvalidInput(
            f"Expected {nodes:,} names in {name}, one per node (got {len(names):,})."
        )
    if labels is not None and classes is not None and int(labels.max()) >= len(classes):
        raise InvalidInput(
            f"Expected a name for each of the {int(labels.max()) + 1} classes in {name} "
            f"(got {len(classes)})."
        )
    return Graph(
        x=torch.from_numpy(features),
        edges=torch.from_numpy(pairs),
        y=_tensor(labels),
        **{part: _tensor(parts.get(part)) for part in PARTS},
        name=name,
        undirected=undirected,
        weight=_tensor(weights),
        classes=None if classes is None else tuple(map(str, classes)),
        names=None if names is None else tuple(map(str, names)),
        notes=tuple(remarks),
    )


def _tensor(array: NDArray[Any] | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)


def _array(value: Any) -> NDArray[Any]:
    return np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)


def _features(x: Any, name: str) -> NDArray[np.float32]:
    array = _array(x)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInput(
            f"Expected features x of shape (nodes, features) in {name} (got {array.shape})."
        )
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"Expected numbers as features x in {name} (got {array.dtype}).")
    features = np.array(array, dtype=np.float32, order="C")
    bad = ~np.isfinite(features).all(1)
    if bad.any():
        raise InvalidInput(
            f"Expected finite features in {name} (got NaN or infinity in {int(bad.sum()):,} "
            f"nodes, first node {int(bad.argmax())}). Try filling them, with 0 say."
        )
    return features


def _edges(
    edges: Any, weight: Any, nodes: int, name: str, undirected: bool, remarks: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Every edge once, without loops, and its weight."""
    array = _array(edges)
    if array.ndim != 2 or array.shape[0] != 2:
        hint = " Try its transpose." if array.ndim == 2 and array.shape[1] == 2 else ""
        raise InvalidInput(f"Expected edges of shape (2, m) in {name} (got {array.shape}).{hint}")
    whole = array.dtype.kind == "f" and bool((array == np.floor(array)).all())
    if array.dtype.kind not in "iu" and not whole:
        raise InvalidInput(f"Expected whole numbers as node ids in {name} (got {array.dtype}).")
    pairs = array.astype(np.int64)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= nodes):
        wrong = pairs.min() if pairs.min() < 0 else pairs.max()
        raise InvalidInput(
            f"Expected node ids from 0 to {nodes - 1:,} in the edges of {name} (got {wrong:,}). "
            "Try counting nodes from 0."
        )
    weights = None if weight is None else _weights(weight, pairs.shape[1], name)
    between = pairs[0] != pairs[1]
    if not between.all():
        remarks.append(f"Edges from a node to itself were left out: {int((~between).sum()):,}.")
        pairs = pairs[:, between]
        weights = None if weights is None else weights[between]
    different = len(np.unique(pairs[0] * nodes + pairs[1]))
    if pairs.shape[1] > different:
        remarks.append(f"{pairs.shape[1] - different:,} edges that were there twice count once.")
    if undirected:
        pairs = np.sort(pairs, 0)
    keys, first, inverse = np.unique(
        pairs[0] * nodes + pairs[1], return_index=True, return_inverse=True
    )
    if undirected and weights is not None and not np.allclose(weights[first][inverse], weights):
        raise InvalidInput(
            f"Expected one weight for both directions of an edge in {name} (got two that differ). "
            "Try reading it as a directed graph."
        )
    return np.stack([keys // nodes, keys % nodes]), None if weights is None else weights[first]


def _weights(weight: Any, count: int, name: str) -> NDArray[np.float32]:
    weights = _array(weight).astype(np.float32).reshape(-1)
    if len(weights) != count:
        raise InvalidInput(
            f"Expected {count:,} edge weights in {name}, one per edge (got {len(weights):,})."
        )
    if not np.isfinite(weights).all():
        raise InvalidInput(f"Expected finite edge weights in {name} (got NaN or infinity).")
    return weights


def _labels(y: Any, nodes: int, name: str, remarks: list[str]) -> NDArray[np.int64]:
    array = _array(y)
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.shape != (nodes,):
        raise InvalidInput(
            f"Expected {nodes:,} labels y in {name}, one per node (got shape {array.shape})."
        )
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), UNLABELLED, array)
    if array.dtype.kind not in "iufb" or (array != np.floor(array)).any():
        raise InvalidInput(f"Expected whole numbers as labels y in {name} (got {array.dtype}).")
    if array.dtype.kind in "uf" and (np.abs(array) >= 2.0**63).any():
        raise InvalidInput(f"Expected labels y below 2⁶³ in {name} (got {array.max():g}).")
    labels = array.astype(np.int64)
    if labels.min() < UNLABELLED:
        raise InvalidInput(
            f"Expected classes from 0, or −1 for nodes without one, in {name} (got {labels.min()})."
        )
    absent = int((labels == UNLABELLED).sum())
    if absent == nodes:
        raise InvalidInput(f"Expected labels in {name} (got none that is not missing).")
    if absent:
        remarks.append(f"{absent:,} nodes have no label.")
    return labels


def _numbered(
    labels: NDArray[np.int64], remarks: list[str]
) -> tuple[NDArray[np.int64], Sequence[str]]:
    """Labels that are names of classes as 0 … c − 1, and the names."""
    known = labels != UNLABELLED
    names, places = np.unique(labels[known], return_inverse=True)
    numbers = np.full_like(labels, UNLABELLED)
    numbers[known] = places
    remarks.append(f"The labels y go up to {names[-1]:,}: they are names of {len(names)} classes.")
    return numbers, [str(name) for name in names]


def _ids(value: Any, nodes: int, part: str, name: str) -> NDArray[np.int64]:
    array = _array(value)
    if array.dtype.kind == "b":
        array = array[:, 0] if array.ndim == 2 else array  # One column per split: the first.
        if array.shape != (nodes,):
            raise InvalidInput(
                f"Expected a mask {part} over {nodes:,} nodes in {name} (got {array.shape})."
            )
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"Expected {part} of {name} as a list of node ids (got {array.dtype} {array.shape})."
        )
    ids: NDArray[np.int64] = np.unique(array.astype(np.int64))
    if not len(ids) or ids[0] < 0 or ids[-1] >= nodes:
        got = "none" if not len(ids) else ids[0] if ids[0] < 0 else ids[-1]
        raise InvalidInput(
            f"Expected node ids from 0 to {nodes - 1:,} in {part} of {name} (got {got})."
        )
    return ids


def _split(
    parts: dict[str, NDArray[np.int64]], labels: NDArray[np.int64], name: str, seed: int,
    remarks: list[str],
) -> dict[str, NDArray[np.int64]]:  # fmt: skip
    """The parts given, checked, and those that are missing drawn by the seed."""
    in_split = np.zeros(len(labels), dtype=bool)
    for part, ids in parts.items():
        if (labels[ids] == UNLABELLED).any():
            raise InvalidInput(f"Expected labelled nodes in {part} of {name} (got some without).")
        if in_split[ids].any():
            raise InvalidInput(
                f"Expected train, val and test of {name} to share no node (got "
                f"{int(in_split[ids].sum()):,} of {part} in another)."
            )
        in_split[ids] = True
    missing = [part for part in PARTS if part not in parts]
    if not missing:
        return parts
    order = np.random.default_rng([seed % 2**32, 0x5711]).permutation(len(labels))
    free = order[(labels[order] != UNLABELLED) & ~in_split[order]]
    split = dict(parts)
    if "train" in missing:
        split["train"] = _per_class(free, labels)
        free = free[~np.isin(free, split["train"])]
    rest = [part for part in ("val", "test") if part in missing]
    share = len(free) // max(len(rest), 1)
    for part in rest:
        count = min({"val": VALIDATION, "test": TEST}[part], share)
        split[part], free = np.sort(free[:count]), free[count:]
        if not count:
            raise InvalidInput(
                f"Expected labelled nodes left for {part} in {name} (got none). Try giving it."
            )
    sizes = ", ".join(f"{part} {len(split[part]):,}" for part in missing)
    remarks.append(f"The split was drawn by seed {seed}: {sizes} nodes.")
    return split


def _per_class(free: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """PER_CLASS of each class, at most half of it."""
    chosen = []
    for c in np.unique(labels[free]):
        own = free[labels[free] == c]
        chosen.append(own[: min(PER_CLASS, max(len(own) // 2, 1))])
    return np.sort(np.concatenate(chosen))
