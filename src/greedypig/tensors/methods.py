"""Which method `method=None` takes: one table, for every kind of data.

- Photos (3 channels, 128 pixels or more a side), a probability: `SteadyPIG()`. It convinces a
  second network and points at the object more often (reproduction/study).
- Pictures, log-likelihood: 100 rounds of one gradient. They come far nearer to the model's output
  than few fine integrals.
- Edges of a graph: 33 rounds of 3 Gauss–Radau nodes. The gradient is steep near t = 0.
- Edges around one node: one edge a round, 20 Gauss–Legendre nodes. Few edges decide, and 3 nodes
  do not resolve their path.
- Edges in PyG's Explainer: the same path, 5 rounds that rank all edges, for 100 gradients; to take
  k of them, k rounds of which there are at most 33.
- Rows in Captum's interface: 10 rounds of 5 Gauss–Legendre nodes, Captum's own rule.
- Columns of a table: one column a round, 5 midpoints. There are few features, and copies must not
  be taken together.
- Features of a text: 6 measured rounds of 4 nodes that crowd at 0, where attention is steep. Their
  weights are completed, so that scores sum to the rise of G. A counterfactual, which removes the
  text, has nodes that crowd at both ends; embeddings, which are not steep, take midpoints. For a
  two-sided objective, where both ends are steep, 8 nodes that crowd at both. Texts that are really
  deleted have no gradients: greedy by marginal gains.
- Anything else: `GreedyPIG()`, 20 geometric rounds of 5 midpoints. Algorithm 1 for 100 gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from math import isqrt
from typing import Any

from ..core.errors import InvalidType, did_you_mean
from ..core.layout import Layout
from ..core.methods import (
    METHODS,
    Greedy,
    GreedyPIG,
    InRounds,
    SequentialGradient,
    TwoSidedPIG,
    scorer_of,
)
from ..core.scorers import IG, MarginalGains, SmoothIG, cost_of
from ..core.stopping import Stop
from .pictures import is_picture
from .steady import SteadyPIG

COLOURS, LEAST_SIDE = 3, 128
"""A photo has so many channels and at least so many pixels a side: nothing else was studied, and
a crop of less shows little."""
FEW_STEPS = 5
"""Gradients of a round that a budget leaves as they are: more are cut in proportion to rounds."""
FOR_EDGES = GreedyPIG(rounds=33, steps=3, rule="gauss-radau", ratio=20.0)
ONCE_FOR_EDGES = IG(100, "gauss-legendre")
FOR_NODES = GreedyPIG(per_round=1, steps=20, rule="gauss-legendre")
FOR_MESSAGES = GreedyPIG(rounds=5, steps=20, rule="gauss-legendre", ratio=20.0)
FOR_SOME_MESSAGES = replace(FOR_MESSAGES, rounds=33)
FOR_CAPTUM = GreedyPIG(rounds=10, steps=5, rule="gauss-legendre")
FOR_TEXTS = GreedyPIG(rounds=6, steps=4, rule="cubic", schedule="measured", complete=True)
FOR_BOTH_SIDES_OF_TEXTS = replace(FOR_TEXTS, steps=8, rule="smoothstep")
FOR_COLUMNS = GreedyPIG(per_round=1, steps=5, schedule="equal")


def choose(layout: Layout, objective: str) -> InRounds:
    """What method=None takes for an input of this layout and an objective of this name."""
    if is_picture(layout) and objective == "log-likelihood":
        return SequentialGradient(rounds=100)
    if is_photo(layout) and objective == "softmax":
        return SteadyPIG()
    return GreedyPIG()


def choose_for_text(*, two_sided: bool, absent: str, removing: bool) -> GreedyPIG | MarginalGains:
    """What method=None takes for a text; the arguments are those of `pig_for_text`."""
    if absent == "deleted":
        return MarginalGains()
    return pig_for_text(two_sided=two_sided, absent=absent, removing=removing)


def pig_for_text(*, two_sided: bool, absent: str, removing: bool) -> GreedyPIG:
    """Greedy PIG for a text whose features are absent in this way; removing: does the path lead
    away from the text, as a counterfactual's?"""
    method = FOR_BOTH_SIDES_OF_TEXTS if two_sided else FOR_TEXTS
    if absent.endswith("embedding"):
        return replace(method, rule="midpoint")
    return replace(method, rule="smoothstep") if removing else method


def is_photo(layout: Layout) -> bool:
    """Is the input a picture of the kind that the default for photos was studied on?"""
    shape = layout.shapes[0]
    return is_picture(layout) and shape[0] == COLOURS and min(shape[1:]) >= LEAST_SIDE


def refuse_knobs(knobs: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Refuse arguments that a function does not have: those of methods belong into the method."""
    for name, value in knobs.items():
        owners = [m for m in METHODS.values() if name in getattr(m, "__dataclass_fields__", ())]
        rule = "gradients" if name == "budget" else name
        advice = did_you_mean(name, list(signature(function).parameters))
        if name == "n_steps":  # Captum's.
            advice = f" Try method=gp.IG({value!r})."
        elif owners:
            advice = f" Try method=gp.{owners[0].__name__}({name}={value!r})."
        elif rule in Stop.__dataclass_fields__:
            advice = f" Try stop=gp.Stop({rule}={value!r})."
        raise InvalidType(
            f"Expected an argument of gp.{function.__name__} (got {name}={value!r}).{advice}"
        )


def within(method: Any, gradients: int, *, stretch: bool = False) -> Any:
    """The method for at most so many gradients.

    Greedy methods with more than five steps a round take fewer rounds and steps in proportion. Then
    they take fewer rounds as long as there are as many as steps, then fewer of both. One-shot
    methods take fewer steps. stretch: about as many as that, also where the method takes fewer, for
    a comparison at equal cost.
    """
    cost = cost_of(scorer_of(method))
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
    wanted = method.most_rounds
    steps = min(cost, max(FEW_STEPS, isqrt(gradients * cost // wanted)))
    rounds = min(wanted, max(gradients // steps, isqrt(gradients)))
    steps = min(steps, gradients // rounds)
    if stretch:
        rounds = max(rounds, gradients // cost)
    knob: dict[str, Any] = {name: steps for name in ("steps", "views") if hasattr(method, name)}
    return replace(method, rounds=rounds, **(knob if steps < cost else {}))


__all__ = [
    "Greedy",
    "GreedyPIG",
    "SequentialGradient",
    "TwoSidedPIG",
    "choose",
    "choose_for_text",
    "is_photo",
    "pig_for_text",
    "refuse_knobs",
    "within",
]
