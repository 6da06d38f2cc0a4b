"""`greedypig compress graph.npz --keep 0.5`: the edges that a graph network's predictions use."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import greedypig as gp

from .. import plots, report
from ..core.methods import with_knobs
from ..core.records import plain_fields
from ..core.scorers import IG
from ..graphs import Graph, save_graph
from ..graphs.compression import (
    TITLES,
    Judge,
    compression,
    edge_order,
    kept_count,
    shares_with,
    trace,
)
from ..graphs.methods import FOR_EDGES
from ..results.graph_notes import MEASURES, CompressionNotes
from ..results.wording import count, signed
from . import outputs
from .failures import DONE, UsageError, wrong_command
from .graph_model import GraphJob
from .options import knobs_of
from .resumable import Session
from .terminal import BOLD, Terminal

FILES = ("kept.npz", *(f"compression.{ending}" for ending in ("csv", "gpig", "html", "png")))
FIRST = "greedy-pig"


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train, order the edges by every method, measure them, write the files."""
    job = GraphJob(args, terminal, "compressed")
    graph = job.graph
    if kept_count(args.keep, graph.m) < 1:
        raise UsageError(f"Expected --keep to keep an edge of {graph.m:,} (got {args.keep:g}).")
    files = job.files(*FILES)
    sessions = {name: job.session(f"methods/{name}.gpig") for name in args.methods}
    results: dict[str, gp.Attribution] = {}

    def explain(method: Any, session: Session, checkpoint: Path) -> gp.Attribution:
        search = {"objective": args.objective, "seed": args.seed, "checkpoint": checkpoint}
        a = edge_order(method, job.network.model, graph, progress=session, **search)
        return a.with_notes({"trace": trace(judge, a.order, shares_with(args.keep))})

    with terminal.bar(graph.name) as bar:
        job.find_network(bar)
        with wrong_command():
            judge = Judge(job.network.model, graph)
        session = next(iter(sessions.values()))
        bar.follow(lambda: len(results) + session.share(), len(sessions))
        for name, session in sessions.items():
            title = TITLES.get(name, name)
            bar.label = f"{graph.name}: {title}"
            method: Any = name
            if name == FIRST:
                method = with_knobs(FOR_EDGES, **knobs_of(args))
            elif name == "ig" and FIRST in results:  # At equal cost.
                method = IG(max(1, results[FIRST].gradients_used), "gauss-legendre")
            stopped = f"Stopped at {title}, after {count(len(results), 'method')}."
            how = partial(explain, method, session)
            results[name] = job.answer(session, how, stopped)
    a = compression(results, judge, args.keep).with_notes(job.names())
    notes = CompressionNotes.of(a)
    kept, table, result, page, figure = files
    _save_kept(a.order[: notes.kept_edges], graph, kept)
    outputs.write_csv(table, _table(notes))
    a.save(result)
    report.write(a, page)
    written = [kept, table, result, page, *outputs.save_figure_of(a, plots.compression, figure)]
    _show(notes, graph, terminal)
    network = job.network.file
    job.finish(a, _json(a, notes), written if network is None else [*written, network])
    return DONE


def _save_kept(edges: torch.Tensor, graph: Graph, file: Any) -> None:
    """Write the graph of these edges."""
    kept = torch.sort(edges).values.to(graph.edges.device)
    weight = None if graph.weight is None else graph.weight[kept]
    small = replace(graph, edges=graph.edges[:, kept], weight=weight)
    save_graph(small, file, kept=kept.cpu().numpy())


def _table(notes: CompressionNotes) -> list[list[Any]]:
    """The curves, a row for every method and share, under their heads."""
    measures = list(notes.first.lines)
    rows: list[list[Any]] = [["method", "share", "edges", *measures]]
    for method in notes.methods:
        for i, part in enumerate(next(iter(method.lines.values())).fractions):
            values = (f"{method.lines[m].values[i]:.6g}" for m in measures)
            rows.append([method.name, f"{part:g}", method.edges[i], *values])
    return rows


def _show(notes: CompressionNotes, graph: Graph, terminal: Terminal) -> None:
    """Print the table of methods at the share kept, and the shares that keep the predictions."""
    full, methods = notes.full, notes.methods
    accuracy = f"accuracy {full['accuracy']:.3f}, " if "accuracy" in full else ""
    head = (
        f"{graph.name}: {graph.nodes:,} nodes, {graph.m:,} edges, {graph.class_count} classes, "
        f"{notes.model}; {accuracy}G {signed(full['g'])} with all edges"
    )
    terminal.say(head, BOLD)
    terminal.say(f"with {100 * notes.keep:g} % of the edges ({notes.kept_edges:,}):")
    heads, *rows = notes.rows()
    terminal.table(heads, rows[:-1])  # All edges are in the head.
    for warning in notes.cautions():
        terminal.caution(warning.line)
    for aim in (0.99, 0.95):
        shares = [(method.title, notes.share_for(method, aim)) for method in methods]
        needed = ", ".join(f"{title} {100 * s:g} %" for title, s in shares if s is not None)
        terminal.say(f"to agree on {100 * aim:g} % of the nodes: {needed} of the edges")


def _json(a: gp.Attribution, notes: CompressionNotes) -> dict[str, Any]:
    first, full = notes.first, notes.full
    traces = {n: plain_fields(trace, defaults=True) for n, trace in notes.traces.items()}
    return {
        "graph": plain_fields(notes.graph, defaults=True),
        "keep": notes.keep,
        "kept": notes.kept_edges,
        **{measure: first.at(measure, notes.keep) for measure in MEASURES},
        "accuracy_full": full.get("accuracy"),
        "g_full": full["g"],
        "order": a.order.tolist(),
        "curve": traces[first.name],
        "methods": traces,
    }
