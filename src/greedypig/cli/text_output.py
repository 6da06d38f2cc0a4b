"""What `greedypig explain-text` prints of a result: the text with its selected parts, the values
measured, and the object of --json."""

from __future__ import annotations

from collections.abc import Sequence
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import greedypig as gp

from ..results.text_notes import TextNotes, shortened
from ..results.wording import count
from . import outputs
from .terminal import BOLD, DIM, Terminal, duration, styled
from .text_sources import Source

if TYPE_CHECKING:
    from rich.text import Text

ANSWER = "--answer"
"""The option that gives an answer."""
AROUND, MOST = 60, 60
"""Characters shown around selected parts, and selected parts shown, in the terminal."""
STRENGTHS = ("red", "cyan", "cyan", "bold cyan", "bold green", "bold green")
"""The colours of parts by their gain; the first is that of a loss."""


def show(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    """The lines of one result."""
    notes = TextNotes.of(a)
    show_head(terminal, notes)
    terminal.text(passage(notes))
    terminal.say()
    terminal.say(notes.answer())
    if notes.counts:
        terminal.say(f"{notes.quantity} of {notes.what} with the best {notes.unit}:", DIM)
        heads = ["", notes.unit_of(1).partition(" ")[2], *notes.measured]
        terminal.table(heads, _rows(notes), names=2)
    for line in notes.twin_lines():
        terminal.say(f"= {line}")
    for caution in notes.cautions(ANSWER):
        terminal.caution(caution.line)
    _end(terminal, a, files)


def show_head(terminal: Terminal, notes: TextNotes) -> None:
    """What is explained: the class and its probability, or the answer with the explained part."""
    source = notes.source or "text"
    if notes.answer_text is None:
        sure = "" if notes.probability is None else f", probability {notes.probability:.3f}"
        terminal.say(f"{source}: {notes.explained}{sure}", BOLD)
        return
    said = "says" if notes.generated else "is to say"
    terminal.say(f"{source}: {notes.model} {said}", BOLD)
    start, end = notes.answer_span or (0, len(notes.answer_text))
    text = styled("")
    text.append_text(styled(notes.answer_text[:start], DIM))
    text.append_text(styled(notes.answer_text[start:end], BOLD))
    text.append_text(styled(notes.answer_text[end:], DIM))
    terminal.text(text)
    terminal.say()


def passage(notes: TextNotes) -> Text:
    """The text with selected parts as [1:…], abbreviated around them."""
    chosen = notes.order[: min(notes.start, MOST)]
    text = styled("")
    for piece in notes.passage(chosen, AROUND):
        if not piece.place:
            text.append_text(styled(piece.text, DIM))
            continue
        level = notes.levels[piece.place - 1 : piece.place] or "1"
        style = STRENGTHS[int(level)]
        text.append_text(styled(f"[{piece.place}:", f"{style} reverse"))
        text.append_text(styled(piece.text, style))
        text.append_text(styled("]", f"{style} reverse"))
    return text


def _rows(notes: TextNotes) -> list[list[str]]:
    """The values with nothing, with the first features up to what is enough, and with all."""
    rows, last = [], len(notes.spans)
    for i, k in enumerate(notes.counts):
        if 0 < k < last and k > max(notes.start, 1):
            continue
        words = {0: "nothing", last: f"all {notes.unit_of(last)}"}
        name = words.get(k) or shortened(notes.name(notes.order[k - 1]), 40)
        document = notes.document(notes.order[k - 1]) if 0 < k < last else ""
        name = f"{name} ({document})" if document else name
        values = [notes.cell(each[i]) for each in notes.measured.values()]
        rows.append([f"{k:,}", name, *values])
    return rows


def _end(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    spent = f"{count(len(a.picks), 'round')}, {count(a.gradients_used, 'gradient')}"
    terminal.say(f"{a.method}: {spent}, {duration(a.seconds)}; {outputs.wrote(files)}")


def record(source: Source, a: gp.Attribution, files: Sequence[Path]) -> dict[str, Any]:
    """The object of --json for one result."""
    notes = TextNotes.of(a)
    measured = ("counts", "only", "deleted", "without")
    return {
        "text": source.name,
        "model": notes.model,
        "class": notes.label or None,
        "probability": notes.probability,
        "answer": notes.answer_text,
        "part": None if notes.answer_text is None else notes.explained,
        "generated": notes.generated,
        "features": notes.unit,
        "count": len(notes.spans),
        "enough": notes.enough,
        "order": a.order.tolist(),
        "selected": [
            {"feature": i, "text": notes.text[slice(*notes.spans[i])], "document": d or None}
            for i in notes.order[: notes.start]
            for d in [notes.document(i)]
        ],
        "twins": [list(pair) for pair in notes.twins],
        "twin_shares": list(notes.twin_shares),
        "curve": {key: list(getattr(notes, key)) for key in measured},
        "cautions": [caution.line for caution in notes.cautions(ANSWER)],
        "method": a.method,
        "gradients": a.gradients_used,
        "forwards": notes.forwards,
        "seconds": a.seconds,
        "stop": a.stop.name.lower(),
        "settings": dict(a.settings),
        "files": [fspath(file) for file in files],
    }
