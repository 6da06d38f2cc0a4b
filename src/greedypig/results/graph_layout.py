"""Where the nodes of a small graph are drawn: a centre, and every other node in its hop's ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Edges = Sequence[tuple[int, int]]


def hops_from(start: int, edges: Edges, count: int) -> list[int]:
    """Steps from a node along edges; unreachable nodes are one hop beyond all others."""
    hops = [-1] * count
    hops[start] = 0
    front = {start}
    while front:
        depth = hops[next(iter(front))] + 1
        near = {v for u, v in edges if u in front} | {u for u, v in edges if v in front}
        front = {node for node in near if hops[node] < 0}
        for node in front:
            hops[node] = depth
    last = max(hops) + 1
    return [last if hop < 0 else hop for hop in hops]


def places(hops: Sequence[int], edges: Edges) -> NDArray[np.float64]:
    """(nodes, 2) within the unit disc: node 0 in the middle, every node in its hop's ring.

    The edge that first reached a node makes it a child of the other end. A child lies in its
    parent's sector, and a sector is as wide as the number of ends of its branch.
    """
    children = _children(hops, edges)
    ends = _ends(children)
    rings = max(hops, default=1) or 1
    spots = np.zeros((len(hops), 2))
    sectors = [(0, 0.0, 2 * np.pi)]
    while sectors:
        node, start, width = sectors.pop()
        if node:
            angle, radius = start + width / 2, ring(hops[node], rings)
            spots[node] = radius * np.cos(angle), radius * np.sin(angle)
        total = sum(ends[child] for child in children[node])
        for child in children[node]:
            part = width * ends[child] / total
            sectors.append((child, start, part))
            start += part
    return spots


def ring(hop: int, rings: int) -> float:
    """Radius of a hop's ring: the inner ones get a little more room, as all edges meet there."""
    return float((hop / rings) ** 0.8)


def inner_nodes(hops: Sequence[int], edges: Edges) -> set[int]:
    """Nodes from which an edge leads further out: their names lie beside them, not beyond."""
    return {a for u, v in edges for a, b in ((u, v), (v, u)) if hops[b] > hops[a]}


def _children(hops: Sequence[int], edges: Edges) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {i: [] for i in range(len(hops))}
    placed = {0}
    for u, v in [*edges, *((0, i) for i in range(len(hops)))]:  # Unreached nodes come last.
        for parent, child in ((u, v), (v, u)):
            if parent in placed and child not in placed and hops[child] > hops[parent]:
                children[parent].append(child)
                placed.add(child)
    children[0] += [i for i in range(len(hops)) if i not in placed]
    return children


def _ends(children: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """How many ends every branch has."""
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(children[node])
    counts: dict[int, int] = {}
    for node in reversed(order):
        counts[node] = sum(counts[child] for child in children[node]) or 1
    return counts
