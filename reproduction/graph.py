"""Figure 4 of the paper: graphs compressed to a share of their edges; and single nodes explained.

A network is trained for every graph and seed. Each method orders the edges for it, and every share
of the edges is measured. G is the mean over all nodes of log p(the class in the full graph).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from greedypig.core.errors import InvalidInput
from greedypig.core.records import plain
from greedypig.graphs import Graph, Recipe, Training, generate, load_graph, load_model, save_model
from greedypig.graphs.compression import SHARES, Judge, edge_order, logits_of, trace
from greedypig.graphs.node_notes import explain_node_of, facts_of, selected_edges
from greedypig.graphs.training import fingerprint
from greedypig.models import GCN
from greedypig.network.assets_folder import assets_folder
from greedypig.plots import Band, BandPanel, band_sheet
from greedypig.results.wording import count

from .experiment import Experiment, Method, Record, Table, Task, mean_and_error

PICTURES = ("graph.png",)
OBJECTIVE = "log-probability"
MEASURES = {
    "accuracy": "accuracy on the test nodes",
    "agreement": "agreement with the full graph",
    "g": "G",
}
NODES = Method("nodes", "single nodes", {})
"""Stands in the place of a method for the explanations of single nodes."""
TEXTS = {"graph": "graph", "title": "method", "setting": "setting", "claim": "paper"}
NUMBERS = {
    "gradients": "gradients",
    "full": "accuracy, all edges",
    "accuracy_30": "accuracy, 30 %",
    "accuracy_40": "accuracy, 40 %",
    "accuracy_50": "accuracy, 50 %",
    "agreement_10": "agreement, 10 %",
    "agreement_30": "agreement, 30 %",
    "agreement_40": "agreement, 40 %",
    "g_20": "G, 20 %",
    "same": "nodes reached of its class",
    "kept": "prediction kept",
}


@dataclass(frozen=True, eq=False)
class Panel:
    """One graph of the figure."""

    name: str
    title: str
    graph: Graph
    source: str
    """Where the graph comes from, in a sentence."""
    nodes: int
    """Number of single nodes that are explained."""

    @cached_property
    def recipe(self) -> Recipe:
        """How its network is trained."""
        return Recipe.of(self.graph)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Everything that its networks depend on, besides the seed."""
        return fingerprint(self.graph), asdict(self.recipe)


Item = tuple[Panel, int, Method]


@dataclass(frozen=True)
class Line:
    """A line of the table: the results of one method on one graph, one for each seed."""

    panel: Panel
    method: Method
    records: Sequence[Record]
    nodes: Sequence[Record]

    def values(self, measure: str, share: float) -> list[float]:
        """A measure at a share of the edges, for every seed."""
        at = SHARES.index(min(SHARES, key=lambda known: abs(known - share)))
        return [float(record["trace"][measure][at]) for record in self.records]


def reproduce(experiment: Experiment) -> None:
    """Order the edges by every method, on every graph and seed."""
    methods, settings = experiment.methods(experiment.budget), experiment.settings
    panels = panels_of(experiment)
    many = experiment.args.seeds or settings["seeds"]
    seeds = range(experiment.seed, experiment.seed + many)
    weights = {
        (panel, seed): experiment.place(panel.name, f"network-{seed}", *panel.key, seed)
        for panel in panels
        for seed in seeds
    }
    trained = experiment.measure(
        Task(item, path, label_of(*item), partial(train, experiment, path))
        for item, path in weights.items()
    )
    tasks = []
    for panel, seed in trained:
        for method in (*methods, NODES):
            depends: list[object] = [repr(run_of(method)), SHARES]
            if method is NODES:
                depends = [panel.nodes, sorted(settings["node"].items())]
            name = f"{method.name}-{seed}"
            place = experiment.place(panel.name, name, *panel.key, seed, *depends)
            label = f"{label_of(panel, seed)}, {method.name}"
            run = partial(measure, experiment, weights[panel, seed])
            tasks.append(Task((panel, seed, method), place, label, run))
    records: Mapping[Item, Record] = experiment.measure(tasks)
    lines = list(lines_of(panels, seeds, methods, records))
    experiment.expect(lines)
    rows = [row_of(line, settings["claim"]) for line in lines]
    table = Table(TEXTS | NUMBERS, rows, {"gradients": "{:,.0f}"})
    experiment.csv("graph.csv", rows, "panel", without=("title", "graph", "claim"))
    experiment.csv("graph-curves.csv", curve_rows(lines))
    experiment.csv("graph-seeds.csv", seed_rows(lines))
    title = f"{settings['title']}; {count(len(seeds), 'seed')}, bands: standard error"
    experiment.figure("graph.png", lambda: draw(lines, title))
    done = {line.panel: len(line.records) for line in lines}
    remarks = [
        f"{panel.title}: {panel.source} {panel.graph.nodes:,} nodes, {panel.graph.m:,} edges, "
        f"{panel.graph.x.shape[1]:,} features, {panel.graph.class_count} classes; "
        f"{count(done.get(panel, 0), 'seed')}, "
        f"{panel.nodes} nodes explained for each. {' '.join(panel.graph.notes)}".strip()
        for panel in panels
    ]
    names, k = [panel.name for panel in panels], settings["node"]["k"]
    experiment.page(table, remarks, seeds=list(seeds), panels=names, k=k)


def panels_of(experiment: Experiment) -> list[Panel]:
    """The graphs that are asked for."""
    known = {spec["name"]: spec for spec in experiment.settings["panels"]}
    wanted = experiment.args.panels or list(known)
    for name in wanted:
        if name not in known:
            raise InvalidInput(f"Expected panels among {', '.join(known)} (got {name!r}).")
    graphs, seed = experiment.args.graphs, experiment.seed
    return [panel_of(spec, graphs, seed) for name, spec in known.items() if name in wanted]


def panel_of(spec: Mapping[str, Any], graphs: str | None, seed: int) -> Panel:
    """The graph of a panel: from a file or a folder, or generated where there is none."""
    folder = assets_folder() / "graphs" if graphs is None else Path(graphs)
    names = [spec["file"]] if "file" in spec else spec["folders"]
    place = next((folder / name for name in names if (folder / name).exists()), None)
    title = spec["title"]
    if place is not None:
        source = "from `make assets`." if graphs is None else "from the folder given."
        graph = load_graph(place, seed=seed)
    elif "generate" in spec:
        source = "generated, as the real graph is not in the folder (see --graphs)."
        title, graph = f"generated, {title}'s size", generate(**spec["generate"])
    else:
        raise InvalidInput(
            f"Expected {names[0]} in {folder} (got none). Try make assets, or --graphs FOLDER."
        )
    return Panel(spec["name"], title, graph, source, spec["nodes"])


def label_of(panel: Panel, seed: int) -> str:
    """The network of a graph and seed, in words."""
    return f"{panel.title}, seed {seed}"


def train(experiment: Experiment, path: Path, item: tuple[Panel, int]) -> Record:
    """Train the network of a graph and seed, and keep its weights beside the result."""
    panel, seed = item
    graph = panel.graph.to(experiment.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    model = Training(graph, panel.recipe, seed=seed).finish().model
    save_model(model, path.with_suffix(".safetensors"))
    return {"trained": True}


def run_of(method: Method) -> Any:
    """The method; sampling by degree is known to graphs alone, by its name."""
    return method.name if method.name == "degree" else method.run()


def measure(experiment: Experiment, network: Path, item: Item) -> Record:
    """Order the edges by a method and measure every share of them; or explain single nodes."""
    panel, seed, method = item
    graph = panel.graph.to(experiment.device)
    model = load_model(network.with_suffix(".safetensors"), graph)
    judge = Judge(model, graph)
    if method is NODES:
        k, draws = (experiment.settings["node"][key] for key in ("k", "draws"))
        nodes = nodes_with_a_choice(graph, k, seed)[: panel.nodes]
        return {"k": k, **explain_nodes(model, graph, judge, nodes, k, draws, seed)}
    a = edge_order(run_of(method), model, graph, seed=seed, objective=OBJECTIVE)
    return {
        "seed": seed,
        "full": asdict(judge.full),
        "trace": plain(trace(judge, a.order)),
        "gradients": a.gradients_used,
        "seconds": round(a.seconds, 3),
        "settings": {name: a.settings.get(name) for name in ("steps", "rule", "rounds")},
    }


def nodes_with_a_choice(graph: Graph, k: int, seed: int) -> list[int]:
    """Test nodes in random order, of those where more than 2 k edges are near."""
    assert graph.test is not None
    degrees, edges = graph.degrees.cpu(), graph.edges.cpu()
    near = degrees.clone()
    for one, other in (edges, edges.flip(0)):
        near.index_add_(0, one, degrees[other])
    nodes = [int(i) for i in graph.test.tolist() if degrees[i] and near[i] > 2 * k]
    order: list[int] = np.random.default_rng([seed % 2**32, 0xA11]).permutation(nodes).tolist()
    return [int(node) for node in order]


def explain_nodes(
    model: GCN, graph: Graph, judge: Judge, nodes: Sequence[int], k: int, draws: int, seed: int
) -> Record:
    """The edges of Greedy PIG against adjacent edges taken at random, for each node."""
    runs: list[tuple[str, Any, int]] = [("greedy-pig", None, seed)]
    runs += [("random", "random", 1000 * (seed + 1) + i) for i in range(draws)]
    record: dict[str, list[Record]] = {"greedy-pig": [], "random": []}
    for node in nodes:
        target = int(judge.classes[node])
        for name, method, own in runs:
            search = {"k": k, "target": target, "method": method, "seed": own}
            a = explain_node_of(model, graph, node, **search)
            logits = logits_of(model, graph)(selected_edges(a, graph))[node]
            kept = float(int(logits.argmax()) == target)
            numbers = {"same": facts_of(a).same, "kept": kept}
            record[name].append({"node": node, **numbers})
    return record


def lines_of(
    panels: Sequence[Panel],
    seeds: Sequence[int],
    methods: Sequence[Method],
    records: Mapping[Item, Record],
) -> Iterator[Line]:
    """The results of every graph and method, of all seeds that all methods finished."""
    for panel in panels:
        done = [s for s in seeds if all((panel, s, method) in records for method in methods)]
        nodes = [records[panel, s, NODES] for s in seeds if (panel, s, NODES) in records]
        for method in methods if done else ():
            yield Line(panel, method, [records[panel, seed, method] for seed in done], nodes)


def row_of(line: Line, claim: str) -> Record:
    """Means and standard errors over the seeds."""
    name, records = line.method.name, line.records
    values = {"full": [record["full"]["accuracy"] for record in records]}
    for key in NUMBERS:
        measure, _, percent = key.partition("_")
        if percent:
            values[key] = line.values(measure, int(percent) / 100)
    if name in ("greedy-pig", "random"):
        for key in ("same", "kept"):
            each = [[n[key] for n in nodes[name] if n[key] is not None] for nodes in line.nodes]
            values[key] = [fmean(numbers) for numbers in each if numbers]
    row: Record = {
        "graph": line.panel.title,
        "panel": line.panel.name,
        "method": name,
        "title": line.method.title,
        "setting": setting_of(records[0]),
        "claim": claim if name == "greedy-pig" else "",
        "seeds": len(records),
    }
    for key in ("gradients", "seconds"):
        row[key] = mean_and_error([record[key] for record in records])[0]
    for key, numbers in values.items():
        if numbers:
            row[key], row[f"{key}_error"] = mean_and_error(numbers)
    return row


def setting_of(record: Record) -> str:
    """The method's setting in words."""
    if not record["gradients"]:
        return "drawn by seed"
    rounds, steps, rule = (record["settings"].get(name) for name in ("rounds", "steps", "rule"))
    text = f"{steps} {rule}" if rule else f"{steps}"
    return f"{rounds} × {text}" if rounds and rounds > 1 else text


def curve_rows(lines: Sequence[Line]) -> Iterator[Record]:
    """Means over the seeds at every share of the edges."""
    for line in lines:
        for share in SHARES:
            row: Record = {"panel": line.panel.name, "method": line.method.name, "share": share}
            for measure in MEASURES:
                mean, error = mean_and_error(line.values(measure, share))
                row |= {measure: mean, f"{measure}_error": error}
            yield row


def seed_rows(lines: Sequence[Line]) -> Iterator[Record]:
    """Every seed at every share of the edges."""
    for line in lines:
        for i, record in enumerate(line.records):
            for share in SHARES:
                yield {
                    "panel": line.panel.name,
                    "method": line.method.name,
                    "seed": record["seed"],
                    "share": share,
                    "gradients": record["gradients"],
                    **{measure: line.values(measure, share)[i] for measure in MEASURES},
                }


def draw(lines: Sequence[Line], title: str) -> Any:
    """A row of diagrams for each measure, one diagram for each graph."""
    rows = []
    for measure, quantity in MEASURES.items():
        bands: dict[Panel, dict[str, Band]] = {}
        full = {}
        for line in lines:
            points = [mean_and_error(line.values(measure, share)) for share in SHARES]
            means, errors = [mean or 0.0 for mean, _ in points], [e or 0.0 for _, e in points]
            bands.setdefault(line.panel, {})[line.method.title] = Band(SHARES, means, errors)
            full[line.panel] = mean_and_error([r["full"][measure] for r in line.records])[0]
        rows.append([BandPanel(p.title, quantity, each, full[p]) for p, each in bands.items()])
    return band_sheet(rows, title=title)
