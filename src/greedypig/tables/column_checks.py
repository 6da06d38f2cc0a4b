"""Six warnings about the columns of a table, each with the names of the columns.

A column may be constant, copy another, equal the label, decide it, number the rows, or hold text
that looks like numbers. Every column leaves a trace of bounded size: a digest of all its values, by
which copies are found exactly, and its values in rows drawn from every piece, which are compared
with the label's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import quoted
from .arrow import in_rows
from .schema import Label, text_hash

ROWS = 10_000
"""Rows that are compared with the label, of all pieces together."""
MEMORY = 64 * 2**20
"""Bytes that they may take; fewer rows where columns are many."""
ENOUGH = 20
"""Rows outside the largest class from which a column does not decide the label by chance."""
CERTAIN = 0.999
"""Area under the ROC curve, or share of rows outside the largest class that are predicted right."""
SAME_ORDER = 0.9999
"""Rank correlation with a label of numbers."""
MISSING_CODES = (-1, int(np.array(np.nan).view(np.int64)))
"""Codes of a missing text and of a missing number."""
NUMBERED, NUMBERED_INDEX = 50, 10
"""Rows from which whole numbers that increase in every row are taken as row numbers; and the same
for a column without a name, as pandas writes its index."""
NAMED_ID = re.compile(r"(?i:(?:^|[\W_])(?:id|uuid|guid|index|idx|row|rownum|row_?no))$|[a-z]I[Dd]$")
"""Names of columns that number things: id, row_id, PassengerId, index."""
NAMELESS = re.compile(r"Unnamed: \d+")
EXACT = 2.0**53
"""Whole numbers below are exact."""
WRITTEN = re.compile(
    r"[-+]?[$€£]?\s?\d{1,3}(?:[,.'\s]?\d{3})*(?:[.,]\d+)?(?:[eE][-+]?\d+)?\s?[%€$£]?"
)
"""Numbers as people write them: 1.234,5 or 1,234.5 or 3.1 % or $5."""

Kind = Literal[
    "constant", "copy", "equals label", "decides label", "row number", "text number", "missing"
]
LEAKS = ("equals label", "decides label")


class ColumnWarning(NamedTuple):
    """A sentence or two about some columns."""

    kind: Kind
    columns: tuple[str, ...]
    text: str


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
    drawn: list[NDArray[np.float64]] = field(default_factory=list)
    """Values in the rows drawn, NaN where they are no numbers …"""
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    """… and a code for each different value."""
    rows: int = 0
    whole: bool = True
    """Only whole numbers so far, none missing?"""
    rising: bool = True
    """Do the values so far increase in every row, or decrease in every row?"""
    low: float = float("inf")
    high: float = float("-inf")
    _last: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def add_numbers(self, values: NDArray[np.float64], at: NDArray[np.int64]) -> None:
        """Take in a piece; −0 is 0, and there is one NaN."""
        plain = np.where(np.isnan(values), np.nan, values + 0.0)
        self.digest.update(plain.tobytes())
        self.rows += len(plain)
        whole = (np.abs(plain) < EXACT) & (plain == np.rint(plain))
        self.whole = self.whole and bool(whole.all())
        if self.whole and len(plain):
            run = np.concatenate([self._last, plain])
            steps = np.diff(run)
            self.rising = self.rising and bool((steps > 0).all() or (steps < 0).all())
            self._last = run[-2:]
            self.low, self.high = min(self.low, plain.min()), max(self.high, plain.max())
        self.drawn.append(plain[at])
        self.codes.append(plain[at].view(np.int64))

    def add_texts(
        self, texts: Any, values: NDArray[np.float64] | None, at: NDArray[np.int64]
    ) -> None:
        """Take in a piece of dictionary-encoded texts that are no numbers, all or some.

        values: of each different text, NaN where it is no number.
        """
        self.whole = False
        codes = in_rows(texts, text_hash(texts.dictionary), -1)
        self.digest.update(codes.tobytes())
        self.codes.append(codes[at])
        known = np.full(len(texts.dictionary), np.nan) if values is None else values
        self.drawn.append(in_rows(texts, known, np.nan)[at])

    @property
    def numbers(self) -> NDArray[np.float64]:
        """Values in the rows drawn."""
        return np.concatenate(self.drawn or [np.empty(0)])

    @property
    def classes(self) -> NDArray[np.int64]:
        """Codes in the rows drawn."""
        return np.concatenate(self.codes or [np.empty(0, np.int64)])


def check_leaks(label: Label, of_label: Trace, traces: Mapping[str, Trace]) -> list[ColumnWarning]:
    """Columns that equal the label or decide it."""
    advice = "If that is the label in another form, or known only after it, leave it out."
    equal = [n for n, t in traces.items() if t.digest.digest() == of_label.digest.digest()]
    answer = of_label.numbers
    classes = np.unique(of_label.classes, return_inverse=True)[1]
    deciding = []
    for name, trace in traces.items():
        if name not in equal and trace.codes:
            numbers = trace.numbers
            if label.task == "number":
                decides = _in_order(numbers, answer)
            else:
                decides = _separates(numbers, trace.classes, classes)
            deciding += [name] if decides else []
    what = "give the order of" if label.task == "number" else "tell the classes of"
    warnings = []
    if equal:
        text = f"The values of {quoted(equal)} equal the label {label.name!r}. {advice}"
        warnings.append(ColumnWarning("equals label", tuple(equal), text))
    if deciding:
        text = (
            f"The values of {quoted(deciding)} alone {what} {label.name!r}, in {len(classes):,} "
            f"rows compared. {advice}"
        )
        warnings.append(ColumnWarning("decides label", tuple(deciding), text))
    return warnings


def _separates(
    numbers: NDArray[np.float64], codes: NDArray[np.int64], classes: NDArray[np.int64]
) -> bool:
    """Do few values each belong to a class, or do thresholds part the classes?"""
    if not len(classes) or len(classes) - np.bincount(classes).max() < ENOUGH:
        return False
    groups = (np.unique(codes, return_inverse=True)[1], np.isin(codes, MISSING_CODES).astype(int))
    if any(_pure(group, classes) for group in groups):
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
    ranks: NDArray[np.float64] = (counts.cumsum() - (counts - 1) / 2)[places]
    return ranks


def check_copies(traces: Mapping[str, Trace], apart: Sequence[str] = ()) -> list[ColumnWarning]:
    """Every set of columns that are equal in all rows; apart: names that are not compared."""
    alike: dict[bytes, list[str]] = {}
    for name, trace in traces.items():
        if name not in apart:
            alike.setdefault(trace.digest.digest(), []).append(name)
    text = (
        "The values of {} are the same in all rows. A model may use any of them, so each looks "
        "weaker than it is. Keep one of them."
    )
    copies = [names for names in alike.values() if len(names) > 1]
    return [ColumnWarning("copy", tuple(names), text.format(quoted(names))) for names in copies]


def row_number(name: str, trace: Trace) -> str:
    """Why a column of numbers counts as a row number, in words; "" where it does not."""
    index = NAMELESS.fullmatch(name) is not None
    if not trace.whole or trace.rows < (NUMBERED_INDEX if index else NUMBERED):
        return ""
    if trace.rising:
        return "rises or falls in every row"
    drawn = trace.numbers
    if len(np.unique(drawn)) < len(drawn):
        return ""
    if trace.high - trace.low + 1 == trace.rows:
        return f"is {trace.low:.0f} to {trace.high:.0f}, each once"
    return "no number occurs twice" if NAMED_ID.search(name) and len(drawn) >= NUMBERED else ""


def written_number(texts: Sequence[str]) -> str:
    """One of a column's texts, if most are numbers as people write them; else nothing."""
    stripped = [text.strip() for text in texts[:1000]]
    written = [t for t in stripped if WRITTEN.fullmatch(t)]
    marked = [t for t in written if re.search(r"[,%€$£']", t)]
    few = len(written) < 0.9 * len(stripped) or len(marked) < 0.1 * len(stripped)
    return "" if few or len(stripped) < 3 else marked[0][:40]
