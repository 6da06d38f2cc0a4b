"""A stack of graph convolutions with its gradient for every edge written out by hand.

Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ), G = target(Hᴸ). Each layer propagates on the narrower side of its matrix.
Two arrays of nodes × hidden are all the memory a gradient of three layers takes: on the way back
each one is overwritten by what replaces it. Kept between calls, as fresh memory costs page faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .objectives import NodeTarget
from .propagation import Normalised, Propagation
from .sparse import Block, Pattern


@dataclass(frozen=True, eq=False)
class Layer:
    """σ(Â H weight + bias): weight (in, out), bias (out,) or None, σ = ReLU or nothing."""

    weight: Tensor
    bias: Tensor | None
    relu: bool


class Stack:
    """Graph convolutions on one graph: logits under a mask, and the way back."""

    def __init__(self, layers: Sequence[Layer], x: Tensor, propagation: Propagation) -> None:
        self.layers, self.propagation = tuple(layers), propagation
        first, sparse = self.layers[0], x.layout != torch.strided
        wide = first.weight.shape[0] > first.weight.shape[1]
        self.before = [not (sparse or wide)]
        """Does a layer propagate before its matrix, rather than after?"""
        self.before += [la.weight.shape[0] <= la.weight.shape[1] for la in self.layers[1:]]
        if self.before[0]:
            self.input = x.contiguous()
        else:  # What the first matrix makes of x is the same for every mask.
            self.input = torch.sparse.mm(x, first.weight) if sparse else x @ first.weight
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._made: dict[tuple[str, int], list[Block]] = {}

    def logits(self, matrix: Normalised) -> tuple[Tensor, list[Tensor]]:
        """(nodes, classes), and what every layer has propagated."""
        hidden, propagated = self.input, []
        for i, layer in enumerate(self.layers):
            if i and not self.before[i]:
                hidden = self._project(hidden, layer, i)
            propagated.append(hidden)
            hidden = self._convolve(hidden, layer, i, matrix)
        return hidden, propagated

    def gradient(self, matrix: Normalised, propagated: list[Tensor], slope: Tensor) -> Tensor:
        """(columns,) ∂G/∂mask, from slope = ∂G/∂logits; overwrites what was propagated."""
        last = len(self.layers) - 1
        if self.before[last]:
            slope = slope @ self.layers[last].weight.t()
        for i in range(last, -1, -1):
            matrix.record(slope, propagated[i])
            if i:
                slope = self._back(slope, i, matrix)
        return matrix.gradient()

    # Forward.

    def _convolve(self, hidden: Tensor, layer: Layer, i: int, matrix: Normalised) -> Tensor:
        out = self._buffer(f"hidden {i}", layer.weight.shape[1])
        for block in self._blocks(self.propagation.pattern, "pattern", hidden.shape[1]):
            rows, place = block.times(hidden, matrix.values), out[block.rows]
            if self.before[i]:
                torch.mm(rows, layer.weight, out=place)
                if layer.bias is not None:
                    place += layer.bias
            elif layer.bias is not None:
                torch.add(rows, layer.bias, out=place)
            else:
                place.copy_(rows)
            if layer.relu:
                place.relu_()
        return out

    def _project(self, hidden: Tensor, layer: Layer, i: int) -> Tensor:
        return torch.mm(hidden, layer.weight, out=self._buffer(f"projected {i}",
                                                               layer.weight.shape[1]))  # fmt: skip

    # Backward.

    def _back(self, slope: Tensor, i: int, matrix: Normalised) -> Tensor:
        """From ∂G/∂(Â · dense) of layer i to that of the layer before, block by block.

        The output of the layer before is read for the last time, so the answer takes its place
        where it fits.
        """
        weight, below = self.layers[i].weight, self.layers[i - 1]
        hidden = out = self._buffer(f"hidden {i - 1}", weight.shape[0])
        inner = below.weight.shape[0] if self.before[i - 1] else weight.shape[0]
        if inner != weight.shape[0]:
            out = self._buffer(f"slope {i - 1}", inner)
        for block in self._blocks(self.propagation.transposed, "transposed", slope.shape[1]):
            rows = block.times(slope, matrix.values_back)
            if not self.before[i]:
                rows = rows @ weight.t()
            if below.relu:
                _where_positive(rows, hidden[block.rows])
            if self.before[i - 1]:
                torch.mm(rows, below.weight.t(), out=out[block.rows])
            else:
                out[block.rows] = rows
        return out

    def _buffer(self, name: str, width: int) -> Tensor:
        key = (name, width)
        if key not in self._buffers:
            self._buffers[key] = self.input.new_empty(self.propagation.nodes, width)
        return self._buffers[key]

    def _blocks(self, pattern: Pattern, way: str, width: int) -> list[Block]:
        key = (way, width)
        if key not in self._made:
            self._made[key] = list(pattern.blocks(width))
        return self._made[key]


def _where_positive(slope: Tensor, hidden: Tensor) -> None:
    """The gradient through a ReLU whose output was `hidden`, in place and in one pass."""
    torch.ops.aten.threshold_backward.grad_input(slope, hidden, 0.0, grad_input=slope)


class GCNObjective:
    """g of a stack of graph convolutions, with its own gradient: an `Objective` of the core."""

    batch_size = 1

    def __init__(self, stack: Stack, target: NodeTarget) -> None:
        self.stack, self.target = stack, target
        self.n = stack.propagation.columns
        self.dtype, self.device = stack.input.dtype, stack.input.device

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, columns) masks → (m,)."""
        return torch.stack([self.target.value(self.logits(mask)) for mask in masks])

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, columns) masks → (m,) values, (m, columns) gradients."""
        found = [self._one(mask) for mask in masks]
        return torch.stack([v for v, _ in found]), torch.stack([g for _, g in found])

    def logits(self, mask: Tensor) -> Tensor:
        """(nodes, classes) under one mask; overwritten by the next."""
        with torch.no_grad():
            return self.stack.logits(self.stack.propagation.normalised(mask))[0]

    def _one(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            matrix = self.stack.propagation.normalised(mask)
            logits, propagated = self.stack.logits(matrix)
            value, slope = self.target.value_and_slope(logits)
            return value, self.stack.gradient(matrix, propagated, slope)
