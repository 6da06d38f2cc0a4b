"""Parts that pages of several kinds share: the first features, methods side by side, and how a
result was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isfinite
from typing import Any

from ..core.attribution import Attribution
from ..results.comparison import MethodTable, compared_curves
from ..results.frame import feature_values
from ..results.input_notes import COMPARED, MethodRow
from ..results.labels import feature_labels, feature_word
from ..results.picture import strengths
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


def compared(methods: Sequence[MethodRow], full: float | None) -> dict[str, Any] | None:
    """Methods side by side: a table, and the curves that came along."""
    if not methods:
        return None
    return method_table(MethodTable(COMPARED, {m.name: m.numbers for m in methods})) | {
        "charts": [
            share_chart(NAMES[kind], caption, lines, full if kind == "curve" else None)
            for kind, caption, lines in compared_curves(methods)
        ],
    }


def method_table(table: MethodTable) -> dict[str, Any]:
    """A table of methods for the templates; the best of a column is bold."""
    return {
        "heads": ["method", *table.heads],
        "names": list(table.rows),
        "rows": [
            [name, *(Cell(c, bold=c == best) for c, best in zip(cells, table.best, strict=True))]
            for name, cells in table.cells.items()
        ],
        "bold": any(table.best),
    }


def details(a: Attribution) -> dict[str, Any]:
    """The last section of a page."""
    word, name = feature_word(a), a.settings.get("method")
    facts = {
        "method": f"{name}: {setting(kept_settings(a))}" if isinstance(name, str) else None,
        "seed": a.settings.get("seed"),
        "gradients": f"{a.gradients_used:,}",
        "seconds": f"{a.seconds:.1f}",
        "stopped because": str(a.stop),
        f"{word} selected": f"{a.selected:,} of {a.features.count:,}",
        "model": a.about.model or None,
        "source": a.about.source or None,
        "baseline": a.about.baseline or None,
    }
    return {
        "facts": _pairs({key: value for key, value in facts.items() if value is not None}),
        "settings": _pairs(a.settings),
        "provenance": _pairs(a.provenance),
        "rounds": _rounds(a),
        "longest": LONGEST,
        "word": word,
        "command": a.about.command,
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
