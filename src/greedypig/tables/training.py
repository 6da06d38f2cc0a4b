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
from torch import Tensor, nn

from ..core.errors import NonFinite
from ..results.table_notes import Constant
from .losses import LOSSES, per_row
from .row_batches import Batches
from .schema import Schema
from .schema_inference import Moments
from .stream import seed_from
from .tabular_mlp import TabularMLP

EPOCHS, STEPS = 20, 3000
"""At most so many epochs, unless they are fewer steps than that."""
PATIENCE, MOST_PATIENCE, PATIENT_ROWS = 2, 20, 20_000
"""Checks without a smaller loss: as many as see PATIENT_ROWS rows, between these two."""
CHECK = 200_000
"""Validation follows every epoch, and every so many rows within a long one."""
DECAY, MOST_DECAY, DECAY_ROWS, STEADY = 1e-5, 1e-2, 3.0, 10_000
"""Weight decay is DECAY with STEADY rows, with fewer about DECAY_ROWS / rows."""
UNSEEN = 0.5
"""Rows that a class counts for which only the others have: its loss would be infinite."""

Progress = Callable[[float], object]
"""Called with the epochs that are done, in parts of one."""


@dataclass(frozen=True)
class Effort:
    """How long and how a network is trained."""

    epochs: int | None = None
    """At most; None means 20, and for a small table so many that they are 3,000 steps."""
    rate: float = 1e-3
    patience: int | None = None
    """Stop after so many checks without a smaller loss; None means 2, and up to 20 for a table of
    fewer than 10,000 rows."""

    def longest(self, train: Batches) -> int:
        """Epochs at most."""
        return self.epochs or max(EPOCHS, ceil(STEPS / len(train)))

    def waits(self, train: Batches) -> int:
        """Checks without a smaller loss, at most."""
        usual = max(PATIENCE, min(MOST_PATIENCE, round(PATIENT_ROWS / train.rows)))
        return usual if self.patience is None else max(1, self.patience)

    def weight_decay(self, train: Batches) -> float:
        """Adam's weight decay: 1e-5, and up to 0.01 for a table of fewer than 10,000 rows."""
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
    """Train a copy of `model`; neither it nor the global random state is touched."""
    effort = effort or Effort()
    loss = LOSSES[train.schema.loss]
    model = deepcopy(model).train().requires_grad_(True)
    optimiser = torch.optim.Adam(
        model.parameters(), lr=effort.rate, weight_decay=effort.weight_decay(train)
    )
    patience, every = effort.waits(train), max(1, min(CHECK, train.rows))
    steps = effort.longest(train) * len(train)
    began, rows, since, checks, worse = monotonic(), 0, 0, 0, 0
    best: Scores | None = None
    for step, i in enumerate(_endless(train, seed), 1):
        features, label = train[i]
        outputs = answer_to(model, features)
        optimiser.zero_grad(set_to_none=True)
        mean = per_row(loss, outputs, label.to(outputs.device)).mean()
        mean.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        rows, since = rows + len(label), since + len(label)
        if progress is not None:
            progress(rows / train.rows)
        if since < every and step < steps:
            continue
        since, checks = 0, checks + 1
        scores = evaluate(model, valid)
        if best is None or scores.loss < best.loss:
            best, worse, weights = scores, 0, deepcopy(model.state_dict())
        else:
            worse += 1
            if worse % max(1, patience // 4) == 0:
                for group in optimiser.param_groups:
                    group["lr"] *= 0.5
        if worse >= patience or step == steps:
            break
    assert best is not None
    model.load_state_dict(weights)
    model.zero_grad(set_to_none=True)
    return Trained(model.eval().requires_grad_(False), best, rows, checks, monotonic() - began)


def _endless(train: Batches, seed: int) -> Iterator[int]:
    """The numbers of the batches, epoch after epoch."""
    for epoch in count():
        yield from train.order(seed_from(seed, epoch)).tolist()


def evaluate(model: nn.Module, batches: Batches) -> Scores:
    """Mean loss over all rows, and accuracy for classes; the model's mode is as it was."""
    label, loss = batches.schema.label, LOSSES[batches.schema.loss]
    was_training, total, right, rows = model.training, 0.0, 0, 0
    model.eval()
    try:
        with torch.no_grad():
            for features, labels in batches:
                outputs = answer_to(model, features)
                labels = labels.to(outputs.device)
                total += float(per_row(loss, outputs, labels).double().sum())
                rows += len(labels)
                if label.task != "number":
                    is_binary = label.task == "binary"
                    classes = outputs.reshape(-1) > 0 if is_binary else outputs.argmax(1)
                    right += int((classes == labels).sum())
    finally:
        model.train(was_training)
    if not isfinite(total):
        raise NonFinite(
            "Expected a finite validation loss (got NaN or infinity). Try a smaller learning rate."
        )
    if label.task == "number":
        return Scores(label.deviation**2 * total / rows, None, rows)
    return Scores(total / rows, right / rows, rows)


def answer_to(model: nn.Module, features: Tensor | Sequence[Tensor]) -> Any:
    """A model's outputs for the features of a batch, on the model's device."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    parts = (features,) if isinstance(features, Tensor) else features
    return model(*(part.to(device) for part in parts))


def constant_answer(train: Batches, valid: Batches) -> Constant:
    """The rates of the classes (or the mean) in `train`, validated on `valid`, from labels alone.

    loss = −Σ_c q_c · log p_c with the rates p of `train` and q of `valid`; of a number it is
    variance + (mean of `train` − mean of `valid`)².
    """
    label = train.schema.label
    moments, counts = (Moments(), Moments()), np.zeros((2, max(len(label.values), 1)))
    for part, batches in enumerate((train, valid)):
        for _, labels in batches.only(()):
            if label.task == "number":
                moments[part].add(labels.double().numpy())
            else:
                counts[part] += np.bincount(labels.long().numpy(), minlength=counts.shape[1])
    if label.task == "number":
        scale, (learned, other) = label.deviation**2, moments
        variance = scale * other.variance
        return Constant(variance + scale * (learned.mean - other.mean) ** 2, None, variance)
    shares = counts[1] / counts[1].sum()
    known = np.where((counts[0] == 0) & (shares > 0), UNSEEN, counts[0])
    there = shares > 0
    loss = -float(shares[there] @ np.log(known[there] / known.sum()))
    return Constant(loss, float(shares[counts[0].argmax()]), None)
