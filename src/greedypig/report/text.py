"""The page of a text: the text with its selected parts, the output at each k, methods compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.attribution import Attribution
from ..results.comparison import MethodTable
from ..results.picture import unranked
from ..results.text_notes import COLUMNS, Piece, Ranked, TextNotes
from ..results.wording import of_the_rise, shown
from .chart import Chart, Level, Line, count_chart
from .page import unranked_html
from .parts import details, first_features, method_table
from .render import Cell, render

MOST = 6000
"""Features that can be pointed at; in a longer text those that were selected first."""
STEPS = 100
"""About so many places of the slider, where there are more features."""
LISTED = 8
"""First features of each method, side by side."""


def text_html(a: Attribution, text: TextNotes) -> str:
    """The whole page."""
    if (reason := unranked(a)) is not None:
        return unranked_html(a, reason)
    charts = _charts(text) if len(text.counts) > 1 else []
    first = first_features(a)
    for row, feature in zip(first["rows"], text.order, strict=False):
        row[1] = Cell(text.name(feature, 300), _remark(text, feature))
    first["next"] = first["rows"][text.start :]
    methods = text.methods or {a.method: text.ranked(a, set())}
    stops = _stops(text, methods)
    return render(
        "text.html",
        {"charts": [chart.data for chart in charts], "text": _data(text, methods, stops, _tips(a))},
        a=a,
        text=text,
        details=_details(a),
        eyebrow=[text.source, text.model, a.method],
        source=text.source,
        answer=text.answer(),
        cautions=text.cautions(),
        predictions=[(name, p, f"{p:.3f}") for name, p in text.predictions],
        pieces=_pieces(text),
        before=text.text[: text.spans[0][0]],
        after=text.text[text.spans[-1][1] :],
        spoken=_spoken(text),
        charts=charts[:1],
        methods_charts=charts[1:],
        first=first,
        methods=list(methods),
        last=len(stops) - 1,
        start=stops.index(text.start),
        compared=_compared(text),
        lists=[(name, _list(text, row)) for name, row in text.methods.items()],
        rows=text.rows()[1:],
    )


def _details(a: Attribution) -> dict[str, Any]:
    """How the result was made.

    A round may select several features, so the search can end with more than are enough. Their
    number is shown as a fact about the search.
    """
    section = details(a)
    word = section["word"]
    section["facts"] = [
        ("search ended with", f"{value} {word}") if name == f"{word} selected" else (name, value)
        for name, value in section["facts"]
    ]
    return section


def _pieces(text: TextNotes) -> list[tuple[Piece, str, str]]:
    """The text in pieces, each with its colour and the place of its twin.

    All features are pieces, so that the script can show any number of them.
    """
    twins = {feature: text.order.index(of) + 1 for feature, of in text.twins}
    pieces = text.passage(text.order[:MOST])
    return [
        (
            piece,
            text.levels[piece.place - 1 : piece.place] or "1" if piece.place else "",
            str(twins.get(piece.feature, "")),
        )
        for piece in pieces
    ]


def _remark(text: TextNotes, feature: int) -> str:
    """The document of a feature, and what it repeats or can replace."""
    pairs = [(verb, text.order.index(i) + 1) for j, i, verb in text.twin_verbs() if j == feature]
    twins = [f"{verb} number {place}" for verb, place in pairs]
    return " · ".join(part for part in (text.document(feature), *twins) if part)


def _charts(text: TextNotes) -> list[Chart]:
    """What was measured over the number of best features; then the same of all methods."""
    quantity = f"{text.quantity[:1].upper()}{text.quantity[1:]} of {text.what}"
    charts = [_chart(text, "chart-text", quantity, text.counts, text.measured)]
    for key, title in zip(("only", "without"), list(text.measured)[::2], strict=True):
        rows = {name: row for name, row in text.methods.items() if len(row.counts) > 1}
        if rows:
            lines = [
                Line(name, list(zip(map(float, row.counts), getattr(row, key), strict=False)))
                for name, row in rows.items()
            ]
            name = f"{quantity}, {title}"
            charts.append(replace(charts[0], name=f"chart-{key}", caption=name, lines=lines))
    return charts


def _chart(
    text: TextNotes,
    name: str,
    caption: str,
    counts: Sequence[int],
    measured: Mapping[str, Sequence[float]],
) -> Chart:
    return count_chart(
        name,
        caption,
        f"{text.unit}, best first",
        [
            Line(title, list(zip(map(float, counts), values, strict=False)))
            for title, values in measured.items()
        ],
        [Level("all", text.only[-1], text.cell(text.only[-1]))],
        text.unit,
        zoom=text.quantity != "probability",
    )


def _spoken(text: TextNotes) -> str:
    """The first selected parts, for those who do not see the colours."""
    parts = (f"{i}: {text.name(f)}" for i, f in enumerate(text.order[: text.start][:10], 1))
    return "; ".join(parts)


def _tips(a: Attribution) -> list[str]:
    """The round and score of each selected feature, best first."""
    taken = a.order[: a.selected][:MOST]
    rounds, scores = a.feature_rounds()[taken].tolist(), a.feature_scores[taken].tolist()
    several = len(a.picks) > 1
    return [
        f"round {r}, score {shown(s, 3)}" if several else f"score {shown(s, 3)}"
        for r, s in zip(rounds, scores, strict=True)
    ]


def _stops(text: TextNotes, methods: Mapping[str, Ranked]) -> list[int]:
    """How many features the slider can keep: of many, all small numbers, then larger steps."""
    n = len(text.spans)
    known = {text.start, n, *(count for row in methods.values() for count in row.counts)}
    steps = {round(n ** (i / STEPS)) for i in range(STEPS + 1)}
    return sorted({*range(min(n, STEPS // 2) + 1), *steps, *known})


def _data(
    text: TextNotes, methods: Mapping[str, Ranked], stops: list[int], tips: list[str]
) -> dict[str, Any]:
    """What the script draws from; tips: of each selected feature, best first."""
    return {
        "stops": stops,
        "count": len(text.spans),
        "unit": [text.unit_of(1).partition(" ")[2], text.unit_of(2).partition(" ")[2]],
        "log": text.is_log,
        "tokens": text.answer_tokens,
        "titles": list(text.measured),
        "methods": [
            {
                "name": name,
                "order": row.order[:MOST],
                "levels": row.levels[:MOST],
                "counts": row.counts,
                "values": [row.only, row.deleted, row.without],
                "enough": row.enough,
            }
            for name, row in methods.items()
        ],
        "selected": text.selected,
        "rise": of_the_rise(),
        "tips": tips,
    }


def _compared(text: TextNotes) -> dict[str, Any] | None:
    """The table of methods; the best of a column with an arrow is bold."""
    if not text.methods:
        return None
    return method_table(MethodTable(COLUMNS, {n: row.numbers for n, row in text.methods.items()}))


def _list(text: TextNotes, row: Ranked) -> list[str]:
    """A method's first features."""
    return [text.name(feature, 140) for feature in row.order[:LISTED]]
