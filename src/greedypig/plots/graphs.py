"""Figures of graphs: a compressed graph, and the edges that one node's prediction uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.attribution import Attribution
from ..results.graph_layout import radial_layout
from ..results.graph_notes import MEASURES, CompressionNotes, NodeNotes
from ..results.kinds import notes_of
from ..results.wording import percent
from .canvas import (
    COLOURS,
    FAINT,
    INK,
    KEY,
    SOFT,
    Style,
    check,
    heading,
    labels,
    level,
    line_styles,
    new_figure,
    percent_ticks,
    plain,
    shorten,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHAPES = ("o", "s", "^", "D", "v", "p", "h", "P")
"""Marks of classes, so that colours are not needed to tell them apart."""
HALO: Style = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
TEXT: Style = {"fontsize": 7.5, "color": INK, "zorder": 5, "bbox": HALO}
"""The names of nodes and the numbers of edges."""


def class_style(index: int | None) -> tuple[str, str]:
    """(colour, marker) of a class: eight colours, then the same with another mark."""
    if index is None:
        return "#9a9fab", "o"
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
    expected = "the result of a compressed graph"
    graph: CompressionNotes = notes_of(check(a), "graph-compression", expected)
    panels = []
    for measure, meaning in MEASURES.items():
        lines = {m.title: m.lines[measure] for m in graph.methods if measure in m.lines}
        bands = {t: Band(c.fractions.tolist(), c.values.tolist()) for t, c in lines.items()}
        if bands:
            panels.append(BandPanel("", meaning, bands, graph.full_value(measure), graph.keep))
    facts = graph.graph
    name = f"{graph.source}: {facts.nodes:,} nodes, {facts.edges:,} edges, {graph.model}"
    generated = " ".join(text for text in facts.notes if "generated" in text)
    return band_sheet([panels], title=f"{name}  {generated}".strip())


def band_sheet(rows: Sequence[Sequence[BandPanel]], *, title: str = "") -> Figure:
    """Diagrams in rows; a name has one colour, mark and dash in all of them."""
    names = list(dict.fromkeys(n for row in rows for panel in row for n in panel.bands))
    across = max(len(row) for row in rows)
    # Wide enough for the title and the names below, however few panels there are.
    figure = new_figure(max(4.3 * across, 9.5), 3.5 * len(rows) + 0.9)
    axes = figure.subplots(len(rows), across, squeeze=False)
    legend: dict[str, Any] = {}
    for line, row in zip(axes, rows, strict=True):
        for ax in line[len(row) :]:
            ax.set_axis_off()
        for ax, panel in zip(line, row, strict=False):
            _bands(ax, panel, names)
            handles, texts = ax.get_legend_handles_labels()
            legend |= dict(zip(texts, handles, strict=True))
    key = KEY | {"loc": "outside lower center", "ncols": len(legend)}
    figure.legend(list(legend.values()), list(legend), **key)
    if title:
        heading(figure, shorten(title, 150), 11)
    return figure


def _bands(ax: Axes, panel: BandPanel, names: Sequence[str]) -> None:
    styles = dict(zip(names, line_styles(names), strict=True))
    values = [v for band in panel.bands.values() for v in band.values]
    for name, band in panel.bands.items():
        look = styles[name] | {"marker": SHAPES[names.index(name) % len(SHAPES)], "markersize": 3.6}
        ax.plot(band.shares, band.values, linewidth=1.9, label=name, **look)
        if band.errors is not None:
            middle, error = np.asarray(band.values), np.asarray(band.errors)
            area: Style = {"color": look["color"], "alpha": 0.18, "linewidth": 0}
            ax.fill_between(band.shares, middle - error, middle + error, **area)
    if panel.full is not None:
        level(ax, panel.full, "all edges", (4, 3))
        values.append(panel.full)
    if panel.keep is not None:
        label = f"kept: {percent(panel.keep)}"
        ax.axvline(panel.keep, color=SOFT, linewidth=1.1, linestyle=(0, (1, 2)), label=label)
    plain(ax)
    ax.set_xlim(0, 1)
    room = 0.06 * (max(values) - min(values)) or 0.05
    ax.set_ylim(min(values) - room, max(values) + room)
    percent_ticks(ax)
    labels(ax, "share of the edges kept", panel.quantity)
    title(ax, panel.title)


def node_panel(a: Attribution) -> Figure:
    """A node, the edges that its prediction uses, and the probability with the first of them.

    Edges are numbered in order of selection; early ones are dark and thick. Rings are steps from
    the node. Colour and mark of a node tell its class.
    """
    node: NodeNotes = notes_of(check(a), "graph-node", "the result of an explained node")
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(12.8, 7.2)
    left, ax = figure.subplots(1, 2, width_ratios=(1.5, 1))
    _subgraph(left, node)
    values = [node.alone, *node.kept_probabilities]
    ax.plot(range(len(values)), values, color=COLOURS[0], marker="o", markersize=4)
    level(ax, node.probability, f"all edges: {node.probability:.3f}", (4, 3))
    ax.legend(**KEY, loc="lower right")
    plain(ax)
    ax.set_ylim(0, 1.03)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    labels(ax, "edges kept, in order of selection", f"probability of {shorten(node.label, 30)}")
    return figure


def _subgraph(ax: Axes, node: NodeNotes) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Circle

    spots, names, ranks, radii = radial_layout(node.edges, len(node.nodes))
    for radius in radii:
        ax.add_patch(Circle((0, 0), radius, fill=False, edgecolor=FAINT, zorder=0))
    last = max(len(node.edges) - 1, 1)
    cividis = colormaps["cividis"]
    for i, (u, v) in enumerate(node.edges):
        late = i / last
        ends = zip(spots[u], spots[v], strict=True)
        ax.plot(*ends, color=cividis(0.8 * late), linewidth=3.4 - 2.2 * late, zorder=1)
        ax.text(*ranks[i], str(i + 1), **TEXT, ha="center", va="center")
    legend: dict[str, Any] = {}
    for i, each in enumerate(node.nodes):
        colour, mark = class_style(each.kind)
        (x, y), (dx, dy) = spots[i], names[i]
        rim: Style = {"s": 130, "edgecolors": "white"} if i else {"s": 420, "edgecolors": INK}
        dot = ax.scatter([x], [y], c=colour, marker=mark, zorder=4, linewidths=1.5, **rim)
        legend.setdefault(shorten(node.class_name(each), 32), dot)
        across = "left" if dx > 0.25 else "right" if dx < -0.25 else "center"
        up = "bottom" if dy > 0.25 else "top" if dy < -0.25 or i == 0 else "center"
        place = (x + 0.05 * dx, y + 0.05 * dy) if i else (0.0, -0.062)
        ax.text(*place, shorten(each.name, 14), **TEXT, ha=across, va=up)
    key = ax.legend(list(legend.values()), list(legend), loc="lower left", **KEY)
    for handle in key.legend_handles:
        handle.set_sizes([60])  # type: ignore[union-attr]
    ax.set_aspect("equal")
    ax.set_xlim(-1.22, 1.22)
    ax.set_ylim(-1.2, 1.2)
    ax.set_axis_off()
    own = shorten(node.truth or node.label)
    truth = "" if own == shorten(node.label) else f" (its own class: {own})"
    of = f" of {shorten(node.source, 30)}" if node.source else ""
    head = f"node {shorten(node.centre.name, 30)}{of}: {shorten(node.label)}{truth}"
    title(ax, f"{head}\n{len(node.edges)} of the {node.around:,} edges within reach")
