"""One graph convolution, σ(Â H W + b), as a step of autograd for edges, features and parameters.

Â = D^-½ (A + I) D^-½ is a sparse matrix by rows. Its pattern is sorted once for a graph; its values
follow from the weights of the edges by differentiable torch. A product with it is an
`embedding_bag` sum, its gradient for the values a sampled product of dense by dense: no array of
edges × features ever exists. Rows are worked on in blocks that fit the cache. Indices are int64
throughout: 10⁸ edges do not overflow them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 1 << 18
"""About so many numbers of a product are computed at a time, to stay in the cache."""


class Layer(NamedTuple):
    """σ(Â H weight + bias): weight (in, out) or None for the identity, σ = ReLU or nothing."""

    weight: Tensor | None
    bias: Tensor | None
    relu: bool


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a sparse matrix has entries, by rows."""

    starts: Tensor
    """(rows + 1,) where each row begins."""
    columns: Tensor
    """The column of every entry."""
    slots: Tensor
    """The position that every entry's value has in the order in which entries were given."""

    @staticmethod
    def of(rows: Tensor, columns: Tensor, height: int) -> Pattern:
        """The entries sorted by row; within a row they keep their order."""
        order = torch.argsort(rows, stable=True)
        return Pattern(row_starts(rows, height), columns[order], order)

    def times(self, dense: Tensor, values: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """The product with a dense matrix in blocks of rows; values are by row."""
        for block in _blocks(len(self.starts) - 1, dense.shape[1]):
            starts = self.starts[block.start : block.stop + 1]
            entries = slice(int(starts[0]), int(starts[-1]))
            yield block, functional.embedding_bag(
                self.columns[entries], dense, starts - starts[0], mode="sum",
                include_last_offset=True, per_sample_weights=values[entries],
            )  # fmt: skip

    def sampled(self, left: Tensor, right: Tensor) -> Tensor:
        """left_i · right_j for every entry (i, j), by row: the gradient of a product's values."""
        _no_beta_warning()
        size = (len(self.starts) - 1, len(right))
        zeros = torch.sparse_csr_tensor(
            self.starts, self.columns, left.new_zeros(len(self.columns)), size,
            check_invariants=False,
        )  # fmt: skip
        entries: Tensor = torch.sparse.sampled_addmm(zeros, left, right.t(), beta=0.0).values()
        return entries


def row_starts(rows: Tensor, height: int) -> Tensor:
    """(height + 1,): where each row begins among entries sorted by row."""
    starts = torch.zeros(height + 1, dtype=torch.long, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=height), 0, out=starts[1:])
    return starts


class Adjacency:
    """Where A + I of a graph has entries: A_ij is the weight of the edges j → i.

    Edges from a node to itself are ignored: every node has a loop, of the weight `loops`
    (a number, or one for each node).
    """

    def __init__(self, edge_index: Tensor, nodes: int, loops: float | Tensor = 1.0) -> None:
        source, target = edge_index.long()
        between = source != target
        self._between = None if bool(between.all()) else torch.nonzero(between).squeeze(1)
        if self._between is not None:
            source, target = source[self._between], target[self._between]
        self.nodes, self.source, self.target = nodes, source, target
        self.loops = torch.as_tensor(loops, dtype=_exact(source.device), device=source.device)

    @cached_property
    def pattern(self) -> Pattern:
        """The entries by rows; given are the edges, then the loops."""
        own = torch.arange(self.nodes, device=self.source.device)
        rows, columns = torch.cat([self.target, own]), torch.cat([self.source, own])
        return Pattern.of(rows, columns, self.nodes)

    @cached_property
    def transposed(self) -> Pattern:
        """The entries by columns; `slots` are positions in `pattern`."""
        rows = torch.repeat_interleave(self.pattern.starts.diff())
        return Pattern.of(self.pattern.columns, rows, self.nodes)

    def normalised(self, weight: Tensor, messages: Tensor | None = None) -> Normalised:
        """Â_ij = (A + I)_ij / √(D_i D_j), D being the sums of the rows of A + I.

        weight: one for each edge. messages: a factor for what each edge passes on, which leaves
        all degrees as they are. Both may ask for a gradient.
        """
        edges = self._proper(weight).to(self.loops)  # In float64: a hub's degree is a long sum.
        loops = self.loops.expand(self.nodes)
        scale = loops.index_add(0, self.target, edges).rsqrt()
        values = scale[self.target] * edges * scale[self.source]
        if messages is not None:
            values = values * self._proper(messages)
        values = torch.cat([values, loops * scale.square()]).to(weight.dtype)
        return Normalised(self, values.index_select(0, self.pattern.slots))

    def _proper(self, weight: Tensor) -> Tensor:
        return weight if self._between is None else weight[self._between]


class Buffers:
    """Arrays that the next pass over the same graph uses again and overwrites.

    New memory costs page faults, a fifth of the time of a gradient.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int], Tensor] = {}

    def array(self, name: str, width: int, like: Tensor) -> Tensor:
        """The array of this name and width, with as many rows as `like`."""
        if (name, width) not in self._arrays:
            self._arrays[name, width] = like.new_empty(len(like), width)
        return self._arrays[name, width].detach()


class NewArrays(Buffers):
    """New memory every time."""

    def array(self, name: str, width: int, like: Tensor) -> Tensor:
        """A new array with as many rows as `like`."""
        return like.new_empty(len(like), width)


@dataclass(frozen=True, eq=False)
class Normalised:
    """Â of a graph under certain weights."""

    adjacency: Adjacency
    values: Tensor
    """Of the entries by rows."""

    def convolve(
        self, hidden: Tensor, layer: Layer, buffers: Buffers | None = None, name: str = ""
    ) -> Tensor:
        """σ(Â H W + b); with buffers, the result is overwritten by the next pass.

        name: tells the layers of one pass apart.
        """
        if hidden.layout != torch.strided:
            assert layer.weight is not None
            hidden, layer = torch.sparse.mm(hidden, layer.weight), layer._replace(weight=None)
        if hidden.device.type == "cpu":
            out: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
                self.values, hidden, *layer, self.adjacency, buffers or NewArrays(), name
            )
            return out
        if layer.weight is not None:
            hidden = hidden @ layer.weight
        rows = torch.repeat_interleave(self.adjacency.pattern.starts.diff())
        messages = hidden[self.adjacency.pattern.columns] * self.values.unsqueeze(1)
        out = torch.zeros_like(hidden).index_add(0, rows, messages)
        out = out if layer.bias is None else out + layer.bias
        return out.relu() if layer.relu else out


class _Convolution(torch.autograd.Function):
    """σ(Â H W + b) on a CPU, as one step of autograd; Â is multiplied on the narrower side of W."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        hidden: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        relu: bool,
        adjacency: Adjacency,
        buffers: Buffers,
        name: str,
    ) -> Tensor:
        """(nodes, out)."""
        dense, after = hidden.contiguous(), weight
        if weight is not None and weight.shape[0] > weight.shape[1]:
            place = buffers.array(f"{name} narrow", weight.shape[1], dense)
            dense, after = torch.mm(dense, weight, out=place), None
        width = dense.shape[1] if after is None else after.shape[1]
        out = buffers.array(f"{name} out", width, dense)
        for block, rows in adjacency.pattern.times(dense, values):
            place = out[block]
            place.copy_(rows) if after is None else torch.mm(rows, after, out=place)
            if bias is not None:
                place += bias
            if relu:
                place.relu_()
        narrow = None if after is weight else dense
        ctx.save_for_backward(values, hidden, weight, narrow, out)
        ctx.relu, ctx.adjacency, ctx.buffers, ctx.name = relu, adjacency, buffers, name
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Gradients for values, H, W and b, as far as they are asked for.

        With P = ∂L/∂(Â H W + b): ∂L/∂b = Σ P, ∂L/∂W = Hᵀ Âᵀ P, ∂L/∂H = Âᵀ P Wᵀ.
        """
        values, hidden, weight, narrow, out = ctx.saved_tensors
        to_values, to_hidden, to_weight, to_bias, *_ = ctx.needs_input_grad
        forth, back = ctx.adjacency.pattern, ctx.adjacency.transposed
        slope = slopes[0].contiguous()

        def before_relu(block: slice) -> Tensor:
            part = slope[block]
            if ctx.relu:
                part = torch.ops.aten.threshold_backward(part, out[block], 0.0)
            return part

        before, after = (None, weight) if narrow is None else (weight, None)
        dense = hidden.contiguous() if narrow is None else narrow
        if after is None:
            inner = before_relu(slice(None))
        else:
            inner = ctx.buffers.array("inner", len(after), slope)
            for block in _blocks(len(slope), slope.shape[1]):
                torch.mm(before_relu(block), after.t(), out=inner[block])
        of_values = forth.sampled(inner, dense) if to_values else None
        of_hidden = None
        if to_hidden:
            of_hidden = ctx.buffers.array(f"{ctx.name} hidden", hidden.shape[1], slope)
        of_weight = torch.zeros_like(weight) if to_weight else None
        if to_hidden or (to_weight and before is not None):
            for block, rows in back.times(inner, values[back.slots]):
                if of_hidden is not None and before is not None:
                    torch.mm(rows, before.t(), out=of_hidden[block])
                elif of_hidden is not None:
                    of_hidden[block] = rows
                if of_weight is not None and before is not None:
                    of_weight += hidden[block].t() @ rows
        if of_weight is not None and before is None:
            for block, rows in forth.times(dense, values):
                of_weight += rows.t() @ before_relu(block)
        of_bias = before_relu(slice(None)).sum(0) if to_bias else None
        return of_values, of_hidden, of_weight, of_bias, None, None, None, None


def _blocks(height: int, width: int) -> list[slice]:
    """Blocks of rows that fit the cache at this width."""
    cuts = [*range(0, height, max(1, BLOCK // width)), height]
    return [slice(*ends) for ends in pairwise(cuts)]


def _exact(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


@cache
def _no_beta_warning() -> None:
    """Torch warns once in a process that its CSR tensors are new; here the warning is ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.empty(0).long(), torch.empty(0), (1, 1))
