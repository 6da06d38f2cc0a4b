"""A network's outputs with only some of a graph's edges: a whole graph's, and one node's.

The network gets these edges alone, so degrees are those of the smaller graph (the paper's Â_S).
Three measures of a whole graph: accuracy on the test nodes, agreement with the full graph's
predictions over all nodes, and G, the mean over all nodes of log p_S(the class that the node has in
the full graph). One node's subgraph is measured by the probability of the explained class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.features import Groups
from ..core.scorers import IG
from ..tensors.methods import FOR_EDGES
from .api import EdgeRun, edges_run, explain_node
from .edge_model import call, frozen_model
from .gcn import GCN
from .graph import Graph
from .training import features_of

METHODS = {
    "greedy-pig": "Greedy PIG",
    "ig": "PIG (one shot)",
    "degree": "1/√(DᵢDⱼ) sampling",
    "random": "random edges",
}
"""The methods that the paper compares, in its order, and their names in tables."""
SHARES = tuple(i / 20 for i in range(21))
"""Nothing, 5 %, … 100 % of the edges."""
MEASURES = ("accuracy", "agreement", "g")
DEFAULTS = {"greedy-pig": FOR_EDGES, "ig": IG(100, "gauss-legendre")}
"""What two of the METHODS are here: both take about 100 gradients."""
Pair = tuple[int, int]


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
        logits = self._logits(None)
        self._check(logits)
        self.classes = logits.argmax(1)
        self.full = self.look(None)

    def look(self, edges: Tensor | None) -> Look:
        """Measure the graph of these edges (ids of `graph.edges`); None for all of them."""
        graph = self.graph
        logits = self._logits(edges)
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

    def _check(self, logits: Any) -> None:
        nodes = self.graph.nodes
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != nodes:
            raise InvalidInput(
                f"Expected the model to give logits of shape ({nodes}, classes) (got {shape})."
            )
        if logits.shape[1] < self.graph.class_count:
            raise InvalidInput(
                f"Expected logits for the {self.graph.class_count} classes of {self.graph.name} "
                f"(got {logits.shape[1]})."
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
    looks = []
    for share in shares:
        count = kept_count(share, judge.graph.m)
        looks.append(judge.full if count == judge.graph.m else judge.look(order[:count]))
    return Trace(tuple(shares), tuple(looks))


def order_run(
    method: Any, model: Callable[..., Any], graph: Graph, *, seed: int = 0, **more: Any
) -> EdgeRun:
    """The run that orders the edges of a graph by a method, one of METHODS by its name.

    more: further arguments of `edges_run`.
    """
    if isinstance(method, str):
        method = DEFAULTS.get(method, method)
    return edges_run(
        model, graph.x, graph.edge_index, graph.edge_weight, method=method, seed=seed,
        undirected=graph.undirected, **more,
    )  # fmt: skip


def edge_order(
    method: Any, model: Callable[..., Any], graph: Graph, *, seed: int = 0, **more: Any
) -> Attribution:
    """The edges of a graph, best first; `order` holds ids of `graph.edges`."""
    return order_run(method, model, graph, seed=seed, **more).finish()


def compare(
    model: Callable[..., Any], graph: Graph, methods: Mapping[str, Any] | None = None,
    *, shares: Sequence[float] = SHARES, seed: int = 0,
) -> dict[str, Trace]:  # fmt: skip
    """Every method's trace on the same network and graph; methods: names and what they run."""
    judge = Judge(model, graph)
    wanted = {name: name for name in METHODS} if methods is None else methods
    return {
        name: trace(judge, edge_order(method, model, graph, seed=seed).order, shares)
        for name, method in wanted.items()
    }


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


# One node.


@dataclass(frozen=True)
class Growth:
    """Edges that grew from a node, in the order in which they were taken."""

    node: int
    pairs: tuple[Pair, ...]
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
        if graph.y is None or int(graph.y[self.node]) < 0:
            return None
        others = torch.tensor(self.nodes[1:], dtype=torch.long, device=graph.y.device)
        if not len(others):
            return None
        return float((graph.y[others] == graph.y[self.node]).double().mean())


def grow(
    model: Callable[..., Any], graph: Graph, node: int, **search: Any
) -> tuple[Attribution, Growth]:
    """Explain a node's class; method="random" takes adjacent edges at random."""
    a = explain_node(model, graph.x, graph.indexed, node, undirected=graph.undirected, **search)
    return a, growth(model, graph, node, selected_pairs(a), int(a.settings["target"]))


def growth(
    model: Callable[..., Any], graph: Graph, node: int, pairs: Sequence[Pair], target: int
) -> Growth:
    """Measure edges around a node by the class that they are to explain."""
    rows = answers(model, graph, node, pairs)
    return Growth(
        node, tuple(pairs), tuple(rows[:, target].tolist()), int(rows[-1].argmax()) == target
    )


def selected_pairs(a: Attribution) -> tuple[Pair, ...]:
    """The ends of the edges that a node's explanation selected, in order."""
    ends = a.attachments.get("ends")
    if ends is None or not isinstance(a.features, Groups):
        return ()
    columns = torch.full((a.features.units,), a.layout.n)
    columns.scatter_reduce_(0, a.features.ids.cpu(), torch.arange(a.layout.n), "amin")
    first = columns[a.order[: a.selected]]
    return tuple((u, v) for u, v in ends[:, first].T.tolist())


def answers(model: Callable[..., Any], graph: Graph, node: int, pairs: Sequence[Pair]) -> Tensor:
    """(edges + 1, classes): the node's probabilities with the first 0, 1, … edges alone.

    Only the nodes that these edges touch are given to the model.
    """
    nodes = list(dict.fromkeys([node, *(end for pair in pairs for end in pair)]))
    local = {n: i for i, n in enumerate(nodes)}
    device = graph.x.device
    ends = [[local[u] for u, _ in pairs], [local[v] for _, v in pairs]]
    part = Graph(
        x=graph.x[torch.tensor(nodes, device=device)],
        edges=torch.tensor(ends, dtype=torch.long, device=device),
        undirected=graph.undirected,
        weight=_weights(graph, pairs),
    )
    logits = logits_of(model, part)
    counts = range(len(pairs) + 1)
    rows = [logits(torch.arange(count, device=device))[0].double() for count in counts]
    return torch.softmax(torch.stack(rows), 1)


def _weights(graph: Graph, pairs: Sequence[Pair]) -> Tensor | None:
    if graph.weight is None or not pairs:
        return None
    keys = graph.edges[0] * graph.nodes + graph.edges[1]
    ends = torch.tensor(pairs, device=keys.device)
    source, target = (ends.sort(1).values if graph.undirected else ends).T
    wanted = source * graph.nodes + target
    return graph.weight[torch.searchsorted(keys, wanted)]
