"""How a result was made: what it cost, its settings and rounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from math import isfinite
from typing import Any

from ..core.attribution import Attribution
from ..results.photo_notes import Notes
from ..results.picture import unit_word
from ..results.wording import kept_settings, percent, setting

LONGEST = 200
"""Rounds in the table; a longer one says what it leaves out."""


def details(a: Attribution, notes: Notes) -> dict[str, Any]:
    """The last section of a page."""
    word, name = unit_word(a), a.settings.get("method")
    facts = {
        "method": f"{name}: {setting(kept_settings(a))}" if isinstance(name, str) else None,
        "seed": a.settings.get("seed"),
        "gradients": f"{a.gradients_used:,}",
        "seconds": f"{a.seconds:.1f}",
        "stopped because": str(a.stop),
        f"{word} selected": f"{a.selected:,} of {a.features.units:,}",
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
    def shown(value: float) -> str:
        return f"{value:.4g}" if isfinite(value) else "not measured"

    rounds = zip(a.picks, accumulate(a.picks), a.values[1:].tolist(), a.totals, strict=True)
    return [
        [str(i), f"{pick:,}", f"{end:,}", percent(end / a.features.units), shown(g), shown(total)]
        for i, (pick, end, g, total) in enumerate(rounds, 1)
    ]
