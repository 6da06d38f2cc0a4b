"""From a picture in any of PIL's modes and orientations to upright 8-bit RGB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InvalidType, MissingPackage

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["centre_box", "pillow", "upright", "upright_rgb"]


def pillow() -> Any:
    """The package PIL, which is optional."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise MissingPackage(
            "Expected Pillow for photos (got no module named PIL). "
            'Try pip install "greedypig[images]".'
        ) from error
    return PIL


def upright(image: Image.Image) -> Image.Image:
    """A copy of the picture, turned as its EXIF data says."""
    try:
        return pillow().ImageOps.exif_transpose(image)  # type: ignore[no-any-return]
    except Exception:  # Cameras write broken EXIF in every way; the pixels are fine all the same.
        return image.copy()


def upright_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB as a viewer shows it.

    The EXIF orientation is applied, transparent parts show a white page, gray of more than 8 bits
    is scaled to 8. Colour profiles are not applied.
    """
    pil = pillow()
    if not isinstance(image, pil.Image.Image) or 0 in image.size:
        raise InvalidType(
            f"Expected a PIL image with pixels (got {type(image).__name__}). "
            "Try greedypig.images.open_photo(path)."
        )
    image = upright(image)
    if image.mode == "F" or image.mode.startswith("I"):
        image = pil.Image.fromarray(_eight_bits(image))
    elif image.has_transparency_data:
        # Dropping the alpha channel would show whatever colour lies hidden beneath it, often black.
        page = pil.Image.new("RGBA", image.size, "white")
        image = pil.Image.alpha_composite(page, image.convert("RGBA"))
    return image.convert("RGB")


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


def _eight_bits(image: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Gray of more than 8 bits, which PIL's own conversion would clip at 255, scaled to 0 … 255.

    16-bit modes run to 65535. The modes "I" and "F" do not say how far they run: the smallest
    customary range that holds the picture is taken. What lies outside is clipped.
    """
    levels = np.asarray(image).astype(np.float64)
    ranges = {"I": (255, 65535), "F": (1, 255, 65535)}.get(image.mode, (65535,))
    white = next((top for top in ranges if levels.max() <= top), 65535)
    return np.floor((levels / white).clip(0, 1) * 255 + 0.5).astype(np.uint8)
