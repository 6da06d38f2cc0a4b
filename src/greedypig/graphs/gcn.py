"""The graph convolutional network of Kipf and Welling (2017), with a weight on every edge.

H⁰ = x,  Hˡ = σ(Â Hˡ⁻¹ Wˡ + bˡ),  Â = D^-½ (A + I) D^-½,  D = diag(row sums of A + I). A_ij is the
summed weight of the edges j → i; every node's loop to itself has weight 1 and is no edge, so a
node without any edge still has its own features, and no degree is ever 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from ..core.numbers import check_count
from .propagation import Adjacency, Arrays, Normalised


def convolutions(
    x: Tensor,
    matrix: Normalised,
    layers: Sequence[tuple[Tensor | None, Tensor | None]],
    drop: Callable[[Tensor], Tensor] = lambda hidden: hidden,
    arrays: Sequence[Arrays | None] | None = None,
) -> Tensor:
    """Hᴸ of layers (Wˡ, bˡ) with ReLU between them; `drop` is applied to the input of each.

    arrays: memory of every layer, which the next pass overwrites.
    """
    for i, (weight, bias) in enumerate(layers):
        own = None if arrays is None else arrays[i]
        x = matrix.convolve(drop(x), weight, bias, relu=i < len(layers) - 1, arrays=own)
    return x


class GCN(nn.Module):
    """Node classes from features and edges: `GCN(1433, 7)(x, edge_index)` → logits (nodes, 7).

    x (nodes, in_features), dense or torch sparse; edge_index (2, edges) of source and target ids,
    both directions given where the graph is undirected; edge_weight (edges,) or None for ones.
    Edges from a node to itself are ignored: every node has a loop of weight 1 already.
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
        sizes = {"in_features": in_features, "classes": classes, "hidden": hidden, "layers": layers}
        for name, size in sizes.items():
            check_count(name, size)
        widths = [in_features, *[hidden] * (layers - 1), classes]
        self.weights = nn.ParameterList(torch.empty(a, b) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(torch.empty(b) for b in widths[1:])
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights by Glorot's uniform rule, biases 0."""
        for weight, bias in self.gcn_layers():
            nn.init.xavier_uniform_(weight)
            nn.init.zeros_(bias)

    def gcn_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Wˡ (in, out) and bˡ of every layer, for the fast edge gradient."""
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
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InvalidInput(
                f"Expected edge_index of shape (2, edges) (got {tuple(edge_index.shape)})."
            )
        if edge_weight is None:
            edge_weight = self.weights[0].new_ones(edge_index.shape[1])
        if edge_weight.shape != edge_index.shape[1:]:
            raise InvalidInput(
                f"Expected one edge weight per column of edge_index, ({edge_index.shape[1]},) "
                f"(got {tuple(edge_weight.shape)})."
            )
        adjacency = Adjacency(edge_index, x.shape[0])
        return self.propagate(x, adjacency.normalised(edge_weight, messages))

    def propagate(self, x: Tensor, matrix: Normalised) -> Tensor:
        """Logits (nodes, classes) from the graph's Â; it may serve for many calls."""
        return convolutions(x, matrix, self.gcn_layers(), self._drop)

    def _drop(self, x: Tensor) -> Tensor:
        """Dropout; of a sparse input's stored numbers only."""
        if not self.training or x.layout == torch.strided:
            return self.dropout(x)  # type: ignore[no-any-return]
        x = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        values = self.dropout(x.values())
        return torch.sparse_coo_tensor(
            x.indices(), values, x.shape, is_coalesced=True, check_invariants=False
        )
