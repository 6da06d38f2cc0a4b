"""A model on a graph, under masks over its edges: g(s) = target(model(x, edge_index, s · weight)).

normalisation "recomputed": an edge of weight 0 is absent, and a network that normalises by degree
counts the degrees of the edges that are left, as the paper's Â_S does. "kept": the weights stay as
they are, and the messages of absent edges are masked, by the model's own argument `messages` or in
the layers of PyG.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from ..core.errors import GreedyPigError, InvalidInput, InvalidType, first_line
from ..core.objective import Objective
from ..network.frozen import Frozen, freeze
from ..tensors.targets import levels_to_caller
from .edges import EdgeGraph
from .gcn_stack import GCNStack, fast_stack
from .objectives import NodeTarget

NO_WEIGHTS = ("size", "batch", "num_nodes", "return_attention_weights")
"""Third arguments of PyG's layers and models that are not weights of edges."""
NORMALISATIONS = ("recomputed", "kept")
HALVES = (torch.float16, torch.bfloat16)
SMALL = 200_000
"""Up to so many columns the model itself computes the logits of the full graph; on larger graphs
its fast stack does, which needs no array of edges × features."""
CLOSE = {torch.float64: 1e-9}
"""Relative distance up to which two outputs are the same; 1e-4 for all other dtypes."""
MASKED_INSTEAD = (
    "Its messages are masked instead (normalisation='kept'): G(S) is the output with all other "
    "messages at 0, not the one on the graph without these edges."
)


def frozen_model(model: Callable[..., Any]) -> Frozen:
    """A private copy of the model, whose PyG layers do not cache the degrees of one graph."""
    if not callable(model):
        raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
    frozen = freeze(model)
    if frozen.module is not None and not frozen.held:
        for module in frozen.module.modules():
            if getattr(module, "cached", None) is True:
                module.cached = False  # type: ignore[assignment]
                for name in [n for n in vars(module) if n.startswith("_cached")]:
                    setattr(module, name, None)
    return frozen


class Misfit(InvalidInput):
    """Weight 0 is no removed edge to a model, for a `reason` in one sentence.

    usable: the model uses its weights all the same, and a warning is enough. Else this is raised,
    with the message `refusal`.
    """

    def __init__(self, reason: str, refusal: str = "") -> None:
        super().__init__(refusal or reason)
        self.reason, self.usable = reason, not refusal


class EdgeModel:
    """A model on a graph: its logits under masks over the columns of edge_index."""

    def __init__(self, frozen: Frozen, x: Tensor, graph: EdgeGraph, normalisation: str) -> None:
        self.frozen, self.x, self.graph = frozen, x.detach(), graph
        self.normalisation = normalisation
        self._between = graph.edge_index[0] != graph.edge_index[1]

    @cached_property
    def stack(self) -> GCNStack | None:
        """The model as a stack of graph convolutions with a fast gradient, if it is one."""
        return fast_stack(self.frozen, self.x, self.graph, self.normalisation)

    def logits(self) -> Tensor:
        """The model's output with all edges."""
        with torch.no_grad():
            if self.graph.columns <= SMALL or self.stack is None:
                output = self._call(self.graph.weight)
            else:
                output = self.stack.logits(torch.ones_like(self.graph.weight)).clone()
        if isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
            cause = negative_weights(self.graph)
            if cause:
                raise InvalidInput(
                    f"Expected finite logits on the full graph (got NaN or infinity). {cause}"
                )
        return output  # type: ignore[no-any-return]

    def objective(self, target: NodeTarget) -> Objective:
        """g over the columns of edge_index, with the fast gradient where there is one."""
        if self.stack is not None and self.is_fast(target):
            return self._objective(target, self.stack.logits)
        return self.plain_objective(target)

    def is_fast(self, target: NodeTarget) -> bool:
        """Has this objective the fast gradient?"""
        return target.function is None and self.stack is not None

    def plain_objective(self, target: NodeTarget) -> Objective:
        """g by autograd through the model itself."""
        masked = self._messages if self.normalisation == "kept" else self._weights
        return self._objective(target, masked)

    def _objective(self, target: NodeTarget, logits: Callable[[Tensor], Any]) -> Objective:
        def function(points: Tensor, problems: Tensor) -> Tensor:
            return torch.stack([target.value(logits(point)) for point in points])

        # One row at a time: a row is a pass over the whole graph.
        start = torch.zeros_like(self.graph.weight).reshape(1, 1, -1)
        return Objective(function, start, torch.ones_like(start), batch_size=1)

    def _weights(self, mask: Tensor) -> Any:
        """The output with weights scaled by a mask; loops stay."""
        mask = torch.where(self._between, mask, 1)
        return self.frozen(self.x, self.graph.edge_index, mask * self.graph.weight)

    def _messages(self, mask: Tensor) -> Any:
        """The output with messages scaled by a mask; loops stay."""
        graph, mask = self.graph, torch.where(self._between, mask, 1)
        forward = getattr(self.frozen.module, "forward", None)
        if forward is not None and "messages" in signature(forward).parameters:
            return self.frozen(self.x, graph.edge_index, graph.weight, messages=mask)
        layers = message_layers(self.frozen)
        if not layers:
            raise InvalidInput(
                "Expected layers of PyG, or a model with an argument `messages`, for "
                "normalisation='kept' (got one whose messages cannot be masked). Try 'recomputed'."
            )
        masked = {
            "explain": True,
            "_edge_mask": mask,
            "_loop_mask": self._between,
            "_apply_sigmoid": False,
        }
        before = [{name: getattr(layer, name) for name in masked} for layer in layers]
        try:
            for layer in layers:
                _set(layer, masked)
            return call(self.frozen, self.x, graph.edge_index, graph.weight)
        finally:
            for layer, attributes in zip(layers, before, strict=True):
                _set(layer, attributes)

    def _call(self, weight: Tensor) -> Any:
        """The output under these weights; an error of the model's becomes one sentence."""
        try:
            if self.normalisation == "kept":
                return call(self.frozen, self.x, self.graph.edge_index, weight)
            return self.frozen(self.x, self.graph.edge_index, weight)
        except (GreedyPigError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(_refusal(self.frozen, self.x, error)) from error

    def misfit(self) -> Misfit | None:
        """Why weight 0 is no removed edge to this model, if it is not.

        Half of the edges are removed, once by their weights and once in fact.
        """
        graph = self.graph
        if not bool(self._between.any()) or self.stack is not None:
            return None
        third = _third(self.frozen)
        if third is None or third.name in NO_WEIGHTS:
            return Misfit("The model takes no edge_weight.", _unused("that takes none"))
        present = _half(graph)
        columns = torch.nonzero(present).squeeze(1)
        try:
            with torch.no_grad():
                full = self._call(graph.weight)
                none = self._call(torch.zeros_like(graph.weight))
                masked = self._call(graph.weight * present)
                cut = self.frozen(self.x, graph.edge_index[:, columns], graph.weight[columns])
        except InvalidInput as error:
            misfit = Misfit("The model cannot be called with edge_weight.", str(error))
            misfit.__cause__ = error.__cause__
            return misfit
        except (RuntimeError, ValueError, IndexError):  # It can compute this graph only.
            return None
        for output in (full, none, masked, cut):
            if not isinstance(output, Tensor) or not bool(torch.isfinite(output).all()):
                return None
        if torch.equal(full, none):
            return Misfit(
                "The model's outputs are the same with all edge weights at 0.",
                _unused("whose outputs are the same with all weights at 0"),
            )
        if same(masked, cut):
            return None
        off = float((masked - cut).abs().max()) if masked.shape == cut.shape else float("nan")
        return Misfit(
            "To this model an edge of weight 0 is not a removed edge, as where attention or a mean "
            "counts every edge: with half of the edges at weight 0 its logits differ by up to "
            f"{off:.2g} from those without these edges."
        )


def fitting_model(
    frozen: Frozen, x: Tensor, graph: EdgeGraph, normalisation: str | None
) -> EdgeModel:
    """The model on a graph under a normalisation that fits it; warns where that needs saying.

    normalisation None: "recomputed", or "kept" where weight 0 is no removed edge to the model and
    its messages can be masked.
    """
    if normalisation not in (None, *NORMALISATIONS):
        raise InvalidInput(
            f"Expected normalisation to be 'recomputed', 'kept' or None (got {normalisation!r})."
        )
    model = EdgeModel(frozen, x, graph, normalisation or "recomputed")
    misfit = model.misfit() if model.normalisation == "recomputed" else None
    if misfit is None:
        return model
    if normalisation is None and message_layers(frozen):
        other = EdgeModel(frozen, x, graph, "kept")
        try:
            other.logits()
        except InvalidInput as failure:
            raise (failure if misfit.usable else misfit) from failure
        model, advice = other, MASKED_INSTEAD
    elif misfit.usable:
        advice = "Try normalisation='kept'."
    else:
        raise misfit
    warnings.warn(f"{misfit.reason} {advice}", UserWarning, stacklevel=levels_to_caller())
    return model


def same(one: Tensor, other: Tensor) -> bool:
    """Are two outputs equal but for the order in which numbers were added?"""
    if one.shape != other.shape:
        return False
    close = CLOSE.get(one.dtype, 1e-4)
    return bool((one - other).abs().max() <= close * one.abs().max())


def call(network: Frozen, x: Tensor, edge_index: Tensor, weight: Tensor) -> Any:
    """A model's output on a graph, called as its caller would call it.

    Weights that are all 1 are left out where the model has no argument of that name for them, and
    may do without.
    """
    third = _third(network)
    optional = third is None or (
        third.default is not Parameter.empty and "edge_weight" not in third.name
    )
    if optional and bool((weight == 1).all()):
        return network(x, edge_index)
    return network(x, edge_index, weight)


def _third(network: Frozen) -> Parameter | None:
    """The third argument of a model; edge_weight where its signature is not known."""
    unknown = Parameter("edge_weight", Parameter.POSITIONAL_OR_KEYWORD)
    module = network.module
    function = network.call if module is None or network.call is not module else module.forward
    try:
        known = list(signature(function).parameters.values())
    except (TypeError, ValueError):
        return unknown
    if any(p.kind is Parameter.VAR_POSITIONAL for p in known):
        return unknown
    plain = [p for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return plain[2] if len(plain) > 2 else None


def message_layers(network: Frozen) -> list[Any]:
    """The message-passing layers of a PyG model."""
    modules = [] if network.module is None else network.module.modules()
    return [m for m in modules if hasattr(m, "explain_message") and hasattr(m, "_edge_mask")]


def _set(layer: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(layer, name, value)


def _half(graph: EdgeGraph) -> Tensor:
    """(columns,) 1 for loops and for a random half of the other units, 0 for the rest."""
    units = int(graph.units.max()) + 1
    half = torch.randperm(units, generator=torch.Generator().manual_seed(0)) < units // 2
    source, target = graph.edge_index
    present: Tensor = half.to(source.device)[graph.units] | (source == target)
    return present.to(graph.weight)


def _unused(got: str) -> str:
    return (
        f"Expected a model that uses its edge_weight (got one {got}). Try passing edge_weight on "
        "to its layers, or normalisation='kept', which masks the messages of PyG's layers instead."
    )


def _refusal(frozen: Frozen, x: Tensor, error: Exception) -> str:
    """Why a model may not take these features, and what to try."""
    parameters = [] if frozen.module is None else list(frozen.module.parameters())
    own = next((p.dtype for p in parameters if p.is_floating_point()), None)
    reason = first_line(error).rstrip(".") or type(error).__name__
    got = f"features {_name(x.dtype)} of shape {tuple(x.shape)}"
    if own is not None:
        got += f", parameters {_name(own)}"
    advice = "Check the number of features and the arguments of the model."
    if own in HALVES or (own is None and x.dtype in HALVES):
        advice = "Try model.float() and x.float(): weights of edges are float32 or float64."
    elif own is not None and x.dtype != own:
        advice = f"Try x.{'double' if own == torch.float64 else 'float'}()."
    elif own is None and not x.is_floating_point():
        advice = "Try x.float()."
    return (
        "Expected a model that can be called as model(x, edge_index, edge_weight) "
        f"(got {got}: {reason}). {advice}"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def negative_weights(graph: EdgeGraph) -> str:
    """What negative weights do, if there are some."""
    count = int((graph.weight < 0).sum())
    if not count:
        return ""
    return (
        f"{count} of {graph.columns} edges have negative weights: a node's degree may be ≤ 0, and "
        "has no root then. Try edge_weight.clamp_min(0), or a model that does not normalise."
    )
