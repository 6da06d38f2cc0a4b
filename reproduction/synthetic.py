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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from greedypig.core.errors import InvalidInput
from greedypig.results.files import write_whole
from greedypig.tables.arrow import arrow

CHUNK = 65_536
"""Rows made at once, and rows of a row group."""
RATE = 0.26
"""Share of clicks."""
SOURCES, NUMBERS, CATEGORIES = 18, 13, 26
NUMBER_SOURCES, NUMBER_COPIES = 6, 4
CATEGORY_COPIES = 7
EVEN = 3
"""Every so many-th source has an even effect."""
FADE = 0.89
"""Each weight is this times the one before it."""
STRENGTH = 1.5
"""Standard deviation of the logit: how much the label can be known at all."""
BIAS = -1.44
"""Gives the RATE at this strength."""
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
    """A generated table: batches of columns, Parquet files, and the truth about every column."""

    label = "label"

    def __init__(
        self, rows: int, *, seed: int = 0, chunk: int = CHUNK, loyalty: float = LOYALTY
    ) -> None:
        """loyalty: correlation of a copy's z with its source's; 1 makes it as good as that."""
        if not 0 <= loyalty <= 1:
            raise InvalidInput(f"Expected a loyalty from 0 to 1 (got {loyalty:g}).")
        if rows < 1 or chunk < 1:
            raise InvalidInput(f"Expected at least one row (got {rows} in chunks of {chunk}).")
        self.rows, self.seed, self.size, self.loyalty = rows, seed, chunk, loyalty
        random = np.random.default_rng([seed, 0])
        weights = np.asarray(FADE ** np.arange(SOURCES), np.float64)
        weights = weights * STRENGTH / sqrt(float((weights**2).sum()))
        # Which sources are numbers, and which have copies, is drawn: weight tells neither.
        shuffled = random.permutation(SOURCES)
        numbers = set(shuffled[:NUMBER_SOURCES].tolist())
        self._weights = weights
        self._even = np.arange(SOURCES) % EVEN == EVEN - 1
        self._sizes = random.integers(8, 60, SOURCES)
        self._plan = self._columns(random, numbers)
        self._names = [random.permutation(999) for _ in range(CATEGORIES)]

    def _columns(self, random: np.random.Generator, numbers: set[int]) -> list[tuple[Role, int]]:
        """(role, source) of I1 … I13, C1 … C26; the source of noise is −1."""
        texts = sorted(set(range(SOURCES)) - numbers)
        first: list[tuple[Role, int]] = [("informative", j) for j in sorted(numbers)]
        first += [("copy", int(j)) for j in _spread(random, sorted(numbers), NUMBER_COPIES)]
        first += [("noise", -1)] * (NUMBERS - len(first))
        second: list[tuple[Role, int]] = [("informative", j) for j in texts]
        second += [("copy", int(j)) for j in _spread(random, texts, CATEGORY_COPIES)]
        second += [("noise", -1)] * (CATEGORIES - len(second))
        return [
            *(first[i] for i in random.permutation(NUMBERS)),
            *(second[i] for i in random.permutation(CATEGORIES)),
        ]

    @property
    def names(self) -> list[str]:
        """I1 … I13, C1 … C26."""
        return [f"I{i + 1}" for i in range(NUMBERS)] + [f"C{i + 1}" for i in range(CATEGORIES)]

    @property
    def truth(self) -> list[Truth]:
        """The truth about every column, in the table's order."""
        home = {j: name for name, (role, j) in zip(self.names, self._plan, strict=True)
                if role == "informative"}  # fmt: skip
        return [
            Truth(name, "noise", name, 0.0) if role == "noise"
            else Truth(name, role, home[j], float(self._weights[j]), bool(self._even[j]))
            for name, (role, j) in zip(self.names, self._plan, strict=True)
        ]  # fmt: skip

    def by_weight(self) -> list[str]:
        """The oracle's order: informative columns by weight, then copies by weight, then noise."""
        ranks = {"informative": 0, "copy": 1, "noise": 2}
        return [t.name for t in sorted(self.truth, key=lambda t: (ranks[t.role], -t.weight))]

    def sources(self, names: Sequence[str]) -> int:
        """How many different informative sources are among these columns."""
        known = {t.name: t for t in self.truth}
        return len({known[name].source for name in names if known[name].role != "noise"})

    def copies(self, names: Sequence[str]) -> int:
        """How many of these columns repeat a source that another of them has."""
        known = {t.name: t for t in self.truth}
        return sum(known[name].role != "noise" for name in names) - self.sources(names)

    def signal(self, names: Sequence[str]) -> float:
        """Share of the true logit's variance whose sources are among these columns."""
        known = {t.name: t for t in self.truth}
        # The effects are independent, of variance 1: the logit's variance is the sum of weights².
        weights = {known[name].source: known[name].weight for name in names}
        return float(sum(w**2 for w in weights.values()) / (self._weights**2).sum())

    def chunk(self, index: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """(columns, label) of chunk `index`; texts as numbers of their names."""
        random = np.random.default_rng([self.seed, 1, index])
        rows = min(self.size, self.rows - index * self.size)
        z = random.standard_normal((SOURCES, self.size))[:, :rows]
        logit = self.logit(z)
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
            size = NOISE_SIZE if role == "noise" else int(self._sizes[j])
            columns[name] = _count(observed) if i < NUMBERS else self._category(i, observed, size)
        return columns, label

    def logit(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """The true logit of hidden z (sources, rows)."""
        effects = np.where(self._even[:, None], (z**2 - 1) / sqrt(2), z)
        logit: NDArray[np.float64] = BIAS + self._weights @ effects
        return logit

    def chunks(self) -> Iterator[tuple[dict[str, NDArray[Any]], NDArray[np.int64]]]:
        """All rows, a chunk at a time."""
        for index in range(-(-self.rows // self.size)):
            yield self.chunk(index)

    def least_loss(self, chunks: int = 1) -> float:
        """Log-loss of the true probabilities, on the first chunks: no model can do better."""
        total, rows = 0.0, 0
        for index in range(min(chunks, -(-self.rows // self.size))):
            random = np.random.default_rng([self.seed, 1, index])
            p = 1 / (1 + np.exp(-self.logit(random.standard_normal((SOURCES, self.size)))))
            total += float(-(p * np.log(p) + (1 - p) * np.log1p(-p)).sum())
            rows += self.size
        return total / rows

    def table(self, index: int) -> Any:
        """A chunk as a pyarrow Table, the label first, texts as in Criteo's files."""
        pa = arrow()
        columns, label = self.chunk(index)
        arrays: dict[str, Any] = {self.label: pa.array(label, pa.int8())}
        for i, name in enumerate(self.names):
            if i < NUMBERS:
                arrays[name] = pa.array(columns[name].astype(np.float32))
            else:
                texts = pa.array([_text(i, v) for v in range(int(columns[name].max()) + 1)])
                arrays[name] = pa.DictionaryArray.from_arrays(pa.array(columns[name]), texts)
        return pa.table(arrays)

    def write(self, where: str | PathLike[str], *, rows_per_file: int | None = None) -> list[Path]:
        """Write Parquet, a row group per chunk: one file, or a folder of files."""
        path = Path(fspath(where))
        chunks = -(-self.rows // self.size)
        each = chunks if rows_per_file is None else max(1, round(rows_per_file / self.size))
        if rows_per_file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            files = [path]
        else:
            path.mkdir(parents=True, exist_ok=True)
            files = [path / f"part-{i:05d}.parquet" for i in range(-(-chunks // each))]
        for i, file in enumerate(files):
            part = range(i * each, min((i + 1) * each, chunks))
            write_whole(file, partial(self._write_chunks, part))
        return files

    def _write_chunks(self, part: range, file: IO[bytes]) -> None:
        """These chunks as one Parquet file."""
        parquet, pa = arrow("parquet"), arrow()
        writer = None
        for index in part:
            table = self.table(index)
            plain = table.cast(pa.schema([
                pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type)
                         else f.type) for f in table.schema]))  # fmt: skip
            writer = writer or parquet.ParquetWriter(file, plain.schema)
            writer.write_table(plain, row_group_size=self.size)
        if writer is not None:
            writer.close()

    def _category(self, column: int, observed: NDArray[np.float64], size: int) -> NDArray[np.int32]:
        """Which of `size` equally likely intervals, under a meaningless number."""
        edges = _normal_quantiles(size)
        interval = np.searchsorted(edges, observed)
        names = np.argsort(self._names[column - NUMBERS][:size])
        return names[interval].astype(np.int32)


def _count(observed: NDArray[np.float64]) -> NDArray[np.float64]:
    """A skewed count: two digits of 10 · exp(z)."""
    return np.round(10 * np.exp(observed), 1)


def _text(column: int, value: int) -> str:
    return f"{(2654435761 * (1000 * column + value + 1)) % 2**32:08x}"


def _spread(random: np.random.Generator, of: Sequence[int], count: int) -> NDArray[np.int64]:
    """Sources to copy; those with a larger weight are more likely, as only their copies matter."""
    chances = FADE ** np.array(of, float)
    return random.choice(np.array(of), count, replace=False, p=chances / chances.sum())


def _normal_quantiles(size: int) -> NDArray[np.float64]:
    from statistics import NormalDist

    normal = NormalDist()
    return np.array([normal.inv_cdf(i / size) for i in range(1, size)])
