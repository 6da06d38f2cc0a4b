"""The normalised adjacency Â = D^-½ (A + I) D^-½ of a graph, and its product with a matrix.

Â is a sparse matrix by rows. Its pattern is sorted once for a graph; its values follow from the
weights of the edges by differentiable torch. A product with it is an `embedding_bag` sum, and its
gradient for the values a sampled product of dense by dense: no array of edges × features ever
exists. Indices are int64 throughout: 10⁸ edges do not overflow them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


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

    def times(self, dense: Tensor, values: Tensor) -> Tensor:
        """The product with a dense matrix; values are by row."""
        return functional.embedding_bag(
            self.columns,
            dense,
            self.starts,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=values,
        )

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

    def convolve(self, hidden: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Â H W + b, Â multiplied on the narrower side of W; a weight of None is the identity."""
        if weight is None:
            out = self @ hidden
        elif hidden.layout != torch.strided or weight.shape[0] > weight.shape[1]:
            out = self @ (hidden @ weight)
        else:
            out = (self @ hidden) @ weight
        return out if bias is None else out.add_(bias)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product Â · dense, differentiable for both."""
        if dense.device.type == "cpu":
            product: Tensor = _Product.apply(self.values, dense, self.adjacency)  # type: ignore[no-untyped-call]
            return product
        pattern = self.adjacency.pattern
        rows = torch.repeat_interleave(pattern.starts.diff())
        messages = dense[pattern.columns] * self.values.unsqueeze(1)
        return torch.zeros_like(dense).index_add(0, rows, messages)


class _Product(torch.autograd.Function):
    """P = Â · dense on a CPU: ∂L/∂Â_ij = (∂L/∂P)_i · dense_j, ∂L/∂dense = Âᵀ ∂L/∂P."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, adjacency: Adjacency) -> Tensor:
        """(nodes, width)."""
        ctx.save_for_backward(values, dense)
        ctx.adjacency = adjacency
        return adjacency.pattern.times(dense, values)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Gradients for values and dense, as far as they are asked for."""
        values, dense = ctx.saved_tensors
        slope, back = slopes[0].contiguous(), ctx.adjacency.transposed
        of_values = of_dense = None
        if ctx.needs_input_grad[0]:
            of_values = ctx.adjacency.pattern.sampled(slope, dense.contiguous())
        if ctx.needs_input_grad[1]:
            of_dense = back.times(slope, values[back.slots])
        return of_values, of_dense, None
