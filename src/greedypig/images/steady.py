"""Steady PIG: greedy rounds on changing views of a photo, what is chosen for photos by default.

Greedy rounds also select what the network rewards by accident: single values that help at one
position and one scale. Such masks win the network's own curve and mean nothing to another network.
So a round works in two ways, and g(1_S) decides which. As long as the selected features give a
lower probability than the photo, all gradients are taken on the photo as it is, to reach the
prediction. Once they give it, gradients are taken on crops enlarged to full size, with a little
noise, so that the next features support the prediction in other views too (reproduction/study).

Where the network is unsure of the photo, some features alone make it far more certain than the
whole photo does. There, once a tenth is selected and the photo's probability is reached, each round
tries a few sets of picks and takes one that leads to about halfway between this probability and 1,
not below it. The first tenth supports the class alone: a picture may show several objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from ..core.errors import Argument
from ..core.features import Elements, Features
from ..core.methods import InRounds
from ..core.numbers import check_knobs
from ..core.objective import Objective
from ..core.rounds import Round
from ..core.scorers import OneShot
from ..network.fold import convolutional
from ..tensors.features import picture_shape
from ..tensors.inputs import ModelObjective
from .soft_relu import SoftReLU

FIRST = 0.1
"""The share of the values that should be enough to reach the prediction. Until it is selected the
neighbourhood counts, and points on the path to a prediction that is not reached move toward 1_S."""
NEAR = 1 / 14
"""The standard deviation of a neighbourhood, as a share of the picture's shorter side."""
ALIKE = 1 / 4
"""Views are used where the outputs for a photo and for its mirror image overlap by as much. Of the
study's tuning photos none came below 0.56, of grids of four photos none below 0.42; networks that
were never shown a mirror image often have next to no overlap."""
UNSURE = 2 / 3
"""The network is unsure of a photo whose probability is lower. Without the compromises, the loss
curves (LIC) that lay above a random order's were of photos with probabilities up to 0.59."""
COMPROMISES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the match with halfway, against the probability, that a round tries."""
TINY = 1e-30


@dataclass(frozen=True, kw_only=True)
class SteadyPIG(InRounds):
    """Greedy rounds of `views` gradients on changing views of a photo.

    scores_i = way_i / views · Σ_j weight_j · [viewᵀ_j ∇g(view_j(1_S + level_j · 1_S̄ + noise_j))]_i

    level_j = (t_j + [u < t_j]) / 2 for every value, u uniform and t_j in the j-th part of [0, 1].
    Let p = g(1_S). With p < g(1) all views are the picture as it is, and t_j shrinks with the share
    selected, to a tenth once 1/10 is selected; where g is a probability, weight_j = mean g / g at
    point j, which makes it the gradient of log g, and else 1. With p ≥ g(1), view_j enlarges a
    crop of `crop` to 1 of the picture's area, mirrored or not, and noise_j ~ N(0, 1) · noise ·
    (range of the input). Crops wrap around the edges, so every place is seen equally often. The
    first view stays the picture as it is, unless g is a probability and p ≥ (1 + g(1)) / 2: then
    more of the same would only push p higher above the photo's.
    Where the network is unsure (g(1) < 2/3) and crops are used: once 1/10 of the values is selected
    and p ≥ g(1), only the last view is scored by g. The others are scored by their match with
    halfway, Σ_c q_c · log f_c for q = (f(x) + class) / 2. Of five mixtures of the two scores, the
    round takes the one whose picks lead to a probability of at least g(1) and nearest to
    (1 + g(1)) / 2; if none does, g's own.
    ramp > 0 takes the gradient with ramps of that width in place of ReLU's steps (`soft_relu`).
    Until 1/10 of the values is selected, `place` · (mean score of the neighbourhood)
    is added, scaled to the root mean square of the scores.
    """

    rounds: int | None = 33
    ratio: float = 100.0
    views: int = 3
    noise: float = 0.05
    crop: float = 0.15
    ramp: float = 0.6
    place: float = 1.0
    name = "steady-pig"
    fits_each_input = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_knobs(self, "views", noise=(0, 1), crop=(0.01, 1), ramp=(0, 10), place=(0, 10))

    @property
    def scorer(self) -> SteadyScores:
        """The scores of one round."""
        return SteadyScores(self)

    def fitted(self, objective: Objective, features: Features, *, by_name: bool) -> SteadyPIG:
        """The method without neighbourhoods where features are not single values; by_name: and
        without views for networks that are not convolutional, or whose output changes when the
        picture is mirrored."""
        method = self if isinstance(features, Elements) else replace(self, place=0.0)
        asked = objective.plain
        if not by_name or not isinstance(asked, ModelObjective):
            return method
        network = asked.model.plain.module
        shape = picture_shape(asked.layout, Argument("method", self.name))
        if network is not None and not convolutional(network):
            return method.without_views()

        def logits(points: Tensor) -> Tensor:
            return asked.outputs(points, torch.zeros(len(points), dtype=torch.long))

        with torch.no_grad():
            alike = bears_views(logits, asked.examples[0].x, shape)
        return method if alike else method.without_views()

    def without_views(self) -> SteadyPIG:
        """The same for a network that was not trained on crops and mirror images."""
        return replace(self, noise=0.0, crop=1.0, place=0.0)


class SteadyScores(OneShot):
    """The rounds of one run of `SteadyPIG`."""

    name = "steady-scores"

    def __init__(self, knobs: SteadyPIG) -> None:
        self.knobs = knobs
        self.soft = knobs.ramp > 0
        """Is ReLU's derivative smoothed?"""
        self._known: tuple[Tensor, Tensor] | None = None
        """The pictures of this run, and g(1) of each."""

    @property
    def cost(self) -> int:
        """One gradient a view."""
        return self.knobs.views

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """(b, n). Every view of every picture is a problem of its own, all in one batch."""
        mask, shape = round.mask, picture_shape(objective.layout, "method='steady-pig'")
        views, b = self.knobs.views, objective.b
        value, full = objective.values(mask.unsqueeze(1)).squeeze(1), self._full(objective, mask)
        reached = value >= full
        share = mask.double().mean(1)
        stretch = torch.where(reached, 1.0, (1 - share / FIRST).clamp_min(0.1))
        levels = [self._level(round, stretch, view) for view in range(views)]
        points = mask.unsqueeze(1) + torch.stack(levels, 1).to(mask) * (1 - mask).unsqueeze(1)
        compromises = objective.is_probability and views > 1 and self.knobs.crop < 1
        unsure = reached & (full < UNSURE) & (share >= FIRST) & compromises
        repeated = objective.repeated(views)
        if bool(unsure.any()) and isinstance(objective, ModelObjective):
            repeated = objective.halfway(views, unsure)
        plain = torch.where(reached, 1, views)
        if objective.is_probability:
            plain = torch.where(reached & (value >= (1 + full) / 2) & ~unsure, 0, plain)
        seen = repeated.seen(self._crops(objective, round, plain, shape))
        values, gradients = self._differentiated(seen, points.reshape(b * views, 1, -1))
        values, gradients = values.view(b, views, 1), gradients.view(b, views, -1)
        if objective.is_probability:  # Below the photo's probability, the gradient of log g.
            relative = values.mean(1, keepdim=True) / values.clamp_min(TINY)
            gradients = torch.where(reached.view(b, 1, 1), gradients, gradients * relative)
        scores = gradients.mean(1) * (1 - mask)
        if bool(unsure.any()):
            match, own = gradients[:, :-1].mean(1) * (1 - mask), gradients[:, -1] * (1 - mask)
            compromise = best_compromise(objective, round, own, match, full)
            scores = torch.where(unsure.unsqueeze(1), compromise, scores)
        if self.knobs.place:
            near = torch.stack([around(s, m, shape) for s, m in zip(scores, mask, strict=True)])
            scores += self.knobs.place * near * (share < FIRST).to(mask).unsqueeze(1)
        return scores

    def _full(self, objective: Objective, mask: Tensor) -> Tensor:
        """(b,) g(1), evaluated in the first round."""
        if self._known is None or self._known[0] is not objective.end:
            values = objective.values(torch.ones_like(mask).unsqueeze(1)).squeeze(1)
            self._known = objective.end, values
        return self._known[1]

    def _differentiated(self, seen: Objective, points: Tensor) -> tuple[Tensor, Tensor]:
        hard, width = seen.function, self.knobs.ramp

        def soft(points: Tensor, problems: Tensor) -> Tensor:
            with SoftReLU(width, len(points)):
                return hard(points, problems)

        if self.soft:
            try:
                return seen.computed_by(soft).values_and_gradients(points)
            except CheckpointError:
                # Layers under activation checkpointing run again in the backward pass, where
                # torch knows of no modes: such networks keep the derivative of ReLU.
                self.soft = False
        return seen.values_and_gradients(points)

    def _level(self, round: Round, stretch: Tensor, view: int) -> Tensor:
        """(b, n): how far each value is on the way from 1_S to 1 in this view."""
        b, n = round.mask.shape
        drawn = [round.generator(problem, view) for problem in range(b)]
        chances = [torch.rand(5 + n, generator=each, dtype=torch.float64) for each in drawn]
        chance = torch.stack(chances)
        t = stretch.unsqueeze(1).cpu() * (view + chance[:, :1]) / self.knobs.views
        return ((chance[:, 5:] < t).double() + t) / 2

    def _crops(
        self, objective: Objective, round: Round, plain: Tensor, shape: tuple[int, int, int]
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """What each view shows: of each picture `plain` (b,) views as it is, the others cropped."""
        knobs, views = self.knobs, self.knobs.views
        span = (objective.end.amax((0, 2)) - objective.end.amin((0, 2))) * knobs.noise
        drawn: dict[tuple[int, int], tuple[Crop, Tensor]] = {}
        for picture, first in enumerate(plain.tolist()):
            for view in range(first, views):
                drawing = round.generator(picture, view)
                chance = torch.rand(5, generator=drawing, dtype=torch.float64)[1:]
                noise = torch.randn(objective.n, generator=round.generator(picture, view, 1))
                crop = Crop.drawn(shape, knobs.crop, chance.tolist(), objective.end)
                drawn[picture, view] = crop, noise.to(objective.end)

        def show(points: Tensor, problems: Tensor) -> Tensor:
            rows = []
            for point, problem in zip(points, problems.tolist(), strict=True):
                picture, view = divmod(problem, views)
                if view >= plain[picture]:
                    crop, noise = drawn[picture, view]
                    point = point + span[picture] * noise if knobs.noise else point
                    point = crop(point) if knobs.crop < 1 else point
                rows.append(point)
            return torch.stack(rows)

        return show


def best_compromise(
    objective: Objective, round: Round, own: Tensor, match: Tensor, full: Tensor
) -> Tensor:
    """(b, n): the mixture of two scores whose picks lead nearest to halfway from `full` to 1.

    Picks that lead below `full` do not count; where all do, `own` is the answer.
    """
    features, taken = round.features, round.taken
    lengths = [torch.linalg.vector_norm(s, dim=1, keepdim=True) for s in (own, match)]
    match = match * (lengths[0] / lengths[1].clamp_min(TINY))
    mixtures = torch.stack([torch.lerp(own, match, weight) for weight in COMPROMISES], 1)
    picks = [features.pick(scores, taken, round.picks)[0] for scores in mixtures.unbind(1)]
    masks = torch.stack([features.mask(taken.scatter(1, p, True)) for p in picks], 1)
    values, full = objective.values(masks), full.unsqueeze(1)
    distance = (values - (1 + full) / 2).abs().masked_fill(values < full, torch.inf)
    # argmin takes the first of equals, so `own` where every mixture leads below `full`.
    best = distance.argmin(1).view(-1, 1, 1).expand(-1, 1, mixtures.shape[2])
    return mixtures.gather(1, best).squeeze(1)


def bears_views(answer: Callable[[Tensor], Tensor], x: Tensor, shape: tuple[int, int, int]) -> bool:
    """Is the output for a picture x (n,) much like that for its mirror image?

    answer: (m, n) → (m, classes) logits. The overlap is Σ_c min(f_c(x), f_c(mirrored)).
    """
    mirrored = x.view(shape).flip(2).reshape(-1)
    shares = torch.softmax(answer(torch.stack([x, mirrored])).double(), 1)
    return float(torch.minimum(shares[0], shares[1]).sum()) >= ALIKE


def around(scores: Tensor, mask: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(n,) how each value's place scores: the mean of what is near and not selected, over all
    colours, scaled to the root mean square of the scores."""
    near = NEAR * min(shape[1:])
    rows, columns = (closeness(length, near).to(scores) for length in shape[1:])
    free = (1 - mask).to(scores)
    sums, counts = (rows @ each.view(shape).sum(0) @ columns.T for each in (scores * free, free))
    places = (sums / counts.clamp_min(TINY)).expand(shape).reshape(-1)
    lengths = [torch.linalg.vector_norm(each) for each in (scores, places)]
    scaled: Tensor = places / lengths[1].clamp_min(TINY) * lengths[0]
    return scaled


def closeness(length: int, deviation: float) -> Tensor:
    """(length, length) float64: how near two places of a line are, from 1 down to 0."""
    line = torch.arange(length, dtype=torch.float64)
    return torch.exp(-0.5 * ((line.unsqueeze(1) - line) / deviation) ** 2)


class Crop(NamedTuple):
    """A crop enlarged to the whole picture: bilinear, so seen = rows · picture · columnsᵀ."""

    shape: tuple[int, int, int]
    rows: Tensor
    columns: Tensor

    @staticmethod
    def drawn(shape: tuple[int, int, int], least: float, chance: list[float], like: Tensor) -> Crop:
        """From four uniform numbers: area (from `least` of the picture to all), place, mirror."""
        side = sqrt(least + (1 - least) * chance[0])
        rows = interpolation(shape[1], side, chance[1])
        columns = interpolation(shape[2], side, chance[2])
        if chance[3] < 0.5:
            columns = columns.flip(0)
        return Crop(shape, rows.to(like), columns.to(like))

    def __call__(self, picture: Tensor) -> Tensor:
        """(n,) → (n,): what is seen."""
        return (self.rows @ picture.view(self.shape) @ self.columns.T).reshape(-1)


def interpolation(length: int, share: float, place: float) -> Tensor:
    """(length, length) float64, rows summing to 1: a stretch of `share` of the line, beginning at
    `place` of it and wrapping around its end, drawn out to the whole line."""
    at = place * length + (torch.arange(length, dtype=torch.float64) + 0.5) * share - 0.5
    low = at.floor()
    weights = torch.zeros(length, length, dtype=torch.float64)
    for index, weight in ((low, 1 - (at - low)), (low + 1, at - low)):
        weights.scatter_add_(1, (index.long() % length).unsqueeze(1), weight.unsqueeze(1))
    return weights
