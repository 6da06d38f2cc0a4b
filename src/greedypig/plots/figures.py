"""Whole figures: one result in a panel, several methods side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..results import verdicts
from ..results.curve import DELETION, Curve
from ..results.photo_notes import COMPARED, Method, Notes
from ..results.picture import Picture, unit_word, unranked
from .canvas import INK, SOFT, check, heading, headline, new_figure, note, shorten, title, untick
from .charts import bars, curve, curve_of
from .pictures import asked, heatmap, order_map, order_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MANY_PHOTOS = re.compile(r"[\d,]+ photos")
"""The source of a comparison over several, as the command line writes it."""
DRAWN = ("curve", "loss", "second")
"""The curves of a `Method` that a comparison draws."""
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
        right.set_axis_off()
        lines = [f"{shorten(name, 30)}  {p:.3f}" for name, p in notes.predictions]
        right.text(0, 1, "\n".join(lines), va="top", fontsize=9, color=INK,
                   transform=right.transAxes)  # fmt: skip
    return _headed(figure, a, notes)


def _whole(a: Attribution, ax: Axes) -> None:
    picture = Picture.of(a)
    if picture is None or picture.pixels is None:
        note(ax, "the file holds no picture")
        return
    ax.imshow(picture.pixels, interpolation_stage="rgba")
    untick(ax)
    title(ax, "everything, as the network sees it")


def _no_order(a: Attribution, ax: Axes) -> None:
    note(ax, fill(f"{unranked(a)} So there is no order to show.", 36))


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
        note(ax, "no values were measured")
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
    return _headed(figure, a, notes)


def _headed(figure: Figure, a: Attribution, notes: Notes) -> Figure:
    name = shorten(notes.source or notes.model or "result", 40)
    heading(figure, ": ".join(part for part in (name, headline(notes)) if part))
    figure.supxlabel(_footnote(a, notes), fontsize=8.5, color=SOFT, x=0.01, ha="left")
    return figure


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


def comparison(results: Mapping[str, Attribution] | Attribution, *, share: float = 0.1) -> Figure:
    """Methods side by side: kept pictures, curves, and a table of AUC, gradients and seconds.

    results: from a method's name to its result on the same input; or one result whose notes hold a
        "comparison", which then has no pictures of the others.
    """
    if isinstance(results, Attribution):
        rows: Sequence[Method] = _noted_rows(results)
        pictures: dict[str, Attribution] = {}
    elif isinstance(results, Mapping):
        if not results:
            raise InvalidInput("Expected at least one method's result (got none).")
        rows = [_own_row(str(name), check(a)) for name, a in results.items()]
        pictures = {str(n): a for n, a in results.items() if Picture.of(a) is not None}
    else:
        raise InvalidType(f"Expected results by method (got {type(results).__name__}).")
    across = max(min(len(pictures), 4), 2)
    deep = -(-len(pictures) // across)
    high = 0.55 + 0.26 * (len(rows) + 1)
    narrow = all(any(getattr(row, kind) is not None for row in rows) for kind in DRAWN)
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
    heading(figure, _compared(Notes.of(first)))
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


def _both_curves(figure: Figure, place: Any, rows: Sequence[Method], full: float | None) -> None:
    """The methods' curves, and beside them those of the loss and of a judge, as far as known."""
    shares, losses, judged = (
        {row.name: line for row in rows if (line := getattr(row, kind)) is not None}
        for kind in DRAWN
    )
    off = any(line.off for line in shares.values())
    sure = f"probability with {OFF_BEST} ↓" if off else f"SIC: probability with {ONLY_BEST} ↑"
    judge = next((line.judge for line in judged.values() if line.judge), "another network")
    # The heading names the judge once for all curves.
    judged = {name: replace(line, settings={}) for name, line in judged.items()}
    drawn = [
        (lines, text, whole)
        for lines, text, whole in (
            (shares, sure, full),
            (losses, "LIC: distance from the prediction ↓", None),
            (judged, f"second opinion by {shorten(judge, 24)} {'↓' if off else '↑'}", None),
        )
        if lines
    ]
    parts = place.subgridspec(1, max(len(drawn), 1))
    for i, (lines, text, whole) in enumerate(drawn):
        ax = curve(lines, full=whole, ax=figure.add_subplot(parts[0, i]))
        title(ax, text)
        if len(drawn) > 2:
            _narrow(ax)
        if lines is losses:
            ax.set_ylabel("KL (nats)")
            ax.autoscale(axis="y")  # It is no probability, even where it stays below 1.
            ax.set_ylim(bottom=0)


def _narrow(ax: Axes) -> None:
    """Few ticks and a legend of one column, for three diagrams in a row."""
    ax.set_xticks([0, 0.5, 1])
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, labels, fontsize=8, frameon=False, loc="upper left",
              bbox_to_anchor=(0, -0.16), borderaxespad=0)  # fmt: skip


def _own_row(name: str, a: Attribution) -> Method:
    notes = Notes.of(a)
    try:
        line: Curve | None = curve_of(a)[0]
    except InvalidInput:
        line = None
    loss, second = notes.curves.get("loss"), notes.curves.get("second-opinion")
    areas = {"sic_auc": notes.curve, "lic_auc": loss, "second_opinion_auc": second}
    numbers = {key: measured.auc for key, measured in areas.items() if measured is not None}
    if notes.curve is not None and notes.probability is not None:
        numbers["excess"] = float(notes.curve.values.max()) - notes.probability
    numbers |= {"gradients": a.gradients_used, "seconds": a.seconds}
    return Method(name, numbers, line, loss, second)


def _noted_rows(a: Attribution) -> Sequence[Method]:
    methods = Notes.of(a).comparison
    if not methods:
        raise InvalidInput(
            "Expected a comparison in the result's notes (got none). "
            "Try comparison({'greedy-pig': a, 'ig': b})."
        )
    return methods


def _table(ax: Axes, rows: Sequence[Method]) -> None:
    ax.set_axis_off()
    columns = [c for c in COMPARED if any(c in row.numbers for row in rows)]
    if not columns:
        return
    cells = [
        [COMPARED[c][1].format(row.numbers[c]) if c in row.numbers else "–" for c in columns]
        for row in rows
    ]
    table = ax.table(
        cellText=cells, colLabels=[COMPARED[c][0] for c in columns],
        rowLabels=[shorten(row.name, 22) for row in rows], loc="upper center", cellLoc="right",
        edges="horizontal",
    )  # fmt: skip
    table.auto_set_font_size(False)
    table.set_fontsize(8.5)
    table.scale(1, 1.45)
