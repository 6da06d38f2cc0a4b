"""Ratios of two timings taken in turn, so that a noisy machine troubles both alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """Seconds of `ours` and `theirs` (medians), and the median of their paired ratios."""

    ours: float
    theirs: float
    ratio: float
    """ours / theirs, median over pairs."""
    low: float
    high: float
    """Quartiles of the paired ratios."""


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], *, pairs: int, inner: int = 1
) -> Ratio:
    """Time both in turn `pairs` times (swapping who goes first), `inner` calls a time."""
    ours()
    theirs()
    mine, other = [], []
    for i in range(pairs):
        for who in ((ours, mine), (theirs, other))[:: 1 if i % 2 else -1]:
            gc.collect()
            begin = time.perf_counter()
            for _ in range(inner):
                who[0]()
            who[1].append((time.perf_counter() - begin) / inner)
    ratios = sorted(a / b for a, b in zip(mine, other, strict=True))
    quarter = len(ratios) // 4
    return Ratio(median(mine), median(other), median(ratios), ratios[quarter], ratios[-1 - quarter])
