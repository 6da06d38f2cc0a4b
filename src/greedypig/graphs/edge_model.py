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
from inspect import signature
from math import isfinite
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

NORMALISATIONS = ("recomputed", "kept")
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


class EdgeModel:
    """A model on a graph: its logits under masks over the columns of edge_index."""

    def __init__(self, frozen: Frozen, x: Tensor, graph: EdgeGraph, normalisation: str) -> None:
        self.frozen, self.x, self.graph = frozen, x.detach(), graph
        self.normalisation = normalisation

    @cached_property
    def stack(self) -> GCNStack | None:
        """The model as a stack of graph convolutions with a fast gradient, if it is one."""
        return fast_stack(self.frozen, self.x, self.graph, self.normalisation)

    def logits(self) -> Any:
        """The model's output with all edges."""
        with torch.no_grad():
            if self.stack is not None:  # It needs no array of edges × features.
                return self.stack.logits(torch.ones_like(self.graph.weight)).clone()
            return self.output(self.graph.weight)

    def output(self, weight: Tensor) -> Any:
        """The model's output under these weights; an error of the model's becomes one sentence."""
        try:
            if self.normalisation == "kept":
                return call(self.frozen, self.x, self.graph.edge_index, weight)
            return self.frozen(self.x, self.graph.edge_index, weight)
        except (GreedyPigError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            reason = first_line(error).rstrip(".") or type(error).__name__
            raise InvalidInput(
                "Expected a model that can be called as model(x, edge_index, edge_weight) (got "
                f"features {self.x.dtype} of shape {tuple(self.x.shape)}: {reason}). Check the "
                "dtype and number of features: float32 or float64, as the model's parameters."
            ) from error

    def is_fast(self, target: NodeTarget) -> bool:
        """Has this objective the fast gradient? The stack's logits may differ from the model's
        output by a log-softmax, so a callable gets the model's own."""
        return self.stack is not None and target.function is None

    def objective(self, target: NodeTarget) -> Objective:
        """g over the columns of edge_index, with the fast gradient where there is one."""
        logits = self._messages if self.normalisation == "kept" else self._weights
        if self.stack is not None and self.is_fast(target):
            logits = self.stack.logits

        def function(points: Tensor, problems: Tensor) -> Tensor:
            return torch.stack([target.value(logits(point)) for point in points])

        # One row at a time: a row is a pass over the whole graph.
        start = torch.zeros_like(self.graph.weight).reshape(1, 1, -1)
        return Objective(function, start, torch.ones_like(start), batch_size=1)

    def _weights(self, mask: Tensor) -> Any:
        """The output with weights scaled by a mask; loops stay."""
        mask = torch.where(self.graph.loops, 1, mask)
        return self.frozen(self.x, self.graph.edge_index, mask * self.graph.weight)

    def _messages(self, mask: Tensor) -> Any:
        """The output with messages scaled by a mask; loops stay."""
        graph, mask = self.graph, torch.where(self.graph.loops, 1, mask)
        forward = getattr(self.frozen.module, "forward", None)
        if forward is not None and "messages" in signature(forward).parameters:
            return self.frozen(self.x, graph.edge_index, graph.weight, messages=mask)
        layers = message_layers(self.frozen)
        if not layers:
            raise InvalidInput(
                "Expected layers of PyG, or a model with an argument `messages`, for "
                "normalisation='kept' (got one whose messages cannot be masked). Try 'recomputed'."
            )
        masked = {"explain": True, "_edge_mask": mask, "_loop_mask": ~graph.loops}
        masked["_apply_sigmoid"] = False
        before = [{name: getattr(layer, name) for name in masked} for layer in layers]
        try:
            for layer in layers:
                _set(layer, masked)
            return call(self.frozen, self.x, graph.edge_index, graph.weight)
        finally:
            for layer, attributes in zip(layers, before, strict=True):
                _set(layer, attributes)

    def distance_to_cut(self) -> float:
        """By how much the outputs differ if half of the edges are removed by weight 0 and if they
        are removed in fact; 0 where they agree, or where it cannot be computed."""
        graph = self.graph
        half = torch.rand(graph.columns, generator=torch.Generator().manual_seed(0)) < 0.5
        present = half.to(graph.weight.device)[graph.feature_ids] | graph.loops
        columns = torch.nonzero(present).squeeze(1)
        with torch.no_grad():
            masked = self.output(graph.weight * present)
            try:
                cut = self.frozen(self.x, graph.edge_index[:, columns], graph.weight[columns])
            except (RuntimeError, ValueError, IndexError):  # The model can compute this graph only.
                return 0.0
        if not isinstance(cut, Tensor) or same(masked, cut):
            return 0.0
        difference = float((masked - cut).abs().max())
        return difference if isfinite(difference) else 0.0


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
    if normalisation == "kept" or model.stack is not None or bool(graph.loops.all()):
        return model
    maskable = normalisation is None and bool(message_layers(frozen))
    try:
        difference = model.distance_to_cut()
        reason = (
            "To this model an edge of weight 0 is not a removed edge, as where weights are not "
            "used, or attention or a mean counts every edge: with half of the edges at weight 0 "
            f"its logits differ by up to {difference:.2g} from those without these edges."
        )
    except InvalidInput:
        if not maskable:
            raise
        difference, reason = 1.0, "The model cannot be called with edge_weight."
    if not difference:
        return model
    advice = "Try normalisation='kept'."
    if maskable:
        model, advice = EdgeModel(frozen, x, graph, "kept"), MASKED_INSTEAD
        model.logits()
    warnings.warn(f"{reason} {advice}", UserWarning, stacklevel=levels_to_caller())
    return model


def same(one: Any, other: Any) -> bool:
    """Are two outputs equal but for the order in which numbers were added?"""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return False
    close = CLOSE.get(one.dtype, 1e-4)
    return bool((one - other).abs().max() <= close * one.abs().max())


def call(network: Frozen, x: Tensor, edge_index: Tensor, weight: Tensor) -> Any:
    """A model's output on a graph, called as its caller would call it.

    Weights that are all 1 are left out where the model has no argument of that name for them, and
    may do without.
    """
    if bool((weight == 1).all()) and not _wants_weights(network):
        return network(x, edge_index)
    return network(x, edge_index, weight)


def _wants_weights(network: Frozen) -> bool:
    """Has the model an argument edge_weight, or can it not do without a third one?"""
    module = network.module
    function = network.call if module is None or network.call is not module else module.forward
    try:
        arguments = signature(function)
        arguments.bind(None, None)
    except (TypeError, ValueError):
        return True
    return "edge_weight" in arguments.parameters


def message_layers(network: Frozen) -> list[Any]:
    """The message-passing layers of a PyG model."""
    modules = [] if network.module is None else network.module.modules()
    return [m for m in modules if hasattr(m, "explain_message") and hasattr(m, "_edge_mask")]


def _set(layer: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(layer, name, value)
