"""A model of the user's, as `greedypig select` asks it.

Retrained networks answer with one logit for a binary label, a logit for each of several classes, or
the standardised number. A model that answers otherwise (two logits, probabilities, the label's own
units, float64) is wrapped, so that its losses stand beside theirs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import Parameter, signature
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..tables import Batches, Label
from ..tables.column_checks import drop_words
from ..tables.losses import check_probabilities
from ..tables.row_batches import Numbers
from ..tables.schema import listed
from ..tables.training import answer_to
from .failures import UsageError

Outputs = Literal["logits", "probabilities"]
PROBED = 20
"""Batches from which the units of a number are seen."""
PLACES = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def batches_for(model: nn.Module, batches: Batches) -> Batches | Numbers:
    """Batches as the model takes them: numbers alone where there are no others."""
    given = signature(model.forward).parameters
    categories = [category.name for category in batches.schema.categories]
    if not categories:
        return batches if "gates" in given else Numbers(batches)
    places = [p for p in given.values() if p.kind in PLACES and p.name != "gates"]
    if len(places) < 2 and not any(p.kind is Parameter.VAR_POSITIONAL for p in given.values()):
        raise UsageError(
            "Expected a model that takes the numbers and the categories of a row, "
            f"forward(numeric, categorical) (got one input, and categories in "
            f"{listed(categories)}). Try --drop {drop_words(categories)} to rank the numbers alone."
        )
    return batches


def adapted(model: nn.Module, batches: Batches, outputs: Outputs) -> nn.Module:
    """The model itself where it answers as is expected, else a module around it."""
    label = batches.schema.label
    if outputs == "probabilities" and label.task == "number":
        raise UsageError("Expected --outputs logits for a number to predict (got probabilities).")
    found = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    module = model if found == torch.float32 else _around(model, lambda out: out, found)
    features, _ = next(iter(batches_for(model, batches)))
    with torch.no_grad():
        shape = _answer(module, features).shape
    two = label.task == "binary" and len(shape) == 2 and shape[1] == 2
    if outputs == "probabilities":
        return _around(module, _log_of(label, two))
    if two:
        return _around(module, _margin)
    if label.task == "number" and _in_own_units(module, batches, label):
        return _around(module, lambda out: (out - label.mean) / label.deviation)
    return module


def _margin(out: Tensor) -> Tensor:
    """The one logit of two: the same probabilities."""
    return out[:, 1] - out[:, 0]


def _log_of(label: Label, two: bool) -> Callable[[Tensor], Tensor]:
    def found(out: Tensor) -> Tensor:
        check_probabilities(out, "--outputs logits")
        if label.task == "binary" and not two:
            return torch.logit(out, eps=torch.finfo(out.dtype).eps / 2)
        logs = out.clamp_min(torch.finfo(out.dtype).tiny).log()
        return _margin(logs) if two else logs

    return found


def _in_own_units(model: nn.Module, batches: Batches, label: Label) -> bool:
    """Do the answers fit the label better as it stands than standardised?"""
    as_they_stand, standardised = 0.0, 0.0
    for features, labels in islice(batches_for(model, batches), PROBED):
        with torch.no_grad():
            out = _answer(model, features).double().cpu()
        if out.numel() != labels.numel():
            return False  # Told by the loss.
        out, labels = out.reshape(-1), labels.double().reshape(-1)
        standardised += float((out - labels).square().sum())
        as_they_stand += float(((out - label.mean) / label.deviation - labels).square().sum())
    if not as_they_stand < standardised:
        return False
    warnings.warn(
        f"The model's answers are taken as {label.name!r} in its own units: they fit it "
        "better than the standardised label, which the networks trained here predict.",
        stacklevel=2,
    )
    return True


def _answer(model: nn.Module, features: Any) -> Tensor:
    out = answer_to(model, features)
    if not isinstance(out, Tensor):
        raise UsageError(f"Expected the model to return a tensor (got {type(out).__name__}).")
    return out


def _around(
    model: nn.Module, convert: Callable[[Tensor], Tensor], dtype: torch.dtype | None = None
) -> nn.Module:
    gated = "gates" in signature(model.forward).parameters
    return (_GatedAround if gated else _Around)(model, convert, dtype)


class _Around(nn.Module):
    """A model whose answers are converted, and its inputs to its dtype where that is given."""

    def __init__(
        self, model: nn.Module, convert: Callable[[Tensor], Tensor], dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self.model, self.convert, self.dtype = model, convert, dtype

    def forward(self, *parts: Tensor) -> Tensor:
        return self._converted(self.model(*map(self._taken, parts)))

    def _taken(self, part: Tensor) -> Tensor:
        return part if self.dtype is None or not part.is_floating_point() else part.to(self.dtype)

    def _converted(self, out: Tensor) -> Tensor:
        return self.convert(out if self.dtype is None else out.float())


class _GatedAround(_Around):
    def forward(  # type: ignore[override]
        self, numeric: Tensor, categorical: Tensor, gates: Tensor | None = None
    ) -> Tensor:
        gates = None if gates is None else self._taken(gates)
        return self._converted(self.model(*map(self._taken, (numeric, categorical)), gates=gates))


__all__ = ["Outputs", "adapted", "batches_for"]
