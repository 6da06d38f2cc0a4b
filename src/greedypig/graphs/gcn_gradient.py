"""A stack of graph convolutions as a set function over edges, with a gradient of its own.

G = target(Hᴸ), Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ). It is the chain rule over `propagation.Step`, on arrays that
are kept between calls; autograd works at both ends, from the mask to Â and from the logits to G.
At ogbn-arxiv's size that takes more than 20 times less processor time than autograd through PyG's
layers (benchmarks/graphs.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .edges import EdgeGraph
from .objectives import NodeTarget
from .propagation import Adjacency, Buffers, Layer, Normalised, Step


class GCNStack:
    """Graph convolutions on one graph: logits and edge gradients under masks over its columns.

    normalisation "recomputed" takes degrees from the masked graph, "kept" from the whole one.
    """

    def __init__(
        self, layers: Sequence[Layer], x: Tensor, graph: EdgeGraph, normalisation: str,
        loops: float | Tensor = 1.0,
    ) -> None:  # fmt: skip
        first = layers[0]
        assert first.weight is not None
        self.layers, self.input = list(layers), x.contiguous() if x.layout == torch.strided else x
        if x.layout != torch.strided or first.weight.shape[0] > first.weight.shape[1]:
            # What the first matrix makes of x is the same for every mask.
            self.input = x @ first.weight
            self.layers[0] = first._replace(weight=None)
        self.adjacency = Adjacency(graph.edge_index, graph.nodes, loops)
        self.weight, self.kept = graph.weight, normalisation == "kept"
        self._buffers: Buffers = {}

    def matrix(self, mask: Tensor) -> Normalised:
        """Â under a mask (columns,)."""
        if self.kept:
            return self.adjacency.normalised(self.weight, mask)
        return self.adjacency.normalised(self.weight * mask)

    def steps(self, matrix: Normalised) -> list[Step]:
        """All layers; their arrays are overwritten by the next call."""
        hidden, steps = self.input, []
        for i, layer in enumerate(self.layers):
            steps.append(Step.forward(matrix.values, hidden, layer, self.adjacency,
                                      self._buffers, str(i)))  # fmt: skip
            hidden = steps[-1].out
        return steps

    def logits(self, mask: Tensor) -> Tensor:
        """(nodes, classes) under one mask; overwritten by the next call."""
        with torch.no_grad():
            return self.steps(self.matrix(mask))[-1].out

    def gradient(self, mask: Tensor, target: NodeTarget) -> tuple[Tensor, Tensor]:
        """G and (columns,) ∂G/∂mask."""
        leaf = mask.detach().requires_grad_()
        with torch.enable_grad():
            matrix = self.matrix(leaf)
        with torch.no_grad():
            steps = self.steps(Normalised(self.adjacency, matrix.values.detach()))
        logits = steps[-1].out.detach().requires_grad_()
        with torch.enable_grad():
            value = target.value(logits)
        (slope,) = torch.autograd.grad(value, logits)
        total = torch.zeros_like(matrix.values)
        with torch.no_grad():
            for i, step in reversed(list(enumerate(steps))):
                of_values, below = step.backward(
                    slope, to_values=True, to_hidden=i > 0, buffers=self._buffers
                )
                assert of_values is not None
                total += of_values
                slope = slope if below is None else below
        return value.detach(), torch.autograd.grad(matrix.values, leaf, total)[0]


class GCNObjective:
    """g of a stack of graph convolutions: a `SetFunction` of the core."""

    batch_size = 1

    def __init__(self, stack: GCNStack, target: NodeTarget) -> None:
        self.stack, self.target = stack, target
        self.n = len(stack.weight)
        self.dtype, self.device = stack.weight.dtype, stack.weight.device

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, columns) masks → (m,)."""
        with torch.no_grad():
            return torch.stack([self.target.value(self.stack.logits(mask)) for mask in masks])

    def gradient(self, masks: Tensor, weights: Tensor, /) -> Tensor:
        """(m, columns) masks, (m,) weights → (columns,)."""
        total = torch.zeros_like(masks[0])
        for mask, weight in zip(masks, weights, strict=True):
            total += weight * self.stack.gradient(mask, self.target)[1]
        return total
