"""Photos from files: single ones, folders, patterns, broken ones.

`open_photo` reads one file or raises an error of one sentence. `Photos` iterates over many and
collects the broken ones, so that one of them does not end a run.
"""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import GreedyPigError, InvalidFile, InvalidInput, MissingPackage, first_line
from .class_names import label_of
from .networks.pictures import pillow, upright

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["SUFFIXES", "Photo", "Photos", "find_photos", "open_photo"]

LARGE = 2**25
"""JPEG files of more pixels, 33 megapixels, are decoded at a reduced size …"""
SHORT_SIDE = 3 * 256
"""… of at least this short side: three times finer than a network of 224 x 224 needs."""
SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
"""Endings by which photos are known in folders; a file that is named is read in any case."""
_FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""PIL's other formats are not photos, and reading some of them (EPS) starts other programs."""


@dataclass(frozen=True)
class Photo:
    """A photo that could be read."""

    path: Path
    image: Image.Image
    label: int | None
    """The ImageNet class in the path, see `label_of`."""


@dataclass
class Photos:
    """The photos at `paths`, one after the other; what cannot be read is collected in `broken`.

    It can be iterated again, and only one photo is in memory at a time. `len` counts the files.
    """

    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]
    files: tuple[Path, ...] = field(init=False)
    """What `find_photos` found, in its order."""
    broken: dict[Path, str] = field(init=False, default_factory=dict)
    """The reason why a file could not be read, in the last or current pass."""

    def __post_init__(self) -> None:
        self.files = tuple(find_photos(self.paths))

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Photo]:
        self.broken = broken = {}
        for path in self.files:
            try:
                image = open_photo(path)
            except MissingPackage:
                raise
            except GreedyPigError as error:
                broken[path] = str(error)
            else:
                yield Photo(path, image, label_of(path))


def open_photo(path: str | os.PathLike[str]) -> Image.Image:
    """The photo at `path`, decoded and upright, as a PIL image in its own mode.

    Of an animation it is the first frame. A JPEG file of more than 33 megapixels is read at a
    reduced size.

    Raises InvalidInput where there is no file to read, and InvalidFile where what is there is no
    photo, is cut off, or has more than 178 megapixels (twice `PIL.Image.MAX_IMAGE_PIXELS`).
    """
    path, pil = Path(path), pillow()
    if not path.is_file():  # Opening a pipe would wait for ever.
        got = "a folder" if path.is_dir() else "no file" if path.exists() else "nothing there"
        raise InvalidInput(f"Expected a photo at {path} (got {got}). Try its full path.")
    pil.Image.init()
    formats = [name for name in _FORMATS if name in pil.Image.OPEN]
    try:
        with warnings.catch_warnings():
            # PIL warns at half of what it refuses, and phones make photos of that size.
            warnings.simplefilter("ignore", pil.Image.DecompressionBombWarning)
            with pil.Image.open(path, formats=formats) as image:
                if image.width * image.height > LARGE:
                    factor = max(1, min(image.size) // SHORT_SIDE)
                    image.draft(None, (image.width // factor, image.height // factor))
                image.load()
                return upright(image)
    except pil.UnidentifiedImageError as error:
        raise InvalidFile(
            f"Expected a photo in {path} (got {path.stat().st_size or 'zero'} bytes in no format "
            "that is read). Try a JPEG, PNG or WebP file."
        ) from error
    except Exception as error:  # PIL's decoders raise of every kind on data that is damaged.
        raise InvalidFile(
            f"Expected a whole photo in {path} (got one that cannot be read: "
            f"{first_line(error) or type(error).__name__}). Try another copy of the file."
        ) from error


def find_photos(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
) -> list[Path]:
    """The files that `paths` mean, each once, in a stable order.

    The paths keep their order. A folder stands for the photos in it and in the folders below (by
    their ending, hidden ones left out), a pattern such as "holiday/*.jpg" for what fits it, both
    sorted with numbers by size: 2.jpg before 10.jpg. Files that are named are taken as they are.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files = dict.fromkeys(file for path in paths for file in _expand(os.fspath(path)))
    if not files:
        raise InvalidInput("Expected at least one photo or folder (got none).")
    return list(files)


def _expand(given: str) -> list[Path]:
    path = Path(given)
    if path.is_dir():
        files = _photos_below(path)
    elif path.exists():
        return [path]
    elif glob.has_magic(given):
        files = []
        for each in sorted(map(Path, glob.glob(given, recursive=True)), key=_by_numbers):
            files += _photos_below(each) if each.is_dir() else [each]
    else:
        raise InvalidInput(
            f"Expected a photo or folder at {path} (got nothing there). Try its full path."
        )
    files = [file for file in files if file.suffix.lower() in SUFFIXES]
    if not files:
        raise InvalidInput(
            f"Expected photos at {path}, known by their endings {', '.join(SUFFIXES)} (got none)."
        )
    return files


def _photos_below(folder: Path) -> list[Path]:
    files = []
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if not hidden and file.is_file():
            files.append(file)
    return sorted(files, key=_by_numbers)


def _by_numbers(path: Path) -> list[list[tuple[int, int, str]]]:
    """Sorts digits by their value and the rest as text, folder by folder; the text breaks ties."""

    def key(part: str) -> list[tuple[int, int, str]]:
        pieces = filter(None, re.split(r"(\d+)", part))
        return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in pieces]

    return [key(part) for part in path.parts]
