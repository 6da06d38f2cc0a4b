"""What an image classifier needs besides its layers: the way in, the way back and the names.

The preprocessing is part of a network: fed otherwise, it is a worse network. An `ImageModel` is the
plain network (same `forward`, same state-dict keys) that also knows how a picture becomes its
input, how an input becomes a picture again, which input a colour is, and what its classes are
called.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ImageModel"]


class ImageModel(nn.Module):
    """A network from images (m, 3, h, w) to logits (m, 1000), and what surrounds it.

    A subclass defines the layers and says, in the class variables below, how its weights were
    trained. A level is an 8-bit pixel value, 0 to 255, and per channel
    `x = (level - level_mean) / level_std`.
    """

    name: ClassVar[str]
    """The name `greedypig.models.load` knows it by."""
    size: ClassVar[int] = 224
    """Height and width of the picture that the network sees."""
    resize: ClassVar[int] = 256
    """The picture's short side before the centre `size` x `size` is cut out."""
    resample: ClassVar[str]
    """The antialiased filter of the resizing: "BILINEAR" or "BICUBIC"."""
    level_mean: ClassVar[tuple[float, float, float]]
    level_std: ClassVar[tuple[float, float, float]]
    gray_level: ClassVar[float] = 127.5
    """The level that counts as mid-gray."""

    def preprocess(self, image: Image.Image) -> Tensor:
        """The network's input, (3, size, size) on its device, for a PIL image of any mode or shape.

        The EXIF orientation is applied, transparent parts show a white page, gray of more than 8
        bits is scaled to 8, the short side becomes `resize` pixels and the centre is kept. Colour
        profiles are not applied.
        """
        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            raise ImportError(
                "Expected Pillow for the preprocessing of images (got no module named PIL). "
                'Try pip install "greedypig[images]".'
            ) from error
        if not isinstance(image, Image.Image):
            raise TypeError(
                f"Expected a PIL image (got {type(image).__name__}). Try PIL.Image.open(path)."
            )
        if 0 in image.size:
            raise ValueError(
                f"Expected an image with pixels (got width x height {image.width} x "
                f"{image.height}). Try another crop."
            )
        rgb = _to_rgb(ImageOps.exif_transpose(image))
        rgb = rgb.resize(
            (self.size, self.size),
            Image.Resampling[self.resample],
            box=_centre_box(rgb.width, rgb.height, self.resize, self.size),
        )
        pixels = torch.frombuffer(bytearray(rgb.tobytes()), dtype=torch.uint8)
        levels = pixels.view(self.size, self.size, 3).permute(2, 0, 1).float()
        return self._normalise(levels).contiguous()

    def to_pixels(self, x: Tensor) -> Tensor:
        """The picture in [0, 1] that an input (..., 3, h, w) shows: the inverse normalisation."""
        if x.ndim < 3 or x.shape[-3] != 3:
            raise ValueError(
                f"Expected images of shape (..., 3, h, w) (got {tuple(x.shape)}). "
                "Try x.movedim(-1, -3) if the channels come last."
            )
        mean, std = self._statistics(x)
        return ((x * std + mean) / 255).clamp(0, 1)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """The input that shows a picture (..., 3, h, w) in [0, 1]: the inverse of `to_pixels`."""
        return self._normalise(pixels * 255)

    def baseline(self, name: str) -> Tensor:
        """The input that is all "gray", "black" or "white": (3, 1, 1), to broadcast over images."""
        colours = {"gray": self.gray_level, "black": 0.0, "white": 255.0}
        if name not in colours:
            near = difflib.get_close_matches(str(name).lower(), colours, n=1) or ["gray"]
            known = ", ".join(f'"{colour}"' for colour in colours)
            raise ValueError(f'Expected one of {known} (got {name!r}). Try "{near[0]}".')
        return self._normalise(torch.full((3, 1, 1), colours[name], dtype=torch.float32))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the 1,000 ImageNet classes, in the order of the logits."""
        return _imagenet_classes()

    def _normalise(self, levels: Tensor) -> Tensor:
        """(level - mean) / std in float32, then in the network's own dtype and on its device."""
        mean, std = self._statistics(levels)
        weight = next(self.parameters())
        return ((levels - mean) / std).to(device=weight.device, dtype=weight.dtype)

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.tensor(self.level_mean, device=like.device, dtype=like.dtype).view(3, 1, 1)
        std = torch.tensor(self.level_std, device=like.device, dtype=like.dtype).view(3, 1, 1)
        return mean, std


@functools.cache
def _imagenet_classes() -> tuple[str, ...]:
    table = importlib.resources.files("greedypig.models").joinpath("imagenet_classes.tsv")
    return tuple(row.split("\t")[2] for row in table.read_text(encoding="utf-8").splitlines())


def _centre_box(
    width: int, height: int, resize: int, size: int
) -> tuple[float, float, float, float]:
    """The part of the source that "short side to `resize`, then centre `size` x `size`" keeps.

    Resizing this box alone samples the same points as resizing everything and cropping, but a
    picture of 1 x 10,000 pixels never becomes one of 256 x 2,560,000. PIL resizes columns and rows
    one after the other, in an order that depends on the shapes, and clips to 8 bits in between: the
    two ways agree to one level, except where bicubic overshoots black or white.
    """
    short = min(width, height)
    resized_width, resized_height = resize * width // short, resize * height // short
    left, top = round((resized_width - size) / 2), round((resized_height - size) / 2)
    x_scale, y_scale = width / resized_width, height / resized_height
    return left * x_scale, top * y_scale, (left + size) * x_scale, (top + size) * y_scale


def _to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of an image in any of PIL's modes."""
    from PIL import Image

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _to_eight_bits(image).convert("RGB")
    if image.has_transparency_data or image.mode in ("RGBa", "La"):
        # Dropping the alpha channel would show whatever colour lies hidden beneath it, often black.
        if image.mode == "La":
            image = image.convert("LA")
        page = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(page, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Gray levels of 16-bit, 32-bit or float images scaled to 0 ... 255.

    PIL's own conversion clips at 255 instead. 16-bit modes run to 65535. The modes "I" and "F" do
    not say how far they run: the smallest customary range that holds the picture is taken, 255 or
    65535 for integers, 1 as well for floats.
    """
    # PIL measures and scales the plain modes only, so the 16-bit ones pass through "I".
    ranges = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}.get(image.mode, (65535.0,))
    levels = image if image.mode == "F" else image.convert("I").convert("F")
    low, high = (float(level) for level in levels.getextrema())  # type: ignore[arg-type]
    top = next((top for top in ranges if high <= top), None)
    if top is None or low < 0 or math.isnan(low):
        raise ValueError(
            f'Expected gray levels from 0 to at most 65535 in an image of mode "{image.mode}" '
            f'(got {low:g} to {high:g}). Try image.convert("RGB") on levels scaled to 0 ... 255.'
        )
    # Converting from "F" to "L" cuts the fraction off, and the half makes that a rounding.
    return levels.point(lambda level: level * (255 / top) + 0.5).convert("L")
