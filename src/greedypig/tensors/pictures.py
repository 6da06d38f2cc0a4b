"""Pictures (channels, height, width): their features, and the path that blurs instead of fading.

Blur IG: Xu et al. 2020, with the defaults of the authors' implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput, MissingPackage
from ..core.features import Elements, Features, Groups, Windows
from ..core.layout import Layout
from ..core.numbers import check_count, check_knobs
from ..core.objective import Objective
from ..core.rounds import Round
from ..core.scorers import OneShot
from .baselines import gaussian_blur

FeatureMaker = Callable[[Layout], Features]
"""Features from an input's shape. One with `reads_input = True` is called with the input too."""


def elements(layout: Layout) -> Features:
    """Every value by itself."""
    return Elements(layout.n)


def pixels(layout: Layout) -> Features:
    """All channels of a place together."""
    channels, height, width = picture_shape(layout, Argument("features", "pixels"))
    return Groups(torch.arange(height * width).repeat(channels))


def tokens(layout: Layout) -> Features:
    """All values of a row of a (length, size) input together: a token's embedding."""
    if len(layout.shapes) != 1 or len(layout.shapes[0]) != 2:
        raise InvalidInput(
            "Expected one input (length, size) for ",
            Argument("features", "tokens"),
            f" (got {layout.shapes}).",
        )
    length, size = layout.shapes[0]
    return Groups(torch.arange(length).repeat_interleave(size))


def grid(size: int) -> FeatureMaker:
    """Disjoint size × size blocks over all channels; smaller ones at the far edges."""
    size = check_count("grid size", size)

    def make(layout: Layout) -> Features:
        channels, height, width = picture_shape(layout, "gp.grid")
        across = -(-width // size)
        rows = torch.arange(height).unsqueeze(1) // size
        columns = torch.arange(width).unsqueeze(0) // size
        return Groups((rows * across + columns).expand(channels, -1, -1).contiguous())

    return make


def windows(size: int, *, stride: int = 1) -> FeatureMaker:
    """Overlapping size × size patches over all channels, the paper's block-wise variant."""
    size = check_count("window size", size)

    def make(layout: Layout) -> Features:
        picture_shape(layout, "gp.windows")
        return Windows(layout.shapes[0], size, stride=stride)

    return make


@dataclass(frozen=True)
class Superpixels:
    """Regions that follow the picture's own edges, about `segments` of them, over all channels.

    By SLIC (Achanta et al. 2012), which needs scikit-image. Higher compactness makes them squarer;
    sigma blurs the picture first. The picture's values are brought to [0, 1] as a whole, so a
    model's normalisation hardly matters; three channels are read as RGB. Deterministic.
    """

    segments: int = 100
    _: KW_ONLY
    compactness: float = 10.0
    sigma: float = 0.0
    reads_input = True

    def __post_init__(self) -> None:
        check_knobs(self, "segments", compactness=(1e-6, 1e6), sigma=(0, 1e6))

    def __call__(self, layout: Layout, x: Any) -> Features:
        """One feature per region, numbered from the top left without gaps."""
        channels, height, width = picture_shape(layout, "gp.superpixels")
        if self.segments > height * width:
            raise InvalidInput(
                f"Expected at most as many segments as the {height * width} pixels of a "
                f"{height} × {width} picture (got {self.segments})."
            )
        (picture,) = layout.tensors(x)
        regions = self._regions(picture.detach().reshape(channels, height, width))
        ids = torch.unique(regions, return_inverse=True)[1]
        return Groups(ids.expand(channels, -1, -1).contiguous())

    def _regions(self, picture: Tensor) -> Tensor:
        try:
            from skimage.segmentation import slic
        except ImportError as error:
            raise MissingPackage(
                "Expected scikit-image for gp.superpixels (got no module named skimage). "
                'Try pip install "greedypig[images]".'
            ) from error
        # It brings the values to [0, 1] itself, and those of RGB on to Lab, which runs to 100: the
        # same compactness means the same thing for other pictures if it is scaled for them.
        scale = 1.0 if picture.shape[0] == 3 else 0.01
        regions = slic(
            picture.double().cpu().permute(1, 2, 0).numpy(),
            n_segments=self.segments,
            compactness=self.compactness * scale,
            sigma=float(self.sigma),
            start_label=0,
            channel_axis=-1,
        )
        return torch.from_numpy(regions).long()


superpixels = Superpixels


def is_picture(layout: Layout) -> bool:
    """Is the input one tensor (channels, height, width) with one or three channels?"""
    shape = layout.shapes[0]
    return len(layout.shapes) == 1 and len(shape) == 3 and shape[0] in (1, 3)


def picture_shape(layout: Layout, what: str | Argument) -> tuple[int, int, int]:
    """(channels, height, width) of an input that is one picture; what: who asks."""
    if len(layout.shapes) != 1 or len(layout.shapes[0]) not in (2, 3):
        raise InvalidInput(
            "Expected one picture (channels, height, width) for ",
            what,
            f" (got {layout.shapes}).",
        )
    shape = (1, *layout.shapes[0])[-3:]
    return shape[0], shape[1], shape[2]


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
