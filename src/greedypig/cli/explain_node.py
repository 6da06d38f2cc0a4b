"""`greedypig explain-node graph.npz --node 42`: the few edges behind one node's class."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from os import fspath
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

import greedypig as gp

from .. import plots, report
from ..graphs import Graph
from ..graphs.compression import logits_of
from ..graphs.node_context import grow, growth, taken
from ..results.graph_notes import NODE, Explained
from ..results.wording import count
from . import graph_options, options, outputs
from .failures import DONE, UsageError
from .graph_model import MODEL, Network, network_for, read_graph
from .graph_options import given
from .photo_job import Watch
from .resumable import Sitting
from .terminal import BOLD, DIM, Terminal, duration

HELP = "the few edges of a graph behind the class that a network gives one node"
DESCRIPTION = """\
Explain the class that a graph network gives one node: a subgraph of the k best edges that grows
connected from the node, how sure the network is with the first 1, 2, … of them alone, and the same
for edges that grow at random. The paper's network is trained on the graph (or yours is taken).
Writes the result, a drawing and a page into a folder."""
EXAMPLES = """\
  greedypig explain-node graph.npz --node 42 --k 20
  greedypig explain-node edges.csv --nodes nodes.csv --node paper-17 --json"""
DRAWS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain-node`."""
    graph_options.add_graph(parser)
    parser.add_argument("--node", required=True, metavar="NODE", help="its number from 0, or name")
    graph_options.add_network(parser)
    group = parser.add_argument_group("the search")
    group.add_argument("--k", type=options.whole, default=20, metavar="N",
                       help="edges to take (default: 20)")  # fmt: skip
    group.add_argument("--hops", type=options.whole, metavar="N",
                       help="how far edges may lie (default: the network's depth)")  # fmt: skip
    graph_options.add_search(group, objective="expected-log-likelihood")
    group.add_argument("--draws", type=options.whole, default=DRAWS, metavar="N",
                       help="random growths to compare with (default: %(default)s)")  # fmt: skip
    graph_options.add_results(parser, "nodes")
    graph_options.add_machine(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train or take the network, explain the node, write the files."""
    graph = read_graph(args, terminal)
    node = _node(args.node, graph)
    folder = outputs.folder(graph_options.folder_name(args, graph.name, "nodes"))
    stem = folder / f"node-{node}"
    page, picture = stem.with_suffix(".html"), stem.with_suffix(".png")
    sitting = Sitting(stem.with_suffix(".gpig"), args.resume, Watch(args.draws))
    outputs.refuse_foreign([sitting.result, page, picture, folder / MODEL])
    sitting.watched_by(terminal)
    search = given(args, "k", "hops", "objective", "rounds", "steps") | {"seed": args.seed}
    with terminal.bar("") as bar:
        network = network_for(graph, args, folder, terminal, bar)
        bar.label = f"{graph.name}: node {graph.node_name(node)}"
        bar.follow(sitting.watch.share, 1)
        question = NodeQuestion(node, graph, network, args)
        with sitting.minded(f"Stopped at node {node}."):
            a = sitting.answer(question, search, graph.x, Path(args.graph).name,
                               terminal.command_line())  # fmt: skip
    files = [sitting.result, page]
    report.write(a, page)
    if importlib.util.find_spec("matplotlib") is not None:
        outputs.save_figure(plots.node_panel(a), picture)
        files.append(picture)
    _tell(a, terminal, files)
    terminal.result(_json(a, network, args, files))
    return DONE


class NodeQuestion:
    """A node asked about; a `Question` of a sitting."""

    def __init__(self, node: int, graph: Graph, network: Network, args: argparse.Namespace) -> None:
        self.node, self.graph, self.network, self.args = node, graph, network, args

    def explain(
        self, x: Tensor, search: Mapping[str, Any], watch: Watch, resume: gp.Attribution | None
    ) -> gp.Attribution:
        """The edges in order."""
        graph = self.graph
        return gp.explain_node(
            self.network.model, graph.x, graph.indexed, self.node, undirected=graph.undirected,
            progress=watch, resume=resume, **search,
        )  # fmt: skip

    def with_notes(self, a: gp.Attribution, x: Tensor, source: str, command: str) -> gp.Attribution:
        """The edges with what the network makes of them, and of random ones."""
        graph, model, node = self.graph, self.network.model, self.node
        target = int(a.settings["target"])
        pairs = taken(a)
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

    def told(self, saved: gp.Attribution) -> bool:
        """Was it compared with as many random growths?"""
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


def _node(text: str, graph: Graph) -> int:
    if graph.names is not None and text in graph.names:
        return graph.names.index(text)
    if text.isdecimal() and int(text) < graph.nodes:
        return int(text)
    named = " or a node's name" if graph.names is not None else ""
    raise UsageError(
        f"Expected --node from 0 to {graph.nodes - 1:,}{named} in {graph.name} (got {text!r})."
    )


def _tell(a: gp.Attribution, terminal: Terminal, files: list[Path]) -> None:
    found = Explained.of(a)
    assert found is not None
    say = terminal.say
    truth = "" if found.truth in (None, found.label) else f" (its own class: {found.truth})"
    say(terminal.style(terminal.wrapped(
        f"{found.source}, node {found.nodes[0].name}: {found.label}, probability "
        f"{found.full:.3f}{truth}"), BOLD))  # fmt: skip
    if not found.edges:
        say("  no edge is within the network's reach: its own features alone decide")
    else:
        say(f"  without any edge {found.alone:.3f}; with the first of {found.around:,} edges "
            "within reach:")  # fmt: skip
        rows = [[f"{i + 1}", " – ".join(found.nodes[e].name for e in pair),
                 f"{found.values[i]:.3f}",
                 " – ".join(_class(found, e) for e in pair)]
                for i, pair in enumerate(found.edges)]  # fmt: skip
        widths = [max(len(row[c]) for row in rows) for c in range(3)]
        for rank, ends, value, kinds in rows:
            line = f"  {rank:>{widths[0]}}  {ends:<{widths[1]}}  {value}"
            room = terminal.width - len(line) - 2
            more = kinds if len(kinds) <= room else ""
            say(f"{line}  {terminal.style(more, DIM)}".rstrip())
    if found.note:
        say(f"  {found.note}")
    excess = found.excess()
    if excess is not None and excess[0] == 0:
        terminal.surer(
            f"without any edge the network is surer ({excess[1]:.3f}) than with all edges "
            f"({found.full:.3f}): the answer rests on the node's own features, not on these "
            "edges.", "  ")  # fmt: skip
    elif excess is not None:
        first = "the first edge makes" if excess[0] == 1 else f"the first {excess[0]} edges make"
        terminal.surer(
            f"{first} the network surer ({excess[1]:.3f}) than all edges do ({found.full:.3f}): "
            "what speaks against the class is not among them.", "  ")  # fmt: skip
    if "kept" in found.random and found.same is not None:
        say(terminal.wrapped(
            f"of the nodes reached {100 * found.same:.0f} % have its class (random growth: "
            f"{100 * found.random.get('same', 0):.0f} %); probability {found.values[-1]:.3f} "
            f"(random growth: {found.random['kept']:.3f})", "  ", "    "))  # fmt: skip
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
