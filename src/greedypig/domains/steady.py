"""Scores that hold when the network looks a little differently: the default for photos.

Greedy rounds climb whatever the network rewards, also what it rewards by accident: a speck that
works on one grid of pixels, at one size, in one neighbourhood. Such masks win the network's own
curve and mean nothing to another network. So every point of the integral is met under other
circumstances, of the kinds that networks are trained to bear: a little noise, a random part of the
faint rest at full strength, and after the first picks a crop enlarged to the picture's full size.
What scores on all of these is in the photo; and it lies in a place: a lone element that helps
amid others that speak against the class is an accident too (reproduction/study).
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
from .image import picture_shape

EARLY = 0.05
"""Up to this share of the elements the network's own answer is made; what follows makes it hold."""
PLACED = 0.1
"""Up to this share of the elements places count: later picks fill in what the places lack."""
NEAR = 1 / 14
"""The standard deviation of a neighbourhood, as a share of the picture's shorter side."""
ALIKE = 1 / 4
"""A network bears views if its answer to the mirrored picture shares as much with its answer to the
picture. Of the study's tuning photos none came below 0.56, of grids of four photos none below 0.42;
what was never shown a mirror image often shares next to nothing."""
TINY = 1e-30


@dataclass(frozen=True)
class SteadyGradients(PlannedScorer):
    """The mean over `steps` views of gradient · way, at points between 1_S and 1; then the place's.

    scores_i = way_i / steps · Σ_j [viewᵀ_j ∇g(view_j(1_S + level_j · 1_S̄ + noise_j))]_i

    level_j = (t_j + [u < t_j]) / 2 for every element, u uniform and t_j in the j-th part of [0, 1].
    Once 1/20 of the elements is selected, view_j enlarges a crop of `crop` to 1 of the picture's
    area, mirrored or not, and noise_j ~ N(0, 1) · noise · (range of the input). The first picks are
    tender: for them the picture is seen as it is. With crop = 1 it always is.
    kinks > 0 takes the gradient with ramps of that width in place of ReLU's steps (`soft_kinks`).
    Until 1/10 is selected, `place` · (mean score of what is near and not selected, over all
    colours) is added, scaled to the root mean square of the scores.
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
        total = torch.zeros_like(at.objective.end)
        for lo in range(0, self.steps, limit):
            steps = range(lo, min(lo + limit, self.steps))
            plans = (self._seen(at, shape, step) for step in steps)
            for part in (yield from together(plans, limit)):
                total += part
        if self.place and float(at.mask.double().mean()) < PLACED:
            total += self.place * around(total, at.mask, shape)
        return Scored(elements=total)

    def _seen(self, at: Situation, shape: tuple[int, int, int], step: int) -> Plan[Tensor]:
        """What one view adds to the scores."""
        problem = at.objective
        begin, end = problem.place(at.mask), problem.end
        chance = seeded_uniform(5 + end.numel(), at.seed, at.round, step)
        level = _level((step + float(chance[0])) / self.steps, chance[5:]).to(end)
        point, back = torch.lerp(begin, end, level), None
        if float(at.mask.double().mean()) >= EARLY:
            if self.noise:
                spread = self.noise * problem.span
                point += spread * seeded_normal(end, at.seed, at.round, step, 1)
            if self.crop < 1:
                view = View.drawn(shape, self.crop, chance[1:5].tolist(), end)
                point, back = view(point), view.back
        asked = problem.softened(self.kinks) if self.kinks else problem
        weight = torch.full((1,), 1 / self.steps, dtype=end.dtype, device=end.device)
        row = point.unsqueeze(0)
        answer = yield from ask(Request(asked, 1, lambda lo, hi: row, weight, end - begin, back))
        return answer.gradient

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
    `place` of what it leaves free, drawn out to the whole line."""
    first = (1 - share) * place * length
    at = first + (torch.arange(length, dtype=torch.float64) + 0.5) * share - 0.5
    at = at.clamp(0, length - 1)
    low = at.floor().clamp(max=max(length - 2, 0))
    weights = torch.zeros(length, length, dtype=torch.float64)
    index = low.long().unsqueeze(1)
    weights.scatter_(1, index, (1 - (at - low)).unsqueeze(1))
    if length > 1:
        weights.scatter_(1, index + 1, (at - low).unsqueeze(1))
    return weights
