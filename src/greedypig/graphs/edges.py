"""Graphs: g(s) = objective(model(x, edge_index, s · edge_weight)), one s for every pair of nodes.

An element is a column of edge_index; a unit is a pair of nodes with all columns between them, of
one direction or, in an undirected graph, of both. An edge of weight 0 is not there: a network that
normalises by degree counts the degrees of the edges that are left, as the paper's Â_S does. An
edge from a node to itself is no connection: it is always there, and its score is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType
from ..core.features import Elements, Features, Groups
from ..core.layout import check_plain
from ..core.objective import Oracle, PointObjective, Runs
from ..core.scorers import PlannedScorer, Scored, Situation, seeded_uniform
from ..network.frozen import Frozen
from .objectives import NodeTarget

NO_WEIGHTS = ("size", "batch", "num_nodes", "return_attention_weights")
"""Third arguments of PyG's layers and models that are not weights of edges."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Edges as the caller gave them, checked."""

    nodes: int
    edge_index: Tensor
    """(2, columns) long: source and target."""
    weight: Tensor
    """(columns,) the given edge weights, else ones."""
    undirected: bool
    """Are both directions of a pair one unit?"""

    @property
    def columns(self) -> int:
        """How many columns edge_index has."""
        return self.edge_index.shape[1]

    def part(self, columns: Tensor | slice) -> Graph:
        """The same nodes with these columns alone."""
        return replace(self, edge_index=self.edge_index[:, columns], weight=self.weight[columns])

    def turned(self) -> Graph:
        """Every edge in the opposite direction."""
        return replace(self, edge_index=self.edge_index.flip(0))

    @cached_property
    def symmetric(self) -> bool:
        """Has every edge its reverse, of the same weight?"""
        return _is_symmetric(self.edge_index, self.weight, self.nodes)

    def oddities(self, undirected: bool | None) -> Iterator[str]:
        """What a caller who gave `undirected` may not have meant, in sentences."""
        source, target = self.edge_index
        if loops := int((source == target).sum()):
            yield (
                f"Of the edges {loops:,} lead from a node to itself. They are always there, and "
                "each is a unit with score 0. Leave them out of edge_index to select among "
                "connections alone, and add them to those kept."
            )
        if undirected is None and not self.undirected and self._both_ways():
            yield (
                "Every edge has its reverse, but not as often or not with the same weight, so the "
                "graph counts as directed and every direction is a unit. Try undirected=True, or "
                "leave duplicates out of edge_index."
            )

    def _both_ways(self) -> bool:
        source, target = self.edge_index
        there = torch.unique(source * self.nodes + target)
        return torch.equal(there, torch.unique(target * self.nodes + source))

    @cached_property
    def units(self) -> Tensor:
        """(columns,) long: the unit of every column, numbered by first appearance."""
        low, high = self.edge_index
        if self.undirected:
            low, high = torch.minimum(low, high), torch.maximum(low, high)
        return _by_first_appearance(low * self.nodes + high)

    def resolved(self) -> Graph:
        """The same graph, undirected if it is symmetric."""
        return replace(self, undirected=True) if self.symmetric else self

    def features(self) -> Features:
        """What is selected as one unit."""
        units = self.units
        if units.numel() == 0 or int(units.max()) + 1 == units.numel():
            return Elements(self.columns)
        return Groups(units)


def read_graph(
    x: Any, edge_index: Any, edge_weight: Any = None, undirected: bool | None = None
) -> Graph:
    """Check the edges; undirected=None looks whether every edge has its reverse."""
    nodes = _node_count(x)
    edge_index = torch.as_tensor(edge_index)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InvalidInput(
            f"Expected edge_index of shape (2, edges) (got {tuple(edge_index.shape)}). "
            "Try edge_index.T for one edge per row."
        )
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise InvalidType(f"Expected whole node ids in edge_index (got {edge_index.dtype}).")
    edge_index = edge_index.detach().to(dtype=torch.long, device=x.device)
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= nodes:
            raise InvalidInput(
                f"Expected node ids from 0 to {nodes - 1}, the rows of x "
                f"(got {low if low < 0 else high})."
            )
    weight = _weights(edge_weight, edge_index.shape[1], x)
    graph = Graph(nodes, edge_index, weight, bool(undirected))
    return graph.resolved() if undirected is None else graph


class EdgeFunction:
    """g by autograd, for any model called as model(x, edge_index, edge_weight).

    normalisation "kept" leaves the weights as they are and masks the messages instead: by the
    argument `messages` of a model that has one, else in the layers of PyG, which have a place.
    """

    def __init__(
        self,
        network: Frozen,
        x: Tensor,
        graph: Graph,
        target: NodeTarget,
        normalisation: str = "recomputed",
    ) -> None:
        self.network, self.x, self.graph, self.target = network, x, graph, target
        self.layers: list[Any] = []
        self.by_argument = normalisation == "kept" and _takes_messages(network)
        if normalisation == "kept" and not self.by_argument:
            self.layers = message_layers(network)

    def objective(self) -> PointObjective:
        """One row at a time: a row is a pass over the whole graph."""
        oracle = Oracle(self._rows, self.graph.columns, batch_size=1)
        start = torch.zeros_like(self.graph.weight)
        return PointObjective(oracle, start, torch.ones_like(start))

    def logits(self, mask: Tensor) -> Any:
        """What the model answers under one mask."""
        graph = self.graph
        between = graph.edge_index[0] != graph.edge_index[1]
        mask = torch.where(between, mask, 1)
        if self.by_argument:
            return self.network(self.x, graph.edge_index, graph.weight, messages=mask)
        if not self.layers:
            return self.network(self.x, graph.edge_index, mask * graph.weight)
        try:
            for layer in self.layers:
                layer.explain, layer._edge_mask = True, mask
                layer._loop_mask, layer._apply_sigmoid = between, False
            return answer(self.network, self.x, graph.edge_index, graph.weight)
        finally:
            for layer in self.layers:
                layer.explain = layer._edge_mask = layer._loop_mask = None

    def _rows(self, points: Tensor, runs: Runs) -> Tensor:
        return torch.stack([self.target.value(self.logits(point)) for point in points])


def answer(network: Frozen, x: Tensor, edge_index: Tensor, weight: Tensor) -> Any:
    """What a model answers on a graph, called as its caller would call it.

    Weights that are all 1 are left out where the model has no argument of that name for them, and
    may do without.
    """
    third = _third(network)
    optional = third is None or (
        third.default is not Parameter.empty and "edge_weight" not in third.name
    )
    if optional and bool((weight == 1).all()):
        return network(x, edge_index)
    return network(x, edge_index, weight)


def takes_weights(network: Frozen) -> bool:
    """Has the model a third argument that may be the weights of edges?"""
    third = _third(network)
    return third is not None and third.name not in NO_WEIGHTS


def _third(network: Frozen) -> Parameter | None:
    """The third argument of a model; one of a kind where its signature is not known."""
    unknown = Parameter("edge_weight", Parameter.POSITIONAL_OR_KEYWORD)
    module = network.module
    call = network.call if module is None or network.call is not module else module.forward
    try:
        known = list(signature(call).parameters.values())
    except (TypeError, ValueError):
        return unknown
    if any(p.kind is Parameter.VAR_POSITIONAL for p in known):
        return unknown
    plain = [p for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return plain[2] if len(plain) > 2 else None


def _takes_messages(network: Frozen) -> bool:
    forward = getattr(network.module, "forward", None)
    return forward is not None and "messages" in signature(forward).parameters


def message_layers(network: Frozen) -> list[Any]:
    """The layers of a PyG model whose messages can be masked."""
    modules = [] if network.module is None or network.held else list(network.module.modules())
    found = [m for m in modules if hasattr(m, "explain_message") and hasattr(m, "_edge_mask")]
    if not found:
        raise InvalidInput(
            "Expected layers of PyG, or a model with an argument `messages`, for "
            "normalisation='kept' (got one whose messages cannot be told from its degrees). Try "
            "'recomputed'."
        )
    return found


@dataclass(frozen=True)
class DegreeOrder(PlannedScorer):
    """Units drawn without replacement with probability ∝ (D_i D_j)^-½, by seed.

    The largest of log p + Gumbel noise come first, which is such a draw.
    """

    log_weights: Tensor
    name = "degree"
    of_elements = False

    def plan(self, at: Situation) -> Any:
        """Scores of whole units; asks for no gradient."""
        noise = seeded_uniform(self.log_weights.numel(), at.seed, at.round)
        gumbel = -torch.log(-torch.log(noise.clamp(1e-300, 1 - 1e-16)))
        yield from ()
        return Scored(units=(self.log_weights + gumbel).to(at.mask.device))

    def cost(self) -> int:
        """No gradient at all."""
        return 0

    def settings(self) -> dict[str, Any]:
        """The name; the degrees are the graph's own."""
        return {"scorer": self.name}


def degree_order(graph: Graph) -> DegreeOrder:
    """The sampler by degrees of the paper's Fig. 5."""
    source, target = graph.edge_index.cpu()
    degree = torch.zeros(graph.nodes, dtype=torch.float64)
    degree.index_add_(0, target, graph.weight.double().cpu())
    other = torch.zeros_like(degree).index_add_(0, source, graph.weight.double().cpu())
    both = torch.maximum(degree, other).clamp_min(1e-12)
    units = graph.units.cpu()
    first = torch.full((int(units.max()) + 1,), -torch.inf, dtype=torch.float64)
    first[units] = -0.5 * (both[source].log() + both[target].log())
    return DegreeOrder(first)


def _node_count(x: Any) -> int:
    if not isinstance(x, Tensor):
        raise InvalidType(
            f"Expected node features x as a tensor (got {type(x).__name__}). "
            "Try torch.as_tensor(x, dtype=torch.float32)."
        )
    if x.is_meta:  # Sparse features are fine.
        check_plain("node features x", x)
    if x.dim() < 1 or x.shape[0] == 0:
        raise InvalidInput(f"Expected x with one row per node (got shape {tuple(x.shape)}).")
    return int(x.shape[0])


def _weights(edge_weight: Any, columns: int, x: Tensor) -> Tensor:
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    if edge_weight is None:
        return torch.ones(columns, dtype=dtype, device=x.device)
    weight = torch.as_tensor(edge_weight).detach()
    if weight.shape not in ((columns,), (columns, 1)):
        raise InvalidInput(
            f"Expected one edge weight per column of edge_index, ({columns},) "
            f"(got {tuple(weight.shape)})."
        )
    weight = weight.reshape(-1).to(dtype=dtype, device=x.device)
    if not bool(torch.isfinite(weight).all()):
        raise InvalidInput("Expected finite edge weights (got NaN or infinity).")
    return weight


def _is_symmetric(edge_index: Tensor, weight: Tensor, nodes: int) -> bool:
    """Has every edge its reverse, as often and with the same weights?"""
    source, target = edge_index
    there, back = source * nodes + target, target * nodes + source
    one, other = torch.sort(there), torch.sort(back)
    if not torch.equal(one.values, other.values):
        return False
    return torch.equal(weight[one.indices], weight[other.indices]) or _same_sums(
        one.values, weight[one.indices], weight[other.indices]
    )


def _same_sums(keys: Tensor, one: Tensor, other: Tensor) -> bool:
    """Parallel edges may come in another order: their weights need only add up alike."""
    pair = torch.unique_consecutive(keys, return_inverse=True)[1]
    there, back = (w.new_zeros(int(pair.max()) + 1).index_add_(0, pair, w) for w in (one, other))
    return torch.allclose(there, back)


def _by_first_appearance(keys: Tensor) -> Tensor:
    """(m,) long: equal keys get equal ids, 0 … in the order in which they first appear."""
    if keys.numel() == 0:
        return keys
    ids = torch.unique(keys, return_inverse=True)[1]
    count = int(ids.max()) + 1
    first = torch.full((count,), keys.numel(), dtype=torch.long, device=keys.device)
    places = torch.arange(keys.numel(), device=keys.device)
    first.scatter_reduce_(0, ids, places, "amin")
    rank = torch.empty_like(first)
    rank[torch.argsort(first)] = torch.arange(count, device=keys.device)
    return rank[ids]
