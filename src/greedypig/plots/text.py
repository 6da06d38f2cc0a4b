"""Figures of texts: the first features with what the model gives with and without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from ..core.attribution import Attribution
from ..results.comparison import MethodTable
from ..results.input_notes import InputNotes
from ..results.text_notes import COLUMNS, TextNotes, compared, shortened
from .canvas import (
    KEY,
    KEY_BELOW,
    heading,
    labels,
    level,
    line_styles,
    new_figure,
    plain,
    shorten,
    title,
)
from .charts import bars_panel, legend_columns, method_table
from .figures import plain_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def text_panel(a: Attribution) -> Figure:
    """One text at a glance: the first features, and the output over how many are kept."""
    notes = TextNotes.of(a)
    if not notes.counts:
        return plain_panel(a, InputNotes.of(a))
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


def text_comparison(results: Mapping[str, Attribution], share: float = 0.1) -> Figure:
    """Methods on one text: the output with only their best features and without them, and a
    table."""
    first, rows = TextNotes.of(next(iter(results.values()))), compared(results)
    high = 0.55 + 0.26 * (len(rows) + 1)
    figure = new_figure(11.5, 4.6 + 0.14 * len(rows) + high)
    grid = figure.add_gridspec(2, 2, height_ratios=(4.2 + 0.14 * len(rows), high))
    titles = list(first.measured)[::2]
    for i, (key, name) in enumerate(zip(("only", "without"), titles, strict=True)):
        ax = figure.add_subplot(grid[0, i])
        _lines(ax, {n: (row.counts, getattr(row, key)) for n, row in rows.items()}, first)
        title(ax, name)
        ax.legend(**KEY_BELOW, ncols=legend_columns(list(rows)))
    table = MethodTable(COLUMNS, {name: row.numbers for name, row in rows.items()})
    method_table(figure.add_subplot(grid[1, :]), table)
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
