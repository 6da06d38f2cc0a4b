"""Greedy path-integrated gradients: Algorithm 1 of "Greedy PIG: Adaptive Integrated Gradients".

Score everything that is not selected, take the best few, fix them, go on. The scorer is any
one-shot method; one round that takes everything *is* that method. Budgets, clocks, checkpoints and
progress are asked between the rounds (`run.py`, `carry_out.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import isfinite, nan
from typing import Any, Protocol

import torch
from torch import Tensor

from .attribution import Attribution
from .errors import InvalidType, NonFinite
from .facts import Facts
from .features import Features, best_first
from .objective import Objective


@dataclass(frozen=True, eq=False)
class Round:
    """The round in which a scorer is asked, for b problems side by side."""

    mask: Tensor
    """(b, n) 1_S: 1 for every value that is selected."""
    features: Features
    """The features to select among."""
    taken: Tensor
    """(b, features) bool: the features of S."""
    picks: int = 1
    """How many features the round takes."""
    goal: Tensor | None = None
    """(b, n) mask at which the paths of the round end; None for everything."""
    number: int = 0
    """How many rounds came before."""
    step: int = 0
    """How many points of the round came before, for errors."""
    seed: int = 0
    """The seed of random numbers."""
    examples: tuple[int, ...] = ()
    """The place of every problem in the caller's list of examples; 0 where there is none."""

    @property
    def rest(self) -> Tensor:
        """(b, n): 1 for what moves along the path, 0 for what is selected or beyond the goal."""
        return (1 if self.goal is None else self.goal.to(self.mask)) - self.mask

    def generator(self, problem: int, *stream: int) -> torch.Generator:
        """Random numbers of this seed, round and example, on every platform alike."""
        example = self.examples[problem] if self.examples else 0
        seed = (self.seed, example) if example else self.seed
        digest = blake2b(repr((seed, self.number, *stream)).encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


class Scorer(Protocol):
    """Any callable (objective, round) → scores; `gp.Greedy` makes it adaptive."""

    def __call__(self, objective: Any, round: Round, /) -> Tensor:
        """(b, n): how much each value would add to S."""
        ...


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
    values: Mapping[int, Tensor] = field(default_factory=dict)
    """(b,) G(S) after this number of rounds, where it was measured."""
    full_values: Tensor | None = None
    """(b,) G of everything, once it was measured."""
    gradients: int = 0
    """Gradients paid for each problem."""
    forwards: int = 0
    """Forward passes without a gradient, paid for each problem in the rounds."""
    seconds: float = 0.0
    """Time spent in the rounds, for all problems together."""

    @staticmethod
    def start(objective: Objective, features: Features) -> State:
        """Nothing is selected."""
        zero = torch.zeros(objective.b, features.count).to(objective.end)
        return State(zero.bool(), zero[:, :0].long(), zero, zero, zero, zero)

    def after(self, saved: Attribution, *, alone: bool = False) -> State:
        """The state, for one problem, after the rounds of a saved result.

        alone: was each value measured by itself, as a stopping rule asks for it?
        """
        first = saved.last_scores if saved.first_scores is None else saved.first_scores
        sums = torch.zeros_like(first) if saved.score_sums is None else saved.score_sums
        vectors = (saved.feature_scores, saved.last_scores, first, sums)
        scores, last, first, sums = (v.unsqueeze(0).to(self.scores) for v in vectors)
        order = saved.order[: saved.selected].unsqueeze(0).to(self.order)
        values = {r: v.view(1) for r, v in enumerate(saved.values) if isfinite(float(v))}
        if not alone and len(values) == len(saved.values):
            values = {}  # They shared batches. Beside more rounds they would be in others: the
            # last bits would not be those of a run that was never stopped.
        return State(
            taken=self.taken.scatter(1, order, True),
            order=order,
            scores=scores,
            last=last,
            first=first,
            sums=sums,
            totals=tuple((total,) for total in saved.totals),
            picks=saved.picks,
            values={**self.values, **values},
            full_values=self.full_values,
            gradients=saved.gradients_used,
            forwards=saved.forwards_used,
            seconds=saved.seconds,
        )

    def attribution(
        self,
        problem: int,
        ranking: Tensor,
        *,
        integrals: bool,
        gains: bool,
        notes: tuple[Facts, Mapping[str, Tensor]],
        **origin: Any,
    ) -> Attribution:
        """The result of one problem; ranking: its full order.

        integrals: are scores integrals along the path to everything? gains: are they differences
        of G? origin: the fields that a state does not know.
        """
        values, full = self.values, self.full_values
        line = [
            float(values[r][problem]) if r in values else nan for r in range(len(self.picks) + 1)
        ]
        return Attribution(
            order=ranking,
            selected=self.order.shape[1],
            feature_scores=self.scores[problem].cpu(),
            values=torch.tensor(line, dtype=torch.float64),
            full_value=nan if full is None else float(full[problem]),
            picks=self.picks,
            totals=tuple(totals[problem] for totals in self.totals),
            gradients_used=self.gradients,
            forwards_used=self.forwards,
            seconds=self.seconds / len(self.order),
            last_scores=self.last[problem].cpu(),
            first_scores=self.first[problem].cpu() if integrals or gains else None,
            score_sums=self.sums[problem].cpu() if integrals else None,
            **origin,
        ).with_notes(notes[0], **notes[1])

    def take(
        self, chosen: Tensor, scores: Tensor, every: Tensor, totals: tuple[float, ...]
    ) -> State:
        """S ← S ∪ Ŝ and a ← a + â_Ŝ."""
        return replace(
            self,
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


def next_round(
    objective: Objective,
    scorer: Scorer,
    features: Features,
    state: State,
    picks: int,
    *,
    seed: int = 0,
    examples: tuple[int, ...] = (),
) -> State:
    """One round of Algorithm 1, z = picks; the state itself where nothing is left to take."""
    number, before = len(state.picks), objective.gradients_used
    picks = min(picks, features.count - state.order.shape[1])
    mask = features.mask(state.taken)
    goal = features.goal(state.taken, picks)
    now = Round(
        mask.to(objective.end), features, state.taken, picks, goal, number, 0, seed, examples
    )
    try:
        # â = ∫ ∇g(1_S + t · 1_S̄) dt, per value; Ŝ = the z best features that are free
        scores, totals = checked(scorer(objective.for_round(number), now), mask, objective)
        chosen, chosen_scores = features.pick(scores, state.taken, picks)
    except NonFinite as error:
        error.round = number + 1
        raise
    state = replace(state, gradients=state.gradients + objective.gradients_used - before)
    if chosen.shape[1] == 0:
        return state
    return state.take(chosen, chosen_scores, features.sum(scores), totals)  # S ← S ∪ Ŝ


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
        raise NonFinite("Expected finite scores (got NaN or infinity from the scorer).")
    return new, totals
