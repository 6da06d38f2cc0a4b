"""The graph convolutional network of Kipf and Welling (2017), with a weight on every edge.

H⁰ = x,  Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ),  Â = D^-½ (A + I) D^-½,  D = diag(row sums of A + I). A_ij is the
summed weight of the edges j → i; every node's loop to itself has weight 1 and is no edge, so a
node that loses all of its edges still hears itself and no degree is ever 0.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

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

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits (nodes, classes)."""
        source, target, weight = _proper(edge_index, edge_weight, self.weights[0].dtype)
        nodes = x.shape[0]
        degree = weight.new_ones(nodes).index_add(0, target, weight)
        scale = degree.rsqrt()
        values = scale[source] * weight * scale[target]
        last = len(self.weights) - 1
        for i, (matrix, bias) in enumerate(self.gcn_layers()):
            x = self._drop(x)
            z = torch.sparse.mm(x, matrix) if _is_sparse(x) else x @ matrix
            own = z * scale.square().unsqueeze(1)
            x = own.index_add(0, target, z[source] * values.unsqueeze(1)) + bias
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


def _proper(
    edge_index: Tensor, edge_weight: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, targets and weights of the edges between different nodes."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InvalidInput(
            f"Expected edge_index of shape (2, edges) (got {tuple(edge_index.shape)})."
        )
    edges = edge_index.shape[1]
    if edge_weight is None:
        edge_weight = torch.ones(edges, dtype=dtype, device=edge_index.device)
    elif edge_weight.shape != (edges,):
        raise InvalidInput(
            f"Expected one edge weight per column of edge_index, ({edges},) "
            f"(got {tuple(edge_weight.shape)})."
        )
    source, target = edge_index.long()
    proper = source != target
    if bool(proper.all()):
        return source, target, edge_weight
    return source[proper], target[proper], edge_weight[proper]
