"""`gp.explain_edges` and `gp.explain_node`: the edges that a graph network's outputs depend on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import advise
from ..core.attribution import Attribution
from ..core.carry_out import carry_out
from ..core.errors import InvalidInput, levels_to_caller
from ..core.features import Features
from ..core.methods import Method, as_method
from ..core.numbers import check_count, whole
from ..core.objective import Objective
from ..core.question import Question, Record
from ..core.scorers import Random
from ..core.stopping import Stop
from ..core.two_sided import one_side, two_sided, with_sides
from ..network.fingerprint import callables, digest, fingerprint, versions
from ..network.names import model_name
from ..results.graph_notes import EdgeFacts
from ..types import MethodLike, Model, ObjectiveLike, PathOrText, ProgressLike, Seed
from .edge_model import EdgeModel, fitting_model, frozen_model
from .edges import EdgeGraph, read_graph
from .methods import FOR_EDGES, FOR_NODES, NoEdges, RandomGrowth
from .node_facts import node_facts
from .objectives import NodeTarget, node_ids
from .subgraph import Growing, NodeObjective, Surroundings


@advise
def explain_edges(
    model: Model,
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    *,
    nodes: int | Tensor | Sequence[int] | None = None,
    labels: Tensor | Sequence[int] | None = None,
    undirected: bool | None = None,
    normalisation: str | None = None,
    objective: ObjectiveLike = "log-probability",
    method: MethodLike | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: Seed = 0,
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Which edges do the model's outputs depend on? `mask(k)`: the columns of edge_index that stay.

    model: called as model(x, edge_index, edge_weight) → one row of logits per node; never changed.
    x: node features, one row per node. edge_index (2, edges): source and target of every edge.
    edge_weight: weights the graph has already; they are scaled, not replaced.
    objective: the mean over nodes of "log-probability" (of the classes that the model predicts
        in the full graph), "softmax" (the probability of those), "log-likelihood" (the paper's
        Eq. 5: expected under the full graph's probabilities), "label-loss" (log-probability of
        `labels`), or a callable from logits to a number. gp.two_sided(…) of any of these asks for
        necessity beside sufficiency.
    nodes: ids or a mask of the nodes that count; None for all.
    undirected: both directions of a pair are one feature; None looks whether the graph is
        symmetric.
    normalisation: what an absent edge is: "recomputed", it has weight 0 and degrees are counted
        without it, or "kept", its messages alone are masked. None takes "recomputed", and "kept"
        with a warning where weight 0 is no removed edge to the model (attention, edge features)
        or the model takes no weights.
    method: None (33 geometric rounds of 3 nodes of "gauss-radau", 99 gradients), a name, "degree"
        (drawn with probability ∝ (D_i D_j)^-½), or a method such as gp.GreedyPIG(rounds=20).
    k, stop, seed, checkpoint, progress: as in `explain`.

    Examples:
        >>> gcn, x = gp.models.GCN(8, 3), torch.randn(4, 8)
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> a = gp.explain_edges(gcn, x, edge_index)
        >>> edge_index[:, a.mask(2)].shape      # The best two pairs, in both directions.
        torch.Size([2, 4])
    """
    with torch.inference_mode(False):
        graph = read_graph(x, edge_index, edge_weight, undirected)
        if graph.columns == 0:
            raise InvalidInput("Expected at least one edge (got none).")
        _warn_of_directions(graph, undirected)
        chosen: Method = FOR_EDGES if method is None else as_method(method)
        edges = fitting_model(frozen_model(model), x, graph, normalisation)
        target = NodeTarget(objective, edges.logits(), labels, nodes)
        question = _question(
            model,
            edges,
            target,
            with_sides(edges.objective(target), target.both),
            graph.features(),
            settings={},
            facts=EdgeFacts(),
            tensors={"edge_index": graph.edge_index.int()},
        )
        search: dict[str, Any] = {"k": k, "stop": stop, "seed": seed}
        return carry_out(question, chosen, **search, checkpoint=checkpoint, progress=progress)[0]


def _warn_of_directions(graph: EdgeGraph, undirected: bool | None) -> None:
    """Warn of edges from a node to itself, and of a graph that is nearly undirected."""
    if loops := int(graph.loops.sum()):
        warnings.warn(
            f"{loops:,} edges lead from a node to itself. They are always present, and each "
            "is a feature with score 0. Leave them out of edge_index to select among "
            "connections only, and add them to the edges that are kept.",
            UserWarning,
            stacklevel=levels_to_caller(),
        )
    if undirected is None and graph.reversible and not graph.undirected:
        warnings.warn(
            "Every edge has its reverse, but not as often or not with the same weight, so the "
            "graph is read as directed and every direction is a feature. Try "
            "undirected=True, or remove duplicates from edge_index.",
            UserWarning,
            stacklevel=levels_to_caller(),
        )


@advise
def explain_node(
    model: Model,
    x: Tensor,
    edge_index: Tensor | EdgeGraph,
    node: int | Tensor,
    edge_weight: Tensor | None = None,
    *,
    hops: int | None = None,
    connected: bool = True,
    normalisation: str | None = None,
    target: int | None = None,
    objective: ObjectiveLike = None,
    method: MethodLike | None = None,
    k: int | None = 20,
    stop: Stop | None = None,
    seed: Seed = 0,
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Which edges does the model's output for one node depend on? A subgraph grows from the node.

    At most k features (pairs of nodes) are taken, each touching those taken before, from the edges
    whose messages reach the node in `hops` steps (None: as many as the model has layers). The
    result is about those edges alone: `edge_index[:, gp.edge_columns(a)]` are the edges that were
    taken, in order. G(S) is the model's output on the whole graph with all edges but S removed, and
    full_value that on the whole graph itself. about.note says where there are fewer than k
    edges, and where the model had to be run on the whole graph. The result for a node that no edge
    reaches is empty.

    edge_index: as in `explain_edges`, or `index_edges(x, edge_index)`, which saves sorting the
        edges for every node, and says with undirected= what one feature is.
    node: its id; or the ids of several nodes, which are explained together.
    k: None takes all edges within reach.
    target: the class to explain; None takes the predicted one.
    objective: as in `explain_edges`. None takes "log-probability"; without a target and with
        normalisation "kept", "log-likelihood", which finds more of the true edges there.
    connected: False takes the best edges within reach, whether they touch the others or not.
    method: None (one edge a round, 20 nodes of "gauss-legendre"), a name, or a method; "random"
        grows at random.
    The rest is as in `explain_edges`.

    Examples:
        >>> gcn, x = gp.models.GCN(8, 3), torch.randn(4, 8)
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> a = gp.explain_node(gcn, x, edge_index, node=0, k=2)
        >>> edge_index[:, gp.edge_columns(a)].shape      # In order of selection.
        torch.Size([2, 4])
    """
    k, hops = whole(k), whole(hops)
    for name, number in (("k", k), ("hops", hops)):
        if number is not None:
            check_count(name, number)
    chosen: Method = FOR_NODES if method is None else as_method(method)
    chosen = RandomGrowth() if isinstance(chosen, Random) else chosen
    with torch.inference_mode(False):
        indexed = _indexed(x, edge_index, edge_weight)
        centres = node_ids(node, indexed.nodes, x.device)
        place = Surroundings(frozen_model(model), indexed, x.detach(), centres)
        around, edges, hops, note = place.view(hops, normalisation)
        one_sided, both = one_side(objective)
        if one_sided is None and edges.normalisation == "kept" and target is None:
            objective = two_sided("log-likelihood") if both else "log-likelihood"
        whole_graph = edges.logits()
        aim = NodeTarget(objective, whole_graph, nodes=around.centres, target=target)
        removing = edges.normalisation == "recomputed" and around.reaching > 0
        features = around.candidates().features()
        if not around.reaching:
            chosen = NoEdges(chosen.name)
        elif connected:
            features = Growing(around, local=removing or isinstance(chosen, RandomGrowth))
        if k is not None and k > features.count > 0:
            fewer = f"{k:,} edges were asked for; only {features.count:,} are within {hops} steps."
            note = f"{note} {fewer}".strip()
        k = min(k or features.count, features.count) or None
        ids = centres.tolist() if len(centres) > 1 else int(centres)
        columns = around.columns[: around.reaching]
        full = float(aim.value(whole_graph))
        question = _question(
            model,
            edges,
            aim,
            NodeObjective.of(edges.objective(aim), around.reaching, removing, both),
            features,
            settings={"node": ids, "hops": hops, "target": int(aim.classes[0])},
            facts=EdgeFacts(note=note),
            tensors={"edge_index": indexed.edge_index[:, columns].int(), "edges": columns},
        )
        check = question.finish

        def finish(problem: int, a: Attribution) -> Attribution:
            whole = full + both * (full - float(a.values[0]))
            a = replace(check(problem, a), full_value=whole)
            if len(centres) > 1 or aim.function is not None:  # No one class of one node.
                return a
            return a.with_notes(node_facts(model, a, around, edges, whole_graph, removing, note))

        question = replace(question, finish=finish)
        search: dict[str, Any] = {"k": k, "stop": stop, "seed": seed}
        return carry_out(question, chosen, **search, checkpoint=checkpoint, progress=progress)[0]


def edge_columns(a: Attribution, k: int | None = None) -> Tensor:
    """The columns of edge_index that the first k features are, in order of selection.

    `edge_index[:, gp.edge_columns(a, k)]` are the edges that `explain_edges` or `explain_node` put
    first. In an undirected graph a feature has a column for either direction. k: None takes all
    features that were selected.
    """
    mask = a.mask(a.selected if k is None else k)
    if not isinstance(mask, Tensor) or mask.dim() != 1:
        raise InvalidInput("Expected the result of explain_edges or explain_node (got another).")
    places = a.ranking()[: int(mask.sum())]
    return a.attachments["edges"][places] if "node" in a.settings else places


def _question(
    model: Callable[..., object],
    edges: EdgeModel,
    target: NodeTarget,
    objective: Objective,
    features: Features,
    *,
    settings: Mapping[str, Any],
    facts: EdgeFacts,
    tensors: Mapping[str, Tensor],
) -> Question:
    """The question about the edges of a graph.

    model: what the caller gave, for the fingerprint. settings, facts, tensors: further ones of the
    result.
    """
    settings = {
        **settings,
        "objective": target.title,
        "normalisation": edges.normalisation,
        "undirected": edges.graph.undirected,
        "fast": edges.is_fast(target),
    }
    about = replace(facts, model=model_name(model))

    def finish(_: int, a: Attribution) -> Attribution:
        if a.gradients_used and not a.feature_scores.any():
            warnings.warn(
                "Every score is 0: no edge changes the objective, and the order has no meaning. "
                "Check edge_weight, nodes= and whether the model uses its edge_weight.",
                UserWarning,
                stacklevel=levels_to_caller(),
            )
        return a

    record = Record(settings, _provenance(model, edges, target), lambda: (about, tensors))
    return Question(objective, features, (record,), finish=finish)


def _provenance(model: Callable[..., Any], edges: EdgeModel, target: NodeTarget) -> dict[str, str]:
    """Versions, and digests of the model, the graph and what is asked of which nodes."""
    graph = edges.graph
    tensors = {"edge_index": graph.edge_index, "weight": graph.weight, "classes": target.classes}
    tensors["x"] = edges.x
    if target.nodes is not None:
        tensors["nodes"] = target.nodes
    own = {"model": fingerprint(model), "input": digest(tensors, f"graph of {graph.nodes} nodes")}
    return versions() | callables(objective=target.function) | own


def _indexed(x: Tensor, edge_index: Any, edge_weight: Any) -> EdgeGraph:
    if not isinstance(edge_index, EdgeGraph):
        return read_graph(x, edge_index, edge_weight, undirected=False)
    nodes = edge_index.nodes
    if edge_weight is not None:
        raise InvalidInput(
            "Expected no edge_weight beside indexed edges, which have theirs (got both). "
            "Try index_edges(x, edge_index, edge_weight)."
        )
    if not isinstance(x, Tensor) or x.shape[:1] != (nodes,):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InvalidInput(f"Expected x with the {nodes} nodes that were indexed (got {got}).")
    return edge_index
