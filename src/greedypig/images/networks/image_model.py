"""An image classifier with its preprocessing, its inverse, its colours and its class names.

An `ImageModel` is the plain network (same layers, same state-dict keys) that also turns pictures
into inputs and back, and knows the inputs of gray, black and white.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInput, did_you_mean
from ..class_names import class_names
from .pictures import pillow, upright_rgb

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ImageModel"]


class ImageModel(nn.Module):
    """A network from images (m, 3, h, w) to logits (m, 1000), and what surrounds it.

    A subclass defines the layers, which are applied in their order, and says, in the variables
    below, how its weights were trained. A level is an 8-bit pixel value, 0 to 255, and per channel
    `x = (level - level_mean) / level_std`.
    """

    name: str
    """The name `greedypig.models.load` knows it by, or package.module:factory."""
    size: ClassVar[int] = 224
    """Height and width of the picture that the network sees."""
    resize: ClassVar[int] = 256
    """The picture's short side before the centre `size` x `size` is cut out."""
    resample: ClassVar[str] = "BILINEAR"
    """The antialiased filter of the resizing: "BILINEAR" or "BICUBIC"."""
    level_mean: tuple[float, float, float] = (255 * 0.485, 255 * 0.456, 255 * 0.406)
    level_std: tuple[float, float, float] = (255 * 0.229, 255 * 0.224, 255 * 0.225)
    """ImageNet's mean and deviation, where a subclass has no others."""
    gray_level: ClassVar[float] = 127.5
    """The level that counts as mid-gray."""

    @classmethod
    def for_weights(cls, state: object) -> Self:
        """The network that this state dict is meant for, where there are variants."""
        return cls()

    def forward(self, x: Tensor) -> Tensor:
        """Images (m, 3, h, w) to logits (m, 1000); trained at `size` x `size`."""
        for layer in self.children():
            x = layer(x)
        return x

    def preprocess(self, image: Image.Image) -> Tensor:
        """The network's input, (3, size, size) on its device, for a PIL image of any mode or shape.

        The picture is made upright RGB (`upright_rgb`), the short side becomes `resize` pixels and
        the centre is kept. Of an animation the current frame is taken.
        """
        rgb = upright_rgb(image)
        # Resizing the box that the crop keeps samples the same points as resizing everything, but
        # a picture of 1 x 10,000 pixels never becomes one of 256 x 2,560,000.
        spans = []
        for length in rgb.size:
            resized = self.resize * length // min(rgb.size)
            first = round((resized - self.size) / 2)
            spans.append((first * length / resized, (first + self.size) * length / resized))
        (left, right), (top, bottom) = spans
        antialiased = pillow().Image.Resampling[self.resample]
        rgb = rgb.resize((self.size, self.size), antialiased, box=(left, top, right, bottom))
        pixels = torch.frombuffer(bytearray(rgb.tobytes()), dtype=torch.uint8)
        levels = pixels.view(self.size, self.size, 3).permute(2, 0, 1).float()
        return self._normalise(levels).contiguous()

    def to_pixels(self, x: Tensor) -> Tensor:
        """The picture in [0, 1] that an input (..., 3, h, w) shows: the inverse normalisation."""
        mean, std = self._statistics(x)
        if x.ndim < 3 or x.shape[-3] != len(mean):
            raise InvalidInput(
                f"Expected images of shape (..., {len(mean)}, h, w) (got {tuple(x.shape)}). "
                "Try x.movedim(-1, -3) if the channels come last."
            )
        return ((x * std + mean) / 255).clamp(0, 1)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """The input that shows a picture (..., 3, h, w) in [0, 1]: the inverse of `to_pixels`."""
        return self._normalise(pixels * 255)

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the input for a picture of this height and width."""
        return self.size, self.size

    def baseline(self, name: str) -> Tensor:
        """The input that is all "gray", "black" or "white": (3, 1, 1), to broadcast over images."""
        levels = {"gray": self.gray_level, "black": 0.0, "white": 255.0}
        if name not in levels:
            raise InvalidInput(
                f"Expected one of {', '.join(levels)} (got {name!r}).{did_you_mean(name, levels)}"
            )
        return self._normalise(torch.full((1, 1, 1), levels[name]))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the 1,000 ImageNet classes, in the order of the logits."""
        return class_names()

    def _normalise(self, levels: Tensor) -> Tensor:
        """(level - mean) / std in float32, then in the network's own dtype and on its device."""
        mean, std = self._statistics(levels)
        return self._placed((levels - mean) / std)

    def _placed(self, x: Tensor) -> Tensor:
        """The tensor on the device and in the dtype of the network, if it has parameters."""
        weight = next(self.parameters(), None)
        return x if weight is None else x.to(device=weight.device, dtype=weight.dtype)

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the levels, (channels, 1, 1) each."""
        mean, std = like.new_tensor([self.level_mean, self.level_std]).view(2, 3, 1, 1)
        return mean, std
