"""The 1,000 classes of ImageNet in the order of every network here: names and WordNet ids."""

from __future__ import annotations

import functools
import importlib.resources

__all__ = ["class_names", "wordnet_ids"]


@functools.cache
def _rows() -> tuple[tuple[str, ...], ...]:
    table = importlib.resources.files("greedypig.images.networks").joinpath("imagenet_classes.tsv")
    return tuple(tuple(row.split("\t")) for row in table.read_text(encoding="utf-8").splitlines())


@functools.cache
def class_names() -> tuple[str, ...]:
    """Names by class index. Two are not unique: "crane" and "maillot" are two classes each."""
    return tuple(name for _, _, name in _rows())


@functools.cache
def wordnet_ids() -> tuple[str, ...]:
    """WordNet ids such as "n01440764" by class index; unique."""
    return tuple(wordnet_id for _, wordnet_id, _ in _rows())
