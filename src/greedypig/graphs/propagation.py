"""Weighted propagation over a whole graph, and its gradient for every edge, at the memory's speed.

Â = D^-½ (A + I) D^-½ as a sparse matrix whose pattern is made once and whose values are made anew
from the weights of the pairs. The gradient of a pair is a sampled product of dense by dense; no
array of edges × features ever exists.
"""

from __future__ import annotations

import warnings
from functools import cache, cached_property
from itertools import pairwise

import torch
from torch import Tensor

from .edges import Graph
from .sparse import Pattern, block_cuts, row_starts


class Propagation:
    """A graph's Â for masks (columns,) over edge_index, and the way back from Â to the mask.

    normalisation "recomputed" takes degrees from the masked graph, "kept" from the whole one.
    own_loops: an edge from a node to itself sets the weight of its loop, mask or no mask; else it
    does nothing.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        normalisation: str = "recomputed",
        loop: float = 1.0,
        own_loops: bool = False,
    ) -> None:
        _no_beta_warning()
        self.nodes, self.columns = graph.nodes, graph.columns
        self.symmetric = graph.undirected and graph.symmetric
        source, target = graph.edge_index
        weight = graph.weight
        proper = source != target
        self._proper = None if bool(proper.all()) else torch.nonzero(proper).squeeze(1)
        self._loops = weight.new_full((self.nodes,), loop)
        if own_loops:
            self._loops[source[~proper]] = weight[~proper]
        if self._proper is not None:
            source, target, weight = (t[self._proper] for t in (source, target, weight))
        if self.symmetric:
            # A symmetric matrix is its own transpose: a pair is kept once, as column < row.
            source, target = torch.minimum(source, target), torch.maximum(source, target)
        pairs, self._pair_of = torch.unique(target * self.nodes + source, return_inverse=True)
        self.row, self.column = pairs // self.nodes, pairs % self.nodes
        self._share = weight / 2 if self.symmetric else weight
        loops = torch.arange(self.nodes)
        rows, columns = [self.row, loops], [self.column, loops]
        self._kept: Tensor | None = None
        if self.symmetric:
            rows, columns = [*rows, self.column], [*columns, self.row]
        self.pattern = Pattern.of(torch.cat(rows), torch.cat(columns), self.nodes)
        self._starts = row_starts(self.row, self.nodes)
        if normalisation == "kept":
            self._kept = self._scale(self._weights(torch.ones_like(graph.weight)))

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of Âᵀ."""
        if self.symmetric:
            return self.pattern
        loops = torch.arange(self.nodes)
        return Pattern.of(torch.cat([self.column, loops]), torch.cat([self.row, loops]), self.nodes)

    def normalised(self, mask: Tensor) -> Normalised:
        """Â of the graph under this mask."""
        weights = self._weights(mask)
        scale = self._scale(weights) if self._kept is None else self._kept
        return Normalised(self, weights, scale)

    def _weights(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the pairs and of the loops."""
        proper = mask if self._proper is None else mask[self._proper]
        pairs = mask.new_zeros(self.row.numel()).index_add_(0, self._pair_of, proper * self._share)
        return pairs, self._loops

    def _scale(self, weights: tuple[Tensor, Tensor]) -> Tensor:
        """D^-½, in float64: a hub's degree is a long sum."""
        pairs, degree = weights[0].double(), weights[1].double()
        degree = degree.index_add(0, self.row, pairs)
        if self.symmetric:
            degree.index_add_(0, self.column, pairs)
        return degree.rsqrt_()


class Normalised:
    """Â under one mask: products with it, and the gradient that they add up to."""

    def __init__(self, plan: Propagation, weights: tuple[Tensor, Tensor], scale: Tensor) -> None:
        self.plan, self.scale = plan, scale
        self.pair_weights, self.loop_weights = weights
        dtype = self.pair_weights.dtype
        ends = scale.to(dtype)
        self.between = ends.index_select(0, plan.row) * ends.index_select(0, plan.column)
        """a_i · a_j of every pair."""
        self.pairs = self.pair_weights * self.between
        self.loops = self.loop_weights * scale.square().to(dtype)
        slots = [self.pairs, self.loops, self.pairs] if plan.symmetric else [self.pairs, self.loops]
        self._slots = torch.cat(slots)
        self.values = self._slots.index_select(0, plan.pattern.slots)
        self.sampled = torch.zeros_like(self.pairs)
        """Σ over products of ∂L/∂Â_ij (+ ∂L/∂Â_ji) of every pair."""
        self.diagonal = torch.zeros_like(self.loops)

    @cached_property
    def values_back(self) -> Tensor:
        """The values of Âᵀ."""
        if self.plan.symmetric:
            return self.values
        return self._slots.index_select(0, self.plan.transposed.slots)

    def record(self, slope: Tensor, dense: Tensor) -> None:
        """Take in one product Y = Â · dense with ∂L/∂Y = slope."""
        plan = self.plan
        found = torch.sparse_csr_tensor(
            plan._starts, plan.column, self.sampled, (plan.nodes, plan.nodes),
            check_invariants=False,
        )  # fmt: skip
        found = torch.sparse.sampled_addmm(found, slope, dense.t())
        if plan.symmetric:
            found = torch.sparse.sampled_addmm(found, dense, slope.t())
        self.sampled = found.values()
        for low, high in pairwise(block_cuts(dense.shape[1], plan.nodes)):
            self.diagonal[low:high] += torch.linalg.vecdot(slope[low:high], dense[low:high])

    def gradient(self) -> Tensor:
        """(columns,) ∂L/∂mask from all that was recorded.

        Â_ij = c_ij a_i a_j with a = degree^-½, so a pair acts by itself and through its degrees:
        ∂L/∂c_ij = a_i a_j Q_ij + ∂L/∂degree, where ∂L/∂degree_i = −½ a_i² Σ_j Q_ij Â_ij.
        """
        plan = self.plan
        slope = self.sampled * self.between
        if plan._kept is None:
            through = (self.sampled * self.pairs).double()
            each = 2 * (self.diagonal * self.loops).double()
            each.index_add_(0, plan.row, through).index_add_(0, plan.column, through)
            degree = (each.mul_(self.scale.square()).mul_(-0.5)).to(slope.dtype)
            slope += degree.index_select(0, plan.row)
            if plan.symmetric:
                slope += degree.index_select(0, plan.column)
        share = slope.index_select(0, plan._pair_of).mul_(plan._share)
        if plan._proper is None:
            return share
        return share.new_zeros(plan.columns).index_copy_(0, plan._proper, share)


@cache
def _no_beta_warning() -> None:
    """Torch says once in a process that its CSR tensors are young; let it say so to us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.empty(0).long(), torch.empty(0), (1, 1))
