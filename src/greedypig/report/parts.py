"""Parts that pages of several kinds share: the first features, methods side by side, and how a
result was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isfinite
from typing import Any

from ..core.attribution import Attribution
from ..results.frame import feature_values
from ..results.photo_notes import COMPARED, Method, Notes, compared_curves
from ..results.picture import feature_labels, feature_word, strengths
from ..results.wording import kept_settings, percent, setting, shown
from .chart import share_chart
from .render import Cell

NAMES = {"curve": "curve-methods", "loss": "curve-methods-loss", "second": "curve-methods-second"}
"""The charts of a comparison as the page's script knows them."""
LONGEST = 200
"""Rounds in the table; a longer one says what it leaves out."""


def first_features(a: Attribution, most: int = 200) -> dict[str, Any]:
    """The first features by name, with their values where the result holds them, and with bars of
    what they brought. Those that were not selected are left out."""
    count = min(most, a.selected or a.features.count)
    lengths, rounds, meaning = strengths(a, count)
    first = a.order[:count].tolist()
    low, high = min(0.0, *lengths), max(0.0, *lengths)
    unit = 100 / ((high - low) or 1)
    known = feature_values(a) if a.features.kind == "elements" else None
    values = [] if known is None else [shown(value) for value in known[first].tolist()]
    head = "gain in G" if meaning.startswith("gain") else "score"
    rows: list[list[Any]] = []
    for i, label in enumerate(feature_labels(a, first)):
        width = max(abs(lengths[i]) * unit, 0.4)
        bar = (-low * unit - (width if lengths[i] < 0 else 0), width, lengths[i] < 0)
        rows.append([str(i + 1), label, *values[i : i + 1]])
        rows[-1] += [Cell(shown(lengths[i], 3), bar=bar)]
        rows[-1] += [str(rounds[i] or "–")] if len(a.picks) > 1 else []
    word = feature_word(a)
    heads = ["place", feature_word(a, 1), *(["value"] if values else []), head]
    return {
        "word": word,
        "meaning": meaning,
        "more": a.features.count - count,
        "heads": [*heads, *(["round"] if len(a.picks) > 1 else [])],
        "rows": rows,
        "words": len(heads) - 1,
    }


def compared(methods: Sequence[Method], full: float | None) -> dict[str, Any] | None:
    """Methods side by side: a table, and the curves that came along."""
    if not methods:
        return None
    columns = [c for c in COMPARED if any(c in m.numbers for m in methods)]
    best = {c: _best(c, methods) for c in columns}
    return {
        "heads": ["method", *(COMPARED[c][0] for c in columns)],
        "names": [m.name for m in methods],
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


def details(a: Attribution, notes: Notes) -> dict[str, Any]:
    """The last section of a page."""
    word, name = feature_word(a), a.settings.get("method")
    facts = {
        "method": f"{name}: {setting(kept_settings(a))}" if isinstance(name, str) else None,
        "seed": a.settings.get("seed"),
        "gradients": f"{a.gradients_used:,}",
        "seconds": f"{a.seconds:.1f}",
        "stopped because": str(a.stop),
        f"{word} selected": f"{a.selected:,} of {a.features.count:,}",
        "model": notes.model,
        "source": notes.source,
        "baseline": notes.baseline,
    }
    return {
        "facts": _pairs({key: value for key, value in facts.items() if value is not None}),
        "settings": _pairs(a.settings),
        "provenance": _pairs(a.provenance),
        "rounds": _rounds(a),
        "longest": LONGEST,
        "word": word,
        "command": notes.command,
        "random": name == "random",
    }


def _pairs(mapping: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, value if isinstance(value, str) else json.dumps(value, default=str))
        for key, value in mapping.items()
    ]


def _rounds(a: Attribution) -> list[list[str]]:
    def known(value: float) -> str:
        return shown(value) if isfinite(value) else "not measured"

    rounds = zip(a.picks, accumulate(a.picks), a.values[1:].tolist(), a.totals, strict=True)
    return [
        [str(i), f"{pick:,}", f"{end:,}", percent(end / a.features.count), known(g), known(total)]
        for i, (pick, end, g, total) in enumerate(rounds, 1)
    ]
