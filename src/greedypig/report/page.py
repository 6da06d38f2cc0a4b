"""One result, one page: of a photo, or of any other input."""

from __future__ import annotations

from math import isfinite
from os import PathLike
from typing import Any

from ..core.attribution import Attribution
from ..core.errors import InvalidType
from ..results import kinds
from ..results.curve import Curve
from ..results.files import write_whole
from ..results.input_notes import SECOND, InputNotes
from ..results.labels import feature_word, share_word
from ..results.picture import features_within
from ..results.wording import shown
from .chart import Chart, share_chart
from .explore import compared_data, explorer, explorer_data, start_share
from .parts import compared, details, first_features
from .render import render

SUMMARISED = (0.01, 0.05, 0.1)
"""Shares of the features that the summary names."""


def write(a: Attribution, path: str | PathLike[str]) -> None:
    """Write the page of a result: one file that needs nothing else, also from file://."""
    write_whole(path, html(a))


def html(a: Attribution) -> str:
    """The page of a result as text; the same text for the same result."""
    if not isinstance(a, Attribution):
        raise InvalidType(
            f"Expected an Attribution (got {type(a).__name__}). Try gp.load(path) for a file."
        )
    page: str = kinds.find(a, "page")(a, kinds.notes_of(a))
    return page


def unranked_html(a: Attribution, reason: str) -> str:
    """The page of a run that ended before its first round."""
    return render(
        "unranked.html",
        answer=f"{reason} So there is no order or curve.",
        **_context(a, InputNotes.of(a)),
    )


def _context(a: Attribution, notes: InputNotes) -> dict[str, Any]:
    """What the templates of inputs share."""
    return {
        "a": a,
        "notes": notes,
        "details": details(a),
        "eyebrow": [notes.source, notes.model, a.settings.get("method") or ""],
        "predictions": [(name, p, f"{p:.3f}") for name, p in notes.predictions],
        "reason": notes.reason,
        "features": feature_word(a, a.features.count),
        "picture": notes.picture is not None,
    }


def input_html(a: Attribution, notes: InputNotes) -> str:
    """The page of a picture, or of any input without a page of its own."""
    picture, context = notes.picture, _context(a, notes)
    if notes.reason is not None:
        return unranked_html(a, notes.reason)
    methods = compared(notes.methods, notes.probability)
    if methods is not None and picture is not None:
        pictures = compared_data(a, notes, picture)
        if pictures is not None:
            return _comparison_html(notes, methods, pictures, context)
    charts = _curves(a, notes)
    drawn = charts + (methods["charts"] if methods else [])
    named = picture is None or a.features.names is not None
    data = {
        "charts": [chart.data for chart in drawn],
        "explore": None if picture is None else explorer_data(a, notes, picture),
    }
    return render(
        "photo.html",
        data,
        answer=notes.answer(),
        cautions=notes.cautions(),
        charts=charts,
        methods=methods,
        explore=None if picture is None else explorer(a, notes, picture),
        first=first_features(a) if named else None,
        shares=_shares(notes) if picture is not None else {},
        fitting=_fitting(a, notes),
        g=_finite([float(a.values[0]), float(a.values[-1])]),
        full=_finite([a.full_value]),
        **context,
    )


def _comparison_html(
    notes: InputNotes, methods: dict[str, Any], pictures: dict[str, Any], context: dict[str, Any]
) -> str:
    """The page of several methods on one photo."""
    shares, (height, width) = pictures["shares"], pictures["size"]
    start = min(range(len(shares)), key=lambda i: abs(shares[i] - start_share(notes)))
    needed = {m.name: None if m.curve is None else notes.needed(m.curve) for m in notes.methods}
    context["eyebrow"] = [notes.source, notes.model]
    return render(
        "comparison.html",
        {"charts": [chart.data for chart in methods["charts"]], "compare": pictures},
        methods=methods,
        answer=notes.answer(),
        needed=needed,
        tinted=context["a"].features.kind == "elements",
        start=start,
        last=len(shares) - 1,
        height=height,
        width=width,
        **context,
    )


def _finite(values: list[float]) -> list[str]:
    """Numbers as they are written; none where one is not known."""
    return [shown(value, 3) for value in values] if all(map(isfinite, values)) else []


def _shares(notes: InputNotes) -> dict[float, float]:
    """Share → probability, for the summary."""
    if notes.removed:
        return dict(notes.removed)
    values = {share: notes.probability_at(share) for share in SUMMARISED}
    return {share: value for share, value in values.items() if value is not None}


def _fitting(a: Attribution, notes: InputNotes) -> str:
    """How many features the first share of the summary is; of larger ones those that fit whole."""
    fit = features_within(a, next(iter(notes.removed), SUMMARISED[0]))
    if a.features.kind == "elements":
        return f"{fit:,} of {a.features.n:,}"
    return f"as many whole {feature_word(a)} as fit: {fit:,} of {a.features.count:,}"


def _curves(a: Attribution, notes: InputNotes) -> list[Chart]:
    """Charts of the curves in the notes, else of G(S) after each round."""
    off, charts = notes.removing, []
    done = "switched off" if off else "kept"
    probabilities = notes.probabilities
    if probabilities:
        part = "the best features switched off" if off else "only the best features"
        lines = {_label(name, line, notes): line for name, line in probabilities.items()}
        caption = f"Probability of {notes.label or 'the class'} with {part}"
        charts.append(
            share_chart(
                "curve-probability",
                caption,
                lines,
                notes.probability,
                word=share_word(a),
                plain=off,
                done=done,
            )
        )
    for i, (name, line) in enumerate(notes.curves.items()):
        if name not in probabilities:
            distance = "Distance from the whole input’s prediction (KL, nats; 0 is the same)"
            caption = distance if name == "loss" else name
            charts.append(share_chart(f"curve-{i}", caption, {_label(name, line, notes): line}))
    after = notes.rounds
    if (off or not probabilities) and after is not None:
        full = a.full_value if isfinite(a.full_value) else None
        objective = f" ({notes.objective})" if notes.objective else ""
        caption = f"The objective{objective} after each round"
        if off:
            caption = "How far the prediction moves (KL, nats)"
        charts.append(
            share_chart(
                "curve-rounds",
                caption,
                {after.name: after},
                full,
                word=share_word(a),
                plain=off,
                done=done,
            )
        )
    return charts


def _label(name: str, line: Curve, notes: InputNotes) -> str:
    if name in ("softmax", "deletion"):
        return f"{notes.model or 'the model'} itself"
    return f"second opinion by {line.judge or 'another network'}" if name == SECOND else name
