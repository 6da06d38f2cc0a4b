"""One node's neighbourhood: the edges whose messages reach it, and growing a subgraph from it.

A network of `hops` layers hears an edge j → i only if i is at most hops − 1 steps from the node.
All edges further out can do is to count in the degree of a node at the rim.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.features import Groups
from ..core.objective import PointObjective
from ..core.schedule import check_count, whole
from ..frozen import Frozen
from .edge_index import Edges
from .graph import Graph
from .recognise import rows_of


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """What one node's answer rests on, numbered anew."""

    node: int
    """The node's number in here."""
    nodes: Tensor
    """The ids that the nodes in here have in the whole graph."""
    x: Tensor
    """Their features."""
    graph: Graph
    """The edges whose messages reach the node and, behind them, those that only count in degrees
    at the rim: with all of them the node's answer is that in the whole graph."""
    columns: Tensor
    """The columns of edge_index that these are."""
    reaching: int
    """How many of them, from the first on, reach the node from another one."""
    loops: int
    """How many after those lead from a node to itself; they are always on."""

    def within(self) -> Graph:
        """The edges that reach the node and the loops, without those that only count."""
        return self.graph.part(slice(0, self.reaching + self.loops))


def neighbourhood(
    edges: Edges, x: Tensor, node: int, hops: int, undirected: bool | None
) -> Neighbourhood:
    """Everything at most `hops` steps against the edges' direction from the node."""
    graph = edges.graph
    source, target = graph.edge_index
    reached = torch.tensor([node], device=target.device)
    for _ in range(hops):
        near = reached
        found = edges.into(near)
        reached = torch.unique(torch.cat([near, source[found]]))
    if undirected is not False:
        both = torch.unique(torch.cat([found, edges.out_of(near)]))
        if undirected is None:  # Symmetric where it matters is enough.
            undirected = graph.part(both).symmetric
        found = both if undirected else found
    counted = edges.into(reached)
    counted = counted[~torch.isin(counted, found, assume_unique=True)]
    own = source[found] == target[found]
    reaching, loops = found[~own], found[own]
    columns = torch.cat([reaching, loops, counted])
    centre = torch.tensor([node], device=target.device)
    ends = torch.cat([centre, graph.edge_index[:, columns].reshape(-1)])
    nodes, numbers = torch.unique(ends, return_inverse=True)
    part = Graph(nodes.numel(), numbers[1:].reshape(2, -1), graph.weight[columns], bool(undirected))
    return Neighbourhood(
        int(numbers[0]), nodes, rows_of(x, nodes), part, columns, reaching.numel(), loops.numel()
    )


def depth_of(network: Frozen) -> int:
    """How many steps away a model hears, from its layers."""
    module = network.module
    declared = getattr(module, "gcn_layers", None)
    if callable(declared):
        return len(declared())
    layers = [m for m in ([] if module is None else module.modules()) if _passes_messages(m)]
    if not layers:
        raise InvalidInput(
            "Expected hops, the number of layers that pass messages, for a model whose layers are "
            "not PyG's (got None). Try hops=3."
        )
    # K of APPNP, SGConv, TAGConv and ChebConv: so many steps in one layer.
    return sum(max(1, whole(getattr(m, "K", 1)) or 1) for m in layers)


def flows_back(network: Frozen) -> bool:
    """Do messages go from an edge's target to its source (PyG's flow="target_to_source")?"""
    modules = [] if network.module is None else network.module.modules()
    flows = {m.flow for m in modules if _passes_messages(m) and hasattr(m, "flow")}
    if len(flows) > 1:
        raise InvalidInput(
            f"Expected layers of one flow (got {', '.join(sorted(map(str, flows)))}): which edges "
            "reach a node cannot be told. Try explain_edges with nodes=[node]."
        )
    return flows == {"target_to_source"}


def _passes_messages(module: Any) -> bool:
    return hasattr(module, "propagate") and hasattr(module, "_edge_mask")


def check_hops(hops: int | None, network: Frozen) -> int:
    """The given number of hops, else the model's depth."""
    if hops is None:
        return depth_of(network)
    hops = whole(hops)
    check_count("hops", hops)
    return hops


class Pinned:
    """An objective over the first n elements of another one, whose others are always on."""

    batch_size = 1

    def __init__(self, inner: PointObjective, n: int) -> None:
        self.inner, self.n = inner, n
        self.dtype, self.device = inner.start.dtype, inner.start.device

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m,)."""
        return self.inner.values(self._whole(masks))

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, n) masks → (m,) values, (m, n) gradients."""
        values, gradients = self.inner.values_and_gradients(self._whole(masks))
        return values, gradients[:, : self.n]

    def _whole(self, masks: Tensor) -> Tensor:
        return torch.cat([masks, masks.new_ones(len(masks), self.inner.n - self.n)], 1)


class Growing(Groups):
    """Units that may be taken only where they touch what is discovered: the subgraph stays whole.

    The node is discovered, and with every unit taken both of its ends (where edges are directed,
    its source, and it must lead to a discovered node). In a round of several picks each one counts
    for those after it.
    """

    def __init__(self, graph: Graph, node: int) -> None:
        super().__init__(graph.units)
        self.node, self.undirected = node, graph.undirected
        self.source, self.target = (torch.empty(self.units, dtype=torch.long) for _ in range(2))
        self.source[self.ids], self.target[self.ids] = graph.edge_index.cpu()
        self._touching: dict[int, list[int]] = {}
        sides = (self.target, self.source) if self.undirected else (self.target,)
        for side in sides:
            for unit, end in enumerate(side.tolist()):
                self._touching.setdefault(end, []).append(unit)

    def pick(self, elements: Tensor, mask: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The z best units that grow the subgraph, one after the other."""
        scores = self.sum(elements)
        chosen = self.pick_units(scores, mask, taken, z)
        return chosen, scores[chosen]

    def pick_units(self, scores: Tensor, mask: Tensor, taken: Tensor, z: int) -> Tensor:
        """The same by scores of whole units; equal scores by lowest index."""
        ranks, on = scores.tolist(), taken.tolist()
        known = {self.node, *self._ends(torch.nonzero(taken).squeeze(1).tolist())}
        seen: set[int] = set()
        heap: list[tuple[float, int]] = []

        def open_up(nodes: set[int]) -> None:
            for node in nodes:
                for unit in self._touching.get(node, ()):
                    if unit not in seen and not on[unit]:
                        seen.add(unit)
                        heappush(heap, (-ranks[unit], unit))

        open_up(known)
        chosen: list[int] = []
        while heap and len(chosen) < z:
            unit = heappop(heap)[1]
            chosen.append(unit)
            new = set(self._ends([unit])) - known
            known |= new
            open_up(new)
        return torch.tensor(chosen, dtype=torch.long, device=scores.device)

    def _ends(self, units: list[int]) -> list[int]:
        sources = self.source[units].tolist()
        return sources + self.target[units].tolist() if self.undirected else sources
