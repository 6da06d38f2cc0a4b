"""Figures of graphs: a compressed graph, and the edges that one node's prediction uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..results.graph_notes import MEASURES, Compression, Explained, inner_nodes, places, ring
from .canvas import (
    COLOURS,
    FAINT,
    INK,
    SOFT,
    axes_or,
    check,
    heading,
    labels,
    line_styles,
    new_figure,
    plain,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHAPES = ("o", "s", "^", "D", "v", "p", "h", "P")
"""Marks of classes, so that colours are not needed to tell them apart."""
GRAY = "#9a9fab"


def class_style(index: int | None) -> tuple[str, str]:
    """(colour, marker) of a class: eight colours, then the same with another mark."""
    if index is None:
        return GRAY, "o"
    return COLOURS[index % len(COLOURS)], SHAPES[(index + index // len(COLOURS)) % len(SHAPES)]


@dataclass(frozen=True)
class Band:
    """A curve over the share of edges, with its standard error."""

    shares: Sequence[float]
    values: Sequence[float]
    errors: Sequence[float] | None = None


@dataclass(frozen=True)
class BandPanel:
    """One diagram of bands."""

    title: str
    quantity: str
    bands: Mapping[str, Band]
    full: float | None = None
    """With all edges: a line."""
    keep: float | None = None
    """The share that was kept: an upright line."""


def compression(a: Attribution) -> Figure:
    """Accuracy, agreement and G over the share of edges kept, every method a line."""
    graph = Compression.of(check(a))
    if graph is None:
        raise InvalidInput(
            "Expected the result of `greedypig compress` (got another). Try plots.panel."
        )
    panels = []
    for measure, meaning in MEASURES.items():
        bands = {
            m.title: Band(m.lines[measure].fractions.tolist(), m.lines[measure].values.tolist())
            for m in graph.methods
            if measure in m.lines
        }
        if bands:
            full = 1.0 if measure == "agreement" else graph.full.get(measure)
            panels.append(BandPanel("", meaning, bands, full, graph.keep))
    name = f"{graph.source}: {graph.nodes:,} nodes, {graph.edges:,} edges, {graph.model}"
    note = " ".join(n for n in graph.notes if "generated" in n)
    return band_sheet([panels], title=f"{name}  {note}".strip())


def band_sheet(rows: Sequence[Sequence[BandPanel]], *, title: str = "") -> Figure:
    """Diagrams in rows; a name has one colour, mark and dash in all of them."""
    if not rows or not all(rows):
        raise InvalidInput("Expected rows of panels, none empty (got others).")
    names = list(dict.fromkeys(n for row in rows for panel in row for n in panel.bands))
    across = max(len(row) for row in rows)
    # Wide enough for the title and the names below, however few panels there are.
    figure = new_figure(max(4.3 * across, 9.5), 3.5 * len(rows) + 0.9)
    axes = figure.subplots(len(rows), across, squeeze=False)
    for line, row in zip(axes, rows, strict=True):
        for ax in line[len(row) :]:
            ax.set_axis_off()
        for ax, panel in zip(line, row, strict=False):
            _bands(ax, panel, names)
    legend: dict[str, Any] = {}
    for ax in axes.reshape(-1):
        handles, texts = ax.get_legend_handles_labels()
        legend |= dict(zip(texts, handles, strict=True))
    names = list(legend)
    figure.legend(
        list(legend.values()), names, loc="outside lower center", frameon=False, fontsize=9,
        ncols=len(names),
    )  # fmt: skip
    if title:
        heading(figure, shorten(title, 150), 11)
    return figure


def _bands(ax: Axes, panel: BandPanel, names: Sequence[str]) -> None:
    low, styles = [], line_styles(names)
    for name, band in panel.bands.items():
        i = names.index(name)
        x, y = np.asarray(band.shares, float), np.asarray(band.values, float)
        ax.plot(x, y, linewidth=1.9, marker=SHAPES[i % len(SHAPES)], markersize=3.6, label=name,
                **styles[i])  # fmt: skip
        if band.errors is not None:
            e = np.asarray(band.errors, float)
            ax.fill_between(x, y - e, y + e, color=styles[i]["color"], alpha=0.18, linewidth=0)
        low.append(y.min())
    if panel.full is not None:
        ax.axhline(panel.full, color="#c0392b", linewidth=1.1, linestyle=(0, (4, 3)),
                   label="all edges")  # fmt: skip
    if panel.keep is not None:
        ax.axvline(panel.keep, color=SOFT, linewidth=1.1, linestyle=(0, (1, 2)),
                   label=f"kept: {100 * panel.keep:g} %")  # fmt: skip
    plain(ax)
    ax.set_xlim(0, 1)
    tops = [max(b.values) for b in panel.bands.values()] + [panel.full or -np.inf]
    bottom, top = min(low), max(tops)
    room = 0.06 * (top - bottom) or 0.05
    ax.set_ylim(bottom - room, top + room)
    ax.xaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    labels(ax, "share of the edges kept", panel.quantity)
    if panel.title:
        ax.set_title(panel.title, loc="left", fontsize=10, color=INK)


def subgraph(a: Attribution, *, ax: Axes | None = None) -> Axes:
    """A node and the edges that its prediction uses, numbered in order of selection.

    Rings are steps from the node. Colour and mark of a node tell its class; early edges are dark
    and thick, late ones light and thin.
    """
    node = _explained(a)
    ax = axes_or(ax, 8.2, 8.4)
    spots = places(node.hops, node.edges)
    _rings(ax, max((n.hop for n in node.nodes), default=0))
    _edges(ax, node, spots)
    _nodes(ax, node, spots)
    ax.set_aspect("equal")
    ax.set_xlim(-1.22, 1.22)
    ax.set_ylim(-1.2, 1.2)
    ax.set_axis_off()
    ax.set_title(_headline(node), loc="left", fontsize=10, color=INK)
    return ax


def node_panel(a: Attribution) -> Figure:
    """The subgraph, and how sure the network is with the first edges."""
    node = _explained(a)
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(12.8, 8.2)
    grid = figure.add_gridspec(2, 2, width_ratios=[1.75, 1], height_ratios=[1, 1])
    subgraph(a, ax=figure.add_subplot(grid[:, 0]))
    ax = figure.add_subplot(grid[0, 1])
    values = [node.alone, *node.values]
    ax.plot(range(len(values)), values, color=COLOURS[0], marker="o", markersize=4)
    ax.axhline(node.full, color="#c0392b", linewidth=1.1, linestyle=(0, (4, 3)),
               label=f"all {node.around:,} edges within reach: {node.full:.3f}")  # fmt: skip
    ax.legend(fontsize=8, frameon=False, loc="lower right")
    plain(ax)
    ax.set_ylim(0, 1.03)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    labels(ax, "edges kept, in order of selection", f"probability of {shorten(node.label, 30)}")
    _listing(figure.add_subplot(grid[1, 1]), node)
    return figure


def _explained(a: Attribution) -> Explained:
    node = Explained.of(check(a))
    if node is None:
        raise InvalidInput("Expected the result of `greedypig explain-node` (got another).")
    return node


def _headline(node: Explained) -> str:
    truth = "" if node.truth in (None, node.label) else f" (its own class: {node.truth})"
    name, source = node.nodes[0].name, shorten(node.source, 30)
    return (
        f"node {name} of {source}: {shorten(node.label)}{truth}\n"
        f"{len(node.edges)} of the {node.around:,} edges within reach"
    )


def _rings(ax: Axes, rings: int) -> None:
    from matplotlib.patches import Circle

    for i in range(1, rings + 1):
        ax.add_patch(Circle((0, 0), ring(i, rings), fill=False, edgecolor=FAINT, linewidth=0.8,
                            zorder=0))  # fmt: skip


def _edges(ax: Axes, node: Explained, spots: Any) -> None:
    from matplotlib import colormaps

    count = max(len(node.edges), 2)
    for i, (u, v) in enumerate(node.edges):
        late = i / (count - 1)
        ax.plot(*spots[[u, v]].T, color=colormaps["cividis"](0.8 * late), zorder=1,
                linewidth=3.4 - 2.2 * late, solid_capstyle="round")  # fmt: skip
        # Two fifths from the outer end: numbers of edges that meet in the centre do not collide.
        outer, inner = (u, v) if node.nodes[u].hop >= node.nodes[v].hop else (v, u)
        x, y = 0.6 * spots[outer] + 0.4 * spots[inner]
        ax.text(x, y, str(i + 1), fontsize=7, color=INK, ha="center", va="center", zorder=3,
                bbox={"boxstyle": "round,pad=0.18", "facecolor": "white", "edgecolor": FAINT,
                      "linewidth": 0.6})  # fmt: skip


def _nodes(ax: Axes, node: Explained, spots: Any) -> None:
    shown: dict[str, Any] = {}
    inner = inner_nodes(node.hops, node.edges)
    for i, neighbour in enumerate(node.nodes):
        colour, mark = class_style(neighbour.kind)
        name = "class not known" if neighbour.kind is None else node.classes[neighbour.kind]
        size, rim, width = (420, INK, 2.4) if i == 0 else (130, "white", 0.9)
        dot = ax.scatter([spots[i][0]], [spots[i][1]], s=size, c=colour, marker=mark, zorder=4,
                         edgecolors=rim, linewidths=width)  # fmt: skip
        shown.setdefault(shorten(name, 32), dot)
        if i == 0:
            ax.text(0, -0.062, shorten(neighbour.name, 14), ha="center", va="top", fontsize=9,
                    zorder=5, fontweight="bold", color=INK, bbox=_halo())  # fmt: skip
            continue
        away = spots[i] / (np.hypot(*spots[i]) or 1)
        away = away[::-1] * (-1, 1) if i in inner else away
        x, y = spots[i] + 0.05 * away
        ax.text(x, y, shorten(neighbour.name, 14), fontsize=7.5, color=INK, zorder=5,
                ha="left" if away[0] > 0.25 else "right" if away[0] < -0.25 else "center",
                va="bottom" if away[1] > 0.25 else "top" if away[1] < -0.25 else "center",
                bbox=_halo())  # fmt: skip
    legend = ax.legend(list(shown.values()), list(shown), loc="lower left", fontsize=8,
                       frameon=True, framealpha=0.85, edgecolor="none")  # fmt: skip
    for handle in legend.legend_handles:
        handle.set_sizes([60])  # type: ignore[union-attr]


def _halo() -> dict[str, Any]:
    return {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def _listing(ax: Axes, node: Explained) -> None:
    ax.set_axis_off()
    lines = []
    for i, (u, v) in enumerate(node.edges[:16]):
        ends = " – ".join(shorten(node.nodes[e].name, 12) for e in (u, v))
        value = f"{node.values[i]:.3f}" if i < len(node.values) else ""
        lines.append(f"{i + 1:>2}. {ends}   {value}")
    left = len(node.edges) - len(lines)
    if left > 0:
        lines.append(f"… and {left} more")
    ax.text(0, 1, "\n".join(lines), va="top", fontsize=8.5, color=INK, transform=ax.transAxes)
