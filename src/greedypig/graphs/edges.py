"""The edges of a graph as features, finding the edges of a node, and sampling by degree.

A value is a column of edge_index. A feature, also called a unit, is a pair of nodes with all
columns between them, of one direction or, in an undirected graph, of both. An edge from a node to
itself is no connection: it is always present, and its score is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType
from ..core.features import Elements, Features, Groups
from ..core.layout import check_plain
from ..core.objective import Objective
from .propagation import row_starts


@dataclass(frozen=True, eq=False)
class EdgeGraph:
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

    def part(self, columns: Tensor | slice) -> EdgeGraph:
        """The same nodes with these columns alone."""
        return replace(self, edge_index=self.edge_index[:, columns], weight=self.weight[columns])

    @cached_property
    def symmetric(self) -> bool:
        """Has every edge its reverse, as often and with the same weights?"""
        source, target = self.edge_index
        there = torch.sort(source * self.nodes + target)
        back = torch.sort(target * self.nodes + source)
        if not torch.equal(there.values, back.values):
            return False
        one, other = self.weight[there.indices], self.weight[back.indices]
        return torch.equal(one, other) or _same_sums(there.values, one, other)

    def oddities(self, undirected: bool | None) -> Iterator[str]:
        """Warnings about loops and duplicates, given the caller's `undirected`."""
        source, target = self.edge_index
        if loops := int((source == target).sum()):
            yield (
                f"{loops:,} edges lead from a node to itself. They are always present, and each "
                "is a feature with score 0. Leave them out of edge_index to select among "
                "connections only, and add them to the edges that are kept."
            )
        if undirected is not None or self.undirected:
            return
        there = torch.unique(source * self.nodes + target)
        if torch.equal(there, torch.unique(target * self.nodes + source)):
            yield (
                "Every edge has its reverse, but not as often or not with the same weight, so the "
                "graph is read as directed and every direction is a feature. Try "
                "undirected=True, or remove duplicates from edge_index."
            )

    @cached_property
    def units(self) -> Tensor:
        """(columns,) long: the unit of every column, numbered by first appearance."""
        low, high = self.edge_index
        if self.undirected:
            low, high = torch.minimum(low, high), torch.maximum(low, high)
        return _by_first_appearance(low * self.nodes + high)

    def features(self) -> Features:
        """What is selected as one unit."""
        units = self.units
        if units.numel() == 0 or int(units.max()) + 1 == units.numel():
            return Elements(self.columns)
        return Groups(units)


def read_graph(
    x: Any, edge_index: Any, edge_weight: Any = None, undirected: bool | None = None
) -> EdgeGraph:
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
    graph = EdgeGraph(nodes, edge_index, weight, bool(undirected))
    return replace(graph, undirected=graph.symmetric) if undirected is None else graph


@dataclass(frozen=True, eq=False)
class IndexedEdges:
    """Edges sorted by their ends, so that finding those of a few nodes costs what they have.

    Made by `gp.index_edges`, and passed to `gp.explain_node` in the place of edge_index.
    """

    graph: EdgeGraph
    """Directed."""

    def at(self, nodes: Tensor, side: int) -> Tensor:
        """Columns of the edges whose source (side 0) or target (side 1) is one of these nodes,
        ascending."""
        starts, columns = self.sides[side]
        first = starts[nodes]
        counts = starts[nodes + 1] - first
        skip = first - (counts.cumsum(0) - counts)
        places = torch.repeat_interleave(skip, counts)
        return columns[places + torch.arange(places.numel(), device=places.device)].sort().values

    @cached_property
    def sides(self) -> list[tuple[Tensor, Tensor]]:
        """By source and by target: where each node's edges begin, and the columns in that order."""
        return [
            (row_starts(ends, self.graph.nodes), torch.argsort(ends, stable=True))
            for ends in self.graph.edge_index
        ]


def index_edges(x: Tensor, edge_index: Any, edge_weight: Any = None) -> IndexedEdges:
    """A graph whose nodes are to be explained one after the other, checked and sorted once.

    Pass it to `explain_node` in the place of edge_index: each node then costs what is around it,
    where a bare edge_index is sorted again for every node.
    """
    indexed = IndexedEdges(read_graph(x, edge_index, edge_weight, undirected=False))
    _ = indexed.sides  # Computed here rather than for the first node.
    return indexed


@dataclass(frozen=True)
class DegreeSampler:
    """Units drawn without replacement with probability ∝ (D_i D_j)^-½, by seed.

    The largest of log p + Gumbel noise come first, which is such a draw. It is the sampler of the
    paper's Fig. 5.
    """

    log_weights: Tensor
    name = "degree"
    cost = 0

    def __call__(self, objective: Objective, mask: Tensor) -> Tensor:
        """(1, n) scores; asks for no gradient."""
        noise = torch.rand(
            len(self.log_weights), generator=objective.generator(0), dtype=torch.float64
        )
        gumbel = -torch.log(-torch.log(noise.clamp(1e-300, 1 - 1e-16)))
        return objective.features.spread((self.log_weights + gumbel).to(mask).unsqueeze(0))

    def settings(self) -> dict[str, Any]:
        """Nothing beside the name: degrees are the graph's own."""
        return {}


def degree_sampler(graph: EdgeGraph) -> DegreeSampler:
    """The sampler by a graph's degrees."""
    source, target = graph.edge_index.cpu()
    weight = graph.weight.double().cpu()
    none = torch.zeros(graph.nodes, dtype=torch.float64)
    degree = torch.maximum(none.index_add(0, target, weight), none.index_add(0, source, weight))
    degree = degree.clamp_min(1e-12)
    units = graph.units.cpu()
    log_weights = torch.full((int(units.max()) + 1,), -torch.inf, dtype=torch.float64)
    log_weights[units] = -0.5 * (degree[source].log() + degree[target].log())
    return DegreeSampler(log_weights)


def rows_of(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows of x, dense or sparse."""
    if x.layout not in (torch.strided, torch.sparse_coo):
        x = x.to_sparse_coo()  # type: ignore[no-untyped-call]
    return x.index_select(0, nodes)


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
