"""One call from a graph network and a graph to the edges that its answers rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from . import methods
from .core.algorithms import make_problem
from .core.attribution import Attribution
from .core.errors import InvalidInput, InvalidType, NotDifferentiable
from .core.features import Features
from .core.lockstep import Undisturbed
from .core.objective import PointObjective, as_objective
from .core.quadrature import Rule
from .core.rounds import Problem, Rounds, Stop, ValuesWanted
from .core.schedule import check_count, whole
from .core.scorers import PlannedScorer, Scorer
from .domains.gcn import GCNObjective, Stack
from .domains.graph import EdgeFunction, Graph, degree_order, read_graph
from .domains.node_target import NodeTarget
from .domains.recognise import fast_stack
from .explain import carry_out, versions
from .fingerprint import digest, fingerprint
from .frozen import Frozen, freeze

RULE = "gauss-legendre"
"""The gradient is steep where few edges are left: five of its nodes are worth twenty midpoints."""
READINGS = ("recomputed", "kept")
SMALL = 200_000
"""Up to so many columns the model itself is asked for its answer on the full graph; on larger
ones its recognised stack is, which needs no array of edges × features."""


@dataclass(frozen=True)
class Plan:
    """How to look for edges: the knobs of `explain_edges` that do not depend on the graph."""

    method: Any
    steps: int | None
    rule: str | Rule | None
    picks: dict[str, Any]
    stop: Stop
    seed: int
    values: ValuesWanted


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
    optimize: use the hand-written gradient where the model is found to be a stack of graph
        convolutions and both agree on a part of the graph.
    The rest is as in `explain`; the integral's default rule is "gauss-legendre".
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
        network = EdgeNetwork(model, x, graph, normalisation, optimize)
        target = NodeTarget(objective, network.logits(), labels, nodes)
        problem = network.problem(target, plan)
    with _named_weights():
        return carry_out(problem, resume=resume, checkpoint=checkpoint, progress=progress)


class EdgeNetwork:
    """A model on a graph: its answers under masks over the edges, fast where that is known."""

    def __init__(
        self,
        model: Callable[..., Any],
        x: Tensor,
        graph: Graph,
        normalisation: str = "recomputed",
        optimize: bool = True,
    ) -> None:
        if not callable(model):
            raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
        if normalisation not in READINGS:
            raise InvalidInput(
                f"Expected normalisation to be 'recomputed' or 'kept' (got {normalisation!r})."
            )
        self.x, self.graph, self.normalisation = x.detach(), graph, normalisation
        self.fingerprint = fingerprint(model)
        self.frozen = _uncached(freeze(model))
        self.stack: Stack | None = None
        if optimize:
            self.stack = fast_stack(self.frozen, self.x, graph, normalisation)

    def logits(self) -> Tensor:
        """The model's answers on the full graph; refuses a model to which edges mean nothing."""
        graph = self.graph
        ones = torch.ones_like(graph.weight)
        if self.stack is not None and graph.columns > SMALL:
            return self.stack.logits(self.stack.propagation.normalised(ones))[0].clone()
        with torch.no_grad():
            full = self.frozen(self.x, graph.edge_index, graph.weight)
            if self.stack is None and isinstance(full, Tensor) and self._ignores_edges(full):
                raise InvalidInput(
                    "Expected a model that uses its edge_weight (got one whose answers are the "
                    "same with all weights at 0). Try passing edge_weight on to its layers, or "
                    "normalisation='kept', which masks the messages of PyG's layers instead."
                )
        return full  # type: ignore[no-any-return]

    def _ignores_edges(self, full: Tensor) -> bool:
        if self.normalisation == "kept":
            return False
        none = self.frozen(self.x, self.graph.edge_index, torch.zeros_like(self.graph.weight))
        return torch.equal(full, none)

    def objective(self, target: NodeTarget) -> PointObjective:
        """g over the columns of edge_index."""
        if self.stack is not None and target.function is None:
            found = as_objective(GCNObjective(self.stack, target))
            assert isinstance(found, PointObjective)
            return found
        return EdgeFunction(self.frozen, self.x, self.graph, target, self.normalisation).objective()

    def problem(
        self,
        target: NodeTarget,
        plan: Plan,
        features: Features | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Problem:
        """The run over this graph's edges."""
        features = features or self.graph.features()
        scorer, greedy = _method(plan, self.graph)
        method = plan.method
        return make_problem(
            self.objective(target), scorer, features=features, stop=plan.stop, seed=plan.seed,
            values=plan.values, **_picks(scorer, greedy, plan.picks, features.units),
            settings={
                "method": method if isinstance(method, str) else type(method).__name__,
                "objective": target.name, "normalisation": self.normalisation,
                "undirected": self.graph.undirected, "fast": self.stack is not None,
                **(settings or {}),
            },
            provenance=versions() | {"model": self.fingerprint, "input": self._input(target)},
        )  # fmt: skip

    def _input(self, target: NodeTarget) -> str:
        """A digest of features, edges and what is asked of which nodes."""
        tensors = {"edge_index": self.graph.edge_index, "weight": self.graph.weight,
                   "classes": target.classes} | _dense_parts(self.x)  # fmt: skip
        if target.nodes is not None:
            tensors["nodes"] = target.nodes
        return digest(tensors, f"graph of {self.graph.nodes} nodes")


def _uncached(frozen: Frozen) -> Frozen:
    """PyG's layers may keep the degrees of the first graph they see; a private copy need not."""
    if frozen.module is not None and not frozen.held:
        for module in frozen.module.modules():
            if getattr(module, "cached", None) is True:
                module.cached = False  # type: ignore[assignment]
                for name in [n for n in vars(module) if n.startswith("_cached")]:
                    setattr(module, name, None)
    return frozen


class _named_weights:
    """The core's word for a missing gradient, said of edges."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, NotDifferentiable):
            raise NotDifferentiable(
                "Expected a model whose answers depend on edge_weight through differentiable torch "
                "operations (got answers without a gradient). Look for detach(), comparisons or "
                "no_grad on the way."
            ) from error


def _method(plan: Plan, graph: Graph) -> tuple[PlannedScorer | Scorer, methods.Greedy | None]:
    method, rule = plan.method, plan.rule
    if method == "degree":
        return degree_order(graph), None
    if method in ("greedy-pig", "ig") and rule is None:
        rule = RULE
    return methods.resolve(method, steps=plan.steps, rule=rule)


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


def _dense_parts(x: Tensor) -> dict[str, Tensor]:
    """x as dense tensors, whatever its layout."""
    if x.layout == torch.strided:
        return {"x": x}
    coo = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
    return {"x indices": coo.indices(), "x values": coo.values()}
