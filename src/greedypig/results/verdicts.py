"""The answer of an explanation, and reasons to doubt it, with one wording for terminal, pages and
figures."""

from __future__ import annotations

from math import isfinite

from ..core.attribution import REACHED, Attribution
from .graph_notes import Compression, Explained
from .photo_notes import SECOND, Notes
from .picture import Picture, feature_labels, feature_word, features_within, rounds_line, unranked
from .table_notes import ColumnNotes
from .text_notes import TextNotes
from .wording import chance, higher, short_percent, shown

JUDGE, LIKELIHOOD = "a second network", 'objective="log-likelihood"'
KINDS = (Compression, Explained, ColumnNotes, TextNotes)
"""Notes that answer for themselves, by `answer` and `cautions`; all others are photos' or rows'."""


def own_notes(a: Attribution) -> Compression | Explained | ColumnNotes | TextNotes | None:
    """The notes of a result that answer for themselves; None where it has none of the KINDS."""
    notes = (kind.of(a) for kind in KINDS)
    return next((each for each in notes if each is not None), None)


def answer_of(a: Attribution) -> str:
    """The result of any run in one sentence."""
    if (own := own_notes(a)) is not None:
        return own.answer()
    notes, picture = Notes.of(a), Picture.of(a) is not None
    if notes.methods and "methods" in a.attachments:
        return compared_answer(notes)
    if enough := answer(notes, "the photo" if picture else "the input"):
        return enough
    count = f"{a.features.count:,} {feature_word(a, a.features.count)}"
    line = rounds_line(a) if notes.objective == "softmax" else None
    share = None if line is None else line.stays_from(REACHED * a.full_value)
    if line is not None and share is not None and picture:
        return _enough(share, line.at(share), a.full_value, notes, "the photo")
    if line is not None and share and share < 1:
        k = features_within(a, share)
        names = ", ".join(feature_labels(a, a.order[: min(k, 3)].tolist())) + ", …" * (k > 3)
        enough = f"{'is' if k == 1 else 'are'} enough for {notes.label or 'the class'}"
        values = f"({chance(line.at(share))}, all {chance(a.full_value)})"
        return f"{k:,} of {count} {enough} {values}: {names}."
    label = f" for {notes.label}" if notes.label else ""
    if picture and (rise := _rise(a, label, " switched off" * notes.removing)):
        return rise
    best = feature_labels(a, a.order[: min(3, a.features.count)].tolist())
    return f"The first {len(best)} of {count}{label}: {', '.join(best)}."


def _rise(a: Attribution, label: str, off: str) -> str | None:
    """The smallest share of a picture from which on G stays at 9/10 of its rise, if it rises."""
    line, bare, full = rounds_line(a), float(a.values[0]), a.full_value
    share = None if line is None else line.stays_from(bare + REACHED * (full - bare))
    if line is None or share is None or not full > bare:
        return None
    value, bounds = (
        shown(line.at(share), 3),
        f"nothing {shown(bare, 3)}, everything {shown(full, 3)}",
    )
    return f"With {short_percent(share)} of the photo{off}, G is {value}{label} ({bounds})."


def cautions_of(a: Attribution) -> list[tuple[str, str]]:
    """Why a result of any run is to be doubted: (a line, how to check it)."""
    if (own := own_notes(a)) is not None:
        return [(line, "") for line in own.cautions()]
    notes = Notes.of(a)
    warnings = [(warning, "") for warning in notes.warnings]
    if notes.removing or unranked(a) is not None:
        return warnings
    if lost := fall(notes):
        check = "Try another seed or more rounds, and compare what they select first."
        return [(lost, check), *warnings]
    if part := excess(notes):
        parts = [
            "That is a fact about the model; it does not make the explanation better.",
            second_opinion(notes) or "",
            advice(notes, "a second network, as a second opinion"),
        ]
        return [(part, " ".join(filter(None, parts))), *warnings]
    value = excess_value(a, feature_word(a)) if notes.curve is None else None
    return [(value, advice(notes)), *warnings] if value else warnings


def answer(notes: Notes, whole: str = "the photo") -> str | None:
    """5 % of the photo is enough for espresso (0.963, whole photo 0.951).

    Enough is the smallest share from which on the probability stays above 9/10 of the whole's. Of a
    counterfactual it is the smallest share without which the probability stays below half of it.
    None where no curve was measured.
    """
    label, full = notes.label or "the class", notes.probability
    if full is None:
        return None
    if notes.removing:
        share = notes.halved()
        if notes.deletion is None:
            return None
        if share is None:
            return (
                f"{_capital(label)} does not stay below half of its probability ({chance(full)})."
            )
        value = chance(notes.deletion.at(share))
        part = f"{short_percent(share)} of {whole}"
        return f"Without {part}, {label} falls from {chance(full)} to {value}."
    share = notes.needed()
    if share is None or notes.curve is None:
        return None
    return _enough(share, notes.curve.at(share), full, notes, whole)


def _enough(share: float, value: float, full: float, notes: Notes, whole: str) -> str:
    label = notes.label or "the class"
    if share >= 1:
        return f"No smaller part of {whole} is enough for {label} ({chance(full)})."
    part = "The baseline alone" if share == 0 else f"{short_percent(share)} of {whole}"
    beside = f"whole {whole.removeprefix('the ')} {chance(full)}"
    return f"{part} is enough for {label} ({chance(value)}, {beside})."


def compared_answer(notes: Notes) -> str:
    """Which method keeps the class with the least of the photo, and the next two."""
    full, label = notes.probability, notes.label or "the class"
    needed = sorted((share, m.name) for m in notes.methods if (share := notes.needed(m.curve)))
    if not needed or full is None:
        return f"{len(notes.methods)} methods on the same photo."
    (least, first), *others = needed[:3]
    text = f"{first} keeps {label} ({chance(full)}) with {short_percent(least)} of the photo"
    return (
        "; ".join([text, *(f"{name} needs {short_percent(share)}" for share, name in others)]) + "."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def excess(notes: Notes, whole: str = "the whole photo") -> str | None:
    """That a part gives a much higher probability than the whole, if one does."""
    point = notes.excess()
    if point is None or notes.probability is None:
        return None
    share, value = point
    part = f"{short_percent(share)} of the features"
    return f"{higher(part, chance(value), whole, chance(notes.probability))}."


def excess_value(a: Attribution, features: str) -> str | None:
    """That some features give a higher G than all of them, if they do."""
    values = a.values[a.values.isfinite()]
    if not isfinite(a.full_value) or values.numel() == 0:
        return None
    best = float(values.max())
    if best <= a.full_value + 0.01 * max(abs(a.full_value), best - float(values.min())):
        return None
    value, full = shown(best, 3), shown(a.full_value, 3)
    return f"{higher(f'Some of the {features}', value, 'all of them', full, quantity='G')}."


def fall(notes: Notes) -> str | None:
    """That the probability is reached and lost again as features are added, if it is."""
    lost = notes.fall()
    if lost is None:
        return None
    return (
        f"This explanation does not hold: {short_percent(lost.reached_at)} of the features give "
        f"{chance(lost.reached)}, {short_percent(lost.lost_at)} give {chance(lost.lost)}."
    )


def second_opinion(notes: Notes) -> str | None:
    """What another network says of the part that gives a higher probability, if one was asked."""
    second, point = notes.curves.get(SECOND), notes.excess()
    value = None if second is None or point is None else second.get(point[0])
    if second is None or value is None:
        return None
    whole = second.full if second.full is not None else second.get(1.0)
    beside = "" if whole is None else f" (the whole photo: {whole:.3f})"
    judge = second.judge or "another network"
    return f"As a second opinion, {judge} gives the same features {value:.3f}{beside}."


def advice(notes: Notes, judge: str = JUDGE, likelihood: str = LIKELIHOOD) -> str:
    """What to do about a part that gives a higher probability; "" where all has been done, and for
    tables, graphs and set functions.

    The log-likelihood is about the model's own prediction, so it is no advice for another class.
    """
    if notes.objective is None or notes.kind == "table" or str(notes.kind).startswith("graph"):
        return ""
    ways, whole = [], "photo" if notes.kind == "image" else "input"
    if notes.advises_log_likelihood:
        ways.append(f"use {likelihood} to match the {whole}'s own prediction")
    if SECOND not in notes.curves:
        ways.append(f"check with {judge}")
    text = ", or ".join(ways)
    return f"{_capital(text)}." if text else ""
