"""Necessity beside sufficiency: G(S) = g(S) + g(all) − g(all without S).

The first term rewards features that give the output alone, the rest features without which it is
lost. For a probability g this is p(x_S) + p(x) − p(x without S). Of two features that say the same
either one is sufficient, so g takes one of them; neither is necessary while the other is there, so
the two-sided objective takes both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType
from .objective import Objective, OwnGradient, SetFunction, SetFunctionObjective


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

    objective: object = None

    def __post_init__(self) -> None:
        if isinstance(self.objective, TwoSided):
            raise InvalidInput("Expected an objective of one side (got a two-sided one).")


two_sided = TwoSided


def one_side(objective: Any) -> tuple[Any, bool]:
    """The objective that g is, and whether both sides of it are asked for."""
    if isinstance(objective, TwoSided):
        return objective.objective, True
    return objective, False


def title(name: str, both: bool) -> str:
    """The name under which results record an objective."""
    return f"two-sided {name}" if both else name


class TwoSidedObjective(OwnGradient):
    """values(m) = g(m) + g(1) − g(1 − m); gradient(m) = ∇g(m) + ∇g(1 − m), for an objective g."""

    sides = 2

    def __init__(self, inner: Objective) -> None:
        super().__init__(
            inner.function, inner.start, inner.end, layout=inner.layout, labels=inner.labels
        )
        self.inner = inner
        self._shared = inner._shared  # Costs are counted once, and batches are g's.

    @property
    def plain(self) -> Objective:
        """The objective g."""
        return self.inner.plain

    @property
    def removes(self) -> bool:  # type: ignore[override]
        """Do the lines lead away from the input, as a counterfactual's do?"""
        return self.inner.removes

    def for_round(self, number: int) -> Objective:
        """The objective of one round, counted from 0."""
        return TwoSidedObjective(self.inner.for_round(number))

    def toward(self, end: Tensor) -> TwoSidedObjective:
        """A copy whose lines lead to `end`."""
        return TwoSidedObjective(self.inner.toward(end))

    def repeated(self, times: int) -> TwoSidedObjective:
        """A copy of b · times problems."""
        return TwoSidedObjective(self.inner.repeated(times))

    def computed_by(self, function: Callable[[Tensor, Tensor], Tensor]) -> TwoSidedObjective:
        """A copy with another function (points, problems) → values of g."""
        return TwoSidedObjective(self.inner.computed_by(function))

    def values(self, masks: Tensor, /) -> Tensor:
        """(b, s, n) masks → (b, s)."""
        masks, count = masks.to(self.end), masks.shape[1]
        every = torch.cat([masks, 1 - masks, torch.ones_like(masks[:, :1])], 1)
        values = self.inner.values(every)
        return values[:, :count] + values[:, -1:] - values[:, count:-1]

    def gradient(self, masks: Tensor, weights: Tensor, /, *, step: int = 0) -> Tensor:
        """(b, s, n) masks, (s,) weights → (b, n)."""
        masks = masks.to(self.end)
        present = self.inner.gradient(masks, weights, step=step)
        return present + self.inner.gradient(1 - masks, weights, step=step)

    def point_gradients(self, points: Tensor, /) -> Tensor:
        """Refused: points off the line from start to end have no other side."""
        raise InvalidInput(
            "Expected a method that only switches features on and off for a two-sided objective "
            "(got one that changes the input otherwise). Try gp.GreedyPIG() or gp.IG()."
        )


def with_sides(objective: Objective, both: bool) -> Objective:
    """The objective, two-sided if both sides are asked for."""
    return TwoSidedObjective(objective) if both else objective


def as_objective(candidate: Any) -> Objective:
    """An `Objective`, a set function with a gradient of its own, or either one two-sided."""
    if isinstance(candidate, Objective):
        return candidate
    if isinstance(candidate, TwoSided):
        return TwoSidedObjective(as_objective(candidate.objective))
    if isinstance(candidate, SetFunction):
        return SetFunctionObjective(candidate)
    raise InvalidType(
        f"Expected an objective (got {type(candidate).__name__}). Try gp.objective(g, n)."
    )
