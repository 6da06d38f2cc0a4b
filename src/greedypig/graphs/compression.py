"""A network's outputs on a whole graph with only some of its edges.

The network gets these edges alone, so degrees are those of the smaller graph (the paper's Â_S).
Three measures: accuracy on the test nodes, agreement with the full graph's
predictions over all nodes, and G, the mean over all nodes of log p_S(the class that the node has in
the full graph).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..results.graph_notes import CompressionFacts, EdgeFacts, GraphSize, Trace
from .api import explain_edges
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


def kept_count(share: float, edges: int) -> int:
    """How many of the edges a share is."""
    return int(share * edges + 0.5)


def shares_with(keep: float) -> tuple[float, ...]:
    """The shares that a comparison measures: the usual ones, and the share that is kept."""
    return tuple(sorted({*SHARES, keep}))


def trace(judge: Judge, order: Tensor, shares: Sequence[float] = SHARES) -> Trace:
    """Measures of the first edges of an order at every share."""
    counts = [kept_count(share, judge.graph.m) for share in shares]
    looks = [judge.full if n == judge.graph.m else judge.look(order[:n]) for n in counts]
    accuracy = tuple(look.accuracy for look in looks)
    return Trace(
        tuple(shares),
        tuple(look.agreement for look in looks),
        None if None in accuracy else accuracy,
        tuple(look.g for look in looks),
        tuple(counts),
    )


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


def compression(results: Mapping[str, Attribution], judge: Judge, keep: float) -> Attribution:
    """The first method's result with the facts of a compressed graph: what was kept of it, and the
    curves of all methods. results: by method; those without a `trace` are measured."""
    graph, full = judge.graph, judge.full
    shares = shares_with(keep)
    first = next(iter(results.values()))
    measured = {"accuracy": full.accuracy, "agreement": full.agreement, "g": full.g}
    facts = CompressionFacts(
        model=first.about.model,
        objective=first.settings["objective"],
        graph=GraphSize(
            nodes=graph.nodes,
            edges=graph.m,
            name=graph.name,
            features=graph.x.shape[1],
            classes=graph.class_count,
            undirected=graph.undirected,
            notes=graph.notes,
        ),
        keep=keep,
        kept_edges=kept_count(keep, graph.m),
        traces={name: _titled(name, a, judge, shares) for name, a in results.items()},
        full={name: value for name, value in measured.items() if value is not None},
    )
    return first.with_notes(facts, edges=graph.edges)


def _titled(name: str, a: Attribution, judge: Judge, shares: Sequence[float]) -> Trace:
    measured = a.about.trace if isinstance(a.about, EdgeFacts) else None
    measured = measured or trace(judge, a.order, shares)
    title, gradients = TITLES.get(name, name), float(a.gradients_used)
    return replace(measured, title=title, gradients=gradients, seconds=a.seconds)


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
