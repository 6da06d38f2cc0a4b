"""Results in a notebook: small pieces of HTML without scripts, for light and dark themes.

The whole page of a result is `page.html`; here is what a cell shows of one result, of many, and of
several methods side by side. Like the pages, it is drawn from results alone and escapes every text.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution
from ..core.errors import MissingPackage
from ..results import kinds
from ..results.comparison import MethodTable, own_row
from ..results.curve import Curve
from ..results.frame import valued_labels
from ..results.input_notes import COMPARED, InputNotes
from ..results.labels import feature_labels, feature_word, share_word
from ..results.picture import Picture, features_within, strengths, unranked
from ..results.summary import Comparison, Summary
from ..results.text_notes import COLUMNS, Piece, TextNotes, compared, shortened
from ..results.wording import chance_cell, count, percent, short_percent, shown
from .page import write
from .render import environment, png, reduced

Arguments = ParamSpec("Arguments")
FIRST, ROWS, THUMBS = 8, 50, 8
"""How many features of a result, features of a summary or results as text, and results as pictures
are shown; the last two say what they leave out."""
SHARE = 0.1
"""The share of the features that a picture keeps, where no curve says how many are needed."""
LARGEST, THUMB = 224, 112
"""Pixels of a picture's longer side, alone and in a row of many."""
MARKED, AROUND = 40, 120
"""Selected parts of a text that are marked, and characters shown around them."""
MEASURED = ("sic_auc", "lic_auc", "gradients", "seconds")
"""Numbers in which methods on one input are compared."""
WIDE, HIGH = 210, 110
"""Size of the small curve."""


def show(a: Attribution) -> str:
    """Write the page to a folder for temporary files and open it: see `Attribution.show`."""
    name = re.sub(r"[^\w.-]+", "-", Path(a.about.source or "result").stem)[:60] or "result"
    path = Path(tempfile.mkdtemp(prefix="greedypig-")) / f"{name}.html"
    write(a, path)
    if not (_has_screen() and webbrowser.open(path.as_uri())):
        print(path)
    return str(path)


def _has_screen() -> bool:
    """Can a browser be opened here? A text browser would take over the terminal."""
    if os.environ.get("CI"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _where_jinja_is(
    draw: Callable[Arguments, str],
) -> Callable[Arguments, str | None]:
    """None without jinja2: the notebook then shows the plain text."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **options: Arguments.kwargs) -> str | None:
        try:
            return draw(*args, **options)
        except MissingPackage:
            return None

    return drawn


@_where_jinja_is
def result_html(a: Attribution) -> str:
    """One result: its picture or its first features, its curve, and what it cost."""
    notes, reason = kinds.notes_of(a), unranked(a)
    context = {
        "answer": reason or notes.answer(),
        "facts": _facts(a),
        "pictures": [],
        "passage": [],
        "bars": None,
        "curve": None,
        "methods": None,
        "cautions": notes.cautions(),
    }
    if reason is None:
        context |= kinds.find(a, "cell")(a)
    return _render("notebook_result.html", **{"heading": _heading(InputNotes.of(a)), **context})


def input_cell(a: Attribution) -> dict[str, Any]:
    """The picture or the first features, the curve, and the comparison of an input."""
    notes = InputNotes.of(a)
    pictures = [] if notes.picture is None else _pictures(a, notes, notes.picture)
    methods = MethodTable(COMPARED, {method.name: method.numbers for method in notes.methods})
    return {
        "pictures": pictures,
        "bars": None if pictures else _bars(a),
        "curve": _curve(a, notes),
        "methods": methods,
    }


def text_cell(a: Attribution) -> dict[str, Any]:
    """A text around its selected parts, the curve, and the comparison."""
    text = TextNotes.of(a)
    return {
        "heading": _text_heading(text),
        "passage": _passage(text),
        "curve": _curve(a, InputNotes.of(a)),
        "methods": MethodTable(COLUMNS, {n: row.numbers for n, row in text.methods.items()}),
    }


@_where_jinja_is
def summary_html(summary: Summary) -> str:
    """Many results: what each is about and cost; and the features they have in common."""
    alike = len(summary) > 1 and summary.alike and Picture.of(summary[0]) is None
    pictured = any(Picture.of(a) is not None for a in summary)
    most = THUMBS if pictured else (FIRST if alike else ROWS)
    rows = [_row(a) for a in summary[:most]]
    return _render(
        "notebook_summary.html",
        heading=count(len(summary), "result"),
        seconds=f"{sum(a.seconds for a in summary):.1f}",
        gradients=f"{sum(a.gradients_used for a in summary):,}",
        features=_features(summary) if alike else None,
        word=feature_word(summary[0]) if len(summary) else "features",
        rows=rows,
        probabilities=any(row["probability"] for row in rows),
        pictured=pictured,
        more=len(summary) - len(rows),
    )


@_where_jinja_is
def comparison_html(comparison: Comparison) -> str:
    """Several methods' results on one input, side by side."""
    first = next(iter(comparison.values()))
    alike = all(a.about.view == first.about.view for a in comparison.values())
    draw = kinds.find(first, "comparison_cell") if alike else input_comparison_cell
    return _render("notebook_comparison.html", **draw(comparison))


def input_comparison_cell(results: Mapping[str, Attribution]) -> dict[str, Any]:
    """The pictures or the first features by each method, and a table."""
    notes = {name: InputNotes.of(a) for name, a in results.items()}
    pictures = []
    for name, a in results.items():
        picture = None if notes[name].reason else notes[name].picture
        if picture is not None and picture.pixels is not None:
            k = features_within(a, SHARE)
            pictures.append((png(_small(picture.kept(k))), f"{name}: best {percent(SHARE)}"))
    rows = {name: own_row(name, a, notes[name]).numbers for name, a in results.items()}
    measured = {key: COMPARED[key] for key in COMPARED if key in MEASURED}
    first = next(iter(results.values()))
    return {
        "heading": _heading(next(iter(notes.values()))),
        "pictures": pictures,
        "methods": MethodTable(measured, rows),
        "word": feature_word(first),
        "orders": [
            (name, ", ".join(feature_labels(a, a.order[:5].tolist())))
            for name, a in results.items()
            if not pictures and notes[name].reason is None
        ],
    }


def text_comparison_cell(results: Mapping[str, Attribution]) -> dict[str, Any]:
    """A table of methods on a text, and what each selects first."""
    text, rows = TextNotes.of(next(iter(results.values()))), compared(results)
    return {
        "heading": _text_heading(text),
        "pictures": [],
        "methods": MethodTable(COLUMNS, {name: row.numbers for name, row in rows.items()}),
        "orders": [(name, text.first(row)) for name, row in rows.items()],
        "word": text.unit,
    }


def _render(template: str, **context: Any) -> str:
    return environment().get_template(template).render(**context)


def _heading(notes: InputNotes) -> str:
    a = notes.a
    parts = [notes.label, None if notes.probability is None else chance_cell(notes.probability)]
    text = " ".join(part for part in parts if part)
    return text or f"{a.features.count:,} {feature_word(a, a.features.count)}"


def _text_heading(text: TextNotes) -> str:
    what = f"“{shortened(text.explained, 120)}”"
    return what if text.probability is None else f"{what} {chance_cell(text.probability)}"


def _passage(text: TextNotes) -> list[tuple[Piece, str]]:
    """The text around its selected parts, each with the strength of its colour in percent."""
    chosen = text.order[: min(text.start, MARKED)]
    return [
        (piece, f"{8 * int(text.levels[piece.place - 1 : piece.place] or 1)}")
        for piece in text.passage(chosen, AROUND)
    ]


def _facts(a: Attribution) -> str:
    gradients = count(a.gradients_used, "gradient")
    rounds = count(len(a.picks), "round")
    return f"{a.method} · {rounds} · {gradients} · {a.seconds:.1f} s · {a.stop}"


def _pictures(
    a: Attribution, notes: InputNotes, picture: Picture, size: int = LARGEST
) -> list[tuple[str, str]]:
    """(data URI, caption) of the picture and of its best features."""
    if picture.pixels is None:
        return []
    share = notes.needed() or SHARE
    k = features_within(a, share)
    part = picture.without(k) if notes.removing else picture.kept(k)
    caption = f"{'without the ' * notes.removing}best {short_percent(share)}"
    value = notes.probability_at(share, off=notes.removing)
    caption += "" if value is None else f": {chance_cell(value)}"
    return [
        (png(_small(picture.pixels, size)), "the input"),
        (png(_small(part, size)), caption),
    ]


def _small(pixels: NDArray[np.uint8], size: int = LARGEST) -> NDArray[np.uint8]:
    """A picture of at most this many pixels along its sides."""
    return reduced(pixels, -(-max(pixels.shape[:2]) // size))


def _bars(a: Attribution) -> dict[str, Any]:
    """The first features with bars of what they brought."""
    first = min(FIRST, a.features.count)
    lengths, _, meaning = strengths(a, first)
    most = max(map(abs, lengths)) or 1.0
    names = valued_labels(a, a.order[:first].tolist())
    return {
        "meaning": meaning,
        "more": a.features.count - first,
        "word": feature_word(a),
        "rows": [
            (name, f"{100 * abs(x) / most:.1f}", x < 0, shown(x))
            for name, x in zip(names, lengths, strict=True)
        ],
    }


def _curve(a: Attribution, notes: InputNotes) -> dict[str, Any] | None:
    """The probability, else G, over the share of the features: points of a small diagram."""
    own: Curve | None = notes.deletion or notes.curve
    line, full = (own, notes.probability) if own is not None else (notes.rounds, a.full_value)
    if line is None:
        return None
    values = line.values.tolist()
    shares = line.fractions.tolist()
    ends: list[float] = [*values, full] if full is not None and isfinite(full) else values
    low, high = min(ends), max(ends)
    if own is not None:
        low, high = 0.0, max(high, 1.0)
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return round(HIGH - HIGH * (value - low) / span, 1)

    points = zip(shares, values, strict=True)
    return {
        "size": (WIDE, HIGH),
        "points": " ".join(f"{WIDE * share:.1f},{place(value)}" for share, value in points),
        "full": place(full) if full is not None and isfinite(full) else None,
        "low": shown(low),
        "high": shown(high),
        "caption": "probability" if own is not None else "G(S)",
        "done": f"{share_word(a)} {'switched off' if line.off else 'kept'}",
    }


def _row(a: Attribution) -> dict[str, Any]:
    notes = InputNotes.of(a)
    picture = None if notes.reason else notes.picture
    has = picture is not None and picture.pixels is not None
    return {
        "pictures": [] if picture is None or not has else _pictures(a, notes, picture, THUMB),
        "name": notes.source or notes.label or "",
        "label": notes.label if notes.source else "",
        "probability": "" if notes.probability is None else chance_cell(notes.probability),
        "first": ", ".join(valued_labels(a, a.order[:3].tolist())) if not has else "",
        "seconds": f"{a.seconds:.2g}",
    }


def _features(summary: Summary) -> dict[str, Any]:
    """The features that bring most over all results, with a dot for each result."""
    best = summary.best()[:FIRST].tolist()
    gains, ranks = summary.table()[:, best], summary.table("rank")[:, best]
    low, high = min(0.0, float(gains.min())), max(0.0, float(gains.max()))
    span = (high - low) or 1.0
    dots: list[Sequence[str]] = [
        sorted({f"{4 + (WIDE - 8) * (gain - low) / span:.0f}" for gain in column}, key=float)
        for column in gains.T.tolist()
    ]
    names = feature_labels(summary[0], best)
    means = zip(gains.mean(0).tolist(), ranks.mean(0).tolist(), strict=True)
    return {
        "zero": f"{4 - (WIDE - 8) * low / span:.0f}",
        "wide": WIDE,
        "more": summary[0].features.count - len(best),
        "rows": [
            (name, f"{rank:.1f}", shown(gain), spots)
            for name, (gain, rank), spots in zip(names, means, dots, strict=True)
        ],
    }
