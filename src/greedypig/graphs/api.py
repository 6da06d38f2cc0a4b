"""One call from a graph network and a graph to the edges that its answers rest on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution, StopReason
from ..core.errors import InvalidInput, InvalidType
from ..core.features import Elements
from ..core.layout import Layout
from ..core.lockstep import Undisturbed
from ..core.objective import PointObjective, as_objective
from ..core.quadrature import Rule
from ..core.rounds import Problem, Rounds, ValuesWanted
from ..core.schedule import check_count, whole
from ..core.stopping import Stop
from ..network.frozen import freeze
from ..tensors import methods
from ..tensors.runs import carry_out
from .edge_index import Edges, IndexedEdges, ScannedEdges, TurnedEdges
from .edges import read_graph
from .objectives import NodeTarget, check_logits
from .receptive_field import Reach, check_hops, depth_of, flows_back, reach_of, unknown_depth
from .runs import NODE_RULE, NODE_STEPS, EdgeNetwork, Plan, naming_weights, settled
from .subgraph import Growing, Neighbourhood, Reaching, neighbourhood


def explain_edges(
    model: Callable[..., Any],
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    *,
    objective: Any = "log-likelihood",
    labels: Any = None,
    nodes: Any = None,
    undirected: bool | None = None,
    normalisation: str | None = None,
    method: Any = "greedy-pig",
    rounds: int | None = None,
    steps: int | None = None,
    schedule: str | Sequence[int] | None = None,
    per_round: int | None = None,
    k: int | None = None,
    ratio: float | None = None,
    rule: str | Rule | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    seed: int = 0,
    optimize: bool = True,
    values: ValuesWanted = "end",
    resume: Attribution | str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[Rounds], object] = False,
) -> Attribution:
    """Which edges do the model's answers rest on? `mask(k)` says which columns of edge_index stay.

    model: called as model(x, edge_index, edge_weight) → one row of logits per node; never changed.
    x: node features, one row per node. edge_index (2, edges): source and target of every edge.
    edge_weight: weights the graph has already; they are scaled, not replaced.
    objective: the mean over nodes of "log-likelihood" (of the classes that the model gives them
        in the full graph), "softmax" (the probability of those), "expected-log-likelihood" (the
        paper's Eq. 5: under the full graph's probabilities), "label-loss" (log-probability of
        `labels`), or a callable from logits to a number.
    nodes: ids or a mask of the nodes that count; None for all.
    undirected: both directions of a pair are one unit; None looks whether the graph is symmetric.
    normalisation: what an absent edge is: "recomputed", it has weight 0 and degrees are counted
        without it, or "kept", its messages alone are masked. None takes "recomputed", and "kept"
        with a warning where weight 0 is no removed edge to the model (attention, edge features)
        or the model takes no weights.
    method: "greedy-pig", "sequential-gradient", "ig", "gradient", "random", "degree" (drawn with
        probability ∝ (D_i D_j)^-½), a scorer, or gp.Greedy(scorer).
    optimize: use the hand-written gradient where the model is found to be a stack of graph
        convolutions and both agree on a part of the graph.
    rounds, steps, schedule, rule: by default 33 geometric rounds of 3 nodes of "gauss-radau",
        99 gradients; other steps take as many rounds as make 100.
    The rest is as in `explain`.
    """
    plan = Plan(
        method, steps, rule,
        {"rounds": rounds, "per_round": per_round, "k": k, "schedule": schedule, "ratio": ratio},
        Stop(budget, seconds, reach, gain), seed, values,
    )  # fmt: skip
    with Undisturbed():
        graph = read_graph(x, edge_index, edge_weight, undirected)
        if graph.columns == 0:
            raise InvalidInput("Expected at least one edge (got none).")
        for oddity in graph.oddities(undirected):
            warnings.warn(oddity, UserWarning, stacklevel=2)
        network, caution = settled(model, x, graph, normalisation, optimize)
        if caution:
            warnings.warn(caution, UserWarning, stacklevel=2)
        target = NodeTarget(objective, network.logits(), labels, nodes)
        problem = network.problem(target, plan)
    with naming_weights(graph):
        found = carry_out(problem, resume=resume, checkpoint=checkpoint, progress=progress)
    if found.gradients_used and not found.unit_scores.any():
        warnings.warn(
            "No edge moves the objective: every score is 0, and the order says nothing. Look at "
            "the weights of edges, at nodes=, and whether the model uses its edge_weight.",
            UserWarning,
            stacklevel=2,
        )
    return found


def explain_node(
    model: Callable[..., Any],
    x: Tensor,
    edge_index: Tensor | IndexedEdges,
    node: int,
    edge_weight: Tensor | None = None,
    *,
    k: int = 20,
    hops: int | None = None,
    target: int | None = None,
    objective: Any = None,
    undirected: bool | None = None,
    normalisation: str | None = None,
    method: Any = "greedy-pig",
    rounds: int | None = None,
    steps: int | None = None,
    schedule: str | Sequence[int] | None = None,
    ratio: float | None = None,
    rule: str | Rule | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    seed: int = 0,
    optimize: bool = True,
    values: ValuesWanted = "end",
    resume: Attribution | str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[Rounds], object] = False,
) -> Attribution:
    """Which edges is the model's answer for one node made of? A subgraph that grows from the node.

    At most k units are taken, each touching what was discovered before, from the edges whose
    messages reach the node in `hops` steps (None: as many as the model hears, from its layers and
    checked by its answers). about["note"] says where they are fewer than k, where the model hears
    further than its layers tell, and where it needs the whole graph. The result is about those
    edges alone: attachments["edges"][a.mask(k)] are the columns of edge_index that were taken, and
    attachments["ends"] (2, edges) holds their nodes. G(S) is what the whole graph gives with all
    edges but S removed. A node that no edge reaches has an empty answer.

    edge_index: as in `explain_edges`, or `index_edges(x, edge_index)`, which spares those who
        explain many nodes a look through all edges for each.
    target: the class to explain; None takes the model's answer as it is.
    objective: None takes "expected-log-likelihood", which asks for the answer's own probabilities
        and no surer ones; with a target its "log-likelihood".
    rounds: fewer than k take several edges at a time. steps, rule: by default 20 nodes of
        "gauss-legendre". method: "random" grows at random. The rest is as in `explain_edges`.
    """
    k = whole(k)
    check_count("k", k)
    if method == "degree":
        raise InvalidInput("Expected a method that grows a subgraph (got 'degree'). Try 'random'.")
    plan = Plan(
        method, *_path(method, steps, rule),
        {"rounds": rounds, "k": k, "schedule": schedule, "ratio": ratio},
        Stop(budget, seconds, reach, gain), seed, values,
    )  # fmt: skip
    with Undisturbed():
        ground = _ground(model, x, edge_index, node, edge_weight, undirected, optimize)
        near, caution = ground.reading(normalisation)
        if caution:
            warnings.warn(caution, UserWarning, stacklevel=2)
        ground = replace(ground, normalisation=near)
        view = ground.view(check_hops(hops))
        aim = _aim(ground, view, objective, target)
        if view.around.reaching == 0:
            return _nothing(ground, view, aim, plan)
        problem = _node_problem(ground, view, aim, plan)

    def result(events: Rounds) -> Attribution:
        """So that a checkpoint, too, tells which edges these are."""
        notes = _told(view.note, _fewer(k, problem.features.units, view.hops))
        return events.attribution().with_notes(notes, **ground.named(view.around))

    with naming_weights(view.around.graph):
        return carry_out(
            problem, resume=resume, checkpoint=checkpoint, progress=progress, result=result
        )


def _ground(
    model: Any, x: Tensor, edge_index: Any, node: Any, edge_weight: Any, undirected: bool | None,
    optimize: bool,
) -> _Ground:  # fmt: skip
    """The model, the graph and the node, checked; the reading is still to be chosen."""
    edges = _edges(x, edge_index, edge_weight)
    node = _node(node, edges.graph.nodes)
    if not callable(model):
        raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
    return _Ground(model, edges, x.detach(), node, undirected, "kept", optimize)


def _aim(ground: _Ground, view: _View, objective: Any, target: int | None) -> NodeTarget:
    """What is maximised for the node."""
    if objective is None:
        objective = "expected-log-likelihood" if target is None else "log-likelihood"
    # With the edges that only count in degrees, the node's answer is the whole graph's.
    logits = view.logits(ground.network(view.around))
    return NodeTarget(objective, logits, nodes=[view.around.node], target=target)


def _node_problem(ground: _Ground, view: _View, aim: NodeTarget, plan: Plan) -> Problem:
    """The run over the edges that reach the node."""
    around, random = view.around, plan.method == "random"
    settings = _settings(ground, view, aim, plan)
    network = view.network or ground.masked(around)
    removing = ground.normalisation == "recomputed"
    candidates = around.graph.part(slice(0, around.reaching))
    features = Growing(candidates, around.node, local=removing or random)
    k = min(plan.picks["k"], features.units)
    rounds = plan.picks["rounds"]
    rounds = k if rounds is None else min(k, whole(rounds))
    plan = replace(
        plan, method=methods.Greedy("random") if random else plan.method,
        picks=plan.picks | {"k": k, "rounds": rounds}, once={"rounds": 1, "k": k},
    )  # fmt: skip
    return network.problem(
        aim, plan, features=features, settings=settings,
        objective=_reaching(network.objective(aim), around.reaching, removing),
    )  # fmt: skip


def _settings(ground: _Ground, view: _View, aim: NodeTarget, plan: Plan) -> dict[str, Any]:
    """What was asked of the node, for the record."""
    asked = {"node": ground.node, "hops": view.hops, "target": int(aim.classes[0])}
    return asked | ({"method": plan.method} if isinstance(plan.method, str) else {})


def _edges(x: Tensor, edge_index: Any, edge_weight: Any) -> Edges:
    if not isinstance(edge_index, IndexedEdges):
        return ScannedEdges(read_graph(x, edge_index, edge_weight, undirected=False))
    if edge_weight is not None:
        raise InvalidInput(
            "Expected no edge_weight beside indexed edges, which have theirs (got both). "
            "Try index_edges(x, edge_index, edge_weight)."
        )
    if not isinstance(x, Tensor) or x.dim() < 1 or x.shape[0] != edge_index.graph.nodes:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InvalidInput(
            f"Expected x with the {edge_index.graph.nodes} nodes that were indexed (got {got})."
        )
    return edge_index


@dataclass(frozen=True, eq=False)
class _View:
    """The part of a graph on which a node is explained."""

    around: Neighbourhood
    hops: int
    row: Tensor | None = None
    """The node's answer in the whole graph, where the part's own is another."""
    network: EdgeNetwork | None = None
    """The masked model on that part, where it was made already."""
    note: str = ""

    def logits(self, rim: EdgeNetwork) -> Tensor:
        """The model's answers, the node's being the whole graph's."""
        logits = rim.logits()
        if self.row is not None:
            logits = logits.clone()
            logits[self.around.node] = self.row
        return logits


@dataclass(frozen=True, eq=False)
class _Ground:
    """A model, a graph and a node, from which parts of the graph are cut."""

    model: Callable[..., Any]
    edges: Edges
    x: Tensor
    node: int
    undirected: bool | None
    normalisation: str
    optimize: bool

    def reading(self, normalisation: str | None) -> tuple[str, str]:
        """The normalisation that fits the model, seen two steps around the node; and a caution."""
        near = self.cut(2)
        graph = near.graph.turned() if self.back else near.graph
        network, caution = settled(self.model, near.x, graph, normalisation, optimize=False)
        return network.normalisation, caution

    def view(self, hops: int | None) -> _View:
        """As far as the model hears, or `hops` steps if they are given."""
        first = self.network(self.cut(1))
        depth = depth_of(first.frozen, first.logits)
        start = depth if hops is None else hops
        if start is None:
            raise unknown_depth()
        around = self.cut(start)
        network = self.masked(around) if around.reaching else None
        stack = None if network is None else network.stack
        if stack is not None and len(stack.layers) <= start:  # Known, and checked by its values.
            return _View(around, start, network=network)
        far = max(start, depth or 0)
        reach = reach_of(around if far == start else self.cut(far), far, self.cut, self.answer,
                         self.x)  # fmt: skip
        return self._seen(reach, around, depth, hops, network)

    def _seen(
        self, reach: Reach, around: Neighbourhood, depth: int | None, hops: int | None,
        network: EdgeNetwork | None,
    ) -> _View:  # fmt: skip
        if reach.everywhere:
            around = self.cut(hops, everywhere=True)
            return _View(around, hops or around.steps, note="The node's answer depends on nodes "
                         "that no edge joins to it, as by a norm over all nodes: the model was "
                         "run on the whole graph.")  # fmt: skip
        if hops is not None:
            return _View(around, hops, reach.row if reach.hops > hops else None, network)
        if reach.hops == depth:
            return _View(around, reach.hops, network=network)
        return _View(self.cut(reach.hops), reach.hops, note=f"The node's answer depends on edges "
                     f"within {reach.hops} steps, more than the model's layers tell "
                     f"({depth}).")  # fmt: skip

    @cached_property
    def back(self) -> bool:
        """Where messages go against the edges, the same search runs on the edges turned."""
        return flows_back(freeze(self.model))

    @cached_property
    def followed(self) -> Edges:
        """The edges in the direction in which messages go."""
        return TurnedEdges(self.edges) if self.back else self.edges

    def cut(self, hops: int | None, everywhere: bool = False) -> Neighbourhood:
        """Everything within so many steps."""
        return neighbourhood(self.followed, self.x, self.node, hops, self.undirected, everywhere)

    def named(self, around: Neighbourhood) -> dict[str, Tensor]:
        """The candidates' columns of edge_index, and the nodes they join."""
        columns = around.columns[: around.reaching]
        return {"edges": columns, "ends": self.edges.graph.edge_index[:, columns]}

    def network(self, around: Neighbourhood) -> EdgeNetwork:
        """The model on a neighbourhood, as it is."""
        return self._on(around, optimize=False)

    def masked(self, around: Neighbourhood) -> EdgeNetwork:
        """The same, fast where that is known."""
        return self._on(around, self.optimize)

    def answer(self, around: Neighbourhood) -> Tensor:
        """What the model says of the node there."""
        logits = self.network(around).logits()
        check_logits(logits)
        return logits[around.node]

    def _on(self, around: Neighbourhood, optimize: bool) -> EdgeNetwork:
        graph = around.graph.turned() if self.back else around.graph
        return EdgeNetwork(self.model, around.x, graph, self.normalisation, optimize)


def _told(*notes: str) -> dict[str, str]:
    """What is to be said of a result, if anything."""
    said = " ".join(note for note in notes if note)
    return {"note": said} if said else {}


def _fewer(asked: int, units: int, hops: int) -> str:
    """What is to be said where fewer edges are there than were asked for."""
    if units >= asked:
        return ""
    edges = "edge is" if units == 1 else "edges are"
    steps = "step" if hops == 1 else "steps"
    return f"{asked} edges were asked for; only {units} {edges} within {hops} {steps}."


def _path(method: Any, steps: int | None, rule: str | Rule | None) -> tuple[Any, Any]:
    """Steps and rule of a node's path."""
    if method != "greedy-pig" or isinstance(rule, Rule):
        return steps, rule
    return NODE_STEPS if steps is None else steps, NODE_RULE if rule is None else rule


def _node(node: Any, nodes: int) -> int:
    index = whole(node)
    if type(index) is not int or not 0 <= index < nodes:
        raise InvalidInput(f"Expected node to be an id from 0 to {nodes - 1} (got {node!r}).")
    return index


def _reaching(objective: PointObjective, count: int, removing: bool) -> PointObjective:
    """The objective over its first `count` columns."""
    found = as_objective(Reaching(objective, count, removing))
    assert isinstance(found, PointObjective)
    return found


def _nothing(ground: _Ground, view: _View, target: NodeTarget, plan: Plan) -> Attribution:
    """The answer for a node that no edge reaches: no units, and the value it has by itself."""
    began = monotonic()
    network = ground.network(view.around)
    value = float(target.value(network.logits()))
    none = torch.empty(0)
    settings = network.settings(target, plan.method) | _settings(ground, view, target, plan)
    return Attribution(
        order=none.long(), selected=0, unit_scores=none, last_scores=none,
        values=torch.tensor([value], dtype=torch.float64), full_value=value, picks=(), totals=(),
        gradients_used=0, seconds=monotonic() - began, stop=StopReason.ALL, features=Elements(0),
        layout=Layout.vector(0), settings=settings | {"k": plan.picks["k"], "seed": plan.seed},
        provenance=network.provenance(target),
    ).with_notes(_told(view.note), **ground.named(view.around))  # fmt: skip
