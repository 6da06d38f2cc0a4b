"""The notes of results about graphs: curves of compression, a node's subgraph and its drawing.

Like `photo_notes`, they are read from the result alone, and checked. In a drawing the explained
node is the centre, and every other node lies in the ring of its hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from .curve import Curve
from .reader import Reader, as_count, as_number

COMPRESSION, NODE = "graph-compression", "graph-node"
MEASURES = {
    "accuracy": "accuracy on the test nodes",
    "agreement": "nodes that keep the full graph’s answer",
    "g": "G: mean log-probability of the full graph’s answers",
}
"""What compressed graphs are judged by, and what each one is."""
Edges = Sequence[tuple[int, int]]
MARGIN = 0.01
"""A part that lies above the whole by more than this is worth a warning, as in photos."""


@dataclass(frozen=True)
class Method:
    """One method's curves over the share of edges kept."""

    name: str
    title: str
    lines: Mapping[str, Curve]
    """By measure."""
    edges: tuple[int, ...]
    """How many edges were kept at each share."""
    numbers: Mapping[str, float]
    """gradients, seconds."""


@dataclass(frozen=True)
class Compression:
    """A compressed graph: the methods' curves, and what was kept."""

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
    """Facts about the graph, such as that it is generated."""

    @staticmethod
    def of(a: Attribution) -> Compression | None:
        """The notes of a result of `greedypig compress`; None for others."""
        if a.about.get("kind") != COMPRESSION:
            return None
        about = Reader(a.about, "the notes")
        graph, traces = about.part("graph"), about.parts("traces")
        if not traces:
            raise InvalidInput("Expected the curves of at least one method (got none).")
        return Compression(
            about.text("source"), about.text("model"), graph.count("nodes"), graph.count("edges"),
            about.number("keep"), about.count("kept_edges"), _numbers(about.part("full")),
            tuple(_method(name, trace) for name, trace in traces.items()), graph.texts("notes"),
        )  # fmt: skip

    @property
    def first(self) -> Method:
        """The method whose edges were kept."""
        return self.methods[0]

    def excess(self) -> tuple[float, float] | None:
        """(share, G) at which the kept edges give a higher G than all edges; None if none do.

        It is the share that was kept, if it does; else the smallest measured one that does.
        """
        line, full = self.first.lines.get("g"), self.full.get("g")
        if line is None or full is None:
            return None
        above = {share: value for share, value in line.points if value > full + MARGIN}
        if not above:
            return None
        share = self.keep if self.keep in above else min(above)
        return share, above[share]

    def share_for(self, method: Method, agreement: float) -> float | None:
        """The smallest measured share from which on a method keeps this agreement."""
        line = method.lines.get("agreement")
        smallest = None
        for share, value in reversed(line.points if line is not None else []):
            if value < agreement:
                break
            smallest = share
        return smallest


def _method(name: str, trace: Reader) -> Method:
    lines = {
        measure: Curve.from_dict(
            {"fractions": trace.record.get("fractions"), "values": trace.record[measure]}, name
        ).without_gaps()
        for measure in MEASURES
        if trace.record.get(measure) is not None
    }
    edges = tuple(as_count(e, f"edges of {name}", 0) for e in trace.items("edges"))
    numbers = _numbers(trace, ("gradients", "seconds"))
    return Method(name, trace.text("title") or name, lines, edges, numbers)


def _numbers(record: Reader, names: Sequence[str] | None = None) -> dict[str, float]:
    """The numbers that a record has."""
    wanted = record if names is None else names
    return {k: v for k in wanted if (v := record.number_if_any(k)) is not None}


@dataclass(frozen=True)
class DrawnNode:
    """A node of a drawing."""

    id: int
    name: str
    kind: int | None
    """Index of its class; None where it has none."""
    hop: int
    """Steps from the centre along the edges drawn."""


@dataclass(frozen=True)
class Explained:
    """One node's prediction, and the edges it rests on, in order of selection."""

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
    """The same without any edge."""
    values: tuple[float, ...]
    """The same with the first 1, 2, … edges."""
    nodes: tuple[DrawnNode, ...]
    """The centre first."""
    edges: tuple[tuple[int, int], ...]
    """Places in `nodes`, in order of selection."""
    classes: tuple[str, ...]
    around: int
    """Edges within the network's receptive field."""
    same: float | None
    """Share of the selected nodes that have the centre's class."""
    random: Mapping[str, float]
    """The same numbers for random growth: same, kept."""
    note: str = ""
    """A further remark, such as that there are fewer edges than asked for."""

    @staticmethod
    def of(a: Attribution) -> Explained | None:
        """The notes of a result of `greedypig explain-node`; None for others."""
        if a.about.get("kind") != NODE:
            return None
        about = Reader(a.about, "the notes")
        records = [Reader(node, "a node of the notes") for node in about.items("nodes")]
        edges = [_edge(pair, len(records)) for pair in about.items("edges")]
        classes = about.texts("classes")
        centre = about.count("node", 0)
        if not records or records[0].count("id", 0) != centre:
            raise InvalidInput("Expected the explained node first among the nodes (got another).")
        hops = hops_from(0, edges, len(records))
        nodes = [_node(node, len(classes), hop) for node, hop in zip(records, hops, strict=True)]
        return Explained(
            centre, about.text("source"), about.text("model"), about.text("class"),
            about.text("truth") or None, about.number("probability"), about.number("alone"),
            tuple(as_number(v, "kept_probabilities") for v in about.items("kept_probabilities")),
            tuple(nodes), tuple(edges), classes, about.count("around", 0),
            about.number_if_any("same"), _numbers(about.part("random")), about.text("note"),
        )  # fmt: skip

    @property
    def hops(self) -> list[int]:
        """Steps of every node from the centre, for `places`."""
        return [node.hop for node in self.nodes]

    def excess(self) -> tuple[int, float] | None:
        """(edges, probability): the fewest edges that give a higher probability than all edges.

        0 edges where the node's own features do so: then no edge is the reason.
        """
        values = (self.alone, *self.values) if self.values else ()
        return next(((i, v) for i, v in enumerate(values) if v > self.full + MARGIN), None)


def _node(record: Reader, classes: int, hop: int) -> DrawnNode:
    kind = None if record.record.get("class") is None else record.count("class", 0, classes - 1)
    number = record.count("id", 0)
    return DrawnNode(number, record.text("name") or str(number), kind, hop)


def _edge(pair: Any, count: int) -> tuple[int, int]:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise InvalidInput(f"Expected edges as pairs of nodes (got {pair!r:.60}).")
    u, v = (as_count(i, "the end of an edge", 0, count - 1) for i in pair)
    return u, v


def hops_from(start: int, edges: Edges, count: int) -> list[int]:
    """Steps from a node along edges; unreachable nodes are one hop beyond all others."""
    hops = [-1] * count
    hops[start] = 0
    front = {start}
    while front:
        depth = hops[next(iter(front))] + 1
        near = {v for u, v in edges if u in front} | {u for u, v in edges if v in front}
        front = {node for node in near if hops[node] < 0}
        for node in front:
            hops[node] = depth
    last = max(hops) + 1
    return [last if hop < 0 else hop for hop in hops]


def places(hops: Sequence[int], edges: Edges) -> NDArray[np.float64]:
    """(nodes, 2) within the unit disc: node 0 in the middle, every node in its hop's ring.

    The edge that first reached a node makes it a child of the other end. A child lies in its
    parent's sector, and a sector is as wide as the number of ends of its branch.
    """
    children = _children(hops, edges)
    ends = _ends(children)
    rings = max(hops, default=1) or 1
    spots = np.zeros((len(hops), 2))
    sectors = [(0, 0.0, 2 * np.pi)]
    while sectors:
        node, start, width = sectors.pop()
        if node:
            angle, radius = start + width / 2, ring(hops[node], rings)
            spots[node] = radius * np.cos(angle), radius * np.sin(angle)
        total = sum(ends[child] for child in children[node])
        for child in children[node]:
            part = width * ends[child] / total
            sectors.append((child, start, part))
            start += part
    return spots


def ring(hop: int, rings: int) -> float:
    """Radius of a hop's ring: the inner ones get a little more room, as all edges meet there."""
    return float((hop / rings) ** 0.8)


def inner_nodes(hops: Sequence[int], edges: Edges) -> set[int]:
    """Nodes from which an edge leads further out: their names lie beside them, not beyond."""
    return {a for u, v in edges for a, b in ((u, v), (v, u)) if hops[b] > hops[a]}


def _children(hops: Sequence[int], edges: Edges) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {i: [] for i in range(len(hops))}
    placed = {0}
    for u, v in [*edges, *((0, i) for i in range(len(hops)))]:  # Unreached nodes come last.
        for parent, child in ((u, v), (v, u)):
            if parent in placed and child not in placed and hops[child] > hops[parent]:
                children[parent].append(child)
                placed.add(child)
    children[0] += [i for i in range(len(hops)) if i not in placed]
    return children


def _ends(children: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """How many ends every branch has."""
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(children[node])
    counts: dict[int, int] = {}
    for node in reversed(order):
        counts[node] = sum(counts[child] for child in children[node]) or 1
    return counts
