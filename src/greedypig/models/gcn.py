"""The graph convolutional network of Kipf and Welling (2017), with a weight on every edge.

H⁰ = x,  Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ),  Â = D^-½ (A + I) D^-½,  D = diag(row sums of A + I). A_ij is the
summed weight of the edges j → i; every node's loop to itself has weight 1 and is no edge, so a
node that loses all of its edges still hears itself and no degree is ever 0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput


class GCN(nn.Module):
    """Node classes from features and edges: `GCN(1433, 7)(x, edge_index)` → logits (nodes, 7).

    x (nodes, in_features), dense or torch sparse; edge_index (2, edges) of source and target ids,
    both directions given where the graph is undirected; edge_weight (edges,) or None for ones.
    Edges from a node to itself are passed over: its own loop is there already, at weight 1.
    """

    def __init__(
        self,
        in_features: int,
        classes: int,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        for name, number in (("in_features", in_features), ("classes", classes),
                             ("hidden", hidden), ("layers", layers)):  # fmt: skip
            if type(number) is not int or number < 1:
                raise InvalidInput(f"Expected {name} to be a whole number ≥ 1 (got {number!r}).")
        widths = [in_features, *[hidden] * (layers - 1), classes]
        self.weights = nn.ParameterList(torch.empty(a, b) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(torch.empty(b) for b in widths[1:])
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights by Glorot's uniform rule, biases 0."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            nn.init.xavier_uniform_(weight)
            nn.init.zeros_(bias)

    def gcn_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Wˡ (in, out) and bˡ of every layer: what a fast propagation needs to know."""
        return list(zip(self.weights, self.biases, strict=True))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        messages: Tensor | None = None,
    ) -> Tensor:
        """Logits (nodes, classes). messages: a factor for what each edge passes on, which leaves
        all degrees as they are."""
        product = _propagation(x.shape[0], edge_index, edge_weight, messages, self.weights[0])
        last = len(self.weights) - 1
        for i, (matrix, bias) in enumerate(self.gcn_layers()):
            x = self._drop(x)
            z = torch.sparse.mm(x, matrix) if _is_sparse(x) else x @ matrix
            x = product(z) + bias
            x = x if i == last else x.relu()
        return x

    def _drop(self, x: Tensor) -> Tensor:
        """Dropout, of a sparse input's stored numbers alone."""
        if not self.training or not _is_sparse(x):
            return self.dropout(x)  # type: ignore[no-any-return]
        x = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(x.indices(), self.dropout(x.values()), x.shape,
                                       is_coalesced=True)  # fmt: skip


def _is_sparse(x: Tensor) -> bool:
    return x.layout != torch.strided


def _propagation(
    nodes: int,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    messages: Tensor | None,
    like: Tensor,
) -> Callable[[Tensor], Tensor]:
    """z ↦ Â z."""
    _check(edge_index, edge_weight)
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.shape[1], dtype=like.dtype, device=like.device)
    if messages is None and not edge_weight.requires_grad and like.device.type == "cpu":
        matrix = _Sorted.of(edge_index, nodes)
        values, back = matrix.values(edge_weight)
        return lambda z: _Product.apply(z, matrix, values, back)  # type: ignore[no-untyped-call]
    source, target = edge_index.long()
    proper = source != target
    source, target, edge_weight = source[proper], target[proper], edge_weight[proper]
    scale = edge_weight.new_ones(nodes).index_add(0, target, edge_weight).rsqrt()
    values = (scale[source] * edge_weight * scale[target]).unsqueeze(1)
    if messages is not None:
        values = values * messages[proper].unsqueeze(1)
    own = scale.square().unsqueeze(1)
    return lambda z: (z * own).index_add(0, target, z[source] * values)


class _Sorted:
    """Where A + I has entries, by rows and by columns: made once for a graph that is passed again
    and again, as in training."""

    latest: tuple[ref[Tensor], int, int, _Sorted] | None = None

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        source, target = edge_index.long()
        self.proper = torch.nonzero(source != target).squeeze(1)
        loops = torch.arange(nodes)
        self.nodes = nodes
        self.source = torch.cat([source[self.proper], loops])
        self.target = torch.cat([target[self.proper], loops])
        self.rows = self._sorted(self.target, self.source)
        self.columns = self._sorted(self.source, self.target)

    @classmethod
    def of(cls, edge_index: Tensor, nodes: int) -> _Sorted:
        """The one of the last call, if this is the same graph."""
        known = cls.latest
        if known is not None and known[0]() is edge_index and known[1:3] == (
            edge_index._version, nodes,
        ):  # fmt: skip
            return known[3]
        made = cls(edge_index, nodes)
        cls.latest = (ref(edge_index, cls._forget), edge_index._version, nodes, made)
        return made

    @classmethod
    def _forget(cls, gone: ref[Tensor]) -> None:
        """The graph is not used any more: free what was made of it."""
        if cls.latest is not None and cls.latest[0] is gone:
            cls.latest = None

    def _sorted(self, along: Tensor, across: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.argsort(along * self.nodes + across)
        starts = torch.zeros(self.nodes + 1, dtype=torch.long)
        torch.cumsum(torch.bincount(along, minlength=self.nodes), 0, out=starts[1:])
        return starts, across[order], order

    def values(self, edge_weight: Tensor) -> tuple[Tensor, Tensor]:
        """The entries of Â, by rows and by columns."""
        weight = torch.cat([edge_weight[self.proper], edge_weight.new_ones(self.nodes)])
        scale = edge_weight.new_zeros(self.nodes).index_add(0, self.target, weight).rsqrt()
        values = scale[self.source] * weight * scale[self.target]
        return values[self.rows[2]], values[self.columns[2]]


class _Product(torch.autograd.Function):
    """Â z, whose gradient is the product with Âᵀ: no array of edges × features in either."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, matrix: _Sorted, values: Tensor, back: Tensor) -> Tensor:
        """Sums over rows."""
        ctx.matrix, ctx.back = matrix, back
        return _sum_rows(matrix.rows, values, z)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Sums over columns."""
        return _sum_rows(ctx.matrix.columns, ctx.back, slopes[0].contiguous()), None, None, None


def _sum_rows(pattern: tuple[Tensor, Tensor, Tensor], values: Tensor, z: Tensor) -> Tensor:
    starts, columns, _ = pattern
    return functional.embedding_bag(
        columns, z, starts, mode="sum", include_last_offset=True, per_sample_weights=values
    )


def _check(edge_index: Tensor, edge_weight: Tensor | None) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InvalidInput(
            f"Expected edge_index of shape (2, edges) (got {tuple(edge_index.shape)})."
        )
    if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
        raise InvalidInput(
            f"Expected one edge weight per column of edge_index, ({edge_index.shape[1]},) "
            f"(got {tuple(edge_weight.shape)})."
        )
