"""What a result keeps of its example, so that figures and pages need no model: the input or its
picture, the names of the classes, and what the model predicts.

A model may say more about itself by two attributes: `classes`, the names of its outputs in order,
and `to_pixels`, a function from an input to its picture in [0, 1], (1 or 3, height, width).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, levels_to_caller
from ..core.question import FactsAndTensors
from ..network.names import class_names, model_name
from ..results.input_notes import ImageFacts, TensorFacts
from .inputs import Example

PREDICTIONS = 5
"""The most probable classes that a result names."""


def notes_of(model: Callable[..., Any], example: Example) -> FactsAndTensors:
    """Facts: the model's name; for a classifier the class, its probability and the most probable
    others. Tensors: the picture of the input and that of its baseline; else the input itself."""
    picture = _picture(model, example)
    if picture is None:
        facts, tensors = TensorFacts(model=model_name(model)), {"x": example.x}
    else:
        facts = ImageFacts(model=model_name(model))
        tensors = dict(zip(("picture", "baseline"), picture, strict=True))
    if not example.reference.classes:
        return facts, tensors
    target = example.reference.target
    probabilities = torch.softmax(example.reference.output.double(), 0).cpu()
    names = class_names(model, len(probabilities))
    best = probabilities.topk(min(PREDICTIONS, len(probabilities)))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    classified = replace(
        facts,
        label=names[target],
        target=target,
        probability=float(probabilities[target]),
        predictions=tuple((names[i], p) for i, p in rows),
    )
    return classified, tensors


def _picture(model: Callable[..., Any], example: Example) -> tuple[Tensor, Tensor] | None:
    """(height, width, 3) levels from 0 to 255 of a picture and of its baseline, else None.

    A model without `to_pixels` leaves the range of its input open: one within [0, 1] is drawn as it
    is, any other from its lowest value to its highest.
    """
    shape = example.layout.shapes[0]
    if len(example.layout.shapes) != 1 or len(shape) != 3:
        return None
    x, absent = (flat.view(shape) for flat in (example.x, example.baselines.mean(0)))
    if callable(own := getattr(model, "to_pixels", None)):
        try:
            with torch.no_grad():
                return levels(own(x), shape), levels(own(absent), shape)
        except Exception as error:  # An explanation does not depend on its picture.
            warnings.warn(
                f"The model's to_pixels failed, so the picture shows the input's lowest value as "
                f"black and its highest as white: {error}",
                stacklevel=levels_to_caller(),
            )
    if shape[0] not in (1, 3):
        return None
    low, high = float(x.min()), float(x.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    x, absent = ((t - low) / max(high - low, 1e-30) for t in (x, absent))
    return levels(x, shape), levels(absent, shape)


def levels(pixels: Any, shape: tuple[int, ...]) -> Tensor:
    """(height, width, 3) levels from 0 to 255 of the pixels of an input of this shape."""
    fits = isinstance(pixels, Tensor) and pixels.ndim == 3 and pixels.shape[0] in (1, 3)
    if not fits or pixels.shape[1:] not in (shape[1:], shape[:2]):
        got = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
        raise InvalidInput(
            f"Expected the model's to_pixels to give a picture (1 or 3, height, width) in [0, 1] "
            f"for an input of shape {shape} (got {got})."
        )
    whole = pixels.detach().clamp(0, 1).mul(255).round().to(torch.uint8)
    picture: Tensor = whole.expand(3, -1, -1).permute(1, 2, 0).cpu()
    return picture
