"""Generated tables in the shape of Criteo's, whose truth is known: 13 numbers, 26 categories.

Of the 39 columns 18 are informative, 11 nearly copies of informative ones, and 10 noise. Behind
each informative column j is a hidden z_j ~ N(0, 1), and

    P(label = 1) = sigmoid(bias + Σ_j weight_j · effect_j(z_j))

where effect is z, or (z² − 1)/√2 for some columns: an even effect, which a gradient at the mean
does not see. A number column shows a count, exp(z) rounded to a few digits; a category shows in
which of its equally likely intervals z lies, under a meaningless name. A copy sees z through noise.
Rows are made in chunks, each from a seed of its own, so that any part of a table of any size is the
same every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from greedypig.core.errors import InvalidInput
from greedypig.results.files import write_whole

CHUNK = 65_536
"""Rows made at once, and rows of a row group."""
SOURCES, NUMBERS, CATEGORIES = 18, 13, 26
NUMBER_SOURCES, NUMBER_COPIES, CATEGORY_COPIES = 6, 4, 7
EVEN = 3
"""Every so many-th source has an even effect."""
FADE = 0.89
"""Each weight is this times the one before it."""
STRENGTH = 1.5
"""Standard deviation of the logit: how much the label can be known at all."""
BIAS = -1.44
"""Gives 26 % clicks at this strength."""
LOYALTY = 0.95
"""Correlation of a copy's z with its source's."""
NOISE_SIZE = 40

Role = Literal["informative", "copy", "noise"]


@dataclass(frozen=True)
class Truth:
    """The role of a column."""

    name: str
    role: Role
    source: str
    """The informative column behind it; itself, where it is one or noise."""
    weight: float
    """Weight of its source in the logit; 0 for noise."""
    even: bool = False


class CriteoShaped:
    """A generated table: chunks of columns, a Parquet file, and the truth about every column."""

    label = "label"
    names = [f"I{i + 1}" for i in range(NUMBERS)] + [f"C{i + 1}" for i in range(CATEGORIES)]

    def __init__(
        self, rows: int, *, seed: int = 0, chunk: int = CHUNK, loyalty: float = LOYALTY
    ) -> None:
        """loyalty: correlation of a copy's z with its source's; 1 makes it as good as that."""
        if not 0 <= loyalty <= 1:
            raise InvalidInput(f"Expected a loyalty from 0 to 1 (got {loyalty:g}).")
        if rows < 1:
            raise InvalidInput(f"Expected at least one row (got {rows}).")
        self.rows, self.seed, self.size, self.loyalty = rows, seed, chunk, loyalty
        random = np.random.default_rng([seed, 0])
        weights = np.asarray(FADE ** np.arange(SOURCES), np.float64)
        self._weights = weights * STRENGTH / sqrt(float((weights**2).sum()))
        self._even = np.arange(SOURCES) % EVEN == EVEN - 1
        # Which sources are numbers, and which have copies, is drawn: weight tells neither.
        numbers = sorted(random.permutation(SOURCES)[:NUMBER_SOURCES].tolist())
        categories = sorted(set(range(SOURCES)) - set(numbers))
        self._sizes = random.integers(8, 60, SOURCES)
        first = _roles(random, numbers, NUMBER_COPIES, NUMBERS)
        second = _roles(random, categories, CATEGORY_COPIES, CATEGORIES)
        self._plan = [first[i] for i in random.permutation(NUMBERS)]
        self._plan += [second[i] for i in random.permutation(CATEGORIES)]
        self._codes = [random.permutation(999) for _ in range(CATEGORIES)]
        home = {j: n for n, (role, j) in zip(self.names, self._plan, strict=True) if role[0] == "i"}
        self.truth = [
            Truth(name, role, home[j], float(self._weights[j]), bool(self._even[j]))
            if role != "noise"
            else Truth(name, "noise", name, 0.0)
            for name, (role, j) in zip(self.names, self._plan, strict=True)
        ]
        """The truth about every column, in the table's order."""
        self._known = {t.name: t for t in self.truth}

    def by_weight(self) -> list[str]:
        """The oracle's order: informative columns by weight, then copies by weight, then noise."""
        ranks = {"informative": 0, "copy": 1, "noise": 2}
        return [t.name for t in sorted(self.truth, key=lambda t: (ranks[t.role], -t.weight))]

    def sources(self, names: Sequence[str]) -> int:
        """How many different informative sources are among these columns."""
        truths = [self._known[name] for name in names]
        return len({t.source for t in truths if t.role != "noise"})

    def copies(self, names: Sequence[str]) -> int:
        """How many of these columns repeat a source that another of them has."""
        return sum(self._known[name].role != "noise" for name in names) - self.sources(names)

    def signal(self, names: Sequence[str]) -> float:
        """Share of the true logit's variance whose sources are among these columns."""
        # The effects are independent, of variance 1: the logit's variance is the sum of weights².
        weights = {self._known[name].source: self._known[name].weight for name in names}
        return float(sum(w**2 for w in weights.values()) / (self._weights**2).sum())

    def chunk(self, index: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """(columns, label) of chunk `index`; texts as numbers of their names."""
        random = np.random.default_rng([self.seed, 1, index])
        rows = min(self.size, self.rows - index * self.size)
        z = random.standard_normal((SOURCES, self.size))[:, :rows]
        effects = np.where(self._even[:, None], (z**2 - 1) / sqrt(2), z)
        logit = BIAS + self._weights @ effects
        label = (random.random(self.size)[:rows] < 1 / (1 + np.exp(-logit))).astype(np.int64)
        columns: dict[str, NDArray[Any]] = {}
        for i, (name, (role, j)) in enumerate(zip(self.names, self._plan, strict=True)):
            # Drawn whole whatever the role, so that a shorter last chunk starts the same.
            fresh = random.standard_normal(self.size)[:rows]
            if role == "informative":
                observed = z[j]
            elif role == "copy":
                observed = self.loyalty * z[j] + sqrt(1 - self.loyalty**2) * fresh
            else:
                observed = fresh
            if i < NUMBERS:
                columns[name] = np.round(10 * np.exp(observed), 1)
            else:
                size = NOISE_SIZE if role == "noise" else int(self._sizes[j])
                columns[name] = _intervals(observed, np.argsort(self._codes[i - NUMBERS][:size]))
        return columns, label

    def write(self, path: Path) -> None:
        """Write one Parquet file, a row group per chunk; texts are like those in Criteo's files."""
        import pyarrow as pa
        from pyarrow import parquet

        types = [pa.int8()] + [pa.float32()] * NUMBERS + [pa.string()] * CATEGORIES
        schema = pa.schema(list(zip([self.label, *self.names], types, strict=True)))

        def write_to(file: IO[bytes]) -> None:
            with parquet.ParquetWriter(file, schema) as writer:
                for index in range(-(-self.rows // self.size)):
                    columns, label = self.chunk(index)
                    for i, name in enumerate(self.names[NUMBERS:], NUMBERS):
                        texts = [_text(i, v) for v in range(int(columns[name].max()) + 1)]
                        columns[name] = np.array(texts)[columns[name]]
                    arrays = [
                        pa.array(v, t)
                        for v, t in zip([label, *columns.values()], types, strict=True)
                    ]
                    writer.write_table(pa.table(arrays, schema=schema), row_group_size=self.size)

        write_whole(path, write_to)


def _roles(
    random: np.random.Generator, sources: list[int], copies: int, columns: int
) -> list[tuple[Role, int]]:
    """(role, source) of every number or category; the source of noise is −1.

    Sources with a larger weight are more likely to be copied, as only their copies matter.
    """
    chances = FADE ** np.array(sources, float)
    copied = random.choice(sources, copies, replace=False, p=chances / chances.sum())
    roles: list[tuple[Role, int]] = [("informative", j) for j in sources]
    roles += [("copy", int(j)) for j in copied]
    return roles + [("noise", -1)] * (columns - len(roles))


def _intervals(observed: NDArray[np.float64], codes: NDArray[np.intp]) -> NDArray[np.int32]:
    """Which of len(codes) equally likely intervals a value is in, under a meaningless number."""
    edges = [NormalDist().inv_cdf(i / len(codes)) for i in range(1, len(codes))]
    return codes[np.searchsorted(edges, observed)].astype(np.int32)


def _text(column: int, value: int) -> str:
    return f"{(2654435761 * (1000 * column + value + 1)) % 2**32:08x}"
