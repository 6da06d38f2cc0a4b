"""What each feature, or each round, adds to G: bars that lead from G(∅) to G(S)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.numbers import check_count
from ..results.frame import valued_labels
from ..results.input_notes import InputNotes
from ..results.labels import feature_word
from ..results.wording import count, shown
from .canvas import (
    COLOURS,
    INK,
    SOFT,
    Style,
    axes_or,
    check,
    headline,
    labels,
    plain,
    shorten,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BY = ("feature", "round")


def waterfall(
    a: Attribution, *, by: str | None = None, top: int = 12, ax: Axes | None = None
) -> Axes:
    """Bars from G(∅), what the model gives without any feature, to G of the features selected.

    by: "feature" for a bar of each feature, its part of the gain of its round; "round" for a bar of
        each round, its gain. None takes rounds where a run of several rounds took several features
        in some.
    top: bars, at most; the last one stands for all that are left.
    """
    check(a, "waterfall")
    check_count("top", top)
    if by is None:
        by = "round" if len(a.picks) > 1 and max(a.picks) > 1 else "feature"
    if by not in BY:
        raise InvalidInput(f"Expected by to be 'feature' or 'round' (got {by!r}).")
    if not all(map(isfinite, a.values.tolist())):
        raise InvalidInput(
            "Expected a result with measured values (got one without). Try plots.bars."
        )
    names, gains = _steps(a, by, top)
    begin = float(a.values[0])
    ends = list(accumulate(gains, initial=begin))
    ax = axes_or(ax, 7, 1.3 + 0.34 * len(names))
    colours = [COLOURS[0] if gain >= 0 else COLOURS[1] for gain in gains]
    ax.barh(range(len(gains)), gains, left=ends[:-1], color=colours, height=0.66, zorder=2)
    for i, end in enumerate(ends[1:-1]):
        ax.plot([end, end], [i + 0.33, i + 0.67], color=SOFT, linewidth=0.8, zorder=1)
    full = [a.full_value] if isfinite(a.full_value) else []
    low, high = min(ends + full), max(ends + full)
    room = (high - low) or 1.0
    for i, (gain, start) in enumerate(zip(gains, ends, strict=False)):
        right = max(start, start + gain)
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        text: Style = {"va": "center", "fontsize": 8, "color": INK, "bbox": behind}
        ax.text(right + 0.012 * room, i, _signed(gain), **text)
    ax.set_xlim(low - 0.04 * room, high + 0.2 * room)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.45, -0.55)
    whole = ""
    if full:
        ax.axvline(a.full_value, color=SOFT, linewidth=1, linestyle=(0, (2, 2)), zorder=0)
        whole = f", all {feature_word(a)} {shown(a.full_value)} (dotted)"
    labels(ax, f"G: none {shown(begin)} → selected {shown(ends[-1])}{whole}")
    plain(ax)
    ax.grid(False, axis="y")
    title(ax, " · ".join(p for p in (headline(InputNotes.of(a)), f"gain of each {by}") if p))
    return ax


def _steps(a: Attribution, by: str, top: int) -> tuple[list[str], list[float]]:
    """Labels and gains of the bars."""
    if by == "feature":
        taken = a.order[: a.selected]
        gains: list[float] = a.feature_gains()[taken].tolist()
        names = valued_labels(a, taken[:top].tolist(), partial(shorten, length=30))
        what = feature_word(a), feature_word(a, 1)
    else:
        gains = a.values.diff().tolist()
        places = [int(a.order[i]) for i in _starts(a.picks)[:top]]
        firsts = valued_labels(a, places, partial(shorten, length=20))
        names = [
            f"round {number}: {first}" + f", {picks - 1:,} more" * (picks > 1)
            for number, (first, picks) in enumerate(zip(firsts, a.picks, strict=False), 1)
        ]
        what = "rounds", "round"
    if len(gains) > top:
        left = gains[top - 1 :]
        names = [*names[: top - 1], count(len(left), f"more {what[1]}", f"more {what[0]}")]
        gains = [*gains[: top - 1], sum(left)]
    return names, gains


def _starts(picks: Sequence[int]) -> list[int]:
    """Positions in the order at which rounds begin."""
    return [end - taken for taken, end in zip(picks, accumulate(picks), strict=True)]


def _signed(value: float) -> str:
    text = f"{value:+.3g}" if value else "0"
    return text.replace("-", "−")
