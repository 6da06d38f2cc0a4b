"""The notes of results about graphs: curves of compression, a node's subgraph and its drawing.

In a drawing the explained node is the centre, and every other node lies in the ring of its hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import cos, pi, sin
from typing import ClassVar, NamedTuple

import torch

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from .curve import Curve
from .photo_notes import CLEARLY, MUCH
from .reader import read
from .wording import higher, percent, signed

COMPRESSION, NODE = "graph-compression", "graph-node"
LIKELIHOOD, PROBABILITY = "log-likelihood", ("log-probability", "softmax")
"""Objectives: to match all probabilities of a node, and to raise that of its class."""
MEASURES = {
    "accuracy": "accuracy on the test nodes",
    "agreement": "nodes that keep the full graph’s answer",
    "g": "G: mean log-probability of the full graph’s answers",
}
"""What compressed graphs are judged by, and what each one is."""


class Excess(NamedTuple):
    """A part of the edges that gives more than all of them."""

    part: str
    value: float
    full: float
    quantity: str
    advice: str

    @property
    def sentence(self) -> str:
        """Some of the edges give more than all of them, and what to do about it."""
        value, full = signed(self.value), signed(self.full)
        verb = "give" if self.part.endswith("s") else "gives"
        text = higher(self.part, value, "all edges", full, quantity=self.quantity, verb=verb)
        return f"{text}. {self.advice}".rstrip()


@dataclass(frozen=True)
class Method:
    """One method's curves over the share of edges kept."""

    fractions: tuple[float, ...]
    agreement: tuple[float | None, ...]
    accuracy: tuple[float | None, ...] | None = None
    g: tuple[float | None, ...] | None = None
    edges: tuple[int, ...] = ()
    """How many edges were kept at each share."""
    gradients: float = 0.0
    seconds: float = 0.0
    title: str = ""
    name: str = ""

    @cached_property
    def lines(self) -> dict[str, Curve]:
        """The curves by measure, without gaps."""
        return {
            measure: Curve.from_dict(
                {"fractions": self.fractions, "values": values, "name": self.title}
            ).without_gaps()
            for measure in MEASURES
            if (values := getattr(self, measure)) is not None
        }

    def at(self, measure: str, share: float) -> float | None:
        """The value of a measure at a share; None where it was not measured."""
        return self.lines[measure].get(share) if measure in self.lines else None


@dataclass(frozen=True)
class GraphFacts:
    """The graph that was compressed."""

    nodes: int
    edges: int
    notes: tuple[str, ...] = ()
    """Facts such as that it is generated."""


@dataclass(frozen=True)
class Compression:
    """A compressed graph: the methods' curves, and what was kept."""

    KEYS: ClassVar = {"kept": "kept_edges"}
    graph: GraphFacts
    keep: float
    kept: int
    traces: Mapping[str, Method]
    full: Mapping[str, float] = field(default_factory=dict)
    """accuracy and g with all edges."""
    source: str = ""
    model: str = ""

    @staticmethod
    def of(a: Attribution) -> Compression | None:
        """The notes of a result of `greedypig compress`; None for others."""
        if a.about.get("kind") != COMPRESSION:
            return None
        notes = read(Compression, a.about, "the notes")
        return replace(notes, traces={n: replace(m, name=n) for n, m in notes.traces.items()})

    @property
    def methods(self) -> tuple[Method, ...]:
        """All methods."""
        return tuple(self.traces.values())

    @property
    def first(self) -> Method:
        """The method whose edges were kept."""
        return self.methods[0]

    def answer(self) -> str:
        """The result in one sentence."""
        agreed, right = (self.first.at(m, self.keep) for m in ("agreement", "accuracy"))
        share = 100 * (agreed or 0)
        text = f"{percent(self.keep)} of the edges keep {share:.1f} % of the predictions"
        full = signed(self.full_value("accuracy"))
        return f"{text}." if right is None else f"{text} (accuracy {right:.3f}, all {full})."

    def cautions(self) -> list[str]:
        """Why the result is to be doubted."""
        more = self.excess()
        return [] if more is None else [more.sentence]

    def full_value(self, measure: str) -> float | None:
        """A measure with all edges; the full graph agrees with itself."""
        return 1.0 if measure == "agreement" else self.full.get(measure)

    def excess(self) -> Excess | None:
        """The edges that give a higher G than all edges; None if none do.

        It is the share that was kept, if it does; else the smallest measured one that does.
        """
        line, full = self.first.lines.get("g"), self.full.get("g")
        if line is None or full is None:
            return None
        above = {share: value for share, value in line.points if value > full + CLEARLY}
        if not above:
            return None
        share = self.keep if self.keep in above else min(above)
        advice = "Compare methods by agreement and accuracy."
        return Excess(f"{percent(share)} of the edges", above[share], full, "G", advice)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads, and what each method's edges give at the share that was kept, and its cost."""
        measures = [measure for measure in MEASURES if measure in self.first.lines]
        rows = [
            [
                method.title,
                *(signed(method.at(measure, self.keep)) for measure in measures),
                f"{method.gradients:,.0f}",
                f"{method.seconds:.1f}",
            ]
            for method in self.methods
        ]
        rows.append(["all edges", *(signed(self.full_value(m)) for m in measures), "–", "–"])
        heads = ["G" if measure == "g" else measure for measure in measures]
        return ["", *heads, "gradients", "seconds"], rows

    def share_for(self, method: Method, agreement: float) -> float | None:
        """The smallest measured share from which on a method keeps this agreement."""
        return method.lines["agreement"].stays_from(agreement)


@dataclass(frozen=True)
class DrawnNode:
    """A node of a drawing."""

    KEYS: ClassVar = {"kind": "class"}
    id: int
    name: str
    kind: int | None = None
    """Index of its class; None where it has none."""


@dataclass(frozen=True)
class Explained:
    """One node's prediction, and the edges it rests on, in order of selection."""

    KEYS: ClassVar = {"label": "class", "full": "probability", "values": "kept_probabilities"}
    node: int
    label: str
    """The class that the network gives the node."""
    full: float
    """Probability of `label` in the full graph."""
    alone: float
    """The same without any edge."""
    nodes: tuple[DrawnNode, ...]
    """The centre first."""
    around: int
    """Edges within the network's receptive field."""
    values: tuple[float, ...] = ()
    """The probability with the first 1, 2, … edges."""
    edges: tuple[tuple[int, int], ...] = ()
    """Places in `nodes`, in order of selection."""
    classes: tuple[str, ...] = ()
    truth: str | None = None
    """The node's own class, where it is known."""
    same: float | None = None
    """Share of the selected nodes that have the centre's class."""
    random: Mapping[str, float] = field(default_factory=dict)
    """Means over random subgraphs of as many edges: same, kept (the probability), g."""
    objective: str = ""
    """The name of what was maximised."""
    g: tuple[float | None, ...] = ()
    """The objective with the first 0, 1, 2, … edges; None where it was not measured."""
    g_full: float | None = None
    """The objective with all edges."""
    source: str = ""
    model: str = ""
    note: str = ""
    """A further remark, such as that there are fewer edges than asked for."""

    @staticmethod
    def of(a: Attribution) -> Explained | None:
        """The notes of a result of `greedypig explain-node`; None for others."""
        if a.about.get("kind") != NODE:
            return None
        notes = read(Explained, a.about, "the notes")
        count = len(notes.nodes)
        if any(end not in range(count) for edge in notes.edges for end in edge):
            raise InvalidInput(f"Expected edges between the {count} nodes (got others).")
        return notes

    @property
    def centre(self) -> DrawnNode:
        """The explained node."""
        return self.nodes[0]

    def answer(self) -> str:
        """The result in one sentence."""
        whole = f"{self.full:.3f}"
        if not self.values:
            return f"The node's own features alone give {self.label} with {whole}."
        part = f"{len(self.edges)} of the {self.around:,} edges around the node"
        return f"{part} give {self.label} with {self.values[-1]:.3f} (all edges {whole})."

    def cautions(self, likelihood: str = f"objective={LIKELIHOOD!r}") -> list[str]:
        """Why the result is to be doubted; likelihood: how the other objective is asked for."""
        more = self.excess(likelihood)
        return [] if more is None else [more.sentence]

    def class_name(self, node: DrawnNode) -> str:
        """The class of a node in words."""
        return "class not known" if node.kind is None else self.classes[node.kind]

    def excess(self, likelihood: str = "") -> Excess | None:
        """The fewest edges that give a much higher probability than all edges; None if none do."""
        values = (self.alone, *self.values) if self.values else ()
        above = [i for i, value in enumerate(values) if value > self.full + MUCH]
        if not above:
            return None
        first, advice = above[0], ""
        if self.objective != LIKELIHOOD:
            advice = f"Use {likelihood} to match the probabilities with all edges."
        part = "The first edge" if first == 1 else f"The first {first} edges"
        if first == 0:
            part = "The node alone"
            advice = "The prediction uses the node's own features and does not need the edges."
        return Excess(part, values[first], self.full, "probability", advice)

    @property
    def maximised(self) -> str:
        """What was maximised, in words."""
        words = {
            LIKELIHOOD: f"{LIKELIHOOD}, which is highest where every class has the probability "
            "that all edges give it",
            **dict.fromkeys(PROBABILITY, f"probability of {self.label}"),
        }
        return words.get(self.objective, self.objective or "objective")

    @property
    def objectives(self) -> tuple[float | None, ...]:
        """`g` where it is another number than the probability, else none."""
        return () if self.objective in PROBABILITY else self.g

    @property
    def heads(self) -> list[str]:
        """The heads of `steps`."""
        return ["edge", *[self.objective or "objective"] * bool(self.objectives), "probability"]

    def steps(self) -> list[list[str]]:
        """Cells with no edge, the first one, the first two, …: the edge, the objective if it is not
        the probability, and the probability."""
        pairs = [" – ".join(self.nodes[end].name for end in pair) for pair in self.edges]
        columns = [self.objectives] * bool(self.objectives) + [(self.alone, *self.values)]
        cells = [[signed(value) for value in column] for column in columns]
        return [list(row) for row in zip(["no edges", *pairs], *cells, strict=False)]

    def against(self) -> list[list[str]]:
        """Rows of a table: what these edges give, random subgraphs, and all edges."""
        rows = []
        if self.objectives and "g" in self.random:
            numbers = (self.objectives[-1], self.random["g"], self.g_full)
            rows.append([f"{self.objective} (maximised)", *map(signed, numbers)])
        if self.values and "kept" in self.random:
            numbers = (self.values[-1], self.random["kept"], self.full)
            rows.append([f"probability of {self.label}", *map(signed, numbers)])
        if self.same is not None and "same" in self.random:
            shares = [f"{100 * share:.1f} %" for share in (self.same, self.random["same"])]
            rows.append(["selected nodes of its class", *shares, "–"])
        return rows

    def drawing(self) -> Drawing:
        """Where nodes, their names and the numbers of edges are drawn, within the unit disc.

        The edge that first reached a node makes it a child of the other end. A child lies in its
        parent's sector, and a sector is as wide as the number of ends of its branch.
        """
        hops = hops_from(0, self.edges, len(self.nodes))
        parents: dict[int, int] = {}
        for u, v in self.edges:
            outer, inner = (u, v) if hops[u] > hops[v] else (v, u)
            if hops[outer] > hops[inner]:
                parents.setdefault(outer, inner)
        children: list[list[int]] = [[] for _ in hops]
        for node in sorted(range(1, len(hops)), key=lambda node: node not in parents):
            children[parents.get(node, 0)].append(node)
        spots, names = [(0.0, 0.0)] * len(hops), [(0.0, 0.0)] * len(hops)

        def ends(node: int) -> int:
            return sum(map(ends, children[node])) or 1

        def spread(node: int, start: float, width: float) -> None:
            angle, radius = start + width / 2, _radius(hops[node], max(hops))
            spots[node] = radius * cos(angle), radius * sin(angle)
            beside = angle + (pi / 2 if children[node] else 0)
            names[node] = cos(beside), sin(beside)
            for child in children[node]:
                part = width * ends(child) / ends(node)
                spread(child, start, part)
                start += part

        spread(0, 0.0, 2 * pi)
        ranks = []
        for edge in self.edges:
            (x, y), (x2, y2) = (spots[end] for end in sorted(edge, key=lambda end: -hops[end]))
            # Two fifths from the outer end: edges that meet in the centre keep their numbers apart.
            ranks.append((0.6 * x + 0.4 * x2, 0.6 * y + 0.4 * y2))
        radii = [_radius(hop, max(hops)) for hop in range(1, max(hops) + 1)]
        return Drawing(spots, names, ranks, radii)


class Drawing(NamedTuple):
    """A subgraph laid out within the unit disc."""

    spots: list[tuple[float, float]]
    """Each node's place."""
    names: list[tuple[float, float]]
    """The direction from a node to its name: outwards, or beside the edges that lead outwards."""
    ranks: list[tuple[float, float]]
    """The place of each edge's number."""
    radii: list[float]
    """The rings of the hops."""


def hops_from(start: int, edges: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Steps from a node along edges; unreachable nodes are one hop beyond all others."""
    hops = {start: 0}
    front = {start}
    while front:
        near = {b for u, v in edges for a, b in ((u, v), (v, u)) if a in front} - hops.keys()
        hops |= dict.fromkeys(near, max(hops.values()) + 1)
        front = near
    beyond = max(hops.values()) + 1
    return [hops.get(node, beyond) for node in range(count)]


def _radius(hop: int, rings: int) -> float:
    """Radius of a hop's ring: the inner ones get a little more room, as all edges meet there."""
    return float((hop / max(rings, 1)) ** 0.8)


def edge_labels(a: Attribution, indices: Sequence[int]) -> list[str] | None:
    """Edges by their nodes: "3 → 7", or "3 – 7" of both directions; None where no edges are."""
    ends = a.attachments.get("edge_index")
    if ends is None or ends.shape != (2, a.features.n):
        return None
    owners = a.features.first_rank(torch.arange(a.features.count))
    places = torch.zeros(a.features.count, dtype=torch.long)
    first = places.scatter_reduce(0, owners, torch.arange(a.features.n), "amin", include_self=False)
    between = "–" if a.settings.get("undirected") else "→"
    pairs = ends[:, first[list(indices)]].T.tolist()
    return [f"{source} {between} {target}" for source, target in pairs]
