"""One pass over a table, piece by piece: what its columns hold, and how each will be encoded.

Memory does not grow with the rows. Moments are merged piece by piece; of the different texts of a
column the most frequent ones are counted, and rare ones are dropped when there are too many.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidFile, InvalidInput, listed, quoted
from .arrow import HUGE, arrow, as_classes, as_numbers, as_texts, in_rows
from .column_checks import (
    LEAKS,
    NUMBERED,
    ColumnWarning,
    Draw,
    Trace,
    check_copies,
    check_leaks,
    row_number,
    written_number,
)
from .files import CRITEO, Table
from .losses import CLASSES
from .schema import Category, Label, Number, Schema, Task, signed_log

SKEWED = 3.0
"""Numbers whose skewness is beyond this, as counts have it, are taken by their logarithm."""
FORGIVEN = 0.02
"""A column of numbers may hold this share of texts that are none; they count as missing."""
MOST_CLASSES = 1000


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
    vocabulary: int = 10_000
    """Most values that a category knows by name."""
    rare: int = 10
    """Values seen less often share numbers by their hash."""
    buckets: int = 16


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

    @property
    def leaks(self) -> tuple[str, ...]:
        """Columns that equal or decide the label."""
        return tuple(name for w in self.warnings if w.kind in LEAKS for name in w.columns)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps({"schema": json.loads(self.schema.to_json()), "rows": self.rows,
                           "left_out": self.left_out, "warnings": self.warnings})  # fmt: skip

    @staticmethod
    def from_json(text: str) -> Survey:
        """Read what `to_json` wrote."""
        try:
            record = json.loads(text)
            schema = Schema.from_json(json.dumps(record["schema"]))
            warnings = tuple(ColumnWarning(k, tuple(c), t) for k, c, t in record["warnings"])
            return Survey(schema, tuple(record["rows"]), tuple(record["left_out"]), warnings)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidFile(f"Expected a survey of a table as JSON (got {error}).") from error


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
    columns = _columns(table, label, reading)
    of_label = _LabelColumn(label, table.kinds[label], Reading(vocabulary=reading.vocabulary))
    rows, total = _read(table, of_label, columns, progress)
    concerns: list[ColumnWarning] = []
    encoded_label = _label(of_label, total, reading.task, table, concerns)
    rows = _with_known_labels(table, encoded_label, of_label, rows)
    encoded = {column.name: column.decide() for column in columns}
    columns, left_out = _without_row_numbers(columns, encoded, reading, label, concerns)
    for column in columns:
        concerns += column.warnings()
    concerns += _missing_numbers(columns, encoded) + _constant(columns, encoded)
    useless = {name for w in concerns if w.kind == "constant" for name in w.columns}
    traces = {column.name: column.trace for column in columns if column.name not in useless}
    concerns += check_leaks(encoded_label, of_label.trace, traces)
    equal = [name for w in concerns if w.kind == "equals label" for name in w.columns]
    concerns += check_copies(traces, equal)
    for concern in concerns:
        warnings.warn(concern.text, stacklevel=2)
    numbers = tuple(e for c in columns if isinstance(e := encoded[c.name], Number))
    categories = tuple(e for c in columns if isinstance(e := encoded[c.name], Category))
    schema = Schema(numbers, categories, encoded_label)
    return Survey(schema, tuple(rows), tuple(left_out), tuple(concerns))


def _columns(table: Table, label: str, reading: Reading) -> list[_Column]:
    """The columns besides the label, all of a kind that can be used."""
    named = (*reading.categorical, *reading.numeric, *reading.log, *(reading.keep or ()))
    for name in (label, *named):
        table.check(name)
    names = [name for name in table.kinds if name != label]
    if not names:
        raise InvalidInput(f"Expected columns besides the label {label!r} (got none).")
    if other := [name for name in names if table.kinds[name] == "other"]:
        raise InvalidInput(
            f"Expected columns of numbers or text (got {quoted(other)}, of another kind). Try "
            "leaving them out."
        )
    return [_Column(name, table.kinds[name], reading) for name in names]


def _read(
    table: Table,
    label: _LabelColumn,
    columns: Sequence[_Column],
    progress: Callable[[int, int], object] | None,
) -> tuple[list[int], int]:
    """Show the columns every piece; the rows with a label in each, and all rows together."""
    counts, total, pieces = [], 0, len(table.pieces)
    draw = Draw(pieces, len(columns))
    for piece in range(pieces):
        rows = table.read(piece, [*(column.name for column in columns), label.name])
        total += rows.num_rows
        there = label.is_given(rows[label.name])
        if not there.all():
            rows = rows.filter(arrow().array(there))
        counts.append(rows.num_rows)
        drawn = draw.places(piece, rows.num_rows)
        for column in (label, *columns):
            column.add(rows[column.name], drawn)
        if progress is not None:
            progress(piece + 1, pieces)
    return counts, total


def _without_row_numbers(
    columns: Sequence[_Column],
    encoded: Mapping[str, Number | Category],
    reading: Reading,
    label: str,
    concerns: list[ColumnWarning],
) -> tuple[list[_Column], list[str]]:
    """The columns to rank, and the names of those that number the rows."""
    keep = {*(reading.keep or ()), *reading.categorical, *reading.numeric}
    why = {}
    for column in columns if reading.keep is not None else ():
        reason = column.numbers_the_rows(isinstance(encoded[column.name], Category))
        if reason and column.name not in keep and not column.is_time:
            why[column.name] = reason
    if len(why) == len(columns):
        raise InvalidInput(
            f"Expected columns besides the label {label!r} and those that number the rows (got "
            f"{quoted(list(why))} alone)."
        )
    if why:
        words = listed([f"{name!r} ({reason})" for name, reason in why.items()])
        text = f"Left out because they number the rows: {words}."
        concerns.append(ColumnWarning("row number", tuple(why), text))
    return [column for column in columns if column.name not in why], list(why)


def count_rows(table: Table, schema: Schema) -> Survey:
    """The survey of a further table under a schema that is known: only labels are read."""
    if gone := [n for n in (*schema.names, schema.label.name) if n not in table.kinds]:
        raise InvalidInput(
            f"Expected the columns of the rows to learn from in {table.source} too (got none "
            f"called {quoted(gone)})."
        )
    rows, dropped = [], 0
    for piece in range(len(table.pieces)):
        read = table.read(piece, [schema.label.name])
        rows.append(len(schema.label.encode(read[schema.label.name])[0]))
        dropped += read.num_rows - rows[-1]
    if not sum(rows):
        raise InvalidInput(
            f"Expected rows of {table.source} whose label {schema.label.name!r} is one of the "
            f"rows to learn from, {schema.label.in_words()} (got none in {dropped:,} rows)."
        )
    if not dropped:
        return Survey(schema, tuple(rows))
    text = (
        f"{dropped:,} rows of {table.source} are left out: their label {schema.label.name!r} "
        "is missing, or one that the training rows do not have."
    )
    warnings.warn(text, stacklevel=2)
    missing = ColumnWarning("missing", (schema.label.name,), text)
    return Survey(schema, tuple(rows), warnings=(missing,))


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


@dataclass
class _Column:
    """What is known of a column so far."""

    name: str
    kind: str
    reading: Reading
    rows: int = 0
    missing: int = 0
    infinite: int = 0
    odd: int = 0
    example: str = ""
    plain: Moments = field(default_factory=Moments)
    log: Moments = field(default_factory=Moments)
    trace: Trace = field(default_factory=Trace)
    written: str = ""
    """A text that looks like a number, where most do."""
    as_category: bool = False
    """Was it decided that the column holds categories?"""

    def __post_init__(self) -> None:
        self.counts = Counts(self.reading.vocabulary)
        self.is_time = False
        self.as_text = self.name in self.reading.categorical or (
            self.kind == "text" and self.name not in self.reading.numeric
        )

    def add(self, column: Any, drawn: NDArray[np.int64]) -> None:
        """Take in a piece; of the rows drawn the values are kept."""
        self.rows += len(column)
        self.is_time = self.is_time or bool(arrow("types").is_temporal(column.type))
        if self.as_text:
            self._add_texts(as_texts(column), drawn)
            return
        values, odd, example = as_numbers(column)
        self.odd += odd
        self.example = self.example or example
        self._add_numbers(values)
        self.trace.add_numbers(values, drawn)

    def _add_texts(self, texts: Any, drawn: NDArray[np.int64]) -> None:
        """Count texts, and see which are numbers: each different one is looked at once."""
        self.missing += int(texts.null_count)
        self.counts.add(texts)
        if self.name in self.reading.categorical:
            self.trace.add_texts(texts, None, drawn)
            return
        values, odd, example = as_numbers(texts.dictionary)
        if odd:
            self.trace.add_texts(texts, values, drawn)
            times = np.bincount(texts.indices.drop_null().to_numpy(), minlength=len(values))
            no_numbers = np.isnan(values) & np.asarray(arrow("compute").is_valid(texts.dictionary))
            self.odd += int(times[no_numbers].sum())
            self.example = self.example or example
            if self.odd > 0.5 * self.rows:
                return  # A column of texts.
        numbers = in_rows(texts, values, np.nan)
        self._add_numbers(numbers)
        if not odd:
            self.trace.add_numbers(numbers, drawn)

    def _add_numbers(self, values: NDArray[np.float64]) -> None:
        self.infinite += int(np.isinf(values).sum())
        finite = values[np.isfinite(values)]
        self.plain.add(finite)
        self.log.add(signed_log(finite))
        if not self.as_text:
            self.missing = self.rows - self.plain.n

    def decide(self) -> Number | Category:
        """Number or category, and how it is encoded."""
        reading, there = self.reading, self.rows - self.missing
        numbers = self.plain.n + self.infinite
        forced = self.name in reading.categorical
        is_number = there > 0 and numbers >= (1 - FORGIVEN) * there
        if self.as_text and (forced or not is_number):
            self.as_category = True
            common = self.counts.common()[: reading.vocabulary]
            rare = min(reading.rare, max(2, self.rows // 1000))
            if not forced:
                self.written = written_number([value for value, _ in common])
            missing = self.missing / self.rows if self.rows else 1.0
            known = tuple(value for value, n in common if n >= rare)
            return Category(self.name, known, reading.buckets, missing)
        log = self.name in reading.log or abs(self.plain.skewness) > SKEWED
        used = self.log if log else self.plain
        missing = 1 - self.plain.n / self.rows if self.rows else 1.0
        return Number(self.name, used.mean, used.deviation, log, missing)

    def warnings(self) -> list[ColumnWarning]:
        """Texts that look like numbers, and values that are none in a column of numbers."""
        mixed = self.plain.n + self.infinite > 0.5 * (self.rows - self.missing)
        odd = f"{self.odd:,} values of {self.name!r} are no numbers, such as {self.example[:40]!r}"
        if self.as_category:
            why = odd if self.odd and mixed else ""
            if self.written:
                why = f"its texts look like numbers, such as {self.written!r}"
            text = f"{self.name!r} is taken as categories: {why}. Try plain numbers like 1234.5."
            return [ColumnWarning("text number", (self.name,), text)] if why else []
        missing = [f"{odd}; they count as missing."] if self.odd else []
        if self.infinite:
            missing.append(
                f"{self.infinite:,} values of {self.name!r} are infinite, or beyond {HUGE:.0e}; "
                "they count as missing."
            )
        return [ColumnWarning("missing", (self.name,), text) for text in missing]

    def numbers_the_rows(self, as_category: bool) -> str:
        """Why the column counts as a row number, in words; "" where it does not."""
        if not as_category:
            return row_number(self.name, self.trace)
        common = self.counts.common()
        plain = not (self.missing or self.written) and self.rows >= NUMBERED
        return "no text occurs twice" if plain and common and common[0][1] == 1 else ""


class _LabelColumn(_Column):
    """What is known of the label so far, over the rows that have one."""

    def is_given(self, column: Any) -> NDArray[np.bool_]:
        """(rows,): which rows have a label."""
        if self.kind == "text":
            return np.asarray(arrow("compute").is_valid(as_classes(column)))
        return np.isfinite(as_numbers(column)[0])

    def add(self, column: Any, drawn: NDArray[np.int64]) -> None:
        """Take in a piece; numbers are counted as classes too."""
        super().add(column, drawn)
        if not self.as_text:
            self.counts.add(as_classes(column))


def _label(
    column: _LabelColumn,
    total: int,
    task: Task | None,
    table: Table,
    concerns: list[ColumnWarning],
) -> Label:
    """The label's encoding; a task of None is decided from its values. total: all rows."""
    if not column.rows:
        raise InvalidInput(
            f"Expected rows with a label {column.name!r} in {table.source} "
            f"(got {'only missing ones' if total else 'none at all'})."
        )
    if column.rows < total:
        text = (
            f"{total - column.rows:,} of {total:,} rows are left out: their label "
            f"{column.name!r} is missing."
        )
        concerns.append(ColumnWarning("missing", (column.name,), text))
    common = column.counts.common()
    values = sorted(value for value, _ in common)
    is_text = column.kind == "text" and column.odd > 0
    whole = not is_text and all(float(v).is_integer() for v in values[: CLASSES + 1] if v)
    if task is None and not (is_text or (whole and len(values) <= CLASSES) or len(values) == 2):
        task = "number"
    if len(values) < 2:
        raise InvalidInput(
            f"Expected a label with at least two different values in {column.name!r} "
            f"(got {values[0][:40]!r} throughout)."
        )
    if task == "number":
        if is_text:
            raise InvalidInput(
                f"Expected numbers in the label {column.name!r} (got {column.example[:40]!r})."
            )
        return Label(column.name, "number", (), column.plain.mean, column.plain.deviation)
    if len(values) > MOST_CLASSES:
        raise InvalidInput(
            f"Expected a label of at most {MOST_CLASSES:,} classes (got {len(values):,} different "
            f"values in {column.name!r}). Try task='number', or another label."
        )
    if not is_text:
        values.sort(key=float)
    times = dict(common)
    shares = tuple(times[value] / sum(times.values()) for value in values)
    if len(values) > 2:
        return Label(column.name, "classes", tuple(values), shares=shares)
    return Label(column.name, "binary", tuple(values), shares[1], shares=shares)


def _with_known_labels(
    table: Table, label: Label, column: _Column, rows: Sequence[int]
) -> list[int]:
    """Rows per piece as `Schema.encode` will find them: a number label drops texts."""
    if column.kind != "text" or label.task != "number":
        return list(rows)
    return [
        int(np.isfinite(as_numbers(table.read(i, [label.name])[label.name])[0]).sum())
        for i in range(len(table.pieces))
    ]


def _constant(
    columns: Sequence[_Column], encoded: Mapping[str, Number | Category]
) -> list[ColumnWarning]:
    """Columns with nothing in them, or the same value throughout."""
    names = []
    for column in columns:
        code = encoded[column.name]
        spread = code.deviation if isinstance(code, Number) else len(column.counts.common()) - 1
        if (spread == 0 and code.missing == 0) or column.missing == column.rows:
            names.append(column.name)
    text = f"The values of {quoted(names)} are constant or all missing: of no use to any model."
    return [ColumnWarning("constant", tuple(names), text)] if names else []


def _missing_numbers(
    columns: Sequence[_Column], encoded: Mapping[str, Number | Category]
) -> list[ColumnWarning]:
    """How many numbers are missing, of which columns, the most first."""
    gaps = [(c.rows - c.plain.n, c.name) for c in columns
            if isinstance(code := encoded[c.name], Number) and 0 < code.missing < 1]  # fmt: skip
    if not gaps:
        return []
    rows, most = columns[0].rows, sorted(gaps, key=lambda gap: -gap[0])
    words = [f"{count:,} of {name!r} ({100 * count / rows:.2g} %)" for count, name in most]
    text = (
        f"Missing numbers: {listed(words)}. They are filled with the mean of their "
        "column, and a missing indicator is part of the column."
    )
    return [ColumnWarning("missing", tuple(name for _, name in most), text)]


def criteo_reading(**more: Any) -> Reading:
    """Criteo's 13 counts by their logarithm, its 26 hashed columns as categories."""
    return Reading(categorical=CRITEO[14:], numeric=CRITEO[1:14], log=CRITEO[1:14], **more)
