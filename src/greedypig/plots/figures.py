"""Whole figures: one result in a panel, several methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..results import verdicts
from ..results.graph_notes import COMPRESSION, NODE
from ..results.photo_notes import COMPARED, SECOND, Method, Notes, compared_curves
from ..results.picture import ROUNDS, Picture, feature_word, share_word, unranked
from ..results.table_notes import KEY as SELECTION
from ..results.text_notes import TextNotes
from .canvas import (
    KEY,
    KEY_BELOW,
    SOFT,
    Style,
    check,
    heading,
    headline,
    new_figure,
    note,
    shorten,
    title,
    untick,
)
from .charts import bars_panel, curve, curve_of
from .columns import selected_columns
from .graphs import compression, node_panel
from .pictures import heatmap, kept, order_map, without
from .text import text_comparison, text_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONLY_BEST, OFF_BEST = "only the best features", "the best features switched off"


def panel(a: Attribution, *, share: float = 0.1) -> Figure:
    """One result at a glance.

    For a picture: the picture, what is kept of it (of a counterfactual: left of it), importance,
    order of selection, and its curves. For texts, graphs and tables: their own
    figures. For anything else: the first features by name and the curve.
    """
    kind = check(a).about.get("kind")
    if kind == COMPRESSION:
        return compression(a)
    if kind == NODE:
        return node_panel(a)
    if SELECTION in a.about:
        return selected_columns(a)
    text = TextNotes.of(a)
    if text is not None and text.counts:
        return text_panel(a, text)
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
    picture = Picture.of(a)
    if picture is None or picture.pixels is None:
        note(whole, "the file holds no picture")
    else:
        whole.imshow(picture.pixels, interpolation_stage="rgba")
        untick(whole)
        title(whole, "everything, as the network sees it")
    _explained_part(a, share, part)
    if unranked(a) is None:
        for ax in (heatmap(a, ax=heat), order_map(a, ax=order)):
            title(ax, ax.get_title(loc="left").partition(":")[0])  # The class is in the heading.
    else:
        heat.set_axis_off()
        order.set_axis_off()
    _own_curves(a, notes, left)
    loss = notes.curves.get("loss")
    if loss is not None:
        title(curve(loss, ax=right), "distance from the whole picture's prediction")
    else:
        note(right, "\n".join(f"{shorten(n, 30)}  {p:.3f}" for n, p in notes.predictions), 1)
    return _headed(figure, a, notes)


def _explained_part(a: Attribution, share: float, ax: Axes) -> None:
    """What the explanation is about: `without` of a counterfactual, else `kept`."""
    reason = unranked(a)
    if reason is not None:
        note(ax, fill(f"{reason} So there is no order to show.", 36))
    else:
        (without if Notes.of(a).removing else kept)(a, share, ax=ax)


def _own_curves(a: Attribution, notes: Notes, ax: Axes) -> None:
    if notes.probabilities:
        curve(*notes.probabilities.values(), full=notes.probability, ax=ax)
        title(ax, f"probability with {OFF_BEST if notes.removing else ONLY_BEST}")
    elif curve_of(a)[0] is None:
        note(ax, "no values were measured")
    else:
        title(curve(a, ax=ax), ROUNDS)


def _plain_panel(a: Attribution) -> Figure:
    figure, right = bars_panel(a)
    notes = Notes.of(a)
    _own_curves(a, notes, right)
    if right.get_legend() is not None:  # Below, it would leave a gap under the bars.
        right.legend(**KEY)
    return _headed(figure, a, notes)


def _headed(figure: Figure, a: Attribution, notes: Notes) -> Figure:
    name = shorten(notes.source or notes.model or f"first {feature_word(a)}", 40)
    heading(figure, ": ".join(part for part in (name, headline(notes)) if part))
    parts = [str(a.settings.get("method", "")), notes.objective, notes.model]
    parts += [f"{notes.baseline} baseline" if notes.baseline else None]
    parts += [f"{a.features.count:,} {feature_word(a)}", f"{a.gradients_used:,} gradients"]
    parts += [f"{a.seconds:.1f} s", str(a.stop)]
    footnote = shorten(" · ".join(part for part in parts if part), 160)
    if excess := verdicts.excess(notes):
        footnote += f"\n{excess} {verdicts.advice(notes)}".rstrip()
    figure.supxlabel(footnote, fontsize=8.5, color=SOFT, x=0.01, ha="left")
    return figure


def comparison(results: Mapping[str, Attribution] | Attribution, *, share: float = 0.1) -> Figure:
    """Methods side by side: kept pictures, curves, and a table of AUC, gradients and seconds.

    results: from a method's name to its result on the same input; or one result whose notes hold a
        "comparison", which then has no pictures of the others.
    """
    if isinstance(results, Attribution):
        notes = Notes.of(results)
        rows: Sequence[Method] = notes.methods
        word = share_word(results)
        pictures: dict[str, Attribution] = {}
    elif isinstance(results, Mapping):
        if results and all(TextNotes.of(check(a)) is not None for a in results.values()):
            return text_comparison(results)
        rows = [_own_row(str(name), check(a)) for name, a in results.items()]
        pictures = {str(n): a for n, a in results.items() if Picture.of(a) is not None}
        first = next(iter(results.values()), None)
        notes, word = (Notes(), "") if first is None else (Notes.of(first), share_word(first))
    else:
        raise InvalidType(f"Expected results by method (got {type(results).__name__}).")
    if not rows:
        raise InvalidInput(
            "Expected at least one method's result (got none). "
            "Try comparison({'greedy-pig': a, 'ig': b})."
        )
    across = max(min(len(pictures), 4), 2)
    deep = -(-len(pictures) // across)
    high = 0.55 + 0.26 * (len(rows) + 1)
    diagrams = 4.1 + 0.2 * len(rows)
    figure = new_figure(3.3 * max(across, 3), 3.9 * deep + diagrams + high + 0.4)
    ratios = [*[3.9] * deep, diagrams, high]
    grid = figure.add_gridspec(deep + 2, across, height_ratios=ratios)
    for i, (name, a) in enumerate(pictures.items()):
        ax = figure.add_subplot(grid[i // across, i % across])
        _explained_part(a, share, ax)
        title(ax, f"{shorten(name, 24)}\n{ax.get_title(loc='left')}")
    _all_curves(figure, grid[deep, :], rows, notes.probability, word)
    _table(figure.add_subplot(grid[deep + 1, :]), rows)
    source = shorten(notes.source or "")
    head = f"{source}: AUC of median curves, the rest medians"
    if not source.endswith(" photos"):  # Else the class would be that of one photo.
        head = ": ".join(part for part in (source, headline(notes)) if part)
    heading(figure, " · ".join(part for part in (head, shorten(notes.model or "")) if part))
    return figure


def _all_curves(
    figure: Figure, place: Any, rows: Sequence[Method], full: float | None, word: str
) -> None:
    """The methods' curves, and beside them those of the loss and of a judge, as far as known."""
    diagrams = compared_curves(rows)
    parts = place.subgridspec(1, max(len(diagrams), 1))
    for i, (kind, caption, lines) in enumerate(diagrams):
        if all(line.name == ROUNDS for line in lines.values()):
            caption = ROUNDS
        # The caption names the judge once for all curves.
        lines = {name: replace(line, settings={"off": line.off}) for name, line in lines.items()}
        whole = full if kind == "curve" else None
        ax = curve(lines, full=whole, ax=figure.add_subplot(parts[0, i]))
        title(ax, caption)
        ax.set_xlabel(ax.get_xlabel().replace("features", word))
        if len(diagrams) > 2:  # Few ticks and a legend of one column fit three in a row.
            ax.set_xticks([0, 0.5, 1])
            ax.legend(**KEY_BELOW)
        if kind == "loss":
            ax.set_ylabel("KL (nats)")
            ax.autoscale(axis="y")  # It is no probability, even where it stays below 1.
            ax.set_ylim(bottom=0)


def _own_row(name: str, a: Attribution) -> Method:
    notes = Notes.of(a)
    own, loss, second = notes.curve, notes.curves.get("loss"), notes.curves.get(SECOND)
    excess = None
    if own is not None and notes.probability is not None:
        excess = float(own.values.max()) - notes.probability
    return Method(
        name,
        sic_auc=None if own is None else own.auc,
        lic_auc=None if loss is None else loss.auc,
        second_opinion_auc=None if second is None else second.auc,
        excess=excess,
        gradients=a.gradients_used,
        seconds=a.seconds,
        curve=curve_of(a)[0],
        loss=loss,
        second=second,
    )


def _table(ax: Axes, rows: Sequence[Method]) -> None:
    ax.set_axis_off()
    columns = [c for c in COMPARED if any(c in row.numbers for row in rows)]
    if not columns:
        return
    cells = [
        [COMPARED[c][1].format(row.numbers[c]) if c in row.numbers else "–" for c in columns]
        for row in rows
    ]
    heads, names = [COMPARED[c][0] for c in columns], [shorten(row.name, 22) for row in rows]
    look: Style = {"loc": "upper center", "cellLoc": "right", "edges": "horizontal"}
    table = ax.table(cellText=cells, colLabels=heads, rowLabels=names, **look)
    table.auto_set_font_size(False)
    table.set_fontsize(8.5)
    table.scale(1, 1.45)
