"""One result, one page."""

from __future__ import annotations

from os import PathLike
from typing import Any

from ..core.attribution import Attribution
from ..core.errors import InvalidType
from ..results.files import write_whole
from ..results.photo_notes import Notes
from ..results.picture import Picture, unranked
from ..results.table_notes import ColumnNotes
from .columns import columns_html
from .explore import explorer_data, explorer_html
from .graphs import graph_html
from .markup import escape, page, png
from .sections import comparison, curves, first_units, made, predictions, warned
from .words import how_selected, summary, warning


def write(a: Attribution, path: str | PathLike[str]) -> None:
    """Write the page of a result: one file that needs nothing else, also from file://."""
    write_whole(path, html(a))


def html(a: Attribution) -> str:
    """The page of a result as text; the same text for the same result."""
    if not isinstance(a, Attribution):
        raise InvalidType(
            f"Expected an Attribution (got {type(a).__name__}). Try gp.load(path) for a file."
        )
    about_graph = graph_html(a)
    if about_graph is not None:
        return about_graph
    notes, picture = Notes.of(a), Picture.of(a)
    columns = ColumnNotes.of(a)
    if columns is not None:
        return columns_html(a, notes, columns)
    if unranked(a) is not None:
        return _bare(a, notes, picture)
    charts = curves(a, notes)
    others, more = comparison(notes.comparison, notes.probability)
    data: dict[str, Any] = {
        "charts": [c.data for c in (*charts, *more)],
        "explore": None if picture is None else explorer_data(a, notes, picture),
    }
    drawn = "".join(c.svg for c in charts)
    plots = f"<section><h2>Curves</h2>{drawn}</section>" if drawn else ""
    caution = warning(a, notes)
    noted = f'<div class="warn" role="note">{caution}</div>' if caution else ""
    noted += warned(notes.warnings)
    if picture is None:
        left = first_units(a)
        right = plots + predictions(notes)
    else:
        left = explorer_html(a, notes, picture)
        right = predictions(notes) + plots
        if a.features.names is not None:
            others = first_units(a) + others
    return page(
        a,
        name=_name(notes),
        eyebrow=_eyebrow(a, notes),
        title=_title(notes),
        lead=summary(a, notes, picture is not None),
        main=f"""{noted}
<div class="columns"><div>{left}</div><div>{right}</div></div>
{others}{made(a, notes)}""",
        closing=how_selected(a),
        data=data,
    )


def _bare(a: Attribution, notes: Notes, picture: Picture | None) -> str:
    """The page of a run that ended before its first round."""
    shown = ""
    if picture is not None and picture.pixels is not None:
        height, width = picture.pixels.shape[:2]
        shown = (
            f'<section><h2>The photo</h2><img class="thumb" src="{png(picture.pixels)}" '
            f'alt="{escape(notes.source or "the photo")}" width="{width}" height="{height}">'
            "</section>"
        )
    return page(
        a,
        name=_name(notes),
        eyebrow=_eyebrow(a, notes),
        title=f"No explanation of “{escape(notes.label or 'the prediction')}”",
        lead=summary(a, notes, picture is not None),
        main=f"{shown}{predictions(notes)}{made(a, notes)}",
    )


def _name(notes: Notes) -> str:
    return " · ".join(p for p in (notes.label, notes.source, "greedypig") if p)


def _eyebrow(a: Attribution, notes: Notes) -> tuple[str | None, ...]:
    return notes.source, notes.model, str(a.settings.get("method") or "")


def _title(notes: Notes) -> str:
    if notes.label is None:
        return "What the model used"
    probability = ""
    if notes.probability is not None:
        probability = f' <span class="sure">{notes.probability:.3f}</span>'
    question = "What would change" if notes.removing else "Why"
    return f"{question} “{escape(notes.label)}”?{probability}"
