"""Necessity beside sufficiency: G(S) = g(S) + g(all) − g(all without S).

The first term rewards features that give the output alone, the rest features without which it is
lost. For a probability g this is p(x_S) + p(x) − p(x without S). Of two features that say the same
either one is sufficient, so g takes one of them; neither is necessary while the other is there, so
the two-sided objective takes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidInput
from .objective import Objective, OwnGradient, as_objective


@dataclass(frozen=True)
class TwoSided:
    """Asks for g(S) + g(all) − g(all without S): necessity beside sufficiency.

    Wherever an objective is given: `gp.explain(model, x, objective=gp.two_sided("softmax"))`, and
    with `gp.explain_photo`, `gp.explain_edges`, `gp.explain_node` and `gp.explain_text`; as
    `loss=gp.two_sided("cross-entropy")` in `gp.select_features`; and as
    `gp.maximize(gp.two_sided(gp.objective(g, n)))` for set functions. Every point of a path costs
    two gradients.

    objective: what g is, as without `two_sided`; None for the default.
    """

    objective: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.objective, TwoSided):
            raise InvalidInput("Expected an objective of one side (got a two-sided one).")

    def as_objective(self) -> Objective:
        """Of a set function."""
        objective: Objective = both_sides(as_objective(self.objective))
        return objective


two_sided = TwoSided


def one_side(objective: Any) -> tuple[Any, bool]:
    """The objective that g is, and whether both sides of it are asked for."""
    if isinstance(objective, TwoSided):
        return objective.objective, True
    return objective, False


def title(name: str, both: bool) -> str:
    """How results record an objective."""
    return f"two-sided {name}" if both else name


def both_sides(objective: Objective) -> Any:
    """The two-sided objective of an objective of any kind; of the same kind otherwise."""
    kind = type(objective)
    other: Any = object.__new__(type(f"TwoSided{kind.__name__}", (BothSides, kind), {}))
    other.__dict__.update(objective.__dict__)
    return other


class BothSides(Objective):
    """values(m) = g(m) + g(1) − g(1 − m); gradient(m) = ∇g(m) + ∇g(1 − m).

    Mixed into the class of g, whose `values` and `gradient` are the next ones: `changed`, `toward`,
    `seen` and `repeated` are g's own, and every gradient that g takes is counted.
    """

    sides = 2

    def values(self, masks: Tensor, /) -> Tensor:
        """(b, s, n) masks → (b, s)."""
        masks, count = masks.to(self.end), masks.shape[1]
        every = torch.cat([masks, 1 - masks, torch.ones_like(masks[:, :1])], 1)
        values = super().values(every)
        return values[:, :count] + values[:, -1:] - values[:, count:-1]

    def gradient(self, masks: Tensor, weights: Tensor, /) -> Tensor:
        """(b, s, n) masks, (s,) weights → (b, n)."""
        masks = masks.to(self.end)
        return super().gradient(masks, weights) + super().gradient(1 - masks, weights)

    values_and_gradients = OwnGradient.values_and_gradients

    def point_gradients(self, points: Tensor, /) -> Tensor:
        """Refused: points off the line from start to end have no other side."""
        raise InvalidInput(
            "Expected a method that only switches features on and off for a two-sided objective "
            "(got one that changes the input otherwise). Try gp.GreedyPIG() or gp.IG()."
        )
