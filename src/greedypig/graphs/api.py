"""`gp.explain_edges` and `gp.explain_node`: the edges that a graph network's outputs depend on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, NonFinite, NotDifferentiable
from ..core.features import Elements, Features
from ..core.methods import InRounds, as_method
from ..core.numbers import check_count, whole
from ..core.objective import Objective
from ..core.rounds import State
from ..core.run import Run
from ..core.scorers import Random
from ..core.stopping import Stop
from ..network.fingerprint import callables, digest, fingerprint
from ..tensors.methods import FOR_EDGES, FOR_NODES
from ..tensors.run import check_checkpoint, saved_run, versions
from ..tensors.targets import levels_to_caller
from .edge_model import EdgeModel, fitting_model, frozen_model, negative_weights
from .edges import EdgeGraph, IndexedEdges, degree_sampler, read_graph
from .objectives import NodeTarget
from .subgraph import Growing, NodeObjective, Surroundings, flows_back

Saved = Attribution | str | PathLike[str] | None


def explain_edges(
    model: Callable[..., Any],
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    *,
    objective: Any = "log-probability",
    labels: Any = None,
    nodes: Any = None,
    undirected: bool | None = None,
    normalisation: str | None = None,
    method: Any = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    resume: Saved = None,
    checkpoint: str | PathLike[str] | None = None,
) -> Attribution:
    """Which edges do the model's outputs depend on? `mask(k)`: the columns of edge_index that stay.

    model: called as model(x, edge_index, edge_weight) → one row of logits per node; never changed.
    x: node features, one row per node. edge_index (2, edges): source and target of every edge.
    edge_weight: weights the graph has already; they are scaled, not replaced.
    objective: the mean over nodes of "log-probability" (of the classes that the model predicts
        in the full graph), "softmax" (the probability of those), "log-likelihood" (the paper's
        Eq. 5: expected under the full graph's probabilities), "label-loss" (log-probability of
        `labels`), or a callable from logits to a number.
    nodes: ids or a mask of the nodes that count; None for all.
    undirected: both directions of a pair are one feature; None looks whether the graph is
        symmetric.
    normalisation: what an absent edge is: "recomputed", it has weight 0 and degrees are counted
        without it, or "kept", its messages alone are masked. None takes "recomputed", and "kept"
        with a warning where weight 0 is no removed edge to the model (attention, edge features)
        or the model takes no weights.
    method: None (33 geometric rounds of 3 nodes of "gauss-radau", 99 gradients), a name, "degree"
        (drawn with probability ∝ (D_i D_j)^-½), or a method such as gp.GreedyPIG(rounds=20).
    k, stop, seed, resume, checkpoint: as in `explain`.
    """
    check_checkpoint(checkpoint)
    run = edges_run(
        model, x, edge_index, edge_weight, objective=objective, labels=labels, nodes=nodes,
        undirected=undirected, normalisation=normalisation, method=method, k=k, stop=stop,
        seed=seed, resume=resume,
    )  # fmt: skip
    return run.finish(checkpoint)


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
    method: Any = None,
    stop: Stop | None = None,
    seed: int = 0,
    resume: Saved = None,
    checkpoint: str | PathLike[str] | None = None,
) -> Attribution:
    """Which edges does the model's output for one node depend on? A subgraph grows from the node.

    At most k features (pairs of nodes) are taken, each touching those taken before, from the edges
    whose messages reach the node in `hops` steps (None: as many as the model has layers). The
    result is about those edges alone: attachments["edges"][a.mask(k)] are the columns of edge_index
    that were taken, and attachments["ends"] (2, edges) holds their nodes. G(S) is the model's
    output on the whole graph with all edges but S removed. about["note"] says where there are fewer
    than k edges, and where the model had to be run on the whole graph. The result for a node that
    no edge reaches is empty.

    edge_index: as in `explain_edges`, or `index_edges(x, edge_index)`, which saves sorting the
        edges for every node.
    target: the class to explain; None takes the model's output as it is.
    objective: as in `explain_edges`. None takes "log-likelihood", which is highest where the
        output is the same, not where it is surer; with a target, "log-probability".
    method: None (one edge a round, 20 nodes of "gauss-legendre"), a name, or a method; "random"
        grows at random.
    The rest is as in `explain_edges`.
    """
    check_checkpoint(checkpoint)
    run = node_run(
        model, x, edge_index, node, edge_weight, k=k, hops=hops, target=target,
        objective=objective, undirected=undirected, normalisation=normalisation, method=method,
        stop=stop, seed=seed, resume=resume,
    )  # fmt: skip
    return run.finish(checkpoint)


class EdgeRun(Run):
    """A run over the edges of a graph, whose errors and results speak of edges.

    model: what the caller gave, for the fingerprint. settings: further ones of the result.
    about, tensors: notes that every result carries, those of a checkpoint included.
    search: k, stop and seed.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        edges: EdgeModel,
        target: NodeTarget,
        objective: Objective,
        method: Any,
        features: Features,
        *,
        resume: Saved = None,
        settings: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        **search: Any,
    ) -> None:
        _check_stop(search.get("stop"))
        self.graph, self.about, self.tensors = edges.graph, about or {}, tensors or {}
        every = {
            **(settings or {}),
            "objective": target.name,
            "normalisation": edges.normalisation,
            "undirected": edges.graph.undirected,
            "fast": edges.is_fast(target),
        }
        provenance = _provenance(model, edges, target)
        super().__init__(
            objective,
            method,
            features=features,
            settings=[every],
            provenance=[provenance],
            resume=saved_run(resume, provenance),
            **search,
        )

    def __next__(self) -> State:
        with _naming_weights(self.graph):
            return super().__next__()

    def results(self, *, measure: bool = True) -> list[Attribution]:
        """One result, with its notes."""
        with _naming_weights(self.graph):
            results = super().results(measure=measure)
        return [a.with_notes(self.about, **self.tensors) for a in results]

    def finish(
        self, checkpoint: str | PathLike[str] | None = None,
        watch: Callable[[EdgeRun], object] | None = None,
    ) -> Attribution:  # fmt: skip
        """All rounds, each saved to the checkpoint and shown to `watch`; then the result."""
        for _ in self:
            if checkpoint is not None:
                self.results(measure=False)[0].save(checkpoint)
            if watch is not None:
                watch(self)
        a = self.results()[0]
        if a.gradients_used and not a.unit_scores.any():
            warnings.warn(
                "Every score is 0: no edge changes the objective, and the order has no meaning. "
                "Check edge_weight, nodes= and whether the model uses its edge_weight.",
                UserWarning,
                stacklevel=levels_to_caller(),
            )
        return a


@contextmanager
def _naming_weights(graph: EdgeGraph) -> Iterator[None]:
    """The core's errors about gradients and non-finite numbers, in terms of edges."""
    try:
        yield
    except NonFinite as error:
        error.args = (" ".join(filter(None, [str(error), negative_weights(graph)])),)
        raise
    except NotDifferentiable as error:
        raise NotDifferentiable(
            "Expected a model whose outputs depend on edge_weight through differentiable torch "
            "operations (got outputs without a gradient). Look for detach(), comparisons or "
            "no_grad on the way."
        ) from error


def edges_run(
    model: Callable[..., Any],
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    *,
    objective: Any = "log-probability",
    labels: Any = None,
    nodes: Any = None,
    undirected: bool | None = None,
    normalisation: str | None = None,
    method: Any = None,
    **search: Any,
) -> EdgeRun:
    """The run of `explain_edges`, for callers that loop over its rounds themselves.

    search: k, stop, seed and resume.
    """
    with torch.inference_mode(False):
        graph = read_graph(x, edge_index, edge_weight, undirected)
        if graph.columns == 0:
            raise InvalidInput("Expected at least one edge (got none).")
        for oddity in graph.oddities(undirected):
            warnings.warn(oddity, UserWarning, stacklevel=levels_to_caller())
        method = FOR_EDGES if method is None else method
        method = degree_sampler(graph) if method == "degree" else as_method(method)
        edges = fitting_model(frozen_model(model), x, graph, normalisation)
        target = NodeTarget(objective, edges.logits(), labels, nodes)
        return EdgeRun(
            model, edges, target, edges.objective(target), method, graph.features(), **search
        )


def _check_stop(stop: Any) -> None:
    if stop is not None and not isinstance(stop, Stop):
        raise InvalidType(
            f"Expected stop to be a gp.Stop (got {type(stop).__name__}). "
            "Try stop=gp.Stop(gradients=100)."
        )


def _provenance(model: Callable[..., Any], edges: EdgeModel, target: NodeTarget) -> dict[str, str]:
    """Versions, and digests of the model, the graph and what is asked of which nodes."""
    graph = edges.graph
    tensors = {"edge_index": graph.edge_index, "weight": graph.weight, "classes": target.classes}
    if edges.x.layout == torch.strided:
        tensors["x"] = edges.x
    else:
        coo = edges.x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        tensors |= {"x indices": coo.indices(), "x values": coo.values()}
    if target.nodes is not None:
        tensors["nodes"] = target.nodes
    own = {"model": fingerprint(model), "input": digest(tensors, f"graph of {graph.nodes} nodes")}
    return versions() | callables(objective=target.function) | own


# One node.


@dataclass(frozen=True, kw_only=True)
class RandomGrowth(InRounds):
    """Edges at random among those that touch the subgraph, one after the other."""

    per_round: int | None = 1
    name = "random"

    @property
    def scorer(self) -> Random:
        """Uniform random scores, drawn again in every round."""
        return Random()


@dataclass(frozen=True)
class _NoEdges:
    """Stands in for the method where there is nothing to select."""

    name: str

    def __call__(self, objective: Objective, mask: Tensor) -> Tensor:
        return torch.zeros_like(mask)

    def picks(self, features: Any, k: int | None) -> tuple[int, ...]:
        """No round."""
        return ()


def node_run(
    model: Callable[..., Any],
    x: Tensor,
    edge_index: Tensor | IndexedEdges,
    node: int | Tensor,
    edge_weight: Tensor | None = None,
    *,
    k: int | None = 20,
    hops: int | None = None,
    target: int | None = None,
    objective: Any = None,
    undirected: bool | None = None,
    normalisation: str | None = None,
    method: Any = None,
    growing: bool = True,
    **search: Any,
) -> EdgeRun:
    """The run of `explain_node`, for callers that loop over its rounds themselves.

    node: one id, or a tensor of them. k: None ranks all candidates. growing: each edge touches
    those taken before it. search: stop, seed and resume.
    """
    k, hops = _count("k", k), _count("hops", hops)
    method, random = _node_method(method)
    with torch.inference_mode(False):
        edges = _indexed(x, edge_index, edge_weight)
        frozen, nodes = frozen_model(model), _node_ids(node, edges.graph)
        place = Surroundings(frozen, edges, x.detach(), nodes, undirected, flows_back(frozen))
        close = place.cut(2)
        normalisation = fitting_model(frozen, close.x, close.graph, normalisation).normalisation
        around, hops, note = place.view(hops, normalisation)
        edge_model = place.on(around, normalisation)
        if objective is None:
            objective = "log-likelihood" if target is None else "log-probability"
        aim = NodeTarget(objective, edge_model.logits(), nodes=around.centres, target=target)
        removing = normalisation == "recomputed"
        if around.reaching:
            features = around.candidates().features()
            if growing:
                features = Growing(around, local=removing or random, back=place.back)
            inner = edge_model.objective(aim)
            wanted = features.units if k is None else k
            note = " ".join(filter(None, [note, _fewer(wanted, features.units, hops)]))
            k = min(wanted, features.units)
        else:
            features, k, removing = Elements(0), None, False
            method, inner = _NoEdges(method.name), edge_model.plain_objective(aim)
        columns = around.columns[: around.reaching]
        return EdgeRun(
            model,
            edge_model,
            aim,
            NodeObjective(inner, around.reaching, removing=removing),
            method,
            features,
            settings={
                "node": nodes.tolist() if len(nodes) > 1 else int(nodes),
                "hops": hops,
                "target": int(aim.classes[0]),
            },
            about={"note": note} if note else {},
            tensors={"edges": columns, "ends": edges.graph.edge_index[:, columns]},
            k=k,
            **search,
        )


def _node_method(method: Any) -> tuple[Any, bool]:
    """The method, and whether it grows at random."""
    if method is None:
        return FOR_NODES, False
    if method == "degree":
        raise InvalidInput("Expected a method that grows a subgraph (got 'degree'). Try 'random'.")
    method = as_method(method)
    return (RandomGrowth(), True) if isinstance(method, Random) else (method, False)


def _count(name: str, number: Any) -> int | None:
    count: int | None = whole(number)
    if count is not None:
        check_count(name, count)
    return count


def _indexed(x: Tensor, edge_index: Any, edge_weight: Any) -> IndexedEdges:
    if not isinstance(edge_index, IndexedEdges):
        return IndexedEdges(read_graph(x, edge_index, edge_weight, undirected=False))
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


def _fewer(k: int, units: int, hops: int) -> str:
    """A note where there are fewer edges than k."""
    if units >= k:
        return ""
    edges = "edge is" if units == 1 else "edges are"
    steps = "step" if hops == 1 else "steps"
    return f"{k} edges were asked for; only {units} {edges} within {hops} {steps}."


def _node_ids(node: Any, graph: EdgeGraph) -> Tensor:
    """(nodes,) the ids to explain."""
    if isinstance(node, Tensor) and node.dim() == 1 and node.numel() > 1:
        return node.to(graph.edge_index)
    index = whole(node)
    if type(index) is not int or not 0 <= index < graph.nodes:
        raise InvalidInput(f"Expected node to be an id from 0 to {graph.nodes - 1} (got {node!r}).")
    return graph.edge_index.new_tensor([index])
