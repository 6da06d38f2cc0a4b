"""Curves over the share kept, and bars of the first features by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..core.numbers import check_count
from ..results.comparison import MethodTable
from ..results.curve import DELETION, Curve
from ..results.frame import valued_labels
from ..results.input_notes import CLEARLY, SECOND, InputNotes
from ..results.labels import feature_word, share_word
from ..results.picture import strengths, unranked
from .canvas import (
    COLOURS,
    KEY_BELOW,
    SOFT,
    Style,
    axes_or,
    check,
    headline,
    labels,
    level,
    line_styles,
    new_figure,
    note,
    percent_ticks,
    plain,
    shorten,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNBOUNDED = ("loss", "lic")
"""Curves in nats: lower is better and there is no upper end."""
EXCESS: Style = {"color": COLOURS[1], "alpha": 0.22, "hatch": "///", "linewidth": 0}
LONGEST = 56
"""Letters of a curve's name: with its area as wide as the narrowest diagram of a sheet."""


def curve(
    *curves: Attribution | Curve | Mapping[str, Curve],
    full: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One or several curves over the share of features kept (or switched off), each with its AUC.

    curves: curves; mappings from names to curves; results, which give the curve in their notes,
        else G(S) after each round. A single result gives the second opinion too, if it has one.
    full: the value of everything. It is drawn as a line and what rises above it is shaded, except
        of a judge's curves, which have a whole of their own; for a single result it is known.
    """
    lines, known = _lines(curves)
    full = known if full is None else full
    ax = axes_or(ax, 6, 4)
    for (name, line), style in zip(lines, line_styles([n for n, _ in lines]), strict=True):
        ax.plot(line.fractions, line.values, linewidth=1.8, label=_label(name, line), **style)
    drawn = [line for _, line in lines]
    if full is not None:
        _full(ax, drawn, full)
    bounded = all(0 <= v <= 1 for line in drawn for v in line.values.tolist())
    loss = all(name.lower() in UNBOUNDED for name, _ in lines)
    ax.set_xlim(0, 1)
    if bounded:
        ax.set_ylim(0, 1.02)
    elif loss:
        ax.set_ylim(bottom=0)
    percent_ticks(ax)
    done = "switched off" if all(line.off for line in drawn) else "kept"
    quantity = "probability of the class" if bounded else "value"
    if loss:
        quantity = "KL from the whole input's prediction (nats)"
    elif all(name.startswith("G(S)") for name, _ in lines):
        quantity = "G(S)"
    words = {share_word(item) for item in curves if isinstance(item, Attribution)}
    word = words.pop() if len(words) == 1 else "features"
    labels(ax, f"share of the {word} {done}, best first", quantity)
    plain(ax)
    if len(curves) == 1 and isinstance(curves[0], Attribution):
        title(ax, headline(InputNotes.of(curves[0])))
    columns = legend_columns(ax.get_legend_handles_labels()[1])
    ax.legend(**KEY_BELOW, ncols=columns)
    return ax


def legend_columns(labels: Sequence[str]) -> int:
    """Two for many short labels. A legend that is wider than its diagram would squeeze it."""
    return 2 if len(labels) > 4 and max(map(len, labels)) <= 34 else 1


def _lines(curves: Sequence[Any]) -> tuple[list[tuple[str, Curve]], float | None]:
    """The curves with their names, and the value of everything if it is one's."""
    lines: list[tuple[str, Curve]] = []
    full = None
    for item in curves:
        if isinstance(item, Attribution):
            own, full = curve_of(item)
            if own is None:
                raise InvalidInput(
                    "Expected a curve in the notes or measured values (got a result with neither)."
                    " Try a.with_notes({'curves': …})."
                )
            second = InputNotes.of(item).curves.get(SECOND) if len(curves) == 1 else None
            lines += [(line.name, line) for line in (own, second) if line is not None]
        elif isinstance(item, Mapping):
            lines += item.items()
        elif isinstance(item, Curve):
            lines.append((item.name, item))
            full = None if item.name in UNBOUNDED else item.full
        else:
            raise InvalidType(f"Expected curves or results (got {type(item).__name__}).")
    if not lines:
        raise InvalidInput("Expected at least one curve or result (got none).")
    named = [(str(name), line.without_gaps()) for name, line in lines]
    return named, full if len(curves) == 1 else None


def curve_of(a: Attribution) -> tuple[Curve | None, float | None]:
    """A result's own curve, if it has one, and the value of everything on it."""
    notes = InputNotes.of(a)
    own = notes.deletion or notes.curve
    if own is not None:
        return own, notes.probability
    return notes.rounds, a.full_value if isfinite(a.full_value) else None


def _label(name: str, line: Curve) -> str:
    name = {"softmax": "probability", DELETION: "probability"}.get(name, name)
    judge = f" by {line.judge}" if line.judge else ""
    return f"{shorten(name + judge, LONGEST)}, AUC {line.auc:.3f}"


def _full(ax: Axes, lines: list[Curve], full: float) -> None:
    """The whole input's value as a line, and every curve's excess above it shaded."""
    # Of what is switched off: a deletion begins with everything there, G ends with nothing left.
    whole = "everything" if not lines[0].off or lines[0].name == DELETION else "everything off"
    level(ax, full, f"{whole}: {full:.3f}")
    label: str | None = "more than the whole input gives"
    for line in lines:
        values = line.values.numpy()
        # A judge has a value of its own for the whole; how far a prediction moves has none.
        if line.judge is not None or line.off or values.max() <= full + CLEARLY:
            continue
        above: Style = {"where": (values > full).tolist(), "interpolate": True}
        ax.fill_between(line.fractions, full, values, **above, **EXCESS, label=label)
        label = None


def bars(a: Attribution, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """The first features by name and value, in order of selection from top to bottom.

    Where every round took one feature and G was measured, a bar is the gain G(S ∪ {i}) − G(S). Else
    it is the score in the round that took the feature, and the round is named: scores of different
    rounds do not compare.
    """
    check(a, "bars")
    check_count("top", top)
    count = min(top, a.features.count)
    lengths, rounds, quantity = strengths(a, count)
    ax = axes_or(ax, 6, 1.2 + 0.26 * count)
    names = valued_labels(a, a.order[:count].tolist(), partial(shorten, length=32))
    if "gain" not in quantity and len(set(rounds)) > 1:
        texts = [f"round {number}" if number else "not selected" for number in rounds]
        names = [f"{name} · {text}" for name, text in zip(names, texts, strict=True)]
    ax.barh(range(count), lengths, color=COLOURS[0], height=0.72)
    ax.axvline(0, color=SOFT, linewidth=0.8)
    ax.set_yticks(range(count), names)
    ax.set_ylim(count - 0.4, -0.6)
    labels(ax, quantity)
    plain(ax)
    ax.grid(False, axis="y")
    left = a.features.count - count
    more = f" ({left:,} more not shown)" if left else ""
    title(ax, f"first {count} of {a.features.count:,} {feature_word(a)}{more}")
    return ax


def bars_panel(a: Attribution) -> tuple[Figure, Axes]:
    """A figure with the first features as bars on the left, and its axes on the right, still empty.

    Where the run ranked nothing, the reason takes the place of the bars.
    """
    count = min(20, a.selected or a.features.count)
    figure = new_figure(11.5, max(4.2, 1.8 + 0.26 * count))
    left, right = figure.subplots(1, 2)
    reason = unranked(a)
    if reason is None:
        bars(a, top=count, ax=left)
    else:
        note(left, fill(f"{reason} So there is no order to show.", 36))
    return figure, right


def method_table(ax: Axes, table: MethodTable) -> None:
    """Methods and their numbers in the place of a diagram."""
    ax.set_axis_off()
    if not table.keys:
        return
    look: Style = {"loc": "upper center", "cellLoc": "right", "edges": "horizontal"}
    drawn = ax.table(
        cellText=list(table.cells.values()),
        colLabels=table.heads,
        rowLabels=[shorten(name, 22) for name in table.rows],
        **look,
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8.5)
    drawn.scale(1, 1.45)
