"""Notes of graphs: edges in order, curves of compression, a node's subgraph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.facts import Facts
from .curve import Curve
from .input_notes import CLEARLY, MUCH
from .wording import Caution, higher, percent, signed

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
class Trace:
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


@dataclass(frozen=True, kw_only=True)
class EdgeFacts(Facts):
    """Facts about the edges of a graph."""

    kind: ClassVar = "graph"
    picture_axes: ClassVar = ()
    note: str = ""
    """A remark, such as that there are fewer edges than asked for."""
    trace: Trace | None = None
    """Measures of the first edges, written by `greedypig compress`."""

    def feature_word(self, features: str) -> str:
        """The name of one feature."""
        return "edge"


@dataclass(frozen=True)
class GraphSize:
    """The graph that was compressed."""

    nodes: int
    edges: int
    name: str = ""
    features: int = 0
    classes: int = 0
    undirected: bool = True
    notes: tuple[str, ...] = ()
    """Facts such as that it is generated."""


@dataclass(frozen=True, kw_only=True)
class CompressionFacts(EdgeFacts):
    """A compressed graph: the methods' curves, and what was kept."""

    kind: ClassVar = "graph-compression"
    graph: GraphSize
    """Size of the graph."""
    keep: float
    """The share of the edges that was kept."""
    kept_edges: int
    """How many edges that is."""
    traces: Mapping[str, Trace]
    """By method; the first is the one whose edges were kept."""
    full: Mapping[str, float] = field(default_factory=dict)
    """accuracy and g with all edges."""


@dataclass(frozen=True, kw_only=True)
class CompressionNotes(CompressionFacts):
    """The notes of a compressed graph."""

    @classmethod
    def of(cls, a: Attribution) -> CompressionNotes:
        """The notes of a result of `greedypig compress`."""
        facts: Any = a.about
        traces = {name: replace(method, name=name) for name, method in facts.traces.items()}
        return cls(**{**vars(facts), "traces": traces})

    @property
    def methods(self) -> tuple[Trace, ...]:
        """All methods."""
        return tuple(self.traces.values())

    @property
    def first(self) -> Trace:
        """The method whose edges were kept."""
        return self.methods[0]

    def answer(self) -> str:
        """The result in one sentence."""
        agreed, right = (self.first.at(m, self.keep) for m in ("agreement", "accuracy"))
        share = 100 * (agreed or 0)
        text = f"{percent(self.keep)} of the edges keep {share:.1f} % of the predictions"
        full = signed(self.full_value("accuracy"))
        return f"{text}." if right is None else f"{text} (accuracy {right:.3f}, all {full})."

    def cautions(self) -> list[Caution]:
        """Reasons to doubt the result."""
        more = self.excess()
        return [] if more is None else [Caution(more.sentence)]

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

    def rows(self) -> list[list[str]]:
        """Each method's measures at the share that was kept, and its cost."""
        measures = [measure for measure in MEASURES if measure in self.first.lines]
        heads = ["G" if measure == "g" else measure for measure in measures]
        rows = [
            [
                method.title,
                *(signed(method.at(measure, self.keep)) for measure in measures),
                f"{method.gradients:,.0f}",
                f"{method.seconds:.1f}",
            ]
            for method in self.methods
        ]
        whole = ["all edges", *(signed(self.full_value(m)) for m in measures), "–", "–"]
        return [["", *heads, "gradients", "seconds"], *rows, whole]

    def share_for(self, method: Trace, agreement: float) -> float | None:
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
    predicted: int | None = None
    """Index of the class that the network gives it."""


@dataclass(frozen=True)
class RandomSubgraphs:
    """Means over random subgraphs of as many edges."""

    draws: int = 0
    kept: float | None = None
    """Probability of the explained class with these edges."""
    g: float | None = None
    """The objective with these edges."""
    same: float | None = None
    """Share of the nodes that have the centre's class."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts(EdgeFacts):
    """One node's prediction, and the edges it rests on, in order of selection."""

    kind: ClassVar = "graph-node"
    KEYS: ClassVar = {"label": "class"}
    node: int
    """Its id."""
    label: str
    """The class that the network gives the node."""
    target: int = 0
    """Its index."""
    probability: float
    """Probability of `label` in the full graph."""
    alone: float
    """Probability of `label` without any edge."""
    kept_probabilities: tuple[float, ...] = ()
    """Probability of `label` with the first 1, 2, … edges."""
    g: tuple[float | None, ...] = ()
    """The objective with the first 0, 1, 2, … edges; None where it was not measured."""
    g_full: float | None = None
    """The objective with all edges."""
    nodes: tuple[DrawnNode, ...]
    """The explained node first."""
    edges: tuple[tuple[int, int], ...] = ()
    """Places in `nodes`, in order of selection."""
    around: int = 0
    """Edges within the network's receptive field."""
    hops: int | None = None
    """Steps to the furthest of them."""
    classes: tuple[str, ...] = ()
    """Names of all classes."""
    truth: str | None = None
    """The node's own class, where it is known."""
    same: float | None = None
    """Share of the selected nodes that have the centre's class."""
    random: RandomSubgraphs = RandomSubgraphs()
    """Random subgraphs of as many edges, drawn by `greedypig explain-node`."""

    def __post_init__(self) -> None:
        count = len(self.nodes)
        if any(end not in range(count) for edge in self.edges for end in edge):
            raise InvalidInput(f"Expected edges between the {count} nodes (got others).")


@dataclass(frozen=True, kw_only=True)
class NodeNotes(NodeFacts):
    """The notes of one node's prediction."""

    @classmethod
    def of(cls, a: Attribution) -> NodeNotes:
        """The notes of a result of `explain_node`."""
        return cls(**vars(a.about))

    @property
    def centre(self) -> DrawnNode:
        """The explained node."""
        return self.nodes[0]

    def answer(self) -> str:
        """The result in one sentence."""
        whole = f"{self.probability:.3f}"
        if not self.kept_probabilities:
            return f"The node's own features alone give {self.label} with {whole}."
        part = f"{len(self.edges)} of the {self.around:,} edges around the node"
        return (
            f"{part} give {self.label} with {self.kept_probabilities[-1]:.3f} (all edges {whole})."
        )

    def cautions(self, likelihood: str = f"objective={LIKELIHOOD!r}") -> list[Caution]:
        """Reasons to doubt the result; likelihood: how the other objective is asked for."""
        more = self.excess(likelihood)
        return [] if more is None else [Caution(more.sentence)]

    @property
    def labelled(self) -> bool:
        """Is the class of any of the nodes known?"""
        return any(node.kind is not None for node in self.nodes)

    def class_name(self, node: DrawnNode) -> str:
        """The class of a node in words."""
        return "class not known" if node.kind is None else self.classes[node.kind]

    def excess(self, likelihood: str = "") -> Excess | None:
        """The fewest edges that give a much higher probability than all edges; None if none do."""
        values = (self.alone, *self.kept_probabilities) if self.kept_probabilities else ()
        above = [i for i, value in enumerate(values) if value > self.probability + MUCH]
        if not above:
            return None
        first, advice = above[0], ""
        if self.objective != LIKELIHOOD:
            advice = f"Use {likelihood} to match the probabilities with all edges."
        part = "The first edge" if first == 1 else f"The first {first} edges"
        if first == 0:
            part = "The node alone"
            advice = "The prediction uses the node's own features and does not need the edges."
        return Excess(part, values[first], self.probability, "probability", advice)

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
        """The heads of `rows`."""
        return ["edge", *[self.objective or "objective"] * bool(self.objectives), "probability"]

    def rows(self) -> list[list[str]]:
        """With no edge, the first one, the first two, …: the edge, the objective if it is not the
        probability, and the probability."""
        pairs = [" – ".join(self.nodes[end].name for end in pair) for pair in self.edges]
        columns = [self.objectives] * bool(self.objectives) + [
            (self.alone, *self.kept_probabilities)
        ]
        cells = [[signed(value) for value in column] for column in columns]
        steps = zip(["no edges", *pairs], *cells, strict=False)
        return [self.heads, *(list(row) for row in steps)]

    def against(self) -> list[list[str]]:
        """Rows of a table: what these edges give, random subgraphs, and all edges."""
        rows, random = [], self.random
        if self.objectives and random.g is not None:
            numbers = (self.objectives[-1], random.g, self.g_full)
            rows.append([f"{self.objective} (maximised)", *map(signed, numbers)])
        if self.kept_probabilities and random.kept is not None:
            numbers = (self.kept_probabilities[-1], random.kept, self.probability)
            rows.append([f"probability of {self.label}", *map(signed, numbers)])
        if self.same is not None and random.same is not None:
            shares = [f"{100 * share:.1f} %" for share in (self.same, random.same)]
            rows.append(["selected nodes of its class", *shares, "–"])
        return rows
