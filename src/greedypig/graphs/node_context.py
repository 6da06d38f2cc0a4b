"""The edges that explain one node, measured: its class's probability with these edges alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.features import Groups
from .api import explain_node
from .edge_model import call, frozen_model
from .graph import Graph

Pair = tuple[int, int]


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
    pairs = taken(a)
    return a, growth(model, graph, node, pairs, int(a.settings["target"]))


def growth(
    model: Callable[..., Any], graph: Graph, node: int, pairs: Sequence[Pair], target: int
) -> Growth:
    """Measure edges around a node by the class that they are to explain."""
    rows = answers(model, graph, node, pairs)
    return Growth(
        node, tuple(pairs), tuple(rows[:, target].tolist()), int(rows[-1].argmax()) == target
    )


def taken(a: Attribution) -> tuple[Pair, ...]:
    """The ends of the edges that a node's explanation took, in order."""
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
    x = graph.x[torch.tensor(nodes, device=device)]
    edges = torch.tensor([[local[u], local[v]] for u, v in pairs], device=device).reshape(-1, 2).T
    weight = _weights(graph, pairs)
    network = frozen_model(model)
    rows = []
    with torch.no_grad():
        for count in range(len(pairs) + 1):
            some, own = edges[:, :count], weight[:count]
            if graph.undirected:
                some, own = torch.cat([some, some.flip(0)], 1), torch.cat([own, own])
            logits = call(network, x, some, own)
            rows.append(torch.softmax(logits[0].double(), 0))
    return torch.stack(rows)


def _weights(graph: Graph, pairs: Sequence[Pair]) -> Tensor:
    if graph.weight is None or not pairs:
        return torch.ones(len(pairs), device=graph.x.device)
    keys = graph.edges[0] * graph.nodes + graph.edges[1]
    wanted = torch.tensor(
        [min(p) * graph.nodes + max(p) if graph.undirected else p[0] * graph.nodes + p[1]
         for p in pairs], device=keys.device,
    )  # fmt: skip
    return graph.weight[torch.searchsorted(keys, wanted)]
