"""A model on a graph, under masks over its edges: g(s) = target(model(x, edge_index, s · weight)).

normalisation "recomputed": an edge of weight 0 is absent, and a network that normalises by degree
counts the degrees of the edges that are left, as the paper's Â_S does. "kept": the weights stay as
they are, and the messages of absent edges are masked, by the model's own argument `messages` or in
the layers of PyG.

Models that are plain stacks of graph convolutions have a fast gradient: those that declare
`gcn_layers()`, as greedypig.models.GCN does, and chains of PyG's GCNConv with ReLU between them.
Either is checked once on a small part of the graph: value and gradient must equal those of autograd
through the model itself. At ogbn-arxiv's size the fast gradient takes more than 20 times less
processor time than autograd through PyG's layers (benchmarks/graphs.py).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import cached_property
from inspect import signature
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from ..compat import forget_degrees, masked_messages, takes_mask
from ..core.errors import GreedyPigError, InvalidInput, first_line, levels_to_caller
from ..core.objective import Objective
from ..network.frozen import Frozen, freeze
from .edges import EdgeGraph, EdgeObjective, rows_of
from .gcn import convolutions
from .objectives import NodeTarget
from .propagation import Adjacency, Arrays, narrows

log = logging.getLogger(__name__)
NORMALISATIONS = ("recomputed", "kept")
CLOSE = {torch.float64: 1e-9}
"""Relative distance up to which two outputs are the same; 1e-4 for all other dtypes."""
CLOSE_GRADIENTS = {torch.float32: 1e-3, torch.float64: 1e-9}
"""The same of two gradients; ReLU's kinks show in float32."""
SAMPLE = 2000
"""About so many units of the graph are used to check the fast gradient."""
Layers = list[tuple[Tensor | None, Tensor | None]]
"""Wˡ and bˡ of every layer; a W of None is the identity."""

MASKED_INSTEAD = (
    "Its messages are masked instead (normalisation='kept'): G(S) is the output with all other "
    "messages at 0, not the one on the graph without these edges."
)


def frozen_model(model: Callable[..., Any]) -> Frozen:
    """A private copy of the model, whose PyG layers do not cache the degrees of one graph."""
    frozen = freeze(model)
    if frozen.module is not None and not frozen.held:
        for module in frozen.module.modules():
            forget_degrees(module)
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
        logits = self._messages if self.normalisation == "kept" else self.with_weights
        if self.stack is not None and self.is_fast(target):
            logits = self.stack.logits
        return EdgeObjective(self.graph, logits, target.value)

    def with_weights(self, mask: Tensor) -> Any:
        """The output with weights scaled by a mask; loops stay."""
        mask = torch.where(self.graph.loops, 1, mask)
        return self.frozen(self.x, self.graph.edge_index, mask * self.graph.weight)

    def _messages(self, mask: Tensor) -> Any:
        """The output with messages scaled by a mask; loops stay."""
        graph, mask = self.graph, torch.where(self.graph.loops, 1, mask)
        forward = getattr(self.frozen.module, "forward", None)
        if forward is not None and "messages" in signature(forward).parameters:
            return self.frozen(self.x, graph.edge_index, graph.weight, messages=mask)
        # PyG's AttentiveFP has a layer with explain=False: its messages go from nodes to graphs.
        layers = [m for m in message_layers(self.frozen) if m.explain is not False]
        if not layers:
            raise InvalidInput(
                "Expected layers of PyG, or a model with an argument `messages`, for "
                "normalisation='kept' (got one whose messages cannot be masked). Try 'recomputed'."
            )
        with masked_messages(layers, mask, graph.loops):
            return call(self.frozen, self.x, graph.edge_index, graph.weight)

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
    return [module for module in modules if takes_mask(module)]


class GCNStack:
    """Graph convolutions on one graph: Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ) for layers (Wˡ, bˡ).

    normalisation "recomputed" takes degrees from the masked graph, "kept" from the whole one.
    """

    def __init__(self, layers: Layers, x: Tensor, graph: EdgeGraph, normalisation: str) -> None:
        (first, bias), *rest = layers
        self.input, self.layers = x, layers
        if first is not None and (x.layout != torch.strided or narrows(first)):
            # The product of x and the first matrix is the same for every mask.
            self.input, self.layers = x @ first, [(None, bias), *rest]
        self.adjacency = Adjacency(graph.edge_index, graph.nodes)
        self.weight, self.normalisation = graph.weight, normalisation
        self.arrays = [Arrays() for _ in layers]

    def logits(self, mask: Tensor) -> Tensor:
        """(nodes, classes) under a mask (columns,), in differentiable torch.

        Take its gradient before the next call, which writes on the same arrays.
        """
        if self.normalisation == "kept":
            matrix = self.adjacency.normalised(self.weight, mask)
        else:
            matrix = self.adjacency.normalised(self.weight * mask)
        return convolutions(self.input, matrix, self.layers, arrays=self.arrays)


def fast_stack(network: Frozen, x: Tensor, graph: EdgeGraph, normalisation: str) -> GCNStack | None:
    """The model as a stack of graph convolutions, if that is what it is."""
    if network.module is None or network.held or network.call is not network.module:
        return None
    if x.device.type != "cpu" or x.dim() != 2 or x.dtype not in CLOSE_GRADIENTS:
        return None
    try:
        layers = _layers(network.module, graph)
        part, features = _sample(graph, x)
        if layers and _agrees(layers, EdgeModel(network, features, part, "recomputed")):
            return GCNStack(layers, x, graph, normalisation)
    except Exception as error:  # Whatever a foreign model may raise on another graph.
        log.debug("autograd for %s (%s)", type(network.module).__name__, error)
    return None


def _layers(module: nn.Module, graph: EdgeGraph) -> Layers:
    """W (in, out) and b of every layer: declared, or of a chain of usual GCNConv; else none."""
    declared = getattr(module, "gcn_layers", None)
    if callable(declared):
        pairs = declared()
    else:
        convs: list[Any] = [m for m in module.modules() if _is_conv(m)]
        # An edge from a node to itself replaces the loop that GCNConv adds.
        if graph.loops.any() or not all(map(_is_usual, convs)):
            return []
        pairs = [(conv.lin.weight.t(), conv.bias) for conv in convs]
    return [(w.detach().contiguous(), None if b is None else b.detach()) for w, b in pairs]


def _is_conv(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "GCNConv" and kind.__module__.startswith("torch_geometric.")


def _is_usual(conv: Any) -> bool:
    normal = conv.normalize and conv.add_self_loops and not conv.improved
    plain = conv.flow == "source_to_target" and conv.aggr == "add" and conv.lin.bias is None
    return bool(normal and plain)


def _sample(graph: EdgeGraph, x: Tensor) -> tuple[EdgeGraph, Tensor]:
    """A part of the graph with whole units, its nodes numbered anew, and their features."""
    if graph.columns <= SAMPLE:
        return graph, x
    count = int(graph.feature_ids.max()) + 1
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[torch.randint(count, (SAMPLE,), generator=torch.Generator().manual_seed(0))] = True
    columns = torch.nonzero(chosen[graph.feature_ids]).squeeze(1)
    nodes, ends = torch.unique(graph.edge_index[:, columns], return_inverse=True)
    part = EdgeGraph(nodes.numel(), ends, graph.weight[columns], graph.undirected)
    return part, rows_of(x, nodes)


def _agrees(layers: Layers, model: EdgeModel) -> bool:
    """Are the value and the gradient at a mask inside the cube those of autograd?"""
    x, graph, close = model.x, model.graph, CLOSE_GRADIENTS[model.x.dtype]
    with torch.no_grad():
        target = NodeTarget("log-probability", model.output(graph.weight))
    stack, features = GCNStack(layers, x, graph, "recomputed"), graph.features()
    generator = torch.Generator().manual_seed(1)
    units = torch.rand(features.count, generator=generator, dtype=x.dtype)
    mask = units[graph.feature_ids].reshape(1, 1, -1)
    logits = (stack.logits, model.with_weights)
    fast, own = (EdgeObjective(graph, of_mask, target.value) for of_mask in logits)
    same_value = torch.allclose(fast.values(mask), own.values(mask), rtol=close, atol=close)
    one = mask.new_ones(1)
    gradient, true = (features.sum(g.gradient(mask, one)) for g in (fast, own))
    return same_value and bool((gradient - true).norm() <= close * true.norm())
