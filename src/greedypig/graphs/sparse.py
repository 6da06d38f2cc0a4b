"""A sparse matrix by rows, and its product with a dense one. Â of a graph convolution is one.

The product is an `embedding_bag` sum over rows, the fastest product of sparse by dense on a CPU: no
array of entries × width ever exists. Where entries are is found once, their values come and go.
Indices are int64 throughout: 10⁸ edges do not overflow them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 1 << 18
"""About so many numbers of a product are made at a time: they are still in the cache when they are
used, and their memory is taken from the heap again and again, not from the system."""


def row_starts(rows: Tensor, height: int) -> Tensor:
    """(height + 1,): where each row begins among entries sorted by row."""
    starts = torch.zeros(height + 1, dtype=torch.long, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=height), 0, out=starts[1:])
    return starts


@dataclass(frozen=True, eq=False)
class Rows:
    """Where some rows of a sparse matrix have entries."""

    starts: Tensor
    """(rows + 1,) where each row begins, the first at 0."""
    columns: Tensor

    def times(self, dense: Tensor, values: Tensor) -> Tensor:
        """(rows, width): the product with a dense matrix, the entries having these values."""
        return functional.embedding_bag(
            self.columns, dense, self.starts, mode="sum", include_last_offset=True,
            per_sample_weights=values,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a sparse matrix."""

    rows: slice
    entries: slice
    inside: Rows

    def times(self, dense: Tensor, values: Tensor) -> Tensor:
        """These rows of the product; values are those of the whole matrix."""
        return self.inside.times(dense, values[self.entries])


@dataclass(frozen=True, eq=False)
class Pattern(Rows):
    """Where a sparse matrix has entries, by rows; `slots` says whose value each one has."""

    slots: Tensor

    @staticmethod
    def of(rows: Tensor, columns: Tensor, height: int) -> Pattern:
        """Entry i of the arguments is slot i; within a row entries keep their order."""
        order = torch.argsort(rows, stable=True)
        return Pattern(row_starts(rows, height), columns[order], order)

    def blocks(self, width: int) -> Iterator[Block]:
        """All rows, in blocks that fit the cache at this width."""
        cuts = block_cuts(width, self.starts.numel() - 1)
        firsts = self.starts[torch.tensor(cuts)].tolist()
        for (low, high), (first, last) in zip(pairwise(cuts), pairwise(firsts), strict=True):
            inside = Rows(self.starts[low : high + 1] - first, self.columns[first:last])
            yield Block(slice(low, high), slice(first, last), inside)


def block_cuts(width: int, height: int) -> list[int]:
    """0 … height: where blocks of rows that fit the cache at this width begin and end."""
    return [*range(0, height, max(1, BLOCK // width)), height]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A sparse matrix: a pattern, and a value for each of its entries."""

    pattern: Rows
    values: Tensor

    def times(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix."""
        return self.pattern.times(dense, self.values)


class Adjacency:
    """Where A + I of a graph has entries, by rows and, for the way back, by columns.

    A_ij is the weight of the edges j → i. Edges from a node to itself are passed over: every node
    has its loop, of weight 1. mirrored: every edge has its reverse, of the same weight.
    """

    def __init__(self, edge_index: Tensor, nodes: int, *, mirrored: bool = False) -> None:
        source, target = edge_index.long()
        between = source != target
        self._between = None if bool(between.all()) else torch.nonzero(between).squeeze(1)
        if self._between is not None:
            source, target = source[self._between], target[self._between]
        loops = torch.arange(nodes, device=source.device)
        row, column = torch.cat([target, loops]), torch.cat([source, loops])
        # Parts of what was made here: nothing of the caller's is held.
        self.nodes, self.source, self.target = nodes, column[:-nodes], row[:-nodes]
        self.rows = Pattern.of(row, column, nodes)
        self.columns = self.rows if mirrored else Pattern.of(column, row, nodes)

    def normalised(self, weight: Tensor) -> tuple[Matrix, Matrix]:
        """Â = D^-½ (A + I) D^-½ for weights of the edges, and Âᵀ; D are the sums of the rows."""
        weight = weight if self._between is None else weight[self._between]
        scale = weight.new_ones(self.nodes).index_add_(0, self.target, weight).rsqrt_()
        slots = torch.cat([scale[self.target] * weight * scale[self.source], scale.square()])
        there = Matrix(self.rows, slots[self.rows.slots])
        if self.columns is self.rows:
            return there, there
        return there, Matrix(self.columns, slots[self.columns.slots])
