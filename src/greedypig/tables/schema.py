"""How the columns of a table become numbers for a network; stored as JSON.

Numbers: x → (x − mean) / deviation, of sign(x)·log(1 + |x|) where the schema says "log", cut off
at ±CUT deviations. Missing (and infinite) is exactly 0, which a value never is: one that equals the
mean is PRESENT. So a network can tell a missing value from the mean. Categories: 0 is missing,
1 … V are the known values, most frequent first, and the rest share `buckets` further numbers by a
hash of their text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidFile, InvalidInput, did_you_mean, listed
from ..core.records import read
from .arrow import arrow, as_classes, as_numbers, as_texts, in_rows

CUT = 10.0
"""Standardised numbers are clipped here, against outliers."""
PRESENT = 1e-30
"""Code of a value that equals the mean: 0 is kept for missing values."""

Record = TypeVar("Record")
Task = Literal["binary", "classes", "number"]
LOSS_OF_TASK = {
    "binary": "binary-cross-entropy",
    "classes": "cross-entropy",
    "number": "squared-error",
}


@dataclass(frozen=True)
class Number:
    """A column of numbers."""

    name: str
    mean: float
    deviation: float
    """0 where all values are the same: each is encoded as PRESENT."""
    log: bool = False
    missing: float = 0.0
    """Share of the rows."""

    def encode(self, column: Any) -> NDArray[np.float32]:
        """Standardised numbers; exactly 0 where the value is missing, and only there."""
        x, _, _ = as_numbers(column)
        there = np.isfinite(x)
        with np.errstate(all="ignore"):
            if self.log:
                x = signed_log(x)
            x = (x - self.mean) / self.deviation if self.deviation else np.zeros(len(x))
        codes = np.clip(np.where(there, x, 0), -CUT, CUT).astype(np.float32)
        codes[there & (codes == 0)] = PRESENT
        return codes


@dataclass(frozen=True)
class Category:
    """A column of texts."""

    name: str
    values: tuple[str, ...]
    """Known ones, most frequent first."""
    buckets: int
    """Numbers that the rest share."""
    missing: float = 0.0

    @property
    def size(self) -> int:
        """How many different numbers there are: rows of an embedding."""
        return 1 + len(self.values) + self.buckets

    def encode(self, column: Any) -> NDArray[np.int32]:
        """Numbers from 0 to size − 1."""
        texts = as_texts(column)
        numbers = 1 + _places(texts.dictionary, self.values)
        is_rare = (numbers == 0) & np.asarray(texts.dictionary.is_valid())
        if is_rare.any():
            hashes = text_hash(texts.dictionary.filter(arrow().array(is_rare)))
            numbers[is_rare] = 1 + len(self.values) + hashes % self.buckets
        return in_rows(texts, numbers.astype(np.int32), 0)


@dataclass(frozen=True)
class Label:
    """The column to predict."""

    name: str
    task: str
    """A `Task`."""
    values: tuple[str, ...] = ()
    """Of classes, as text; the second of a binary label is the one predicted."""
    mean: float = 0.0
    """The mean of a number, or the share of the second class."""
    deviation: float = 1.0
    """The deviation of a number: the network predicts it standardised."""
    shares: tuple[float, ...] = ()
    """The share of the rows of each class."""

    def in_words(self) -> str:
        """The task: "2 classes: no (75 %), yes (25 %)", or a number to predict."""
        if self.task == "number":
            return "a number to predict"
        if len(self.shares) != len(self.values):
            return f"{len(self.values)} classes"
        first = sorted(zip(self.shares, self.values, strict=True), key=lambda one: -one[0])
        shares = [f"{value[:30]} ({_percent(share)})" for share, value in first]
        return f"{len(shares)} classes: {listed(shares, 5)}"

    def encode(self, column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """(labels of the rows that have one, which rows those are)."""
        if self.task == "number":
            x, _, _ = as_numbers(column)
            there = np.isfinite(x)
            return ((x[there] - self.mean) / self.deviation).astype(np.float32), there
        texts = as_classes(column)
        classes = in_rows(texts, _places(texts.dictionary, self.values), -1)
        there = classes >= 0
        return classes[there].astype(np.float32 if self.task == "binary" else np.int64), there


class Encoded(NamedTuple):
    """Rows as numbers."""

    numeric: NDArray[np.float32]
    categorical: NDArray[np.int32]
    label: NDArray[Any]


@dataclass(frozen=True)
class Schema:
    """The columns of a table, and how each is encoded."""

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    label: Label

    @property
    def names(self) -> list[str]:
        """The columns in the order of the network's inputs: numbers, then categories."""
        return [c.name for c in self.numbers] + [c.name for c in self.categories]

    @property
    def sizes(self) -> list[int]:
        """Different values of each category."""
        return [category.size for category in self.categories]

    @property
    def gaps(self) -> list[int]:
        """Which numbers have missing values: their columns have a missing indicator."""
        return [i for i, number in enumerate(self.numbers) if 0 < number.missing < 1]

    @property
    def outputs(self) -> int:
        """How many numbers a network gives for a row."""
        return len(self.label.values) if self.label.task == "classes" else 1

    @property
    def kinds(self) -> dict[str, str]:
        """Every column in a few words."""
        numbers = {c.name: "number, by its logarithm" if c.log else "number" for c in self.numbers}
        categories = {c.name: f"category of {len(c.values):,}" for c in self.categories}
        kinds = numbers | categories
        columns: list[Number | Category] = [*self.numbers, *self.categories]
        for column in columns:
            if column.missing:
                kinds[column.name] += f", {100 * column.missing:.2g} % missing"
        return kinds

    @property
    def loss(self) -> str:
        """What fits the label."""
        return LOSS_OF_TASK[self.label.task]

    def only(self, names: Iterable[str]) -> Schema:
        """The same with these columns alone, in the order they have here."""
        wanted = set(names)
        for name in sorted(wanted - set(self.names)):
            raise InvalidInput(
                f"Expected columns of the table (got {name!r}).{did_you_mean(name, self.names)}"
            )
        return replace(
            self,
            numbers=tuple(c for c in self.numbers if c.name in wanted),
            categories=tuple(c for c in self.categories if c.name in wanted),
        )

    def encode(self, table: Any) -> Encoded:
        """The rows of a pyarrow Table that have a label."""
        label, there = self.label.encode(table[self.label.name])
        rows = None if there.all() else arrow().array(np.flatnonzero(there))
        table = table if rows is None else table.take(rows)
        n = len(label)
        numeric = np.empty((n, len(self.numbers)), np.float32)
        categorical = np.empty((n, len(self.categories)), np.int32)
        for i, number in enumerate(self.numbers):
            numeric[:, i] = number.encode(table[number.name])
        for i, category in enumerate(self.categories):
            categorical[:, i] = category.encode(table[category.name])
        return Encoded(numeric, categorical, label)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps(asdict(self), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Schema:
        """Read what `to_json` wrote."""
        return read_json(Schema, text)


def read_json(kind: type[Record], text: str) -> Record:
    """A dataclass that was written as JSON, checked."""
    try:
        return read(kind, json.loads(text), f"a {kind.__name__.lower()} of a table as JSON")
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"Expected a {kind.__name__} as JSON (got: {error}).") from error


def _places(texts: Any, values: tuple[str, ...]) -> NDArray[np.int64]:
    """Each text's place among the values, −1 where it is none of them."""
    known = arrow().array(values, texts.type)
    places = arrow("compute").index_in(texts, known, skip_nulls=True).fill_null(-1)
    return np.array(places.to_numpy(zero_copy_only=False), np.int64)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def signed_log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """sign(x) · log(1 + |x|): counts of all sizes side by side, zeros and negatives too."""
    return np.sign(x) * np.log1p(np.abs(x))


def text_hash(texts: Any) -> NDArray[np.int64]:
    """A number ≥ 0 for every string, the same on every machine; 0 for a missing one."""
    return np.array([crc32((text or "").encode()) for text in texts.to_pylist()], np.int64)
