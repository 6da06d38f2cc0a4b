"""One text and its question, ranked by many methods, each with what it costs.

Costs are forward-equivalents: a value is one forward of the model, a gradient three. Values and
gradients that two methods share are computed once, and counted for both. A method pays once for
each set that it asks for.
"""

from __future__ import annotations

from functools import cache
from time import process_time
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.stopping import Stop
from greedypig.core.two_sided import with_sides
from greedypig.text import models
from greedypig.text.api import TextProblem
from greedypig.text.gates import TextObjective
from greedypig.text.models import TextModel
from greedypig.text.prompt import make_prompt

from . import rivals  # noqa: F401  # Makes their names known.

GRADIENT = 3
"""Forwards that one gradient counts."""


@cache
def load(name: str) -> TextModel:
    """A model of ours, read once. Products of matrices take the processor's fastest way."""
    torch.set_float32_matmul_precision("medium")
    return models.load(name)


class Counted(TextObjective):
    """An objective that counts forward-equivalents and computes no gradient twice."""

    cost: list[int]
    slopes: dict[bytes, Tensor]
    asked: set[bytes]
    """Masks whose value the method under way has asked for; each is counted once."""

    @classmethod
    def of(cls, objective: TextObjective) -> Counted:
        """The same objective, counted from now on."""
        other = object.__new__(cls)
        other.__dict__.update(objective.__dict__, cost=[0], slopes={}, asked=set())
        return other

    def values(self, masks: Tensor, /) -> Tensor:
        """(1, s, n) masks → (1, s)."""
        keys = {_key(mask) for mask in masks[0]} - self.asked
        self.cost[0] += len(keys)
        self.asked |= keys
        return super().values(masks)

    def gradient(self, masks: Tensor, weights: Tensor, /, *, step: int = 0) -> Tensor:
        """(1, s, n) masks, (s,) weights → (1, n): the gradient at each mask is computed once."""
        self.cost[0] += GRADIENT * masks.shape[1]
        total = torch.zeros_like(self.end[0])
        for mask, weight in zip(masks.unbind(1), weights, strict=True):
            if (key := _key(mask)) in self.slopes:
                self.count_gradients(1)  # So that a budget is what it is without the others.
            else:
                one = torch.ones_like(weights[:1])
                self.slopes[key] = super().gradient(mask.unsqueeze(1), one, step=step)
            total = total + weight * self.slopes[key]
        return total

    def attention(self) -> Tensor:
        """(n,): as `TextObjective.attention`; one forward."""
        self.cost[0] += 1
        return super().attention()


def _key(mask: Tensor) -> bytes:
    return mask.to(torch.float32).numpy().tobytes()


class Question:
    """A text with what is asked about it; one problem for every way to be absent."""

    def __init__(self, model: TextModel, answer: str | None, features: str, **text: Any) -> None:
        self.model, self.answer = model, answer
        self.prompt = make_prompt(
            model, text.get("text"), text.get("context"), text.get("question"), features
        )
        self._problems: dict[str, TextProblem] = {}

    def problem(self, absent: str = "masked") -> TextProblem:
        """The problem in which features are absent in this way."""
        if absent not in self._problems:
            problem = TextProblem(self.model, self.prompt, self.answer, None, None, absent)
            problem.objective = Counted.of(problem.objective)
            self._problems[absent] = problem
        return self._problems[absent]

    @property
    def spent(self) -> int:
        """Forward-equivalents so far, all methods and checks together."""
        counted: list[Any] = [problem.objective for problem in self._problems.values()]
        return sum(each.cost[0] for each in counted)

    def run(
        self,
        method: Any,
        *,
        absent: str = "masked",
        k: int | None = None,
        stop: Stop | None = None,
        seed: int = 0,
        two_sided: bool = False,
    ) -> tuple[gp.Attribution, int, float]:
        """The method's result, its cost in forward-equivalents, and its seconds on the processor
        (less than they were where points were known from another method)."""
        problem = self.problem(absent)
        counted = problem.objective
        assert isinstance(counted, Counted)
        counted.asked.clear()
        before, began = counted.cost[0], process_time()
        features = Elements(counted.n, problem.prompt.names)
        objective = with_sides(counted, two_sided)
        run = gp.rounds(objective, method, features=features, k=k, stop=stop, seed=seed)
        for _ in run:
            pass
        return run.results(measure=False)[0], counted.cost[0] - before, process_time() - began
