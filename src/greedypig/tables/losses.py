"""Losses of a model's outputs, one number per row: what post-hoc selection makes small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..core.two_sided import TwoSided

ROUNDED = 1e-3
"""How far rounding may carry a probability beyond 0 and 1."""
CLASSES = 50
"""A label of whole numbers with at most so many different ones is one of classes."""
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(outputs, labels) → one loss per row (rows,), or their mean as a single number."""


def binary_cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """−log p(label), p = sigmoid(output); labels 0 and 1, or shares in between."""
    logits = _single(outputs)
    labels = labels.reshape(-1).to(logits)
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """−log softmax(outputs)[label]; labels are classes 0 … C − 1."""
    if outputs.dim() != 2 or outputs.shape[1] < 2:
        raise InvalidInput(
            f"Expected outputs (rows, classes) for loss='cross-entropy' "
            f"(got shape {tuple(outputs.shape)}). Try loss='binary-cross-entropy'."
        )
    classes = labels.reshape(-1).long()
    if classes.numel() and int(classes.max()) >= outputs.shape[1]:
        raise InvalidInput(
            f"Expected classes 0 … {outputs.shape[1] - 1}, one for each output "
            f"(got {int(classes.max())})."
        )
    return functional.cross_entropy(outputs, classes, reduction="none")


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ over the outputs of (output − label)²."""
    rows = outputs.shape[0]
    gaps = outputs.reshape(rows, -1) - labels.reshape(rows, -1).to(outputs)
    return gaps.square().sum(1)


LOSSES: dict[str, Loss] = {
    "binary-cross-entropy": binary_cross_entropy,
    "cross-entropy": cross_entropy,
    "squared-error": squared_error,
}


def as_logits(outputs: Tensor, instead: str = "outputs='logits'") -> Tensor:
    """Logits with these probabilities, of one class or of all. instead: what to try for others."""
    low, high = (float(v) for v in torch.aminmax(outputs.detach()))
    if low < -ROUNDED or high > 1 + ROUNDED:
        raise InvalidInput(
            f"Expected probabilities from 0 to 1 (got {low:.3g} to {high:.3g}). Try {instead}."
        )
    if outputs.dim() == 2 and outputs.shape[1] > 1:
        return outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
    # As near to 0 and 1 as the numbers get on both sides.
    return torch.logit(outputs, eps=torch.finfo(outputs.dtype).eps / 2)


OF_PROBABILITIES: dict[str, Loss] = {
    "binary-cross-entropy": lambda out, labels: binary_cross_entropy(as_logits(out), labels),
    "cross-entropy": lambda out, labels: cross_entropy(as_logits(out), labels),
}
"""The same losses of a model that ends in a sigmoid or a softmax."""


LossLike: TypeAlias = str | TwoSided | Callable[[Tensor, Tensor], Tensor] | None
"""A loss by name, a function (outputs, labels) → one loss per row, or either one two-sided."""


def resolve(loss: Any, outputs: str = "logits") -> tuple[str, Loss]:
    """The name and the function of a loss given by name or as a callable.

    outputs: "logits", or "probabilities" of a model that ends in a sigmoid or a softmax.
    """
    if outputs not in ("logits", "probabilities"):
        raise InvalidInput(f"Expected outputs to be 'logits' or 'probabilities' (got {outputs!r}).")
    if outputs == "logits" and callable(loss):
        return str(getattr(loss, "__qualname__", type(loss).__qualname__)), loss
    known = OF_PROBABILITIES if outputs == "probabilities" else LOSSES
    if not isinstance(loss, str) or loss not in known:
        raise InvalidInput(
            f"Expected loss to be one of {', '.join(known)} for outputs={outputs!r}, or for logits "
            f"a callable (got {loss!r}).{did_you_mean(str(loss), known)}"
        )
    return f"{loss} of probabilities" if outputs == "probabilities" else loss, known[loss]


def check_outputs(outputs: Any, rows: int) -> None:
    """Refuse what is no tensor of one output per row."""
    if not isinstance(outputs, Tensor):
        raise InvalidType(f"Expected the model to return a tensor (got {type(outputs).__name__}).")
    if outputs.dim() == 0 or outputs.shape[0] != rows:
        raise InvalidInput(
            f"Expected one output per row, {rows} of them (got shape {tuple(outputs.shape)})."
        )


def per_row(loss: Loss, outputs: Any, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """(rows,) losses, whatever the loss returns, each times its row's weight."""
    rows = labels.shape[0]
    check_outputs(outputs, rows)
    losses = loss(outputs, labels)
    if not isinstance(losses, Tensor) or losses.shape not in ((), (rows,)):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidInput(f"Expected a loss per row, ({rows},), or their mean (got {got}).")
    if weights is None:
        return losses.expand(rows)
    if not losses.dim():
        raise InvalidInput(
            "Expected a loss per row for rows with weights (got their mean). Try reduction='none'."
        )
    return losses * weights.to(losses)


def check_labels(name: str, labels: Tensor) -> None:
    """Refuse labels that the loss cannot take, by what is wrong with them."""
    name = name.removesuffix(" of probabilities")
    if labels.is_floating_point() and not bool(torch.isfinite(labels).all()):
        raise InvalidInput("Expected finite labels (got NaN or infinity in the label column).")
    low, high = labels.min().item(), labels.max().item()
    if name == "binary-cross-entropy" and (low < 0 or high > 1):
        raise InvalidInput(
            f"Expected labels 0 and 1 for loss={name!r} (got from {low:g} to {high:g}). "
            "Try loss='cross-entropy' or loss='squared-error'."
        )
    if name == "cross-entropy" and (low < 0 or bool((labels != labels.round()).any())):
        raise InvalidInput(
            f"Expected classes 0, 1, 2, … for loss={name!r} (got labels from {low:g} to {high:g})."
        )


def _single(outputs: Tensor) -> Tensor:
    if outputs.dim() == 2 and outputs.shape[1] == 1:
        return outputs.squeeze(1)
    if outputs.dim() != 1:
        raise InvalidInput(
            "Expected one output per row for loss='binary-cross-entropy' "
            f"(got shape {tuple(outputs.shape)}). Try loss='cross-entropy'."
        )
    return outputs
