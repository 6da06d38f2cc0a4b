"""A second network that judges an explanation: does it mean the same classes, and how does it see
the explained model's inputs?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..network.fingerprint import fingerprint

Translate = Callable[[Tensor], Tensor]
"""Inputs (m, …) of the explained model → the same pictures as inputs of its judge."""


def check_same_classes(model: Any, judge: Any, name: str = "the model") -> None:
    """Refuse a judge of other classes: it is asked about a class by its index."""
    own, theirs = (getattr(each, "classes", None) for each in (model, judge))
    named = isinstance(own, list | tuple) and isinstance(theirs, list | tuple)
    if named and list(own) != list(theirs):  # type: ignore[arg-type]
        raise InvalidInput(
            f"Expected a judge with the classes of {name}, in the same order (got others)."
        )


def check_judge(name: str, model: Any, judge_name: str, judge: Any) -> None:
    """Refuse a judge of other classes, and one that is the explained network itself."""
    check_same_classes(model, judge, name)
    if fingerprint(judge) == fingerprint(model):
        raise InvalidInput(
            "Expected another network than the explained one for a second opinion (got "
            f"{judge_name} with the same weights for both)."
        )


def translation(model: Any, judge: Any) -> Translate | None:
    """The way from the model's inputs to its judge's, where both know their preprocessing.

    Each picture passes through pixels in [0, 1], and is resized where the judge's `input_size`
    for it is another. None where the judge takes the same tensor.
    """
    to_pixels = getattr(model, "to_pixels", None)
    from_pixels = getattr(judge, "from_pixels", None)
    if judge is model or not callable(to_pixels) or not callable(from_pixels):
        return None

    def translate(images: Tensor) -> Tensor:
        pixels = to_pixels(images)
        shape = (images.shape[-2], images.shape[-1])
        # Only pictures of the model's own input size are resized to the judge's.
        size = _input_size(judge, shape) if _input_size(model, shape) == shape else shape
        if size != shape:
            pixels = torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        return from_pixels(pixels)  # type: ignore[no-any-return]

    return translate


def name_of(judge: Any) -> str:
    """What the judge is called in a curve's settings."""
    return str(getattr(judge, "name", None) or getattr(judge, "__qualname__", type(judge).__name__))


def _input_size(model: Any, shape: tuple[int, int]) -> tuple[int, int]:
    """Height and width that the model's own preprocessing gives a picture of this shape."""
    input_size = getattr(model, "input_size", None)
    return tuple(input_size(*shape)) if callable(input_size) else shape
