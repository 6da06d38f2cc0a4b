"""The normalised adjacency Â = D^-½ (A + I) D^-½ of a graph, and its product with a matrix.

Â is a sparse matrix by rows. Its pattern is sorted once for a graph; its values follow from the
weights of the edges by differentiable torch. A product with it is an `embedding_bag` sum, and its
gradient for the values a sampled product of dense by dense: no array of edges × features ever
exists. Indices are int64 throughout: 10⁸ edges do not overflow them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 1 << 18
"""About so many numbers of a product are computed at a time, to stay in the cache."""
threshold_backward = torch.ops.aten.threshold_backward


@dataclass(frozen=True, eq=False)
class Pattern:
    """The places of a sparse matrix's entries, by rows."""

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

    def blocks(self, dense: Tensor, values: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """The product with a dense matrix in blocks of rows; values are by row."""
        for block in row_blocks(len(self.starts) - 1, dense.shape[1]):
            starts = self.starts[block.start : block.stop + 1]
            entries = slice(int(starts[0]), int(starts[-1]))
            yield (
                block,
                functional.embedding_bag(
                    self.columns[entries],
                    dense,
                    starts - starts[0],
                    mode="sum",
                    include_last_offset=True,
                    per_sample_weights=values[entries],
                ),
            )

    def times(self, dense: Tensor, values: Tensor, out: Tensor) -> Tensor:
        """The product with a dense matrix, written to `out`."""
        for block, rows in self.blocks(dense, values):
            out[block] = rows
        return out

    def sampled(self, left: Tensor, right: Tensor) -> Tensor:
        """left_i · right_j for every entry (i, j), by row: the gradient of a product's values."""
        size = (len(left), len(right))
        with warnings.catch_warnings():  # Torch warns that its CSR tensors are new.
            warnings.simplefilter("ignore")
            zeros = torch.sparse_csr_tensor(
                self.starts,
                self.columns,
                left.new_zeros(len(self.columns)),
                size,
                check_invariants=False,
            )
        entries: Tensor = torch.sparse.sampled_addmm(zeros, left, right.t(), beta=0.0).values()
        return entries


def row_starts(rows: Tensor, height: int) -> Tensor:
    """(height + 1,): where each row begins among entries sorted by row."""
    starts = torch.zeros(height + 1, dtype=torch.long, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=height), 0, out=starts[1:])
    return starts


class Adjacency:
    """The places of A + I of a graph: A_ij is the weight of the edges j → i.

    Edges from a node to itself are ignored: every node has a loop of weight 1.
    """

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        edge_index = edge_index.long()
        self._proper = torch.nonzero(edge_index[0] != edge_index[1]).squeeze(1)
        self.nodes = nodes
        self.source, self.target = edge_index[:, self._proper]
        # In float64, as a hub's degree is a long sum; mps has none.
        exact = torch.float32 if edge_index.device.type == "mps" else torch.float64
        self.loops = torch.ones(nodes, dtype=exact, device=edge_index.device)

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
        edges = weight[self._proper].to(self.loops)
        scale = self.loops.index_add(0, self.target, edges).rsqrt()
        values = scale[self.target] * edges * scale[self.source]
        if messages is not None:
            values = values * messages[self._proper]
        values = torch.cat([values, scale.square()]).to(weight.dtype)
        return Normalised(self, values.index_select(0, self.pattern.slots))


@dataclass(frozen=True, eq=False)
class Normalised:
    """Â of a graph under certain weights."""

    adjacency: Adjacency
    values: Tensor
    """Of the entries by rows."""

    def convolve(
        self,
        hidden: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        relu: bool,
        arrays: Arrays | None = None,
    ) -> Tensor:
        """σ(Â H W + b), σ = ReLU or nothing; a weight of None is the identity.

        arrays: memory of this layer, which the next pass overwrites.
        """
        if weight is not None and (hidden.layout != torch.strided or narrows(weight)):
            hidden, weight = hidden @ weight, None
        if hidden.device.type == "cpu":
            out: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
                self.values,
                hidden,
                weight,
                bias,
                relu,
                self.adjacency,
                arrays or Arrays(reused=False),
            )
            return out
        pattern = self.adjacency.pattern
        rows = torch.repeat_interleave(pattern.starts.diff())
        messages = hidden[pattern.columns] * self.values.unsqueeze(1)
        out = torch.zeros_like(hidden).index_add(0, rows, messages)
        out = out if weight is None else out @ weight
        out = out if bias is None else out + bias
        return out.relu() if relu else out


class Arrays:
    """Memory for the results of a layer; reused, the next pass over the same graph overwrites it.

    New memory costs page faults, a quarter of the time of a gradient.
    """

    def __init__(self, *, reused: bool = True) -> None:
        self.reused, self.arrays = reused, dict[str, Tensor]()

    def array(self, name: str, like: Tensor, width: int) -> Tensor:
        """The array of this name, with as many rows as `like`."""
        if not self.reused:
            return like.new_empty(len(like), width)
        if name not in self.arrays:
            self.arrays[name] = like.new_empty(len(like), width)
        return self.arrays[name].detach()


class _Convolution(torch.autograd.Function):
    """Y = σ(Â H W + b) on a CPU, as one step of autograd, in blocks of rows that fit the cache."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        hidden: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        relu: bool,
        adjacency: Adjacency,
        arrays: Arrays,
    ) -> Tensor:
        """(nodes, out)."""
        hidden = hidden.contiguous()
        out = arrays.array("out", hidden, hidden.shape[1] if weight is None else weight.shape[1])
        for block, rows in adjacency.pattern.blocks(hidden, values):
            part = out[block]
            part.copy_(rows) if weight is None else torch.mm(rows, weight, out=part)
            if bias is not None:
                part += bias
            if relu:
                part.relu_()
        ctx.save_for_backward(values, hidden, weight, out if relu else None)
        ctx.adjacency, ctx.arrays = adjacency, arrays
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Gradients for values, H, W and b, as far as they are asked for.

        With P = ∂L/∂(Â H W + b): ∂L/∂Â_ij = (P Wᵀ)_i · H_j, ∂L/∂H = Âᵀ P Wᵀ, ∂L/∂W = Hᵀ Âᵀ P,
        ∂L/∂b = Σ P.
        """
        values, hidden, weight, out = ctx.saved_tensors
        to_values, to_hidden, to_weight, to_bias, *_ = ctx.needs_input_grad
        pattern, back = ctx.adjacency.pattern, ctx.adjacency.transposed
        slope = slopes[0].contiguous()

        def before_relu(block: slice) -> Tensor:
            part = slope[block]
            return part if out is None else threshold_backward(part, out[block], 0.0)

        whole = slice(None)
        if weight is None:
            inner = before_relu(whole)
        else:
            inner = ctx.arrays.array("inner", hidden, hidden.shape[1])
            for block in row_blocks(len(slope), slope.shape[1]):
                torch.mm(before_relu(block), weight.t(), out=inner[block])
        of_values = pattern.sampled(inner, hidden) if to_values else None
        of_hidden = of_weight = of_bias = None
        if to_hidden:
            of_hidden = ctx.arrays.array("hidden", hidden, hidden.shape[1])
            back.times(inner, values[back.slots], of_hidden)
        if to_weight:
            product = torch.empty_like(slope)
            of_weight = hidden.t() @ back.times(before_relu(whole), values[back.slots], product)
        if to_bias:
            of_bias = before_relu(whole).sum(0)
        return of_values, of_hidden, of_weight, of_bias, None, None, None


def narrows(weight: Tensor) -> bool:
    """Is H W narrower than H? Then Â is better multiplied with it."""
    return weight.shape[0] > weight.shape[1]


def row_blocks(height: int, width: int) -> list[slice]:
    """Blocks of rows that fit the cache at this width."""
    cuts = [*range(0, height, max(1, BLOCK // width)), height]
    return [slice(*ends) for ends in pairwise(cuts)]
