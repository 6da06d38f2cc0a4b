"""The 1,000 classes of ImageNet in the order of every network here: names and WordNet ids."""

from __future__ import annotations

import functools
import importlib.resources

__all__ = ["class_names", "wordnet_ids"]


@functools.cache
def _columns() -> list[tuple[str, ...]]:
    table = importlib.resources.files(__package__).joinpath("imagenet_classes.tsv")
    rows = table.read_text(encoding="utf-8").splitlines()
    return list(zip(*(row.split("\t") for row in rows), strict=True))


def class_names() -> tuple[str, ...]:
    """Names by class index. Two are not unique: "crane" and "maillot" are two classes each."""
    return _columns()[2]


def wordnet_ids() -> tuple[str, ...]:
    """WordNet ids such as "n01440764" by class index; unique."""
    return _columns()[1]
