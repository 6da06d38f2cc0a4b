"""Steady PIG: greedy rounds on changing views of a photo, the default method for photos.

Greedy rounds also select what the network rewards by accident: single values that help at one
position and one scale. Such masks win the network's own curve and mean nothing to another network.
So a round works in two ways, and g(1_S) decides which. As long as the selected features give a
lower probability than the photo, all gradients are taken on the photo as it is, to reach the
prediction. Once they give it, gradients are taken on crops enlarged to full size, with a little
noise, so that the next features support the prediction in other views too (reproduction/study).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.lockstep import Plan, Request, ask, together
from ..core.schedule import check_count, whole
from ..core.scorers import PlannedScorer, Scored, Situation, seeded_normal, seeded_uniform
from .pictures import picture_shape

FIRST = 0.1
"""The share of the elements that should be enough to reach the prediction. Until it is selected the
neighbourhood counts, and points on the path to a prediction that is not reached move toward 1_S."""
NEAR = 1 / 14
"""The standard deviation of a neighbourhood, as a share of the picture's shorter side."""
ALIKE = 1 / 4
"""A network bears views if its answer to the mirrored picture shares as much with its answer to the
picture. Of the study's tuning photos none came below 0.56, of grids of four photos none below 0.42;
what was never shown a mirror image often shares next to nothing."""
TINY = 1e-30


@dataclass(frozen=True)
class SteadyGradients(PlannedScorer):
    """The mean over `steps` views of gradient · way, at points between 1_S and 1.

    scores_i = way_i / steps · Σ_j weight_j · [viewᵀ_j ∇g(view_j(1_S + level_j · 1_S̄ + noise_j))]_i

    level_j = (t_j + [u < t_j]) / 2 for every element, u uniform and t_j in the j-th part of [0, 1].
    Let p = g(1_S). With p < g(1) all views are the picture as it is, and t_j shrinks with the share
    selected, to a tenth once 1/10 is selected; where g is a probability, weight_j = mean g / g at
    point j, which makes it the gradient of log g, and else 1. With p ≥ g(1), view_j enlarges a
    crop of `crop` to 1 of the picture's area, mirrored or not, and noise_j ~ N(0, 1) · noise ·
    (range of the input). Crops wrap around the edges, so every place is seen equally often. The
    first view stays the picture as it is, unless g is a probability and p ≥ (1 + g(1)) / 2: then
    more of the same would only push p higher above the photo's.
    kinks > 0 takes the gradient with ramps of that width in place of ReLU's steps (`soft_kinks`).
    For single elements, until 1/10 of them is selected, `place` · (mean score of the neighbourhood)
    is added, scaled to the root mean square of the scores.
    """

    steps: int = 3
    noise: float = 0.05
    crop: float = 0.15
    kinks: float = 0.6
    place: float = 1.0
    name = "steady-gradients"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps))
        check_count("steps", self.steps)
        for name, low, high in (("noise", 0, 1), ("crop", 0.01, 1), ("kinks", 0, 10),
                                ("place", 0, 10)):  # fmt: skip
            number = getattr(self, name)
            if not (isinstance(number, int | float) and low <= number <= high):
                raise InvalidInput(f"Expected {name} from {low} to {high} (got {number!r}).")

    def plan(self, at: Situation) -> Plan[Scored]:
        """The scores at 1_S: one gradient for every view, no more of them at once than a batch."""
        shape = picture_shape(at.objective.layout, "method='steady-pig'")
        limit = at.objective.oracle.batch_size
        value, full = yield from self._values(at)
        plain = self._plain_views(at, value, full)
        relative = at.objective.probability and bool(value < full)
        share = float(at.mask.double().mean())
        stretch = max(0.1, 1 - share / FIRST) if value < full else 1.0
        total, mean = torch.zeros_like(at.objective.end), value.new_zeros(())
        for lo in range(0, self.steps, limit):
            steps = range(lo, min(lo + limit, self.steps))
            plans = (self._seen(at, shape, step, step >= plain, stretch) for step in steps)
            for gradient, found in (yield from together(plans, limit)):
                total += gradient / found.clamp_min(TINY) if relative else gradient
                mean += found / self.steps
        total *= mean if relative else 1
        elements = at.features.kind == "elements"
        if self.place and elements and share < FIRST:
            total += self.place * around(total, at.mask, shape)
        return Scored(elements=total, value=value)

    def _values(self, at: Situation) -> Plan[tuple[Tensor, Tensor]]:
        """g(1_S) and g(1)."""
        problem = at.objective
        masks = [at.mask] if problem.ends is not None else [at.mask, torch.ones_like(at.mask)]
        points = problem.place(torch.stack(masks))
        answer = yield from ask(Request(problem, len(points), lambda lo, hi: points[lo:hi]))
        value = answer.values[0]
        if problem.ends is None:
            return value, answer.values[1]
        return value, value.new_tensor(problem.ends[1])

    def _plain_views(self, at: Situation, value: Tensor, full: Tensor) -> int:
        """How many views, the first ones, are the picture as it is."""
        if value < full:
            return self.steps
        return 0 if at.objective.probability and value >= (1 + full) / 2 else 1

    def _seen(
        self, at: Situation, shape: tuple[int, int, int], step: int, cropped: bool, stretch: float
    ) -> Plan[tuple[Tensor, Tensor]]:
        """What one view adds to the scores, and its g; stretch: how far t reaches, at most 1."""
        problem = at.objective
        begin, end = problem.place(at.mask), problem.end
        chance = seeded_uniform(5 + end.numel(), at.seed, at.round, step)
        t = stretch * (step + float(chance[0])) / self.steps
        level = _level(t, chance[5:]).to(end)
        point, back = torch.lerp(begin, end, level), None
        if cropped and self.noise:
            point += self.noise * problem.span * seeded_normal(end, at.seed, at.round, step, 1)
        if cropped and self.crop < 1:
            view = View.drawn(shape, self.crop, chance[1:5].tolist(), end)
            point, back = view(point), view.back
        asked = problem.softened(self.kinks) if self.kinks else problem
        weight = torch.full((1,), 1 / self.steps, dtype=end.dtype, device=end.device)
        row = point.unsqueeze(0)
        answer = yield from ask(Request(asked, 1, lambda lo, hi: row, weight, end - begin, back))
        return answer.gradient, answer.values[0]

    def cost(self) -> int:
        """One gradient for every view."""
        return self.steps

    def without_views(self) -> SteadyGradients:
        """The same for a network that was not trained to bear views: the picture as it is, and no
        place counts beside the elements themselves."""
        return replace(self, noise=0.0, crop=1.0, place=0.0)


def bears_views(answer: Callable[[Tensor], Tensor], x: Tensor, shape: tuple[int, int, int]) -> bool:
    """Does a network answer to a picture x (n,) that is mirrored much as to x itself?

    answer: (m, n) → (m, classes) logits. What the answers share is Σ_c min(f_c(x), f_c(mirrored)).
    """
    mirrored = x.view(shape).flip(2).reshape(-1)
    shares = torch.softmax(answer(torch.stack([x, mirrored])).double(), 1)
    return float(torch.minimum(shares[0], shares[1]).sum()) >= ALIKE


def _level(t: float, chance: Tensor) -> Tensor:
    return ((chance < t).double() + t) / 2


def around(scores: Tensor, mask: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(n,) how each element's place scores: the mean of what is near and not selected, over all
    colours, scaled to the root mean square of the scores."""
    near = NEAR * min(shape[1:])
    rows, columns = (closeness(length, near).to(scores) for length in shape[1:])
    free = (1 - mask).to(scores)
    sums, counts = (rows @ each.view(shape).sum(0) @ columns.T for each in (scores * free, free))
    places = (sums / counts.clamp_min(TINY)).expand(shape).reshape(-1)
    lengths = [torch.linalg.vector_norm(each) for each in (scores, places)]
    placed: Tensor = places / lengths[1].clamp_min(TINY) * lengths[0]
    return placed


def closeness(length: int, deviation: float) -> Tensor:
    """(length, length) float64: how near two places of a line are, from 1 down to 0."""
    line = torch.arange(length, dtype=torch.float64)
    return torch.exp(-0.5 * ((line.unsqueeze(1) - line) / deviation) ** 2)


class View(NamedTuple):
    """A crop enlarged to the whole picture: bilinear, so seen = rows · picture · columnsᵀ."""

    shape: tuple[int, int, int]
    rows: Tensor
    columns: Tensor

    @staticmethod
    def drawn(shape: tuple[int, int, int], least: float, chance: list[float], like: Tensor) -> View:
        """From four uniform numbers: area (from `least` of the picture to all), place, mirror."""
        side = sqrt(least + (1 - least) * chance[0])
        rows = interpolation(shape[1], side, chance[1])
        columns = interpolation(shape[2], side, chance[2])
        if chance[3] < 0.5:
            columns = columns.flip(0)
        return View(shape, rows.to(like), columns.to(like))

    def __call__(self, picture: Tensor) -> Tensor:
        """(n,) → (n,): what is seen."""
        return (self.rows @ picture.view(self.shape) @ self.columns.T).reshape(-1)

    def back(self, gradient: Tensor) -> Tensor:
        """(n,) → (n,): from a gradient with respect to what is seen to the picture's."""
        return (self.rows.T @ gradient.view(self.shape) @ self.columns).reshape(-1)


def interpolation(length: int, share: float, place: float) -> Tensor:
    """(length, length) float64, rows summing to 1: a stretch of `share` of the line, beginning at
    `place` of it and wrapping around its end, drawn out to the whole line."""
    at = place * length + (torch.arange(length, dtype=torch.float64) + 0.5) * share - 0.5
    low = at.floor()
    weights = torch.zeros(length, length, dtype=torch.float64)
    for index, weight in ((low, 1 - (at - low)), (low + 1, at - low)):
        weights.scatter_add_(1, (index.long() % length).unsqueeze(1), weight.unsqueeze(1))
    return weights
