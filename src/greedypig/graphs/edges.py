"""The edges of a graph as features, finding the edges of a node, and sampling by degree.

A value is a column of edge_index. A feature is a pair of nodes with all
columns between them, of one direction or, in an undirected graph, of both. An edge from a node to
itself is no connection: it is always present, and its score is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType
from ..core.features import Elements, Features, Groups
from ..core.layout import check_plain
from ..core.objective import Objective
from ..core.rounds import Round
from ..core.scorers import OneShot
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
    """Are both directions of a pair one feature?"""
    paired: bool | None = None
    """The same of the parts around a node, which are cut from a directed graph; None where that is
    to be looked at."""

    @property
    def columns(self) -> int:
        """How many columns edge_index has."""
        return self.edge_index.shape[1]

    def part(self, columns: Tensor | slice) -> EdgeGraph:
        """The same nodes with these columns alone."""
        return replace(self, edge_index=self.edge_index[:, columns], weight=self.weight[columns])

    @cached_property
    def loops(self) -> Tensor:
        """(columns,) bool: does the edge lead from a node to itself?"""
        return self.edge_index[0] == self.edge_index[1]

    @cached_property
    def symmetric(self) -> bool:
        """Has every edge its reverse, as often and with the same weights?"""
        (there, one), (back, other) = (self._sorted(ends) for ends in (0, 1))
        return torch.equal(there, back) and torch.equal(one, other)

    @cached_property
    def reversible(self) -> bool:
        """Has every edge its reverse, however often and with whatever weights?"""
        there, back = (torch.unique(self._sorted(ends)[0]) for ends in (0, 1))
        return torch.equal(there, back)

    def _sorted(self, first: int) -> tuple[Tensor, Tensor]:
        """Pairs of ends, named by one number each, and their weights, in order of both."""
        keys = self.edge_index[first] * self.nodes + self.edge_index[1 - first]
        order = self.weight.argsort()
        order = order[keys[order].argsort(stable=True)]
        return keys[order], self.weight[order]

    @cached_property
    def feature_ids(self) -> Tensor:
        """(columns,) long: the feature of every column, numbered by first appearance."""
        low, high = self.edge_index
        if self.undirected:
            low, high = torch.minimum(low, high), torch.maximum(low, high)
        ids = torch.unique(low * self.nodes + high, return_inverse=True)[1]
        places = torch.arange(self.columns, device=ids.device)
        first = torch.full_like(ids, self.columns).scatter_reduce_(0, ids, places, "amin")
        return torch.argsort(torch.argsort(first))[ids]

    def features(self) -> Features:
        """What is selected."""
        if self.columns == 0 or int(self.feature_ids.max()) + 1 == self.columns:
            return Elements(self.columns)
        return Groups(self.feature_ids)

    @cached_property
    def sides(self) -> list[tuple[Tensor, Tensor]]:
        """By source and by target: where each node's edges begin, and the columns in that order."""
        return [
            (row_starts(ends, self.nodes), torch.argsort(ends, stable=True))
            for ends in self.edge_index
        ]

    def at(self, nodes: Tensor, side: int) -> Tensor:
        """Columns of the edges whose source (side 0) or target (side 1) is one of these nodes,
        ascending. Once sorted, finding the edges of a few nodes costs what they have."""
        starts, columns = self.sides[side]
        first = starts[nodes]
        counts = starts[nodes + 1] - first
        skip = first - (counts.cumsum(0) - counts)
        places = torch.repeat_interleave(skip, counts)
        return columns[places + torch.arange(places.numel(), device=places.device)].sort().values


def read_graph(
    x: Any, edge_index: Any, edge_weight: Any = None, undirected: bool | None = None
) -> EdgeGraph:
    """Check the edges; undirected=None looks whether every edge has its reverse."""
    if not isinstance(x, Tensor):
        raise InvalidType(
            f"Expected node features x as a tensor (got {type(x).__name__}). "
            "Try torch.as_tensor(x, dtype=torch.float32)."
        )
    if x.is_meta:  # Sparse features are fine.
        check_plain("node features x", x)
    if x.dim() < 1 or x.shape[0] == 0:
        raise InvalidInput(f"Expected x with one row per node (got shape {tuple(x.shape)}).")
    edge_index, nodes = torch.as_tensor(edge_index), x.shape[0]
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InvalidInput(
            f"Expected edge_index of shape (2, edges) (got {tuple(edge_index.shape)}). "
            "Try edge_index.T for one edge per row."
        )
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise InvalidType(f"Expected whole node ids in edge_index (got {edge_index.dtype}).")
    edge_index = edge_index.detach().to(dtype=torch.long, device=x.device)
    wrong = edge_index[(edge_index < 0) | (edge_index >= nodes)]
    if wrong.numel():
        raise InvalidInput(
            f"Expected node ids from 0 to {nodes - 1}, the rows of x (got {int(wrong[0])})."
        )
    weight = _weights(edge_weight, edge_index.shape[1], x)
    graph = EdgeGraph(nodes, edge_index, weight, bool(undirected))
    return replace(graph, undirected=graph.symmetric) if undirected is None else graph


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


def index_edges(
    x: Tensor,
    edge_index: Tensor | Sequence[Sequence[int]],
    edge_weight: Tensor | Sequence[float] | None = None,
    *,
    undirected: bool | None = None,
) -> EdgeGraph:
    """A graph whose nodes are to be explained one after the other, checked and sorted once.

    Pass it to `explain_node` in the place of edge_index: each node then costs what is around it,
    where a bare edge_index is sorted again for every node. undirected: both directions of a pair
    are one feature; None looks, around each node, whether the edges are symmetric.
    """
    graph = read_graph(x, edge_index, edge_weight, undirected=False)
    graph = replace(graph, paired=undirected)
    _ = graph.sides  # Computed here rather than for the first node.
    return graph


class EdgeObjective(Objective):
    """g(mask) = value(logits(mask)) over the columns of edge_index."""

    def __init__(
        self,
        graph: EdgeGraph,
        logits: Callable[[Tensor], Any],
        value: Callable[[Tensor], Tensor],
    ) -> None:
        self.graph = graph
        # One row at a time: a row is a pass over the whole graph.
        start = torch.zeros_like(graph.weight).reshape(1, 1, -1)
        super().__init__(
            lambda points, _: torch.stack([value(logits(point)) for point in points]),
            start,
            torch.ones_like(start),
            batch_size=1,
        )


@dataclass(frozen=True)
class DegreeSampler(OneShot):
    """Edges drawn without replacement with probability ∝ (D_i D_j)^-½, by seed.

    The largest of log p + Gumbel noise come first, which is such a draw. It is the sampler of the
    paper's Fig. 5.
    """

    name = "degree"

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """(1, n) scores; asks for no gradient."""
        if not isinstance(objective.plain, EdgeObjective):
            raise InvalidInput(
                f"Expected all edges of a graph for method {self.name!r} (got another input). "
                "Try gp.explain_edges, or method 'random'."
            )
        log_weights, drawing = _log_weights(objective.plain.graph), round.generator(0, 0)
        noise = torch.rand(len(log_weights), generator=drawing, dtype=torch.float64)
        gumbel = -torch.log(-torch.log(noise.clamp(1e-300, 1 - 1e-16)))
        return round.features.spread((log_weights + gumbel).to(round.mask).unsqueeze(0))


def _log_weights(graph: EdgeGraph) -> Tensor:
    """log (D_i D_j)^-½ of every feature."""
    source, target = graph.edge_index.cpu()
    weight, none = graph.weight.double().cpu(), torch.zeros(graph.nodes, dtype=torch.float64)
    degree = torch.maximum(none.index_add(0, target, weight), none.index_add(0, source, weight))
    log_degree = degree.clamp_min(1e-12).log()
    log_weights = torch.zeros(graph.features().count, dtype=torch.float64)
    log_weights[graph.feature_ids.cpu()] = -0.5 * (log_degree[source] + log_degree[target])
    return log_weights


def rows_of(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows of x, dense or sparse."""
    if x.layout not in (torch.strided, torch.sparse_coo):
        x = x.to_sparse_coo()  # type: ignore[no-untyped-call]
    return x.index_select(0, nodes)
