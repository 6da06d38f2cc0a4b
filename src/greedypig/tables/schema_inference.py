"""One pass over a table, piece by piece: what its columns hold, and how each will be encoded.

Memory does not grow with the rows. Moments are merged piece by piece; of the different texts of a
column the most frequent ones are counted, and rare ones are let go whenever they get too many.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import NAMED, InvalidFile, InvalidInput, quoted
from .arrow import arrow
from .column_checks import (
    NUMBERED,
    Draw,
    Trace,
    copies,
    date_words,
    drop_words,
    leaks,
    nameless,
    rising_words,
    row_number,
    row_number_words,
    spelt_alike,
    written_date,
    written_number,
    written_words,
)
from .files import CRITEO
from .losses import CLASSES
from .running_stats import Counts, Moments
from .schema import Category, Label, Number, Schema, Task, listed, signed_log
from .source import HUGE, Table, as_classes, as_numbers, as_texts

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
    """What the pass found."""

    schema: Schema
    rows: tuple[int, ...]
    """Rows with a label in each piece."""
    leaks: tuple[str, ...] = ()
    """Columns that give the label away; a warning named them."""
    left_out: tuple[str, ...] = ()
    """Columns that number the rows: they are not in the schema."""
    warnings: tuple[str, ...] = ()
    """What was warned of, a sentence or two each."""

    @property
    def total(self) -> int:
        """Rows with a label."""
        return sum(self.rows)

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps({"schema": json.loads(self.schema.to_json()), "rows": self.rows,
                           "leaks": self.leaks, "left_out": self.left_out,
                           "warnings": self.warnings})  # fmt: skip

    @staticmethod
    def from_json(text: str) -> Survey:
        """Read what `to_json` wrote."""
        try:
            record = json.loads(text)
            schema = Schema.from_json(json.dumps(record["schema"]))
            lists = {n: tuple(record.get(n, ())) for n in ("leaks", "left_out", "warnings")}
            return Survey(schema, tuple(record["rows"]), **lists)
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
    for name in (*reading.categorical, *reading.numeric, *reading.log, *(reading.keep or ())):
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
    rows, trace = _read(table, of_label, found, progress)
    said: list[str] = []
    made = _label(of_label, sum(rows), reading, table, said)
    rows = _with_known_labels(table, made, of_label, rows)
    encoded = {column.name: column.decide(reading) for column in found}
    found, left_out = _without_row_numbers(found, encoded, reading, label, said)
    numbers = tuple(e for c in found if isinstance(e := encoded[c.name], Number))
    categories = tuple(e for c in found if isinstance(e := encoded[c.name], Category))
    useless = _odd_columns(found, numbers, categories, said)
    texts = [*(c.name for c in categories), *([label] if of_label.odd else [])]
    said += _mixed_words(table, texts)
    traces = {column.name: column.trace for column in found if column.name not in useless}
    given_away = leaks(made, trace, traces)
    said += [*nameless(list(encoded), left_out), *given_away.words(label),
             *copies(traces, given_away.equal)]  # fmt: skip
    for words in said:
        warnings.warn(words, stacklevel=2)
    return Survey(Schema(numbers, categories, made), tuple(rows), given_away.names,
                  tuple(left_out), tuple(said))  # fmt: skip


def _read(
    table: Table,
    of_label: _Column,
    found: Sequence[_Column],
    progress: Callable[[int, int], object] | None,
) -> tuple[list[int], Trace]:
    """Show the columns every piece; tells the labelled rows of each, and the label's trace."""
    rows = []
    draw, trace = Draw(len(table.pieces), len(found)), Trace()
    for piece in range(len(table.pieces)):
        read = table.read(piece, [*(column.name for column in found), of_label.name])
        rows.append(of_label.add_label(read[of_label.name]))
        if rows[-1] < read.num_rows:
            read = read.filter(arrow().array(of_label.there))
        drawn = draw.places(piece, read.num_rows)
        trace.add_label(read[of_label.name], of_label.kind, drawn)
        for column in found:
            column.add(read[column.name], drawn)
        if progress is not None:
            progress(piece + 1, len(table.pieces))
    return rows, trace


def _without_row_numbers(
    found: Sequence[_Column],
    encoded: Mapping[str, Number | Category],
    reading: Reading,
    label: str,
    said: list[str],
) -> tuple[list[_Column], list[str]]:
    """The columns to rank, and the names of those that number the rows."""
    why = {
        column.name: words for column in found
        if (words := column.numbers_the_rows(isinstance(encoded[column.name], Category)))
    }  # fmt: skip
    named = {*(reading.keep or ()), *reading.categorical, *reading.numeric}
    times = {column.name for column in found if column.is_time}
    out = [n for n in why if reading.keep is not None and n not in named | times]
    if len(out) == len(found):
        raise InvalidInput(
            f"Expected columns besides the label {label!r} and those that number the rows (got "
            f"{quoted(out)} alone). Try --keep {drop_words(out)}."
        )
    said += row_number_words({name: why[name] for name in out})
    asked = reading.keep or ()
    said += rising_words([n for n in why if n not in out and n not in asked])
    return [column for column in found if column.name not in out], out


def _mixed_words(table: Table, texts: Sequence[str]) -> list[str]:
    """A sentence on every column of text that some file has as numbers."""
    return [
        f"{name!r} is of numbers in {kinds['number']} and of text in {kinds['text']}: all its "
        "values are taken as text. If it means the same, try files that write it in one way."
        for name in texts if {"number", "text"} <= set(kinds := table.kinds_of(name))
    ]  # fmt: skip


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
    words = (
        f"{dropped:,} rows of {table.source} are left out: their label {schema.label.name!r} "
        "is missing, or one that the training rows do not have."
    )
    if dropped:
        warnings.warn(words, stacklevel=2)
    return Survey(schema, tuple(rows), warnings=(words,) if dropped else ())


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

    def numbers_the_rows(self, as_category: bool) -> str:
        """In what way the column numbers the rows, in words; nothing where it does not."""
        if not as_category:
            return row_number(self.name, self.trace)
        common = self.counts.common()
        plain = not (self.missing or self.written or self.dated)
        once = plain and self.rows >= NUMBERED and bool(common) and common[0][1] == 1
        return "no text occurs twice" if once else ""

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


def _label(column: _Column, rows: int, reading: Reading, table: Table, said: list[str]) -> Label:
    """The task, found from the label's values."""
    if not rows:
        raise InvalidInput(
            f"Expected rows with a label {column.name!r} in {table.source} "
            f"(got {'none at all' if not column.rows else 'only missing ones'})."
        )
    if rows < column.rows:
        said.append(
            f"{column.rows - rows:,} of {column.rows:,} rows are left out: their label "
            f"{column.name!r} is missing."
        )
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
    said += spelt_alike(column.name, values)
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


def _odd_columns(
    found: Sequence[_Column],
    numbers: Sequence[Number],
    categories: Sequence[Category],
    said: list[str],
) -> set[str]:
    """Name odd columns; tells those that hold nothing, or the same throughout."""
    said += [f"{column.note}." for column in found if column.note]
    said += written_words({c.name: c.written for c in found if c.written})
    said += date_words({c.name: c.dated for c in found if c.dated})
    texts = {c.name: c for c in found}
    said += _missing_words([(c.name, texts[c.name].rows - texts[c.name].plain.n, c.missing)
                            for c in numbers if 0 < c.missing < 1])  # fmt: skip
    empty = [c.name for c in found if c.missing == c.rows]
    if empty:
        said.append(f"Nothing is in {listed(empty)}: no use to any model.")
    constant = [c.name for c in numbers if c.deviation == 0 and c.missing == 0]
    constant += [
        c.name for c in categories
        if c.name not in empty and c.missing == 0 and len(texts[c.name].counts.common()) == 1
    ]  # fmt: skip
    if constant:
        said.append(f"The same value throughout in {listed(constant)}.")
    return {*empty, *constant}


def _missing_words(gaps: Sequence[tuple[str, int, float]]) -> list[str]:
    """A sentence on missing numbers: how many, of which columns, the most first."""
    if not gaps:
        return []
    most = sorted(gaps, key=lambda one: -one[1])
    words = [f"{count:,} of {name!r} ({100 * share:.2g} %)" for name, count, share in most[:NAMED]]
    more = f" and {len(most) - NAMED} columns more" if len(most) > NAMED else ""
    return [
        f"Missing numbers: {', '.join(words)}{more}. They are filled with the mean of their "
        "column, and a missing indicator is part of the column."
    ]


def pc_is_valid(array: Any) -> Any:
    """Which values are there."""
    return arrow("compute").is_valid(array)


def criteo_reading(**more: Any) -> Reading:
    """Criteo's 13 counts by their logarithm, its 26 hashed columns as categories."""
    return Reading(categorical=CRITEO[14:], numeric=CRITEO[1:14], log=CRITEO[1:14], **more)
