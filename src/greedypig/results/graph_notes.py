"""What a result about a graph carries for its figures: curves of compression, a node's subgraph.

Like `notes`, everything is read from the result alone and checked, as a file may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from .photo_notes import Line

COMPRESSION, NODE = "graph-compression", "graph-node"
MEASURES = {
    "accuracy": "accuracy on the test nodes",
    "agreement": "nodes that keep the full graph’s answer",
    "g": "G: mean log-probability of the full graph’s answers",
}
"""What compressed graphs are judged by, and what each one is."""

SURER = 0.01
"""A part that outdoes the whole by more than this is worth a warning, as in photos."""


@dataclass(frozen=True)
class Method:
    """One method's curves over the share of edges kept."""

    name: str
    title: str
    lines: Mapping[str, Line]
    """By measure."""
    edges: tuple[int, ...]
    numbers: Mapping[str, float]
    """gradients, seconds."""


@dataclass(frozen=True)
class Compression:
    """A graph compressed: the methods' curves, and what was kept."""

    source: str
    model: str
    nodes: int
    edges: int
    keep: float
    kept: int
    full: Mapping[str, float]
    """accuracy and g with all edges."""
    methods: tuple[Method, ...]
    notes: tuple[str, ...]
    """What is to be known of the graph: that it is generated, say."""

    @staticmethod
    def of(a: Attribution) -> Compression | None:
        """Of a result of `greedypig compress`; None for others."""
        if a.about.get("kind") != COMPRESSION:
            return None
        about = a.about
        graph, traces = _mapping(about, "graph"), _mapping(about, "traces")
        full = {k: _number(v, k) for k, v in _mapping(about, "full").items() if v is not None}
        if not traces:
            raise InvalidInput("Expected the curves of at least one method (got none).")
        return Compression(
            _text(about, "source"), _text(about, "model"), _count(graph, "nodes"),
            _count(graph, "edges"), _number(about.get("keep"), "keep"),
            _count(about, "kept_edges"), full,
            tuple(_method(str(name), spec) for name, spec in traces.items()),
            tuple(str(note) for note in graph.get("notes") or ()),
        )  # fmt: skip

    @property
    def first(self) -> Method:
        """The method whose edges were kept."""
        return self.methods[0]

    def excess(self) -> tuple[float, float] | None:
        """(share, G) at which the kept edges make the network surer of its answers than all do.

        The share that was kept, if there; else the smallest measured one; None if there is none.
        """
        line, full = self.first.lines.get("g"), self.full.get("g")
        if line is None or full is None:
            return None
        pairs = zip(line.fractions, line.values, strict=True)
        found = {share: value for share, value in pairs if value > full + SURER}
        if not found:
            return None
        share = self.keep if self.keep in found else min(found)
        return share, found[share]

    def share_for(self, method: Method, agreement: float) -> float | None:
        """The smallest measured share from which on a method keeps this agreement."""
        line = method.lines.get("agreement")
        if line is None:
            return None
        found = None
        for share, value in zip(reversed(line.fractions), reversed(line.values), strict=True):
            if value < agreement:
                break
            found = share
        return found


def _method(name: str, spec: Any) -> Method:
    if not isinstance(spec, Mapping):
        raise InvalidInput(f"Expected the curves of {name} as a mapping (got {spec!r:.60}).")
    shares, lines = spec.get("fractions"), {}
    for measure in MEASURES:
        if spec.get(measure) is not None:
            lines[measure] = Line._checked(name, shares, spec[measure], None, None)
    edges = spec.get("edges") or ()
    if not all(type(e) is int for e in edges):
        raise InvalidInput(f"Expected whole numbers of edges of {name} (got others).")
    numbers = {k: _number(spec[k], k) for k in ("gradients", "seconds") if spec.get(k) is not None}
    return Method(name, str(spec.get("title") or name), lines, tuple(edges), numbers)


@dataclass(frozen=True)
class DrawnNode:
    """A node of a drawing."""

    id: int
    name: str
    kind: int | None
    """Index of its class; None where it has none."""
    predicted: int | None
    """Of the class that the network gives it in the full graph."""
    hop: int
    """Steps from the centre along the edges drawn."""


@dataclass(frozen=True)
class Explained:
    """One node's answer, and the edges it rests on, in order of selection."""

    node: int
    source: str
    model: str
    label: str
    """The class that the network gives the node."""
    truth: str | None
    """Its own class, where it is known."""
    full: float
    """Probability of `label` in the full graph."""
    alone: float
    """And without any edge."""
    values: tuple[float, ...]
    """And with the first 1, 2, … edges."""
    nodes: tuple[DrawnNode, ...]
    """The centre first."""
    edges: tuple[tuple[int, int], ...]
    """Places in `nodes`, in order of selection."""
    classes: tuple[str, ...]
    around: int
    """Edges within the network's reach."""
    same: float | None
    """Share of the selected nodes that have the centre's class."""
    random: Mapping[str, float]
    """The same numbers of random growth: same, kept."""
    note: str = ""
    """What else is to be said: that fewer edges are there than were asked for."""

    @staticmethod
    def of(a: Attribution) -> Explained | None:
        """Of a result of `greedypig explain-node`; None for others."""
        if a.about.get("kind") != NODE:
            return None
        about = a.about
        nodes = [_drawn(spec) for spec in _sequence(about, "nodes")]
        pairs = [_pair(spec, len(nodes)) for spec in _sequence(about, "edges")]
        classes = tuple(str(c) for c in _sequence(about, "classes"))
        centre = _count(about, "node", least=0)
        if not nodes or nodes[0][0] != centre:
            raise InvalidInput("Expected the explained node first among the nodes (got another).")
        for _, _, *kinds in nodes:
            if any(kind is not None and not 0 <= kind < len(classes) for kind in kinds):
                raise InvalidInput(f"Expected classes of nodes from 0 to {len(classes) - 1}.")
        hops = hops_from(0, pairs, len(nodes))
        truth = about.get("truth")
        same = about.get("same")
        return Explained(
            centre, _text(about, "source"), _text(about, "model"), _text(about, "class"),
            None if truth is None else str(truth),
            _number(about.get("probability"), "probability"), _number(about.get("alone"), "alone"),
            tuple(_number(v, "values") for v in _sequence(about, "kept_probabilities")),
            tuple(DrawnNode(*node, hop) for node, hop in zip(nodes, hops, strict=True)),
            tuple(pairs), classes, _count(about, "around", least=0),
            None if same is None else _number(same, "same"),
            {k: _number(v, k) for k, v in _mapping(about, "random").items() if v is not None},
            _text(about, "note"),
        )  # fmt: skip

    def excess(self) -> tuple[int, float] | None:
        """(edges, probability): the fewest edges with which the network is surer than with all.

        0 edges where the node's own features do it: then no edge is the reason.
        """
        told = (self.alone, *self.values) if self.values else ()
        more = ((i, v) for i, v in enumerate(told) if v > self.full + SURER)
        return next(more, None)


def hops_from(start: int, pairs: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Steps from a node along edges; those that cannot be reached lie behind all others."""
    hops = [-1] * count
    hops[start] = 0
    front = {start}
    while front:
        depth = hops[next(iter(front))] + 1
        ahead = {v for u, v in pairs if u in front} | {u for u, v in pairs if v in front}
        front = {node for node in ahead if hops[node] < 0}
        for node in front:
            hops[node] = depth
    last = max(hops) + 1
    return [last if hop < 0 else hop for hop in hops]


def places(nodes: Sequence[DrawnNode], edges: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """(nodes, 2) within the unit disc: the centre in the middle, every node in its hop's ring.

    The edge that first reached a node makes it a child of the other end; a child lies in its
    parent's sector, and a sector is as wide as the ends of its branch need.
    """
    children: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    placed = {0}
    for u, v in [*edges, *((0, i) for i in range(len(nodes)))]:  # Whoever no edge reached: last.
        for parent, child in ((u, v), (v, u)):
            if parent in placed and child not in placed and nodes[child].hop > nodes[parent].hop:
                children[parent].append(child)
                placed.add(child)
    for i in range(len(nodes)):
        if i not in placed:
            children[0].append(i)
    leaves = _leaves(children)
    rings = max((node.hop for node in nodes), default=1) or 1
    found = np.zeros((len(nodes), 2))
    sectors = [(0, 0.0, 2 * np.pi)]
    while sectors:
        node, start, width = sectors.pop()
        if node:
            angle, radius = start + width / 2, ring(nodes[node].hop, rings)
            found[node] = radius * np.cos(angle), radius * np.sin(angle)
        total = sum(leaves[c] for c in children[node])
        at = start
        for child in children[node]:
            part = width * leaves[child] / total
            sectors.append((child, at, part))
            at += part
    return found


def ring(hop: int, rings: int) -> float:
    """Radius of a hop's ring: the inner ones get a little more room, as all edges meet there."""
    return float((hop / rings) ** 0.8)


def inner_nodes(nodes: Sequence[DrawnNode], edges: Sequence[tuple[int, int]]) -> set[int]:
    """Those from which an edge leads further out: their names lie beside them, not beyond."""
    return {a for u, v in edges for a, b in ((u, v), (v, u)) if nodes[b].hop > nodes[a].hop}


def _leaves(children: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """How many ends every branch has."""
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(children[node])
    counts: dict[int, int] = {}
    for node in reversed(order):
        counts[node] = sum(counts[c] for c in children[node]) or 1
    return counts


def edge_labels(a: Attribution) -> torch.Tensor | None:
    """(2, units) the ends of every unit, where the result carries them."""
    ends = a.attachments.get("edges")
    if ends is None or ends.dim() != 2 or ends.shape != (2, a.features.units):
        return None
    return ends


def _drawn(spec: Any) -> tuple[int, str, int | None, int | None]:
    if not isinstance(spec, Mapping):
        raise InvalidInput(f"Expected a node as a mapping (got {spec!r:.60}).")
    kinds = [spec.get(key) for key in ("class", "predicted")]
    if not all(kind is None or type(kind) is int for kind in kinds):
        raise InvalidInput(f"Expected classes of nodes as whole numbers (got {kinds!r:.60}).")
    return _count(spec, "id", least=0), str(spec.get("name", spec["id"])), kinds[0], kinds[1]


def _pair(spec: Any, count: int) -> tuple[int, int]:
    fine = isinstance(spec, Sequence) and len(spec) == 2 and all(type(i) is int for i in spec)
    if not fine or not all(0 <= i < count for i in spec):
        raise InvalidInput(f"Expected edges between the {count} nodes drawn (got {spec!r:.60}).")
    return int(spec[0]), int(spec[1])


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidInput(f"Expected {what} as a finite number (got {value!r:.60}).")
    return float(value)


def _count(record: Mapping[str, Any], name: str, least: int = 1) -> int:
    value = record.get(name)
    if type(value) is not int or value < least:
        raise InvalidInput(f"Expected {name} as a whole number ≥ {least} (got {value!r:.60}).")
    return value


def _text(about: Mapping[str, Any], name: str) -> str:
    return str(about.get(name) or "")


def _mapping(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = about.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"Expected {name!r} in the notes to be a mapping (got {value!r:.60}).")
    return value


def _sequence(about: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = about.get(name) or ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"Expected {name!r} in the notes to be a list (got {value!r:.60}).")
    return value
