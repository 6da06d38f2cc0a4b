"""A subgraph as a drawing: node 0 is the centre, every other node lies in the ring of its hop."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin
from typing import NamedTuple


class Drawing(NamedTuple):
    """A subgraph laid out within the unit disc."""

    spots: list[tuple[float, float]]
    """Each node's place."""
    names: list[tuple[float, float]]
    """The direction from a node to its name: outwards, or beside the edges that lead outwards."""
    ranks: list[tuple[float, float]]
    """The place of each edge's number."""
    radii: list[float]
    """The rings of the hops."""


def hops_from(start: int, edges: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Steps from a node along edges; unreachable nodes are one hop beyond all others."""
    hops = {start: 0}
    front = {start}
    while front:
        near = {b for u, v in edges for a, b in ((u, v), (v, u)) if a in front} - hops.keys()
        hops |= dict.fromkeys(near, max(hops.values()) + 1)
        front = near
    beyond = max(hops.values()) + 1
    return [hops.get(node, beyond) for node in range(count)]


def _radius(hop: int, rings: int) -> float:
    """Radius of a hop's ring: the inner ones get a little more room, as all edges meet there."""
    return float((hop / max(rings, 1)) ** 0.8)


def radial_layout(edges: Sequence[tuple[int, int]], count: int) -> Drawing:
    """Where nodes, their names and the numbers of edges are drawn, within the unit disc.

    edges: pairs of the nodes 0 to `count` − 1, in order of selection.

    The edge that first reached a node makes it a child of the other end. A child lies in its
    parent's sector, and a sector is as wide as the number of ends of its branch.
    """
    hops = hops_from(0, edges, count)
    parents: dict[int, int] = {}
    for u, v in edges:
        outer, inner = (u, v) if hops[u] > hops[v] else (v, u)
        if hops[outer] > hops[inner]:
            parents.setdefault(outer, inner)
    children: list[list[int]] = [[] for _ in hops]
    for node in sorted(range(1, len(hops)), key=lambda node: node not in parents):
        children[parents.get(node, 0)].append(node)
    spots, names = [(0.0, 0.0)] * len(hops), [(0.0, 0.0)] * len(hops)

    def ends(node: int) -> int:
        return sum(map(ends, children[node])) or 1

    def spread(node: int, start: float, width: float) -> None:
        angle, radius = start + width / 2, _radius(hops[node], max(hops))
        spots[node] = radius * cos(angle), radius * sin(angle)
        beside = angle + (pi / 2 if children[node] else 0)
        names[node] = cos(beside), sin(beside)
        for child in children[node]:
            part = width * ends(child) / ends(node)
            spread(child, start, part)
            start += part

    spread(0, 0.0, 2 * pi)
    ranks = []
    for edge in edges:
        (x, y), (x2, y2) = (spots[end] for end in sorted(edge, key=lambda end: -hops[end]))
        # Two fifths from the outer end: edges that meet in the centre keep their numbers apart.
        ranks.append((0.6 * x + 0.4 * x2, 0.6 * y + 0.4 * y2))
    radii = [_radius(hop, max(hops)) for hop in range(1, max(hops) + 1)]
    return Drawing(spots, names, ranks, radii)
