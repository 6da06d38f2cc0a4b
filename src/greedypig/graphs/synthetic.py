"""Generated graphs with communities: any size, the same for the same seed, and they say so.

A degree-corrected stochastic block model: an end of an edge falls on a node in proportion to its
weight (a power law), the other end within the same class with probability
`homophily`, else anywhere. Features are the class's own centre plus noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidInput
from ..core.numbers import check_between, check_count
from .graph import Graph, make_graph

ARXIV = {"nodes": 169_343, "edges": 1_166_243, "features": 128, "classes": 40}
"""The size of ogbn-arxiv."""
SPLIT = (0.54, 0.18)
"""Shares of training and validation nodes, as in ogbn-arxiv; the rest are for testing."""


def generate(
    nodes: int = 1000,
    edges: int = 5000,
    features: int = 32,
    classes: int = 5,
    *,
    homophily: float = 0.7,
    exponent: float = 2.5,
    signal: float = 1.0,
    labels_per_class: int | None = None,
    seed: int = 0,
) -> Graph:
    """A generated graph.

    homophily: probability that an edge is drawn within a class (others may fall there by chance).
    exponent: of the power law of degrees, above 2.
    signal: length of a class's centre, in standard deviations of a feature's noise.
    labels_per_class: training nodes of each class; None trains on 54 % of the nodes.
    """
    sizes = {"nodes": nodes, "edges": edges, "features": features, "classes": classes}
    for name, size in sizes.items():
        check_count(name, size)
    most = nodes * (nodes - 1) // 4
    if nodes < 4 or not 2 <= classes <= nodes or edges > most:
        raise InvalidInput(
            f"Expected at least 4 nodes, 2 to {nodes:,} classes and at most {most:,} edges for "
            f"{nodes:,} nodes (got {classes:,} and {edges:,})."
        )
    check_between("homophily", homophily, 0, 1)
    if exponent <= 2:
        raise InvalidInput(f"Expected an exponent above 2 (got {exponent!r}). Try 2.5.")
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(classes, size=nodes - classes)])
    rng.shuffle(y)
    weights = (1 - rng.random(nodes)) ** (-1 / (exponent - 1))
    # No node is expected to have an edge to every other.
    weights = np.minimum(weights, np.sqrt(nodes) * weights.mean())
    pairs = _pairs(rng, weights, y, edges, homophily)
    centres = rng.standard_normal((classes, features), dtype=np.float32)
    centres *= signal / np.linalg.norm(centres, axis=1, keepdims=True)
    x = rng.standard_normal((nodes, features), dtype=np.float32)
    x += centres[y]
    train, val, test = _split(rng, y, labels_per_class)
    note = (
        f"This graph is generated: a power-law block model (exponent {exponent:g}), homophily "
        f"{homophily:g}, seed {seed}."
    )
    name = f"generated-{nodes}-{edges}"
    return make_graph(x, pairs, y, train=train, val=val, test=test, name=name, notes=[note])


def _pairs(
    rng: np.random.Generator,
    weights: NDArray[np.float64],
    y: NDArray[np.int64],
    edges: int,
    homophily: float,
) -> NDArray[np.int64]:
    """(2, edges) different pairs u < v; drawn in rounds until there are enough."""
    nodes = len(y)
    by_class = np.argsort(y, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[by_class])])
    firsts = np.searchsorted(y[by_class], np.arange(y.max() + 2))
    low, high = total[firsts[:-1]], total[firsts[1:]]

    def draw(start: NDArray[np.float64], stop: NDArray[np.float64], size: int) -> NDArray[np.int64]:
        at = np.searchsorted(total, start + (stop - start) * rng.random(size), side="right") - 1
        ends: NDArray[np.int64] = by_class[np.clip(at, 0, nodes - 1)]
        return ends

    keys = np.empty(0, dtype=np.int64)
    for _ in range(60):
        size = int(1.3 * (edges - len(keys))) + 16
        u = draw(np.zeros(size), np.full(size, total[-1]), size)
        inside = rng.random(size) < homophily
        v = draw(np.where(inside, low[y[u]], 0.0), np.where(inside, high[y[u]], total[-1]), size)
        new = np.minimum(u, v) * nodes + np.maximum(u, v)
        both = np.concatenate([keys, new[u != v]])
        # By first appearance: sorted keys would drop the largest ones of the last round.
        _, first = np.unique(both, return_index=True)
        keys = both[np.sort(first)][:edges]
        if len(keys) == edges:
            return np.stack([keys // nodes, keys % nodes])
    raise InvalidInput(
        f"Expected room for {edges:,} different edges among {nodes:,} nodes (got {len(keys):,}). "
        "Try fewer edges, or a larger exponent."
    )


def _split(
    rng: np.random.Generator, y: NDArray[np.int64], per_class: int | None
) -> list[NDArray[np.int64]]:
    """Node ids of train, val and test."""
    order = rng.permutation(len(y))
    if per_class is None:
        return np.split(order, np.cumsum([max(int(share * len(y)), 1) for share in SPLIT]))
    chosen = np.zeros(len(y), dtype=bool)
    for c in np.unique(y):
        chosen[order[y[order] == c][:per_class]] = True
    rest = order[~chosen[order]]
    return [order[chosen[order]], *np.split(rest, [max(len(rest) // 4, 1)])]
