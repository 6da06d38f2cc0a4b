"""Training a network on batches of a table, and evaluating it on validation rows.

Adam. Training ends after `patience` checks in a row without a smaller validation loss; after each
quarter of them the rate is halved. The result is the network with the least validation loss.

A small table gets more checks, because its epochs have few steps and its validation loss is noisy,
and more weight decay against overfitting. The numbers were chosen on scikit-learn's breast_cancer
and wine and on generated tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from math import ceil, isfinite
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import NonFinite
from .losses import per_row, resolve
from .row_batches import Batches, Numbers
from .schema import Schema
from .schema_inference import Moments
from .stream import seed_from
from .tabular_mlp import TabularMLP

EPOCHS, STEPS = 20, 3000
"""At most so many epochs, unless they are fewer steps than that."""
RATE = 1e-3
PATIENCE, MOST_PATIENCE, PATIENT_ROWS = 2, 20, 20_000
"""Checks without a smaller loss: as many as see PATIENT_ROWS rows, between these two."""
CHECK = 200_000
"""Validation follows every epoch, and every so many rows within a long one."""
DECAY, MOST_DECAY, DECAY_ROWS, STEADY = 1e-5, 1e-2, 3.0, 10_000
"""Weight decay is DECAY with STEADY rows, with fewer about DECAY_ROWS / rows."""

UNSEEN = 0.5
"""Rows that a class counts for which only the others have: its loss would be infinite."""

Progress = Callable[[float], object]


@dataclass(frozen=True)
class Effort:
    """How long and how a network is trained."""

    epochs: int | None = None
    """At most; None means 20, and for a small table so many that they are 3,000 steps."""
    rate: float = RATE
    patience: int | None = None
    """Stop after so many checks without a smaller loss; None means 2, and up to 20 for a table of
    fewer than 10,000 rows."""
    check: int = CHECK
    decay: float | None = None
    """Weight decay; None means 1e-5, and up to 0.01 for a table of fewer than 10,000 rows."""

    def longest(self, train: Batches) -> int:
        """Epochs at most."""
        return self.epochs or max(EPOCHS, ceil(STEPS / len(train)))

    def waits(self, train: Batches) -> int:
        """Checks without a smaller loss, at most."""
        if self.patience is not None:
            return self.patience
        return max(PATIENCE, min(MOST_PATIENCE, round(PATIENT_ROWS / train.rows)))

    def weight_decay(self, train: Batches) -> float:
        """Adam's weight decay."""
        if self.decay is not None:
            return self.decay
        falling = DECAY_ROWS / train.rows * (1 - train.rows / STEADY)
        return max(DECAY, min(MOST_DECAY, falling))


@dataclass(frozen=True)
class Scores:
    """How good a network is on rows."""

    loss: float
    """Mean log-loss, or squared error in the label's own units."""
    accuracy: float | None
    """Share of right classes; None for a number."""
    rows: int


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network, and what its training took."""

    model: nn.Module
    scores: Scores
    """On the validation rows that also ended the training."""
    rows: int
    """Rows that were learned from, counted each time."""
    checks: int
    seconds: float


def new_network(
    schema: Schema, *, seed: int = 0, at_rate: bool = True, indicators: bool = True
) -> TabularMLP:
    """The default network for a table's columns, with fresh weights drawn by the seed.

    indicators: numbers with missing values have a missing indicator.
    at_rate: its output before training is the shares of the classes. A network that must learn a
    rare class's rate learns it from any column, noise too, and that column then looks useful.
    """
    gaps = schema.gaps if indicators else ()
    network = TabularMLP(
        len(schema.numbers), schema.sizes, outputs=schema.outputs, gaps=gaps, seed=seed
    )
    if at_rate and schema.label.shares:
        network.start_at(schema.label.shares)
    return network


def train_network(
    model: nn.Module,
    train: Batches,
    valid: Batches,
    *,
    effort: Effort | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trained:
    """Train a copy of `model`; neither it nor the global random state is touched.

    progress: called with the epochs that are done, in parts of one.
    """
    effort = effort or Effort()
    _, loss = resolve(train.schema.loss)
    model = deepcopy(model).train().requires_grad_(True)
    device = next(model.parameters()).device
    optimiser = torch.optim.Adam(
        model.parameters(), lr=effort.rate, weight_decay=effort.weight_decay(train)
    )
    patience, every = max(1, effort.waits(train)), max(1, min(effort.check, train.rows))
    steps = effort.longest(train) * len(train)
    began, rows, since, checks, worse = monotonic(), 0, 0, 0, 0
    best: Scores | None = None
    for step, i in enumerate(_endless(train, seed), 1):
        (numeric, categorical), label = train[i]
        outputs = model(numeric.to(device), categorical.to(device))
        optimiser.zero_grad(set_to_none=True)
        per_row(loss, outputs, label.to(device)).mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        rows, since = rows + len(label), since + len(label)
        if progress is not None:
            progress(rows / train.rows)
        if since < every and step < steps:
            continue
        since, checks = 0, checks + 1
        scores = evaluate(model, valid)
        if best is None or scores.loss < best.loss:
            best, worse = scores, 0
            weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        else:
            worse += 1
            if worse % max(1, patience // 4) == 0:
                for group in optimiser.param_groups:
                    group["lr"] *= 0.5
        if worse >= patience or step == steps:
            break
    assert best is not None
    model.load_state_dict(weights)
    optimiser.zero_grad(set_to_none=True)
    return Trained(model.eval().requires_grad_(False), best, rows, checks, monotonic() - began)


def _endless(train: Batches, seed: int) -> Iterator[int]:
    """The numbers of the batches, epoch after epoch."""
    for epoch in count():
        yield from train.order(seed_from(seed, epoch)).tolist()


def evaluate(model: nn.Module, batches: Batches | Numbers) -> Scores:
    """Mean loss over all rows, and accuracy for classes; the model's mode is as it was."""
    schema = batches.schema
    _, per_example = resolve(schema.loss)
    before, total, right, rows = model.training, 0.0, 0, 0
    model.eval()
    try:
        with torch.no_grad():
            for features, label in batches:
                out, label = answer_to(model, features), label.to(_device(model))
                total += float(per_row(per_example, out, label).double().sum())
                right += _right(out, label, schema.label.task)
                rows += len(label)
    finally:
        model.train(before)
    if not isfinite(total):
        raise NonFinite(
            "Expected a finite validation loss (got NaN or infinity). Try a smaller learning rate."
        )
    number = schema.label.task == "number"
    scale = schema.label.deviation**2 if number else 1.0
    return Scores(scale * total / rows, None if number else right / rows, rows)


def answer_to(model: nn.Module, features: Tensor | Sequence[Tensor]) -> Any:
    """What a model says to the features of a batch, wherever it lies."""
    parts = (features,) if isinstance(features, Tensor) else features
    return model(*(part.to(_device(model)) for part in parts))


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _right(out: Tensor, label: Tensor, task: str) -> int:
    if task == "number":
        return 0
    classes: Any = out.reshape(-1) > 0 if task == "binary" else out.argmax(1)
    return int((classes.to(label.dtype) == label).sum())


@dataclass(frozen=True)
class Constant:
    """What a network has to beat: the same prediction for every row, from the labels alone."""

    loss: float
    """Mean log-loss, or squared error in the label's own units."""
    accuracy: float | None
    """Share of the rows in the training rows' most frequent class; None for a number."""
    variance: float | None
    """Variance of a number on the validation rows, for R²; None for classes."""


def constant_answer(train: Batches, valid: Batches) -> Constant:
    """The rates of the classes (or the mean) in `train`, validated on `valid`, from labels alone.

    loss = −Σ_c q_c · log p_c with the rates p of `train` and q of `valid`; of a number it is
    variance + (mean of `train` − mean of `valid`)².
    """
    label = train.schema.label
    if label.task == "number":
        learned, other = Moments(), Moments()
        for batches, moments in ((train, learned), (valid, other)):
            for _, labels in batches.only(()):
                moments.add(labels.double().numpy())
        scale = label.deviation**2
        variance = scale * other.variance
        return Constant(variance + scale * (learned.mean - other.mean) ** 2, None, variance)
    counts, there = _counts(train), _counts(valid)
    known = np.where((counts == 0) & (there > 0), UNSEEN, counts)
    rates, shares = known / known.sum(), there / there.sum()
    loss = -float(sum(q * np.log(p) for p, q in zip(rates, shares, strict=True) if q > 0))
    return Constant(loss, float(shares[int(counts.argmax())]), None)


def _counts(batches: Batches) -> NDArray[np.float64]:
    """Rows of each class."""
    classes = len(batches.schema.label.values)
    total = np.zeros(classes)
    for _, label in batches.only(()):
        total += np.bincount(label.long().numpy(), minlength=classes)
    return total
