"""Numbers and texts that arrive in parts, summed up in memory that does not grow with them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import arrow


@dataclass
class Moments:
    """Mean, variance and skewness of numbers that arrive in parts (Pébay's update formulas)."""

    n: int = 0
    mean: float = 0.0
    second: float = 0.0
    third: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, x: NDArray[np.float64]) -> None:
        """Take in finite numbers."""
        if not len(x):
            return
        n, mean = len(x), float(x.mean())
        centred = x - mean
        squares = centred * centred
        second, third = float(squares.sum()), float(np.dot(squares, centred))
        total, delta = self.n + n, mean - self.mean
        self.third += (
            third
            + delta**3 * self.n * n * (self.n - n) / total**2
            + 3 * delta * (self.n * second - n * self.second) / total
        )
        self.second += second + delta**2 * self.n * n / total
        self.mean += delta * n / total
        self.n = total
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))

    @property
    def deviation(self) -> float:
        """0 where all numbers are the same."""
        if self.n == 0 or self.low == self.high:
            return 0.0
        deviation = sqrt(self.second / self.n)
        return deviation if isfinite(deviation) else 0.0

    @property
    def skewness(self) -> float:
        """0 for symmetric numbers, large for counts."""
        spread = self.deviation
        return self.third / self.n / spread**3 if spread else 0.0


class Counts:
    """How often each text occurs: exactly for few, for the frequent ones of very many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.table: Any = None
        self.waiting: list[Any] = []
        self.size = 0
        self.lost = False

    def add(self, texts: Any) -> None:
        """Take in a dictionary-encoded array; nulls do not count."""
        pa, pc = arrow(), arrow("compute")
        counted = pc.value_counts(texts.indices)
        places, numbers = counted.field("values"), counted.field("counts")
        valid = pc.is_valid(places)
        values = texts.dictionary.take(places.filter(valid))
        part = pa.table({"value": values, "count": numbers.filter(valid)})
        self.waiting.append(part.filter(pc.is_valid(part["value"])))
        self.size += part.num_rows
        if self.size > 4 * self.most:
            self._merge()

    def _merge(self) -> None:
        pa = arrow()
        parts = self.waiting if self.table is None else [self.table, *self.waiting]
        if not parts:
            return
        summed = pa.concat_tables(parts).group_by("value").aggregate([("count", "sum")])
        summed = summed.rename_columns({"count_sum": "count"}).select(["value", "count"])
        # By count, then by text: the same whatever order they came in.
        summed = summed.sort_by([("count", "descending"), ("value", "ascending")])
        if summed.num_rows > 2 * self.most:
            self.lost = True
            summed = summed.slice(0, 2 * self.most)
        self.table, self.waiting, self.size = summed.combine_chunks(), [], summed.num_rows

    def common(self) -> list[tuple[str, int]]:
        """Texts and counts, most frequent first."""
        self._merge()
        if self.table is None:
            return []
        values, counts = self.table["value"].to_pylist(), self.table["count"].to_pylist()
        return list(zip(values, counts, strict=True))
