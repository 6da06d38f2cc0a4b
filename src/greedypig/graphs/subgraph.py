"""One node's neighbourhood: the edges whose messages reach it, and growing a subgraph from it.

A network of L layers depends on an edge j → i only if i is at most L − 1 steps from the node. Edges
further out only count in the degrees of nodes at the border.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput
from ..core.features import Groups
from ..core.numbers import whole
from ..core.objective import Objective, OwnGradient
from ..core.two_sided import with_sides
from ..network.frozen import Frozen
from .edge_model import EdgeModel, fitting_model, message_layers, same
from .edges import EdgeGraph, rows_of
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
    graph: EdgeGraph
    """The whole graph, read as directed."""
    x: Tensor
    centres: Tensor

    def view(
        self, hops: int | None, normalisation: str | None
    ) -> tuple[Neighbourhood, EdgeModel, int, str]:
        """The part of the graph that the node's output depends on, the model on it, the steps to
        the furthest candidate, and a note, which may be empty.

        The layers say how far messages go, but a node may also depend on all others at once, as
        through a norm over all nodes. So the output on the part is compared with that on a wider
        one, with other nodes beside it; where they differ, the whole graph is taken.
        """
        close = self.cut(2)
        model = fitting_model(self.frozen, close.x, close.graph, normalisation)
        depth = _depth(self.frozen, model)
        steps = depth if hops is None else hops
        if steps is None:
            raise InvalidInput(
                "Expected ",
                Argument("hops"),
                ", the number of layers that pass messages, for a model whose layers are not "
                "PyG's (got None).",
                advice=Argument("hops", 3),
            )
        context = max(steps, depth or 0)
        around = self.cut(steps, context)
        model = EdgeModel(self.frozen, around.x, around.graph, model.normalisation)
        if around.reaching and model.stack is not None and len(model.stack.layers) <= context:
            return around, model, steps, ""
        wider = _with_strangers(self.cut(steps, context + 1), self.x)
        wider_model = EdgeModel(self.frozen, wider.x, wider.graph, model.normalisation)
        if same(_output(model, around), _output(wider_model, wider)):
            return around, model, steps, ""
        around = self.cut(hops, everywhere=True)
        model = EdgeModel(self.frozen, around.x, around.graph, model.normalisation)
        return around, model, hops or around.steps, WHOLE_GRAPH.format(context)

    def cut(self, hops: int | None, context: int = 0, *, everywhere: bool = False) -> Neighbourhood:
        """Candidates are at most `hops` steps (None: any number) from the node, against the
        messages.

        context: nodes within so many steps are in the part, at least `hops`. everywhere: all nodes
        and edges are.
        """
        graph, centres = self.graph, self.centres
        source, device = graph.edge_index[0], centres.device
        reached, steps = torch.unique(centres), 0
        while hops is None or steps < hops:
            near = reached
            candidates = graph.at(near, 1)
            reached = torch.unique(torch.cat([near, source[candidates]]))
            steps += 1
            if reached.numel() == near.numel():
                break
        undirected = graph.paired
        if undirected is not False:
            both = torch.unique(torch.cat([candidates, graph.at(near, 0)]))
            if undirected is None:  # Only the candidates need to be symmetric.
                undirected = graph.part(both).symmetric
            candidates = both if undirected else candidates
        for _ in range(context - steps):
            reached = torch.unique(torch.cat([reached, source[graph.at(reached, 1)]]))
        others = torch.arange(graph.columns, device=device) if everywhere else graph.at(reached, 1)
        others = others[~torch.isin(others, candidates, assume_unique=True)]
        loops = graph.loops[candidates]
        columns = torch.cat([candidates[~loops], candidates[loops], others])
        numbers = torch.cat([centres, graph.edge_index[:, columns].reshape(-1)])
        nodes = torch.arange(graph.nodes, device=device)
        if not everywhere:
            nodes, numbers = torch.unique(numbers, return_inverse=True)
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


def _with_strangers(around: Neighbourhood, x: Tensor) -> Neighbourhood:
    """The neighbourhood with about as many other nodes as it has, without any of their edges."""
    missing = torch.ones(x.shape[0], dtype=torch.bool, device=x.device)
    missing[around.nodes] = False
    others = torch.nonzero(missing).squeeze(1)[: around.nodes.numel() + STRANGERS]
    nodes = torch.cat([around.nodes, others])
    graph = replace(around.graph, nodes=nodes.numel())
    return replace(around, nodes=nodes, x=rows_of(x, nodes), graph=graph)


def _output(model: EdgeModel, around: Neighbourhood) -> Tensor:
    logits = model.logits()
    check_logits(logits)
    rows: Tensor = logits[around.centres]
    return rows


def _depth(network: Frozen, model: EdgeModel) -> int | None:
    """How many steps messages go: the message-passing layers that a forward pass calls."""
    declared = getattr(network.module, "gcn_layers", None)
    if callable(declared):
        return len(declared())
    layers = message_layers(network)
    if not layers:
        return None
    if any(getattr(layer, "flow", "") == "target_to_source" for layer in layers):
        raise InvalidInput(
            "Expected layers whose messages flow from source to target (got target_to_source). "
            "Try explain_edges with nodes=[node]."
        )
    if not network.held:  # A layer may be called several times, or not at all.
        calls: list[Any] = []
        hooks = [m.register_forward_pre_hook(lambda m, _: calls.append(m)) for m in layers]
        try:
            with torch.no_grad():
                model.output(model.graph.weight)
        finally:
            for hook in hooks:
                hook.remove()
        layers = calls or layers
    # K of APPNP, SGConv, TAGConv and ChebConv: so many steps in one layer.
    return sum(max(1, whole(getattr(m, "K", 1)) or 1) for m in layers)


class NodeObjective(OwnGradient):
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
        self.sides = 2 if removing else inner.sides
        self._shared = inner._shared  # What the inner objective costs is what this one costs.

    @staticmethod
    def of(inner: Objective, n: int, removing: bool, both: bool) -> Objective:
        """The objective; both: with G(all edges) − G(all edges but S) added."""
        if removing:
            return NodeObjective(with_sides(inner, both), n, removing=True)
        return with_sides(NodeObjective(inner, n, removing=False), both)

    def values(self, masks: Tensor, /) -> Tensor:
        """(1, s, n) masks → (1, s): G."""
        return self.inner.values(self._whole(masks, 0.0 if self.removing else 1.0))

    def gradient(self, masks: Tensor, weights: Tensor, /, *, step: int = 0) -> Tensor:
        """(1, s, n) masks, (s,) weights → (1, n)."""
        masks = masks.to(self.end)
        whole = self._whole(masks, 0.0 if self.removing else 1.0)
        total = self.inner.gradient(whole, weights, step=step)
        if self.removing and self.inner.sides == 1:
            whole = self._whole(1 - masks, 1.0)
            total = total + self.inner.gradient(whole, weights, step=step)
        return total[:, : self.n]

    def _whole(self, masks: Tensor, others: float) -> Tensor:
        rest = masks.new_full((*masks.shape[:2], self.inner.n - self.n), others)
        return torch.cat([masks, rest], 2)


class Growing(Groups):
    """Pairs of nodes that may be taken only where they touch the subgraph that grows from a node.

    The node is known, and with every pair taken both of its ends (where edges are directed, the
    end that messages leave from, and they must arrive at a known node). In a round of several
    picks each one counts for those after it.

    local: the path of a round leads through what the round can take, and the best of these is
    taken. Where degrees are recomputed, a neighbour that is not taken needs none of its own edges;
    on a path through all edges it is half present, and its edges, which damp it, would come first.
    Otherwise the path leads to all edges, and the best one is taken, or the first on the way to it.
    """

    side_by_side = False

    def __init__(self, around: Neighbourhood, *, local: bool) -> None:
        graph = around.candidates()
        super().__init__(graph.feature_ids)
        self.nodes, self.centres, self.local = graph.nodes, around.centres.cpu(), local
        ends = torch.empty(2, self.count, dtype=torch.long)
        ends[:, self.ids.cpu()] = graph.edge_index.cpu()
        self.discovered = ends if graph.undirected else ends[:1]
        """The nodes that become known with every feature."""
        self.needed = ends if graph.undirected else ends[1:]
        """The nodes of which one must be known before a feature can be taken."""

    def goal(self, taken: Tensor, z: int) -> Tensor | None:
        """(1, n) bool: what is taken, and what z picks can reach; None for all."""
        if not self.local:
            return None
        within = taken[0].cpu()
        for _ in range(z):
            larger = within | self._within_reach(within)
            if torch.equal(larger, within):
                break
            within = larger
        return self.mask(within.to(taken.device).unsqueeze(0))

    def pick_features(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The z best features that grow the subgraph, one after the other; ties by lowest index."""
        order = torch.argsort(scores[0].cpu(), descending=True, stable=True)
        on = taken[0].cpu().clone()
        chosen = []
        for _ in range(min(z, int((~on).sum()))):
            allowed = ~on & self._within_reach(on) if self.local else ~on
            feature = order[allowed[order]][0]
            if not self.local:
                first = self._first_steps(feature, on)
                feature = order[first[order]][0]
            on[feature] = True
            chosen.append(int(feature))
        best = torch.tensor([chosen], dtype=torch.long, device=scores.device)
        return best, scores.gather(1, best)

    def _within_reach(self, on: Tensor) -> Tensor:
        """(features,) bool: the features that touch the node or what these features make known."""
        return self._flagged(self.centres, self.discovered[:, on])[self.needed].any(0)

    def _first_steps(self, feature: Tensor, on: Tensor) -> Tensor:
        """(features,) bool: the first ones on the shortest ways from what is known to a feature."""
        within_reach = self._within_reach(on)
        steps = torch.zeros_like(on)
        steps[feature] = True
        while not (steps & within_reach).any():  # Every candidate is joined to the node.
            before = self._flagged(self.needed[:, steps])[self.discovered].any(0)
            steps = before & ~on
        return steps & within_reach

    def _flagged(self, *ids: Tensor) -> Tensor:
        """(nodes,) bool: is the node one of these?"""
        flags = torch.zeros(self.nodes, dtype=torch.bool)
        for some in ids:
            flags[some] = True
        return flags
