"""Many results on one page: a row each, with thumbnails, linked to their own pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from os import PathLike
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..results.files import write_whole
from ..results.photo_notes import Notes
from ..results.picture import Picture, probability_within, unit_word, units_within, unranked
from ..results.wording import percent
from .markup import document, escape, png, table
from .sections import comparison as comparison_section

THUMBNAIL = 112
SHARES = (0.01, 0.05, 0.1)


def write_index(
    results: Mapping[str, Attribution],
    path: str | PathLike[str],
    *,
    failed: Sequence[tuple[str, str]] = (),
    comparison: Attribution | None = None,
) -> None:
    """Write a page that lists results, each under the relative path of its own page.

    failed: what could not be explained, as (name, reason). comparison: a result whose notes hold a
        "comparison" of methods, which is shown above the list.
    """
    write_whole(path, index_html(results, failed=failed, comparison=comparison))


def index_html(
    results: Mapping[str, Attribution],
    *,
    failed: Sequence[tuple[str, str]] = (),
    comparison: Attribution | None = None,
) -> str:
    """The text of `write_index`."""
    if not isinstance(results, Mapping):
        raise InvalidType(
            f"Expected results by the path of their page (got {type(results).__name__}). "
            "Try {'photo.html': a}."
        )
    if not results:
        raise InvalidInput("Expected at least one result (got none).")
    rows = [_row(str(link), a) for link, a in results.items()]
    seconds = [_second_opinion(a) for a in results.values()]
    judged = any(seconds)
    if judged:
        rows = [[*row[:-2], second or "–", *row[-2:]]
                for row, second in zip(rows, seconds, strict=True)]  # fmt: skip
    word = "without" if any(Notes.of(a).removed for a in results.values()) else "with"
    heads = ["result", "whole", "top 10 %", "class", "probability",
             *(f"{word} {percent(s)}" for s in SHARES),
             *(["second opinion, AUC"] if judged else []), "gradients", "seconds"]  # fmt: skip
    sure = [n.excess() is not None for n in map(Notes.of, results.values())]
    caution = ""
    if any(sure):
        caution = (
            f'<p class="warn" role="note">{sum(sure)} of {len(sure)}, marked ▲, have a part that '
            "gives a higher probability than the whole: their pages say how to check it.</p>"
        )
    mixed = dict.fromkeys(n.drawn_at for n in map(Notes.of, results.values()) if n.drawn_at)
    caution += "".join(f'<p class="note">Pictures are {escape(text)}.</p>' for text in mixed)
    body = f"""
<header><p class="eyebrow">greedypig</p><h1>{len(results):,} result{"s" * (len(results) != 1)}</h1>
<p class="lead">Which few features did the model use? Each row leads to its own page.</p></header>
<main>{_compared(comparison)}{caution}{table(heads, rows, caption="Results", words=4)}
{_missing(failed)}</main>"""
    return document("Results · greedypig", body, script=False)


def _compared(a: Attribution | None) -> str:
    """Methods over all results: a table and their median curves."""
    if a is None:
        return ""
    notes = Notes.of(a)
    heading = f"Methods over {escape(notes.source or 'all')}"
    return comparison_section(notes.comparison, notes.probability, heading)[0]


def _missing(failed: Sequence[tuple[str, str]]) -> str:
    """What has no row, and why."""
    if not failed:
        return ""
    rows = [[escape(name), escape(reason)] for name, reason in failed]
    text = table(["photo", "reason"], rows, caption="Without a result", words=2)
    return f"<section><h2>{len(failed):,} could not be explained</h2>{text}</section>"


def _row(link: str, a: Attribution) -> list[str]:
    if not isinstance(a, Attribution):
        raise InvalidType(f"Expected {link!r:.60} to be an Attribution (got {type(a).__name__}).")
    notes, picture = Notes.of(a), Picture.of(a)
    name = escape(notes.source or link)
    # Quoted whole, a path stays a path: "javascript:…" would be a file of that name.
    how = f"{a.settings.get('method') or ''} {a.features.units:,} {unit_word(a)}".strip()
    cells = [f'<a href="./{escape(quote(link))}">{name}</a><small>{escape(how)}</small>']
    if picture is None:
        cells += ["–", "–"]
    else:
        whole = None if picture.pixels is None else picture.pixels
        cells.append("–" if whole is None else _thumbnail(whole, f"{notes.source or link}, whole"))
        if unranked(a) is None:
            part = picture.kept(units_within(a, 0.1))
            cells.append(_thumbnail(part, f"{notes.source or link}, top 10 % of its features"))
        else:
            cells.append("–")
    mark = (
        ""
        if notes.excess() is None
        else ' <span title="a part gives a higher probability">▲</span>'
    )
    cells.append(escape(notes.label or "–") + mark)
    cells.append("–" if notes.probability is None else f"{notes.probability:.3f}")
    for share in SHARES:
        found = probability_within(a, notes, share)
        if share in notes.removed:
            found = notes.removed[share], True
        cells.append("–" if found is None else f"{'' if found[1] else '≈ '}{found[0]:.3f}")
    return [*cells, f"{a.gradients_used:,}", f"{a.seconds:.1f}"]


def _second_opinion(a: Attribution) -> str:
    """The area under another network's curve, where one was asked."""
    curve = Notes.of(a).curves.get("second-opinion")
    return "" if curve is None else f"{curve.auc:.3f}"


def _thumbnail(pixels: NDArray[np.uint8], text: str) -> str:
    stride = max(1, ceil(max(pixels.shape[:2]) / (2 * THUMBNAIL)))
    small = np.ascontiguousarray(pixels[::stride, ::stride])
    height, width = small.shape[:2]
    ratio = THUMBNAIL / max(height, width)
    return (
        f'<img class="thumb" src="{png(small)}" alt="{escape(text)}" '
        f'width="{max(1, round(width * ratio))}" height="{max(1, round(height * ratio))}">'
    )
