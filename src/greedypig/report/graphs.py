"""Pages of graphs: a compressed graph, and the edges that one node's prediction uses."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi, sin
from typing import Any

from ..core.attribution import Attribution
from ..results.graph_layout import radial_layout
from ..results.graph_notes import MEASURES, CompressionNotes, NodeNotes
from .chart import Chart, Level, Line, count_chart, share_chart
from .parts import details, first_features
from .render import render

REACH = 308
"""How far from the middle of a drawing nodes lie."""
SIDES = (0, 4, 3, -4, -3, 5, 6, 8)
"""Corners of a class's mark; 0 is a disc, a negative number stands on its corner."""


def compression_html(a: Attribution, graph: CompressionNotes) -> str:
    """The page of a compressed graph."""
    charts = []
    for measure, meaning in MEASURES.items():
        lines = {m.title: m.lines[measure] for m in graph.methods if measure in m.lines}
        if lines:
            caption = meaning[:1].upper() + meaning[1:]
            full, name = graph.full_value(measure), f"chart-{measure}"
            chart = share_chart(name, caption, lines, full, word="edges", plain=True, zoom=True)
            charts.append(replace(chart, keep=graph.keep))
    needed = [(m.title, graph.share_for(m, 0.99)) for m in graph.methods]
    context = {
        "graph": graph,
        "agreed": graph.first.at("agreement", graph.keep) or 0.0,
        "needed": [(title, share) for title, share in needed if share is not None],
        "at_keep": graph.rows(),
        "first": first_features(a),
    }
    return _page("compression.html", a, graph, charts, context)


def node_html(a: Attribution, node: NodeNotes) -> str:
    """The page of one node's prediction."""
    charts, values = [], [node.alone, *node.kept_probabilities]
    if node.kept_probabilities:
        chart = count_chart(
            "chart-node",
            f"Probability of {node.label} with only the first edges",
            "edges, in order of selection",
            [Line(node.label, list(enumerate(values)))],
            [Level("all edges", node.probability, f"{node.probability:.3f}")],
            "edges",
        )
        charts.append(chart)
    context = {"node": node, "drawing": _drawing(node), "legend": _legend(node)}
    context["edges"] = _edges(node)
    grow = {"values": values, "label": node.label, "full": node.probability}
    return _page("node.html", a, node, charts, context, grow=grow)


def _page(
    template: str,
    a: Attribution,
    graph: CompressionNotes | NodeNotes,
    charts: list[Chart],
    context: dict[str, Any],
    **data: Any,
) -> str:
    """A page with charts. data: what its script draws from besides them."""
    return render(
        template,
        {"charts": [chart.data for chart in charts], **data},
        a=a,
        details=details(a),
        eyebrow=[graph.source, graph.model],
        charts=charts,
        answer=graph.answer(),
        cautions=graph.cautions(),
        **context,
    )


def _edges(node: NodeNotes) -> list[list[str]]:
    rows = []
    for i, (pair, (edge, *values)) in enumerate(zip(node.edges, node.rows()[2:], strict=False)):
        ends = [node.nodes[end] for end in pair]
        kinds = " – ".join("?" if n.kind is None else node.class_name(n) for n in ends)
        rows.append([str(i + 1), edge, *[kinds] * node.labelled, *values])
    return rows


def _drawing(node: NodeNotes) -> dict[str, Any]:
    """The subgraph: rings, edges with their numbers, nodes with their names."""
    spots, names, ranks, radii = radial_layout(node.edges, len(node.nodes))
    reached = [0] * len(node.nodes)
    for i, pair in enumerate(node.edges, 1):
        for end in pair:
            reached[end] = reached[end] or (i if end else 0)
    last = max(len(node.edges) - 1, 1)
    rows = _edges(node)
    edges = [
        {
            "ends": [REACH * place for end in pair for place in spots[end]],
            "late": i / last,
            "tip": " · ".join(part for part in rows[i][1:] if part) if i < len(rows) else "",
            "number": (REACH * ranks[i][0], REACH * ranks[i][1] + 4),
        }
        for i, pair in enumerate(node.edges)
    ]
    nodes = [
        {
            "name": each.name if len(each.name) <= 14 else each.name[:13] + "…",
            "tip": f"{each.name}: {node.class_name(each)}",
            "mark": mark(each.kind, 10 if i else 17),
            "spot": (REACH * spots[i][0], REACH * spots[i][1]),
            "beside": names[i],
            "reached": reached[i],
        }
        for i, each in enumerate(node.nodes)
    ]
    spoken = "; ".join(f"{number}: {ends}" for number, ends, *_ in rows)
    return {"rings": [REACH * r for r in radii], "edges": edges, "nodes": nodes, "spoken": spoken}


def _legend(node: NodeNotes) -> list[tuple[str, dict[str, Any]]]:
    """The classes that are drawn, with their marks; last the nodes without one."""
    kinds = {n.kind: node.class_name(n) for n in node.nodes}
    known = sorted(kind for kind in kinds if kind is not None)
    return [(kinds[kind], mark(kind, 7)) for kind in [*known, *([None] if None in kinds else [])]]


def mark(kind: int | None, size: float) -> dict[str, Any]:
    """The mark of a class: a disc or a polygon, in the class's colour."""
    sides = 0 if kind is None else SIDES[(kind + kind // 8) % len(SIDES)]
    turn = -pi / 2 + (pi / abs(sides) if sides in (4, -3) else 0)
    reach = size * (1.3 if abs(sides) == 3 else 1.18)
    angles = [turn + 2 * pi * j / abs(sides) for j in range(abs(sides))]
    corners = " ".join(f"{reach * cos(t):.1f},{reach * sin(t):.1f}" for t in angles)
    style = "kind n-" if kind is None else f"kind n{kind % 8}"
    return {"style": style, "size": size, "corners": corners}
