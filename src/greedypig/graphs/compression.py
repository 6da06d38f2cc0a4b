"""A network's outputs with only some of a graph's edges: a whole graph's, and one node's.

The network gets these edges alone, so degrees are those of the smaller graph (the paper's Â_S).
Three measures of a whole graph: accuracy on the test nodes, agreement with the full graph's
predictions over all nodes, and G, the mean over all nodes of log p_S(the class that the node has in
the full graph). One node's subgraph is measured by the probability of the explained class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from .api import edge_columns, explain_edges, explain_node
from .edge_model import call, frozen_model
from .gcn import GCN
from .graph import Graph
from .methods import FOR_EDGES, ONCE_FOR_EDGES
from .training import features_of

TITLES = {
    "greedy-pig": "Greedy PIG",
    "ig": "PIG (one shot)",
    "degree": "1/√(DᵢDⱼ) sampling",
    "random": "random edges",
}
"""The names in tables of the methods that the paper compares, in its order."""
SHARES = tuple(i / 20 for i in range(21))
"""Nothing, 5 %, … 100 % of the edges."""
MEASURES = ("accuracy", "agreement", "g")
DEFAULTS = {"greedy-pig": FOR_EDGES, "ig": ONCE_FOR_EDGES}
"""What two of the methods are here: both take about 100 gradients."""


@dataclass(frozen=True)
class Look:
    """The network's outputs with some of the edges, measured."""

    edges: int
    accuracy: float | None
    """Share of test nodes whose class is right; None in a graph without labels."""
    agreement: float
    """Share of all nodes that get the class they get in the full graph."""
    g: float


class Judge:
    """A network on a graph, evaluated on parts of its edges."""

    def __init__(self, model: Callable[..., Any], graph: Graph) -> None:
        self.graph = graph
        self._logits = logits_of(model, graph)
        logits: Any = self._logits(None)
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else (type(logits).__name__,)
        if len(shape) != 2 or shape[0] != graph.nodes or shape[1] < graph.class_count:
            raise InvalidInput(
                f"Expected the model to give logits of shape ({graph.nodes}, classes) for the "
                f"{graph.class_count} classes of {graph.name} (got {shape})."
            )
        self.classes = logits.argmax(1)
        self.full = self.look(None)

    def look(self, edges: Tensor | None) -> Look:
        """Measure the graph of these edges (ids of `graph.edges`); None for all of them."""
        graph, logits = self.graph, self._logits(edges)
        classes = logits.argmax(1)
        log_probability = torch.log_softmax(logits, 1).gather(1, self.classes.unsqueeze(1))
        accuracy = None
        if graph.y is not None and graph.test is not None:
            accuracy = float((classes == graph.y)[graph.test].double().mean())
        return Look(
            edges=graph.m if edges is None else len(edges),
            accuracy=accuracy,
            agreement=float((classes == self.classes).double().mean()),
            g=float(log_probability.double().mean()),
        )


@dataclass(frozen=True)
class Trace:
    """One method's measures over the share of edges kept."""

    shares: tuple[float, ...]
    looks: tuple[Look, ...]

    def values(self, measure: str) -> list[float | None]:
        """One of the MEASURES at every share."""
        return [getattr(look, measure) for look in self.looks]

    def at(self, share: float) -> Look:
        """The look at a share that was measured."""
        return self.looks[self.shares.index(share)]

    def record(self) -> dict[str, Any]:
        """The trace for a JSON file; measures that are not known are left out."""
        values = {measure: self.values(measure) for measure in MEASURES}
        known = {measure: v for measure, v in values.items() if None not in v}
        return {"fractions": list(self.shares), "edges": [k.edges for k in self.looks], **known}


def kept_count(share: float, edges: int) -> int:
    """How many of the edges a share is."""
    return int(share * edges + 0.5)


def trace(judge: Judge, order: Tensor, shares: Sequence[float] = SHARES) -> Trace:
    """Measure the first edges of an order at every share."""
    counts = [kept_count(share, judge.graph.m) for share in shares]
    looks = [judge.full if n == judge.graph.m else judge.look(order[:n]) for n in counts]
    return Trace(tuple(shares), tuple(looks))


def edge_order(method: Any, model: Callable[..., Any], graph: Graph, **more: Any) -> Attribution:
    """The edges of a graph, best first; `order` holds ids of `graph.edges`.

    method: a name, or a method. more: further arguments of `explain_edges`.
    """
    if isinstance(method, str):
        method = DEFAULTS.get(method, method)
    edges = (graph.x, graph.edge_index, graph.edge_weight)
    return explain_edges(model, *edges, method=method, undirected=graph.undirected, **more)


def compare(
    model: Callable[..., Any], graph: Graph, *, shares: Sequence[float] = SHARES, seed: int = 0
) -> dict[str, Trace]:
    """The trace of each of the paper's methods on the same network and graph."""
    judge = Judge(model, graph)
    orders = {name: edge_order(name, model, graph, seed=seed).order for name in TITLES}
    return {name: trace(judge, order, shares) for name, order in orders.items()}


def logits_of(model: Callable[..., Any], graph: Graph) -> Callable[[Tensor | None], Tensor]:
    """From ids of edges (None for all) to logits, in eval mode and without gradients."""
    network = frozen_model(model)
    x = features_of(graph) if type(network.module) is GCN else graph.x

    def logits(edges: Tensor | None) -> Tensor:
        index, weight = graph.part(edges)
        with torch.no_grad():
            output: Tensor = call(network, x, index, weight)
        return output

    return logits


@dataclass(frozen=True)
class Growth:
    """Edges that grew from a node, in the order in which they were taken."""

    node: int
    pairs: tuple[tuple[int, int], ...]
    """Both ends of every edge."""
    probabilities: tuple[float, ...]
    """Of the explained class: with no edge, the first, the first two, …"""
    kept: bool = True
    """Is the explained class still the most probable, with these edges alone?"""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes touched, the centre first, in the order in which they were reached."""
        return tuple(dict.fromkeys([self.node, *(end for pair in self.pairs for end in pair)]))

    def same_class(self, graph: Graph) -> float | None:
        """Share of the nodes reached that have the centre's class; None where it is not known."""
        y, others = graph.y, list(self.nodes[1:])
        if y is None or int(y[self.node]) < 0 or not others:
            return None
        return float((y[others] == y[self.node]).double().mean())


def grow(
    model: Callable[..., Any], graph: Graph, node: int, **search: Any
) -> tuple[Attribution, Growth]:
    """Explain a node's class; method="random" takes adjacent edges at random.

    search: further arguments of `explain_node`.
    """
    a = explain_node(model, graph.x, graph.indexed, node, **search)
    return a, growth(model, graph, a)


def growth(model: Callable[..., Any], graph: Graph, a: Attribution) -> Growth:
    """The edges of a node's explanation, measured: only the nodes that they touch are given to the
    model."""
    node, edges = int(a.settings["node"]), selected_edges(a, graph)
    nodes, numbers = torch.unique(
        torch.cat([edges.new_tensor([node]), graph.edges[:, edges].reshape(-1)]),
        return_inverse=True,
    )
    part = replace(
        graph,
        x=graph.x[nodes],
        edges=numbers[1:].reshape(2, -1),
        weight=None if graph.weight is None else graph.weight[edges],
    )
    logits = logits_of(model, part)
    counts = [torch.arange(count, device=edges.device) for count in range(len(edges) + 1)]
    rows = torch.stack([logits(first)[numbers[0]].double() for first in counts])
    target = int(a.settings["target"])
    probabilities = torch.softmax(rows, 1)[:, target].tolist()
    pairs = tuple((u, v) for u, v in graph.edges[:, edges].T.tolist())
    return Growth(node, pairs, tuple(probabilities), int(rows[-1].argmax()) == target)


def selected_edges(a: Attribution, graph: Graph) -> Tensor:
    """The ids of the edges that a node's explanation selected, in order."""
    ids = dict.fromkeys((edge_columns(a) % max(graph.m, 1)).tolist())
    return graph.edges.new_tensor(list(ids))
