"""`greedypig explain-node graph.npz --node 42`: the edges that one node's prediction uses."""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import isfinite
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import greedypig as gp

from .. import plots, report
from ..core.methods import with_knobs
from ..graphs import Graph
from ..graphs.compression import grow, growth, logits_of
from ..graphs.methods import FOR_NODES
from ..results.graph_notes import NODE, Explained
from . import outputs
from .failures import DONE, UsageError
from .graph_model import GraphJob
from .options import knobs_of
from .resumable import Session
from .terminal import BOLD, Terminal

ROUNDING = 5e-4
"""Probabilities are shown in three decimals."""


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train or load the network, explain the node, write the files."""
    job = GraphJob(args, terminal, "nodes")
    graph = job.graph
    node = _node(args.node, graph)
    result, page, figure = job.files(*(f"node-{node}.{end}" for end in ("gpig", "html", "png")))
    session = job.session(result.name)

    def explain(checkpoint: Path) -> gp.Attribution:
        return _with_notes(_edges(job, node, session, checkpoint), job, node)

    with terminal.bar(graph.name) as bar:
        job.find_network(bar)
        bar.label = f"{graph.name}: node {graph.node_name(node)}"
        bar.follow(session.share, 1)
        a = job.answer(session, explain, f"Stopped at node {node}.")
    report.write(a, page)
    files = [result, page, *outputs.save_figure_of(a, plots.node_panel, figure)]
    explained = Explained.of(a)
    assert explained is not None
    _show(explained, terminal)
    job.finish(a, _json(a, explained), files)
    return DONE


def _node(text: str, graph: Graph) -> int:
    if graph.names is not None and text in graph.names:
        return graph.names.index(text)
    if text.isdecimal() and int(text) < graph.nodes:
        return int(text)
    named = " or a node's name" if graph.names is not None else ""
    raise UsageError(
        f"Expected --node from 0 to {graph.nodes - 1:,}{named} in {graph.name} (got {text!r})."
    )


def _edges(job: GraphJob, node: int, session: Session, checkpoint: Path) -> gp.Attribution:
    """The edges in order: one a round, unless the rounds were named in another way."""
    graph, args, knobs = job.graph, job.args, knobs_of(job.args)
    named = {"rounds", "schedule"} & set(knobs)
    method = replace(FOR_NODES, per_round=None) if named else FOR_NODES
    return gp.explain_node(
        job.network.model,
        graph.x,
        graph.indexed,
        node,
        method=with_knobs(method, **knobs),
        k=args.k,
        hops=args.hops,
        objective=args.objective,
        seed=args.seed,
        checkpoint=checkpoint,
        progress=session,
    )


def _with_notes(a: gp.Attribution, job: GraphJob, node: int) -> gp.Attribution:
    """The edges with the objective and the network's probabilities, and those of random ones."""
    graph, model, target = job.graph, job.network.model, int(a.settings["target"])
    own = growth(model, graph, a)
    logits = logits_of(model, graph)(None)
    predicted, classes = logits.argmax(1), [graph.class_name(c) for c in range(logits.shape[1])]
    labels = [None if graph.y is None or graph.y[n] < 0 else int(graph.y[n]) for n in own.nodes]
    probability = float(torch.softmax(logits[node].double(), 0)[target])
    values: list[float | None] = [None] * (a.selected + 1)
    for count, value in zip(torch.tensor([0, *a.picks]).cumsum(0), a.values.tolist(), strict=True):
        values[int(count)] = value
    notes = {
        "node": node,
        "class": classes[target],
        "target": target,
        "truth": None if labels[0] is None else classes[labels[0]],
        "probability": probability,
        "alone": own.probabilities[0],
        "kept_probabilities": list(own.probabilities[1:]),
        "g": values if own.pairs else [],
        "g_full": a.full_value if isfinite(a.full_value) else None,
        "classes": classes,
        "nodes": [
            {"id": n, "name": graph.node_name(n), "class": label, "predicted": int(predicted[n])}
            for n, label in zip(own.nodes, labels, strict=True)
        ],
        "edges": [[own.nodes.index(end) for end in pair] for pair in own.pairs],
        "around": a.features.count,
        "same": own.same_class(graph),
        "random": _random(a, job, node, len(own.pairs)),
        "hops": a.settings.get("hops"),
        "note": _note(a, own.probabilities[-1], probability),
    }
    return replace(a, about={}).with_notes(job.notes(NODE, a) | notes)


def _note(a: gp.Attribution, last: float, full: float) -> str:
    """The result's own note, and why all edges within reach are not the whole graph."""
    note = str(a.about.get("note", ""))
    if a.selected and a.selected == a.features.count and abs(last - full) > ROUNDING:
        note += (
            f" The edges within reach alone give {last:.3f}, the whole graph {full:.3f}: edges "
            "further away count too, at least in the degrees of nodes."
        )
    return note.strip()


def _random(a: gp.Attribution, job: GraphJob, node: int, k: int) -> dict[str, Any]:
    """Means over random subgraphs of k edges; none where that is all edges within reach."""
    graph, args = job.graph, job.args
    numbers: dict[str, Any] = {"draws": args.draws}
    if k in (0, a.features.count):
        return numbers
    search = {"k": k, "hops": a.settings["hops"], "method": "random"}
    search["objective"] = a.settings["objective"]
    drawn = [
        grow(job.network.model, graph, node, seed=args.seed + i + 1, **search)
        for i in range(args.draws)
    ]
    same = [s for s in (g.same_class(graph) for _, g in drawn) if s is not None]
    return numbers | {
        "kept": mean(g.probabilities[-1] for _, g in drawn),
        "g": mean(float(r.values[-1]) for r, _ in drawn),
        "same": mean(same) if same else None,
    }


def _show(explained: Explained, terminal: Terminal) -> None:
    """Print the edges in order, each with the objective and the probability so far."""
    truth = "" if explained.truth in (None, explained.label) else f" (true: {explained.truth})"
    head = (
        f"{explained.source}, node {explained.centre.name}: {explained.label}, probability "
        f"{explained.full:.3f}{truth}"
    )
    terminal.say(head, BOLD)
    if explained.edges:
        terminal.say(
            f"selected to maximise the {explained.maximised}; with only the first of the "
            f"{explained.around:,} edges around it:"
        )
        rows = [[str(i), *step] for i, step in enumerate(explained.steps())]
        terminal.table(["", *explained.heads], rows, names=2)
    else:
        terminal.say(
            "no edge is within the network's depth: the prediction uses the node's own features"
        )
    if explained.note:
        terminal.say(explained.note)
    for warning in explained.cautions("--objective log-likelihood"):
        terminal.caution(warning)
    if against := explained.against():
        terminal.table(["", "these edges", "random subgraphs", "all edges"], against)


def _json(a: gp.Attribution, explained: Explained) -> dict[str, Any]:
    ids = [node.id for node in explained.nodes]
    return {
        "node": explained.node,
        "class": explained.label,
        "target": a.about["target"],
        "truth": explained.truth,
        "probability": explained.full,
        "order": [[ids[u], ids[v]] for u, v in explained.edges],
        "objective": {"name": explained.objective, "values": explained.g, "all": explained.g_full},
        "probabilities": [explained.alone, *explained.values],
        "edges_within_reach": explained.around,
        "note": explained.note or None,
        "same_class": explained.same,
        "random": dict(a.about["random"]),
    }
