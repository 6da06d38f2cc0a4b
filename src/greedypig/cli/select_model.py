"""A model of the user's in `greedypig select`: its schema, its inputs and its outputs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import NAMED, quoted
from ..tables import Batches, Label, Schema, evaluate
from ..tables.losses import as_logits
from ..tables.training import answer_to
from .failures import UsageError


def own_schema(model: nn.Module, schema: Schema) -> Schema:
    """The schema that the model brings, if it brings one, for the label of this table."""
    own = getattr(model, "schema", None)
    if isinstance(own, str | Path):
        own = Schema.from_json(Path(own).read_text())
    if not isinstance(own, Schema):
        return schema
    schema.only(own.names)  # Says which column is missing here.
    return replace(own, label=_own_label(own.label, schema.label))


def _own_label(own: Label, label: Label) -> Label:
    """The label as the model knows it: the order of its classes, the scale of its number.

    The table's own where it is another column.
    """
    if own.name != label.name:
        return label
    unknown = [value for value in label.values if value not in own.values]
    if unknown or (own.task == "number") != (label.task == "number"):
        got = repr(unknown[0][:40]) if own.values and unknown else label.in_words()
        raise UsageError(
            f"Expected the label {label.name!r} as in the model's schema, {own.in_words()} (got "
            f"{got}). Try rows without it, or --task."
        )
    shares = dict(zip(label.values, label.shares, strict=True)) if label.shares else {}
    return replace(own, shares=tuple(shares.get(value, 0.0) for value in own.values))


def batches_for(model: nn.Module, batches: Batches) -> Batches:
    """Batches as the model takes them: numbers alone where there are no others."""
    parameters = signature(model.forward)
    categories = [category.name for category in batches.schema.categories]
    if not categories:
        return batches if "gates" in parameters.parameters else batches.numbers_alone()
    try:
        parameters.bind("numeric", "categorical")
    except TypeError:
        raise UsageError(
            "Expected a model that takes the numbers and the categories of a row, "
            "forward(numeric, categorical) (got one input, and categories in "
            f"{quoted(categories)}). Try --drop {option_value(categories)} to rank the numbers "
            "alone."
        ) from None
    return batches


def adapt(model: nn.Module, batches: Batches) -> str:
    """Make the model return what networks trained here do, by a hook; returns a note or "".

    Those return one logit for a binary label, a logit for each of several classes, or the
    standardised number. Other models return two logits, probabilities (their attribute `outputs`
    says so), or the label's own units.
    """
    label, rows = batches.schema.label, batches_for(model, batches)
    with torch.no_grad():
        example = answer_to(model, rows[0][0])
    if not isinstance(example, Tensor):
        raise UsageError(f"Expected the model to return a tensor (got {type(example).__name__}).")
    if label.task == "number":
        return _standardise(model, rows)
    probabilities = getattr(model, "outputs", "") == "probabilities"
    two = label.task == "binary" and example.dim() == 2 and example.shape[1] == 2

    def convert(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        if probabilities:
            out = as_logits(out, "a model without the attribute outputs = 'probabilities'")
        # One logit with the same probabilities.
        return out[:, 1] - out[:, 0] if two else out

    if two or probabilities:
        model.register_forward_hook(convert)
    return ""


def _standardise(model: nn.Module, rows: Batches) -> str:
    """Standardise the outputs if they fit the label's own units better; returns a note or ""."""
    label, loss = rows.schema.label, evaluate(model, rows).loss
    hook = model.register_forward_hook(lambda *call: (call[-1] - label.mean) / label.deviation)
    if evaluate(model, rows).loss >= loss:
        hook.remove()
        return ""
    return (
        f"The model's outputs are taken as {label.name!r} in its own units: they fit it better "
        "than the standardised label, which the networks trained here predict."
    )


def option_value(names: Sequence[str]) -> str:
    """Names as --drop takes them: with commas between, those that hold one in quotes."""
    return shlex.quote(",".join(f'"{n}"' if "," in n else n for n in names[:NAMED]))
