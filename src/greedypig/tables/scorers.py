"""Scores of columns from data: the path integral on one share of batches, and permutation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.objective import PointObjective
from ..core.quadrature import Rule
from .objective import TableObjective


@dataclass(frozen=True, eq=False)
class PathScores:
    """scores_i = Σ_k weights_k · ∂_i g(mask + nodes_k · (1 − mask)), all points on one share.

    Points on batches of their own would add the batches' noise to the differences between them.
    What `IntegratedGradients` computes; asked in one go, as a network with a linear first layer
    needs one product for the whole path.
    """

    objective: TableObjective
    rule: Rule
    named: Any
    """The rule for the record: its name, or its nodes and weights."""

    def __call__(self, problem: PointObjective, mask: Tensor, /) -> Tensor:
        """The scores at this mask; pays one gradient per point."""
        problem.paid(len(self.rule))
        nodes = torch.tensor(self.rule.nodes, dtype=torch.float64)
        weights = torch.tensor(self.rule.weights, dtype=torch.float64)
        return self.objective.path(mask, nodes, weights)

    def settings(self) -> dict[str, Any]:
        """For the record."""
        return {"scorer": "path-scores", "steps": len(self.rule), "rule": self.named}


@dataclass(frozen=True, eq=False)
class Permutation:
    """scores_j = how much worse the loss is with column j's values shuffled among the rows."""

    objective: TableObjective
    seed: int

    def __call__(self, problem: PointObjective, mask: Tensor, /) -> Tensor:
        """The scores, whatever the mask: a one-shot method around the full table."""
        return self.objective.permuted(self.seed)

    def settings(self) -> dict[str, Any]:
        """For the record."""
        return {"scorer": "permutation"}
