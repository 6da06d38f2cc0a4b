"""Which method `method=None` takes for a tensor.

- Photos (3 channels, 128 pixels or more a side), a probability: `SteadyPIG()`. It convinces a
  second network and points at the object more often (reproduction/study).
- Pictures, log-likelihood: 100 rounds of one gradient. They come far nearer to the model's output
  than few fine integrals.
- Anything else: `GreedyPIG()`, 20 geometric rounds of 5 midpoints. Algorithm 1 for 100 gradients.

Graphs, texts and columns have their own: `graphs.methods`, `text.methods`, `tables.methods`.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Any

from ..core.layout import Layout
from ..core.methods import GreedyPIG, InRounds, Method, SequentialGradient
from ..core.registry import METHODS
from ..core.scorers import IG, SmoothIG
from .features import is_picture

COLOURS, LEAST_SIDE = 3, 128
"""A photo has so many channels and at least so many pixels a side: nothing else was studied, and
a crop of less shows little."""
FEW_STEPS = 5
"""Gradients of a round that a budget leaves as they are: more are cut in proportion to rounds."""


def choose(layout: Layout, objective: str) -> Method:
    """What method=None takes for an input of this layout and an objective of this name."""
    if is_picture(layout) and objective == "log-likelihood":
        return SequentialGradient(rounds=100)
    if is_photo(layout) and objective == "softmax":
        photo: Method = METHODS["steady-pig"].factory()
        return photo
    return GreedyPIG()


def is_photo(layout: Layout) -> bool:
    """Is the input a picture of the kind that the default for photos was studied on?"""
    shape = layout.shapes[0]
    return is_picture(layout) and shape[0] == COLOURS and min(shape[1:]) >= LEAST_SIDE


def within(method: Any, gradients: int, *, stretch: bool = False) -> Any:
    """The method for at most so many gradients.

    Greedy methods with more than five steps a round take fewer rounds and steps in proportion. Then
    they take fewer rounds as long as there are as many as steps, then fewer of both. One-shot
    methods take fewer steps. stretch: about as many as that, also where the method takes fewer, for
    a comparison at equal cost.
    """
    cost = method.round_scorer.cost
    if cost == 0:
        return method
    if isinstance(method, InRounds):
        return _fewer_rounds(method, cost, gradients, stretch)
    if isinstance(method, SmoothIG) and isinstance(method.scorer, IG):
        samples = min(method.samples, gradients)
        steps = gradients // samples if stretch else min(method.scorer.steps, gradients // samples)
        return replace(method, samples=samples, scorer=replace(method.scorer, steps=steps))
    if not hasattr(method, "steps") or (cost <= gradients and not stretch):
        return method
    return replace(method, steps=gradients)


def _fewer_rounds(method: InRounds, cost: int, gradients: int, stretch: bool) -> InRounds:
    if not isinstance(method.schedule, str) or method.per_round is not None:
        return method
    sides = cost // getattr(method, "steps", cost)  # Gradients of each node.
    cost, gradients, wanted = cost // sides, max(1, gradients // sides), method.most_rounds
    steps = min(cost, max(FEW_STEPS, isqrt(gradients * cost // wanted)))
    rounds = min(wanted, max(gradients // steps, isqrt(gradients)))
    steps = min(steps, gradients // rounds)
    if stretch:
        rounds = max(rounds, gradients // cost)
    knob: dict[str, Any] = {name: steps for name in ("steps", "views") if hasattr(method, name)}
    return replace(method, rounds=rounds, **(knob if steps < cost else {}))
