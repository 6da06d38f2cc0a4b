"""`greedypig explain-node graph.npz --node 42`: the edges that one node's prediction uses."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

import greedypig as gp

from .. import plots, report
from ..graphs import Graph
from ..graphs.api import node_run
from ..graphs.compression import grow, growth, logits_of, selected_pairs
from ..results import verdicts
from ..results.graph_notes import NODE, Explained
from ..results.wording import count
from ..tensors.methods import FOR_NODES
from . import graph_options, options, outputs
from .failures import DONE, UsageError
from .graph_model import MODEL, Network, network_for, read_graph
from .graph_options import given
from .methods import knobs_of, set_knobs
from .resumable import Progress, Session
from .terminal import BOLD, DIM, Terminal, duration

DESCRIPTION = """\
Explain the prediction of a graph network for one node: a connected subgraph of the k best edges
around the node, the probability with only the first 1, 2, … of them, and the same for random
connected edges. The paper's network is trained on the graph (or use your own). Writes the result, a
drawing and a page into a folder."""
EXAMPLES = """\
  greedypig explain-node graph.npz --node 42 --k 20
  greedypig explain-node edges.csv --nodes nodes.csv --node paper-17 --json"""
DRAWS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain-node`."""
    graph_options.add_graph(parser)
    parser.add_argument("--node", required=True, metavar="NODE", help="its number from 0, or name")
    graph_options.add_network(parser)
    group = options.group(parser, "method")
    group.add_argument("--k", type=options.whole, default=20, metavar="N",
                       help="edges to select (default: 20)")  # fmt: skip
    group.add_argument("--hops", type=options.whole, metavar="N",
                       help="steps from the node (default: the network's depth)")  # fmt: skip
    graph_options.add_search(group, objective="log-likelihood")
    group.add_argument("--draws", type=options.whole, default=DRAWS, metavar="N",
                       help="random subgraphs to compare with (default: %(default)s)")  # fmt: skip
    options.add_hardware(parser, batch_size=False)
    graph_options.add_output(parser, "nodes")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train or load the network, explain the node, write the files."""
    graph = read_graph(args, terminal)
    node = _node(args.node, graph)
    folder = outputs.folder(graph_options.folder_name(args, graph.name, "nodes"))
    stem = folder / f"node-{node}"
    page, picture = stem.with_suffix(".html"), stem.with_suffix(".png")
    session = Session(stem.with_suffix(".gpig"), args.resume, Progress(args.draws))
    outputs.refuse_foreign([session.result, page, picture, folder / MODEL])
    session.announced(terminal)
    search = given(args, "k", "hops", "objective") | {"seed": args.seed, "method": _method(args)}
    with terminal.bar("") as bar:
        network = network_for(graph, args, folder, terminal, bar)
        bar.label = f"{graph.name}: node {graph.node_name(node)}"
        bar.follow(session.progress.share, 1)
        task = NodeTask(node, graph, network, search, args)
        with session.interruptible(f"Stopped at node {node}."):
            a = session.answer(task, Path(args.graph).name, terminal.command_line())
    files = [session.result, page]
    report.write(a, page)
    if importlib.util.find_spec("matplotlib") is not None:
        outputs.save_figure(plots.node_panel(a), picture)
        files.append(picture)
    _show(a, terminal, files)
    terminal.result(_json(a, network, args, files))
    return DONE


@dataclass(frozen=True)
class NodeTask:
    """The edges of one node's prediction; a `Task` of a session."""

    node: int
    graph: Graph
    network: Network
    search: dict[str, Any]
    """Arguments of `node_run`."""
    args: argparse.Namespace

    def explain(self, progress: Progress, resume: gp.Attribution | None) -> gp.Attribution:
        """The edges in order."""
        graph = self.graph
        run = node_run(
            self.network.model, graph.x, graph.indexed, self.node, undirected=graph.undirected,
            resume=resume, **self.search,
        )  # fmt: skip
        progress(run)
        return run.finish(watch=progress)

    def with_notes(self, a: gp.Attribution, source: str, command: str) -> gp.Attribution:
        """The edges with the network's probabilities for them, and for random ones."""
        graph, model, node = self.graph, self.network.model, self.node
        target = int(a.settings["target"])
        pairs = selected_pairs(a)
        own = growth(model, graph, node, pairs, target)
        logits = logits_of(model, graph)(None)
        whole = float(torch.softmax(logits[node].double(), 0)[target])
        answers = logits.argmax(1)
        names = [graph.class_name(c) for c in range(logits.shape[1])]
        truth = None if graph.y is None else int(graph.y[node])
        place = {n: i for i, n in enumerate(own.nodes)}
        notes = {
            "kind": NODE, "source": source, "model": self.network.name, "command": command,
            "node": node, "class": names[target], "target": target, "probability": whole,
            "truth": None if truth is None or truth < 0 else names[truth],
            "objective": self.args.objective, "alone": own.probabilities[0],
            "kept_probabilities": list(own.probabilities[1:]), "classes": names,
            "nodes": [self._node(n, answers) for n in own.nodes],
            "edges": [[place[u], place[v]] for u, v in pairs], "around": a.features.units,
            "same": own.same_class(graph), "random": self._random(a, len(pairs), target),
            "hops": a.settings.get("hops"), "note": a.about.get("note"),
        }  # fmt: skip
        return replace(a, about={}).with_notes(notes)

    def is_complete(self, saved: gp.Attribution) -> bool:
        """Was it compared with as many random subgraphs?"""
        return bool(saved.about.get("random", {}).get("draws") == self.args.draws)

    def _node(self, node: int, answers: Tensor) -> dict[str, Any]:
        y = self.graph.y
        known = y is not None and int(y[node]) >= 0
        return {"id": node, "name": self.graph.node_name(node),
                "class": int(y[node]) if known and y is not None else None,
                "predicted": int(answers[node])}  # fmt: skip

    def _random(self, a: gp.Attribution, k: int, target: int) -> dict[str, Any]:
        if k == 0:
            return {"draws": self.args.draws}
        found = [
            grow(self.network.model, self.graph, self.node, k=k, hops=a.settings.get("hops"),
                 target=target, method="random", seed=self.args.seed + 1 + i)[1]
            for i in range(self.args.draws)
        ]  # fmt: skip
        same = [s for s in (g.same_class(self.graph) for g in found) if s is not None]
        return {"draws": self.args.draws, "kept": mean(g.probabilities[-1] for g in found),
                "same": mean(same) if same else None}  # fmt: skip


def _method(args: argparse.Namespace) -> Any:
    """One edge a round, unless the rounds were named in another way."""
    knobs = knobs_of(args)
    named = "rounds" in knobs or "schedule" in knobs
    return set_knobs(replace(FOR_NODES, per_round=None) if named else FOR_NODES, knobs)


def _node(text: str, graph: Graph) -> int:
    if graph.names is not None and text in graph.names:
        return graph.names.index(text)
    if text.isdecimal() and int(text) < graph.nodes:
        return int(text)
    named = " or a node's name" if graph.names is not None else ""
    raise UsageError(
        f"Expected --node from 0 to {graph.nodes - 1:,}{named} in {graph.name} (got {text!r})."
    )


def _show(a: gp.Attribution, terminal: Terminal, files: list[Path]) -> None:
    found = Explained.of(a)
    assert found is not None
    say = terminal.say
    truth = "" if found.truth in (None, found.label) else f" (its own class: {found.truth})"
    say(terminal.style(terminal.wrapped(
        f"{found.source}, node {found.nodes[0].name}: {found.label}, probability "
        f"{found.full:.3f}{truth}"), BOLD))  # fmt: skip
    if not found.edges:
        say("  no edge is within the network's depth: the prediction uses the node's own features")
    else:
        say(f"  without edges {found.alone:.3f}; with only the first of the {found.around:,} edges "
            "around it:")  # fmt: skip
        rows = [[f"{i + 1}", " – ".join(found.nodes[e].name for e in pair),
                 f"{found.values[i]:.3f}",
                 " – ".join(_class(found, e) for e in pair)]
                for i, pair in enumerate(found.edges)]  # fmt: skip
        widths = [max(len(row[c]) for row in rows) for c in range(3)]
        for rank, ends, probability, kinds in rows:
            line = f"  {rank:>{widths[0]}}  {ends:<{widths[1]}}  {probability}"
            room = terminal.width - len(line) - 2
            more = kinds if len(kinds) <= room else ""
            say(f"{line}  {terminal.style(more, DIM)}".rstrip())
    if found.note:
        say(f"  {found.note}")
    excess = found.excess()
    if excess is not None:
        edges, value = excess
        part = {0: "No edges", 1: "The first edge"}.get(edges, f"The first {edges} edges")
        sentence = verdicts.higher(part, f"{value:.3f}", "all edges", f"{found.full:.3f}",
                                   verb="gives" if edges == 1 else "give")  # fmt: skip
        why = "The prediction uses the node's own features, not these edges."
        terminal.caution(f"{sentence}. {why if edges == 0 else ''}".rstrip(), "  ")
    if "kept" in found.random and found.same is not None:
        say(terminal.wrapped(
            f"{100 * found.same:.0f} % of the nodes reached have its class (random subgraphs: "
            f"{100 * found.random.get('same', 0):.0f} %); probability {found.values[-1]:.3f} "
            f"(random subgraphs: {found.random['kept']:.3f})", "  ", "    "))  # fmt: skip
    say(terminal.wrapped(f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}; wrote "
                         + ", ".join(outputs.shown(f) for f in files), "  ", "    "))  # fmt: skip


def _class(found: Explained, place: int) -> str:
    kind = found.nodes[place].kind
    return "?" if kind is None else found.classes[kind]


def _json(
    a: gp.Attribution, network: Network, args: argparse.Namespace, files: list[Path]
) -> dict[str, Any]:
    found = Explained.of(a)
    assert found is not None
    ids = [n.id for n in found.nodes]
    return {
        "node": found.node,
        "class": found.label,
        "target": a.about["target"],
        "truth": found.truth,
        "probability": found.full,
        "method": a.settings["method"],
        "order": [[ids[u], ids[v]] for u, v in found.edges],
        "probabilities": [found.alone, *found.values],
        "edges_within_reach": found.around,
        "note": found.note or None,
        "same_class": found.same,
        "random": dict(a.about["random"]),
        "gradients": a.gradients_used,
        "seconds": a.seconds,
        "settings": dict(a.settings) | {"model": network.name, "seed": args.seed,
                                        "training": network.facts},
        "files": [fspath(file) for file in files],
    }  # fmt: skip
