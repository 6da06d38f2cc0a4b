"""A graph network's edges as a problem for the core: objective, units, method and provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.algorithms import make_problem
from ..core.errors import GreedyPigError, InvalidInput, InvalidType, NonFinite, NotDifferentiable
from ..core.features import Features
from ..core.objective import PointObjective, as_objective
from ..core.quadrature import Rule
from ..core.rounds import Problem, ValuesWanted
from ..core.schedule import check_count, whole
from ..core.scorers import PlannedScorer, Scorer
from ..core.stopping import Stop
from ..network.fingerprint import callables, digest, fingerprint
from ..network.frozen import Frozen, freeze
from ..tensors import methods
from ..tensors.runs import versions
from .detect_gcn import fast_stack
from .edges import (
    EdgeFunction,
    Graph,
    answer,
    degree_order,
    message_layers,
    takes_weights,
)
from .gcn_gradient import GCNObjective, Stack
from .objectives import NodeTarget
from .receptive_field import same

GRADIENTS = 100
"""What a run pays where nothing else is asked: rounds × steps."""
STEPS, RULE, RATIO = 3, "gauss-radau", 20.0
"""Defaults of "greedy-pig": the gradient is steep where few edges are left, so one node is at 1_S
itself, and early rounds are small. Figures in docs/graphs.md."""
NODE_STEPS, NODE_RULE = 20, "gauss-legendre"
"""Of one node's answer: few edges decide it, and 3 nodes do not resolve its path."""
HALVES = (torch.float16, torch.bfloat16)
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


class Misfit(InvalidInput):
    """Weight 0 is no removed edge to a model, for a `reason` in one sentence.

    usable: the model uses its weights all the same, and a warning is enough. Else this is raised,
    with the message `refusal`.
    """

    def __init__(self, reason: str, refusal: str = "") -> None:
        super().__init__(refusal or reason)
        self.reason, self.usable = reason, not refusal


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
                found = self._asked(graph.weight)
            else:
                ones = torch.ones_like(graph.weight)
                found = self.stack.logits(self.stack.propagation.normalised(ones))[0].clone()
        if isinstance(found, Tensor) and not bool(torch.isfinite(found).all()):
            cause = below_zero(graph)
            if cause:
                raise InvalidInput(
                    f"Expected finite logits on the full graph (got NaN or infinity). {cause}"
                )
        return found  # type: ignore[no-any-return]

    def _asked(self, weight: Tensor) -> Any:
        """The model's answers, or in the house's words why there are none."""
        try:
            if self.normalisation == "kept":
                return answer(self.frozen, self.x, self.graph.edge_index, weight)
            return self.frozen(self.x, self.graph.edge_index, weight)
        except (GreedyPigError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(_refused(self.frozen, self.x, error)) from error

    def misfit(self) -> Misfit | None:
        """Why weight 0 is no removed edge to this model, if so.

        Half of the edges are removed, once by their weights and once in fact.
        """
        graph = self.graph
        if self.stack is not None or not bool((graph.edge_index[0] != graph.edge_index[1]).any()):
            return None
        if not takes_weights(self.frozen):
            return Misfit("The model takes no edge_weight.", _idle("that takes none"))
        kept = _half(graph)
        columns = torch.nonzero(kept).squeeze(1)
        try:
            with torch.no_grad():
                full = self._asked(graph.weight)
                none = self._asked(torch.zeros_like(graph.weight))
                masked = self._asked(graph.weight * kept)
                cut = self.frozen(self.x, graph.edge_index[:, columns], graph.weight[columns])
        except InvalidInput as error:
            misfit = Misfit("The model cannot be called with edge_weight.", str(error))
            misfit.__cause__ = error.__cause__
            return misfit
        except (RuntimeError, ValueError, IndexError):  # It knows this graph alone.
            return None
        for found in (full, none, masked, cut):
            if not isinstance(found, Tensor) or not bool(torch.isfinite(found).all()):
                return None
        if torch.equal(full, none):
            return Misfit(
                "The model's answers are the same with all edge weights at 0.",
                _idle("whose answers are the same with all weights at 0"),
            )
        if same(masked, cut):
            return None
        off = float((masked - cut).abs().max()) if masked.shape == cut.shape else float("nan")
        return Misfit(
            "To this model an edge of weight 0 is not a removed edge, as where attention or a mean "
            "counts every edge: with half of the edges at weight 0 its logits differ by up to "
            f"{off:.2g} from those without these edges."
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


def settled(
    model: Callable[..., Any], x: Tensor, graph: Graph, normalisation: str | None, optimize: bool
) -> tuple[EdgeNetwork, str]:
    """The model on a graph under a reading that fits it, and what is to be said of that.

    normalisation None: "recomputed", or "kept" where weight 0 is no removed edge to the model and
    its messages can be masked.
    """
    if normalisation not in (None, *READINGS):
        raise InvalidInput(
            f"Expected normalisation to be 'recomputed', 'kept' or None (got {normalisation!r})."
        )
    if normalisation == "kept":
        return EdgeNetwork(model, x, graph, "kept", optimize), ""
    network = EdgeNetwork(model, x, graph, "recomputed", optimize)
    misfit = network.misfit()
    if misfit is None:
        return network, ""
    if normalisation is None and _masks_messages(network.frozen):
        other = EdgeNetwork(model, x, graph, "kept", optimize)
        try:
            other.logits()
        except InvalidInput as failed:
            raise (failed if misfit.usable else misfit) from failed
        return other, (
            f"{misfit.reason} Its messages are masked instead (normalisation='kept'): G(S) is the "
            "answer with all other messages at 0, not the one on the graph without these edges."
        )
    if not misfit.usable:
        raise misfit
    return network, f"{misfit.reason} Try normalisation='kept'."


def _idle(got: str) -> str:
    return (
        f"Expected a model that uses its edge_weight (got one {got}). Try passing edge_weight on "
        "to its layers, or normalisation='kept', which masks the messages of PyG's layers instead."
    )


def _masks_messages(network: Frozen) -> bool:
    try:
        return bool(message_layers(network))
    except InvalidInput:
        return False


def _half(graph: Graph) -> Tensor:
    """(columns,) 1 for loops and for a drawn half of the other units, 0 for the rest."""
    units = int(graph.units.max()) + 1
    drawn = torch.randperm(units, generator=torch.Generator().manual_seed(0)) < units // 2
    source, target = graph.edge_index
    stays: Tensor = drawn.to(source.device)[graph.units] | (source == target)
    return stays.to(graph.weight)


def _uncached(frozen: Frozen) -> Frozen:
    """PyG's layers may keep the degrees of the first graph they see; a private copy need not."""
    if frozen.module is not None and not frozen.held:
        for module in frozen.module.modules():
            if getattr(module, "cached", None) is True:
                module.cached = False  # type: ignore[assignment]
                for name in [n for n in vars(module) if n.startswith("_cached")]:
                    setattr(module, name, None)
    return frozen


def _refused(frozen: Frozen, x: Tensor, error: Exception) -> str:
    """Why a model may not take these features, and what to try."""
    parameters = [] if frozen.module is None else list(frozen.module.parameters())
    own = next((p.dtype for p in parameters if p.is_floating_point()), None)
    text = str(error).strip()
    said = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    got = f"features {_named(x.dtype)} of shape {tuple(x.shape)}"
    if own is not None:
        got += f", parameters {_named(own)}"
    advice = "Look at the number of features and at what the model takes."
    if own in HALVES or (own is None and x.dtype in HALVES):
        advice = "Try model.float() and x.float(): weights of edges are of float32 or float64."
    elif own is not None and x.dtype != own:
        advice = f"Try x.{'double' if own == torch.float64 else 'float'}()."
    elif own is None and not x.is_floating_point():
        advice = "Try x.float()."
    return (
        "Expected a model that can be called as model(x, edge_index, edge_weight) "
        f"(got {got}: {said}). {advice}"
    )


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def below_zero(graph: Graph) -> str:
    """What negative weights do, if there are some."""
    count = int((graph.weight < 0).sum())
    if not count:
        return ""
    return (
        f"{count} of {graph.columns} edges have negative weights: a node's degree may be ≤ 0, and "
        "has no root then. Try edge_weight.clamp_min(0), or a model that does not normalise."
    )


@contextmanager
def naming_weights(graph: Graph) -> Iterator[None]:
    """The core's words for a missing gradient and for numbers that are none, said of edges."""
    try:
        yield
    except NonFinite as error:
        cause = below_zero(graph)
        if not cause:
            raise
        raise NonFinite(f"{error} {cause}", error.rounds) from error
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
