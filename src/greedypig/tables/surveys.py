"""One pass over a table, piece by piece: what its columns hold, and how each will be encoded.

Memory does not grow with the rows. Moments are merged piece by piece; of the different texts of a
column the most frequent ones are counted, and rare ones are let go whenever they get too many.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import NAMED, InvalidFile, InvalidInput, quoted
from ..domains.table.losses import CLASSES
from .arrow import arrow
from .files import CRITEO
from .schema import Category, Label, Number, Schema, Task, listed, signed_log
from .suspects import (
    Draw,
    Trace,
    copies,
    date_words,
    drop_words,
    leaks,
    nameless,
    row_numbers,
    spelt_alike,
    written_date,
    written_number,
    written_words,
)
from .table import HUGE, Table, as_classes, as_numbers, as_texts
from .tally import Counts, Moments

SKEWED = 3.0
"""Numbers whose skewness is beyond this, as counts have it, are taken by their logarithm."""
FORGIVEN = 0.02
"""A column of numbers may hold this share of texts that are none; they count as missing."""
MOST_CLASSES = 1000
RARELY = 0.1
"""Categories whose known values make up less of the rows are hardly any."""
UNIQUE_ROWS = 100
"""Of fewer rows most texts are rare."""


@dataclass(frozen=True)
class Reading:
    """How columns are to be taken, where that is not to be found out."""

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    task: Task | None = None
    vocabulary: int = 10_000
    """Most values that a category knows by name."""
    rare: int = 10
    """Values seen less often share numbers by their hash."""
    buckets: int = 16


@dataclass(frozen=True)
class Survey:
    """What the pass found."""

    schema: Schema
    rows: tuple[int, ...]
    """Rows with a label in each piece."""
    leaks: tuple[str, ...] = ()
    """Columns that give the label away; a warning named them."""

    @property
    def total(self) -> int:
        """Rows with a label."""
        return sum(self.rows)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps({"schema": json.loads(self.schema.to_json()), "rows": self.rows,
                           "leaks": self.leaks})  # fmt: skip

    @staticmethod
    def from_json(text: str) -> Survey:
        """Read what `to_json` wrote."""
        try:
            record = json.loads(text)
            schema = Schema.from_json(json.dumps(record["schema"]))
            return Survey(schema, tuple(record["rows"]), tuple(record.get("leaks", ())))
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidFile(f"Expected a survey of a table as JSON (got {error}).") from error


def survey(
    table: Table,
    label: str,
    reading: Reading | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Survey:
    """Read the table once and decide how each column is encoded; odd ones are warned of.

    progress: called with pieces done and pieces in all.
    """
    reading = reading or Reading()
    table.check(label)
    for name in (*reading.categorical, *reading.numeric, *reading.log):
        table.check(name)
    columns = [name for name in table.kinds if name != label]
    if not columns:
        raise InvalidInput(f"Expected columns besides the label {label!r} (got none).")
    strange = [name for name in columns if table.kinds[name] == "other"]
    if strange:
        raise InvalidInput(
            f"Expected columns of numbers or text (got {listed(strange)}, of another kind). "
            f"Try --drop {drop_words(strange)}."
        )
    of_label = _Column(label, table.kinds[label], reading)
    found = [_Column(name, table.kinds[name], reading) for name in columns]
    rows = []
    draw, trace = Draw(len(table.pieces), len(columns)), Trace()
    for piece in range(len(table.pieces)):
        read = table.read(piece, [*columns, label])
        rows.append(of_label.add_label(read[label]))
        if rows[-1] < read.num_rows:
            read = read.filter(arrow().array(of_label.there))
        drawn = draw.places(piece, read.num_rows)
        trace.add_label(read[label], of_label.kind, drawn)
        for column in found:
            column.add(read[column.name], drawn)
        if progress is not None:
            progress(piece + 1, len(table.pieces))
    made = _label(of_label, sum(rows), reading, table)
    rows = _with_known_labels(table, made, of_label, rows)
    numbers, categories = [], []
    for column in found:
        one = column.decide(reading)
        if isinstance(one, Number):
            numbers.append(one)
        else:
            categories.append(one)
    useless = _warn(found, numbers, categories)
    _warn_of_mixed(table, [*(c.name for c in categories), *([label] if of_label.odd else [])])
    traces = {column.name: column.trace for column in found if column.name not in useless}
    given_away = leaks(made, trace, traces)
    suspects = (nameless(columns), row_numbers(traces), given_away.words(label),
                copies(traces, given_away.equal))  # fmt: skip
    for words in chain(*suspects):
        warnings.warn(words, stacklevel=2)
    return Survey(Schema(tuple(numbers), tuple(categories), made), tuple(rows), given_away.names)


def _warn_of_mixed(table: Table, texts: Sequence[str]) -> None:
    """Columns of text that some file has as numbers."""
    for name in texts:
        found = table.kinds_of(name)
        if {"number", "text"} <= set(found):
            warnings.warn(
                f"{name!r} is of numbers in {found['number']} and of text in {found['text']}: all "
                "its values are taken as text. If it means the same, try files that write it in "
                "one way.", stacklevel=3,
            )  # fmt: skip


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
    if dropped:
        warnings.warn(
            f"{dropped:,} rows of {table.source} are left out: their label {schema.label.name!r} "
            "is missing, or one that the training rows do not have.", stacklevel=2,
        )  # fmt: skip
    return Survey(schema, tuple(rows))


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
    note: str = ""
    written: str = ""
    """A text that looks like a number, where most do."""
    dated: str = ""
    """A text that is a date, where most are."""

    def __post_init__(self) -> None:
        self.counts = Counts(self.reading.vocabulary)
        self.there: NDArray[np.bool_] = np.empty(0, bool)
        self.as_text = self.name in self.reading.categorical or (
            self.kind == "text" and self.name not in self.reading.numeric
        )

    def add(self, column: Any, drawn: NDArray[np.int64]) -> None:
        """Take in a piece; of the rows drawn the values are kept."""
        self.rows += len(column)
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
            no_numbers = np.isnan(values) & np.asarray(pc_is_valid(texts.dictionary))
            self.odd += int(times[no_numbers].sum())
            self.example = self.example or example
            if self.odd > 0.5 * self.rows:
                return  # Texts beyond doubt.
        places = texts.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        numbers = np.append(values, np.nan)[places]
        self._add_numbers(numbers)
        if not odd:
            self.trace.add_numbers(numbers, drawn)

    def _add_numbers(self, values: NDArray[np.float64]) -> None:
        finite = np.isfinite(values)
        nothing = int(np.isnan(values).sum())
        self.infinite += len(values) - int(finite.sum()) - nothing
        kept = values if finite.all() else values[finite]
        self.plain.add(kept)
        self.log.add(signed_log(kept))
        if not self.as_text:
            self.missing = self.rows - self.plain.n

    def add_label(self, column: Any) -> int:
        """Take in a piece of the label; tells how many rows have one."""
        self.rows += len(column)
        texts = as_classes(column)
        self.counts.add(texts)
        self.there = np.asarray(arrow("compute").is_valid(texts))
        if self.kind == "text" and self.odd == 0:
            values, self.odd, self.example = as_numbers(column)
        elif self.kind == "text":
            return int(self.there.sum())
        else:
            values, _, _ = as_numbers(column)
            self.there = np.isfinite(values)
        self.plain.add(values[np.isfinite(values)])
        return int(self.there.sum())

    def decide(self, reading: Reading) -> Number | Category:
        """Number or category, and how it is encoded."""
        missing = self.missing / self.rows if self.rows else 1.0
        there = self.rows - self.missing
        if self.as_text:
            forced = self.name in reading.categorical
            numbers = self.plain.n + self.infinite
            is_number = not forced and there > 0 and numbers >= (1 - FORGIVEN) * there
            if not is_number:
                if numbers > 0.5 * there and not forced:
                    self.note = (
                        f"{self.name!r} is taken as categories: {self.odd:,} of its values are no "
                        f"numbers, such as {self.example[:40]!r}"
                    )
                common = self.counts.common()[: reading.vocabulary]
                rare = min(reading.rare, max(2, self.rows // 1000))
                known = tuple(value for value, n in common if n >= rare)
                if not forced:
                    self._look_at(common, sum(n for _, n in common if n >= rare), there)
                return Category(self.name, known, reading.buckets, missing)
        if self.odd:
            self.note = (
                f"{self.odd:,} values of {self.name!r} are no numbers, such as "
                f"{self.example[:40]!r}, and count as missing"
            )
        if self.infinite:
            self.note = (
                f"{self.infinite:,} values of {self.name!r} are infinite, or beyond "
                f"{HUGE:.0e}, and count as missing"
            )
        if self.rows:
            missing = 1 - self.plain.n / self.rows
        log = self.name in reading.log or abs(self.plain.skewness) > SKEWED
        used = self.log if log else self.plain
        return Number(self.name, used.mean, used.deviation, log, missing)

    def _look_at(self, common: Sequence[tuple[str, int]], known: int, there: int) -> None:
        """Note numbers written oddly, dates, and texts that hardly come again."""
        texts = [value for value, _ in common]
        self.written, self.dated = written_number(texts), written_date(texts)
        if self.written or self.dated:
            self.note = ""  # Told of all such columns at once.
        elif not self.note and there >= UNIQUE_ROWS and known < RARELY * there:
            self.note = (
                f"Nearly every text of {self.name!r} is rare, such as {common[0][0][:40]!r}: as "
                f"categories they share {self.reading.buckets} ids by a hash, which tells little. "
                f"Try --drop {drop_words([self.name])}, or a column made from it"
            )


def _label(column: _Column, rows: int, reading: Reading, table: Table) -> Label:
    """The task, found from the label's values."""
    if not rows:
        raise InvalidInput(
            f"Expected rows with a label {column.name!r} in {table.source} "
            f"(got {'none at all' if not column.rows else 'only missing ones'})."
        )
    if rows < column.rows:
        warnings.warn(
            f"{column.rows - rows:,} of {column.rows:,} rows are left out: their label "
            f"{column.name!r} is missing.", stacklevel=3,
        )  # fmt: skip
    common = column.counts.common()
    values = sorted(value for value, _ in common)
    is_text = column.kind == "text" and column.odd > 0
    whole = not is_text and all(float(v).is_integer() for v in values[: CLASSES + 1] if v)
    task = reading.task
    if task is None:
        if is_text or (whole and len(values) <= CLASSES) or len(values) == 2:
            task = "binary" if len(values) == 2 else "classes"
        else:
            task = "number"
    elif task != "number":
        task = "binary" if len(values) == 2 else "classes"
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
            f"values in {column.name!r}). Try --task regression, or another --label."
        )
    if not is_text:
        values.sort(key=float)
    for words in spelt_alike(column.name, values):
        warnings.warn(words, stacklevel=3)
    times = dict(common)
    shares = tuple(times[value] / sum(times.values()) for value in values)
    mean = shares[1] if task == "binary" else 0.0
    return Label(column.name, task, tuple(values), mean, shares=shares)


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


def _warn(
    found: Sequence[_Column], numbers: Sequence[Number], categories: Sequence[Category]
) -> set[str]:
    """Warn of odd columns; tells those that hold nothing, or the same throughout."""
    for column in found:
        if column.note:
            warnings.warn(f"{column.note}.", stacklevel=3)
    for words in (
        *written_words({c.name: c.written for c in found if c.written}),
        *date_words({c.name: c.dated for c in found if c.dated}),
    ):
        warnings.warn(words, stacklevel=3)
    texts = {c.name: c for c in found}
    _warn_of_filled([(c.name, texts[c.name].rows - texts[c.name].plain.n, c.missing)
                     for c in numbers if 0 < c.missing < 1])  # fmt: skip
    empty = [c.name for c in found if c.missing == c.rows]
    if empty:
        warnings.warn(f"Nothing is in {listed(empty)}: no use to any model.", stacklevel=3)
    constant = [c.name for c in numbers if c.deviation == 0 and c.name not in empty]
    constant += [
        c.name for c in categories
        if c.name not in empty and c.missing == 0 and len(texts[c.name].counts.common()) == 1
    ]  # fmt: skip
    if constant:
        warnings.warn(f"The same value throughout in {listed(constant)}.", stacklevel=3)
    return {*empty, *constant}


def _warn_of_filled(filled: Sequence[tuple[str, int, float]]) -> None:
    """Numbers that are not there: how many, of which columns, the most first."""
    if not filled:
        return
    most = sorted(filled, key=lambda one: -one[1])
    words = [f"{count:,} of {name!r} ({100 * share:.2g} %)" for name, count, share in most[:NAMED]]
    more = f" and {len(most) - NAMED} columns more" if len(most) > NAMED else ""
    warnings.warn(
        f"Missing numbers are filled with the mean of their column: {', '.join(words)}{more}. "
        "A column that is missing for a reason tells more as a category.", stacklevel=4,
    )  # fmt: skip


def pc_is_valid(array: Any) -> Any:
    """Which values are there."""
    return arrow("compute").is_valid(array)


def criteo_reading(**more: Any) -> Reading:
    """Criteo's 13 counts by their logarithm, its 26 hashed columns as categories."""
    return Reading(categorical=CRITEO[14:], numeric=CRITEO[1:14], log=CRITEO[1:14], **more)
