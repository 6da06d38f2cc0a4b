"""A trained model of the caller's: the columns that it knows, what it takes, what it returns."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import NAMED, Argument, InvalidFile, InvalidInput, InvalidType, quoted
from .losses import as_logits
from .row_batches import Batches
from .schema import Label, Schema
from .training import answer_to, evaluate


def schema_of(model: nn.Module, schema: Schema) -> Schema:
    """The schema that the model brings, for the label of this table; else the table's own."""
    given = getattr(model, "schema", None)
    if isinstance(given, str | Path):
        try:
            given = Schema.from_json(Path(given).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidFile(f"Expected the model's schema in {given} (got: {error}).") from error
    if not isinstance(given, Schema):
        return schema
    schema.only(given.names)  # Says which column is missing here.
    return replace(given, label=_label_of(given.label, schema.label))


def _label_of(given: Label, label: Label) -> Label:
    """The label as the model knows it: the order of its classes, the scale of its number.

    The table's own where it is another column.
    """
    if given.name != label.name:
        return label
    unknown = [value for value in label.values if value not in given.values]
    if unknown or (given.task == "number") != (label.task == "number"):
        got = repr(unknown[0][:40]) if given.values and unknown else label.in_words()
        raise InvalidInput(
            f"Expected the label {label.name!r} as in the model's schema, {given.in_words()} (got "
            f"{got}).",
            advice=("Try rows without it, or ", Argument("task"), "."),
        )
    shares = dict(zip(label.values, label.shares, strict=True)) if label.shares else {}
    return replace(given, shares=tuple(shares.get(value, 0.0) for value in given.values))


def batches_for(model: nn.Module, batches: Batches) -> Batches:
    """Batches as the model takes them: numbers alone where there are no others."""
    parameters = signature(model.forward)
    categories = [category.name for category in batches.schema.categories]
    if not categories:
        return batches if "gates" in parameters.parameters else batches.numbers_alone()
    try:
        parameters.bind("numeric", "categorical")
    except TypeError:
        drop = Argument("drop", tuple(categories[:NAMED]))
        raise InvalidInput(
            "Expected a model that takes the numbers and the categories of a row, "
            "forward(numeric, categorical) (got one input, and categories in "
            f"{quoted(categories)}).",
            advice=("Try ", drop, " to rank the numbers alone."),
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
        raise InvalidType(f"Expected the model to return a tensor (got {type(example).__name__}).")
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
