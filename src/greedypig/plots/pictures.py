"""A result on its picture: what is kept or left, how much each place matters, when it was taken."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from ..core.attribution import Attribution, is_one_shot
from ..core.errors import InvalidInput
from ..core.numbers import check_between
from ..results.photo_notes import Notes
from ..results.picture import (
    DARK,
    LIGHT,
    OrderScale,
    Picture,
    shares_alike,
    unit_word,
    units_within,
)
from ..results.wording import chance_cell, percent
from .canvas import INK, axes_or, headline, picture_of, shorten, title, untick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from numpy.typing import NDArray

NEVER = "#b8b8b8"
MAP = (4.4, 5.6)
"""Inches of a figure with one map and the scale of its colours below."""
TENTHS = (0, 0.2, 0.4, 0.6, 0.8, 1)
"""Ticks of importance."""


def kept(
    a: Attribution, share: float = 0.1, *, k: int | None = None, ax: Axes | None = None
) -> Axes:
    """The picture with the top units alone, the rest at the baseline.

    Takes the most units that hold no more than `share` of the values, or exactly `k` units. The
    title names their number and, if the notes have it, the probability with them.
    """
    return _part(a, share, k, ax, off=False)


def without(
    a: Attribution, share: float = 0.1, *, k: int | None = None, ax: Axes | None = None
) -> Axes:
    """The picture with the top units at the baseline and the rest as it was: what is left.

    The counterpart of `kept`, and what a counterfactual is about. The title says how sure the
    model still is, if the notes tell.
    """
    return _part(a, share, k, ax, off=True)


def asked(a: Attribution, share: float = 0.1, *, ax: Axes | None = None) -> Axes:
    """What the explanation is about: `without` of a counterfactual, else `kept`."""
    return (without if Notes.of(a).removing else kept)(a, share, ax=ax)


def _part(a: Attribution, share: float, k: int | None, ax: Axes | None, *, off: bool) -> Axes:
    picture = picture_of(a, "plots.without" if off else "plots.kept")
    if k is None:
        k = units_within(a, share)
    elif isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= a.features.units:
        raise InvalidInput(f"Expected k from 0 to {a.features.units} units (got {k!r}).")
    ax = axes_or(ax, 4, 4.4)
    ax.imshow((picture.without if off else picture.kept)(k), interpolation_stage="rgba")
    untick(ax)
    title(ax, _share_title(a, picture, k, off=off))
    mixed = Notes.of(a).drawn_at
    if mixed is not None:
        what = "what is switched off" if off else "the rest"
        ax.set_xlabel(fill(shorten(f"{what} is {mixed}", 160), 46), fontsize=8, color=INK)
    return ax


def _share_title(a: Attribution, picture: Picture, k: int, *, off: bool) -> str:
    notes, share = Notes.of(a), picture.share(k)
    count = int((picture.ranks < k).sum())
    text = f"{'without the ' if off else ''}top {percent(share)} "
    text += (f"({count:,} features)" if a.features.kind == "elements"
             else f"({k:,} {unit_word(a, k)})")  # fmt: skip
    point = notes.probability_at(share, shares_alike(a, [k])[0], off=off)
    if point is not None:
        value, measured = point
        sign = "" if measured else "≈ "
        text += f"\n{shorten(notes.label or 'probability', 20)} {sign}{chance_cell(value)}"
        if notes.probability is not None:
            text += f" (all: {chance_cell(notes.probability)})"
    return text


def heatmap(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """How early each pixel was selected: the order as a scale from 1 to 0, mean over channels.

    The scale is the same for every result; scores of different rounds do not compare.
    """
    picture = picture_of(a, "plots.heatmap")
    ax = axes_or(ax, *MAP)
    image = ax.imshow(
        picture.importance, cmap="cividis", vmin=0, vmax=1, interpolation_stage="rgba"
    )
    untick(ax)
    _bar(ax, image, _importance_words(a, picture), TENTHS)
    title(ax, _above("importance", a))
    return ax


def overlay(a: Attribution, *, opacity: float = 0.65, ax: Axes | None = None) -> Axes:
    """The heatmap over the picture in gray; `opacity` 0 shows the picture alone, 1 the map."""
    check_between("opacity", opacity, 0, 1)
    picture = picture_of(a, "plots.overlay")
    if picture.pixels is None:
        raise InvalidInput(
            "Expected a picture to lay the map on (got a result without one). "
            "Try a.with_notes(picture=…), or plots.heatmap."
        )
    ax = axes_or(ax, *MAP)
    ax.imshow(gray(picture.pixels), cmap="gray", vmin=0, vmax=255, interpolation_stage="rgba")
    image = ax.imshow(picture.importance, cmap="viridis", vmin=0, vmax=1, alpha=opacity,
                      interpolation_stage="rgba")  # fmt: skip
    untick(ax)
    words = f"{_importance_words(a, picture)}\n{100 * opacity:.0f} % opaque"
    words += "; bar over dark and light gray"
    _bar(ax, image, words, TENTHS, behind=(DARK, LIGHT))
    title(ax, _above("importance over the picture", a))
    return ax


def order_map(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """When each place was first selected, in any channel; of a one-shot method its best rank.

    Where that spans decades the scale is logarithmic beyond the first few numbers, and says so.
    Pixels that no round selected are gray: their rank is by the last score only.
    """
    picture = picture_of(a, "plots.order_map")
    scale = OrderScale.of(picture.first, a.selected)
    number = np.ma.masked_where(picture.first >= a.selected, picture.first + 1)
    ax = axes_or(ax, *MAP)
    image = ax.imshow(number, cmap="viridis_r", norm=_norm(scale), interpolation_stage="rgba")
    ax.set_facecolor(NEVER)
    untick(ax)
    label = f"{'ranked' if is_one_shot(a) else 'selected'} as number … of {a.features.units:,}"
    label += f"\n{scale.words}" if scale.wide else ""
    never = float(np.ma.getmaskarray(number).mean())
    if never:
        label += f"\ngray: {percent(never)} of the places, never selected"
    _bar(ax, image, label, scale.ticks())
    title(ax, _above(order_name(a), a))
    return ax


def order_name(a: Attribution) -> str:
    """What an order map shows."""
    return "order" if is_one_shot(a) else "first selected"


def _norm(scale: OrderScale) -> Normalize:
    from matplotlib.colors import FuncNorm, LogNorm, Normalize

    if not scale.wide:
        return Normalize(1, scale.last)
    if not scale.shift:
        return LogNorm(1, scale.last)
    return FuncNorm((scale.stretch, scale.number), 1, scale.last)


def gray(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Luma (Rec. 601) of (h, w, 3) levels."""
    return np.asarray(pixels @ np.array([0.299, 0.587, 0.114]))


def _above(what: str, a: Attribution) -> str:
    head = headline(Notes.of(a))
    return f"{what}: {head}" if head else what


def _importance_words(a: Attribution, picture: Picture) -> str:
    """What the scale of importance means, with what it would hide."""
    words = []
    if bool((picture.ranks != picture.ranks[:1]).any()):
        words.append("mean over the colours")
    if bool((picture.ranks >= a.selected).any()):
        words.append("not selected: 0")
    done = "ranked" if is_one_shot(a) else "taken"
    lines = [f"importance: 1 = {done} first, 0 = last", "; ".join(words)]
    return "\n".join(line for line in lines if line)


def _bar(
    ax: Axes, image: ScalarMappable, label: str, ticks: Sequence[float], *,
    behind: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """The colours' scale below a picture and as wide as it, so that pictures keep their places.

    behind: two gray levels, under the upper and the lower half of colours that are see-through.
    """
    ax.set_anchor("N")
    place = ax.inset_axes((0, -0.065, 1, 0.035))
    bar = ax.figure.colorbar(image, cax=place, orientation="horizontal")
    bar.set_label(label, fontsize=8)
    bar.outline.set_visible(False)
    if behind is not None:
        for level, bottom in zip(behind, (0.5, 0.0), strict=True):
            place.axhspan(bottom, bottom + 0.5, color=str(level / 255), linewidth=0, zorder=-1)
    bar.set_ticks(ticks, labels=[f"{tick:,g}" if tick < 1 else f"{tick:,.0f}" for tick in ticks])
    place.minorticks_off()
    place.tick_params(labelsize=8)
    first, *_, last = place.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
