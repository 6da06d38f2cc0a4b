"""A selection of columns as a figure: loss after retraining over k, and the way it took."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from ..core.attribution import Attribution
from ..results.kinds import notes_of
from ..results.labels import feature_labels
from ..results.table_notes import ColumnNotes
from .canvas import (
    COLOURS,
    KEY,
    Style,
    check,
    heading,
    labels,
    level,
    line_styles,
    new_figure,
    plain,
    shorten,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = "osD^vPX"
MOST_NAMES = 40


def selected_columns(a: Attribution) -> Figure:
    """Loss after retraining over k; where each round took one column, also the way it took."""
    expected = "the result of a selection that was retrained"
    notes: ColumnNotes = notes_of(check(a), "selection", expected)
    measured = all(isfinite(value) for value in a.values.tolist())
    if measured and a.picks and all(taken == 1 for taken in a.picks):
        figure = new_figure(11.5, 5.0)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
        _path(a, notes, right)
    else:
        figure = new_figure(6.5, 5.0)
        left = figure.subplots()
    _losses(notes, left)
    text = f"{a.about.source or 'table'}: which columns predict {notes.label}?"
    heading(figure, shorten(text, 110), 11)
    return figure


def _losses(notes: ColumnNotes, ax: Axes) -> None:
    """Validation loss after retraining on each method's top k; bars are standard errors."""
    methods = list(notes.losses)
    width = max(notes.ks) - min(notes.ks) or 1
    for i, (method, style) in enumerate(zip(methods, line_styles(methods), strict=True)):
        losses = notes.losses[method]
        # Side by side: bars at the same k must not hide each other.
        ks = [k + (i - (len(methods) - 1) / 2) * 0.012 * width for k in losses]
        means = [loss.mean for loss in losses.values()]
        errors = [loss.standard_error or 0.0 for loss in losses.values()]
        style |= {"marker": MARKS[i % len(MARKS)], "markersize": 5, "linewidth": 1.8}
        ax.errorbar(ks, means, errors, label=shorten(method), capsize=3, **style)
    whole = notes.loss_all.mean
    level(ax, whole, f"all {len(notes.kinds)} columns: {notes.figure(whole)}")
    if notes.constant is not None:
        label = f"constant prediction: {notes.figure(notes.constant.loss)}"
        if notes.constant_is_near():
            level(ax, notes.constant.loss, label, (6, 2))
        else:
            ax.plot([], [], " ", label=f"{label}, not in the picture")
    ax.set_xticks(notes.ks)
    if len(notes.ks) == 1:
        ax.set_xlim(notes.ks[0] - 0.5, notes.ks[0] + 0.5)
    labels(ax, "columns kept, k", f"validation {notes.metric} after retraining")
    plain(ax)
    ax.legend(fontsize=8, facecolor="white", edgecolor="none", framealpha=0.85)
    seeds = f"mean of {notes.seeds} seeds" if notes.seeds > 1 else "one seed"
    title(ax, f"Retrained on the top k ({seeds}; lower is better)")


def _path(a: Attribution, notes: ColumnNotes, ax: Axes) -> None:
    """The loss of the model itself, not retrained, as columns are added in the order chosen."""
    count = min(len(a.picks), MOST_NAMES)
    names = ["none", *(shorten(n, 24) for n in feature_labels(a, a.order[:count].tolist()))]
    losses = (-a.values[: count + 1]).tolist()
    ax.plot(range(count + 1), losses, color=COLOURS[0], marker="o", markersize=4, linewidth=1.8)
    level(ax, -a.full_value, f"all columns: {0.0 - a.full_value:.4f}")
    turned: Style = {"rotation": 60 if count > 6 else 35, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(count + 1), names, **turned)
    unit = " (label standardised)" * bool(notes.unit_of_g)
    labels(ax, y=f"loss of the model as it is{unit}")
    plain(ax)
    ax.tick_params(axis="x", labelsize=8 if count <= 25 else 6.5)
    ax.legend(**KEY)
    more = len(a.picks) - count
    title(ax, f"Columns in order of selection{f' ({more} more not shown)' if more else ''}")
