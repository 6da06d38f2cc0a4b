"""Columns that deserve a second look: the label in another guise, copies, numbers written oddly.

Every column leaves a trace of bounded size: a digest of all its values, by which copies are found
exactly, and its values in rows drawn from every piece, which are held against the label's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import NAMED, quoted
from .schema import Label, text_hash
from .source import as_numbers, as_texts

ROWS = 10_000
"""Rows that are held against the label, of all pieces together."""
MEMORY = 64 * 2**20
"""Bytes that they may take; fewer rows where columns are many."""
ENOUGH = 20
"""So many rows outside the largest class rule out that a column tells classes apart by chance."""
CERTAIN = 0.999
"""Area under the ROC curve, or share of the rows outside the largest class that are told right."""
SAME_ORDER = 0.9999
"""Rank correlation with a label of numbers."""
NOTHING = (-1, int(np.array(np.nan).view(np.int64)))
"""Codes of a missing text and of a missing number."""
NUMBERED, NUMBERED_INDEX = 50, 10
"""Rows from which whole numbers that rise from each to the next are no accident; and the same for
a column without a name, as pandas writes its index."""
NAMED_ID = re.compile(r"(?i:(?:^|[\W_])(?:id|uuid|guid|index|idx|row|rownum|row_?no))$|[a-z]I[Dd]$")
"""Names of columns that number things: id, row_id, PassengerId, index."""
EXACT = 2.0**53
"""Whole numbers below are exact."""
NAMELESS = re.compile(r"Unnamed: \d+")
WRITTEN = re.compile(
    r"[-+]?[$€£]?\s?\d{1,3}(?:[,.'\s]?\d{3})*(?:[.,]\d+)?(?:[eE][-+]?\d+)?\s?[%€$£]?"
)
"""Numbers as people write them: 1.234,5 or 1,234.5 or 3.1 % or $5."""
DATE = re.compile(
    r"(?:\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2\d{4})(?:[T ]\d{1,2}:\d{2}.*)?"
)
"""2024-01-31, 31.1.2024, 1/31/2024, each also with a time behind it."""


class Draw:
    """Which rows of each piece are kept: the same for all columns."""

    def __init__(self, pieces: int, columns: int) -> None:
        self.rows = int(min(ROWS, max(200, MEMORY // (16 * max(columns, 1)))))
        self.quota = -(-self.rows // max(pieces, 1))
        self.stride = max(1, pieces // self.rows)

    def places(self, piece: int, rows: int) -> NDArray[np.int64]:
        """By chance rather than evenly: rows may come in turns."""
        if piece % self.stride:
            return np.empty(0, np.int64)
        if rows <= self.quota:
            return np.arange(rows)
        drawn = np.random.default_rng([piece, 11]).choice(rows, self.quota, replace=False)
        return np.sort(drawn)


@dataclass
class Trace:
    """What is kept of a column."""

    digest: Any = field(default_factory=lambda: blake2b(digest_size=16))
    numbers: list[NDArray[np.float64]] = field(default_factory=list)
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    rows: int = 0
    whole: bool = True
    """Only whole numbers so far, none missing?"""
    rising: bool = True
    """Has each been above the one before so far, or each below?"""
    _last: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    low: float = float("inf")
    high: float = float("-inf")
    _mixed: int = 0
    """Sum of the numbers' hashes: whatever their order."""

    def add_numbers(self, values: NDArray[np.float64], at: NDArray[np.int64]) -> None:
        """Take in a piece; −0 is 0, and there is one NaN."""
        plain = np.where(np.isnan(values), np.nan, values + 0.0)
        self.digest.update(plain.tobytes())
        self.rows += len(plain)
        self._add_whole(plain)
        self.numbers.append(plain[at])
        self.codes.append(plain[at].view(np.int64))

    def _add_whole(self, plain: NDArray[np.float64]) -> None:
        self.whole = self.whole and bool((np.abs(plain) < EXACT).all())
        self.whole = self.whole and bool((plain == np.rint(plain)).all())
        if not self.whole or not len(plain):
            return
        run = np.concatenate([self._last, plain])
        steps = np.diff(run)
        self.rising = self.rising and bool((steps > 0).all() or (steps < 0).all())
        self._last = run[-2:]
        self.low, self.high = min(self.low, plain.min()), max(self.high, plain.max())
        self._mixed = (self._mixed + _hash_sum(plain.astype(np.int64))) % 2**64

    def consecutive(self) -> bool:
        """Are these the whole numbers from a lowest to a highest, each once, in any order?"""
        if not self.whole or not self.rows or self.high - self.low + 1 != self.rows:
            return False
        total, chunk = 0, 1 << 20
        for low in range(int(self.low), int(self.high) + 1, chunk):
            total += _hash_sum(np.arange(low, min(low + chunk, int(self.high) + 1)))
        return total % 2**64 == self._mixed

    def add_texts(
        self, texts: Any, values: NDArray[np.float64] | None, at: NDArray[np.int64]
    ) -> None:
        """Take in a piece of dictionary-encoded texts that are no numbers, all or some.

        values: of each different text, NaN where it is no number.
        """
        places = texts.indices.fill_null(len(texts.dictionary)).to_numpy(zero_copy_only=False)
        self.whole = False
        codes = np.append(text_hash(texts.dictionary), -1)[places]
        self.digest.update(codes.tobytes())
        self.codes.append(codes[at])
        numbers = np.full(len(at), np.nan)
        if values is not None:
            numbers = np.append(values, np.nan)[places[at]]
        self.numbers.append(numbers)

    def add_label(self, column: Any, kind: str, at: NDArray[np.int64]) -> None:
        """Take in a piece of the label, as a column of its values would be."""
        if kind != "text":
            self.add_numbers(as_numbers(column)[0], at)
            return
        texts = as_texts(column)
        values, odd, _ = as_numbers(texts.dictionary)
        if odd:
            self.add_texts(texts, values, at)
        else:
            places = texts.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
            self.add_numbers(np.append(values, np.nan)[places], at)


@dataclass(frozen=True)
class Leaks:
    """Columns that give the label away."""

    equal: tuple[str, ...] = ()
    telling: tuple[str, ...] = ()
    """Of classes: one column tells them apart."""
    in_order: tuple[str, ...] = ()
    """Of a number: one column has its order."""
    rows: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return self.equal + self.telling + self.in_order

    def words(self, label: str) -> list[str]:
        """A sentence for each kind."""
        guise = "If that is the label in another guise, or known only after it, leave it out: "
        many = f"in {self.rows:,} rows held against it"
        said = (
            (self.equal, "The values of {} equal the label {!r}."),
            (self.telling, f"The values of {{}} alone tell the classes of {{!r}} apart, {many}."),
            (self.in_order, f"The values of {{}} alone give the order of {{!r}}, {many}."),
        )
        return [
            f"{text.format(quoted(names), label)} {guise}--drop {drop_words(names)}."
            for names, text in said if names
        ]  # fmt: skip


def leaks(label: Label, of_label: Trace, traces: Mapping[str, Trace]) -> Leaks:
    """Hold every column against the label."""
    equal = [n for n, t in traces.items() if t.digest.digest() == of_label.digest.digest()]
    telling, in_order = [], []
    answer = np.concatenate(of_label.numbers or [np.empty(0)])
    classes = np.unique(
        np.concatenate(of_label.codes or [np.empty(0, np.int64)]), return_inverse=True
    )[1]
    for name, trace in traces.items():
        if name in equal or not trace.codes:
            continue
        numbers, codes = np.concatenate(trace.numbers), np.concatenate(trace.codes)
        if label.task == "number":
            if _in_order(numbers, answer):
                in_order.append(name)
        elif _tells(numbers, codes, classes):
            telling.append(name)
    return Leaks(tuple(equal), tuple(telling), tuple(in_order), len(classes))


def _tells(
    numbers: NDArray[np.float64], codes: NDArray[np.int64], classes: NDArray[np.int64]
) -> bool:
    """Do few values each belong to a class, or do thresholds part the classes?"""
    if not len(classes) or len(classes) - np.bincount(classes).max() < ENOUGH:
        return False
    if _pure(np.unique(codes, return_inverse=True)[1], classes):
        return True
    if _pure(np.isin(codes, NOTHING).astype(np.int64), classes):
        return True
    there = np.isfinite(numbers)
    return bool(there.mean() > 0.5) and _parts(np.where(there, numbers, -np.inf), classes)


def _pure(groups: NDArray[np.int64], classes: NDArray[np.int64]) -> bool:
    """Goodman and Kruskal's lambda near 1, for groups of many rows each."""
    n, of, kinds = len(classes), int(groups.max()) + 1, int(classes.max()) + 1
    if of < 2 or of * ENOUGH > n or of * kinds > 4 * n:
        return False
    table = np.bincount(groups * kinds + classes, minlength=of * kinds).reshape(of, kinds)
    base = int(table.sum(0).max())
    return bool(table.max(1).sum() - base >= CERTAIN * (n - base))


def _parts(x: NDArray[np.float64], classes: NDArray[np.int64]) -> bool:
    kinds = int(classes.max()) + 1
    if kinds == 2:
        ranks, ones = _ranks(x), classes == 1
        many, few = int(ones.sum()), int((~ones).sum())
        area = (ranks[ones].sum() - many * (many + 1) / 2) / (many * few)
        return bool(max(area, 1 - area) >= CERTAIN)
    # Sorted both ways among equal values: the same only where each value is of one class.
    up, down = (classes[np.lexsort((sign * classes, x))] for sign in (1, -1))
    return bool((up == down).all()) and np.count_nonzero(np.diff(up)) == kinds - 1


def _in_order(x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    there = np.isfinite(x) & np.isfinite(y)
    if there.sum() < ENOUGH or there.mean() < 0.5:
        return False
    a, b = _ranks(x[there]), _ranks(y[there])
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return spread > 0 and abs(float(a @ b)) >= SAME_ORDER * spread


def _ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 1; equal values share their mean rank."""
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    made: NDArray[np.float64] = (ends - (counts - 1) / 2)[places]
    return made


def copies(traces: Mapping[str, Trace], apart: Sequence[str] = ()) -> list[str]:
    """A sentence for every set of columns that are equal in all rows."""
    alike: dict[bytes, list[str]] = {}
    for name, trace in traces.items():
        if name not in apart:
            alike.setdefault(trace.digest.digest(), []).append(name)
    return [
        f"The same values in all rows of {quoted(names)}: a model may use any of them, so that "
        f"each looks weaker than it is. Try --drop {drop_words(names[1:])}."
        for names in alike.values() if len(names) > 1
    ]  # fmt: skip


def spelt_alike(label: str, classes: Sequence[str]) -> list[str]:
    """A sentence on classes that differ by capitals or spaces alone."""
    spelt: dict[str, list[str]] = {}
    for value in classes:
        spelt.setdefault(value.strip().casefold(), []).append(value)
    return [
        f"Different classes of {label!r} are spelt nearly alike: {quoted(values)}. If they are "
        "one, spell them alike in the table."
        for values in spelt.values() if len(values) > 1
    ]  # fmt: skip


def _hash_sum(x: NDArray[np.int64]) -> int:
    """Σ of a hash of each number, modulo 2⁶⁴: equal for the same numbers in any order."""
    mixed = x.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return int(mixed.sum(dtype=np.uint64))


def row_number(name: str, trace: Trace) -> str:
    """In what way a column of numbers counts the rows, in words; nothing where it does not."""
    index = NAMELESS.fullmatch(name) is not None
    if not trace.whole or trace.rows < (NUMBERED_INDEX if index else NUMBERED):
        return ""
    if trace.rising:
        return "rises or falls in every row"
    if trace.consecutive():
        return f"is {trace.low:.0f} to {trace.high:.0f}, each once"
    drawn = np.concatenate(trace.numbers)
    if NAMED_ID.search(name) and len(drawn) >= NUMBERED and len(np.unique(drawn)) == len(drawn):
        return "no number occurs twice"
    return ""


def row_number_words(why: Mapping[str, str]) -> list[str]:
    """A sentence on the columns that are left out; why: column → in what way it counts rows."""
    if not why:
        return []
    named = list(why.items())
    words = ", ".join(f"{name!r} ({reason})" for name, reason in named[:NAMED])
    more = f" and {len(why) - NAMED} more" if len(why) > NAMED else ""
    return [
        f"Left out because they number the rows: {words}{more}. To rank them anyway, try --keep "
        f"{drop_words(list(why))}."
    ]


def rising_words(names: Sequence[str]) -> list[str]:
    """A sentence on columns that number the rows and are kept."""
    if not names:
        return []
    return [
        f"The values of {quoted(names)} number the rows, or are times by which they are sorted. "
        f"What they tell of these rows they may not tell of new ones. Try --drop "
        f"{drop_words(names)}."
    ]


def nameless(columns: Sequence[str], left_out: Sequence[str] = ()) -> list[str]:
    """A sentence on columns that have no name but their place."""
    found = [name for name in columns if NAMELESS.fullmatch(name) and name not in left_out]
    if not found:
        return []
    index = "It is probably the index that pandas writes: try" if found == ["Unnamed: 0"] else "Try"
    return [f"Without a name in the table: {quoted(found)}. {index} --drop {drop_words(found)}."]


def written_number(texts: Sequence[str]) -> str:
    """One of a column's texts, if most are numbers as people write them; else nothing."""
    looked = [text.strip() for text in texts[:1000]]
    written = [t for t in looked if WRITTEN.fullmatch(t)]
    marked = [t for t in written if re.search(r"[,%€$£']", t)]
    if len(written) < 0.9 * len(looked) or len(marked) < 0.1 * len(looked) or len(looked) < 3:
        return ""
    return marked[0][:40]


def written_words(examples: Mapping[str, str]) -> list[str]:
    """A sentence on columns of such texts; examples: column → one of its texts."""
    if not examples:
        return []
    comma = any(re.fullmatch(r"[-+]?\d*,\d+", text) for text in examples.values())
    way = "--decimal , if a comma stands for the point, or " if comma else ""
    return [
        f"Taken as categories: {quoted(list(examples))}, whose texts look like numbers, such as "
        f"{next(iter(examples.values()))!r}. Try {way}writing them plainly, like 1234.5."
    ]


def written_date(texts: Sequence[str]) -> str:
    """One of a column's texts, if nearly all are dates; else nothing."""
    looked = [text.strip() for text in texts[:1000]]
    dates = [text for text in looked if DATE.fullmatch(text)]
    if len(looked) < 3 or len(dates) < 0.9 * len(looked):
        return ""
    return dates[0][:40]


def date_words(examples: Mapping[str, str]) -> list[str]:
    """A sentence on columns of dates; examples: column → one of its texts."""
    if not examples:
        return []
    return [
        f"Taken as categories, which have no order: {quoted(list(examples))}, whose texts are "
        f"dates, such as {next(iter(examples.values()))!r}. Try a number made from them, such as "
        f"the days since the first one, or --drop {drop_words(list(examples))}."
    ]


def drop_words(names: Sequence[str]) -> str:
    """Names as --drop takes them: with commas between, those that hold one in quotes."""
    return shlex.quote(",".join(f'"{n}"' if "," in n else n for n in names[:NAMED]))
