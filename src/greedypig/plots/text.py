"""Figures of texts: the first features with what the model gives with and without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from ..core.attribution import Attribution
from ..results.text_notes import COLUMNS, Ranked, TextNotes, compared, shortened
from .canvas import (
    KEY,
    KEY_BELOW,
    Style,
    heading,
    labels,
    level,
    line_styles,
    new_figure,
    plain,
    shorten,
    title,
)
from .charts import bars_panel, legend_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def text_panel(a: Attribution, notes: TextNotes) -> Figure:
    """One text at a glance: the first features, and the output over how many are kept."""
    figure, right = bars_panel(a)
    values_chart(notes, right)
    heading(figure, fill(shorten(notes.answer(), 200), 110), 11)
    return figure


def values_chart(notes: TextNotes, ax: Axes) -> Axes:
    """What was measured over the number of best features."""
    lines = {name: (notes.counts, values) for name, values in notes.measured.items()}
    _lines(ax, lines, notes)
    ax.legend(**KEY)
    return ax


def text_comparison(results: Mapping[str, Attribution]) -> Figure:
    """Methods on one text: the output with only their best features and without them, and a
    table."""
    first = next(notes for a in results.values() if (notes := TextNotes.of(a)) is not None)
    rows = {name: Ranked(**row) for name, row in compared(results).items()}
    high = 0.55 + 0.26 * (len(rows) + 1)
    figure = new_figure(11.5, 4.6 + 0.14 * len(rows) + high)
    grid = figure.add_gridspec(2, 2, height_ratios=(4.2 + 0.14 * len(rows), high))
    titles = list(first.measured)[::2]
    for i, (key, name) in enumerate(zip(("only", "without"), titles, strict=True)):
        ax = figure.add_subplot(grid[0, i])
        _lines(ax, {n: (row.counts, getattr(row, key)) for n, row in rows.items()}, first)
        title(ax, name)
        ax.legend(**KEY_BELOW, ncols=legend_columns(list(rows)))
    table = figure.add_subplot(grid[1, :])
    table.set_axis_off()
    look: Style = {"loc": "upper center", "cellLoc": "right", "edges": "horizontal"}
    cells = table.table(
        cellText=[row.cells for row in rows.values()],
        colLabels=[head for head, _ in COLUMNS.values()],
        rowLabels=[shorten(name, 22) for name in rows],
        **look,
    )
    cells.auto_set_font_size(False)
    cells.set_fontsize(8.5)
    cells.scale(1, 1.45)
    heading(figure, f"{len(rows)} methods: {shorten(shortened(first.explained), 70)}", 11)
    return figure


def _lines(
    ax: Axes, lines: Mapping[str, tuple[Sequence[int], Sequence[float]]], notes: TextNotes
) -> None:
    for (name, (counts, values)), style in zip(
        lines.items(), line_styles(list(lines)), strict=True
    ):
        ax.plot(counts, values, linewidth=1.8, label=name, **style)
    if notes.only:
        level(ax, notes.only[-1], f"all: {notes.cell(notes.only[-1])}")
    labels(ax, f"{notes.unit}, best first", notes.quantity)
    plain(ax)
