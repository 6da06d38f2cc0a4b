"""What a network has to beat: the same answer for every row, learned from the labels alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .row_batches import Batches
from .running_stats import Moments

UNSEEN = 0.5
"""Rows that a class counts for which only the others have: its loss would be infinite."""


@dataclass(frozen=True)
class Constant:
    """How good the training rows' rates, or their mean, are as an answer on other rows."""

    loss: float
    """Mean log-loss, or squared error in the label's own units."""
    accuracy: float | None
    """Share of the rows in the training rows' most frequent class; None for a number."""
    variance: float | None
    """Of a number on the rows judged, what R² is measured by; None for classes."""


def constant_answer(train: Batches, valid: Batches) -> Constant:
    """The rates of the classes (or the mean) in `train`, judged on `valid`; labels alone are read.

    loss = −Σ_c q_c · log p_c with the rates p of `train` and q of `valid`; of a number it is
    variance + (mean of `train` − mean of `valid`)².
    """
    label = train.schema.label
    if label.task == "number":
        learned, judged = _moments(train), _moments(valid)
        scale = label.deviation**2
        variance = scale * judged.second / judged.n
        return Constant(variance + scale * (learned.mean - judged.mean) ** 2, None, variance)
    seen, there = _counts(train), _counts(valid)
    known = np.where((seen == 0) & (there > 0), UNSEEN, seen)
    rates, shares = known / known.sum(), there / there.sum()
    loss = -float(sum(q * np.log(p) for p, q in zip(rates, shares, strict=True) if q > 0))
    return Constant(loss, float(shares[int(seen.argmax())]), None)


def _moments(batches: Batches) -> Moments:
    found = Moments()
    for _, label in batches.only(()):
        found.add(label.double().numpy())
    return found


def _counts(batches: Batches) -> NDArray[np.float64]:
    """Rows of each class."""
    classes = len(batches.schema.label.values)
    total = np.zeros(classes)
    for _, label in batches.only(()):
        total += np.bincount(label.long().numpy(), minlength=classes)
    return total
