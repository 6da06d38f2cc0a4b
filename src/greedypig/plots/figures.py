"""Whole figures: one result in a panel, several methods side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..results import verdicts
from ..results.curve import DELETION, Curve
from ..results.photo_notes import COMPARED, Notes
from ..results.picture import Picture, unit_word, unranked
from .canvas import INK, SOFT, check, headline, new_figure, shorten, title, untick
from .charts import bars, curve, curve_of
from .pictures import asked, heatmap, order_map, order_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MANY_PHOTOS = re.compile(r"[\d,]+ photos")
"""The source of a comparison over several, as the command line writes it."""
DRAWN = ("curve", "loss", "second")
"""What a comparison has diagrams of, by the keys of its rows."""
ONLY_BEST, OFF_BEST = "only the best features", "the best features switched off"


def panel(a: Attribution, *, share: float = 0.1) -> Figure:
    """One result at a glance.

    For a picture: the picture, what is kept of it (of a counterfactual: left of it), importance,
    order of selection, and its curves.
    For anything else: the first units by name and the curve.
    """
    check(a)
    return _plain_panel(a) if Picture.of(a) is None else _picture_panel(a, share)


def _picture_panel(a: Attribution, share: float) -> Figure:
    """Four pictures of one size in a row; below them the curves, each as wide as two of them."""
    notes = Notes.of(a)
    figure = new_figure(12.5, 8.4)
    # Parts with a layout of their own: a diagram's labels would push the pictures above it apart.
    grid = figure.add_gridspec(2, 1, height_ratios=(4.2, 3.4))
    above, below = (figure.add_subfigure(grid[i]) for i in range(2))
    whole, part, heat, order = (
        above.add_axes((0.01 + 0.248 * i, 0.2, 0.234, 0.68), anchor="N") for i in range(4)
    )
    left, right = below.subplots(1, 2)
    _whole(a, whole)
    if unranked(a) is None:
        asked(a, share, ax=part)
        title(heatmap(a, ax=heat), "importance")  # The class is in the heading.
        title(order_map(a, ax=order), order_name(a))
    else:
        _no_order(a, part)
        for ax in (heat, order):
            ax.set_axis_off()
    _own_curves(a, notes, left)
    loss = notes.curves.get("loss")
    if loss is not None:
        curve(loss, ax=right)
        title(right, "distance from the whole picture's prediction")
    else:
        _facts(right, a, notes)
    figure.suptitle(_suptitle(a, notes), fontsize=12, color=INK, x=0.01, ha="left")
    figure.supxlabel(_footnote(a, notes), fontsize=8.5, color=SOFT, x=0.01, ha="left")
    return figure


def _whole(a: Attribution, ax: Axes) -> None:
    picture = Picture.of(a)
    if picture is None or picture.pixels is None:
        ax.set_axis_off()
        ax.text(0, 0.5, "the file holds no picture", color=SOFT)
        return
    ax.imshow(picture.pixels, interpolation_stage="rgba")
    untick(ax)
    title(ax, "everything, as the network sees it")


def _no_order(a: Attribution, ax: Axes) -> None:
    ax.set_axis_off()
    text = fill(f"{unranked(a)} So there is no order to show.", 36)
    ax.text(0, 0.5, text, color=SOFT, transform=ax.transAxes)


def _own_curves(a: Attribution, notes: Notes, ax: Axes) -> None:
    wanted = (DELETION if notes.removing else "softmax", "second-opinion")
    judged = {k: c for k, c in notes.curves.items() if k in wanted}
    if judged:
        curve(*judged.values(), full=notes.probability, ax=ax)
        title(ax, f"probability with {OFF_BEST if notes.removing else ONLY_BEST}")
        return
    try:
        curve_of(a)
    except InvalidInput:
        ax.set_axis_off()
        ax.text(0, 0.5, "no values were measured", color=SOFT)
        return
    curve(a, ax=ax)
    title(ax, "G(S) after each round")


def _plain_panel(a: Attribution) -> Figure:
    notes = Notes.of(a)
    count = min(20, a.features.units)
    figure = new_figure(11.5, max(4.2, 1.8 + 0.26 * count))
    left, right = figure.subplots(1, 2)
    if unranked(a) is None:
        bars(a, top=count, ax=left)
    else:
        _no_order(a, left)
    _own_curves(a, notes, right)
    figure.suptitle(_suptitle(a, notes), fontsize=12, color=INK, x=0.01, ha="left")
    figure.supxlabel(_footnote(a, notes), fontsize=8.5, color=SOFT, x=0.01, ha="left")
    return figure


def _suptitle(a: Attribution, notes: Notes) -> str:
    name = shorten(notes.source or notes.model or "result", 40)
    head = headline(notes)
    return f"{name}: {head}" if head else name


def _footnote(a: Attribution, notes: Notes) -> str:
    parts = [str(a.settings.get("method", "")), notes.objective or "", notes.model or ""]
    if notes.baseline:
        parts.append(f"{notes.baseline} baseline")
    parts += [f"{a.features.units:,} {unit_word(a)}", f"{a.gradients_used:,} gradients",
              f"{a.seconds:.1f} s", str(a.stop)]  # fmt: skip
    line = shorten(" · ".join(p for p in parts if p), 160)
    excess = verdicts.excess(notes)
    if excess is not None:
        return f"{line}\n{excess} {verdicts.advice(notes)}".rstrip()
    bare = verdicts.bare_excess(notes)
    return line if bare is None else f"{line}\n{bare}"


def _facts(ax: Axes, a: Attribution, notes: Notes) -> None:
    ax.set_axis_off()
    lines = [f"{shorten(name, 30)}  {p:.3f}" for name, p in notes.predictions]
    ax.text(0, 1, "\n".join(lines), va="top", fontsize=9, color=INK, transform=ax.transAxes)


def comparison(results: Mapping[str, Attribution] | Attribution, *, share: float = 0.1) -> Figure:
    """Methods side by side: kept pictures, curves, and a table of AUC, gradients and seconds.

    results: from a method's name to its result on the same input; or one result whose notes hold a
        "comparison", which then has no pictures of the others.
    """
    if isinstance(results, Attribution):
        rows = _noted_rows(results)
        pictures: dict[str, Attribution] = {}
    elif isinstance(results, Mapping):
        if not results:
            raise InvalidInput("Expected at least one method's result (got none).")
        rows = {str(name): _own_row(check(a)) for name, a in results.items()}
        pictures = {str(n): a for n, a in results.items() if Picture.of(a) is not None}
    else:
        raise InvalidType(f"Expected results by method (got {type(results).__name__}).")
    across = max(min(len(pictures), 4), 2)
    deep = -(-len(pictures) // across)
    high = 0.55 + 0.26 * (len(rows) + 1)
    narrow = all(any(row.get(key) is not None for row in rows.values()) for key in DRAWN)
    legends = (0.2 if narrow else 0.12) * len(rows)
    figure = new_figure(3.3 * max(across, 3), 3.9 * deep + 4.5 + legends + high)
    below = (4.1 + legends) / 3.9
    ratios = [*[1.0] * deep, below, high / 3.9]
    grid = figure.add_gridspec(deep + 2, across, height_ratios=ratios)
    for i, (name, a) in enumerate(pictures.items()):
        ax = figure.add_subplot(grid[i // across, i % across])
        if unranked(a) is None:
            asked(a, share, ax=ax)
        else:
            _no_order(a, ax)
        title(ax, f"{shorten(name, 24)}\n{ax.get_title(loc='left')}")
    first = next(iter(results.values())) if isinstance(results, Mapping) else results
    _both_curves(figure, grid[deep, :], rows, Notes.of(first).probability)
    _table(figure.add_subplot(grid[deep + 1, :]), rows)
    heading = _compared(Notes.of(first))
    figure.suptitle(heading, fontsize=12, color=INK, x=0.01, ha="left")
    return figure


def _compared(notes: Notes) -> str:
    """What was compared on: a photo and its class, or how many photos; and the network."""
    name = shorten(notes.source or "", 40)
    if MANY_PHOTOS.fullmatch(name):
        # The class and its probability would be those of one photo, and of none.
        parts = [f"{name}: AUC of median curves, the rest medians"]
    else:
        parts = [": ".join(part for part in (name, headline(notes)) if part)]
    return " · ".join(part for part in (*parts, shorten(notes.model or "")) if part)


def _both_curves(
    figure: Figure, place: Any, rows: Mapping[str, Mapping[str, Any]], full: float | None
) -> None:
    """The methods' curves, and beside them those of the loss and of a judge, as far as known."""
    shares, losses, judged = (
        {name: row[key] for name, row in rows.items() if row.get(key) is not None} for key in DRAWN
    )
    off = any(line.off for line in shares.values())
    sure = f"probability with {OFF_BEST} ↓" if off else f"SIC: probability with {ONLY_BEST} ↑"
    judge = next((line.judge for line in judged.values() if line.judge), "another network")
    # The heading names the judge once for all curves.
    judged = {name: replace(line, settings={}) for name, line in judged.items()}
    drawn = [
        (lines, heading, whole)
        for lines, heading, whole in (
            (shares, sure, full),
            (losses, "LIC: distance from the prediction ↓", None),
            (judged, f"second opinion by {shorten(judge, 24)} {'↓' if off else '↑'}", None),
        )
        if lines
    ]
    parts = place.subgridspec(1, max(len(drawn), 1))
    for i, (lines, heading, whole) in enumerate(drawn):
        ax = curve(lines, full=whole, ax=figure.add_subplot(parts[0, i]))
        title(ax, heading)
        if len(drawn) > 2:
            _narrow(ax)
        if lines is losses:
            ax.set_ylabel("KL (nats)", fontsize=9, color=INK)
            ax.autoscale(axis="y")  # It is no probability, even where it stays below 1.
            ax.set_ylim(bottom=0)


def _narrow(ax: Axes) -> None:
    """Few ticks and a legend of one column, for three diagrams in a row."""
    ax.set_xticks([0, 0.5, 1])
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, labels, fontsize=8, frameon=False, loc="upper left",
              bbox_to_anchor=(0, -0.16), borderaxespad=0)  # fmt: skip


def _own_row(a: Attribution) -> dict[str, Any]:
    notes = Notes.of(a)
    try:
        line: Curve | None = curve_of(a)[0]
    except InvalidInput:
        line = None
    loss, second = notes.curves.get("loss"), notes.curves.get("second-opinion")
    return {
        "curve": line,
        "loss": loss,
        "second": second,
        "sic_auc": None if notes.curve is None else notes.curve.auc,
        "lic_auc": None if loss is None else loss.auc,
        "second_opinion_auc": None if second is None else second.auc,
        "excess": None
        if notes.curve is None or notes.probability is None
        else float(notes.curve.values.max()) - notes.probability,
        "gradients": a.gradients_used,
        "seconds": a.seconds,
    }


def _noted_rows(a: Attribution) -> dict[str, dict[str, Any]]:
    methods = Notes.of(a).comparison
    if not methods:
        raise InvalidInput(
            "Expected a comparison in the result's notes (got none). "
            "Try comparison({'greedy-pig': a, 'ig': b})."
        )
    return {
        m.name: {"curve": m.curve, "loss": m.loss, "second": m.second,
                 **{n: m.numbers.get(n) for n in COMPARED}}
        for m in methods
    }  # fmt: skip


def _table(ax: Axes, rows: Mapping[str, Mapping[str, Any]]) -> None:
    ax.set_axis_off()
    columns = [c for c in COMPARED if any(row.get(c) is not None for row in rows.values())]
    if not columns:
        return
    cells = [
        ["–" if row.get(c) is None else COMPARED[c][1].format(row[c]) for c in columns]
        for row in rows.values()
    ]
    table = ax.table(
        cellText=cells, colLabels=[COMPARED[c][0] for c in columns],
        rowLabels=[shorten(name, 22) for name in rows], loc="upper center", cellLoc="right",
        edges="horizontal",
    )  # fmt: skip
    table.auto_set_font_size(False)
    table.set_fontsize(8.5)
    table.scale(1, 1.45)
