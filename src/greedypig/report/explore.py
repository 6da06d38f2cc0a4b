"""The part of a page to explore a picture with: a canvas, its views, and the slider over k."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution, is_one_shot
from ..results.photo_notes import Notes
from ..results.picture import DARK, LIGHT, OrderScale, Picture, shares_alike, unit_word
from .markup import escape, packed

MOST = 1_600_000
"""Values of a picture that a page holds; of larger ones every second, third, … pixel is shown."""
STOPS = 120
"""Positions of the slider, besides those of the presets."""
PRESETS = {0.01: "1 %", 0.05: "5 %", 0.1: "10 %", 0.5: "50 %", 1: "all"}
"""Shares to jump to."""


def slider_stops(ranks: NDArray[np.int64], units: int, selected: int) -> list[list[int]]:
    """[k, values kept] from nothing to everything, log-spaced, each adding something."""
    ordered = np.sort(ranks.reshape(-1))
    last = int(ordered[-1]) + 1
    wanted = np.unique(np.round(np.geomspace(1, last, STOPS)).astype(int)).tolist()
    # Counted as curves and summaries count: single values to the nearest, larger features whole.
    slack = 0.5 if units == ordered.size else 1e-6
    rooms = [int(share * ordered.size + slack) for share in PRESETS if share < 1]
    wanted += [int(ordered[min(room, ordered.size - 1)]) for room in rooms]
    wanted = sorted({*wanted, min(selected, last), last})
    stops, before = [[0, 0]], 0
    for k in wanted:
        count = int(np.searchsorted(ordered, k))
        if count > before:
            stops.append([k if k < last else units, count])
            before = count
    return stops


def explorer_data(a: Attribution, notes: Notes, picture: Picture) -> dict[str, Any]:
    """What the script draws from: ranks, picture and baseline as bytes, and a few numbers."""
    stride = explorer_stride(picture)
    ranks = picture.ranks[:, ::stride, ::stride]
    width_of = 2 if picture.units <= 1 << 16 else 3 if picture.units <= 1 << 24 else 4
    shared = picture.shared[:, ::stride, ::stride]

    def raw(numbers: NDArray[np.int64]) -> str:
        return packed(numbers.astype("<u4").reshape(-1, 1).view(np.uint8)[:, :width_of].tobytes())

    base = picture.baseline[::stride, ::stride]
    flat = bool((base == base[:1, :1]).all())
    pixels = None if picture.pixels is None else picture.pixels[::stride, ::stride]
    line = notes.deletion or notes.curve
    stops = slider_stops(picture.ranks, a.features.units, a.selected)
    scale = OrderScale.of(picture.first, a.selected)
    return {
        "shape": list(ranks.shape),
        "stride": stride,
        "units": a.features.units,
        "n": a.features.n,
        "selected": a.selected,
        "word": [unit_word(a, 1), unit_word(a)],
        "elements": a.features.kind == "elements",
        "ends": np.cumsum(a.picks).tolist(),
        "stops": stops,
        "alike": shares_alike(a, [k for k, _ in stops]),
        "order": {"last": scale.last, "wide": scale.wide, "shift": scale.shift,
                  "ticks": scale.ticks(), "words": scale.words},
        "once": is_one_shot(a),
        "grays": [DARK, LIGHT],
        "bytes": width_of,
        "ranks": raw(ranks),
        "shared": None if np.array_equal(shared, ranks) else raw(shared),
        "picture": None if pixels is None else packed(pixels.tobytes()),
        "baseline": base[0, 0].tolist() if flat else packed(base.tobytes()),
        "label": notes.label or "the class",
        "whole": notes.probability,
        "removing": notes.removing,
        "bare": notes.bare,
        "curve": None if line is None else [line.fractions.tolist(), line.values.tolist()],
    }  # fmt: skip


VIEWS = {
    "photo": ("Photo", "Everything, as the network sees it."),
    "kept": ("Kept", "Only the features selected so far; everything else shows the baseline."),
    "overlay": ("Overlay", "Importance over the photo in gray."),
    "heat": ("Importance", "How early each pixel was selected, mean over its colours."),
    "order": ("Order", "When each pixel was first selected, in any colour, up to the slider."),
}
ONCE = {
    "kept": ("Kept", "Only the features ranked best; everything else shows the baseline."),
    "heat": ("Importance", "How high each pixel is ranked, mean over its colours."),
    "order": ("Order", "The best rank of each pixel, in any colour, up to the slider."),
}
"""Views of a one-shot method."""
OFF = ("Without", "The features selected so far show the baseline; everything else is as it was.")
"""The view of what is left where features are switched off."""


def explorer_html(a: Attribution, notes: Notes, picture: Picture) -> str:
    """The canvas with its controls; the script fills it."""
    views = {
        k: v
        for k, v in {**VIEWS, **(ONCE if is_one_shot(a) else {})}.items()
        if k not in ("photo", "overlay") or picture.pixels is not None
    }
    off = notes.removing
    if off:
        views["kept"] = OFF
    tabs = "".join(
        f'<button type="button" role="tab" id="tab-{key}" data-view="{key}" aria-controls="view" '
        f'aria-selected="{"true" if key == "kept" else "false"}" '
        f'tabindex="{0 if key == "kept" else -1}" data-hint="{escape(hint)}">{name}</button>'
        for key, (name, hint) in views.items()
    )
    presets = "".join(
        f'<button type="button" class="preset" data-share="{s}">{t}</button>'
        for s, t in PRESETS.items()
    )
    _, height, width = picture.ranks.shape
    name = escape(notes.source or "the picture")
    label = escape(notes.label or "its class")
    absent = "" if picture.pixels is not None else (
        '<p class="note">The file holds no picture: '
        f'what is {"left" if off else "kept"} is shown white.</p>'
    )  # fmt: skip
    if a.features.kind == "elements" and len(picture.ranks) == 3:
        absent += (
            f'<p class="note">{views["kept"][0]}: a pixel with one or two of its three colours '
            "among the best features looks tinted. With pixels as features, it has all or none.</p>"
        )
    if notes.drawn_at is not None:
        absent += (
            f'<p class="note">{views["kept"][0]}: {"what is switched off" if off else "the rest"} '
            f"is {escape(notes.drawn_at)}.</p>"
        )
    stride = explorer_stride(picture)
    if stride > 1:
        absent += (
            f'<p class="note">The picture has {width} × {height} places; one in {stride} rows and '
            "columns is shown. The counts are of all of them.</p>"
        )
    return f"""
<section class="explore" aria-labelledby="explore-title">
<h2 id="explore-title">Explore</h2>
<noscript><p class="warn">The picture is drawn by this page’s own script, which is switched
off. Everything below can be read without it.</p></noscript>
<div role="tablist" aria-label="Views of the picture" class="tabs">{tabs}</div>
<div id="view" role="tabpanel" aria-labelledby="tab-kept">
<p class="note" id="hint">{escape(views["kept"][1])}</p>
<div class="frame"><canvas id="canvas" width="{width}" height="{height}" tabindex="0" role="img"
aria-label="{name}, explained for {label}" aria-describedby="place hint"></canvas><div id="cross"
hidden></div></div>
<div class="key" id="key" hidden><canvas id="ramp" width="256" height="2" role="img"
aria-label="The scale of the colours"></canvas><div class="ticks" id="ticks"></div></div>
<p class="note" id="key-note" hidden></p>
<p id="place" class="place" aria-live="polite">Point at, tap or, with the picture focused, use the
arrow keys on a place to see its rank.</p>
{absent}
</div>
<div class="control" id="k-control">
<label for="k">How much is {"switched off" if off else "kept"}</label>
<div class="slide"><input type="range" id="k" min="0" max="1" step="1" value="0"><button
type="button" id="play" aria-pressed="false">Play</button></div>
<output id="told" for="k"></output>
<div class="presets" role="group" aria-label="Shares to jump to">{presets}</div>
</div>
<div class="control" id="opacity-control" hidden>
<label for="opacity">Opacity of the map</label>
<input type="range" id="opacity" min="0" max="100" value="65">
</div>
</section>"""


def explorer_stride(picture: Picture) -> int:
    """The step from one pixel that the page holds to the next."""
    return max(1, ceil(sqrt(picture.ranks.size / MOST)))
