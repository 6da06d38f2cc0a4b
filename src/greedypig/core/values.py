"""G(S) after the rounds of a run, measured where a rule or a result asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from .features import Features
from .objective import Objective
from .rounds import State

FULL = -1
"""Stands for the number of rounds after which everything would be selected."""


def measured(
    objective: Objective, features: Features, state: State, rounds: Sequence[int]
) -> State:
    """The state with (b,) float64 G(S) after each of these numbers of rounds."""
    missing = [r for r in rounds if r not in state.values]
    if not missing:
        return state
    masks = _masks(features, state, missing)
    known = dict(zip(missing, objective.values(masks).double().cpu().unbind(1), strict=True))
    full = known.pop(FULL, state.full_values)
    return replace(state, values={**state.values, **known}, full_values=full)


def completely_measured(
    objective: Objective, features: Features, state: State, *, alone: bool = False
) -> State:
    """The state with G(S) after every round, and G of everything.

    alone: measure one set at a time.
    """
    done, complete = len(state.picks), features.is_complete(state.taken)
    missing = [r for r in range(done + 1) if r not in state.values]
    if state.full_values is None and not complete:
        missing.append(FULL)
    size = 1 if alone else objective.points
    for first in range(0, len(missing), size):
        state = measured(objective, features, state, missing[first : first + size])
    if complete:
        state = replace(state, full_values=state.values[done])
    return state


def _masks(features: Features, state: State, rounds: Sequence[int]) -> Tensor:
    """(b, s, n): what is selected after each of these numbers of rounds."""
    order, (b, count) = state.order, state.taken.shape
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    places = order.new_full((b, count), count).scatter(1, order, places)
    counts = [count + 1 if r == FULL else sum(state.picks[:r]) for r in rounds]
    taken = places.unsqueeze(1) < order.new_tensor(counts).unsqueeze(1)
    return features.mask(taken.flatten(0, 1)).view(b, len(rounds), -1)
