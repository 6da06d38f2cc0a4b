"""The page of a selection of columns: losses after retraining, the order, what the others chose."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from ..core.attribution import Attribution
from ..results.curve import Curve
from ..results.line_styles import looks
from ..results.photo_notes import Notes
from ..results.picture import rounds_line
from ..results.table_notes import ColumnNotes, Loss
from .chart import Chart, grid, legend, line_chart, line_class, scale, stroke
from .markup import escape, page, table
from .sections import first_units, made, warned

CONSTANT_WORDS = (
    " The constant prediction is the training rows’ class rates, or their mean, for every row: "
    "columns with no lower loss are of no use."
)
WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 26, 14, 52
LISTED = 24
"""Columns in the list of bars; the rankings name more."""
SHORT_LIST = 8
"""A list this short leaves room for a chart below it."""


def columns_html(a: Attribution, notes: Notes, columns: ColumnNotes) -> str:
    """The whole page."""
    charts = _path(a)
    shown = min(LISTED, a.features.units)
    # Under a short list, or below both sides: so that none of them ends in a long blank.
    short = shown <= SHORT_LIST
    way = _way(a, charts, wide=not short)
    main = f"""{warned(columns.warnings)}
<div class="columns"><div>{first_units(a, shown)}{way if short else ""}</div>
<div>{_proof(columns)}</div></div>
{"" if short else way}{_rankings(columns)}{made(a, notes)}"""
    return page(
        a,
        name=" · ".join(p for p in (columns.label, notes.source, "greedypig") if p),
        eyebrow=(notes.source, columns.network, a.method),
        title=f"Which columns predict “{escape(columns.label)}”?",
        lead=_lead(a, columns),
        main=main,
        closing="The order says which columns this <em>model</em> used, the losses how well a new "
        "network does with them. Neither says what causes the label.",
        skip="the selection",
        data={"charts": [c.data for c in charts], "explore": None},
    )


def _lead(a: Attribution, columns: ColumnNotes) -> str:
    method = next(iter(columns.losses))
    by_k = columns.losses[method]
    k = next((k for k, v in by_k.items() if v.mean <= 1.01 * columns.loss_all.mean), max(by_k))
    text = (
        f"With <b>{k} of {a.features.units}</b> columns a new network reaches a validation "
        f"{escape(columns.metric)} of <b>{columns.figure(by_k[k].mean)}</b>; all columns give "
        f"<b>{columns.figure(columns.loss_all.mean)}</b>"
    )
    if columns.constant is not None:
        text += f", a constant prediction <b>{columns.figure(columns.constant.loss)}</b>"
    text += "."
    for sentence in columns.cautions():
        text += f" <b>{escape(sentence)}</b>"
    if gained := columns.gained():
        text += f" {escape(gained)}"
    if columns.task:
        text = f"{escape(columns.label)}: {escape(columns.task)}. {text}"
    if "ig" in columns.losses and method != "ig" and k in columns.losses["ig"]:
        text += f" At k = {k}: {escape(columns.verdict(method, 'ig', k))}."
    return text


def _proof(columns: ColumnNotes) -> str:
    heads = ["columns kept", *(f"k = {k}" for k in columns.ks)]
    best = {
        k: min((by[k].mean for by in columns.losses.values() if k in by), default=None)
        for k in columns.ks
    }
    rows = [
        [escape(method), *(_cell(by.get(k), best[k], columns.figure) for k in columns.ks)]
        for method, by in columns.losses.items()
    ]
    if columns.constant is not None:
        same = Loss(columns.constant.loss, None)
        rows.append(
            ["constant prediction", *([_cell(same, None, columns.figure)] * len(columns.ks))]
        )
    whole = _cell(columns.loss_all, None, columns.figure)
    rows.append(["all columns", *([whole] * len(columns.ks))])
    tables = table(heads, rows, caption=f"Validation {columns.metric} after retraining")
    if columns.accuracies and columns.accuracy_all is not None:
        rates = [
            [escape(m), *(_cell(by.get(k), None) for k in columns.ks)]
            for m, by in columns.accuracies.items()
        ]
        if columns.constant is not None and columns.constant.accuracy is not None:
            same = Loss(columns.constant.accuracy, None)
            rates.append(["constant prediction", *([_cell(same, None)] * len(columns.ks))])
        rates.append(["all columns", *([_cell(columns.accuracy_all, None)] * len(columns.ks))])
        inner = table(heads, rates, caption="Share of correct predictions after retraining")
        tables += f"<details><summary>Accuracy</summary>{inner}</details>"
    tables += _r_squared(columns, heads)
    seeds = (
        f"Means of {columns.seeds} seeds with standard errors" if columns.seeds > 1 else "One seed"
    )
    note = (
        f'<p class="note">New networks trained on the top k columns of each method, evaluated on '
        f"{columns.valid_rows:,} validation rows, which were also used for early stopping. "
        f"{seeds}; the lowest loss of each k is bold."
        f"{CONSTANT_WORDS if columns.constant is not None else ''}</p>"
    )
    return f"<section><h2>Loss after retraining</h2>{note}{_chart(columns)}{tables}</section>"


def _r_squared(columns: ColumnNotes, heads: list[str]) -> str:
    """Of a number: what share of its variance the losses leave explained."""
    if columns.constant is None or not columns.constant.variance:
        return ""

    def cell(loss: Loss | None) -> str:
        found = None if loss is None else columns.r_squared(loss.mean)
        return "–" if found is None else f"{found:.4f}"

    rows = [[escape(m), *(cell(by.get(k)) for k in columns.ks)] for m, by in columns.losses.items()]
    for name, loss in (("constant prediction", Loss(columns.constant.loss, None)),
                       ("all columns", columns.loss_all)):  # fmt: skip
        rows.append([name, *([cell(loss)] * len(columns.ks))])
    return table(heads, rows, caption="R² on the validation rows: 1 − loss / variance of the label")


def _plain(value: float) -> str:
    return f"{value:.4f}"


def _cell(loss: Loss | None, best: float | None, figure: Callable[[float], str] = _plain) -> str:
    if loss is None:
        return "–"
    text = figure(loss.mean)
    text = f"<b>{text}</b>" if loss.mean == best else text
    return text if loss.error is None else f"{text} <small>± {figure(loss.error)}</small>"


def _chart(columns: ColumnNotes) -> str:
    """Loss over k as inline SVG, with standard errors."""
    every = [(v.mean, v.error or 0.0) for by in columns.losses.values() for v in by.values()]
    every.append((columns.loss_all.mean, 0.0))
    constant = columns.constant if columns.constant_is_near() else None
    if constant is not None:
        every.append((constant.loss, 0.0))
    low, high, ticks = scale(min(m - e for m, e in every), max(m + e for m, e in every), zoom=True)
    first, last = min(columns.ks), max(columns.ks)

    def x(k: float) -> float:
        share = (k - first) / (last - first) if last > first else 0.5
        return round(LEFT + 20 + share * (WIDTH - LEFT - RIGHT - 40), 2)

    def y(value: float) -> float:
        return round(TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM), 2)

    below = {x(k): str(k) for k in columns.ks}
    parts = [grid(ticks, y, below, (LEFT, WIDTH - RIGHT), HEIGHT - BOTTOM)]
    whole = y(columns.loss_all.mean)
    parts.append(f'<line class="full" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{whole}" y2="{whole}"/>')
    if constant is not None:
        same = y(constant.loss)
        parts.append(
            f'<line class="constant" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{same}" y2="{same}"/>'
        )
    shown = looks(list(columns.losses))
    for i, (method, by_k) in enumerate(columns.losses.items()):
        shift = 5 * (i - (len(columns.losses) - 1) / 2)
        points = [(x(k) + shift, v) for k, v in by_k.items()]
        line = " ".join(f"{px},{y(v.mean)}" for px, v in points)
        parts.append(f'<polyline class="{line_class(shown[i])}" points="{line}"/>')
        for (px, v), k in zip(points, by_k, strict=True):
            if v.error:
                parts.append(
                    f'<line class="c{shown[i].colour} error" x1="{px}" x2="{px}" '
                    f'y1="{y(v.mean - v.error)}" y2="{y(v.mean + v.error)}"/>'
                )
            parts.append(
                f'<circle class="c{shown[i].colour}" r="4.5" cx="{px}" cy="{y(v.mean)}"><title>'
                f"{escape(method)}, k = {k}: {columns.shown(v)}</title></circle>"
            )
    parts.append(
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" '
        'text-anchor="middle">columns kept, k</text>'
    )
    spoken = "; ".join(
        f"{m}: " + ", ".join(f"{columns.figure(v.mean)} at {k}" for k, v in by.items())
        for m, by in columns.losses.items()
    )
    caption = f"Validation {columns.metric} after retraining (lower is better)"
    return (
        f'<figure class="plot"><figcaption>{escape(caption)}</figcaption>'
        f'<svg class="chart" id="losses" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(caption)}. {escape(spoken)}">{"".join(parts)}</svg>'
        f"{_legend(columns)}</figure>"
    )


def _legend(columns: ColumnNotes) -> str:
    methods = list(columns.losses)
    items: list[tuple[str, str, str | None]] = [
        (stroke(line_class(look)), method, None)
        for method, look in zip(methods, looks(methods), strict=True)
    ]
    items.append((stroke("full"), "all columns", columns.figure(columns.loss_all.mean)))
    if columns.constant is not None:
        near, loss = columns.constant_is_near(), columns.figure(columns.constant.loss)
        items.append((stroke("constant"), "constant prediction", loss) if near
                     else ("", "constant prediction", f"{loss}, not in the picture"))  # fmt: skip
    return legend(items)


def _path(a: Attribution) -> list[Chart]:
    """G(S) over the share of columns selected. Its area means nothing, as losses have no scale."""
    after = rounds_line(a)
    if after is None:
        return []
    if a.selected < a.features.units and after.fractions[-1] == 1:
        # Nothing was measured between the last column selected and all of them.
        if len(after.fractions) < 3:
            return []
        after = Curve(after.fractions[:-1], after.values[:-1], after.name)
    full = a.full_value if isfinite(a.full_value) else None
    return [line_chart("curve-rounds", [after], ["minus the loss of the columns so far"],
                       quantity="G(S) after each column", full=full, word="columns",
                       zoom=True, plain=True)]  # fmt: skip


def _way(a: Attribution, charts: list[Chart], *, wide: bool) -> str:
    """The loss of the model itself with only the columns selected so far."""
    values = [0.0 - v for v in a.values.tolist()]
    if not all(isfinite(v) for v in values) or len(values) < 2:
        return ""
    rest = "at their baseline"
    if a.settings.get("baseline") == "conditional":
        rest = "imputed from the selected ones"
    words = (
        f'<p class="note">The loss of the model as it is, with all other columns {rest}; G is '
        "minus that loss. It is measured on training rows, so do not compare it with validation "
        "losses. It may rise, because a model can need several columns "
        f"together.</p><p>Nothing: <b>{values[0]:.4f}</b>; the {a.selected} selected: "
        f"<b>{values[-1]:.4f}</b>; everything: <b>{0.0 - a.full_value:.4f}</b>.</p>"
    )
    drawn = "".join(chart.svg for chart in charts)
    if wide:
        words, drawn = f'<div class="columns"><div>{words}</div>', f"<div>{drawn}</div></div>"
    return f"<section><h2>Without retraining</h2>{words}{drawn}</section>"


def _rankings(columns: ColumnNotes) -> str:
    """The first columns of every method side by side."""
    methods = list(columns.orders)
    depth = min(max(columns.ks), 40, max((len(o) for o in columns.orders.values()), default=0))
    rows = [[str(i + 1), *(_column(columns, m, i) for m in methods)] for i in range(depth)]
    heads = ["place", *(escape(m) for m in methods)]
    body = table(heads, rows, caption="Columns by method, best first", words=1 + len(methods))
    return f"<section><h2>Rankings side by side</h2>{body}</section>"


def _column(columns: ColumnNotes, method: str, place: int) -> str:
    order = columns.orders[method]
    if place >= len(order):
        return "–"
    kind = columns.kinds.get(order[place], "")
    useful = columns.useful if method == next(iter(columns.orders)) else None
    if useful is not None and place >= useful:
        kind = ", ".join(part for part in (kind, "no gain") if part)
    return f"{escape(order[place])} <small>{escape(kind)}</small>"
