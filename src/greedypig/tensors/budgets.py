"""A method for a given number of gradients: one rule for every command that has a --budget.

- Greedy rounds at their defaults keep the steps of a round and take fewer rounds, as long as there
  are as many rounds as steps; below that, as many of both. One round would not be greedy. For
  pictures "greedy-pig" is what `methods.default_scorer` says, as without a budget.
- Rounds and steps that a setting names itself, as the paper's 100 × 20, are cut in proportion.
- One-shot methods take fewer steps; Smooth IG keeps its noisy copies as long as each has a step.

Nothing grows, unless a comparison at equal price asks for it: then defaults are stretched to the
budget in the same way, and settings that are named stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isqrt
from typing import Any

from ..core.scorers import IntegratedGradients, PlannedScorer, Smooth
from . import methods

PHOTO = (methods.COLOURS, 224, 224)
"""What networks for photos take, where nothing else is known."""


def within(
    search: Mapping[str, Any], budget: int, *, shape: Sequence[int] = PHOTO, stretch: bool = False
) -> dict[str, Any]:
    """These arguments of `gp.explain`, a method by name among them, for at most `budget` gradients
    where they are meant for pictures (channels, height, width).

    stretch: for about as many as that, also where the defaults take fewer. What pays no gradient,
    or has room already, stays as it is.
    """
    usual = _usual(search, shape)
    if usual is methods.STEADY:  # By its own name, so that it keeps its views with other steps.
        same = {**search, "method": "steady-pig"}
        cut = within(same, budget, shape=shape, stretch=stretch)
        return dict(search) if cut == same else cut
    scorer, greedy = methods.resolve(search["method"], steps=search.get("steps"))
    scorer = usual or scorer
    cost = scorer.cost() if isinstance(scorer, PlannedScorer) else 1
    if cost == 0:
        return dict(search)
    named = "rounds" in search or "steps" in search
    stretch = stretch and not named
    if greedy is not None:
        wanted = search.get("rounds") or greedy.rounds or methods.default_rounds(scorer)
        rounds, steps = (scaled if named else fewer_rounds)(wanted, cost, budget)
        if stretch:
            rounds = max(rounds, budget // cost)
        if (rounds, steps) == (wanted, cost) and not stretch:
            return dict(search)
        return {**search, "rounds": rounds, **({} if steps == cost else {"steps": steps})}
    if isinstance(scorer, Smooth) and isinstance(scorer.scorer, IntegratedGradients):
        return _smooth(search, scorer, scorer.scorer, budget, stretch)
    # The rest pays one gradient a step, or has no steps at all and costs one.
    if not hasattr(scorer, "steps") or (cost <= budget and not stretch):
        return dict(search)
    return {**search, "steps": budget}


def climbing(
    objective: str, search: Mapping[str, Any], budget: int, *, shape: Sequence[int] = PHOTO,
    stretch: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """`within` for arguments to which the caller adds the objective."""
    cut = within({**search, "objective": objective}, budget, shape=shape, stretch=stretch)
    return {name: value for name, value in cut.items() if name != "objective"}


def _usual(search: Mapping[str, Any], shape: Sequence[int]) -> PlannedScorer | None:
    """What "greedy-pig" is for a picture, where nothing else is asked of it."""
    if search["method"] != "greedy-pig" or {"steps", "rule"} & set(search):
        return None
    return methods.default_scorer(search.get("objective", "softmax"), shape)


def scaled(rounds: int, steps: int, budget: int) -> tuple[int, int]:
    """(rounds, steps) cut to a budget of gradients in about the same proportion."""
    if rounds * steps <= budget:
        return rounds, steps
    fewer = max(1, min(rounds, budget, isqrt(budget * rounds // steps)))
    return fewer, max(1, min(steps, budget // fewer))


def fewer_rounds(rounds: int, steps: int, budget: int) -> tuple[int, int]:
    """(rounds, steps) cut to a budget by rounds alone, while they are no fewer than the steps."""
    fewer = min(rounds, max(budget // steps, isqrt(budget)))
    return fewer, min(steps, budget // fewer)


def _smooth(
    search: Mapping[str, Any], scorer: Smooth, inner: IntegratedGradients, budget: int,
    stretch: bool,
) -> dict[str, Any]:  # fmt: skip
    samples = min(scorer.samples, budget)
    steps = budget // samples if stretch else min(inner.steps, budget // samples)
    if (samples, steps) == (scorer.samples, inner.steps):
        return dict(search)
    made = replace(scorer, scorer=replace(inner, steps=steps), samples=samples)
    return {k: v for k, v in search.items() if k != "steps"} | {"method": made}
