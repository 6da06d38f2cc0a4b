"""What one feature of a picture (channels, height, width) is: a pixel, a square, a region."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput, MissingPackage
from ..core.features import Features, Groups, Windows
from ..core.layout import Layout
from ..core.numbers import check_count, check_knobs
from ..tensors.features import FeatureMaker, picture_shape


def pixels(layout: Layout) -> Features:
    """All channels of a place together."""
    channels, height, width = picture_shape(layout, Argument("features", "pixels"))
    return Groups(torch.arange(height * width).repeat(channels))


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
