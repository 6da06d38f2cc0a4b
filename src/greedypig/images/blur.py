"""Blur IG: integrated gradients along a path that blurs a picture instead of fading it.

Xu et al. 2020, with the defaults of the authors' implementation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput
from ..core.numbers import check_knobs
from ..core.objective import Objective
from ..core.rounds import Round
from ..core.scorers import OneShot
from ..tensors.baselines import gaussian_blur
from ..tensors.features import picture_shape


@dataclass(frozen=True)
class BlurIG(OneShot):
    """Integrated gradients along a path that blurs the input away instead of fading it.

    scores = −Σ_i (σ_{i+1} − σ_i) · ∂g/∂x(x_σi) · (x_{σi + grad_step} − x_σi) / grad_step, where
    x_σ is the input blurred by σ (selected values stay sharp) and σ_i = i/steps · sigma.
    """

    steps: int = 100
    sigma: float = 50.0
    grad_step: float = 0.01
    name = "blur-ig"

    def __post_init__(self) -> None:
        check_knobs(self, "steps", sigma=(1e-6, 1e6), grad_step=(1e-6, 1e6))

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """(b, n)."""
        mask = round.mask
        if objective.removes:
            raise InvalidInput(
                "Expected an objective of what is present for ",
                Argument("method", self.name),
                " (got 'counterfactual', whose path ends at the baseline).",
            )
        shape = picture_shape(objective.layout, Argument("method", self.name))
        # In float64: the difference of two nearly equal pictures is divided by a small number.
        sharp = objective.end[0].double().view(-1, *shape)
        fixed = (mask != 0).view_as(sharp)
        total, first = torch.zeros_like(mask), 0
        while first < self.steps:
            steps = range(first, min(first + objective.points, self.steps))
            pairs = [self._step(sharp, fixed, i * self.sigma / self.steps) for i in steps]
            points, slopes = (torch.stack(each, 1) for each in zip(*pairs, strict=True))
            gradients = objective.point_gradients(points.to(mask))
            total += (gradients * slopes).sum(1).to(mask) * (-self.sigma / self.steps)
            first = steps.stop
        return total

    def _step(self, sharp: Tensor, fixed: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """(b, n) the pictures blurred by sigma, and how they change with it."""
        blurred = gaussian_blur(sharp, sigma)
        slope = (gaussian_blur(sharp, sigma + self.grad_step) - blurred) / self.grad_step
        point = torch.where(fixed, sharp, blurred)
        return point.flatten(1), torch.where(fixed, 0, slope).flatten(1)

    @property
    def cost(self) -> int:
        """One gradient a step."""
        return self.steps
