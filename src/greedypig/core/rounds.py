"""Greedy path-integrated gradients: Algorithm 1 of "Greedy PIG: Adaptive Integrated Gradients".

Score everything that is not selected, take the best few, fix them, go on. The scorer is any
one-shot method; one round that takes everything *is* that method. Budgets, clocks, checkpoints,
progress and resuming are plain loops around this generator (`run.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidType, NonFinite
from .features import Features, best_first
from .objective import Objective


@dataclass(frozen=True, eq=False)
class State:
    """All that a run is after some rounds, for b problems side by side and u features."""

    taken: Tensor
    """(b, u) bool: is the feature in S?"""
    order: Tensor
    """(b, selected) long: the features of S in order of selection."""
    scores: Tensor
    """(b, u) Algorithm 1's a: the score of the round that took the feature, else 0."""
    last: Tensor
    """(b, u) the last round's scores; they rank what was never taken."""
    first: Tensor
    """(b, u) the first round's scores; integrated gradients, where the scorer is."""
    sums: Tensor
    """(b, u) scores summed over the rounds. `Attribution.contributions` uses them."""
    totals: tuple[tuple[float, ...], ...] = ()
    """For each round and problem: Σ of the round's scores ≈ G(1) − G(S before the round)."""
    picks: tuple[int, ...] = ()
    """How many features each round took."""

    @staticmethod
    def start(objective: Objective, features: Features) -> State:
        """Nothing is selected."""
        zero = torch.zeros(objective.b, features.count).to(objective.end)
        return State(zero.bool(), zero[:, :0].long(), zero, zero, zero, zero)

    def take(
        self, chosen: Tensor, scores: Tensor, every: Tensor, totals: tuple[float, ...]
    ) -> State:
        """S ← S ∪ Ŝ and a ← a + â_Ŝ."""
        return State(
            taken=self.taken.scatter(1, chosen, True),
            order=torch.cat([self.order, chosen], 1),
            scores=self.scores.scatter(1, chosen, scores),
            last=every,
            first=self.first if self.picks else every,
            sums=self.sums + every,
            totals=(*self.totals, totals),
            picks=(*self.picks, chosen.shape[1]),
        )

    def ranking(self) -> Tensor:
        """(b, u) a full permutation: what was taken, then the rest by its last score."""
        rest = self.taken.shape[1] - self.order.shape[1]
        return torch.cat([self.order, best_first(self.last, self.taken, rest)], 1)


def rounds(
    objective: Objective, scorer: Any, features: Features, schedule: Sequence[int], state: State
) -> Iterator[State]:
    """Algorithm 1, one frozen `State` after every round."""
    for z in schedule[len(state.picks) :]:
        selected = features.mask(state.taken)
        goal = features.goal(state.taken, z)
        now = objective.changed(
            round=len(state.picks), goal=goal, features=features, taken=state.taken, picks=z
        )
        # â = ∫ ∇g(1_S + t · 1_S̄) dt, per value; Ŝ = the z best features that are free
        scores, totals = checked(scorer(now, selected.to(objective.end)), selected, now)
        chosen, own = features.pick(scores, state.taken, z)
        if chosen.shape[1] == 0:
            return
        state = state.take(chosen, own, features.sum(scores), totals)  # S ← S ∪ Ŝ, a ← a + â_Ŝ
        yield state


def checked(
    scores: Any, selected: Tensor, objective: Objective
) -> tuple[Tensor, tuple[float, ...]]:
    """A scorer's scores, with 0 for what is selected already, and their sums."""
    if not isinstance(scores, Tensor) or scores.numel() != selected.numel():
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise InvalidType(f"Expected scores of shape {tuple(selected.shape)} (got {got}).")
    new: Tensor = scores.detach().reshape(selected.shape).to(objective.end)
    new = new.masked_fill(selected, 0)
    totals = tuple(new.sum(1).tolist())
    if not all(map(isfinite, totals)) and not bool(torch.isfinite(new).all()):
        raise NonFinite(
            "Expected finite scores (got NaN or infinity from the scorer in round "
            f"{objective.round + 1})."
        )
    return new, totals
