"""Photos from files: single ones, folders, patterns, broken ones.

`open_photo` reads one file or raises an error of one sentence. `Photos` iterates over many and
collects the broken ones, so that one of them does not end a run.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import GreedyPigError, InvalidFile, InvalidInput, InvalidType, MissingPackage
from .class_names import label_of
from .networks.pictures import LARGE, REDUCING_GAP, pillow, reduced_rgb

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MAX_PIXELS", "SUFFIXES", "Broken", "Photo", "Photos", "find_photos", "open_photo"]

MAX_PIXELS = 200_000_000
"""The largest photo that is read; larger files are probably decompression bombs."""
SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
"""Endings by which photos are known in folders; a file that is named is read in any case."""
_FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""PIL's other formats are not photos, and reading some of them (EPS) starts other programs."""
_SHORT_SIDE = 256
_LIMIT = threading.Lock()


@dataclass(frozen=True)
class Photo:
    """A photo that could be read."""

    path: Path
    image: Image.Image
    label: int | None
    """The ImageNet class in the path, see `label_of`."""


@dataclass(frozen=True)
class Broken:
    """A file that could not be read."""

    path: Path
    reason: str
    """One sentence that names the file."""


@dataclass
class Photos:
    """The photos at `paths`, one after the other; what cannot be read is collected in `broken`.

    It can be iterated again, and only one photo is in memory at a time. `len` counts the files.
    """

    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]
    files: tuple[Path, ...] = field(init=False)
    """What `find_photos` found, in its order."""
    broken: list[Broken] = field(init=False, default_factory=list)
    """Of the last or current pass."""

    def __post_init__(self) -> None:
        self.files = tuple(find_photos(self.paths))

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Photo]:
        self.broken = broken = []
        for path in self.files:
            try:
                image = open_photo(path)
            except MissingPackage:
                raise
            except GreedyPigError as error:
                broken.append(Broken(path, str(error)))
            else:
                yield Photo(path, image, label_of(path))


def open_photo(path: str | os.PathLike[str]) -> Image.Image:
    """The photo at `path`, decoded and upright, as a PIL image in its own mode.

    Of an animation it is the first frame. Photos of more than 33 megapixels are read at a reduced
    size (JPEG) or reduced to RGB once read; in both cases they stay three times finer than a
    network of 224 x 224 needs. Of very long strips the middle is kept.

    Raises InvalidInput where there is no file to read, and InvalidFile where what is there is no
    photo, is cut off, or has more than 200 megapixels.
    """
    path = _file(path)
    try:
        with path.open("rb") as file:
            image = _opened(file, path)
            _check_pixels(image, path)
            return _upright(_loaded(image, path))
    except OSError as error:
        raise InvalidInput(
            f"Expected a photo that may be read at {path} (got {error.strerror or error})."
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
    files: dict[Path, None] = {}
    for given in paths:
        if not isinstance(given, str | os.PathLike) or isinstance(given, bytes):
            raise InvalidType(f"Expected paths of photos (got {type(given).__name__}).")
        files.update(dict.fromkeys(_expand(os.fspath(given))))
    if not files:
        raise InvalidInput("Expected at least one photo or folder (got none).")
    return list(files)


def _expand(given: str) -> list[Path]:
    path = Path(given)
    if path.is_dir():
        files = _photos_below(path)
        if not files:
            raise InvalidInput(
                f"Expected photos in {path} (got a folder with none; known by their endings "
                f"{', '.join(SUFFIXES)})."
            )
        return files
    if path.exists():
        return [path]
    if not glob.has_magic(given):
        raise InvalidInput(
            f"Expected a photo or folder at {path} (got nothing there). Try its full path."
        )
    fitting = sorted((Path(each) for each in glob.glob(given, recursive=True)), key=_by_numbers)
    files = [
        file
        for each in fitting
        for file in (_photos_below(each) if each.is_dir() else [each])
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise InvalidInput(f"Expected photos that fit {given} (got none).")
    return files


def _photos_below(folder: Path) -> list[Path]:
    photos: list[Path] = []
    visited: set[str] = set()
    for where, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(where)
        if real in visited:  # A link back up would go round for ever.
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        photos += [
            Path(where, name)
            for name in files
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return sorted(photos, key=_by_numbers)


def _by_numbers(path: Path) -> list[list[tuple[int, int, str]]]:
    """Sorts digits by their value and the rest as text, folder by folder; the text breaks ties."""

    def key(part: str) -> list[tuple[int, int, str]]:
        pieces = filter(None, re.split(r"(\d+)", part))
        return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in pieces]

    return [key(part) for part in path.parts]


def _file(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f"Expected the path of a photo (got {type(path).__name__}).")
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(
            f"Expected a photo at {path} (got a folder). Try find_photos, or a file in it."
        )
    if not path.exists():
        got = "a link to nothing" if path.is_symlink() else "nothing there"
        raise InvalidInput(f"Expected a photo at {path} (got {got}). Try its full path.")
    if not path.is_file():  # Opening a pipe would wait for ever.
        raise InvalidInput(f"Expected a photo at {path} (got no regular file).")
    if path.stat().st_size == 0:
        raise InvalidFile(f"Expected a photo in {path} (got a file of zero bytes).")
    return path


def _opened(file: object, path: Path) -> Image.Image:
    """The image with its header read only."""
    pil = pillow()
    pil.Image.init()
    formats = [name for name in _FORMATS if name in pil.Image.OPEN]
    try:
        with _no_limit_of_pil(pil.Image):
            return pil.Image.open(file, formats=formats)  # type: ignore[no-any-return]
    except pil.UnidentifiedImageError as error:
        raise InvalidFile(
            f"Expected a photo in {path} (got {_kind(path)}). Try a JPEG, PNG or WebP file."
        ) from error
    except Exception as error:  # PIL's readers raise of every kind on headers that are damaged.
        raise InvalidFile(
            f"Expected a photo in {path} (got a file with a damaged header: {_said(error)})."
        ) from error


@contextlib.contextmanager
def _no_limit_of_pil(image: Any) -> Iterator[None]:
    """PIL warns above 89 and refuses above 179 megapixels; phones make photos of 200."""
    with _LIMIT:
        before, image.MAX_IMAGE_PIXELS = image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            image.MAX_IMAGE_PIXELS = before


def _check_pixels(image: Image.Image, path: Path) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise InvalidFile(
            f"Expected a photo of at most {MAX_PIXELS // 10**6} megapixels in {path} (got "
            f"{image.width:,} x {image.height:,}, {image.width * image.height // 10**6:,} "
            "megapixels). Try a smaller copy of it."
        )
    if 0 in image.size:
        raise InvalidFile(f"Expected a photo in {path} (got one without pixels).")


def _loaded(image: Image.Image, path: Path) -> Image.Image:
    """The image decoded, in at most `LARGE` pixels."""
    factor = 1
    if image.width * image.height > LARGE:
        factor = max(1, min(image.size) // (REDUCING_GAP * _SHORT_SIDE))
        image.draft(None, (image.width // factor, image.height // factor))
    try:
        image.load()
        if image.width * image.height > LARGE:
            return _reduced(image, factor)
    except MemoryError as error:
        raise InvalidFile(
            f"Expected a photo in {path} that fits into the memory (got {image.width:,} x "
            f"{image.height:,} pixels). Try a smaller copy of it."
        ) from error
    except Exception as error:  # PIL's decoders raise of every kind on data that is damaged.
        raise InvalidFile(
            f"Expected a whole photo in {path} (got one that is cut off or damaged: "
            f"{_said(error)}). Try getting the file again."
        ) from error
    return image


def _reduced(image: Image.Image, factor: int) -> Image.Image:
    # Of a long strip, whose short side is to stay as it is, no network sees more than the middle.
    longest = LARGE * factor**2 // min(image.size)
    width, height = min(image.width, longest), min(image.height, longest)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    small = reduced_rgb(image, factor, (left, top, left + width, top + height))
    if "exif" in image.info:  # It says how the photo is turned.
        small.info["exif"] = image.info["exif"]
    return small


def _upright(image: Image.Image) -> Image.Image:
    """A copy that does not need the file any more, turned as its EXIF data says."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # Cameras write broken EXIF in every way; the pixels are fine all the same.
        return image.copy()


def _kind(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(16)
    if start[4:8] == b"ftyp" and start[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"hevc"):
        return "HEIC, which Pillow does not read by itself"
    for magic, name in {b"%PDF": "a PDF", b"%!PS": "PostScript", b"PK": "a zip archive"}.items():
        if start.startswith(magic):
            return name
    return "a file in none of the formats of photos"


def _said(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
