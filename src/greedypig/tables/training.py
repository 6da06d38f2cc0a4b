"""Training a network on batches of a table, and judging it on rows that were held out.

Adam. Training ends after `patience` checks in a row without a smaller validation loss; after each
quarter of them the rate is halved. The weights with the least validation loss are kept, so every
set of columns is judged by the best network found for it, on the rows that told it from the others.

A small table asks for more checks, since an epoch of it is a few steps only and its few validation
rows judge unsteadily, and for more weight decay, since a network of this size learns few rows by
heart. What is right was found on scikit-learn's breast_cancer and wine and on generated tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import ceil, isfinite
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import InvalidInput, NonFinite
from .losses import per_row, resolve
from .row_batches import Batches, Numbers
from .running_stats import Moments
from .schema import Schema
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
    """A trained network and how it came about."""

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
    at_rate: before it learns it answers with the shares of the classes. A network that must learn
    a rare class's rate first learns it from any column, noise too, and then seems to need it.
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
    loss = train.schema.loss
    _, per_example = resolve(loss)
    model = deepcopy(model).train().requires_grad_(True)
    device = next(model.parameters()).device
    optimiser = torch.optim.Adam(
        model.parameters(), lr=effort.rate, weight_decay=effort.weight_decay(train)
    )
    keeper = _Keeper(model, valid, effort.waits(train))
    began, rows, since, every = monotonic(), 0, 0, max(1, min(effort.check, train.rows))
    checks = 0
    for epoch in range(effort.longest(train)):
        for i in train.order(seed_from(seed, epoch)).tolist():
            (numeric, categorical), label = train[i]
            out = model(numeric.to(device), categorical.to(device))
            found = per_row(per_example, out, label.to(device)).mean()
            optimiser.zero_grad(set_to_none=True)
            found.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rows += len(label)
            since += len(label)
            if progress is not None:
                progress(rows / train.rows)
            if since >= every:
                since, checks = 0, checks + 1
                if keeper.ends(optimiser):
                    break
        else:
            continue
        break
    if since and not keeper.ended:
        checks += 1
        keeper.ends(optimiser)
    best, scores = keeper.best()
    return Trained(best, scores, rows, checks, monotonic() - began)


class _Keeper:
    """Keeps the best weights, and knows when it is time to stop."""

    def __init__(self, model: nn.Module, valid: Batches, patience: int) -> None:
        self.model, self.valid, self.patience = model, valid, patience
        self._weights: dict[str, Tensor] = {}
        self._scores: Scores | None = None
        self._worse = 0

    @property
    def ended(self) -> bool:
        """Has the loss stopped falling?"""
        return self._worse >= self.patience

    def ends(self, optimiser: torch.optim.Optimizer) -> bool:
        """Judge the weights as they are now; a loss that does not fall for a while halves the
        rate."""
        now = evaluate(self.model, self.valid)
        if self._scores is None or now.loss < self._scores.loss:
            self._scores, self._worse = now, 0
            self._weights = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
            return False
        self._worse += 1
        if self._worse % max(1, self.patience // 4) == 0:
            for group in optimiser.param_groups:
                group["lr"] *= 0.5
        return self.ended

    def best(self) -> tuple[nn.Module, Scores]:
        """The network with the least loss, in eval mode, no parameter asking for a gradient."""
        if self._scores is None:
            raise InvalidInput("Expected rows to train on (got none).")
        self.model.load_state_dict(self._weights)
        for p in self.model.parameters():
            p.grad = None
        return self.model.eval().requires_grad_(False), self._scores


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
    said: Any = out.reshape(-1) > 0 if task == "binary" else out.argmax(1)
    return int((said.to(label.dtype) == label).sum())


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
        learned, other = _moments(train), _moments(valid)
        scale = label.deviation**2
        variance = scale * other.second / other.n
        return Constant(variance + scale * (learned.mean - other.mean) ** 2, None, variance)
    counts, there = _counts(train), _counts(valid)
    known = np.where((counts == 0) & (there > 0), UNSEEN, counts)
    rates, shares = known / known.sum(), there / there.sum()
    loss = -float(sum(q * np.log(p) for p, q in zip(rates, shares, strict=True) if q > 0))
    return Constant(loss, float(shares[int(counts.argmax())]), None)


def _moments(batches: Batches) -> Moments:
    moments = Moments()
    for _, label in batches.only(()):
        moments.add(label.double().numpy())
    return moments


def _counts(batches: Batches) -> NDArray[np.float64]:
    """Rows of each class."""
    classes = len(batches.schema.label.values)
    total = np.zeros(classes)
    for _, label in batches.only(()):
        total += np.bincount(label.long().numpy(), minlength=classes)
    return total
