"""A node of a `Graph` explained: the graph's names and classes, and random subgraphs to compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from typing import Any

from torch import Tensor

from ..core.attribution import Attribution
from ..results.graph_notes import NodeFacts, RandomSubgraphs
from .api import edge_columns, explain_node
from .graph import Graph


def explain_node_of(
    model: Callable[..., Any], graph: Graph, node: int, **search: Any
) -> Attribution:
    """`explain_node` with the graph's names of nodes and classes. search: further arguments."""
    a = explain_node(model, graph.x, graph.indexed, node, **search)
    facts = facts_of(a)
    names = tuple(graph.class_name(c) for c in range(len(facts.classes)))
    kinds = [_label(graph, n.id) for n in facts.nodes]
    others = [kind for kind in kinds[1:] if kinds[0] is not None]
    nodes = zip(facts.nodes, kinds, strict=True)
    named = replace(
        facts,
        label=names[facts.target],
        classes=names,
        truth=None if kinds[0] is None else names[kinds[0]],
        nodes=tuple(replace(n, name=graph.node_name(n.id), kind=kind) for n, kind in nodes),
        same=mean(float(kind == kinds[0]) for kind in others) if others else None,
    )
    return a.with_notes(named)


def random_growth(
    model: Callable[..., Any], graph: Graph, a: Attribution, *, draws: int, seed: int
) -> RandomSubgraphs:
    """Means over subgraphs of as many edges that grow at random; empty where all edges within reach
    were selected."""
    if a.selected in (0, a.features.count):
        return RandomSubgraphs(draws)
    search = {"k": a.selected, "method": "random"}
    search |= {name: a.settings[name] for name in ("hops", "objective", "target")}
    node = int(a.settings["node"])
    drawn = [explain_node_of(model, graph, node, seed=seed + i + 1, **search) for i in range(draws)]
    facts = [facts_of(one) for one in drawn]
    same = [one.same for one in facts if one.same is not None]
    return RandomSubgraphs(
        draws,
        kept=mean(one.kept_probabilities[-1] for one in facts),
        g=mean(float(one.values[-1]) for one in drawn),
        same=mean(same) if same else None,
    )


def facts_of(a: Attribution) -> NodeFacts:
    """The facts of an explained node."""
    assert isinstance(a.about, NodeFacts)
    return a.about


def selected_edges(a: Attribution, graph: Graph) -> Tensor:
    """The ids of the edges that a node's explanation selected, in order."""
    ids = dict.fromkeys((edge_columns(a) % max(graph.m, 1)).tolist())
    return graph.edges.new_tensor(list(ids))


def _label(graph: Graph, node: int) -> int | None:
    known = graph.y is not None and int(graph.y[node]) >= 0
    return int(graph.y[node]) if graph.y is not None and known else None
