"""A figure of losses over the number of columns kept, one panel a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from greedypig.plots.canvas import COLOURS, DASHES, INK, SOFT, new_figure, plain, shorten, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = ("ig", "greedy-5", "greedy-1", "permutation", "truth", "random")
"""A method has its colour in every panel."""


@dataclass(frozen=True)
class Line:
    """A method's losses."""

    name: str
    method: str
    points: Mapping[int, tuple[float, float | None]]
    """k → (mean, standard error)."""


@dataclass(frozen=True)
class Chart:
    """A panel."""

    title: str
    lines: Sequence[Line]
    whole: float | None
    """The loss of all columns."""


def loss_sheet(charts: Sequence[Chart]) -> Figure:
    """Panels side by side, two in a row; what all columns reach is a dashed line."""
    across = min(2, len(charts))
    down = -(-len(charts) // across)
    figure = new_figure(5.8 * across, 0.5 + 4.1 * down)
    axes = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for ax in axes[len(charts) :]:
        ax.set_axis_off()
    for ax, chart in zip(axes, charts, strict=False):
        places = sorted({k for line in chart.lines for k in line.points})
        count = len(chart.lines)
        for i, line in enumerate(chart.lines):
            look = LOOKS.index(line.method) if line.method in LOOKS else len(LOOKS)
            # Side by side, so that error bars do not cover one another.
            shift = 0.09 * (i - (count - 1) / 2)
            ks = list(line.points)
            ax.errorbar([places.index(k) + shift for k in ks], [line.points[k][0] for k in ks],
                        yerr=[line.points[k][1] or 0.0 for k in ks], color=COLOURS[look],
                        linestyle=DASHES[i % len(DASHES)], marker="o", markersize=4, capsize=2.5,
                        linewidth=1.4, label=shorten(line.name, 44))  # fmt: skip
        if chart.whole is not None:
            ax.axhline(chart.whole, color=SOFT, linewidth=1, linestyle=(0, (2, 2)),
                       label=f"all columns: {chart.whole:.4f}")  # fmt: skip
        ax.set_xticks(range(len(places)), [str(k) for k in places])
        ax.set_xlim(-0.5, len(places) - 0.5)
        ax.set_xlabel("columns kept", fontsize=9, color=INK)
        ax.set_ylabel("validation loss after retraining", fontsize=9, color=INK)
        plain(ax)
        title(ax, shorten(chart.title, 70))
        ax.legend(fontsize=8, frameon=False)
    return figure
