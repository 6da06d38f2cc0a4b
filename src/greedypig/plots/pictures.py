"""A result on its picture: what is kept or left, how much each place matters, when it was taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.attribution import Attribution, is_one_shot
from ..core.errors import InvalidInput
from ..core.numbers import check_between
from ..results.input_notes import InputNotes
from ..results.labels import feature_word
from ..results.picture import features_within, order_last, order_ticks
from ..results.wording import chance_cell, percent
from .canvas import Style, axes_or, headline, picture_of, shorten, title, untick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

NEVER = "#b8b8b8"
MAP = (4.4, 5.6)
"""Inches of a figure with one map and the scale of its colours below."""
SCALE: Style = {"vmin": 0, "vmax": 1, "interpolation_stage": "rgba"}
"""How importance is drawn."""
IMPORTANCE = "importance: 1 = first, 0 = nothing left to gain"
TENTHS = (0, 0.2, 0.4, 0.6, 0.8, 1)
"""Ticks of importance."""
LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in gray (Rec. 601)."""


def kept(a: Attribution, share: float = 0.1, *, ax: Axes | None = None) -> Axes:
    """The picture with the top features alone, the rest at the baseline.

    Takes the most features that hold no more than `share` of the values. The title names their
    number and, if the notes have it, the probability with them.
    """
    return _part(a, share, ax, off=False)


def without(a: Attribution, share: float = 0.1, *, ax: Axes | None = None) -> Axes:
    """The picture with the top features at the baseline and the rest as it was: what is left.

    The counterpart of `kept`, and what a counterfactual is about. The title says how sure the
    model still is, if the notes tell.
    """
    return _part(a, share, ax, off=True)


def _part(a: Attribution, share: float, ax: Axes | None, *, off: bool) -> Axes:
    picture = picture_of(a, "without" if off else "kept")
    k, notes = features_within(a, share), InputNotes.of(a)
    ax = axes_or(ax, 4, 4.4)
    ax.imshow((picture.without if off else picture.kept)(k), interpolation_stage="rgba")
    untick(ax)
    count = f"{k:,} {feature_word(a, k)}"
    text = f"{'without the ' if off else ''}top {percent(picture.share(k))} ({count})"
    value, whole = notes.probability_at(share, off=off), notes.probability
    if value is not None:
        beside = "" if whole is None else f" (all: {chance_cell(whole)})"
        text += f"\n{shorten(notes.label or 'probability', 20)} {chance_cell(value)}{beside}"
    title(ax, text)
    return ax


def heatmap(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """How early each pixel was selected: the order as a scale from 1 to 0, mean over channels.

    The scale is the same for every result; scores of different rounds do not compare.
    """
    picture = picture_of(a, "heatmap")
    ax = axes_or(ax, *MAP)
    image = ax.imshow(picture.importance, cmap="cividis", **SCALE)
    untick(ax)
    _bar(ax, image, IMPORTANCE, TENTHS)
    title(ax, _headed("importance", a))
    return ax


def overlay(a: Attribution, *, opacity: float = 0.65, ax: Axes | None = None) -> Axes:
    """The heatmap over the picture in gray; `opacity` 0 shows the picture alone, 1 the map."""
    check_between("opacity", opacity, 0, 1)
    picture = picture_of(a, "overlay")
    if picture.pixels is None:
        raise InvalidInput(
            "Expected a picture to lay the map on (got a result without one). "
            "Try a.with_notes(picture=…), or plots.heatmap."
        )
    ax = axes_or(ax, *MAP)
    ax.imshow(picture.pixels @ LUMA, cmap="gray", vmin=0, vmax=255, interpolation_stage="rgba")
    image = ax.imshow(picture.importance, cmap="viridis", alpha=opacity, **SCALE)
    untick(ax)
    _bar(ax, image, f"{IMPORTANCE}\n{100 * opacity:.0f} % opaque", TENTHS)
    title(ax, _headed("importance over the picture", a))
    return ax


def order_map(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """When each place was first selected, in any channel; of a one-shot method its best rank.

    Colours are spread by the square root of that number, as early picks cover few pixels. Pixels
    that no round selected are gray: their rank is by the last score only.
    """
    from matplotlib.colors import PowerNorm

    picture = picture_of(a, "order_map")
    last = order_last(a, picture.first)
    numbers = np.ma.masked_where(picture.first >= a.selected, picture.first + 1)
    ax = axes_or(ax, *MAP)
    norm = PowerNorm(0.5, 1, last)
    image = ax.imshow(numbers, cmap="viridis_r", norm=norm, interpolation_stage="rgba")
    ax.set_facecolor(NEVER)
    untick(ax)
    done = "ranked" if is_one_shot(a) else "selected"
    label = f"{done} as number … of {a.features.count:,}\nsquare-root scale"
    if never := float(np.ma.getmaskarray(numbers).mean()):
        label += f"\ngray: {percent(never)} of the places, never selected"
    _bar(ax, image, label, order_ticks(last))
    title(ax, _headed(f"first {done}", a))
    return ax


def _headed(what: str, a: Attribution) -> str:
    head = headline(InputNotes.of(a))
    return f"{what}: {head}" if head else what


def _bar(ax: Axes, image: ScalarMappable, label: str, ticks: Sequence[float]) -> None:
    """The colours' scale below a picture and as wide as it, so that pictures keep their places."""
    ax.set_anchor("N")
    place = ax.inset_axes((0, -0.065, 1, 0.035))
    bar = ax.figure.colorbar(image, cax=place, orientation="horizontal")
    bar.set_label(label, fontsize=8)
    bar.outline.set_visible(False)
    bar.set_ticks(ticks, labels=[f"{tick:,g}" if tick < 1 else f"{tick:,.0f}" for tick in ticks])
    place.minorticks_off()
    place.tick_params(labelsize=8)
    first, *_, last = place.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
