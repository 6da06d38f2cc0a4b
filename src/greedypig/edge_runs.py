"""A graph network's edges as a problem for the core: objective, units, method and provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import methods
from .core.algorithms import make_problem
from .core.errors import InvalidInput, InvalidType, NotDifferentiable
from .core.features import Features
from .core.objective import PointObjective, as_objective
from .core.quadrature import Rule
from .core.rounds import Problem, ValuesWanted
from .core.schedule import check_count, whole
from .core.scorers import PlannedScorer, Scorer
from .core.stopping import Stop
from .domains.gcn import GCNObjective, Stack
from .domains.graph import EdgeFunction, Graph, degree_order
from .domains.node_target import NodeTarget
from .domains.recognise import fast_stack
from .fingerprint import callables, digest, fingerprint
from .frozen import Frozen, freeze
from .runs import versions

GRADIENTS = 100
"""What a run pays where nothing else is asked: rounds × steps."""
STEPS, RULE, RATIO = 3, "gauss-radau", 20.0
"""Defaults of "greedy-pig": the gradient is steep where few edges are left, so one node is at 1_S
itself, and early rounds are small. Figures in docs/graphs.md."""
READINGS = ("recomputed", "kept")
SMALL = 200_000
"""Up to so many columns the model itself is asked for its answer on the full graph; on larger
ones its recognised stack is, which needs no array of edges × features."""


@dataclass(frozen=True)
class Plan:
    """How to look for edges: the knobs that do not depend on the graph."""

    method: Any
    steps: int | None
    rule: str | Rule | None
    picks: dict[str, Any]
    stop: Stop
    seed: int
    values: ValuesWanted
    once: dict[str, Any] | None = None
    """What a one-shot method takes; None for everything."""


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
        """The model's answers with all edges."""
        graph = self.graph
        with torch.no_grad():
            if self.stack is None or graph.columns <= SMALL:
                return self.frozen(self.x, graph.edge_index, graph.weight)  # type: ignore[no-any-return]
            ones = torch.ones_like(graph.weight)
            return self.stack.logits(self.stack.propagation.normalised(ones))[0].clone()

    def check(self) -> None:
        """Refuse a model to which the weights of edges mean nothing."""
        if self.stack is not None or self.normalisation == "kept":
            return
        graph = self.graph
        with torch.no_grad():
            full = self.frozen(self.x, graph.edge_index, graph.weight)
            none = self.frozen(self.x, graph.edge_index, torch.zeros_like(graph.weight))
        if isinstance(full, Tensor) and torch.equal(full, none):
            raise InvalidInput(
                "Expected a model that uses its edge_weight (got one whose answers are the same "
                "with all weights at 0). Try passing edge_weight on to its layers, or "
                "normalisation='kept', which masks the messages of PyG's layers instead."
            )

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
        *,
        features: Features | None = None,
        objective: PointObjective | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Problem:
        """The run over this graph's edges, or over some of them."""
        features = features or self.graph.features()
        scorer, greedy = _method(plan, self.graph)
        return make_problem(
            objective or self.objective(target), scorer, features=features, stop=plan.stop,
            seed=plan.seed, values=plan.values, **_picks(scorer, greedy, plan, features.units),
            settings=self.settings(target, plan.method) | (settings or {}),
            provenance=self.provenance(target),
        )  # fmt: skip

    def settings(self, target: NodeTarget, method: Any) -> dict[str, Any]:
        """What was asked, for the record."""
        return {
            "method": method if isinstance(method, str) else type(method).__name__,
            "objective": target.name,
            "normalisation": self.normalisation,
            "undirected": self.graph.undirected,
            "fast": self.stack is not None and target.function is None,
        }

    def provenance(self, target: NodeTarget) -> dict[str, str]:
        """Versions, and which model and graph this was."""
        return (
            versions()
            | callables(objective=target.function)
            | {"model": self.fingerprint, "input": self._input(target)}
        )

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


@contextmanager
def naming_weights() -> Iterator[None]:
    """The core's word for a missing gradient, said of edges."""
    try:
        yield
    except NotDifferentiable as error:
        raise NotDifferentiable(
            "Expected a model whose answers depend on edge_weight through differentiable torch "
            "operations (got answers without a gradient). Look for detach(), comparisons or "
            "no_grad on the way."
        ) from error


def _method(plan: Plan, graph: Graph) -> tuple[PlannedScorer | Scorer, methods.Greedy | None]:
    method, steps, rule = plan.method, plan.steps, plan.rule
    if method == "degree":
        return degree_order(graph), None
    if method == "greedy-pig" and steps is None and not isinstance(rule, Rule):
        steps = STEPS
    if method == "greedy-pig" and rule is None:
        rule = RULE
    if method == "ig" and rule is None:
        rule = "gauss-legendre"
    return methods.resolve(method, steps=steps, rule=rule)


def _picks(
    scorer: PlannedScorer | Scorer, greedy: methods.Greedy | None, plan: Plan, units: int
) -> dict[str, Any]:
    """The schedule's knobs: what was asked, else the method's own, else the defaults."""
    asked = {n: whole(v) for n, v in plan.picks.items() if v is not None}
    if greedy is None and plan.once is not None:
        return plan.once
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
        cost = scorer.cost() if isinstance(scorer, PlannedScorer) else 1
        rounds = max(1, GRADIENTS // max(cost, 1))
        picks.setdefault("rounds", min(rounds, picks.get("k", units)))
        picks.setdefault("schedule", "geometric")
        if picks["schedule"] == "geometric":
            picks.setdefault("ratio", RATIO)
    return picks


def _dense_parts(x: Tensor) -> dict[str, Tensor]:
    """x as dense tensors, whatever its layout."""
    if x.layout == torch.strided:
        return {"x": x}
    coo = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
    return {"x indices": coo.indices(), "x values": coo.values()}
