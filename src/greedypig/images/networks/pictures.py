"""From a picture in any of PIL's modes, sizes and orientations to upright 8-bit RGB.

Pictures of ordinary size are converted as they are. Those of more than `LARGE` pixels are cut to
their central square and averaged over blocks on the way, strip by strip, so that no second copy of
the full size is made: the network sees a few hundred pixels a side anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidInput, MissingPackage

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["LARGE", "centre_box", "pillow", "reduced_rgb", "upright_rgb"]

LARGE = 2**25
"""Pixels above which a picture is averaged before it is resized: more than 33 megapixels."""
REDUCING_GAP = 3
"""How many times finer than needed the averaged picture stays, so that averaging hardly shows."""
_ORIENTATION = 0x0112
_STRIP = 2**22
"""Pixels of a strip: about 16 MB in each intermediate mode."""


def pillow() -> Any:
    """The package PIL, which is optional."""
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingPackage(
            "Expected Pillow for photos (got no module named PIL). "
            'Try pip install "greedypig[images]".'
        ) from error
    return PIL


def upright_rgb(image: Image.Image, short_side: int) -> Image.Image:
    """8-bit RGB as a viewer shows it, for a resizing that makes the short side `short_side`.

    The EXIF orientation is applied, transparent parts show a white page, gray of more than 8 bits
    is scaled to 8. Of more than `LARGE` pixels the central square remains, reduced.
    """
    if image.width * image.height <= LARGE:
        return _upright(_to_rgb(image), image)
    factor = max(1, min(image.size) // (REDUCING_GAP * short_side))
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return _upright(reduced_rgb(image, factor, (left, top, left + side, top + side)), image)


def reduced_rgb(image: Image.Image, factor: int, box: tuple[int, int, int, int]) -> Image.Image:
    """8-bit RGB of `box`, each factor x factor block averaged to one pixel; not turned upright."""
    from PIL import Image

    left, top, right, bottom = box
    size = (-(-(right - left) // factor), -(-(bottom - top) // factor))
    out = Image.new("RGB", size)
    gray_range = _gray_range(image, box)
    for strip in _strips(left, top, right, bottom, factor):
        part = _to_rgb(image.crop(strip), gray_range)
        out.paste(part.reduce(factor) if factor > 1 else part, (0, (strip[1] - top) // factor))
    return out


def centre_box(
    width: int, height: int, resize: int, size: int
) -> tuple[float, float, float, float]:
    """The part of the source that "short side to `resize`, then centre `size` x `size`" keeps.

    Resizing this box alone samples the same points as resizing everything and cropping, but a
    picture of 1 x 10,000 pixels never becomes one of 256 x 2,560,000. The two agree to one level,
    except where bicubic overshoots black or white.
    """
    short = min(width, height)
    resized_width, resized_height = resize * width // short, resize * height // short
    left, top = round((resized_width - size) / 2), round((resized_height - size) / 2)
    x_scale, y_scale = width / resized_width, height / resized_height
    return left * x_scale, top * y_scale, (left + size) * x_scale, (top + size) * y_scale


_TURNS = {
    # EXIF orientation → PIL's name of what undoes it.
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def _upright(rgb: Image.Image, original: Image.Image) -> Image.Image:
    from PIL import Image

    try:
        orientation = original.getexif().get(_ORIENTATION, 1)
    except Exception:  # Cameras write broken EXIF in every way; the pixels are fine all the same.
        return rgb
    turn = _TURNS.get(orientation)
    return rgb if turn is None else rgb.transpose(Image.Transpose[turn])


def _strips(
    left: int, top: int, right: int, bottom: int, factor: int
) -> Iterator[tuple[int, int, int, int]]:
    rows = max(1, _STRIP // ((right - left) * factor)) * factor
    for upper in range(top, bottom, rows):
        yield left, upper, right, min(upper + rows, bottom)


def _to_rgb(image: Image.Image, gray_range: float | None = None) -> Image.Image:
    """8-bit RGB of an image in any of PIL's modes."""
    from PIL import Image

    if _is_deep(image):
        top = gray_range or _gray_range(image, (0, 0, image.width, image.height))
        assert top is not None
        # Converting from "F" to "L" cuts the fraction off, and the half makes that a rounding.
        scaled = _as_float(image).point(lambda level: level * (255 / top) + 0.5)
        return scaled.convert("L").convert("RGB")
    if image.has_transparency_data or image.mode in ("RGBa", "La"):
        # Dropping the alpha channel would show whatever colour lies hidden beneath it, often black.
        if image.mode == "La":
            image = image.convert("LA")
        page = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(page, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _is_deep(image: Image.Image) -> bool:
    """Gray of more than 8 bits, which PIL's own conversion would clip at 255."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def _as_float(image: Image.Image) -> Image.Image:
    # PIL measures and scales the plain modes only, so the 16-bit ones pass through "I".
    return image if image.mode == "F" else image.convert("I").convert("F")


def _gray_range(image: Image.Image, box: tuple[int, int, int, int]) -> float | None:
    """The level that is white in 16-bit, 32-bit or float gray; None for all other modes.

    16-bit modes run to 65535. The modes "I" and "F" do not say how far they run: the smallest
    customary range that holds the picture is taken, 255 or 65535 for integers, 1 as well for
    floats.
    """
    if not _is_deep(image):
        return None
    ranges = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}.get(image.mode, (65535.0,))
    extrema = [_as_float(image.crop(strip)).getextrema() for strip in _strips(*box, 1)]
    levels = [float(level) for pair in extrema for level in pair]  # type: ignore[arg-type]
    low, high = min(levels), max(levels)
    top = next((top for top in ranges if high <= top), None)
    if top is None or low < 0 or any(math.isnan(level) for level in levels):
        raise InvalidInput(
            f'Expected gray levels from 0 to at most 65535 in an image of mode "{image.mode}" '
            f'(got {low:g} to {high:g}). Try image.convert("RGB") on levels scaled to 0 ... 255.'
        )
    return top
