"""Whole figures: one result in a panel, several methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..results.comparison import MethodTable, compared_curves, own_row
from ..results.input_notes import COMPARED, ROUNDS, InputNotes, MethodRow
from ..results.kinds import find
from ..results.labels import feature_word, share_word
from .canvas import (
    KEY,
    KEY_BELOW,
    SOFT,
    check,
    heading,
    headline,
    new_figure,
    note,
    shorten,
    title,
    untick,
)
from .charts import bars_panel, curve, method_table
from .pictures import heatmap, kept, order_map, without

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_METHOD = (
    "Expected at least one method's result (got none). Try comparison({'greedy-pig': a, 'ig': b})."
)
ONLY_BEST, OFF_BEST = "only the best features", "the best features switched off"


def panel(a: Attribution, *, share: float = 0.1) -> Figure:
    """One result at a glance.

    For a picture: the picture, what is kept of it (of a counterfactual: left of it), importance,
    order of selection, and its curves. For texts, graphs and tables: their own
    figures. For anything else: the first features by name and the curve.
    """
    if (draw := find(check(a), "panel")) is not None:
        figure: Figure = draw(a)
        return figure
    notes = InputNotes.of(a)
    return plain_panel(a, notes) if notes.picture is None else _picture_panel(a, notes, share)


def _picture_panel(a: Attribution, notes: InputNotes, share: float) -> Figure:
    """Four pictures of one size in a row; below them the curves, each as wide as two of them."""
    figure = new_figure(12.5, 8.4)
    # Parts with a layout of their own: a diagram's labels would push the pictures above it apart.
    grid = figure.add_gridspec(2, 1, height_ratios=(4.2, 3.4))
    above, below = (figure.add_subfigure(grid[i]) for i in range(2))
    whole, part, heat, order = (
        above.add_axes((0.01 + 0.248 * i, 0.2, 0.234, 0.68), anchor="N") for i in range(4)
    )
    left, right = below.subplots(1, 2)
    picture = notes.picture
    if picture is None or picture.pixels is None:
        note(whole, "the file holds no picture")
    else:
        whole.imshow(picture.pixels, interpolation_stage="rgba")
        untick(whole)
        title(whole, "everything, as the network sees it")
    _explained_part(notes, share, part)
    if notes.reason is None:
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


def _explained_part(notes: InputNotes, share: float, ax: Axes) -> None:
    """What the explanation is about: `without` of a counterfactual, else `kept`."""
    if notes.reason is not None:
        note(ax, fill(f"{notes.reason} So there is no order to show.", 36))
    else:
        (without if notes.removing else kept)(notes.a, share, ax=ax)


def _own_curves(a: Attribution, notes: InputNotes, ax: Axes) -> None:
    if notes.probabilities:
        curve(*notes.probabilities.values(), full=notes.probability, ax=ax)
        title(ax, f"probability with {OFF_BEST if notes.removing else ONLY_BEST}")
    elif notes.rounds is None:
        note(ax, "no values were measured")
    else:
        title(curve(a, ax=ax), ROUNDS)


def plain_panel(a: Attribution, notes: InputNotes) -> Figure:
    """The first features by name, and the curve."""
    figure, right = bars_panel(a)
    _own_curves(a, notes, right)
    if right.get_legend() is not None:  # Below, it would leave a gap under the bars.
        right.legend(**KEY)
    return _headed(figure, a, notes)


def _headed(figure: Figure, a: Attribution, notes: InputNotes) -> Figure:
    name = shorten(notes.source or notes.model or f"first {feature_word(a)}", 40)
    heading(figure, ": ".join(part for part in (name, headline(notes)) if part))
    parts = [str(a.settings.get("method", "")), notes.objective, notes.model]
    parts += [f"{notes.baseline} baseline"] * bool(notes.baseline)
    parts += [f"{a.features.count:,} {feature_word(a)}", f"{a.gradients_used:,} gradients"]
    parts += [f"{a.seconds:.1f} s", str(a.stop)]
    footnote = shorten(" · ".join(part for part in parts if part), 160)
    if excess := notes.excess_line():
        footnote += f"\n{excess} {notes.advice()}".rstrip()
    figure.supxlabel(footnote, fontsize=8.5, color=SOFT, x=0.01, ha="left")
    return figure


def comparison(results: Mapping[str, Attribution] | Attribution, *, share: float = 0.1) -> Figure:
    """Methods side by side: kept pictures, curves, and a table of AUC, gradients and seconds.

    results: from a method's name to its result on the same input; or one result whose notes hold a
        "comparison", which then has no pictures of the others.
    """
    if isinstance(results, Attribution):
        notes = InputNotes.of(results)
        return _comparison(notes, notes.methods, share_word(results), {}, share)
    if not isinstance(results, Mapping):
        raise InvalidType(f"Expected results by method (got {type(results).__name__}).")
    if not results:
        raise InvalidInput(NO_METHOD)
    views = {check(a).about.view for a in results.values()}
    first = next(iter(results.values()))
    draw = find(first, "comparison") if len(views) == 1 else input_comparison
    figure: Figure = draw({str(name): a for name, a in results.items()}, share)
    return figure


def input_comparison(results: Mapping[str, Attribution], share: float) -> Figure:
    """Methods on an input without a figure of its own."""
    notes = {name: InputNotes.of(a) for name, a in results.items()}
    rows = [own_row(name, a, notes[name]) for name, a in results.items()]
    pictures = {name: each for name, each in notes.items() if each.picture is not None}
    first = next(iter(notes.values()))
    return _comparison(first, rows, share_word(first.a), pictures, share)


def _comparison(
    notes: InputNotes,
    rows: Sequence[MethodRow],
    word: str,
    pictures: Mapping[str, InputNotes],
    share: float,
) -> Figure:
    if not rows:
        raise InvalidInput(NO_METHOD)
    across = max(min(len(pictures), 4), 2)
    deep = -(-len(pictures) // across)
    high = 0.55 + 0.26 * (len(rows) + 1)
    diagrams = 4.1 + 0.2 * len(rows)
    figure = new_figure(3.3 * max(across, 3), 3.9 * deep + diagrams + high + 0.4)
    ratios = [*[3.9] * deep, diagrams, high]
    grid = figure.add_gridspec(deep + 2, across, height_ratios=ratios)
    for i, (name, pictured) in enumerate(pictures.items()):
        ax = figure.add_subplot(grid[i // across, i % across])
        _explained_part(pictured, share, ax)
        title(ax, f"{shorten(name, 24)}\n{ax.get_title(loc='left')}")
    _all_curves(figure, grid[deep, :], rows, notes.probability, word)
    table = MethodTable(COMPARED, {row.name: row.numbers for row in rows})
    method_table(figure.add_subplot(grid[deep + 1, :]), table)
    source = shorten(notes.source or "")
    head = f"{source}: AUC of median curves, the rest medians"
    if not source.endswith(" photos"):  # Else the class would be that of one photo.
        head = ": ".join(part for part in (source, headline(notes)) if part)
    heading(figure, " · ".join(part for part in (head, shorten(notes.model or "")) if part))
    return figure


def _all_curves(
    figure: Figure, place: Any, rows: Sequence[MethodRow], full: float | None, word: str
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
