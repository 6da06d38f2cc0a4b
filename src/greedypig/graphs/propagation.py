"""One graph convolution, σ(Â H W + b), with its gradients for edges, features and parameters.

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

    Edges from a node to itself are passed over: every node has a loop, of the weight `loops`
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


@dataclass(frozen=True, eq=False)
class Normalised:
    """Â of a graph under certain weights."""

    adjacency: Adjacency
    values: Tensor
    """Of the entries by rows."""

    def convolve(self, hidden: Tensor, layer: Layer) -> Tensor:
        """σ(Â H W + b)."""
        if hidden.layout != torch.strided:
            assert layer.weight is not None
            hidden, layer = torch.sparse.mm(hidden, layer.weight), layer._replace(weight=None)
        if hidden.device.type == "cpu":
            out: Tensor = _Convolution.apply(self.values, hidden, *layer, self.adjacency)  # type: ignore[no-untyped-call]
            return out
        if layer.weight is not None:
            hidden = hidden @ layer.weight
        rows = torch.repeat_interleave(self.adjacency.pattern.starts.diff())
        messages = hidden[self.adjacency.pattern.columns] * self.values.unsqueeze(1)
        out = torch.zeros_like(hidden).index_add(0, rows, messages)
        out = out if layer.bias is None else out + layer.bias
        return out.relu() if layer.relu else out


Buffers = dict[tuple[str, int], Tensor]
"""Arrays of nodes × width by name, kept between calls: fresh memory costs page faults."""


def _array(buffers: Buffers | None, name: str, width: int, like: Tensor) -> Tensor:
    """The array of this name and width, with as many rows as `like`."""
    if buffers is None:
        return like.new_empty(len(like), width)
    if (name, width) not in buffers:
        buffers[name, width] = like.new_empty(len(like), width)
    return buffers[name, width]


@dataclass(frozen=True, eq=False)
class Step:
    """One convolution that was computed: its output, and what its gradient needs."""

    layer: Layer
    adjacency: Adjacency
    values: Tensor
    hidden: Tensor
    dense: Tensor
    """What Â was multiplied with: H W where W narrows, else H."""
    out: Tensor

    @property
    def narrows(self) -> bool:
        """Was W multiplied before Â?"""
        return self.dense is not self.hidden

    @property
    def after(self) -> Tensor | None:
        """The matrix that was multiplied after Â, if there is one."""
        return None if self.narrows else self.layer.weight

    @staticmethod
    def forward(
        values: Tensor, hidden: Tensor, layer: Layer, adjacency: Adjacency,
        buffers: Buffers | None = None, name: str = "",
    ) -> Step:  # fmt: skip
        """σ(Â H W + b); Â is multiplied on the narrower side of W."""
        weight, bias, relu = layer
        dense = hidden
        if weight is not None and weight.shape[0] > weight.shape[1]:
            dense = torch.mm(hidden, weight, out=_array(buffers, f"{name} dense",
                                                        weight.shape[1], hidden))  # fmt: skip
            weight = None
        width = dense.shape[1] if weight is None else weight.shape[1]
        out = _array(buffers, f"{name} out", width, hidden)
        for block, rows in adjacency.pattern.times(dense, values):
            place = out[block]
            place.copy_(rows) if weight is None else torch.mm(rows, weight, out=place)
            if bias is not None:
                place += bias
            if relu:
                place.relu_()
        return Step(layer, adjacency, values, hidden, dense, out)

    def backward(
        self, slope: Tensor, *, to_values: bool, to_hidden: bool, buffers: Buffers | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """∂L/∂values and ∂L/∂H from slope = ∂L/∂output, as far as they are asked for."""
        slope = self.before_matrix(slope, buffers)
        of_values = self.adjacency.pattern.sampled(slope, self.dense) if to_values else None
        if not to_hidden:
            return of_values, None
        of_hidden = _array(buffers, "hidden", self.hidden.shape[1], slope)
        weight = self.layer.weight
        for block, rows in self.spread_back(slope):
            if self.narrows and weight is not None:
                torch.mm(rows, weight.t(), out=of_hidden[block])
            else:
                of_hidden[block] = rows
        return of_values, of_hidden

    def before_matrix(self, slope: Tensor, buffers: Buffers | None = None) -> Tensor:
        """∂L/∂(Â · dense)."""
        if self.after is None and not self.layer.relu:
            return slope.contiguous()
        inner = _array(buffers, "inner", self.dense.shape[1], slope)
        for block in _blocks(len(slope), slope.shape[1]):
            part = self.before_relu(slope[block], block)
            if self.after is None:
                inner[block] = part
            else:
                torch.mm(part, self.after.t(), out=inner[block])
        return inner

    def before_relu(self, slope: Tensor, block: slice) -> Tensor:
        """∂L/∂(Â H W + b) of some rows."""
        if not self.layer.relu:
            return slope
        return torch.ops.aten.threshold_backward(slope, self.out[block], 0.0)  # type: ignore[no-any-return]

    def spread_back(self, slope: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Âᵀ · slope, in blocks of rows."""
        back = self.adjacency.transposed
        return back.times(slope, self.values[back.slots])

    def of_parameters(self, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """∂L/∂W = Hᵀ Âᵀ P and ∂L/∂b = Σ P, with P = ∂L/∂(Â H W + b)."""
        whole = self.before_relu(slope, slice(None))
        weight = self.layer.weight
        if weight is None:
            return None, whole.sum(0)
        of_weight = torch.zeros_like(weight)
        if self.narrows:
            for block, rows in self.spread_back(whole.contiguous()):
                of_weight += self.hidden[block].t() @ rows
        else:
            for block, rows in self.adjacency.pattern.times(self.dense, self.values):
                of_weight += rows.t() @ whole[block]
        return of_weight, whole.sum(0)


class _Convolution(torch.autograd.Function):
    """σ(Â H W + b) on a CPU, as one step of autograd."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, hidden: Tensor, weight: Tensor | None, bias: Tensor | None,
        relu: bool, adjacency: Adjacency,
    ) -> Tensor:  # fmt: skip
        """(nodes, out)."""
        step = Step.forward(values, hidden.contiguous(), Layer(weight, bias, relu), adjacency)
        dense = step.dense if step.narrows else None
        ctx.save_for_backward(values, step.hidden, weight, dense, step.out)
        ctx.relu, ctx.adjacency = relu, adjacency
        return step.out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Gradients for values, H, W and b."""
        values, hidden, weight, dense, out = ctx.saved_tensors
        layer = Layer(weight, None, ctx.relu)
        dense = hidden if dense is None else dense
        step = Step(layer, ctx.adjacency, values, hidden, dense, out)
        needs = ctx.needs_input_grad
        of_values = of_hidden = of_weight = of_bias = None
        if needs[0] or needs[1]:
            of_values, of_hidden = step.backward(slopes[0], to_values=needs[0], to_hidden=needs[1])
        if needs[2] or needs[3]:
            of_weight, of_bias = step.of_parameters(slopes[0])
        return of_values, of_hidden, of_weight, of_bias, None, None


def _blocks(height: int, width: int) -> list[slice]:
    """Blocks of rows that fit the cache at this width."""
    cuts = [*range(0, height, max(1, BLOCK // width)), height]
    return [slice(*ends) for ends in pairwise(cuts)]


def _exact(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


@cache
def _no_beta_warning() -> None:
    """Torch warns once in a process that its CSR tensors are new; the warning is taken here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.empty(0).long(), torch.empty(0), (1, 1))
