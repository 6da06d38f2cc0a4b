"""One node's neighbourhood: the edges whose messages reach it, and growing a subgraph from it.

A network of L layers depends on an edge j → i only if i is at most L − 1 steps from the node. Edges
further out only count in the degrees of nodes at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.features import Groups
from ..core.numbers import whole
from ..core.objective import Objective
from ..network.frozen import Frozen
from .edge_model import EdgeModel, message_layers, same
from .edges import EdgeGraph, IndexedEdges, rows_of
from .objectives import check_logits

STRANGERS = 8
"""At least so many nodes that no edge joins are added for a check, if the graph has them."""
WHOLE_GRAPH = (
    "The node's output depends on more than the edges within {} steps, as where a norm is taken "
    "over all nodes: the model was run on the whole graph."
)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The part of a graph that the output of a node depends on, its nodes numbered anew."""

    centres: Tensor
    """(1,) the node's number in this part; more where several nodes are explained."""
    nodes: Tensor
    """The ids that the nodes of this part have in the whole graph."""
    x: Tensor
    """Their features."""
    graph: EdgeGraph
    """The candidates, then the edges that are not: loops, those further away, and those that
    count in degrees only. With all of them the node's output is that of the whole graph."""
    columns: Tensor
    """The columns of edge_index that these are."""
    reaching: int
    """How many of them, from the first on, are candidates: they reach the node from another."""
    steps: int
    """After how many steps the search ended: fewer than were allowed where nothing is further."""

    def candidates(self) -> EdgeGraph:
        """The graph of the candidates alone."""
        return self.graph.part(slice(0, self.reaching))


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A model, a graph and nodes (mostly one), around which parts of the graph are cut."""

    frozen: Frozen
    edges: IndexedEdges
    x: Tensor
    centres: Tensor
    undirected: bool | None
    back: bool
    """Do messages go from an edge's target to its source?"""

    def cut(self, hops: int | None, context: int = 0, *, everywhere: bool = False) -> Neighbourhood:
        """Candidates are at most `hops` steps (None: any number) from the node, against the
        messages.

        context: nodes within so many steps are in the part, at least `hops`. everywhere: all nodes
        and edges are.
        """
        edges, graph, centres, undirected = (
            self.edges,
            self.edges.graph,
            self.centres,
            self.undirected,
        )
        arrive = 0 if self.back else 1
        ends, leave = graph.edge_index, 1 - arrive
        reached, steps = torch.unique(centres), 0
        while hops is None or steps < hops:
            near = reached
            candidates = edges.at(near, arrive)
            reached = torch.unique(torch.cat([near, ends[leave][candidates]]))
            steps += 1
            if reached.numel() == near.numel():
                break
        if undirected is not False:
            both = torch.unique(torch.cat([candidates, edges.at(near, leave)]))
            if undirected is None:  # Only the candidates need to be symmetric.
                undirected = graph.part(both).symmetric
            candidates = both if undirected else candidates
        for _ in range(context - steps):
            further = ends[leave][edges.at(reached, arrive)]
            reached = torch.unique(torch.cat([reached, further]))
        others = edges.at(reached, arrive)
        if everywhere:
            others = torch.arange(graph.columns, device=ends.device)
        others = others[~torch.isin(others, candidates, assume_unique=True)]
        loops = ends[0][candidates] == ends[1][candidates]
        columns = torch.cat([candidates[~loops], candidates[loops], others])
        every = torch.cat([centres, ends[:, columns].reshape(-1)])
        nodes, numbers = torch.unique(every, return_inverse=True)
        if everywhere:
            nodes, numbers = torch.arange(graph.nodes, device=ends.device), every
        edge_index = numbers[len(centres) :].reshape(2, -1)
        return Neighbourhood(
            centres=numbers[: len(centres)],
            nodes=nodes,
            x=self.x if everywhere else rows_of(self.x, nodes),
            graph=EdgeGraph(nodes.numel(), edge_index, graph.weight[columns], bool(undirected)),
            columns=columns,
            reaching=int((~loops).sum()),
            steps=steps,
        )

    def on(self, around: Neighbourhood, normalisation: str) -> EdgeModel:
        """The model on a part of the graph."""
        return EdgeModel(self.frozen, around.x, around.graph, normalisation)

    def view(self, hops: int | None, normalisation: str) -> tuple[Neighbourhood, int, str]:
        """The part of the graph that the node's output depends on, the steps to the furthest
        candidate, and a note, which may be empty.

        Layers tell how far messages go, not whether a node also depends on all others at once, as
        through a norm over all nodes. So the output on the part is compared with that on a wider
        one, with other nodes beside it; where they differ, the whole graph is taken.
        """
        near = self.on(self.cut(1), normalisation)
        depth = depth_of(self.frozen, near.logits)
        steps = depth if hops is None else hops
        if steps is None:
            raise InvalidInput(
                "Expected hops, the number of layers that pass messages, for a model whose layers "
                "are not PyG's (got None). Try hops=3."
            )
        context = max(steps, depth or 0)
        around = self.cut(steps, context)
        stack = self.on(around, normalisation).stack if around.reaching else None
        if stack is not None and len(stack.layers) <= context:
            return around, steps, ""
        wider = with_strangers(self.cut(steps, context + 1), self.x)
        if same(self._output(around, normalisation), self._output(wider, normalisation)):
            return around, steps, ""
        around = self.cut(hops, everywhere=True)
        return around, hops or around.steps, WHOLE_GRAPH.format(context)

    def _output(self, around: Neighbourhood, normalisation: str) -> Tensor:
        logits = self.on(around, normalisation).logits()
        check_logits(logits)
        return logits[around.centres]


def with_strangers(around: Neighbourhood, x: Tensor) -> Neighbourhood:
    """The neighbourhood with about as many other nodes as it has, without any of their edges."""
    count, here = x.shape[0], around.nodes
    wanted = min(count, 2 * here.numel() + STRANGERS)
    spread = torch.arange(wanted, device=here.device) * count // wanted
    others = spread[~torch.isin(spread, here)]
    if others.numel() == 0:  # The first that is not in it, if there is one.
        missing = torch.ones(count, dtype=torch.bool, device=here.device)
        missing[here] = False
        others = torch.nonzero(missing).squeeze(1)[:1]
    nodes = torch.cat([here, others])
    graph = replace(around.graph, nodes=nodes.numel())
    return replace(around, nodes=nodes, x=rows_of(x, nodes), graph=graph)


def depth_of(network: Frozen, run: Callable[[], Any]) -> int | None:
    """How many steps messages go: the message-passing layers that `run` calls; None without any."""
    declared = getattr(network.module, "gcn_layers", None)
    if callable(declared):
        return len(declared())
    layers = message_layers(network)
    if not layers:
        return None
    if not network.held:  # A layer may be called several times, or not at all.
        with _counting(layers) as calls:
            run()
        layers = calls or layers
    # K of APPNP, SGConv, TAGConv and ChebConv: so many steps in one layer.
    return sum(max(1, whole(getattr(m, "K", 1)) or 1) for m in layers)


@contextmanager
def _counting(layers: list[Any]) -> Iterator[list[Any]]:
    """The layers in the order of their calls."""
    calls: list[Any] = []
    handles = [m.register_forward_pre_hook(lambda m, _: calls.append(m)) for m in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def flows_back(network: Frozen) -> bool:
    """Do messages go from an edge's target to its source (PyG's flow="target_to_source")?"""
    flows = {layer.flow for layer in message_layers(network) if hasattr(layer, "flow")}
    if len(flows) > 1:
        raise InvalidInput(
            f"Expected layers of one flow (got {', '.join(sorted(map(str, flows)))}), which tells "
            "the edges that reach a node. Try explain_edges with nodes=[node]."
        )
    return flows == {"target_to_source"}


class NodeObjective(Objective):
    """An objective over a node's candidates: the first n columns of another objective.

    removing=False: the other columns are always present. removing=True: with them all edges but S
    are absent in G(S), and gradients are those of G(S) − G(all edges but S): an edge scores by
    what it adds to S and by what the rest loses without it. Where degrees are recomputed, a few
    edges alone are a graph unlike any that the network was trained on, in which neighbours look
    alike; the rest of the graph is not.
    """

    def __init__(self, inner: Objective, n: int, *, removing: bool) -> None:
        start = inner.start[..., :n]
        super().__init__(inner.function, start, torch.ones_like(start), batch_size=1)
        self.inner, self.removing = inner, removing

    def values(self, masks: Tensor, /) -> Tensor:
        """(1, s, n) masks → (1, s): G."""
        return self.inner.values(self._whole(masks, 0.0 if self.removing else 1.0))

    def gradient(self, masks: Tensor, weights: Tensor, /) -> Tensor:
        """(1, s, n) masks, (s,) weights → (1, n)."""
        masks = masks.to(self.end)
        total = self.inner.gradient(self._whole(masks, 0.0 if self.removing else 1.0), weights)
        if self.removing:
            total = total + self.inner.gradient(self._whole(1 - masks, 1.0), weights)
        self._shared["gradients"] += masks.shape[1]
        return total[:, : self.n]

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(1, s, n) masks → (1, s) and (1, s, n), one mask at a time."""
        one = masks.new_ones(1)
        gradients = [self.gradient(masks[:, k : k + 1], one) for k in range(masks.shape[1])]
        return self.values(masks), torch.stack(gradients, 1)

    def _whole(self, masks: Tensor, others: float) -> Tensor:
        rest = masks.new_full((*masks.shape[:2], self.inner.n - self.n), others)
        return torch.cat([masks, rest], 2)


class Growing(Groups):
    """Pairs of nodes that may be taken only where they touch the subgraph that grows from a node.

    The node is known, and with every pair taken both of its ends (where edges are directed, the
    end that messages leave from, and they must arrive at a known node). In a round of several
    picks each one counts for those after it.

    local: the path of a round leads through what the round can take, not through all edges. Where
    degrees are recomputed, a neighbour that is not taken needs none of its own edges; on a path
    through all edges it is half present, and its edges, which damp it, would come first.
    """

    side_by_side = False

    def __init__(self, around: Neighbourhood, *, local: bool = False, back: bool = False) -> None:
        graph = around.candidates()
        super().__init__(graph.units)
        self.centres, self.undirected, self.local = around.centres.tolist(), graph.undirected, local
        ends = graph.edge_index.flip(0) if back else graph.edge_index
        self.source, self.target = (torch.empty(self.units, dtype=torch.long) for _ in range(2))
        self.source[self.ids], self.target[self.ids] = ends.cpu()
        self._touching: dict[int, list[int]] = {}
        sides = (self.target, self.source) if self.undirected else (self.target,)
        for side in sides:
            for unit, end in enumerate(side.tolist()):
                self._touching.setdefault(end, []).append(unit)

    def goal(self, taken: Tensor, z: int) -> Tensor | None:
        """(1, n) bool: what is taken, and what z picks can reach; None for all."""
        if not self.local:
            return None
        within = taken[0].cpu().clone()
        known = new = self._known(within)
        for _ in range(z):
            units = sorted({unit for node in new for unit in self._touching.get(node, ())})
            within[units] = True
            new = set(self._ends(units)) - known
            known = known | new
            if not new:
                break
        return self.mask(within.to(taken.device).unsqueeze(0))

    def pick_units(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The z best units that grow the subgraph, one after the other; ties by lowest index."""
        ranks, on = scores[0].tolist(), taken[0].tolist()
        known = self._known(taken[0])
        chosen: list[int] = []
        while len(chosen) < z:
            first = self._first_steps(known, on, ranks)
            if not first:
                break
            unit = first[max(first, key=lambda unit: (ranks[unit], -unit))]
            chosen.append(unit)
            on[unit] = True
            known.update(self._ends([unit]))
        best = torch.tensor([chosen], dtype=torch.long, device=scores.device)
        return best, scores.gather(1, best)

    def _known(self, taken: Tensor) -> set[int]:
        return {*self.centres, *self._ends(torch.nonzero(taken).squeeze(1).tolist())}

    def _first_steps(self, known: set[int], on: list[bool], ranks: list[float]) -> dict[int, int]:
        """The first unit on the shortest way to every unit that is not taken.

        local: only for the units that touch the subgraph, which are their own first step.
        """
        first: dict[int, int] = {}
        reached, nodes = set(known), known
        start: dict[int, int] = {}
        while nodes:
            steps: dict[int, int] = {}
            for node in nodes:
                for unit in self._touching.get(node, ()):
                    if not on[unit] and unit not in first:
                        step = start.get(node, unit)
                        other = steps.get(unit, step)
                        steps[unit] = max(step, other, key=lambda u: (ranks[u], -u))
            first |= steps
            nodes = set()
            for unit in sorted(steps, key=lambda u: (-ranks[steps[u]], steps[u])):
                for end in self._ends([unit]):
                    if end not in reached:
                        reached.add(end)
                        nodes.add(end)
                        start[end] = steps[unit]
            if self.local:
                break
        return first

    def _ends(self, units: list[int]) -> list[int]:
        sources = self.source[units].tolist()
        return sources + self.target[units].tolist() if self.undirected else sources
