"""Parts that pages of several kinds share: the first features, and methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.attribution import Attribution
from ..results.photo_notes import COMPARED, Method, compared_curves
from ..results.picture import strengths, unit_labels, unit_word
from .chart import share_chart
from .render import Cell

NAMES = {"curve": "curve-methods", "loss": "curve-methods-loss", "second": "curve-methods-second"}
"""The charts of a comparison as the page's script knows them."""


def first_units(a: Attribution, most: int = 20) -> dict[str, Any]:
    """The first features by name, with bars of what they brought."""
    count = min(most, a.features.units)
    lengths, rounds, meaning = strengths(a, count)
    texts = [
        f"{length:.3g}".replace("-", "−") + (f" · round {r}" if r and len(a.picks) > 1 else "")
        for length, r in zip(lengths, rounds, strict=True)
    ]
    labels = unit_labels(a, a.order[:count].tolist())
    return {
        "word": unit_word(a),
        "meaning": meaning,
        "more": a.features.units - count,
        "bars": list(zip(labels, lengths, texts, strict=True)),
    }


def compared(methods: Sequence[Method], full: float | None) -> dict[str, Any] | None:
    """Methods side by side: a table, and the curves that came along."""
    if not methods:
        return None
    columns = [c for c in COMPARED if any(c in m.numbers for m in methods)]
    best = {c: _best(c, methods) for c in columns}
    return {
        "heads": ["method", *(COMPARED[c][0] for c in columns)],
        "rows": [
            [m.name, *(_cell(c, m.numbers.get(c), best[c]) for c in columns)] for m in methods
        ],
        "bold": any(text is not None for text in best.values()),
        "charts": [
            share_chart(NAMES[kind], caption, lines, full if kind == "curve" else None)
            for kind, caption, lines in compared_curves(methods)
        ],
    }


def _best(column: str, methods: Sequence[Method]) -> str | None:
    """The best number of a column as it is written; None where none is to be preferred."""
    head, form = COMPARED[column]
    values = [m.numbers[column] for m in methods if column in m.numbers]
    if head[-1] not in "↑↓" or len(values) < 2:
        return None
    return form.format(max(values) if head[-1] == "↑" else min(values))


def _cell(column: str, value: float | None, best: str | None) -> Cell:
    text = "–" if value is None else COMPARED[column][1].format(value)
    return Cell(text, bold=text == best)
