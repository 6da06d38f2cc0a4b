"""A figure of top lists: one column a number of copies, one cell a place, copies in colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from greedypig.plots.canvas import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    SOFT,
    new_figure,
    plain,
    shorten,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COPIED, OTHER = "#E69F00", "#EDEFF3"


@dataclass(frozen=True)
class Listing:
    """A method's top lists."""

    method: str
    tops: Mapping[int, Sequence[str]]
    """From the number of copies to the columns' names, best first."""


@dataclass(frozen=True)
class Scene:
    """A row of the figure."""

    words: str
    copied: str
    """The copied column; a copy's name is this with a mark behind it."""
    listings: Sequence[Listing]
    worth: Mapping[str, Mapping[int, tuple[float | None, float | None]]]
    """Method → number of copies → (mean, standard error)."""
    quantity: str


def listing_sheet(scenes: Sequence[Scene]) -> Figure:
    """Top lists of two methods beside each other, and what the lists are worth."""
    figure = new_figure(12, 0.6 + 2.55 * len(scenes))
    axes = figure.subplots(len(scenes), 3, squeeze=False, width_ratios=[1.15, 1.15, 1])
    for line, scene in zip(axes, scenes, strict=True):
        for ax, listing in zip(line[:2], scene.listings, strict=True):
            _cells(ax, listing, scene.copied)
        line[0].set_ylabel("place", fontsize=8.5, color=INK)
        title(line[0], f"{shorten(scene.words, 90)}\n{scene.listings[0].method}")
        title(line[1], scene.listings[1].method)
        _worth(line[2], scene)
    for quantity in {scene.quantity for scene in scenes}:
        # One scale for one quantity: what is noise should look like it.
        _one_scale([line[2] for line, s in zip(axes, scenes, strict=True)
                    if s.quantity == quantity])  # fmt: skip
    for ax in axes[-1]:
        ax.set_xlabel("copies of the best column", fontsize=9, color=INK)
    axes[0][2].legend(fontsize=8, frameon=False, loc="lower left")
    figure.suptitle("Top lists when the best column (orange) is there several times; "
                    "′ marks a copy. First network of each scene; worth: mean ± standard error.",
                    fontsize=10.5, color=INK, x=0.01, ha="left")  # fmt: skip
    return figure


def _one_scale(panels: Sequence[Axes]) -> None:
    limits = [ax.get_ylim() for ax in panels]
    for ax in panels:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _cells(ax: Axes, listing: Listing, copied: str) -> None:
    from matplotlib.patches import Rectangle

    depth = max(map(len, listing.tops.values()))
    for i, names in enumerate(listing.tops.values()):
        for place, name in enumerate(names):
            of = name.rstrip("′") == copied
            ax.add_patch(Rectangle((i - 0.48, place + 0.54), 0.96, 0.92, linewidth=0,
                                   facecolor=COPIED if of else OTHER))  # fmt: skip
            ax.text(i, place + 1, shorten(name, 12), ha="center", va="center", fontsize=7.5,
                    color=INK if of else SOFT, fontweight="bold" if of else "normal")  # fmt: skip
    ax.set_xlim(-0.55, len(listing.tops) - 0.45)
    ax.set_ylim(depth + 0.6, 0.4)
    ax.set_xticks(range(len(listing.tops)), [str(t) for t in listing.tops])
    ax.set_yticks(range(1, depth + 1))
    plain(ax)
    ax.grid(False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_color(FAINT)


def _worth(ax: Axes, scene: Scene) -> None:
    for i, (method, of) in enumerate(scene.worth.items()):
        known = [(p, v, e or 0.0) for p, (v, e) in enumerate(of.values()) if v is not None]
        ax.errorbar([p for p, _, _ in known], [v for _, v, _ in known],
                    yerr=[e for _, _, e in known], color=COLOURS[i],
                    linestyle=DASHES[i], marker="o", markersize=3.5, capsize=2, linewidth=1.6,
                    label=method)  # fmt: skip
        ax.set_xticks(range(len(of)), [str(t) for t in of])
    plain(ax)
    title(ax, f"what the list is worth ({scene.quantity})")
