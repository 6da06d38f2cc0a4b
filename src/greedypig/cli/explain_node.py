"""`greedypig explain-node graph.npz --node 42`: the edges that one node's prediction uses."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import greedypig as gp

from .. import plots, report
from ..core.methods import with_knobs
from ..graphs import Graph
from ..graphs.methods import FOR_NODES
from ..graphs.node_notes import explain_node_of, facts_of, random_growth
from ..results.graph_notes import NodeNotes
from . import outputs
from .failures import DONE, UsageError
from .graph_model import GraphJob
from .options import knobs_of
from .resumable import Session
from .terminal import BOLD, Terminal


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train or load the network, explain the node, write the files."""
    job = GraphJob(args, terminal, "nodes")
    graph = job.graph
    node = _node(args.node, graph)
    result, page, figure = job.files(*(f"node-{node}.{end}" for end in ("gpig", "html", "png")))
    session = job.session(result.name)

    def explain(checkpoint: Path) -> gp.Attribution:
        a = _edges(job, node, session, checkpoint)
        random = random_growth(job.network.model, graph, a, draws=args.draws, seed=args.seed)
        return a.with_notes(replace(facts_of(a), random=random)).with_notes(job.names())

    with terminal.bar(graph.name) as bar:
        job.find_network(bar)
        bar.label = f"{graph.name}: node {graph.node_name(node)}"
        bar.follow(session.share, 1)
        a = job.answer(session, explain, f"Stopped at node {node}.")
    report.write(a, page)
    files = [result, page, *outputs.save_figure_of(a, plots.node_panel, figure)]
    notes = NodeNotes.of(a)
    _show(notes, terminal)
    job.finish(a, _json(notes), files)
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
    return explain_node_of(
        job.network.model,
        graph,
        node,
        method=with_knobs(method, **knobs),
        k=args.k,
        hops=args.hops,
        objective=args.objective,
        seed=args.seed,
        checkpoint=checkpoint,
        progress=session,
    )


def _show(notes: NodeNotes, terminal: Terminal) -> None:
    """Print the edges in order, each with the objective and the probability so far."""
    truth = "" if notes.truth in (None, notes.label) else f" (true: {notes.truth})"
    head = (
        f"{notes.source}, node {notes.centre.name}: {notes.label}, probability "
        f"{notes.probability:.3f}{truth}"
    )
    terminal.say(head, BOLD)
    if notes.edges:
        terminal.say(
            f"selected to maximise the {notes.maximised}; with only the first of the "
            f"{notes.around:,} edges around it:"
        )
        heads, *rows = notes.rows()
        terminal.table(["", *heads], [[str(i), *row] for i, row in enumerate(rows)], names=2)
    else:
        terminal.say(
            "no edge is within the network's depth: the prediction uses the node's own features"
        )
    if notes.note:
        terminal.say(notes.note)
    for warning in notes.cautions("--objective log-likelihood"):
        terminal.caution(warning.line)
    if against := notes.against():
        terminal.table(["", "these edges", "random subgraphs", "all edges"], against)


def _json(notes: NodeNotes) -> dict[str, Any]:
    ids, random = [node.id for node in notes.nodes], notes.random
    return {
        "node": notes.node,
        "class": notes.label,
        "target": notes.target,
        "truth": notes.truth,
        "probability": notes.probability,
        "order": [[ids[u], ids[v]] for u, v in notes.edges],
        "objective": {"name": notes.objective, "values": notes.g, "all": notes.g_full},
        "probabilities": [notes.alone, *notes.kept_probabilities],
        "edges_within_reach": notes.around,
        "note": notes.note or None,
        "same_class": notes.same,
        "random": {"draws": random.draws} if random.kept is None else asdict(random),
    }
