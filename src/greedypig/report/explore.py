"""The part of a page to explore a picture with: what its script draws from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution, is_one_shot
from ..results.input_notes import InputNotes
from ..results.labels import feature_word
from ..results.picture import SHARES, Picture, order_last, order_ticks
from .render import packed, reduced

MOST = 1_250_000
"""Characters of what a page's pictures are drawn from."""
STOPS = 120
"""Positions of the slider, besides those of the presets."""
PRESETS = {0.01: "1 %", 0.05: "5 %", 0.1: "10 %", 0.5: "50 %", 1: "all"}
"""Shares to jump to."""
OUTLINED = 48
"""Features of at least this many values (16 pixels in three colours) are outlined."""


def slider_stops(
    ranks: NDArray[np.int64], features: int, selected: int, shares: Iterable[float] = PRESETS
) -> list[list[int]]:
    """[k, values kept] from nothing to everything, log-spaced, each adding something.

    shares: those that have a stop of their own.
    """
    ordered = np.sort(ranks.reshape(-1))
    last = int(ordered[-1]) + 1
    wanted = set(np.round(np.geomspace(1, last, STOPS)).astype(int).tolist())
    # Counted as curves and summaries count: single values to the nearest, larger features whole.
    slack = 0.5 if features == ordered.size else 1e-6
    rooms = [int(share * ordered.size + slack) for share in shares if share < 1]
    wanted |= {int(ordered[min(room, ordered.size - 1)]) for room in rooms}
    stops, before = [[0, 0]], 0
    for k in sorted({*wanted, min(selected, last), last}):
        count = int(np.searchsorted(ordered, k))
        if count > before:
            stops.append([k if k < last else features, count])
            before = count
    return stops


def explorer_data(a: Attribution, notes: InputNotes, picture: Picture) -> dict[str, Any]:
    """What the script draws from: ranks, picture and baseline as bytes, and a few numbers."""
    ranks, count = picture.ranks, a.features.count
    if (ranks == ranks[:1]).all():
        ranks = ranks[:1]  # All channels of a pixel together: one of them says it all.
    size = next(size for size in (2, 3, 4) if count <= 1 << 8 * size)
    planes = np.moveaxis(ranks.astype("<u4")[..., None].view(np.uint8), -1, 0)[:size]
    importance = np.round(255 * picture.importance).astype(np.uint8)

    def drawn(step: int) -> dict[str, Any]:
        return {
            "shape": list(ranks[:, ::step, ::step].shape),
            "ranks": packed(planes[..., ::step, ::step]),
            "importance": packed(importance[::step, ::step]),
            **picture_data(picture, step),
        }

    line = notes.deletion or notes.curve
    last = order_last(a, picture.first)
    start = start_share(notes)
    return finest(drawn) | {
        "size": picture.first.shape,
        "count": count,
        "n": a.features.n,
        "selected": a.selected,
        "word": [feature_word(a, 1), feature_word(a)],
        "elements": a.features.kind == "elements",
        "ends": np.cumsum(a.picks).tolist(),
        "stops": slider_stops(picture.ranks, count, a.selected, (*PRESETS, start)),
        "start": start,
        "order": {"last": last, "ticks": order_ticks(last)},
        "once": is_one_shot(a),
        "outlined": a.features.kind == "windows" or a.features.n >= OUTLINED * count,
        "label": notes.label or "the class",
        "whole": notes.probability,
        "removing": notes.removing,
        "curve": None if line is None else [line.fractions.tolist(), line.values.tolist()],
    }


def finest(drawn: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """What is drawn from every pixel, or else from every second, third, … until it is small."""
    for step in itertools.count(1):
        data = drawn(step)
        if len(json.dumps(data)) <= MOST:
            break
    return data | {"step": step}


def start_share(notes: InputNotes) -> float:
    """The share that the slider starts at: the one of the page's answer, else a tenth."""
    share = notes.needed()
    return share if share and share < 1 else 0.1


def picture_data(picture: Picture, step: int) -> dict[str, Any]:
    """The picture and its baseline, each as differences to the pixel before; a baseline of one
    colour as that."""

    def differences(pixels: NDArray[np.uint8]) -> str:
        return packed(np.diff(reduced(pixels, step).reshape(-1, 3), axis=0, prepend=np.uint8(0)))

    base = picture.baseline
    uniform = bool((base == base[:1, :1]).all())
    return {
        "picture": None if picture.pixels is None else differences(picture.pixels),
        "baseline": base[0, 0].tolist() if uniform else differences(base),
    }


def compared_data(a: Attribution, notes: InputNotes, picture: Picture) -> dict[str, Any] | None:
    """What the script draws the pictures of a comparison from: each value's stop."""
    stops = a.attachments.get("methods")
    shape = (len(notes.methods), *picture.ranks.shape)
    if stops is None or picture.pixels is None or stops.shape != shape:
        return None
    places = stops.numpy().clip(0, len(SHARES) - 1)

    def drawn(step: int) -> dict[str, Any]:
        return {
            "shape": list(places[0, :, ::step, ::step].shape),
            "stops": [packed(each[:, ::step, ::step]) for each in places],
            **picture_data(picture, step),
        }

    return finest(drawn) | {
        "size": picture.first.shape,
        "shares": SHARES,
        "label": notes.label or "the class",
        "whole": notes.probability,
        "methods": [method.name for method in notes.methods],
    }


VIEWS = {
    "overlay": ("Overlay", "The best features, coloured by importance, over the photo in gray."),
    "kept": ("Kept", "Only the best features; everything else shows the baseline."),
    "photo": ("Photo", "Everything, as the network sees it."),
    "heat": ("Importance", "How much of the rise in G was left when a pixel was {}."),
    "order": ("Order", "When each pixel was first {}, in any colour, up to the slider."),
}
"""Tabs and their hints; how features got their places is put in."""
WITHOUT = ("Without", "The best features show the baseline; everything else is as it was.")
"""The view of what is left where features are switched off."""
TINTED = " A pixel of which only one or two colours were selected looks tinted."


def explorer(a: Attribution, notes: InputNotes, picture: Picture) -> dict[str, Any]:
    """The texts around the canvas."""
    views = VIEWS | ({"kept": WITHOUT} if notes.removing else {})
    if picture.pixels is None:
        views = {key: view for key, view in views.items() if key not in ("photo", "overlay")}
    done = "ranked" if is_one_shot(a) else "selected"
    tinted = TINTED if a.features.kind == "elements" and len(picture.ranks) == 3 else ""
    _, height, width = picture.ranks.shape
    return {
        "views": {
            key: (name, hint.format(done) + (tinted if key == "kept" else ""))
            for key, (name, hint) in views.items()
        },
        "view": next(iter(views)),
        "presets": PRESETS,
        "height": height,
        "width": width,
        "whole": picture.pixels is not None,
    }
