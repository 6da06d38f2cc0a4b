"""Warnings about the columns of a table, each with the names of the columns.

A column may be constant, copy another one (also in other units), equal the label, decide it, number
the rows, or hold text that looks like numbers. Columns are compared with each other and with the
label in rows drawn at random from all pieces; of a small table these are all rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core.errors import listed, quoted
from .arrow import HUGE

if TYPE_CHECKING:
    from .schema import Label
    from .schema_inference import Column

ENOUGH = 20
"""Rows outside the largest class from which a column does not decide the label by chance."""
CERTAIN = 0.999
"""Share of the rows outside the largest class that are predicted right."""
SCALED, SAME_ORDER = 0.9999, 0.99
"""Correlations, of values and of ranks, beyond which a column is another one times a factor."""
NUMBERED, NUMBERED_INDEX = 50, 10
"""Rows from which whole numbers that increase in every row are taken as row numbers; and the same
for a column without a name, as pandas writes its index."""
NAMED_ID = re.compile(r"(?i:(?:^|[\W_])(?:id|uuid|guid|index|idx|row|rownum|row_?no))$|[a-z]I[Dd]$")
"""Names of columns that number things: id, row_id, PassengerId, index."""
WRITTEN = re.compile(
    r"[-+]?[$€£]?\s?\d{1,3}(?:[,.'\s]?\d{3})*(?:[.,]\d+)?(?:[eE][-+]?\d+)?\s?[%€$£]?"
)
"""Numbers as people write them: 1.234,5 or 1,234.5 or 3.1 % or $5."""

LEAKS = ("equals label", "decides label")


@dataclass(frozen=True)
class ColumnWarning:
    """A sentence or two about some columns."""

    kind: str
    """"constant", "copy", "equals label", "decides label", "row number", "text number", "missing"
    or "other kind"."""
    columns: tuple[str, ...]
    text: str


def check_columns(
    columns: Sequence[Column],
    unusable: Sequence[str],
    numbering: Mapping[str, str],
    label: Label,
    target: Column,
    total: int,
) -> list[ColumnWarning]:
    """All warnings about the columns of a table.

    unusable: columns of dates and other kinds. numbering: the columns that number the rows, with
    the reason. target: the label's column. total: all rows, also those without a label.
    """
    warnings: list[ColumnWarning] = []

    def warn(kind: str, names: Iterable[str], text: str) -> None:
        if names := tuple(names):
            warnings.append(ColumnWarning(kind, names, text.replace("{}", quoted(names), 1)))

    if target.rows < total:
        dropped = f"{total - target.rows:,} of {total:,} rows"
        warn("missing", [label.name], dropped + " are left out: their label {} is missing.")
    warn("other kind", unusable, "Left out because they hold dates or other kinds of values: {}.")
    reasons = ", ".join(f"{name!r} ({reason})" for name, reason in numbering.items())
    warn("row number", numbering, f"Left out because they number the rows: {reasons}.")
    for column in columns:
        warnings += _check_numbers(column)
    gaps = [c for c in columns if not c.is_category and 0 < c.plain.n < c.rows]
    gaps.sort(key=lambda column: column.plain.n)
    lacking = [(column.rows - column.plain.n, column) for column in gaps]
    shares = [f"{n:,} of {c.name!r} ({100 * n / c.rows:.2g} %)" for n, c in lacking]
    warn(
        "missing",
        [column.name for column in gaps],
        f"Missing numbers: {listed(shares)}. They are filled with the mean of their column, and a "
        "missing indicator is part of the column.",
    )
    constant = [column.name for column in columns if column.is_constant]
    warn(
        "constant",
        constant,
        "The values of {} are constant or all missing: of no use to any model.",
    )
    varying = [column for column in columns if column.name not in constant]
    advice = "If that is the label in another form, or known only after it, leave it out."
    equal = [c.name for c in varying if np.array_equal(c.codes, target.codes)]
    warn("equals label", equal, f"The values of {{}} equal the label {label.name!r}. {advice}")
    others = [column for column in varying if column.name not in equal]
    deciding = [column.name for column in others if _decides(column, label, target)]
    what = "give the order of" if label.task == "number" else "tell the classes of"
    compared = f"in {len(target.codes):,} rows compared"
    warn(
        "decides label",
        deciding,
        f"The values of {{}} alone {what} {label.name!r}, {compared}. {advice}",
    )
    same: dict[bytes, list[Column]] = {}
    for column in others:
        same.setdefault(column.codes.tobytes(), []).append(column)
    advice = "A model may use any of them, so each looks weaker than it is. Keep one of them."
    for copies in same.values():
        if len(copies) > 1:
            what = "are the same in all rows compared"
            warn("copy", [c.name for c in copies], f"The values of {{}} {what}. {advice}")
    for names in _scaled([copies[0] for copies in same.values() if not copies[0].is_category]):
        what = f"are the same up to scale and offset (correlation above {SCALED})"
        warn("copy", names, f"The values of {{}} {what}. {advice}")
    return warnings


def _scaled(columns: Sequence[Column]) -> list[list[str]]:
    """Groups of columns that are linear functions a·x + b of each other.

    By the correlation of their values, and that of their ranks, as a single outlier can make the
    first one large. Their missing values are in the same rows.
    """
    by_gaps: dict[bytes, list[Column]] = {}
    for column in columns:
        by_gaps.setdefault(np.isfinite(column.drawn).tobytes(), []).append(column)
    groups = []
    for alike in by_gaps.values():
        there = np.isfinite(alike[0].drawn)
        if len(alike) < 2 or there.sum() < ENOUGH:
            continue
        values = np.array([column.drawn[there] for column in alike])
        unit, free = _standardised(values), np.ones(len(alike), bool)
        for i in range(len(alike)):
            near = np.flatnonzero(free & (np.abs(unit @ unit[i]) > SCALED))
            near = near[_same_order(values[near], values[i])] if free[i] else near[:0]
            free[near] = False
            if len(near) > 1:
                groups.append([alike[j].name for j in near])
    return groups


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(columns, rows) with mean 0 and length 1, so that products are correlations."""
    scaled = values / np.abs(values).max(1, keepdims=True).clip(1e-300)  # Squares do not overflow.
    scaled -= scaled.mean(1, keepdims=True)
    unit: NDArray[np.float64] = scaled / np.linalg.norm(scaled, axis=1, keepdims=True).clip(1e-300)
    return unit


def _same_order(values: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(columns,): which rise or fall with another column, by their ranks."""
    ranks = [np.unique(row, return_inverse=True)[1] for row in (*values, other)]
    unit = _standardised(np.array(ranks, np.float64))
    same: NDArray[np.bool_] = np.abs(unit[:-1] @ unit[-1]) > SAME_ORDER
    return same


def _check_numbers(column: Column) -> list[ColumnWarning]:
    """Texts that look like numbers, and values that are none in a column of numbers."""
    name = column.name
    odd = f"{column.odd:,} values of {name!r} are no numbers, such as {column.example[:40]!r}"
    if not column.is_category:
        infinite = f"{column.infinite:,} values of {name!r} are infinite, or beyond {HUGE:.0e}"
        texts = [text for text, n in ((odd, column.odd), (infinite, column.infinite)) if n]
        return [ColumnWarning("missing", (name,), f"{t}; they count as missing.") for t in texts]
    written = written_number([value for value, _ in column.common])
    is_mixed = column.odd and 2 * column.plain.n > column.rows - column.nulls
    if column.is_forced or not (written or is_mixed):
        return []
    why = f"its texts look like numbers, such as {written!r}" if written else odd
    text = f"{name!r} is taken as categories: {why}. Try plain numbers like 1234.5."
    return [ColumnWarning("text number", (name,), text)]


def _decides(column: Column, label: Label, target: Column) -> bool:
    """Do few values each belong to a class, or being missing, or do thresholds part the classes?

    For a label of numbers: is it in the column's order, or the reverse?
    """
    there = np.isfinite(column.drawn)
    if len(there) < ENOUGH:
        return False
    is_number = bool(there.mean() > 0.5)
    if label.task == "number":
        return is_number and _in_order(column.drawn[there], target.drawn[there])
    classes = np.unique(target.codes, return_inverse=True)[1]
    if len(classes) - np.bincount(classes).max() < ENOUGH:
        return False
    values = np.unique(column.codes, return_inverse=True)[1]
    if _pure(values, classes) or _pure((column.codes == -1).astype(int), classes):
        return True
    x = np.where(there, column.drawn, -np.inf)
    # Sorted both ways among equal values: the same only where each value is of one class.
    up, down = (classes[np.lexsort((sign * classes, x))] for sign in (1, -1))
    parts = np.count_nonzero(np.diff(up)) == classes.max()
    return is_number and parts and bool((up == down).all())


def _pure(groups: NDArray[np.int64], classes: NDArray[np.int64]) -> bool:
    """Goodman and Kruskal's lambda near 1, for groups of many rows each."""
    n, of, kinds = len(classes), int(groups.max()) + 1, int(classes.max()) + 1
    if of < 2 or of * ENOUGH > n or of * kinds > 4 * n:
        return False
    table = np.bincount(groups * kinds + classes, minlength=of * kinds).reshape(of, kinds)
    base = int(table.sum(0).max())
    return bool(table.max(1).sum() - base >= CERTAIN * (n - base))


def _in_order(x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    """Does y rise with x throughout, or fall? Rounded numbers may be equal in x."""
    few = len(np.unique(x)) < max(ENOUGH, len(np.unique(y)) / 2)
    return not few and any((np.diff(s * y[np.lexsort((s * y, x))]) >= 0).all() for s in (1, -1))


def row_number(column: Column) -> str:
    """Why a column counts as a row number, in words; "" where it does not."""
    fewest = NUMBERED_INDEX if re.fullmatch(r"Unnamed: \d+", column.name) else NUMBERED
    if column.rows < fewest or column.missing:
        return ""
    if column.is_category:
        common = column.common
        once = bool(common) and common[0][1] == 1 and not written_number([t for t, _ in common])
        return "no text occurs twice" if once else ""
    drawn, steps = column.drawn, np.diff(column.drawn)
    if not (drawn == np.rint(drawn)).all() or len(np.unique(drawn)) < len(drawn):
        return ""
    if (steps > 0).all() or (steps < 0).all():
        return "rises or falls in every row"
    low, high = column.plain.low, column.plain.high
    if high - low + 1 == column.rows:
        return f"is {low:.0f} to {high:.0f}, each once"
    named = NAMED_ID.search(column.name) and len(drawn) >= NUMBERED
    return "no number occurs twice" if named else ""


def written_number(texts: Sequence[str]) -> str:
    """One of a column's texts, if most are numbers as people write them; else nothing."""
    stripped = [text.strip() for text in texts[:1000]]
    written = [t for t in stripped if WRITTEN.fullmatch(t)]
    marked = [t for t in written if re.search(r"[,%€$£']", t)]
    few = len(written) < 0.9 * len(stripped) or len(marked) < 0.1 * len(stripped)
    return "" if few or len(stripped) < 3 else marked[0][:40]
