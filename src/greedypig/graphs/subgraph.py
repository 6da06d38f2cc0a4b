"""One node's neighbourhood: the edges whose messages reach it, and growing a subgraph from it.

A network of `hops` layers hears an edge j → i only if i is at most hops − 1 steps from the node.
All edges further out can do is to count in the degree of a node at the rim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.features import Groups
from ..core.objective import PointObjective
from .detect_gcn import rows_of
from .edge_index import Edges
from .edges import Graph


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
    steps: int
    """After how many steps the search ended: fewer than were allowed where nothing is further."""


def neighbourhood(
    edges: Edges,
    x: Tensor,
    node: int,
    hops: int | None,
    undirected: bool | None,
    everywhere: bool = False,
) -> Neighbourhood:
    """Everything at most `hops` steps (None: however many) against the edges from the node.

    everywhere: all nodes and edges of the graph are in it, for a model that hears of them all;
    those that reach the node are the same.
    """
    graph = edges.graph
    source, target = graph.edge_index
    reached = torch.tensor([node], device=target.device)
    steps = 0
    while hops is None or steps < hops:
        near = reached
        found = edges.into(near)
        reached = torch.unique(torch.cat([near, source[found]]))
        steps += 1
        if reached.numel() == near.numel():
            break
    if undirected is not False:
        both = torch.unique(torch.cat([found, edges.out_of(near)]))
        if undirected is None:  # Symmetric where it matters is enough.
            undirected = graph.part(both).symmetric
        found = both if undirected else found
    counted = (
        torch.arange(graph.columns, device=target.device) if everywhere else edges.into(reached)
    )
    counted = counted[~torch.isin(counted, found, assume_unique=True)]
    if everywhere:
        stray = source[counted] == target[counted]
        found, counted = torch.cat([found, counted[stray]]), counted[~stray]
    own = source[found] == target[found]
    reaching, loops = found[~own], found[own]
    columns = torch.cat([reaching, loops, counted])
    if everywhere:
        nodes, centre = torch.arange(graph.nodes, device=target.device), node
        ends, rows = graph.edge_index[:, columns], x
    else:
        at = torch.tensor([node], device=target.device)
        every = torch.cat([at, graph.edge_index[:, columns].reshape(-1)])
        nodes, numbers = torch.unique(every, return_inverse=True)
        centre, ends, rows = int(numbers[0]), numbers[1:].reshape(2, -1), rows_of(x, nodes)
    part = Graph(nodes.numel(), ends, graph.weight[columns], bool(undirected))
    return Neighbourhood(centre, nodes, rows, part, columns, reaching.numel(), steps)


class Reaching:
    """An objective over the edges that reach a node: the first n elements of another one.

    The others only count in degrees at the rim. removing=False: they are always there.
    removing=True: with them all edges but S are absent in G(S), and gradients are those of
    G(S) − G(all edges but S): an edge scores by what it adds to S and by what the rest loses
    without it. Where degrees are recomputed, a few edges alone are a graph unlike any that the
    network was trained on, in which neighbours look alike; the rest of the graph is not.
    """

    batch_size = 1

    def __init__(self, inner: PointObjective, n: int, removing: bool) -> None:
        self.inner, self.n, self.removing = inner, n, removing
        self.dtype, self.device = inner.start.dtype, inner.start.device

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m,) G."""
        return self.inner.values(self._whole(masks, 0.0 if self.removing else 1.0))

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, n) masks → (m,) values of G, (m, n) gradients."""
        whole = self._whole(masks, 0.0 if self.removing else 1.0)
        values, gradients = self.inner.values_and_gradients(whole)
        if self.removing:
            gradients = gradients + self.inner.values_and_gradients(self._whole(1 - masks, 1.0))[1]
        return values, gradients[:, : self.n]

    def _whole(self, masks: Tensor, rim: float) -> Tensor:
        return torch.cat([masks, masks.new_full((len(masks), self.inner.n - self.n), rim)], 1)


class Growing(Groups):
    """Units that may be taken only where they touch what is discovered: the subgraph stays whole.

    The node is discovered, and with every unit taken both of its ends (where edges are directed,
    its source, and it must lead to a discovered node). In a round of several picks each one counts
    for those after it.

    local: the path of a round leads through what the round can take, not through all edges. Where
    degrees are recomputed, a neighbour that is not taken needs none of its own edges; on a path
    through all edges it is half there, and its edges, which damp it, would come first.
    """

    def __init__(self, graph: Graph, node: int, local: bool = False) -> None:
        super().__init__(graph.units)
        self.node, self.undirected, self.local = node, graph.undirected, local
        self.source, self.target = (torch.empty(self.units, dtype=torch.long) for _ in range(2))
        self.source[self.ids], self.target[self.ids] = graph.edge_index.cpu()
        self._touching: dict[int, list[int]] = {}
        sides = (self.target, self.source) if self.undirected else (self.target,)
        for side in sides:
            for unit, end in enumerate(side.tolist()):
                self._touching.setdefault(end, []).append(unit)

    def ahead(self, taken: Tensor, z: int) -> Tensor | None:
        """(n,) bool: what is taken, and what z picks can reach; None for all."""
        if not self.local:
            return None
        on = taken.clone().cpu()
        known = {self.node, *self._ends(torch.nonzero(on).squeeze(1).tolist())}
        new = known
        for _ in range(z):
            units = sorted({unit for node in new for unit in self._touching.get(node, ())})
            on[units] = True
            new = set(self._ends(units)) - known
            known = known | new
            if not new:
                break
        return on.to(taken.device)[self._ids(taken)]

    def pick(self, elements: Tensor, mask: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The z best units that grow the subgraph, one after the other."""
        scores = self.sum(elements)
        chosen = self.pick_units(scores, mask, taken, z)
        return chosen, scores[chosen]

    def pick_units(self, scores: Tensor, mask: Tensor, taken: Tensor, z: int) -> Tensor:
        """The same by scores of whole units; equal scores by lowest index."""
        ranks, on = scores.tolist(), taken.tolist()
        known = {self.node, *self._ends(torch.nonzero(taken).squeeze(1).tolist())}
        chosen: list[int] = []
        while len(chosen) < z:
            first = self._first_steps(known, on, ranks)
            if not first:
                break
            open_now = [unit for unit, step in first.items() if unit == step]
            wanted = max(open_now if self.local else first, key=lambda unit: (ranks[unit], -unit))
            unit = first[wanted]
            chosen.append(unit)
            on[unit] = True
            known.update(self._ends([unit]))
        return torch.tensor(chosen, dtype=torch.long, device=scores.device)

    def _first_steps(self, known: set[int], on: list[bool], ranks: list[float]) -> dict[int, int]:
        """For every unit that is off, the unit to begin with on the shortest way to it."""
        first: dict[int, int] = {}
        reached, nodes = set(known), known
        start: dict[int, int] = {}
        while nodes:
            found: dict[int, int] = {}
            for node in nodes:
                for unit in self._touching.get(node, ()):
                    if not on[unit] and unit not in first:
                        step = start.get(node, unit)
                        other = found.get(unit, step)
                        found[unit] = max(step, other, key=lambda u: (ranks[u], -u))
            first |= found
            nodes = set()
            for unit in sorted(found, key=lambda u: (-ranks[found[u]], found[u])):
                for end in self._ends([unit]):
                    if end not in reached:
                        reached.add(end)
                        nodes.add(end)
                        start[end] = found[unit]
            if self.local:
                break
        return first

    def _ends(self, units: list[int]) -> list[int]:
        sources = self.source[units].tolist()
        return sources + self.target[units].tolist() if self.undirected else sources
