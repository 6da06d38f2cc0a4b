"""A selection of columns as a figure: loss after retraining over k, and the way it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..results.picture import unit_labels
from ..results.table_notes import ColumnNotes
from .canvas import (
    COLOURS,
    FAINT,
    SOFT,
    axes_or,
    check,
    heading,
    labels,
    line_styles,
    new_figure,
    plain,
    shorten,
    shorten_name,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = "osD^vPX"
MOST_NAMES = 40


def selected_columns(a: Attribution) -> Figure:
    """Both diagrams in one figure; of a one-shot method, which has no way, the losses alone."""
    notes = _notes(a)
    if any(taken > 1 for taken in a.picks):
        figure = new_figure(6.5, 5.0)
        column_losses(a, ax=figure.subplots())
    else:
        figure = new_figure(11.5, 5.0)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
        column_losses(a, ax=left)
        column_path(a, ax=right)
    text = f"{a.about.get('source') or 'table'}: which columns predict {notes.label}?"
    heading(figure, shorten(text, 110), 11)
    return figure


def column_losses(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """Validation loss after retraining on each method's top k; bars are standard errors."""
    notes = _notes(a)
    ax = axes_or(ax, 6, 4.4)
    methods = list(notes.losses)
    width = max(notes.ks) - min(notes.ks) or 1
    for i, (method, style) in enumerate(zip(methods, line_styles(methods), strict=True)):
        by_k = notes.losses[method]
        # Side by side: bars at the same k must not hide each other.
        ks = [k + (i - (len(methods) - 1) / 2) * 0.012 * width for k in by_k]
        ax.errorbar(ks, [v.mean for v in by_k.values()],
                    yerr=[v.error or 0.0 for v in by_k.values()], label=shorten(method),
                    marker=MARKS[i % len(MARKS)], markersize=5, capsize=3, linewidth=1.8,
                    **style)  # fmt: skip
    ax.axhline(notes.loss_all.mean, color=SOFT, linewidth=1, linestyle=(0, (2, 2)),
               label=f"all {len(notes.kinds)} columns: {notes.figure(notes.loss_all.mean)}",
               )  # fmt: skip
    _draw_constant(ax, notes)
    ax.set_xticks(notes.ks)
    if len(notes.ks) == 1:
        ax.set_xlim(notes.ks[0] - 0.5, notes.ks[0] + 0.5)
    labels(ax, "columns kept, k", f"validation {notes.metric} after retraining")
    plain(ax)
    ax.legend(fontsize=8, facecolor="white", edgecolor="none", framealpha=0.85)
    seeds = f"mean of {notes.seeds} seeds" if notes.seeds > 1 else "one seed"
    title(ax, f"Retrained on the top k ({seeds}; lower is better)")
    return ax


def _draw_constant(ax: Axes, notes: ColumnNotes) -> None:
    """The loss of a constant prediction: a line, or only a name where it lies far away."""
    if notes.constant is None:
        return
    label = f"constant prediction: {notes.figure(notes.constant.loss)}"
    if notes.constant_is_near():
        ax.axhline(notes.constant.loss, color=SOFT, linewidth=1, linestyle=(0, (6, 2)), label=label)
    else:
        ax.plot([], [], " ", label=f"{label}, not in the picture")


def column_path(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """The loss of the model itself, not retrained, as columns are added in the order chosen."""
    check(a)
    values = -a.values.double().cpu().numpy()
    count = min(len(a.picks), MOST_NAMES, len(values) - 1)
    if count < 1 or any(p != 1 for p in a.picks[:count]) or not np.isfinite(values).any():
        raise InvalidInput(
            "Expected a result with one column a round and measured values (got another)."
        )
    ax = axes_or(ax, 6.5, 4.4)
    places = np.arange(count + 1)
    names = ["none", *(shorten_name(n, 24) for n in unit_labels(a, a.order[:count].tolist()))]
    ax.plot(places, values[: count + 1], color=COLOURS[0], marker="o", markersize=4, linewidth=1.8)
    ax.axhline(-a.full_value, color=SOFT, linewidth=1, linestyle=(0, (2, 2)),
               label=f"all columns: {0.0 - a.full_value:.4f}")  # fmt: skip
    ax.set_xticks(places, names, rotation=60 if count > 6 else 35, ha="right",
                  rotation_mode="anchor", fontsize=8 if count <= 25 else 6.5)  # fmt: skip
    labels(ax, y="loss of the model as it is")
    plain(ax)
    ax.grid(True, axis="x", color=FAINT, linewidth=0.4)
    ax.legend(fontsize=8, frameon=False)
    more = len(a.picks) - count
    title(ax, f"Columns in order of selection{f' ({more} more not shown)' if more else ''}")
    return ax


def _notes(a: Attribution) -> ColumnNotes:
    notes = ColumnNotes.of(check(a))
    if notes is None:
        raise InvalidInput(
            "Expected the result of a selection that was retrained (got another). "
            "Try greedypig select."
        )
    return notes
