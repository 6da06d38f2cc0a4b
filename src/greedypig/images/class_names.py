"""ImageNet's classes, classes by index, name or WordNet id, and the class in a file's path.

An unknown or ambiguous name is an error that lists the nearest classes.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import InvalidInput, InvalidType, listed

__all__ = ["class_names", "find_class", "label_of", "wordnet_ids"]

_WORDNET_ID = re.compile(r"n\d{8}", re.IGNORECASE)
_WORDNET_ID_IN_NAME = re.compile(r"(?<![A-Za-z0-9])n\d{8}(?![A-Za-z0-9])", re.IGNORECASE)
_NUMBERED = re.compile(r"imagenet_\d+_(\d{1,3})", re.IGNORECASE)
_SHOWN = 5
"""How many near or ambiguous classes an error lists."""


@functools.cache
def _columns() -> list[tuple[str, ...]]:
    table = importlib.resources.files(__package__).joinpath("imagenet_classes.tsv")
    rows = table.read_text(encoding="utf-8").splitlines()
    return list(zip(*(row.split("\t") for row in rows), strict=True))


def class_names() -> tuple[str, ...]:
    """ImageNet's names by class index. "crane" and "maillot" are two classes each."""
    return _columns()[2]


def wordnet_ids() -> tuple[str, ...]:
    """WordNet ids such as "n01440764" by class index; unique."""
    return _columns()[1]


def find_class(query: str | int, classes: Sequence[str] | None) -> int:
    """The index of the class called `query` among `classes`, the names in the order of the logits.

    query: an index (a number or its digits), a name, one of the synonyms of a name such as "tabby,
        tabby cat", or a WordNet id such as "n01440764" where `classes` are ImageNet's. Case
        matters only where nothing else tells two classes apart; "-" and "_" count as spaces.
    classes: None where the model does not name its classes: then only an index will do.
    """
    if isinstance(query, bool) or not isinstance(query, str | int):
        raise InvalidType(
            f"Expected a class as an index, a name or a WordNet id (got {type(query).__name__})."
        )
    text = str(query).strip()
    if re.fullmatch(r"[+-]?\d+", text):
        return _in_range(int(text), classes)
    if classes is None:
        raise InvalidInput(
            f"Expected the index of a class, as the model names none (got {query!r}). "
            'Try a number, or give the model an attribute "classes".'
        )
    if tuple(classes) == class_names() and text.lower() in wordnet_ids():
        return wordnet_ids().index(text.lower())
    wanted = _plain(text)
    whole = [i for i, name in enumerate(classes) if name == text]  # "Cardigan" is no cardigan.
    alike = [i for i, name in enumerate(classes) if _plain(name) == wanted]
    parts = [i for i, name in enumerate(classes) if wanted in map(_plain, name.split(","))]
    for indices in (whole, alike, parts):
        if len(indices) == 1:
            return indices[0]
        if indices:
            raise InvalidInput(
                f"Expected one class (got {query!r}, which {len(indices)} classes are called: "
                f"{_listed(indices, classes)}). Try its index."
            )
    near = _near(wanted, [_plain(name) for name in classes])
    hint = _listed(near, classes) if near else "its index"
    raise InvalidInput(
        f"Expected one of the model's {len(classes):,} classes (got {query!r}). Try {hint}."
    )


def label_of(path: str | os.PathLike[str]) -> int | None:
    """The ImageNet class in a photo's path, or None.

    In this order: a WordNet id in the file's name (`n01440764_10026.JPEG`,
    `ILSVRC2012_val_00000001_n01751748.JPEG`), the number at the end of `imagenet_14_129.jpg`, the
    nearest folder above whose name is a WordNet id (`n01440764/photo.jpg`). Ids outside the 1,000
    classes count as none.
    """
    path = Path(path)
    known = wordnet_ids()
    ids = _WORDNET_ID_IN_NAME.findall(path.stem)
    if not ids and (numbered := _NUMBERED.fullmatch(path.stem)):
        return int(numbered[1])
    ids = ids or [folder for folder in path.parent.parts if _WORDNET_ID.fullmatch(folder)]
    last = ids[-1].lower() if ids else None
    return known.index(last) if last in known else None


def _in_range(index: int, classes: Sequence[str] | None) -> int:
    if index < 0 or (classes is not None and index >= len(classes)):
        upto = f"from 0 to {len(classes) - 1}" if classes is not None else "of at least 0"
        raise InvalidInput(f"Expected a class index {upto} (got {index}).")
    return index


@functools.cache
def _plain(name: str) -> str:
    return " ".join(re.sub(r"[-_]", " ", name).casefold().split())


def _near(wanted: str, names: Sequence[str]) -> list[int]:
    """First the classes that hold the words of the query, then those spelled alike."""
    words = set(wanted.split())
    near = [i for i, name in enumerate(names) if words <= set(re.split(r"[ ,]+", name))]
    near += [names.index(name) for name in difflib.get_close_matches(wanted, names, n=_SHOWN)]
    return list(dict.fromkeys(near))


def _listed(indices: Sequence[int], classes: Sequence[str]) -> str:
    texts = [f'{i} "{classes[i]}"' for i in indices]
    if tuple(classes) == class_names():
        texts = [f"{text} ({wordnet_ids()[i]})" for text, i in zip(texts, indices, strict=True)]
    return listed(texts, _SHOWN)
