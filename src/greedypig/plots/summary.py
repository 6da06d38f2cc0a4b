"""Many results in one figure: a dot for each result and feature, or their means as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidInput, InvalidType
from ..core.numbers import check_count
from ..results.labels import feature_labels
from ..results.summary import Summary
from ..results.wording import count
from .canvas import COLOURS, SOFT, Style, labels, new_figure, plain, shorten, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("beeswarm", "bar")
LOW, MIDDLE, HIGH = "#0072B2", "#9d8fa3", "#D55E00"
"""A feature's low and high values: blue and orange, which the colour-blind can distinguish."""
ACROSS, DEEP = 90, 0.38
"""Dots that fit side by side along the axis, and how far a swarm reaches from its line."""
QUANTITY = {
    "gain": "gain in G when the feature was selected",
    "contribution": "contribution to G(S) − G(∅)",
    "rank": "rank (1: selected first)",
}


def summary(results: Summary, kind: str = "beeswarm", *, by: str = "gain", top: int = 20) -> Figure:
    """The features that bring most over many results: see `Summary.plot`."""
    if not isinstance(results, Summary):
        raise InvalidType(f"Expected gp.summary(results) (got {type(results).__name__}). Try that.")
    if kind not in KINDS:
        raise InvalidInput(f"Expected kind to be 'beeswarm' or 'bar' (got {kind!r}).")
    check_count("top", top)
    table = results.table(by).numpy()
    best = results.best(by)[:top].tolist()
    figure = new_figure(7.4, 1.5 + 0.3 * len(best))
    ax = figure.add_subplot()
    if kind == "bar":
        _bars(ax, table[:, best], by)
    else:
        known = results.values()
        _swarms(ax, table[:, best], None if known is None else known[:, best].numpy())
    names = [shorten(name, 32) for name in feature_labels(results[0], best)]
    ax.set_yticks(range(len(best)), names)
    ax.set_ylim(len(best) - 0.4, -0.6)
    mean = "mean " * (kind == "bar") + "size of the " * (kind == "bar" and by != "rank")
    labels(ax, mean + QUANTITY[by])
    plain(ax)
    ax.grid(False, axis="y")
    features = results[0].features.count
    of = f"first {len(best)} of {features:,} features, " * (len(best) < features)
    title(ax, f"{of}{count(len(results), 'result')}")
    return figure


def _bars(ax: Axes, table: NDArray[np.float64], by: str) -> None:
    means = (table if by == "rank" else np.abs(table)).mean(0)
    ax.barh(range(len(means)), means, color=COLOURS[0], height=0.7)


def _swarms(ax: Axes, table: NDArray[np.float64], values: NDArray[np.float64] | None) -> None:
    """A row of dots for each feature, coloured by where its value lies among the inputs."""
    span = float(table.max() - table.min()) or 1.0
    for row, places in enumerate(table.T):
        look: Style = {"s": 14, "linewidths": 0, "alpha": 0.85, "zorder": 2}
        if values is None:
            look["color"] = COLOURS[0]
        else:
            look |= {"c": _shades(values[:, row]), "cmap": _colours(), "vmin": 0, "vmax": 1}
        ax.scatter(places, row + _offsets(places, span / ACROSS), **look)
    if table.min() < 0 < table.max():
        ax.axvline(0, color=SOFT, linewidth=0.8, zorder=1)
    ax.margins(x=0.04)
    if values is not None:
        _key(ax)


def _offsets(places: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """How far each dot moves from its line, so that dots at one place lie side by side."""
    bins = np.round((places - places.min()) / width).astype(int)
    offsets = np.zeros(len(places))
    most = int(np.bincount(bins).max())
    step = min(0.13, 2 * DEEP / max(most - 1, 1))
    for each in np.unique(bins):
        dots = np.flatnonzero(bins == each)
        offsets[dots] = (np.arange(len(dots)) - (len(dots) - 1) / 2) * step
    return offsets


def _shades(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """0 to 1 for the feature's lowest and highest values, without the outermost twentieths."""
    low, high = np.nanpercentile(values, [5, 95]) if np.isfinite(values).any() else (0.0, 0.0)
    if high <= low:
        return np.full(len(values), 0.5)
    return np.asarray(np.nan_to_num(np.clip((values - low) / (high - low), 0, 1), nan=0.5))


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("low-high", [LOW, MIDDLE, HIGH])


def _key(ax: Axes) -> None:
    """The colours of low and high values, at the right side."""
    from matplotlib.cm import ScalarMappable

    bar = ax.figure.colorbar(ScalarMappable(cmap=_colours()), ax=ax, aspect=30, pad=0.02)
    bar.set_ticks([0, 1], labels=["low", "high"])
    bar.ax.tick_params(labelsize=8, length=0)
    bar.set_label("value of the feature", fontsize=8, labelpad=-8)
    bar.outline.set_visible(False)
