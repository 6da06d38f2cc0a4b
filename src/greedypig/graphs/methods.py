"""What method=None takes for graphs.

- Edges of a graph: 33 rounds of 3 Gauss–Radau nodes. The gradient is steep near t = 0.
- Edges around one node: one edge a round, 20 Gauss–Legendre nodes. Few edges decide, and 3 nodes
  do not resolve their path.
- Edges in PyG's Explainer: the path of a node, 5 rounds that rank all edges, for 100 gradients; to
  take k of them, k rounds of which there are at most 33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.methods import GreedyPIG, InRounds
from ..core.objective import Objective
from ..core.rounds import Round
from ..core.scorers import IG, OneShot, Random

FOR_EDGES = GreedyPIG(rounds=33, steps=3, rule="gauss-radau", ratio=20.0)
ONCE_FOR_EDGES = IG(100, "gauss-legendre")
FOR_NODES = GreedyPIG(per_round=1, steps=20, rule="gauss-legendre")
FOR_MESSAGES = GreedyPIG(rounds=5, steps=20, rule="gauss-legendre", ratio=20.0)
FOR_SOME_MESSAGES = replace(FOR_MESSAGES, rounds=33)


@dataclass(frozen=True, kw_only=True)
class RandomGrowth(InRounds):
    """Edges at random among those that touch the subgraph, one after the other."""

    per_round: int | None = 1
    name = "random"

    @property
    def scorer(self) -> Random:
        """Uniform random scores, drawn again in every round."""
        return Random()


@dataclass(frozen=True)
class NoEdges(OneShot):
    """The method of a node that no edge reaches: there is nothing to select."""

    name: str = ""

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """No scores."""
        return torch.zeros_like(round.mask)
