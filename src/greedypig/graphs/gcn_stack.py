"""Models that are plain stacks of graph convolutions: they have a fast gradient for edges.

A model that declares `gcn_layers()`, as greedypig.models.GCN does, or one whose only layers are a
chain of PyG's GCNConv with ReLU between them. Either is checked once on a small part of the graph:
values and gradients must equal those of autograd through the model itself. At ogbn-arxiv's size the
fast gradient takes more than 20 times less processor time than autograd through PyG's layers
(benchmarks/graphs.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..network.frozen import Frozen
from .edges import EdgeGraph, rows_of
from .gcn import convolutions
from .objectives import NodeTarget
from .propagation import Adjacency, Arrays, narrows

log = logging.getLogger(__name__)

SAMPLE = 2000
"""About so many features of the graph are used for the check."""
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative distance up to which two gradients are the same; ReLU's kinks show in float32."""
Layers = list[tuple[Tensor | None, Tensor | None]]
"""Wˡ and bˡ of every layer; a W of None is the identity."""


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
    if x.device.type != "cpu" or x.dim() != 2 or x.dtype not in CLOSE:
        return None
    try:
        layers = _layers(network.module, graph)
        part, features = _sample(graph, x)
        if layers and _agrees(layers, network, features, part):
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
    """A part of the graph with whole features, its nodes numbered anew, and their features."""
    if graph.columns <= SAMPLE:
        return graph, x
    count = int(graph.feature_ids.max()) + 1
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[torch.randint(count, (SAMPLE,), generator=torch.Generator().manual_seed(0))] = True
    columns = torch.nonzero(chosen[graph.feature_ids]).squeeze(1)
    nodes, ends = torch.unique(graph.edge_index[:, columns], return_inverse=True)
    part = EdgeGraph(nodes.numel(), ends, graph.weight[columns], graph.undirected)
    return part, rows_of(x, nodes)


def _agrees(layers: Layers, network: Frozen, x: Tensor, graph: EdgeGraph) -> bool:
    """Are the value and the gradient at a mask inside the cube those of autograd?"""
    with torch.no_grad():
        logits = network(x, graph.edge_index, graph.weight)
    target, close = NodeTarget("log-probability", logits), CLOSE[x.dtype]
    stack, features = GCNStack(layers, x, graph, "recomputed"), graph.features()
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(features.count, generator=generator, dtype=x.dtype)[graph.feature_ids]

    def plain(mask: Tensor) -> Any:
        return network(x, graph.edge_index, torch.where(graph.loops, 1, mask) * graph.weight)

    def slope(function: Callable[[Tensor], Any]) -> tuple[Tensor, Tensor]:
        leaf = mask.clone().requires_grad_()
        with torch.enable_grad():
            value = target.value(function(leaf))
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), features.sum(gradient.unsqueeze(0))

    (value, gradient), (true_value, true_gradient) = slope(stack.logits), slope(plain)
    same = torch.allclose(value, true_value, rtol=close, atol=close)
    return same and bool((gradient - true_gradient).norm() <= close * true_gradient.norm())
