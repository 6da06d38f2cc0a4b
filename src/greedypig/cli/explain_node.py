"""`greedypig explain-node graph.npz --node 42`: the edges that one node's prediction uses."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import greedypig as gp

from .. import plots, report
from ..graphs import Graph
from ..graphs.compression import grow, growth, logits_of
from ..results import verdicts
from ..results.graph_notes import NODE, Explained
from ..results.wording import count
from ..tensors.methods import FOR_NODES
from . import graph_model, options, outputs
from .failures import DONE, UsageError
from .graph_model import MODEL, Network, network_for, read_graph
from .methods import knobs_of, set_knobs
from .resumable import Progress, Session
from .terminal import BOLD, Terminal, duration

DESCRIPTION = """\
Explain the prediction of a graph network for one node: a connected subgraph of the k best edges
around the node, the probability with only the first 1, 2, … of them, and the same for random
connected edges. The paper's network is trained on the graph (or use your own). Writes the result, a
drawing and a page into a folder."""
EXAMPLES = """\
  greedypig explain-node graph.npz --node 42 --k 20
  greedypig explain-node edges.csv --nodes nodes.csv --node paper-17 --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain-node`."""
    parser.add_argument("--node", required=True, metavar="NODE", help="its number from 0, or name")
    group = graph_model.add_options(parser, "nodes", objective="log-likelihood")
    numbers = {
        "k": (20, "edges to select (default: 20)"),
        "hops": (None, "steps from the node (default: the network's depth)"),
        "draws": (10, "random subgraphs to compare with (default: 10)"),
    }
    for name, (default, text) in numbers.items():
        group.add_argument(f"--{name}", type=options.whole, default=default, metavar="N", help=text)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train or load the network, explain the node, write the files."""
    graph = read_graph(args, terminal)
    node = _node(args.node, graph)
    folder = graph_model.results_folder(args, graph, "nodes")
    result, page, picture = (folder / f"node-{node}{end}" for end in (".gpig", ".html", ".png"))
    session = Session(result, args.resume, Progress(args.draws))
    outputs.refuse_foreign([result, page, picture, folder / MODEL])
    session.announced(terminal)
    with terminal.bar("") as bar:
        network = network_for(graph, args, folder, terminal, bar)
        bar.label = f"{graph.name}: node {graph.node_name(node)}"
        bar.follow(session.progress.share, 1)
        task = NodeTask(node, graph, network, args)
        with session.interruptible(f"Stopped at node {node}."):
            a = session.answer(task, Path(args.graph).name, terminal.command_line())
    files = [result, page]
    report.write(a, page)
    if importlib.util.find_spec("matplotlib") is not None:
        outputs.save_figure(plots.node_panel(a), picture)
        files.append(picture)
    explained = Explained.of(a)
    assert explained is not None
    _show(a, explained, terminal, files)
    terminal.result(_json(a, explained) | graph_model.record(a, network, args, files))
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


@dataclass(frozen=True)
class NodeTask:
    """The edges of one node's prediction; a `Task` of a session."""

    node: int
    graph: Graph
    network: Network
    args: argparse.Namespace

    def explain(self, progress: Progress, resume: gp.Attribution | None) -> gp.Attribution:
        """The edges in order: one a round, unless the rounds were named in another way."""
        knobs, graph = knobs_of(self.args), self.graph
        named = "rounds" in knobs or "schedule" in knobs
        return gp.explain_node(
            self.network.model,
            graph.x,
            graph.indexed,
            self.node,
            undirected=graph.undirected,
            method=set_knobs(replace(FOR_NODES, per_round=None) if named else FOR_NODES, knobs),
            k=self.args.k,
            hops=self.args.hops,
            objective=self.args.objective,
            seed=self.args.seed,
            resume=resume,
            progress=progress,
        )

    def with_notes(self, a: gp.Attribution, source: str, command: str) -> gp.Attribution:
        """The edges with the network's probabilities for them, and for random ones."""
        graph, model, node = self.graph, self.network.model, self.node
        target = int(a.settings["target"])
        own = growth(model, graph, a)
        logits = logits_of(model, graph)(None)
        predicted, classes = logits.argmax(1), [graph.class_name(c) for c in range(logits.shape[1])]
        nodes = [
            {"id": n, "name": graph.node_name(n), "class": _label(graph, n)}
            | {"predicted": int(predicted[n])}
            for n in own.nodes
        ]
        truth = nodes[0]["class"]
        notes = {
            "kind": NODE,
            "source": source,
            "model": self.network.name,
            "command": command,
            "node": node,
            "class": classes[target],
            "target": target,
            "truth": None if truth is None else classes[truth],
            "probability": float(torch.softmax(logits[node].double(), 0)[target]),
            "objective": self.args.objective,
            "alone": own.probabilities[0],
            "kept_probabilities": list(own.probabilities[1:]),
            "classes": classes,
            "nodes": nodes,
            "edges": [[own.nodes.index(end) for end in pair] for pair in own.pairs],
            "around": a.features.units,
            "same": own.same_class(graph),
            "random": self._random(a, len(own.pairs), target),
            "hops": a.settings.get("hops"),
            "note": a.about.get("note"),
        }
        return replace(a, about={}).with_notes(notes)

    def is_complete(self, saved: gp.Attribution) -> bool:
        """Was it compared with as many random subgraphs?"""
        return bool(saved.about.get("random", {}).get("draws") == self.args.draws)

    def _random(self, a: gp.Attribution, k: int, target: int) -> dict[str, Any]:
        """Means over random subgraphs of as many edges."""
        numbers: dict[str, Any] = {"draws": self.args.draws}
        if k == 0:
            return numbers
        search = {"k": k, "hops": a.settings["hops"], "target": target, "method": "random"}
        seeds = range(self.args.seed + 1, self.args.seed + 1 + self.args.draws)
        drawn = [
            grow(self.network.model, self.graph, self.node, **search, seed=seed)[1]
            for seed in seeds
        ]
        same = [s for s in (g.same_class(self.graph) for g in drawn) if s is not None]
        numbers["kept"] = mean(g.probabilities[-1] for g in drawn)
        return numbers | {"same": mean(same) if same else None}


def _label(graph: Graph, node: int) -> Any:
    return None if graph.y is None or graph.y[node] < 0 else int(graph.y[node])


def _show(a: gp.Attribution, explained: Explained, terminal: Terminal, files: list[Path]) -> None:
    """Print the edges in order, each with the probability so far."""
    say, full, nodes = terminal.say, explained.full, explained.nodes
    truth = "" if explained.truth in (None, explained.label) else f" (true: {explained.truth})"
    head = (
        f"{explained.source}, node {nodes[0].name}: {explained.label}, probability "
        f"{full:.3f}{truth}"
    )
    say(terminal.style(terminal.wrapped(head), BOLD))
    if not explained.edges:
        say("  no edge is within the network's depth: the prediction uses the node's own features")
    else:
        say(
            f"  without edges {explained.alone:.3f}; with only the first of the "
            f"{explained.around:,} edges around it:"
        )
    pairs = [" – ".join(nodes[end].name for end in pair) for pair in explained.edges]
    width = max(map(len, pairs), default=0)
    for i, (pair, value) in enumerate(zip(pairs, explained.values, strict=True)):
        say(f"  {i + 1:>2}  {pair:<{width}}  {value:.3f}")
    if explained.note:
        say(f"  {explained.note}")
    if (excess := explained.excess()) is not None:
        edges, value = excess
        part = f"The first {edges} edges" if edges else "No edges"
        sentence = verdicts.higher(part, f"{value:.3f}", "all edges", f"{full:.3f}", verb="give")
        why = "" if edges else " The prediction uses the node's own features, not these edges."
        terminal.caution(f"{sentence}.{why}", "  ")
    if "kept" in explained.random and explained.same is not None:
        line = (
            f"{100 * explained.same:.0f} % of the nodes reached have its class (random subgraphs: "
            f"{100 * explained.random.get('same', 0):.0f} %); probability "
            f"{explained.values[-1]:.3f} (random subgraphs: {explained.random['kept']:.3f})"
        )
        say(terminal.wrapped(line, "  ", "    "))
    names = ", ".join(outputs.shown(file) for file in files)
    line = f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}; wrote {names}"
    say(terminal.wrapped(line, "  ", "    "))


def _json(a: gp.Attribution, explained: Explained) -> dict[str, Any]:
    ids = [node.id for node in explained.nodes]
    return {
        "node": explained.node,
        "class": explained.label,
        "target": a.about["target"],
        "truth": explained.truth,
        "probability": explained.full,
        "order": [[ids[u], ids[v]] for u, v in explained.edges],
        "probabilities": [explained.alone, *explained.values],
        "edges_within_reach": explained.around,
        "note": explained.note or None,
        "same_class": explained.same,
        "random": dict(a.about["random"]),
    }
