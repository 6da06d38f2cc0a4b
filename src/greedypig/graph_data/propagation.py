"""Â z of a graph convolution as one sparse product: Â = D^-½ (A + I) D^-½ in rows.

`embedding_bag` sums weighted rows and is the quickest sparse product on a CPU: no edge × width
messages are ever held. The transpose serves the way back; of an undirected graph it is Â itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class Rows:
    """A sparse matrix by rows."""

    offsets: Tensor
    """(rows + 1,) where each row begins."""
    columns: Tensor
    values: Tensor

    @staticmethod
    def of(row: Tensor, column: Tensor, values: Tensor, rows: int) -> Rows:
        """From entries in any order."""
        order = torch.argsort(row, stable=True)
        counts = torch.bincount(row, minlength=rows)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Rows(offsets, column[order], values[order])

    def like(self, values: Tensor) -> Rows:
        """The same places with other values."""
        return Rows(self.offsets, self.columns, values)

    def times(self, z: Tensor) -> Tensor:
        """The product with a dense (columns, width) matrix."""
        return functional.embedding_bag(
            self.columns, z, self.offsets, mode="sum", per_sample_weights=self.values,
            include_last_offset=True,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Propagation:
    """Â and its transpose."""

    forward: Rows
    back: Rows

    @staticmethod
    def of(nodes: int, edge_index: Tensor, edge_weight: Tensor | None = None, *,
           undirected: bool) -> Propagation:  # fmt: skip
        """Of edges source → target; loops of weight 1 are added, degrees are those of the rows."""
        source, target = edge_index
        loop = torch.arange(nodes, device=edge_index.device)
        weight = (
            torch.ones(edge_index.shape[1], device=edge_index.device)
            if edge_weight is None
            else edge_weight.float()
        )
        degree = torch.ones(nodes, device=edge_index.device).index_add_(0, target, weight)
        scale = degree.rsqrt()
        row, column = torch.cat([target, loop]), torch.cat([source, loop])
        values = torch.cat([scale[target] * weight * scale[source], scale.square()])
        made = Rows.of(row, column, values, nodes)
        return Propagation(made, made if undirected else Rows.of(column, row, values, nodes))
