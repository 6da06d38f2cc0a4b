"""Sheets for many results: median curves side by side, scores beside published ones, galleries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from greedypig.core.errors import InvalidInput
from greedypig.plots.canvas import COLOURS, INK, SOFT, new_figure, plain, shorten, title, untick
from greedypig.plots.charts import LONGEST, curve, legend_columns
from greedypig.results.curve import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Panel:
    """One diagram of curves."""

    title: str
    quantity: str
    """What the curves' values are."""
    curves: Mapping[str, Curve]


@dataclass(frozen=True, eq=False)
class Cell:
    """One picture of a gallery."""

    title: str
    picture: NDArray[Any]
    """(h, w, 3) levels from 0 to 255, or (h, w) importance from 0 to 1, drawn in colours."""


@dataclass(frozen=True)
class Score:
    """A number of ours, and the published one beside it."""

    value: float
    error: float | None = None
    """Standard error."""
    published: float | None = None


def curve_sheet(panels: Sequence[Panel], *, title: str = "") -> Figure:
    """Diagrams of curves side by side; a name has one colour and dash in all of them."""
    if not panels:
        raise InvalidInput("Expected at least one panel of curves (got none).")
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    rows = len(names) / legend_columns([f"{name}, AUC 0.000" for name in names])
    longest = min(max(map(len, names), default=0), LONGEST)
    wide = 5.1 + 0.06 * max(longest - 40, 0)  # Else a legend of long names squeezes its diagram.
    figure = new_figure(wide * len(panels), 4.5 + 0.21 * rows)
    for ax, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        curve({name: panel.curves[name] for name in names if name in panel.curves}, ax=ax)
        ax.set_ylabel(panel.quantity, fontsize=9, color=INK)
        ax.set_ylim(bottom=0)
        ax.set_title(panel.title, loc="left", fontsize=10, color=INK)
    figure.suptitle(shorten(title, 120), fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def score_sheet(scores: Mapping[str, Score], *, quantity: str, chance: float | None = None,
                title: str = "") -> Figure:  # fmt: skip
    """Scores as bars with their standard errors; diamonds are the published numbers."""
    if not scores:
        raise InvalidInput("Expected at least one score (got none).")
    figure = new_figure(8.2, 1.7 + 0.42 * len(scores))
    ax = figure.add_subplot()
    places = list(range(len(scores)))
    ax.barh(places, [s.value for s in scores.values()], height=0.55, color=COLOURS[0],
            xerr=[s.error or 0.0 for s in scores.values()],
            error_kw={"ecolor": INK, "capsize": 3, "linewidth": 1}, label="ours")  # fmt: skip
    known = [(s.published, p) for p, s in zip(places, scores.values(), strict=True)
             if s.published is not None]  # fmt: skip
    if known:
        ax.scatter([v for v, _ in known], [p for _, p in known], marker="D", s=46, zorder=3,
                   color=COLOURS[1], edgecolor="white", label="paper")  # fmt: skip
    if chance is not None:
        ax.axvline(chance, color=SOFT, linestyle=(0, (2, 2)), linewidth=1, label="chance")
    ax.set_yticks(places, [shorten(name, 64) for name in scores])
    ax.set_ylim(len(scores) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel(quantity, fontsize=9, color=INK)
    plain(ax)
    ax.grid(False, axis="y")
    ax.legend(fontsize=8, frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.2))
    ax.set_title(shorten(title, 100), loc="left", fontsize=10, color=INK)
    return figure


def gallery(rows: Sequence[Sequence[Cell | None]], *, heading: str = "", note: str = "") -> Figure:
    """Pictures in rows, each with its own title; importance has one colour scale for all.

    None leaves a place empty.
    """
    if not rows or not all(rows):
        raise InvalidInput("Expected rows of pictures, none empty (got others).")
    across = max(len(row) for row in rows)
    maps = any(cell is not None and cell.picture.ndim == 2 for row in rows for cell in row)
    figure = new_figure(2.75 * across, 3.3 * len(rows) + (1.5 if maps else 0.6))
    axes = figure.subplots(len(rows), across, squeeze=False)
    image = None
    for line, row in zip(axes, rows, strict=True):
        for ax in line[len(row) :]:
            ax.set_axis_off()
        for ax, cell in zip(line, row, strict=False):
            if cell is None:
                ax.set_axis_off()
                continue
            untick(ax)
            if cell.picture.ndim == 3:
                ax.imshow(cell.picture, interpolation_stage="rgba")
            else:
                image = ax.imshow(cell.picture, cmap="cividis", vmin=0, vmax=1,
                                  interpolation_stage="rgba")  # fmt: skip
            title(ax, cell.title)
    if image is not None:
        bar = figure.colorbar(image, ax=axes, location="bottom", fraction=0.03, aspect=50, pad=0.02)
        bar.set_label("importance: 1 = ranked first, 0 = last", fontsize=8)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set_visible(False)
    figure.suptitle(shorten(heading, 120), fontsize=11, color=INK, x=0.01, ha="left")
    figure.supxlabel(shorten(note, 160), fontsize=8.5, color=SOFT, x=0.01, ha="left")
    return figure
