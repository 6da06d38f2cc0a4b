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
    cpu: float
    """The same ratio of processor time, which other processes disturb less."""


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], *, pairs: int, inner: int = 1
) -> Ratio:
    """Time both in turn `pairs` times (swapping who goes first), `inner` calls a time."""
    ours()
    theirs()
    mine: list[tuple[float, float]] = []
    other: list[tuple[float, float]] = []
    for i in range(pairs):
        for function, times in ((ours, mine), (theirs, other))[:: 1 if i % 2 else -1]:
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(inner):
                function()
            times.append(
                ((time.perf_counter() - wall) / inner, (time.process_time() - cpu) / inner)
            )
    ratios = sorted(a / b for (a, _), (b, _) in zip(mine, other, strict=True))
    # A child process's time is not ours: where nothing was spent here there is no ratio.
    cpu_ratios = [a / b if b else float("nan") for (_, a), (_, b) in zip(mine, other, strict=True)]
    quarter = len(ratios) // 4
    return Ratio(
        median(t for t, _ in mine), median(t for t, _ in other),
        median(ratios), ratios[quarter], ratios[-1 - quarter], median(cpu_ratios),
    )  # fmt: skip
