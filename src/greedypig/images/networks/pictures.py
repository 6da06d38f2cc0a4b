"""From a picture in any of PIL's modes and orientations to upright 8-bit RGB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InvalidType, MissingPackage

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["pillow", "upright", "upright_rgb"]


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
        # PIL's own conversion would clip gray of more than 8 bits at 255. The modes "I" and "F" do
        # not say how far they run: the smallest customary range that holds the picture is taken.
        levels = np.asarray(image).astype(np.float64)
        ranges = () if image.mode.startswith("I;") else (1, 255)
        top = next((top for top in ranges if levels.max() <= top), 65535)
        levels = np.floor((levels / top).clip(0, 1) * 255 + 0.5)
        image = pil.Image.fromarray(levels.astype(np.uint8))
    elif image.has_transparency_data:
        # Dropping the alpha channel would show whatever colour lies hidden beneath it, often black.
        page = pil.Image.new("RGBA", image.size, "white")
        image = pil.Image.alpha_composite(page, image.convert("RGBA"))
    return image.convert("RGB")
