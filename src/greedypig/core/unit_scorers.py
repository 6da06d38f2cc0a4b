"""Scores of whole units without a gradient: by values alone, and by chance.

Sources: greedy by marginal gains, Nemhauser et al. 1978, lazily by Minoux 1978.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .lockstep import Plan, Request, ask
from .scorers import PlannedScorer, Scored, Situation, seeded_uniform


@dataclass(frozen=True)
class RandomOrder(PlannedScorer):
    """Uniform random scores by seed: the floor any method must beat."""

    name = "random"
    of_elements = False

    def plan(self, at: Situation) -> Plan[Scored]:
        scores = seeded_uniform(at.features.units, at.seed, at.round, 0)
        yield from ()  # Asks for nothing, but is a generator like its siblings.
        return Scored(units=scores.to(at.mask.device))

    def cost(self) -> int:
        return 0


@dataclass(frozen=True)
class MarginalGains(PlannedScorer):
    """scores_u = G(S ∪ u) − G(S) for every unit u, by values alone.

    lazy=True re-evaluates a unit only while its gain in an earlier round, an upper bound if G is
    submodular, could still win. Valid for submodular G only.
    """

    lazy: bool = False
    name = "marginal-gains"
    of_elements = False

    def plan(self, at: Situation) -> Plan[Scored]:
        left = ~at.features.blocked(at.mask, at.taken)
        if self.lazy and at.alone and at.last is not None:
            return (yield from self._lazily(at, left, at.last))
        units = torch.nonzero(left).squeeze(1)
        gains, value = yield from self._gains(at, units)
        scores = torch.full(
            (at.features.units,), -torch.inf, dtype=gains.dtype, device=gains.device
        )
        scores[units] = gains
        return Scored(units=scores, value=value)

    def cost(self) -> int:
        return 0

    def _gains(self, at: Situation, units: Tensor) -> Plan[tuple[Tensor, Tensor]]:
        problem, base = at.objective, at.mask.unsqueeze(0)

        def points(lo: int, hi: int) -> Tensor:
            masks = base.repeat(hi - lo, 1)
            for row in range(max(lo, 1), hi):
                masks[row - lo, at.features.members(units[row - 1 : row])] = 1
            return problem.place(masks)

        answer = yield from ask(Request(problem, 1 + units.numel(), points))
        return answer.values[1:] - answer.values[0], answer.values[0]

    def _lazily(self, at: Situation, left: Tensor, bounds: Tensor) -> Plan[Scored]:
        scores = bounds.masked_fill(~left, -torch.inf)
        fresh = torch.zeros_like(left)
        value = None
        while True:
            best = at.features.pick_units(scores, at.mask, at.taken, at.z)
            stale = best[~fresh[best]]
            if stale.numel() == 0:
                return Scored(units=scores, value=value)
            gains, value = yield from self._gains(at, stale)
            scores[stale] = gains.to(scores)
            fresh[stale] = True
