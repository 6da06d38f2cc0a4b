"""Pages of graphs: a compressed graph, and the edges that one node's prediction uses."""

from __future__ import annotations

from math import cos, pi, sin
from typing import Any

from ..core.attribution import Attribution
from ..results import verdicts
from ..results.curve import Curve
from ..results.graph_notes import MEASURES, Compression, Explained, inner_nodes, places, ring
from ..results.photo_notes import Notes
from ..results.wording import percent
from .chart import Chart, legend, line_chart
from .markup import escape, page, table
from .sections import made
from .words import how_selected

SIDES = (0, 4, 3, -4, -3, 5, 6, 8)
"""Corners of a class's mark; 0 is a disc, a negative number stands on its corner."""
WIDE, REACH = 720, 308
"""Width of a drawing, and how far from its middle nodes lie."""
SHORT = {"agreement": "Agreement", "accuracy": "Accuracy", "g": "G"}
"""Measures as the heads of tables name them."""


def graph_html(a: Attribution) -> str | None:
    """The page of a result about a graph; None for other results."""
    compressed = Compression.of(a)
    if compressed is not None:
        return _compression(a, compressed)
    explained = Explained.of(a)
    return None if explained is None else _node(a, explained)


def _page(
    a: Attribution, *, name: str, parts: tuple[str, ...], title: str, lead: str, body: str,
    charts: list[Chart], grow: Any = None,
) -> str:  # fmt: skip
    data = {"charts": [c.data for c in charts], "explore": None, "grow": grow}
    return page(
        a, name=name, eyebrow=parts, title=title, lead=lead, main=body + made(a, Notes.of(a)),
        closing=how_selected(a, "Edges"), data=data,
    )  # fmt: skip


def _compression(a: Attribution, found: Compression) -> str:
    charts = []
    for measure, meaning in MEASURES.items():
        lines = [m.lines[measure] for m in found.methods if measure in m.lines]
        if lines:
            titles = [m.title for m in found.methods if measure in m.lines]
            full = 1.0 if measure == "agreement" else found.full.get(measure)
            charts.append(line_chart(f"chart-{measure}", lines, titles, quantity=_capital(meaning),
                                     full=full, word="edges", zoom=True, plain=True,
                                     keep=found.keep))  # fmt: skip
    first = found.first
    line = first.lines["agreement"]
    agreed = line.get(found.keep) or 0.0
    right = first.lines["accuracy"].get(found.keep) if "accuracy" in first.lines else None
    lead = (
        f"<b>{found.kept:,}</b> of {found.edges:,} edges were kept. With them <b>{_share(agreed)}"
        f"</b> of the {found.nodes:,} nodes keep the prediction of the full graph"
    )
    if right is not None:
        lead += f"; accuracy is <b>{right:.3f}</b>, with all edges {found.full['accuracy']:.3f}"
    needs = [(m.title, found.share_for(m, 0.99)) for m in found.methods]
    shares = [f"{escape(t)} {_tied(s)}" for t, s in needs if s is not None]
    lead += f". To agree on 99 % of the nodes takes {', '.join(shares)} of the edges."
    drawn = "".join(c.svg for c in charts) + _at_keep(found)
    hint = '<p class="note">Point at a chart to read the values at a share.</p>'
    remarks = "".join(f'<p class="note">{escape(note)}</p>' for note in found.notes)
    explained = (
        '<p class="note">The network gets only the kept edges; degrees are those of the smaller '
        "graph. Accuracy is of the few test nodes; agreement and G are of all nodes and show "
        "smaller differences.</p>"
    )
    body = (
        f"{_higher(found)}"
        f"<section><h2>Over the share of edges kept</h2>{hint}"
        f'<div class="trio">{drawn}</div></section>'
        f"<section><h2>In numbers</h2>{explained}{_table(found)}{remarks}</section>"
    )
    return _page(
        a, name=f"{found.source} · compressed · greedypig",
        parts=(found.source, found.model),
        title=f"What {_tied(found.keep)} of the edges keep", lead=lead, body=body, charts=charts,
    )  # fmt: skip


def _higher(found: Compression) -> str:
    """The warning that some of the edges give a higher G than all of them, if they do."""
    excess = found.excess()
    if excess is None:
        return ""
    share, value = excess
    sentence = verdicts.higher(f"{_tied(share)} of the edges", _signed(value), "all edges",
                               _signed(found.full["g"]), quantity="G")  # fmt: skip
    return _warning(f"{sentence}. Compare methods by agreement and accuracy.")


def _warning(text: str) -> str:
    return f'<div class="warn" role="note"><p>{escape(text)}</p></div>'


def _at_keep(found: Compression) -> str:
    """The charts' numbers at the share that was kept, in the place beside them."""
    measures = {m: s for m, s in SHORT.items() if any(m in k.lines for k in found.methods)}
    rows = []
    for method in found.methods:
        lines = [method.lines.get(m) for m in measures]
        values = [None if line is None else line.get(found.keep) for line in lines]
        rows.append([escape(method.title), *("–" if v is None else _signed(v) for v in values)])
    full = {**found.full, "agreement": 1.0}
    rows.append(["all edges", *(_signed(full[m]) if m in full else "–" for m in measures)])
    heads = ["", *measures.values()]
    caption = f"With {percent(found.keep)} of the edges"
    return f'<div class="beside">{table(heads, rows, caption=caption)}</div>'


def _table(found: Compression) -> str:
    tables = []
    for measure, short in SHORT.items():
        methods = [m for m in found.methods if measure in m.lines]
        if not methods:
            continue
        rows = []
        for i, share in enumerate(methods[0].lines[measure].fractions.tolist()):
            edges = f"{methods[0].edges[i]:,}" if i < len(methods[0].edges) else "–"
            values = [m.lines[measure].get(share) for m in methods]
            cells = ["–" if v is None else _signed(v) for v in values]
            mark = ("<b>", "</b>") if share == found.keep else ("", "")
            rows.append([f"{mark[0]}{_tied(share)}{mark[1]}", edges, *cells])
        heads = ["kept", "edges", *(escape(m.title) for m in methods)]
        body = table(heads, rows, caption=_capital(MEASURES[measure]))
        state = " open" if measure == "agreement" else ""
        tables.append(f"<details{state}><summary>{short}</summary>{body}</details>")
    cost = [
        [
            escape(m.title),
            f"{m.numbers.get('gradients', 0):,.0f}",
            f"{m.numbers.get('seconds', 0):.1f}",
        ]
        for m in found.methods
    ]
    paid = table(["method", "gradients", "seconds"], cost, caption="What each method cost")
    return "".join(tables) + paid


def _node(a: Attribution, found: Explained) -> str:
    charts = []
    if found.values:
        line = Curve.from_points(
            ((i / len(found.values), v) for i, v in enumerate([found.alone, *found.values])),
            "probability",
        )
        charts.append(line_chart("chart-node", [line], [found.label],
                                 quantity=f"Probability of {found.label} with only the first edges",
                                 full=found.full, word="edges shown", plain=True))  # fmt: skip
    lead = _node_lead(found)
    control = ""
    if found.edges:
        control = (
            '<div class="control"><label for="grow">Edges shown</label><div class="slide">'
            f'<input type="range" id="grow" min="0" max="{len(found.edges)}" '
            f'value="{len(found.edges)}"></div><output id="grown" for="grow"></output></div>'
        )
    note = (
        '<p class="note">Rings are steps from the node; numbers are the order of selection; early '
        "edges are thick. Colour and shape show a node’s class.</p>"
    )
    drawn = "".join(c.svg for c in charts)
    body = (
        f"{_higher_alone(found)}"
        f'<div class="columns"><div><section><h2>The selected edges</h2>{note}{drawing(found)}'
        f"{_legend(found)}{control}</section>"
        f"<section><h2>Probability</h2>{drawn}{_against(found)}</section></div><div>"
        f"<section><h2>In order of selection</h2>{_edge_table(found)}</section></div></div>"
    )
    grow = {"values": [found.alone, *found.values], "label": found.label, "full": found.full}
    name = found.nodes[0].name
    return _page(
        a, name=f"node {name} · {found.source} · greedypig",
        parts=(found.source, found.model),
        title=f"Why “{escape(found.label)}” for node {escape(name)}? "
        f'<span class="sure">{found.full:.3f}</span>',
        lead=lead, body=body, charts=charts, grow=grow,
    )  # fmt: skip


def _node_lead(found: Explained) -> str:
    label = escape(found.label)
    if not found.edges:
        return (
            f"The node has no edge within the network’s depth. Its own features alone give "
            f"<b>{label}</b> with <b>{found.full:.3f}</b>."
        )
    text = (
        f"With only <b>{len(found.edges)}</b> of the {found.around:,} edges around the node, the "
        f"network predicts <b>{label}</b> with <b>{found.values[-1]:.3f}</b>; with all of them "
        f"{found.full:.3f}, without any {found.alone:.3f}."
    )
    if found.note:
        text += f" {escape(found.note)}"
    if found.truth is not None and found.truth != found.label:
        text += f" The node’s own class is {escape(found.truth)}."
    return text


def _higher_alone(found: Explained) -> str:
    """The warning that the first edges give a higher probability than all of them, if they do."""
    excess = found.excess()
    if excess is None:
        return ""
    edges, value = excess
    part = {0: "No edges", 1: "The first edge"}.get(edges, f"The first {edges} edges")
    sentence = verdicts.higher(part, f"{value:.3f}", "all edges", f"{found.full:.3f}",
                               verb="gives" if edges == 1 else "give")  # fmt: skip
    why = " The prediction uses the node’s own features and does not need these edges."
    return _warning(f"{sentence}.{why if edges == 0 else ''}")


def _against(found: Explained) -> str:
    rows = []
    if found.same is not None and "same" in found.random:
        rows.append(["selected nodes of the node’s class", _share(found.same),
                     _share(found.random["same"])])  # fmt: skip
    if found.values and "kept" in found.random:
        rows.append([f"probability of {escape(found.label)}", f"{found.values[-1]:.3f}",
                     f"{found.random['kept']:.3f}"])  # fmt: skip
    if not rows:
        return ""
    return table(
        ["", "these edges", "random subgraphs"], rows, caption="Compared with random subgraphs"
    )


def _edge_table(found: Explained) -> str:
    rows = []
    for i, (u, v) in enumerate(found.edges):
        ends = [found.nodes[u], found.nodes[v]]
        kinds = " – ".join("?" if n.kind is None else escape(found.classes[n.kind]) for n in ends)
        names = " – ".join(escape(n.name) for n in ends)
        value = f"{found.values[i]:.3f}" if i < len(found.values) else "–"
        rows.append([str(i + 1), names, kinds, value])
    heads = ["", "edge", "classes", f"{escape(found.label)} then"]
    return table(heads, rows, caption="Edges", words=3)


def _legend(found: Explained) -> str:
    kinds = sorted({n.kind for n in found.nodes if n.kind is not None})
    items: list[tuple[str, str, str | None]] = [
        (mark(kind, 7), found.classes[kind], None) for kind in kinds
    ]
    if any(n.kind is None for n in found.nodes):
        items.append((mark(None, 7), "class not known", None))
    return legend(items, "-9 -9 18 18")


def drawing(found: Explained) -> str:
    """The subgraph as SVG: rings, edges with their numbers, nodes."""
    spots = REACH * places(found.hops, found.edges)
    rings = max((n.hop for n in found.nodes), default=0)
    parts = [
        f'<circle class="ring" r="{REACH * ring(i, rings):.1f}"/>' for i in range(1, rings + 1)
    ]
    reached = [0] * len(found.nodes)
    count = max(len(found.edges) - 1, 1)
    lines, numbers = [], []
    for i, (u, v) in enumerate(found.edges):
        for end in (u, v):
            if end and not reached[end]:
                reached[end] = i + 1
        (x1, y1), (x2, y2) = spots[u], spots[v]
        late = i / count
        lines.append(
            f'<line class="bond" data-edge="{i + 1}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" '
            f'y2="{y2:.1f}" stroke-width="{6 - 4 * late:.1f}" '
            f'stroke-opacity="{1 - 0.55 * late:.2f}"/>'
        )
        outer, other = (u, v) if found.nodes[u].hop >= found.nodes[v].hop else (v, u)
        x, y = 0.6 * spots[outer] + 0.4 * spots[other]
        numbers.append(f'<text class="rank" data-edge="{i + 1}" x="{x:.1f}" y="{y + 4:.1f}">'
                       f"{i + 1}</text>")  # fmt: skip
    inner = inner_nodes(found.hops, found.edges)
    dots = [_dot(found, i, spots[i], reached[i], i in inner) for i in range(len(found.nodes))]
    half = WIDE / 2
    spoken = "; ".join(
        f"{i + 1}: {found.nodes[u].name} to {found.nodes[v].name}"
        for i, (u, v) in enumerate(found.edges)
    )
    return (
        f'<svg class="net" viewBox="{-half} {-half} {WIDE} {WIDE}" role="img" aria-label="'
        f'{escape(f"Node {found.nodes[0].name} and its edges in order of selection. {spoken}")}">'
        f"{''.join(parts + lines + numbers + dots)}</svg>"
    )


def _dot(found: Explained, i: int, spot: Any, reached: int, inner: bool) -> str:
    node = found.nodes[i]
    x, y = spot
    kind = "class not known" if node.kind is None else found.classes[node.kind]
    tip = f"<title>{escape(node.name)}: {escape(kind)}</title>"
    centre = i == 0
    shape = mark(node.kind, 17 if centre else 10, " centre" if centre else "")
    name = node.name if len(node.name) <= 14 else node.name[:13] + "…"
    if centre:
        label = f'<text class="who" y="34">{escape(name)}</text>'
    else:
        size = (x * x + y * y) ** 0.5 or 1.0
        dx, dy = (-y / size, x / size) if inner else (x / size, y / size)
        anchor = "start" if dx > 0.25 else "end" if dx < -0.25 else "middle"
        label = (f'<text class="who" text-anchor="{anchor}" x="{16 * dx:.1f}" '
                 f'y="{16 * dy + 4 + 6 * dy:.1f}">{escape(name)}</text>')  # fmt: skip
    return (f'<g class="spot" data-edge="{reached}" transform="translate({x:.1f} {y:.1f})">'
            f"{tip}{shape}{label}</g>")  # fmt: skip


def mark(kind: int | None, size: float, more: str = "") -> str:
    """The mark of a class: a disc or a polygon, in the class's colour."""
    if kind is None:
        return f'<circle class="kind n-{more}" r="{size}"/>'
    sides = SIDES[(kind + kind // 8) % len(SIDES)]
    style = f"kind n{kind % 8}{more}"
    if sides == 0:
        return f'<circle class="{style}" r="{size}"/>'
    turn = -pi / 2 + (pi / abs(sides) if (sides == 4 or sides < 0) and sides != -4 else 0)
    reach = size * (1.3 if abs(sides) == 3 else 1.18)
    corners = " ".join(
        f"{reach * cos(turn + 2 * pi * j / abs(sides)):.1f},"
        f"{reach * sin(turn + 2 * pi * j / abs(sides)):.1f}"
        for j in range(abs(sides))
    )
    return f'<polygon class="{style}" points="{corners}"/>'


def _tied(share: float) -> str:
    return percent(share).replace(" ", "\u00a0")


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _share(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
