"""One pass over a table, piece by piece: what its columns hold, and how each will be encoded.

Memory does not grow with the rows. Moments are added up piece by piece; of the different texts of a
column the most frequent ones are counted, and rare ones are dropped when there are too many.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidInput, quoted
from .arrow import arrow, as_classes, as_numbers, as_texts, in_rows
from .column_checks import ColumnWarning, check_columns, row_number
from .files import CRITEO, Table
from .losses import CLASSES
from .schema import Category, Label, Number, Schema, Task, read_json, signed_log, text_hash

SKEWED = 3.0
"""Numbers whose skewness is beyond this, as counts have it, are taken by their logarithm."""
FORGIVEN = 0.02
"""A column of numbers may hold this share of texts that are none; they count as missing."""
MOST_CLASSES = 1000
VOCABULARY, RARE, BUCKETS = 10_000, 10, 16
"""Most values that a category knows by name; values seen less often than RARE share the buckets."""
COMPARED, MEMORY = 10_000, 64 * 2**20
"""Rows that are compared with each other, and bytes that they may take with many columns."""


@dataclass(frozen=True)
class Reading:
    """How columns are to be read, where the survey is not to decide it."""

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = ()
    """Columns that stay although they number the rows, besides those named above; None keeps
    every column."""
    task: Task | None = None


def criteo_reading(**more: Any) -> Reading:
    """Criteo's 13 counts by their logarithm, its 26 hashed columns as categories."""
    return Reading(categorical=CRITEO[14:], numeric=CRITEO[1:14], log=CRITEO[1:14], **more)


@dataclass(frozen=True)
class Survey:
    """How the columns are encoded, and what was noticed on the way."""

    schema: Schema
    rows: tuple[int, ...]
    """Rows with a label in each piece."""
    left_out: tuple[str, ...] = ()
    """Columns that number the rows: they are not in the schema."""
    warnings: tuple[ColumnWarning, ...] = ()

    @property
    def total(self) -> int:
        """Rows with a label."""
        return sum(self.rows)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps(asdict(self), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Survey:
        """Read what `to_json` wrote."""
        return read_json(Survey, text)


def survey(
    table: Table,
    label: str,
    reading: Reading | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Survey:
    """Read the table once and decide how each column is encoded; suspicious columns get a warning.

    progress: called with pieces done and pieces in all.
    """
    reading = reading or Reading()
    columns, others = _columns(table, label, reading)
    target = Column(label, reading, is_text=table.kinds[label] == "text", is_label=True)
    rows, total = _read(table, target, columns, progress)
    encoded_label = _label(target, total, reading.task, table)
    numbering = _row_numbers(columns, reading)
    columns = [column for column in columns if column.name not in numbering]
    concerns = check_columns(columns, others, numbering, encoded_label, target, total)
    for concern in concerns:
        warnings.warn(concern.text, stacklevel=2)
    numbers = tuple(c.code for c in columns if isinstance(c.code, Number))
    categories = tuple(c.code for c in columns if isinstance(c.code, Category))
    schema = Schema(numbers, categories, encoded_label)
    return Survey(schema, tuple(rows), tuple(numbering), tuple(concerns))


def _columns(table: Table, label: str, reading: Reading) -> tuple[list[Column], list[str]]:
    """The columns besides the label; and those of dates and other kinds, which cannot be used."""
    named = (*reading.categorical, *reading.numeric, *reading.log, *(reading.keep or ()))
    for name in (label, *named):
        table.check(name)
    if table.kinds[label] == "other":
        raise InvalidInput(f"Expected numbers or text in the label {label!r} (got another kind).")
    names = [name for name in table.kinds if name != label]
    others = [name for name in names if table.kinds[name] == "other"]
    if len(names) == len(others):
        raise InvalidInput(
            f"Expected columns of numbers or text besides the label {label!r} (got none)."
        )
    usable = [name for name in names if name not in others]
    return [Column(n, reading, is_text=table.kinds[n] == "text") for n in usable], others


def _read(
    table: Table,
    label: Column,
    columns: Sequence[Column],
    progress: Callable[[int, int], object] | None,
) -> tuple[list[int], int]:
    """Show the columns every piece; the rows with a label in each, and all rows together."""
    counts, total, pieces = [], 0, len(table.pieces)
    most = min(COMPARED, max(200, MEMORY // (16 * len(columns))))
    share = most / max(table.rows, 1)
    for piece in range(pieces):
        rows = table.read(piece, [*(column.name for column in columns), label.name])
        total += rows.num_rows
        there = label.is_given(rows[label.name])
        if not there.all():
            rows = rows.filter(arrow().array(there))
        counts.append(rows.num_rows)
        # By chance rather than evenly: rows may come in turns.
        drawn = np.random.default_rng([piece, 11]).random(rows.num_rows) < share
        for column in (label, *columns):
            column.add(rows[column.name], drawn)
        if progress is not None:
            progress(piece + 1, pieces)
    return counts, total


def _row_numbers(columns: Sequence[Column], reading: Reading) -> dict[str, str]:
    """Columns that number the rows, each with the reason."""
    if reading.keep is None:
        return {}
    keep = {*reading.keep, *reading.categorical, *reading.numeric}
    reasons = {c.name: reason for c in columns if c.name not in keep and (reason := row_number(c))}
    if len(reasons) == len(columns):
        raise InvalidInput(
            "Expected columns besides the label and those that number the rows (got "
            f"{quoted(list(reasons))} alone)."
        )
    return reasons


def count_rows(table: Table, schema: Schema) -> Survey:
    """The survey of a further table under a schema that is known: only labels are read."""
    if gone := [n for n in (*schema.names, schema.label.name) if n not in table.kinds]:
        raise InvalidInput(
            f"Expected the columns of the rows to learn from in {table.source} too (got none "
            f"called {quoted(gone)})."
        )
    label, rows, dropped = schema.label, [], 0
    for piece in range(len(table.pieces)):
        there = label.encode(table.read(piece, [label.name])[label.name])[1]
        rows.append(int(there.sum()))
        dropped += len(there) - rows[-1]
    if not sum(rows):
        raise InvalidInput(
            f"Expected rows of {table.source} whose label {label.name!r} is one of the rows to "
            f"learn from, {label.in_words()} (got none in {dropped:,} rows)."
        )
    if not dropped:
        return Survey(schema, tuple(rows))
    text = (
        f"{dropped:,} rows of {table.source} are left out: their label {label.name!r} is missing, "
        "or one that the training rows do not have."
    )
    warnings.warn(text, stacklevel=2)
    missing = ColumnWarning("missing", (label.name,), text)
    return Survey(schema, tuple(rows), warnings=(missing,))


class Moments:
    """Mean, variance and skewness of numbers that arrive in parts."""

    def __init__(self) -> None:
        self.n, self.low, self.high = 0, float("inf"), float("-inf")
        self._origin = 0.0
        """Power sums are taken about the mean of the first part, against rounding."""
        self._sums = np.zeros(3)

    def add(self, x: NDArray[np.float64]) -> None:
        """Take in finite numbers."""
        if not len(x):
            return
        if self.n == 0:
            self._origin = float(x.mean())
        shifted = x - self._origin
        squares = shifted * shifted
        self._sums += [shifted.sum(), squares.sum(), squares @ shifted]
        self.n += len(x)
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))

    @property
    def mean(self) -> float:
        """0 without any number."""
        return self._origin + float(self._sums[0]) / max(self.n, 1)

    @property
    def variance(self) -> float:
        """0 where all numbers are the same."""
        if self.n == 0 or self.low == self.high:
            return 0.0
        first, second = self._sums[:2] / self.n
        variance = max(0.0, float(second - first**2))
        return variance if isfinite(variance) else 0.0

    @property
    def deviation(self) -> float:
        """0 where all numbers are the same."""
        return sqrt(self.variance)

    @property
    def skewness(self) -> float:
        """0 for symmetric numbers, large for counts."""
        first, second, third = self._sums / max(self.n, 1)
        spread = self.deviation
        return float(third - 3 * first * second + 2 * first**3) / spread**3 if spread else 0.0


class Counts:
    """How often each text occurs: exactly for few, for the frequent ones of very many."""

    def __init__(self, most: int = VOCABULARY) -> None:
        self.most, self._counts = most, Counter[str]()

    def add(self, texts: Any) -> None:
        """Take in a dictionary-encoded array; nulls do not count."""
        places = texts.indices.drop_null().to_numpy()
        times = np.bincount(places, minlength=len(texts.dictionary)).tolist()
        pairs = zip(texts.dictionary.to_pylist(), times, strict=True)
        self._counts.update({text: n for text, n in pairs if n and text is not None})
        if len(self._counts) > 4 * self.most:
            self._counts = Counter(dict(self.common()[: 2 * self.most]))

    def common(self) -> list[tuple[str, int]]:
        """Texts and counts, most frequent first; equally frequent ones by text."""
        return sorted(self._counts.items(), key=lambda one: (-one[1], one[0]))


class Column:
    """What is known of a column so far, over the rows that have a label."""

    def __init__(
        self, name: str, reading: Reading, *, is_text: bool, is_label: bool = False
    ) -> None:
        self.name, self.is_label = name, is_label
        self.is_forced = name in reading.categorical and not is_label
        """Was it said that these are categories?"""
        self.is_text = self.is_forced or (is_text and name not in reading.numeric)
        self.by_logarithm = name in reading.log
        self.rows = self.nulls = self.infinite = self.odd = 0
        """Rows, and those whose value is missing, infinite, or no number."""
        self.example = ""
        """A text that is no number."""
        self.plain, self.log, self.counts = Moments(), Moments(), Counts()
        self._drawn: list[NDArray[np.float64]] = [np.empty(0)]
        self._codes: list[NDArray[np.int64]] = [np.empty(0, np.int64)]

    def is_given(self, column: Any) -> NDArray[np.bool_]:
        """(rows,): which rows of a piece have this label."""
        values, odd, _ = as_numbers(column)
        return np.isfinite(values) | odd

    def add(self, column: Any, drawn: NDArray[np.bool_]) -> None:
        """Take in a piece; of the rows drawn the values are kept."""
        values, odd, example = np.full(len(column), np.nan), np.zeros(len(column), bool), ""
        if not self.is_forced:
            values, odd, example = as_numbers(column)
        self.rows += len(column)
        self.nulls += column.null_count
        self.odd += int(odd.sum())
        self.infinite += int(np.isinf(values).sum())
        self.example = self.example or example
        finite = values[np.isfinite(values)]
        self.plain.add(finite)
        self.log.add(signed_log(finite))
        if self.is_label or self.is_text:
            self.counts.add(as_classes(column) if self.is_label else as_texts(column))
        self._drawn.append(values[drawn])
        if self.is_forced or odd.any():
            # Encoded anew: the texts of all other rows need no hash.
            texts = as_texts(column.filter(arrow().array(drawn)).cast(arrow().string()))
            self._codes.append(in_rows(texts, text_hash(texts.dictionary), -1))
        else:
            plain = values[drawn] + 0.0  # −0 is 0.
            self._codes.append(np.where(np.isnan(plain), -1, plain.view(np.int64)))

    # What follows is for the end, when all pieces are in.

    @cached_property
    def drawn(self) -> NDArray[np.float64]:
        """Values in the rows drawn, NaN where they are no numbers."""
        return np.concatenate(self._drawn)

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """A code for each different value in the rows drawn, −1 where it is missing."""
        return np.concatenate(self._codes)

    @cached_property
    def common(self) -> list[tuple[str, int]]:
        """The different texts with their counts, most frequent first."""
        return self.counts.common()

    @property
    def missing(self) -> int:
        """Rows without a value."""
        return self.nulls if self.is_category else self.rows - self.plain.n

    @cached_property
    def is_category(self) -> bool:
        """Is it encoded as categories?"""
        there, numbers = self.rows - self.nulls, self.plain.n + self.infinite
        is_number = there > 0 and numbers >= (1 - FORGIVEN) * there
        return self.is_text and (self.is_forced or not is_number)

    @property
    def is_constant(self) -> bool:
        """Is there nothing in the column, or the same value throughout?"""
        same = len(self.common) == 1 if self.is_category else self.plain.deviation == 0
        return self.missing == self.rows or (same and not self.missing)

    @cached_property
    def code(self) -> Number | Category:
        """How it is encoded."""
        missing = self.missing / max(self.rows, 1)
        if self.is_category:
            fewest = min(RARE, max(2, self.rows // 1000))
            known = tuple(value for value, n in self.common[:VOCABULARY] if n >= fewest)
            return Category(self.name, known, BUCKETS, missing)
        log = self.by_logarithm or abs(self.plain.skewness) > SKEWED
        used = self.log if log else self.plain
        return Number(self.name, used.mean, used.deviation, log, missing)


def _label(column: Column, total: int, task: Task | None, table: Table) -> Label:
    """The label's encoding; a task of None is decided from its values. total: all rows."""
    name = column.name
    if not column.rows:
        raise InvalidInput(
            f"Expected rows with a label {name!r} in {table.source} "
            f"(got {'only missing ones' if total else 'none at all'})."
        )
    times = dict(column.common)
    if len(times) < 2:
        raise InvalidInput(
            f"Expected a label with at least two different values in {name!r} "
            f"(got {next(iter(times))[:40]!r} throughout)."
        )
    is_text = column.odd > 0
    few = len(times) <= CLASSES and (is_text or all(float(v).is_integer() for v in times))
    if task == "number" or (task is None and not (is_text or few or len(times) == 2)):
        if is_text:
            raise InvalidInput(
                f"Expected numbers in the label {name!r} (got {column.example[:40]!r})."
            )
        return Label(name, "number", (), column.plain.mean, column.plain.deviation)
    if len(times) > MOST_CLASSES:
        raise InvalidInput(
            f"Expected a label of at most {MOST_CLASSES:,} classes (got {len(times):,} different "
            f"values in {name!r}). Read it as a number, or choose another label."
        )
    values = sorted(times) if is_text else sorted(times, key=float)
    shares = tuple(times[value] / column.rows for value in values)
    if len(values) > 2:
        return Label(name, "classes", tuple(values), shares=shares)
    return Label(name, "binary", tuple(values), shares[1], shares=shares)
