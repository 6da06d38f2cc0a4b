"""The page of a selection of columns: losses after retraining, the order, what the others chose."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, isfinite, log10

from ..core.attribution import Attribution
from ..results.curve import Curve
from ..results.line_styles import looks
from ..results.photo_notes import Notes
from ..results.picture import rounds_line
from ..results.table_notes import ColumnNotes, Loss
from .chart import Chart, line_chart, line_class
from .markup import document, escape, table
from .sections import first_units, made, warned

CONSTANT_WORDS = (
    " The constant answer is the training rows’ rates, or their mean, for every row: columns that "
    "do not beat it tell nothing."
)
WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 26, 14, 52
LISTED = 24
"""Columns whose bars are as long as the proof beside them; the rankings name more."""
SHORT_LIST = 8
"""Columns whose bars leave room for a chart below."""


def columns_html(a: Attribution, notes: Notes, columns: ColumnNotes) -> str:
    """The whole page."""
    charts = _path(a)
    shown = min(LISTED, a.features.units)
    # Under a short list, or below both sides: so that none of them ends in a long blank.
    short = shown <= SHORT_LIST
    way = _way(a, charts, wide=not short)
    body = f"""
<a class="skip" href="#main">Skip to the selection</a>
<header><p class="eyebrow">{_eyebrow(a, notes, columns)}</p>
<h1>Which columns predict “{escape(columns.label)}”?</h1>
<p class="lead">{_lead(a, columns)}</p></header>
<main id="main">{warned(columns.warnings)}
<div class="columns"><div>{first_units(a, shown)}{way if short else ""}</div>
<div>{_proof(columns)}</div></div>
{"" if short else way}{_rankings(columns)}{made(a, notes)}
</main>
<footer><p>Made by greedypig {escape(a.provenance.get("greedypig", ""))} from the result alone.
The order tells which columns this <em>model</em> used; the losses tell how well a fresh network
does with them. Neither says what causes the label.</p></footer>"""
    name = " · ".join(p for p in (columns.label, notes.source, "greedypig") if p)
    return document(
        name, body, script=True, data={"charts": [c.data for c in charts], "explore": None}
    )


def _eyebrow(a: Attribution, notes: Notes, columns: ColumnNotes) -> str:
    parts = [notes.source, columns.network, str(a.settings.get("method") or "")]
    return " · ".join(escape(p) for p in parts if p)


def _lead(a: Attribution, columns: ColumnNotes) -> str:
    method = next(iter(columns.losses))
    by_k = columns.losses[method]
    k = next((k for k, v in by_k.items() if v.mean <= 1.01 * columns.loss_all.mean), max(by_k))
    text = (
        f"With <b>{k} of {a.features.units}</b> columns a fresh network reaches a validation "
        f"{escape(columns.metric)} of <b>{columns.figure(by_k[k].mean)}</b>; all columns give "
        f"<b>{columns.figure(columns.loss_all.mean)}</b>"
    )
    if columns.constant is not None:
        text += f", always the same answer <b>{columns.figure(columns.constant.loss)}</b>"
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
        rows.append(["constant answer", *([_cell(same, None, columns.figure)] * len(columns.ks))])
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
            rates.append(["constant answer", *([_cell(same, None)] * len(columns.ks))])
        rates.append(["all columns", *([_cell(columns.accuracy_all, None)] * len(columns.ks))])
        inner = table(heads, rates, caption="Share of right answers after retraining")
        tables += f"<details><summary>Accuracy</summary>{inner}</details>"
    tables += _r_squared(columns, heads)
    seeds = (
        f"Means of {columns.seeds} seeds with standard errors" if columns.seeds > 1 else "One seed"
    )
    note = (
        f'<p class="note">Fresh networks trained on the top k columns of each method, judged on '
        f"{columns.valid_rows:,} rows that were held out, which also ended the training. {seeds}; "
        "the lowest of a column is bold."
        f"{CONSTANT_WORDS if columns.constant is not None else ''}</p>"
    )
    return f"<section><h2>Proof by retraining</h2>{note}{_chart(columns)}{tables}</section>"


def _r_squared(columns: ColumnNotes, heads: list[str]) -> str:
    """Of a number: what share of its variance the losses leave explained."""
    if columns.constant is None or not columns.constant.variance:
        return ""

    def cell(loss: Loss | None) -> str:
        found = None if loss is None else columns.r_squared(loss.mean)
        return "–" if found is None else f"{found:.4f}"

    rows = [[escape(m), *(cell(by.get(k)) for k in columns.ks)] for m, by in columns.losses.items()]
    for name, loss in (("constant answer", Loss(columns.constant.loss, None)),
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
    low, high, ticks = _scale(min(m - e for m, e in every), max(m + e for m, e in every))
    first, last = min(columns.ks), max(columns.ks)

    def x(k: float) -> float:
        share = (k - first) / (last - first) if last > first else 0.5
        return round(LEFT + 20 + share * (WIDTH - LEFT - RIGHT - 40), 2)

    def y(value: float) -> float:
        return round(TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM), 2)

    parts = []
    for tick in ticks:
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">'
            f"{tick:.4g}</text>"
        )
    for k in columns.ks:
        parts.append(
            f'<text class="tick" x="{x(k)}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">'
            f"{k}</text>"
        )
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
    sample = '<svg class="sample" viewBox="0 0 28 8" aria-hidden="true">{}</svg>'
    stroke = '<line class="{}" x1="0" x2="28" y1="4" y2="4"/>'
    methods = list(columns.losses)
    items = [
        f"<li>{sample.format(stroke.format(line_class(look)))}{escape(method)}</li>"
        for method, look in zip(methods, looks(methods), strict=True)
    ]
    mark = sample.format('<line class="full" x1="0" x2="28" y1="4" y2="4"/>')
    whole = columns.figure(columns.loss_all.mean)
    items.append(f"<li>{mark}all columns <small>{whole}</small></li>")
    if columns.constant is not None:
        near = columns.constant_is_near()
        line = '<line class="constant" x1="0" x2="28" y1="4" y2="4"/>' if near else ""
        where = "" if near else ", not in the picture"
        same = f"constant answer <small>{columns.figure(columns.constant.loss)}{where}</small>"
        items.append(f"<li>{sample.format(line) if near else ''}{same}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _scale(low: float, high: float) -> tuple[float, float, list[float]]:
    """Round numbers close around the data: losses differ in their later digits."""
    span = (high - low) or abs(high) or 1.0
    raw = span / 4
    size = 10 ** floor(log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, [i * step for i in range(first, last + 1)]


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
    """What the model itself loses with only the columns chosen so far."""
    values = [0.0 - v for v in a.values.tolist()]
    if not all(isfinite(v) for v in values) or len(values) < 2:
        return ""
    rest = "their baseline"
    if a.settings.get("baseline") == "conditional":
        rest = "what those chosen let one expect of them"
    words = (
        f'<p class="note">The loss of the model as it is, with all other columns at {rest}'
        "; G is minus that loss. It is measured on the training rows, so do not "
        "hold it beside the validation losses. It may rise: a frozen model can need "
        f"columns together.</p><p>Nothing: <b>{values[0]:.4f}</b>; the {a.selected} selected: "
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
        kind = ", ".join(part for part in (kind, "nothing gained") if part)
    return f"{escape(order[place])} <small>{escape(kind)}</small>"
