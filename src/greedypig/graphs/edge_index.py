"""Finding the edges of a few nodes: by a look at all edges, or in an index that is sorted once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from .edges import Graph, read_graph
from .sparse import row_starts


class Edges(Protocol):
    """A graph that can be asked which edges its nodes have."""

    @property
    def graph(self) -> Graph:
        """The graph, directed."""

    def into(self, nodes: Tensor) -> Tensor:
        """Columns of the edges that end at these nodes, ascending."""

    def out_of(self, nodes: Tensor) -> Tensor:
        """Columns of the edges that begin at these nodes, ascending."""


@dataclass(frozen=True, eq=False)
class ScannedEdges:
    """All edges are looked at for every question: best for a few of them."""

    graph: Graph

    def into(self, nodes: Tensor) -> Tensor:
        """One pass over the targets."""
        return self._at(self.graph.edge_index[1], nodes)

    def out_of(self, nodes: Tensor) -> Tensor:
        """One pass over the sources."""
        return self._at(self.graph.edge_index[0], nodes)

    def _at(self, ends: Tensor, nodes: Tensor) -> Tensor:
        wanted = torch.zeros(self.graph.nodes, dtype=torch.bool, device=ends.device)
        wanted[nodes] = True
        return torch.nonzero(wanted[ends]).squeeze(1)


@dataclass(frozen=True, eq=False)
class IndexedEdges:
    """Edges sorted by their ends: a question costs what its answer holds, however large the graph.

    Made by `gp.index_edges`, and passed to `gp.explain_node` in the place of edge_index.
    """

    graph: Graph

    def into(self, nodes: Tensor) -> Tensor:
        """From the edges by target."""
        return _members(*self._by_target, nodes)

    def out_of(self, nodes: Tensor) -> Tensor:
        """From the edges by source."""
        return _members(*self._by_source, nodes)

    @cached_property
    def _by_target(self) -> tuple[Tensor, Tensor]:
        return _sorted(self.graph.edge_index[1], self.graph.nodes)

    @cached_property
    def _by_source(self) -> tuple[Tensor, Tensor]:
        return _sorted(self.graph.edge_index[0], self.graph.nodes)


@dataclass(frozen=True, eq=False)
class TurnedEdges:
    """The same edges, each in the opposite direction."""

    edges: Edges

    @cached_property
    def graph(self) -> Graph:
        """With source and target exchanged."""
        return self.edges.graph.turned()

    def into(self, nodes: Tensor) -> Tensor:
        """What led away leads there."""
        return self.edges.out_of(nodes)

    def out_of(self, nodes: Tensor) -> Tensor:
        """What led there leads away."""
        return self.edges.into(nodes)


def index_edges(x: Tensor, edge_index: Any, edge_weight: Any = None) -> IndexedEdges:
    """A graph whose nodes are to be explained one after the other, checked and sorted once.

    Pass it to `explain_node` in the place of edge_index: each node then costs what is around it,
    where a bare edge_index is looked through for every node.
    """
    made = IndexedEdges(read_graph(x, edge_index, edge_weight, undirected=False))
    assert made._by_target is not None  # Paid here, not by the first node.
    return made


def _sorted(ends: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Where each node's edges begin, and the columns in that order."""
    return row_starts(ends, nodes), torch.argsort(ends, stable=True)


def _members(starts: Tensor, columns: Tensor, nodes: Tensor) -> Tensor:
    first = starts[nodes]
    counts = starts[nodes + 1] - first
    skip = first - (counts.cumsum(0) - counts)
    places = torch.repeat_interleave(skip, counts)
    return columns[places + torch.arange(places.numel(), device=places.device)].sort().values
