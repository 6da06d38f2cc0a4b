"""Figure 4 of the paper: graphs compressed to a share of their edges; and single nodes explained.

A network is trained for every graph and seed, and each method orders the edges for it. Networks and
results are kept method by method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from greedypig.core.errors import InvalidInput
from greedypig.graphs import Graph, Recipe, Training, generate, load_graph, load_model, save_model
from greedypig.graphs.compression import SHARES, Judge, edge_order, grow, trace
from greedypig.graphs.training import fingerprint
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.models import GCN
from greedypig.plots import Band, BandPanel, band_sheet
from greedypig.results.wording import count

from .job import Batch, Job, Record, Task
from .output import Files, Table, mean_and_error
from .settings import Contender, Request

OBJECTIVE = "log-probability"
MEASURES = {
    "accuracy": "accuracy on the test nodes",
    "agreement": "agreement with the full graph",
    "g": "G",
}
NODES = "nodes"
"""The task of a graph and seed that explains single nodes."""
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


class Compression(Job):
    """Every method's order of the edges, on every graph and seed."""

    FILES = ("graph.md", "graph.png", "graph.csv", "graph-curves.csv", "graph-seeds.csv")

    def prepare(self) -> None:
        request = self.request
        if request.objective not in (None, OBJECTIVE):
            raise InvalidInput(
                f"Expected the objective {OBJECTIVE} for graph (got {request.objective!r})."
            )
        self.contenders = self.settings.chosen(request.methods, request.budget)
        known = {spec["name"]: spec for spec in self.more["panels"]}
        for name in request.panels or ():
            if name not in known:
                raise InvalidInput(f"Expected panels among {', '.join(known)} (got {name!r}).")
        names = [name for name in known if name in (request.panels or known)]
        self.panels = [_panel(known[name], request) for name in names]
        seeds = request.seeds or self.more["seeds"]
        self.seeds = range(request.seed, request.seed + seeds)

    def batches(self) -> Iterator[Batch]:
        """All methods on one graph with one seed, and single nodes."""
        for panel in self.panels:
            for seed in self.seeds:
                label = f"{panel.title}, seed {seed}"
                items: list[Contender | str] = [*self.contenders, NODES]
                tasks = [
                    Task(self.path(panel, seed, item), item, f"{label}, {_name(item)}")
                    for item in items
                ]
                yield Batch(label, tuple(tasks), partial(self.measure, panel, seed))

    def path(self, panel: Panel, seed: int, item: Contender | str) -> Path:
        """The file of a method's result for a graph and seed, or of the single nodes."""
        if isinstance(item, str):
            depends: list[object] = [panel.nodes, sorted(self.more["node"].items())]
        else:
            depends = [repr(_method(item)), SHARES]
        return self.place(panel.name, f"{_name(item)}-{seed}", *panel.key, seed, *depends)

    def measure(
        self, panel: Panel, seed: int, items: Sequence[Contender | str]
    ) -> Iterator[Record]:
        """Train, then order the edges by each method and measure every share of them."""
        graph = panel.graph.to(self.request.device)
        model = self._network(panel, graph, seed)
        judge = Judge(model, graph)
        for item in items:
            if isinstance(item, str):
                yield self._nodes(panel, graph, model, judge, seed)
                continue
            a = edge_order(_method(item), model, graph, seed=seed, objective=OBJECTIVE)
            names = ("steps", "rule", "rounds", "schedule")
            yield {
                "panel": panel.name,
                "seed": seed,
                "method": item.name,
                "full": asdict(judge.full),
                "trace": trace(judge, a.order).record(),
                "gradients": a.gradients_used,
                "seconds": round(a.seconds, 3),
                "settings": {name: a.settings.get(name) for name in names},
            }

    def _network(self, panel: Panel, graph: Graph, seed: int) -> GCN:
        """The trained network, kept in a file."""
        place = self.place(panel.name, f"network-{seed}", *panel.key, seed)
        place = place.with_suffix(".safetensors")
        if place.is_file() and self.request.resume:
            return load_model(place, graph)
        place.parent.mkdir(parents=True, exist_ok=True)
        model = Training(graph, panel.recipe, seed=seed).finish().model
        save_model(model, place)
        return model

    def _nodes(self, panel: Panel, graph: Graph, model: GCN, judge: Judge, seed: int) -> Record:
        """Single nodes: the edges of Greedy PIG against edges that grow at random."""
        k, draws = (self.more["node"][key] for key in ("k", "draws"))
        nodes = _nodes_with_a_choice(graph, k, seed)[: panel.nodes]
        runs: list[tuple[str, Any, int]] = [("greedy-pig", None, seed)]
        runs += [("random", "random", 1000 * (seed + 1) + i) for i in range(draws)]
        measures: dict[str, list[Record]] = {"greedy-pig": [], "random": []}
        for node in nodes:
            target = int(judge.classes[node])
            for name, method, own in runs:
                _, growth = grow(model, graph, node, k=k, target=target, method=method, seed=own)
                numbers = {"same": growth.same_class(graph), "kept": float(growth.kept)}
                numbers["probability"] = growth.probabilities[-1]
                measures[name].append({"node": node} | numbers)
        return {"panel": panel.name, "seed": seed, "k": k, "nodes": len(nodes), **measures}

    def records(self) -> Iterator[tuple[Panel, Contender, list[Record]]]:
        """The results of every graph and method, of all seeds that all methods finished."""
        for panel in self.panels:
            seeds = [
                [self.read(self.path(panel, seed, c)) for c in self.contenders]
                for seed in self.seeds
            ]
            finished = [records for records in seeds if all(records)]
            for i, contender in enumerate(self.contenders):
                if finished:
                    yield panel, contender, [records[i] or {} for records in finished]

    def table(self) -> Table:
        rows = [self._row(*each) for each in self.records()]
        formats = dict.fromkeys(NUMBERS, "{:.3f}") | {"gradients": "{:,.0f}"}
        return Table(TEXTS | NUMBERS, rows, formats)

    def _row(self, panel: Panel, contender: Contender, records: list[Record]) -> Record:
        values = {"full": [r["full"]["accuracy"] for r in records]}
        for key in NUMBERS:
            measure, _, percent = key.partition("_")
            if percent:
                values[key] = [_at(r, measure, int(percent) / 100) for r in records]
        if contender.name in ("greedy-pig", "random"):
            for key in ("same", "kept"):
                values[key] = self._node_means(panel, contender.name, key)
        row: Record = {
            "graph": panel.title,
            "panel": panel.name,
            "method": contender.name,
            "title": contender.title,
            "setting": _setting(records[0]),
            "claim": self.more["claim"] if contender.name == "greedy-pig" else "",
            "seeds": len(records),
        }
        for key in ("gradients", "seconds"):
            row[key] = mean_and_error([r[key] for r in records])[0]
        for key, each in values.items():
            if each:
                row[key], row[f"{key}_error"] = mean_and_error(each)
        return row

    def _node_means(self, panel: Panel, method: str, key: str) -> list[float]:
        """A measure of the single nodes, one mean for each seed."""
        means = []
        for seed in self.seeds:
            record = self.read(self.path(panel, seed, NODES)) or {method: []}
            mean, _ = mean_and_error([n[key] for n in record[method] if n[key] is not None])
            means += [] if mean is None else [mean]
        return means

    def about(self) -> Record:
        names = [panel.name for panel in self.panels]
        return {"seeds": list(self.seeds), "panels": names, "k": self.more["node"]["k"]}

    def remarks(self) -> list[str]:
        seeds = {panel: len(records) for panel, _, records in self.records()}
        return [
            f"{panel.title}: {panel.source} {panel.graph.nodes:,} nodes, {panel.graph.m:,} edges, "
            f"{panel.graph.x.shape[1]:,} features, {panel.graph.class_count} classes; "
            f"{count(seeds.get(panel, 0), 'seed')}, "
            f"{panel.nodes} nodes explained for each. {' '.join(panel.graph.notes)}".strip()
            for panel in self.panels
        ]

    def write(self, files: Files, table: Table) -> None:
        files.csv("graph.csv", table.rows, first="panel", without=("title", "graph", "claim"))
        files.csv("graph-curves.csv", self._curves(), first="panel")
        files.csv("graph-seeds.csv", self._per_seed(), first="panel")
        files.figure("graph.png", self._figure)

    def _curves(self) -> Iterator[Record]:
        for panel, contender, records in self.records():
            for share in SHARES:
                row: Record = {"panel": panel.name, "method": contender.name, "share": share}
                for measure in MEASURES:
                    mean, error = mean_and_error([_at(r, measure, share) for r in records])
                    row |= {measure: mean, f"{measure}_error": error}
                yield row

    def _per_seed(self) -> Iterator[Record]:
        for panel, contender, records in self.records():
            for r in records:
                for share in SHARES:
                    row = {"panel": panel.name, "method": contender.name, "seed": r["seed"]}
                    row |= {"share": share, "gradients": r["gradients"]}
                    yield row | {measure: _at(r, measure, share) for measure in MEASURES}

    def _figure(self) -> Any:
        rows = []
        for measure, quantity in MEASURES.items():
            bands: dict[Panel, dict[str, Band]] = {}
            full = {}
            for panel, contender, records in self.records():
                points = [mean_and_error([_at(r, measure, s) for r in records]) for s in SHARES]
                means, errors = [mean or 0.0 for mean, _ in points], [e or 0.0 for _, e in points]
                bands.setdefault(panel, {})[contender.title] = Band(SHARES, means, errors)
                full[panel] = mean_and_error([r["full"][measure] for r in records])[0]
            rows.append([BandPanel(p.title, quantity, each, full[p]) for p, each in bands.items()])
        seeds = count(len(self.seeds), "seed")
        return band_sheet(rows, title=f"{self.settings.title}; {seeds}, bands: standard error")


def _name(item: Contender | str) -> str:
    return item if isinstance(item, str) else item.name


def _method(contender: Contender) -> Any:
    """The method; sampling by degree is known to graphs alone, by its name."""
    return contender.name if contender.name == "degree" else contender.method()


def _panel(spec: Mapping[str, Any], request: Request) -> Panel:
    """The graph of a panel: from a file or a folder, or generated where there is none."""
    folder = Path(request.graphs) if request.graphs is not None else assets_folder() / "graphs"
    names = [spec["file"]] if "file" in spec else spec["folders"]
    place = next((folder / name for name in names if (folder / name).exists()), None)
    title = spec["title"]
    if place is not None:
        source = "from the folder given." if request.graphs is not None else "from `make assets`."
        graph = load_graph(place, seed=request.seed)
    elif "generate" in spec:
        source = "generated, as the real graph is not in the folder (see --graphs)."
        title, graph = f"generated, {title}'s size", generate(**spec["generate"])
    else:
        raise InvalidInput(
            f"Expected {names[0]} in {folder} (got none). Try make assets, or --graphs FOLDER."
        )
    return Panel(spec["name"], title, graph, source, spec["nodes"])


def _nodes_with_a_choice(graph: Graph, k: int, seed: int) -> list[int]:
    """Test nodes in random order, of those where more than 2 k edges are near."""
    assert graph.test is not None
    degrees, edges = graph.degrees.cpu(), graph.edges.cpu()
    near = degrees.clone()
    for one, other in (edges, edges.flip(0)):
        near.index_add_(0, one, degrees[other])
    nodes = [int(i) for i in graph.test.tolist() if degrees[i] and near[i] > 2 * k]
    order: list[int] = np.random.default_rng([seed % 2**32, 0xA11]).permutation(nodes).tolist()
    return [int(node) for node in order]


def _setting(record: Record) -> str:
    if not record["gradients"]:
        return "drawn by seed"
    rounds, steps, rule = (record["settings"].get(name) for name in ("rounds", "steps", "rule"))
    text = f"{steps} {rule}" if rule else f"{steps}"
    return f"{rounds} × {text}" if rounds and rounds > 1 else text


def _at(record: Record, measure: str, share: float) -> float:
    curve = record["trace"]
    at = min(range(len(SHARES)), key=lambda i: abs(curve["fractions"][i] - share))
    return float(curve[measure][at])
