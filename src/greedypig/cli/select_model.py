"""A model of the user's, as `greedypig select` calls it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.errors import NAMED, quoted
from ..tables import Batches, Label
from ..tables.losses import check_probabilities
from ..tables.row_batches import Numbers
from ..tables.training import answer_to
from .failures import UsageError

Outputs = Literal["logits", "probabilities"]
PROBED = 20
"""Batches from which the units of a number are found."""
PLACES = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def option_value(names: Sequence[str]) -> str:
    """Names as --drop and --keep take them: with commas between, those that hold one in quotes."""
    return shlex.quote(",".join(f'"{n}"' if "," in n else n for n in names[:NAMED]))


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
            "forward(numeric, categorical) (got one input, and categories in "
            f"{quoted(categories)}). Try --drop {option_value(categories)} to rank the numbers "
            "alone."
        )
    return batches


def adapted(model: nn.Module, batches: Batches, outputs: Outputs) -> nn.Module:
    """The model itself where it returns what networks trained here do, else a module around it.

    Those return one logit for a binary label, a logit for each of several classes, or the
    standardised number. A model that returns something else (two logits, probabilities, the
    label's own units, float64) is wrapped, so that its losses can be compared with theirs.
    """
    label = batches.schema.label
    if outputs == "probabilities" and label.task == "number":
        raise UsageError("Expected --outputs logits for a number to predict (got probabilities).")
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    module = model if own == torch.float32 else _around(model, lambda out: out, own)
    features, _ = next(iter(batches_for(model, batches)))
    with torch.no_grad():
        shape = _answer(module, features).shape
    two = label.task == "binary" and len(shape) == 2 and shape[1] == 2
    if outputs == "probabilities":
        return _around(module, _log_of(label, two))
    if two:
        return _around(module, _margin)
    if label.task == "number" and _in_own_units(module, batches, label):
        scaled = _around(module, lambda out: (out - label.mean) / label.deviation)
        scaled.note = (
            f"The model's outputs are taken as {label.name!r} in its own units: they fit it better "
            "than the standardised label, which the networks trained here predict."
        )
        return scaled
    return module


def _margin(out: Tensor) -> Tensor:
    """The one logit of two: the same probabilities."""
    return out[:, 1] - out[:, 0]


def _log_of(label: Label, two: bool) -> Callable[[Tensor], Tensor]:
    def logits(out: Tensor) -> Tensor:
        check_probabilities(out, "--outputs logits")
        if label.task == "binary" and not two:
            return torch.logit(out, eps=torch.finfo(out.dtype).eps / 2)
        logs = out.clamp_min(torch.finfo(out.dtype).tiny).log()
        return _margin(logs) if two else logs

    return logits


def _in_own_units(model: nn.Module, batches: Batches, label: Label) -> bool:
    """Do the outputs fit the label better as it stands than standardised?"""
    as_they_stand, standardised = 0.0, 0.0
    for features, labels in islice(batches_for(model, batches), PROBED):
        with torch.no_grad():
            out = _answer(model, features).double().cpu()
        if out.numel() != labels.numel():
            return False  # The loss will say so.
        out, labels = out.reshape(-1), labels.double().reshape(-1)
        standardised += float((out - labels).square().sum())
        as_they_stand += float(((out - label.mean) / label.deviation - labels).square().sum())
    return as_they_stand < standardised


def _answer(model: nn.Module, features: Any) -> Tensor:
    out = answer_to(model, features)
    if not isinstance(out, Tensor):
        raise UsageError(f"Expected the model to return a tensor (got {type(out).__name__}).")
    return out


def _around(
    model: nn.Module, convert: Callable[[Tensor], Tensor], dtype: torch.dtype | None = None
) -> _Around:
    gated = "gates" in signature(model.forward).parameters
    return (_GatedAround if gated else _Around)(model, convert, dtype)


class _Around(nn.Module):
    """A model whose outputs are converted, and its inputs to its dtype where that is given."""

    def __init__(
        self, model: nn.Module, convert: Callable[[Tensor], Tensor], dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self.model, self.convert, self.dtype = model, convert, dtype
        self.note = ""

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
