"""Pictures (channels, height, width): their units, and the path that blurs instead of fading.

Blur IG: Xu et al. 2020, with the defaults of the authors' implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..baselines import gaussian_blur
from ..core.errors import InvalidInput
from ..core.features import Features, Groups, Windows
from ..core.layout import Layout
from ..core.lockstep import Plan, ask, together
from ..core.objective import PointObjective
from ..core.schedule import check_count
from ..core.scorers import PlannedScorer, Scored, Situation, point_request

FeatureMaker = Callable[[Layout], Features]


def pixels() -> FeatureMaker:
    """All channels of a place together."""

    def make(layout: Layout) -> Features:
        channels, height, width = _picture(layout, "features='pixels'")
        return Groups(torch.arange(height * width).repeat(channels))

    return make


def tokens() -> FeatureMaker:
    """All numbers of a row of a (length, size) input together: a token's embedding."""

    def make(layout: Layout) -> Features:
        if layout.kind != "tensor" or len(layout.shapes[0]) != 2:
            raise InvalidInput(
                f"Expected one input (length, size) for features='tokens' (got {layout.shapes})."
            )
        length, size = layout.shapes[0]
        return Groups(torch.arange(length).repeat_interleave(size))

    return make


def grid(size: int) -> FeatureMaker:
    """Disjoint size × size blocks over all channels; smaller ones at the far edges."""
    check_count("grid size", size)

    def make(layout: Layout) -> Features:
        channels, height, width = _picture(layout, "gp.grid")
        across = -(-width // size)
        rows = torch.arange(height).unsqueeze(1) // size
        columns = torch.arange(width).unsqueeze(0) // size
        return Groups((rows * across + columns).expand(channels, -1, -1).contiguous())

    return make


def windows(size: int, *, stride: int = 1) -> FeatureMaker:
    """Overlapping size × size patches over all channels, the paper's block-wise variant."""
    check_count("window size", size)

    def make(layout: Layout) -> Features:
        _picture(layout, "gp.windows")
        return Windows(layout.shapes[0], size, stride=stride)

    return make


def _picture(layout: Layout, what: str) -> tuple[int, int, int]:
    if layout.kind != "tensor" or len(layout.shapes[0]) not in (2, 3):
        raise InvalidInput(
            f"Expected one picture (channels, height, width) for {what} (got {layout.shapes})."
        )
    shape = (1, *layout.shapes[0])[-3:]
    return shape[0], shape[1], shape[2]


@dataclass(frozen=True)
class BlurIG(PlannedScorer):
    """Integrated gradients along a path that blurs the input away instead of fading it.

    scores = −Σ_i (σ_{i+1} − σ_i) · ∂g/∂x(x_σi) · (x_{σi + grad_step} − x_σi) / grad_step, where
    x_σ is the input blurred by σ (selected elements stay sharp) and σ_i = i/steps · sigma.
    """

    steps: int = 100
    sigma: float = 50.0
    grad_step: float = 0.01
    name = "blur-ig"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        if not (self.sigma > 0 and self.grad_step > 0):
            raise InvalidInput(
                f"Expected sigma and grad_step > 0 (got {self.sigma!r}, {self.grad_step!r})."
            )

    def plan(self, at: Situation) -> Plan[Scored]:
        problem = at.objective
        if problem.reversed:
            raise InvalidInput(
                "Expected an objective of what is present for method='blur-ig' (got "
                "'counterfactual', whose path ends at the baseline)."
            )
        channels, height, width = _picture(problem.layout, "method='blur-ig'")
        x = problem.end.view(channels, height, width)
        fixed = (at.mask != 0).view(channels, height, width)
        limit = problem.oracle.batch_size
        total = torch.zeros_like(problem.end)
        for lo in range(0, self.steps, limit):
            steps = range(lo, min(lo + limit, self.steps))
            plans = (self._step(problem, x, fixed, i * self.sigma / self.steps) for i in steps)
            for part in (yield from together(plans, limit)):
                total += part
        return Scored(elements=total)

    def cost(self) -> int:
        return self.steps

    def _step(
        self, problem: PointObjective, x: Tensor, fixed: Tensor, sigma: float
    ) -> Plan[Tensor]:
        # In float64: the difference of two nearly equal pictures is divided by a small number.
        sharp = x.double()
        blurred = gaussian_blur(sharp, sigma)
        slope = (gaussian_blur(sharp, sigma + self.grad_step) - blurred) / self.grad_step
        slope = torch.where(fixed, 0, slope).reshape(-1)
        row = torch.where(fixed, sharp, blurred).reshape(-1).to(x)
        answer = yield from ask(point_request(problem, row))
        return (answer.gradient * slope * (-self.sigma / self.steps)).to(x)
