"""One call from a graph network and a graph to the edges that its answers rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from . import methods
from .core.algorithms import make_problem
from .core.attribution import Attribution
from .core.errors import InvalidInput
from .core.lockstep import Undisturbed
from .core.quadrature import Rule
from .core.rounds import Problem, Rounds, Stop, ValuesWanted
from .core.schedule import check_count, whole
from .core.scorers import PlannedScorer, Scorer
from .domains.graph import EdgeFunction, Graph, degree_order, read_graph
from .domains.node_target import NodeTarget
from .explain import carry_out, versions
from .fingerprint import digest, fingerprint
from .frozen import freeze

RULE = "gauss-legendre"
"""The gradient is steep where few edges are left: five of its nodes are worth twenty midpoints."""


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
    normalisation: str = "recomputed",
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
    normalisation: what an edge of weight 0 means to degrees: "recomputed" without it, or "kept"
        as in the full graph, its messages alone being masked.
    method: "greedy-pig", "sequential-gradient", "ig", "gradient", "random", "degree" (drawn with
        probability ∝ (D_i D_j)^-½), a scorer, or gp.Greedy(scorer).
    The rest is as in `explain`; the integral's default rule is "gauss-legendre".
    """
    with Undisturbed():
        problem = _problem(
            model, x, edge_index, edge_weight, objective, labels, nodes, undirected,
            method, steps, rule, Stop(budget, seconds, reach, gain), seed, values,
            {"rounds": rounds, "per_round": per_round, "k": k, "schedule": schedule,
             "ratio": ratio},
        )  # fmt: skip
    return carry_out(problem, resume=resume, checkpoint=checkpoint, progress=progress)


def _problem(
    model: Callable[..., Any],
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    objective: Any,
    labels: Any,
    nodes: Any,
    undirected: bool | None,
    method: Any,
    steps: int | None,
    rule: str | Rule | None,
    stop: Stop,
    seed: int,
    values: ValuesWanted,
    picks: dict[str, Any],
) -> Problem:
    graph = read_graph(x, edge_index, edge_weight, undirected)
    if graph.columns == 0:
        raise InvalidInput("Expected at least one edge (got none).")
    network = freeze(model)
    with torch.no_grad():
        logits = network(x, graph.edge_index, graph.weight)
    target = NodeTarget(objective, logits, labels, nodes)
    features = graph.features()
    scorer, greedy = _method(method, steps, rule, graph)
    return make_problem(
        EdgeFunction(network, x, graph, target).objective(), scorer, features=features, stop=stop,
        seed=seed, values=values, **_picks(scorer, greedy, picks, features.units),
        settings={"method": method if isinstance(method, str) else type(method).__name__,
                  "objective": target.name, "undirected": graph.undirected},
        provenance=versions()
        | {"model": fingerprint(model), "input": _input_fingerprint(x, graph, target)},
    )  # fmt: skip


def _method(
    method: Any, steps: int | None, rule: str | Rule | None, graph: Graph
) -> tuple[PlannedScorer | Scorer, methods.Greedy | None]:
    if method == "degree":
        return degree_order(graph), None
    if method in ("greedy-pig", "ig") and rule is None:
        rule = RULE
    return methods.resolve(method, steps=steps, rule=rule)


def _picks(
    scorer: PlannedScorer | Scorer, greedy: methods.Greedy | None, asked: dict[str, Any], units: int
) -> dict[str, Any]:
    """The schedule's knobs: what was asked, else the method's own, else the defaults."""
    asked = {n: whole(v) for n, v in asked.items() if v is not None}
    if greedy is None:
        if asked:
            raise InvalidInput(
                f"Expected {', '.join(asked)} only for greedy methods (got a one-shot method)."
            )
        return {"rounds": 1}
    own = {n: getattr(greedy, n) for n in ("rounds", "per_round", "schedule", "ratio")}
    picks = {n: v for n, v in own.items() if v is not None} | asked
    if isinstance(picks.get("schedule", ""), str) and "per_round" not in picks:
        if "k" in picks:
            check_count("k", picks["k"], units)
        rounds = methods.default_rounds(scorer)
        picks.setdefault("rounds", min(rounds, picks.get("k", units)))
    return picks


def _input_fingerprint(x: Tensor, graph: Graph, target: NodeTarget) -> str:
    dense = x.to_dense() if x.layout != torch.strided else x
    tensors = {"x": dense, "edge_index": graph.edge_index, "weight": graph.weight,
               "classes": target.classes}  # fmt: skip
    if target.nodes is not None:
        tensors["nodes"] = target.nodes
    return digest(tensors, f"graph of {graph.nodes} nodes")
