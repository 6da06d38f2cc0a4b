"""Facts about an explained node: the class's probability after each edge, and the nodes reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.objective import Objective
from ..network.names import class_names, model_name
from ..results.graph_notes import DrawnNode, NodeFacts
from ..results.labels import edge_ends
from .edge_model import EdgeModel
from .objectives import NodeTarget
from .subgraph import Neighbourhood, NodeObjective

ROUNDING = 5e-4
"""Probabilities are shown in three decimals."""


def node_facts(
    model: Callable[..., Any],
    a: Attribution,
    around: Neighbourhood,
    edges: EdgeModel,
    output: Tensor,
    removing: bool,
    note: str,
) -> NodeFacts:
    """The facts of a run around one node.

    The probability of the explained class is measured like G: on the whole graph with all edges
    but the first 0, 1, 2, … removed. output: the network's on the part of the graph that the node
    depends on, with all edges.
    """
    node, target = int(a.settings["node"]), int(a.settings["target"])
    aim = NodeTarget("softmax", output, nodes=around.centres, target=target)
    g = NodeObjective.of(edges.objective(aim), around.reaching, removing, both=False)
    probabilities, full = _line(a, g, output), float(aim.value(output))
    if a.selected and a.selected == a.features.count and abs(probabilities[-1] - full) > ROUNDING:
        note += (
            f" The edges within reach alone give {probabilities[-1]:.3f}, the whole graph "
            f"{full:.3f}: edges further away count too, at least in the degrees of nodes."
        )
    pairs = _pairs(a)
    nodes = tuple(dict.fromkeys([node, *(end for pair in pairs for end in pair)]))
    classes = class_names(model, aim.logits(output).shape[1])
    values: list[float | None] = [None] * (a.selected + 1)
    for count, value in zip(torch.tensor([0, *a.picks]).cumsum(0), a.values.tolist(), strict=True):
        values[int(count)] = value
    return NodeFacts(
        model=model_name(model),
        objective=a.settings["objective"],
        note=note.strip(),
        node=node,
        label=classes[target],
        target=target,
        probability=full,
        alone=probabilities[0],
        kept_probabilities=tuple(probabilities[1:]),
        g=tuple(values) if pairs else (),
        g_full=a.full_value if isfinite(a.full_value) else None,
        nodes=tuple(DrawnNode(id, str(id)) for id in nodes),
        edges=tuple((nodes.index(u), nodes.index(v)) for u, v in pairs),
        around=a.features.count,
        hops=a.settings["hops"],
        classes=tuple(classes),
    )


def _line(a: Attribution, g: Objective, like: Tensor) -> list[float]:
    """g with the first 0, 1, 2, … selected features."""
    taken = torch.zeros(a.selected + 1, a.features.count, dtype=torch.bool, device=like.device)
    for index, feature in enumerate(a.order[: a.selected].tolist()):
        taken[index + 1 :, feature] = True
    masks = a.features.mask(taken)
    return [float(g.values(mask.view(1, 1, -1))) for mask in masks]


def _pairs(a: Attribution) -> Sequence[tuple[int, int]]:
    """Both ends of every selected edge, in order; of an undirected edge the lower id first."""
    pairs = edge_ends(a, a.order[: a.selected].tolist()) or []
    return [(min(p), max(p)) for p in pairs] if a.settings["undirected"] else pairs
