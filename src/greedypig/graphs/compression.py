"""How good is a graph that keeps only some of its edges? Judged by the network, edge by edge.

The network sees the kept edges alone, so that degrees are those of the smaller graph (the paper's
Â_S). Three judges: accuracy on the test nodes, agreement with the full graph's answers over all
nodes, and G, the mean over all nodes of log p_S(the class that the node has in the full graph).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..network.frozen import freeze
from .api import explain_edges
from .edges import answer
from .gcn import GCN
from .graph import Graph
from .runs import GRADIENTS
from .training import Layers, propagation

METHODS = {
    "greedy-pig": "Greedy PIG",
    "ig": "PIG (one shot)",
    "degree": "1/√(DᵢDⱼ) sampling",
    "random": "random edges",
}
"""What the paper compares, in its order, and how tables call them."""
SHARES = tuple(i / 20 for i in range(21))
"""Nothing, 5 %, … 100 % of the edges."""
MEASURES = ("accuracy", "agreement", "g")


@dataclass(frozen=True)
class Look:
    """What the network makes of some of the edges."""

    edges: int
    accuracy: float | None
    """Share of test nodes whose class is right; None in a graph without labels."""
    agreement: float
    """Share of all nodes that get the class they get in the full graph."""
    g: float


class Judge:
    """A network on a graph, asked about parts of its edges."""

    def __init__(self, model: Callable[..., Any], graph: Graph) -> None:
        self.graph = graph
        self._logits = logits_of(model, graph)
        logits = self._checked(self._logits(None))
        self.classes = logits.argmax(1)
        self.probabilities = torch.softmax(logits, 1)
        """(nodes, classes) in the full graph."""
        self.full = self.look(None)

    def look(self, edges: Tensor | None) -> Look:
        """Judge the graph of these edges (ids of `graph.edges`); None for all of them."""
        graph = self.graph
        logits = self._logits(edges)
        found = logits.argmax(1)
        log_likelihood = torch.log_softmax(logits, 1).gather(1, self.classes.unsqueeze(1))
        accuracy = None
        if graph.y is not None and graph.test is not None:
            accuracy = float((found == graph.y)[graph.test].double().mean())
        return Look(
            graph.m if edges is None else len(edges), accuracy,
            float((found == self.classes).double().mean()), float(log_likelihood.double().mean()),
        )  # fmt: skip

    def _checked(self, logits: Any) -> Tensor:
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
        return logits


@dataclass(frozen=True)
class Trace:
    """One method's looks over the share of edges kept."""

    shares: tuple[float, ...]
    looks: tuple[Look, ...]

    def values(self, measure: str) -> list[float | None]:
        """ "accuracy", "agreement" or "g" at every share."""
        return [getattr(look, measure) for look in self.looks]

    def at(self, share: float) -> Look:
        """The look at a share that was measured."""
        return self.looks[self.shares.index(share)]

    def record(self) -> dict[str, Any]:
        """As JSON holds it."""
        kept = {measure: self.values(measure) for measure in MEASURES}
        found = {k: v for k, v in kept.items() if None not in v}
        return {"fractions": list(self.shares), "edges": [k.edges for k in self.looks], **found}


def kept_count(share: float, edges: int) -> int:
    """How many of the edges a share is."""
    return int(share * edges + 0.5)


def trace(
    judge: Judge, order: Tensor, shares: Sequence[float] = SHARES,
    watch: Callable[[], object] | None = None,
) -> Trace:  # fmt: skip
    """Judge the first edges of an order at every share; `watch` is called after each."""
    looks = []
    for share in shares:
        count = kept_count(share, judge.graph.m)
        looks.append(judge.full if count == judge.graph.m else judge.look(order[:count]))
        if watch is not None:
            watch()
    return Trace(tuple(shares), tuple(looks))


def edge_order(
    method: str, model: Callable[..., Any], graph: Graph, *, seed: int = 0, **search: Any
) -> Attribution:
    """The edges of a graph, best first, by one of METHODS; `order` holds ids of `graph.edges`."""
    given = dict(search) if method not in ("degree", "random") else {
        k: v for k, v in search.items() if k in ("progress", "objective")
    }  # fmt: skip
    if method == "ig":
        given = {k: v for k, v in given.items() if k not in ("rounds", "schedule", "k")}
        given.setdefault("steps", GRADIENTS)  # As many as Greedy PIG takes.
    return explain_edges(
        model, graph.x, graph.edge_index, graph.edge_weight, method=method, seed=seed,
        undirected=graph.undirected, **given,
    )  # fmt: skip


def compare(
    model: Callable[..., Any], graph: Graph,
    searches: Mapping[str, Mapping[str, Any]] | None = None,
    *, shares: Sequence[float] = SHARES, seed: int = 0,
) -> dict[str, Trace]:  # fmt: skip
    """Every method's trace on the same network and graph."""
    judge = Judge(model, graph)
    wanted = {name: {} for name in METHODS} if searches is None else searches
    return {
        name: trace(judge, edge_order(name, model, graph, seed=seed, **given).order, shares)
        for name, given in wanted.items()
    }


def logits_of(model: Callable[..., Any], graph: Graph) -> Callable[[Tensor | None], Tensor]:
    """From ids of edges (None for all) to logits, in eval mode and without gradients."""
    if type(model) is GCN:
        own = model
        shared: list[Layers] = []

        def fast(edges: Tensor | None) -> Tensor:
            product = propagation(graph, edges)
            with torch.no_grad():
                if not shared:
                    shared.append(Layers(own, graph.x, product))
                shared[0].product = product
                return shared[0].forth(None, reuse=False)

        return fast
    network = freeze(model)

    def plain(edges: Tensor | None) -> Tensor:
        ids = torch.arange(graph.m, device=graph.x.device) if edges is None else edges
        weight = graph.part_weight(ids)
        index = graph.part(ids)
        if weight is None:
            weight = torch.ones(index.shape[1], device=index.device)
        with torch.no_grad():
            found: Tensor = answer(network, graph.x, index, weight)
        return found

    return plain
