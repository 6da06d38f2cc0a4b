"""Models that are plain stacks of graph convolutions: they have a fast gradient for edges.

A model that declares `gcn_layers()`, as greedypig.models.GCN does, or one whose only layers are a
chain of PyG's GCNConv with ReLU between them. Either is checked once on a small part of the graph:
values and gradients must equal those of autograd through the model itself. At ogbn-arxiv's size the
fast gradient takes about 20 times less processor time than autograd through PyG's layers
(benchmarks/graphs.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..network.frozen import Frozen
from .edges import EdgeGraph, rows_of
from .objectives import NodeTarget
from .propagation import Adjacency, Buffers, Layer

log = logging.getLogger(__name__)

SAMPLE = 2000
"""About so many units of the graph are used for the check."""
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative distance up to which two gradients are the same; ReLU's kinks show in float32."""


class GCNStack:
    """Graph convolutions on one graph: G = target(Hᴸ), Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ).

    normalisation "recomputed" takes degrees from the masked graph, "kept" from the whole one.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        x: Tensor,
        graph: EdgeGraph,
        normalisation: str,
        loops: float | Tensor = 1.0,
    ) -> None:
        first = layers[0]
        assert first.weight is not None
        self.layers, self.input = list(layers), x
        if x.layout != torch.strided or first.weight.shape[0] > first.weight.shape[1]:
            # The product of x and the first matrix is the same for every mask.
            self.input = x @ first.weight
            self.layers[0] = first._replace(weight=None)
        self.adjacency = Adjacency(graph.edge_index, graph.nodes, loops)
        self.weight, self.normalisation = graph.weight, normalisation
        self._buffers = Buffers()

    def logits(self, mask: Tensor) -> Tensor:
        """(nodes, classes) under a mask (columns,), in differentiable torch.

        Take its gradient before the next call, which writes on the same arrays.
        """
        if self.normalisation == "kept":
            matrix = self.adjacency.normalised(self.weight, mask)
        else:
            matrix = self.adjacency.normalised(self.weight * mask)
        hidden = self.input
        for i, layer in enumerate(self.layers):
            hidden = matrix.convolve(hidden, layer, self._buffers, str(i))
        return hidden


class Convolutions(NamedTuple):
    """The layers of a model, and what they do with edges from a node to itself."""

    layers: tuple[Layer, ...]
    loop: float = 1.0
    """The weight of every node's loop."""
    own_loops: bool = False
    """Does an edge from a node to itself set the weight of its loop? Else it does nothing."""

    def stack(self, x: Tensor, graph: EdgeGraph, normalisation: str) -> GCNStack:
        """The layers on a graph."""
        loops = graph.weight.new_full((graph.nodes,), self.loop)
        if self.own_loops:
            source, target = graph.edge_index
            loops[source[source == target]] = graph.weight[source == target]
        return GCNStack(self.layers, x, graph, normalisation, loops)


def fast_stack(network: Frozen, x: Tensor, graph: EdgeGraph, normalisation: str) -> GCNStack | None:
    """The model as a stack of graph convolutions, if that is what it is."""
    if network.module is None or network.held or network.call is not network.module:
        return None
    if x.device.type != "cpu" or x.dim() != 2 or x.dtype not in CLOSE:
        return None
    try:
        convolutions = _declared(network.module) or _chain(network.module)
        if convolutions is None or (convolutions.own_loops and _has_repeated_loops(graph)):
            return None
        if any(la.weight is None or la.weight.dtype != x.dtype for la in convolutions.layers):
            return None
        part, features = sample(graph, x)
        if _agrees(convolutions, network, features, part):
            return convolutions.stack(x, graph, normalisation)
    except Exception as error:  # Whatever a foreign model may raise on another graph.
        log.debug("autograd for %s (%s)", type(network.module).__name__, error)
    return None


def sample(graph: EdgeGraph, x: Tensor) -> tuple[EdgeGraph, Tensor]:
    """A part of the graph with whole units, its nodes numbered anew, and their features."""
    if graph.columns <= SAMPLE:
        return graph, x
    count = int(graph.units.max()) + 1
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[torch.randint(count, (SAMPLE,), generator=torch.Generator().manual_seed(0))] = True
    source, target = graph.edge_index
    chosen[graph.units[source == target][:100]] = True
    columns = torch.nonzero(chosen[graph.units]).squeeze(1)
    nodes, ends = torch.unique(graph.edge_index[:, columns], return_inverse=True)
    part = EdgeGraph(nodes.numel(), ends, graph.weight[columns], graph.undirected)
    return part, rows_of(x, nodes)


def _declared(module: nn.Module) -> Convolutions | None:
    """The layers that a model declares: W (in, out) and b of each, with ReLU between them."""
    declared = getattr(module, "gcn_layers", None)
    if not callable(declared):
        return None
    return Convolutions(_with_relu([(w, b) for w, b in declared()]))


def _chain(module: nn.Module) -> Convolutions | None:
    """A chain of PyG's GCNConv, each with the usual settings."""
    convs: list[Any] = [m for m in module.modules() if _is_conv(m)]
    fits = all(a.out_channels == b.in_channels for a, b in pairwise(convs))
    loops = {2.0 if conv.improved else 1.0 for conv in convs}
    if len(loops) != 1 or not fits or not all(map(_is_usual, convs)):
        return None
    layers = _with_relu([(conv.lin.weight.t(), conv.bias) for conv in convs])
    return Convolutions(layers, loops.pop(), own_loops=True)


def _with_relu(parameters: list[tuple[Tensor, Tensor | None]]) -> tuple[Layer, ...]:
    last = len(parameters) - 1
    return tuple(
        Layer(weight.detach().contiguous(), None if bias is None else bias.detach(), i < last)
        for i, (weight, bias) in enumerate(parameters)
    )


def _is_conv(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "GCNConv" and kind.__module__.startswith("torch_geometric.")


def _is_usual(conv: Any) -> bool:
    normal = conv.normalize and conv.add_self_loops and conv.flow == "source_to_target"
    return bool(normal and conv.aggr == "add" and conv.lin.bias is None)


def _has_repeated_loops(graph: EdgeGraph) -> bool:
    """Has a node several edges to itself? PyG does not say which of them counts."""
    source, target = graph.edge_index
    own = source[source == target]
    return bool(torch.unique(own).numel() != own.numel())


def _agrees(convolutions: Convolutions, network: Frozen, x: Tensor, graph: EdgeGraph) -> bool:
    """Are values and gradients at a mask inside the cube those of autograd?"""
    with torch.no_grad():
        logits = network(x, graph.edge_index, graph.weight)
    target = NodeTarget("log-probability", logits)
    stack, close = convolutions.stack(x, graph, "recomputed"), CLOSE[x.dtype]
    ours = target.logits(stack.logits(torch.ones_like(graph.weight))).log_softmax(1)
    if not torch.allclose(ours, target.logits(logits).log_softmax(1), rtol=close, atol=close):
        return False
    features = graph.features()
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(features.units, generator=generator, dtype=x.dtype)[graph.units]
    between = graph.edge_index[0] != graph.edge_index[1]

    def slow(mask: Tensor) -> Any:
        return network(x, graph.edge_index, torch.where(between, mask, 1) * graph.weight)

    def slope(function: Callable[[Tensor], Any]) -> tuple[Tensor, Tensor]:
        leaf = mask.clone().requires_grad_()
        with torch.enable_grad():
            value = target.value(function(leaf))
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), features.sum(gradient.unsqueeze(0))

    (value, gradient), (expected, expected_gradient) = slope(stack.logits), slope(slow)
    off = (gradient - expected_gradient).norm()
    same = torch.allclose(value, expected, rtol=close, atol=close)
    return same and bool(off <= close * expected_gradient.norm())
