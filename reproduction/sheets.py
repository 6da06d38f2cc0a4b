"""Figures of many results: curves side by side, galleries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greedypig.plots import curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Cell = tuple[str, "NDArray[np.uint8]"]
"""A picture (h, w, 3) with levels from 0 to 255, and its title before it."""


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """A figure that no global list holds on to, with a left-aligned title."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def label_axes(ax: Axes, title: str, x: str, y: str) -> None:
    """A title and what the axes measure, over a light grid."""
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)
    ax.grid(True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def curve_sheet(panels: Sequence[tuple[str, str, Mapping[str, Any]]], title: str) -> Figure:
    """Diagrams of curves side by side, each (title, quantity, curves by name)."""
    names = {name for _, _, curves in panels for name in curves}
    wide = 5.1 + 0.06 * max(max(map(len, names)) - 40, 0)  # A long legend squeezes its diagram.
    figure = new_figure(wide * len(panels), 4.5 + 0.21 * len(names), title)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (heading, quantity, curves) in zip(axes, panels, strict=True):
        curve(curves, ax=ax)
        ax.set_ylim(bottom=0)
        label_axes(ax, heading, ax.get_xlabel(), quantity)
    return figure


def gallery(rows: Sequence[Sequence[Cell]], title: str) -> Figure:
    """Pictures in rows, each with its own title."""
    across = max(map(len, rows))
    figure = new_figure(2.75 * across, 0.6 + 3.3 * len(rows), title)
    for line, cells in zip(figure.subplots(len(rows), across, squeeze=False), rows, strict=True):
        for ax in line:
            ax.set_axis_off()
        for ax, (heading, picture) in zip(line, cells, strict=False):
            ax.imshow(picture, interpolation_stage="rgba")
            ax.set_title(heading, loc="left", fontsize=9)
    return figure
