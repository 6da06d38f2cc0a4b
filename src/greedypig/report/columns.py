"""The page of a selection of columns: losses after retraining, the order, what the others chose."""

from __future__ import annotations

from ..core.attribution import Attribution
from ..results.table_notes import ColumnNotes, Summary
from .chart import Chart, Level, Line
from .parts import details, first_features
from .render import Cell, render

DEPTH = 40
"""Places in the table of rankings."""


def columns_html(a: Attribution, columns: ColumnNotes) -> str:
    """The whole page."""
    k = columns.answer_k()
    judged = columns.first != "ig" and k in columns.losses.get("ig", {})
    chart = _chart(columns)
    return render(
        "columns.html",
        {"charts": [chart.data]},
        a=a,
        columns=columns,
        details=details(a),
        eyebrow=[a.about.source, columns.network, a.method],
        source=a.about.source,
        first=first_features(a),
        k=k,
        answer=columns.answer(),
        verdict=columns.verdict(columns.first, "ig", k) if judged else "",
        chart=chart,
        cautions=columns.cautions(),
        heads=["columns kept", *(f"k = {k}" for k in columns.ks)],
        losses=_losses(columns),
        rankings=_rankings(columns),
        way=[f"{0.0 - v:.4f}" for v in (*a.values[[0, -1]].tolist(), a.full_value)],
        measured=len(a.values) > 1 and bool(a.values.isfinite().all()),
    )


def _losses(columns: ColumnNotes) -> list[list[str | Cell]]:
    """The losses by method and k; the lowest of each k is bold."""
    methods = columns.losses.values()

    def cell(name: str, loss: Summary | None, k: int) -> Cell:
        if loss is None:
            return Cell("–")
        mean, _, error = columns.shown(loss).partition(" ")
        lowest = min(by[k].mean for by in methods if k in by)
        return Cell(mean, error, name in columns.losses and loss.mean == lowest)

    return [
        [name, *(cell(name, by.get(k), k) for k in columns.ks)]
        for name, by in columns.by_name().items()
    ]


def _chart(columns: ColumnNotes) -> Chart:
    """Loss over k, with standard errors."""
    middle = (len(columns.losses) - 1) / 2
    lines = [
        Line(
            method,
            [(k, loss.mean) for k, loss in by.items()],
            shift=5 * (i - middle),
            errors=[loss.standard_error for loss in by.values()],
        )
        for i, (method, by) in enumerate(columns.losses.items())
    ]
    whole = columns.loss_all.mean
    levels = [Level("all columns", whole, columns.figure(whole))]
    if columns.constant is not None and columns.constant_is_near():
        loss = columns.constant.loss
        levels.append(Level("constant prediction", loss, columns.figure(loss), "constant"))
    ks = sorted({k for by in columns.losses.values() for k in by})
    margin = 0.04 * (ks[-1] - ks[0]) or 1.0
    caption = f"Validation {columns.metric} after retraining (lower is better)"
    ticks = {float(k): str(k) for k in ks}
    ends = (ks[0] - margin, ks[-1] + margin)
    axis = "columns kept, k"
    return Chart("losses", caption, axis, lines, levels, ticks, ends, zoom=True, snaps=True)


def _rankings(columns: ColumnNotes) -> list[list[str | Cell]]:
    """The first columns of every method side by side."""
    depth = min(max(columns.ks), DEPTH, max(map(len, columns.orders.values()), default=0))

    def cell(method: str, place: int) -> str | Cell:
        order = columns.orders[method]
        if place >= len(order):
            return "–"
        useful = columns.useful if method == columns.first else None
        gain = "no gain" if useful is not None and place >= useful else ""
        kind = columns.kinds.get(order[place], "")
        return Cell(order[place], ", ".join(part for part in (kind, gain) if part))

    return [[str(i + 1), *(cell(method, i) for method in columns.orders)] for i in range(depth)]
