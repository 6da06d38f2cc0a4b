"""Many results on one page: a row each, with thumbnails, linked to their own pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from os import PathLike
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..results import kinds
from ..results.files import write_whole
from ..results.input_notes import SECOND, InputNotes
from ..results.labels import feature_word
from ..results.picture import features_within, unranked
from .parts import compared
from .render import png, reduced, render

THUMBNAIL = 112


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
    over = None if comparison is None else InputNotes.of(comparison)
    methods = None if over is None else compared(over.methods, over.probability)
    charts = [] if methods is None else methods["charts"]
    return render(
        "index.html",
        {"charts": [chart.data for chart in charts]},
        rows=rows,
        pictured=any(row["whole"] or row["part"] for row in rows),
        judged=any(row["second"] for row in rows),
        higher=sum(row["higher"] for row in rows),
        failed=failed,
        methods=methods,
        compared_on=None if over is None else over.source,
    )


def _row(link: str, a: Attribution) -> dict[str, Any]:
    if not isinstance(a, Attribution):
        raise InvalidType(f"Expected {link!r:.60} to be an Attribution (got {type(a).__name__}).")
    notes = InputNotes.of(a)
    picture = notes.picture
    whole = part = None
    if picture is not None:
        whole = None if picture.pixels is None else _thumbnail(picture.pixels)
        part = None if notes.reason else _thumbnail(picture.kept(features_within(a, 0.1)))
    second = notes.curves.get(SECOND)
    return {
        # Quoted whole, a path stays a path: "javascript:…" would be a file of that name.
        "link": f"./{quote(link)}",
        "name": notes.source or link,
        "how": f"{a.settings.get('method') or ''} {a.features.count:,} {feature_word(a)}".strip(),
        "notes": notes,
        "whole": whole,
        "part": part,
        "higher": notes.excess() is not None,
        "answer": unranked(a) or kinds.notes_of(a).answer(),
        "second": "" if second is None else f"{second.auc:.3f}",
        "gradients": f"{a.gradients_used:,}",
        "seconds": f"{a.seconds:.1f}",
    }


def _thumbnail(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    stride = max(1, ceil(max(pixels.shape[:2]) / THUMBNAIL))
    small = reduced(pixels, stride)
    height, width = (max(1, round(THUMBNAIL * n / max(small.shape[:2]))) for n in small.shape[:2])
    return {"png": png(small), "width": width, "height": height}
