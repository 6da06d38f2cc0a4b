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

from ..core.errors import InvalidInput
from .sparse import Adjacency, Matrix


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
        there, back = _Latest.of(edge_index, nodes).normalised(edge_weight)
        return lambda z: _Product.apply(z, there, back)  # type: ignore[no-untyped-call]
    source, target = edge_index.long()
    proper = source != target
    source, target, edge_weight = source[proper], target[proper], edge_weight[proper]
    scale = edge_weight.new_ones(nodes).index_add(0, target, edge_weight).rsqrt()
    values = (scale[source] * edge_weight * scale[target]).unsqueeze(1)
    if messages is not None:
        values = values * messages[proper].unsqueeze(1)
    own = scale.square().unsqueeze(1)
    return lambda z: (z * own).index_add(0, target, z[source] * values)


class _Latest:
    """The matrix of the graph that was passed last: in training it is passed again and again."""

    known: tuple[ref[Tensor], int, int, Adjacency] | None = None

    @classmethod
    def of(cls, edge_index: Tensor, nodes: int) -> Adjacency:
        """The one of the last call, if this is the same graph."""
        known = cls.known
        if known is not None and known[0]() is edge_index and known[1:3] == (
            edge_index._version, nodes,
        ):  # fmt: skip
            return known[3]
        made = Adjacency(edge_index, nodes)
        cls.known = (ref(edge_index, cls._forget), edge_index._version, nodes, made)
        return made

    @classmethod
    def _forget(cls, gone: ref[Tensor]) -> None:
        """The graph is not used any more: free what was made of it."""
        if cls.known is not None and cls.known[0] is gone:
            cls.known = None


class _Product(torch.autograd.Function):
    """Â z, whose gradient is the product with Âᵀ: no array of edges × features in either."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, there: Matrix, back: Matrix) -> Tensor:
        """Sums over rows."""
        ctx.back = back
        return there.times(z)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Sums over columns."""
        return ctx.back.times(slopes[0].contiguous()), None, None


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
