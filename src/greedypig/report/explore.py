"""The part of a page to explore a picture with: what its script draws from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution, is_one_shot
from ..results.photo_notes import Notes
from ..results.picture import (
    Picture,
    feature_word,
    order_last,
    order_ticks,
)
from .render import packed

STOPS = 120
"""Positions of the slider, besides those of the presets."""
PRESETS = {0.01: "1 %", 0.05: "5 %", 0.1: "10 %", 0.5: "50 %", 1: "all"}
"""Shares to jump to."""


def slider_stops(ranks: NDArray[np.int64], features: int, selected: int) -> list[list[int]]:
    """[k, values kept] from nothing to everything, log-spaced, each adding something."""
    ordered = np.sort(ranks.reshape(-1))
    last = int(ordered[-1]) + 1
    wanted = set(np.round(np.geomspace(1, last, STOPS)).astype(int).tolist())
    # Counted as curves and summaries count: single values to the nearest, larger features whole.
    slack = 0.5 if features == ordered.size else 1e-6
    rooms = [int(share * ordered.size + slack) for share in PRESETS if share < 1]
    wanted |= {int(ordered[min(room, ordered.size - 1)]) for room in rooms}
    stops, before = [[0, 0]], 0
    for k in sorted({*wanted, min(selected, last), last}):
        count = int(np.searchsorted(ordered, k))
        if count > before:
            stops.append([k if k < last else features, count])
            before = count
    return stops


def explorer_data(a: Attribution, notes: Notes, picture: Picture) -> dict[str, Any]:
    """What the script draws from: ranks, picture and baseline as bytes, and a few numbers."""
    ranks, shared, base = picture.ranks, picture.shared, picture.baseline
    size = next(size for size in (2, 3, 4) if picture.count <= 1 << 8 * size)

    def raw(numbers: NDArray[np.int64]) -> str:
        return packed(numbers.astype("<u4").reshape(-1, 1).view(np.uint8)[:, :size].tobytes())

    flat = bool((base == base[:1, :1]).all())
    line = notes.deletion or notes.curve
    stops = slider_stops(picture.ranks, a.features.count, a.selected)
    last = order_last(a, picture.first)
    return {
        "shape": list(ranks.shape),
        "count": a.features.count,
        "n": a.features.n,
        "selected": a.selected,
        "word": [feature_word(a, 1), feature_word(a)],
        "elements": a.features.kind == "elements",
        "ends": np.cumsum(a.picks).tolist(),
        "stops": stops,
        "order": {"last": last, "ticks": order_ticks(last)},
        "once": is_one_shot(a),
        "bytes": size,
        "ranks": raw(ranks),
        "shared": None if np.array_equal(shared, ranks) else raw(shared),
        "picture": None if picture.pixels is None else packed(picture.pixels.tobytes()),
        "baseline": base[0, 0].tolist() if flat else packed(base.tobytes()),
        "label": notes.label or "the class",
        "whole": notes.probability,
        "removing": notes.removing,
        "bare": notes.bare,
        "curve": None if line is None else [line.fractions.tolist(), line.values.tolist()],
    }


VIEWS = {
    "photo": ("Photo", "Everything, as the network sees it."),
    "kept": ("Kept", "Only the best features; everything else shows the baseline."),
    "overlay": ("Overlay", "Importance over the photo in gray."),
    "heat": ("Importance", "How early each pixel was {}, mean over its colours."),
    "order": ("Order", "When each pixel was first {}, in any colour, up to the slider."),
}
"""Tabs and their hints; how features got their places is put in."""
WITHOUT = ("Without", "The best features show the baseline; everything else is as it was.")
"""The view of what is left where features are switched off."""


def explorer(a: Attribution, notes: Notes, picture: Picture) -> dict[str, Any]:
    """The texts around the canvas."""
    views = VIEWS | ({"kept": WITHOUT} if notes.removing else {})
    done = "ranked" if is_one_shot(a) else "selected"
    _, height, width = picture.ranks.shape
    return {
        "views": {
            key: (name, hint.format(done))
            for key, (name, hint) in views.items()
            if picture.pixels is not None or key not in ("photo", "overlay")
        },
        "presets": PRESETS,
        "height": height,
        "width": width,
        "whole": picture.pixels is not None,
        "tinted": a.features.kind == "elements" and len(picture.ranks) == 3,
    }
