"""Pages of graphs: a compressed graph, and the edges that one node's prediction uses."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi, sin
from typing import Any

from ..core.attribution import Attribution
from ..results import verdicts
from ..results.curve import Curve
from ..results.graph_notes import MEASURES, Compression, Explained
from ..results.photo_notes import Notes
from ..results.wording import signed
from .chart import share_chart
from .parts import details
from .render import render

SHORT = {"agreement": "Agreement", "accuracy": "Accuracy", "g": "G"}
"""Measures as the heads of tables name them."""
REACH = 308
"""How far from the middle of a drawing nodes lie."""
SIDES = (0, 4, 3, -4, -3, 5, 6, 8)
"""Corners of a class's mark; 0 is a disc, a negative number stands on its corner."""


def compression_html(a: Attribution, notes: Notes, graph: Compression) -> str:
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
    higher = verdicts.excess_edges(graph)
    return render(
        "compression.html",
        {"charts": [chart.data for chart in charts], "explore": None},
        a=a,
        graph=graph,
        details=details(a, notes),
        eyebrow=[graph.source, graph.model],
        charts=charts,
        caution=[higher] if higher else [],
        agreed=graph.first.at("agreement", graph.keep) or 0.0,
        right=graph.first.at("accuracy", graph.keep),
        needed=[(title, share) for title, share in needed if share is not None],
        at_keep=_at_keep(graph),
    )


def _at_keep(graph: Compression) -> dict[str, Any]:
    """What each method's edges give at the share that was kept, and what it cost."""
    measures = [m for m in SHORT if m in graph.first.lines]
    rows = [
        [
            method.title,
            *(signed(method.at(m, graph.keep)) for m in measures),
            f"{method.gradients:,.0f}",
            f"{method.seconds:.1f}",
        ]
        for method in graph.methods
    ]
    rows.append(["all edges", *(signed(graph.full_value(m)) for m in measures), "–", "–"])
    return {"heads": ["", *(SHORT[m] for m in measures), "gradients", "seconds"], "rows": rows}


def node_html(a: Attribution, notes: Notes, node: Explained) -> str:
    """The page of one node's prediction."""
    charts = []
    values = [node.alone, *node.values]
    if node.values:
        points = ((i / len(node.values), v) for i, v in enumerate(values))
        lines = {node.label: Curve.from_points(points, "probability")}
        caption = f"Probability of {node.label} with only the first edges"
        charts.append(
            share_chart(
                "chart-node", caption, lines, node.full, word=f"{len(node.edges)} edges", plain=True
            )
        )
    higher = verdicts.excess_node(node)
    return render(
        "node.html",
        {
            "charts": [chart.data for chart in charts],
            "explore": None,
            "grow": {"values": values, "label": node.label, "full": node.full},
        },
        a=a,
        node=node,
        details=details(a, notes),
        eyebrow=[node.source, node.model],
        charts=charts,
        caution=[higher] if higher else [],
        drawing=_drawing(node),
        legend=_legend(node),
        edges=_edges(node),
        against=_against(node),
    )


def _edges(node: Explained) -> list[list[str]]:
    rows = []
    for i, pair in enumerate(node.edges):
        ends = [node.nodes[end] for end in pair]
        kinds = " – ".join("?" if n.kind is None else node.class_name(n) for n in ends)
        value = signed(node.values[i]) if i < len(node.values) else "–"
        rows.append([str(i + 1), " – ".join(n.name for n in ends), kinds, value])
    return rows


def _against(node: Explained) -> list[list[str]]:
    """The selected edges against random subgraphs."""
    rows = []
    if node.same is not None and "same" in node.random:
        shares = [f"{100 * share:.1f} %" for share in (node.same, node.random["same"])]
        rows.append(["selected nodes of the node’s class", *shares])
    if node.values and "kept" in node.random:
        numbers = [signed(node.values[-1]), signed(node.random["kept"])]
        rows.append([f"probability of {node.label}", *numbers])
    return rows


def _drawing(node: Explained) -> dict[str, Any]:
    """The subgraph: rings, edges with their numbers, nodes with their names."""
    spots, names, ranks, radii = node.drawing()
    reached = [0] * len(node.nodes)
    for i, pair in enumerate(node.edges, 1):
        for end in pair:
            reached[end] = reached[end] or (i if end else 0)
    last = max(len(node.edges) - 1, 1)
    edges = [
        {
            "ends": [REACH * place for end in pair for place in spots[end]],
            "late": i / last,
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
    spoken = "; ".join(f"{number}: {ends}" for number, ends, *_ in _edges(node))
    return {"rings": [REACH * r for r in radii], "edges": edges, "nodes": nodes, "spoken": spoken}


def _legend(node: Explained) -> list[tuple[str, dict[str, Any]]]:
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
