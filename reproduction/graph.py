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
from greedypig.graphs import (
    Graph,
    Recipe,
    Training,
    generate,
    load_graph,
    load_model,
    save_model,
)
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
MEASURES = {"accuracy": "accuracy on the test nodes", "agreement": "agreement with the full graph",
            "g": "G"}  # fmt: skip
NODES = "nodes"
"""The task of a graph and seed that explains single nodes."""
COLUMNS = {
    "graph": "graph", "title": "method", "setting": "setting", "gradients": "gradients",
    "claim": "paper", "full": "accuracy, all edges", "accuracy_30": "accuracy, 30 %",
    "accuracy_40": "accuracy, 40 %", "accuracy_50": "accuracy, 50 %",
    "agreement_10": "agreement, 10 %", "agreement_30": "agreement, 30 %",
    "agreement_40": "agreement, 40 %", "g_20": "G, 20 %", "same": "nodes reached of its class",
    "kept": "prediction kept",
}  # fmt: skip


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
        self.panels = [_panel(spec, request) for name, spec in known.items()
                       if name in (request.panels or known)]  # fmt: skip
        seeds = request.seeds or self.more["seeds"]
        self.seeds = range(request.seed, request.seed + seeds)

    def batches(self) -> Iterator[Batch]:
        """All methods on one graph with one seed."""
        for panel in self.panels:
            for seed in self.seeds:
                tasks = [Task(self.path(panel, seed, c), c, f"{panel.title}, {c.name}, seed {seed}")
                         for c in self.contenders]  # fmt: skip
                tasks.append(Task(self.nodes_path(panel, seed), NODES,
                                  f"{panel.title}, {NODES}, seed {seed}"))  # fmt: skip
                yield Batch(f"{panel.title}, seed {seed}", tuple(tasks),
                            partial(self.measure, panel, seed))  # fmt: skip

    def path(self, panel: Panel, seed: int, contender: Contender) -> Path:
        """The file of a method's result for a graph and seed."""
        return self.place(panel.name, f"{contender.name}-{seed}", *panel.key, seed,
                          repr(_method(contender)), SHARES)  # fmt: skip

    def nodes_path(self, panel: Panel, seed: int) -> Path:
        """The file of the single nodes of a graph and seed."""
        return self.place(panel.name, f"{NODES}-{seed}", *panel.key, seed, panel.nodes,
                          sorted(self.more["node"].items()))  # fmt: skip

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
                "panel": panel.name, "seed": seed, "method": item.name, "full": asdict(judge.full),
                "trace": trace(judge, a.order).record(), "gradients": a.gradients_used,
                "seconds": round(a.seconds, 3),
                "settings": {name: a.settings.get(name) for name in names},
            }  # fmt: skip

    def _network(self, panel: Panel, graph: Graph, seed: int) -> GCN:
        """The trained network, kept in a file; a stopped training goes on."""
        place = self.place(panel.name, f"network-{seed}", *panel.key, seed)
        place, partial = (place.with_suffix(f"{end}.safetensors") for end in ("", ".partial"))
        if place.is_file() and self.request.resume:
            return load_model(place, graph)
        place.parent.mkdir(parents=True, exist_ok=True)
        training = Training(graph, panel.recipe, seed=seed)
        if self.request.resume:
            training.take_up(partial)
        try:
            training.finish()
        except KeyboardInterrupt:
            training.save(partial)
            raise
        save_model(training.model, place)
        partial.unlink(missing_ok=True)
        return training.model

    def _nodes(self, panel: Panel, graph: Graph, model: GCN, judge: Judge, seed: int) -> Record:
        """Single nodes: the edges of Greedy PIG against edges that grow at random."""
        k, draws = (self.more["node"][key] for key in ("k", "draws"))
        nodes = _nodes_with_a_choice(graph, k, seed)[: panel.nodes]
        measures: dict[str, list[Record]] = {"greedy-pig": [], "random": []}
        for node in nodes:
            runs: list[tuple[str, Any, int]] = [("greedy-pig", None, seed)]
            runs += [("random", "random", 1000 * (seed + 1) + i) for i in range(draws)]
            for name, method, own_seed in runs:
                _, growth = grow(model, graph, node, k=k, target=int(judge.classes[node]),
                                 method=method, seed=own_seed)  # fmt: skip
                measures[name].append({
                    "node": node, "same": growth.same_class(graph), "kept": float(growth.kept),
                    "probability": growth.probabilities[-1],
                })  # fmt: skip
        return {"panel": panel.name, "seed": seed, "k": k, "nodes": len(nodes), **measures}

    def records(self, panel: Panel, contender: Contender) -> list[Record]:
        """The results of every seed that all methods finished."""
        by_seed = [{c: self.read(self.path(panel, seed, c)) for c in self.contenders}
                   for seed in self.seeds]  # fmt: skip
        return [records[contender] or {} for records in by_seed if all(records.values())]

    def table(self) -> Table:
        rows = [row for panel in self.panels for c in self.contenders
                if (row := self._row(panel, c)) is not None]  # fmt: skip
        texts = ("graph", "title", "setting", "claim")
        formats = dict.fromkeys((c for c in COLUMNS if c not in texts), "{:.3f}")
        return Table(COLUMNS, rows, formats | {"gradients": "{:,.0f}"})

    def _row(self, panel: Panel, contender: Contender) -> Record | None:
        records = self.records(panel, contender)
        if not records:
            return None
        values = {"full": [r["full"]["accuracy"] for r in records]}
        for key in COLUMNS:
            measure, _, percent = key.partition("_")
            if percent:
                values[key] = [_at(r, measure, int(percent) / 100) for r in records]
        if contender.name in ("greedy-pig", "random"):
            for key in ("same", "kept"):
                values[key] = self._node_means(panel, contender.name, key)
        row: Record = {
            "graph": panel.title, "panel": panel.name, "method": contender.name,
            "title": contender.title, "setting": _setting(records[0]),
            "gradients": mean_and_error([r["gradients"] for r in records])[0],
            "claim": self.more["claim"] if contender.name == "greedy-pig" else "",
            "seeds": len(records), "seconds": mean_and_error([r["seconds"] for r in records])[0],
        }  # fmt: skip
        for key, each in values.items():
            if each:
                row[key], row[f"{key}_error"] = mean_and_error(each)
        return row

    def _node_means(self, panel: Panel, method: str, key: str) -> list[float]:
        """A measure of the single nodes, one mean for each seed."""
        means = []
        for seed in self.seeds:
            record = self.read(self.nodes_path(panel, seed)) or {method: []}
            mean, _ = mean_and_error([n[key] for n in record[method] if n[key] is not None])
            means += [] if mean is None else [mean]
        return means

    def about(self) -> Record:
        return {"seeds": list(self.seeds), "panels": [p.name for p in self.panels],
                "k": self.more["node"]["k"]}  # fmt: skip

    def remarks(self) -> list[str]:
        return [
            f"{panel.title}: {panel.source} {panel.graph.nodes:,} nodes, {panel.graph.m:,} edges, "
            f"{panel.graph.x.shape[1]:,} features, {panel.graph.class_count} classes; "
            f"{count(len(self.records(panel, self.contenders[0])), 'seed')}, "
            f"{panel.nodes} nodes explained for each. {' '.join(panel.graph.notes)}".strip()
            for panel in self.panels
        ]

    def write(self, files: Files, table: Table) -> None:
        files.csv("graph.csv", table.rows, first="panel", without=("title", "graph", "claim"))
        files.csv("graph-curves.csv", self._curves(), first="panel")
        files.csv("graph-seeds.csv", self._per_seed(), first="panel")
        files.figure("graph.png", self._figure)

    def _each(self) -> Iterator[tuple[Panel, Contender, list[Record]]]:
        for panel in self.panels:
            for contender in self.contenders:
                if records := self.records(panel, contender):
                    yield panel, contender, records

    def _curves(self) -> Iterator[Record]:
        for panel, contender, records in self._each():
            for share in SHARES:
                row: Record = {"panel": panel.name, "method": contender.name, "share": share}
                for measure in MEASURES:
                    mean, error = mean_and_error([_at(r, measure, share) for r in records])
                    row |= {measure: mean, f"{measure}_error": error}
                yield row

    def _per_seed(self) -> Iterator[Record]:
        for panel, contender, records in self._each():
            for r in records:
                for share in SHARES:
                    yield {"panel": panel.name, "method": contender.name, "seed": r["seed"],
                           "share": share, "gradients": r["gradients"],
                           **{m: _at(r, m, share) for m in MEASURES}}  # fmt: skip

    def _figure(self) -> Any:
        rows = []
        for measure, quantity in MEASURES.items():
            bands: dict[Panel, dict[str, Band]] = {}
            full = {}
            for panel, contender, records in self._each():
                points = [mean_and_error([_at(r, measure, s) for r in records]) for s in SHARES]
                bands.setdefault(panel, {})[contender.title] = Band(
                    SHARES, [mean or 0.0 for mean, _ in points], [e or 0.0 for _, e in points]
                )
                full[panel] = mean_and_error([r["full"][measure] for r in records])[0]
            rows.append([BandPanel(panel.title, quantity, each, full[panel])
                         for panel, each in bands.items()])  # fmt: skip
        seeds = count(len(self.seeds), "seed")
        return band_sheet(rows, title=f"{self.settings.title}; {seeds}, bands: standard error")


def _method(contender: Contender) -> Any:
    """The method; sampling by degree is known to graphs alone, by its name."""
    return contender.name if contender.name == "degree" else contender.method()


def _panel(spec: Mapping[str, Any], request: Request) -> Panel:
    """The graph of a panel: from a file or a folder, or generated where there is none."""
    folder = Path(request.graphs) if request.graphs is not None else assets_folder() / "graphs"
    names = [spec["file"]] if "file" in spec else spec["folders"]
    place = next((folder / name for name in names if (folder / name).exists()), None)
    if place is not None:
        source = "from the folder given." if request.graphs is not None else "from `make assets`."
        graph = load_graph(place, seed=request.seed)
        return Panel(spec["name"], spec["title"], graph, source, spec["nodes"])
    if "generate" not in spec:
        raise InvalidInput(
            f"Expected {names[0]} in {folder} (got none). Try make assets, or --graphs FOLDER."
        )
    source = ("generated, as the real graph is not here (--graphs FOLDER with the folder that OGB "
              "ships takes it).")  # fmt: skip
    title = f"generated, {spec['title']}'s size"
    return Panel(spec["name"], title, generate(**spec["generate"]), source, spec["nodes"])


def _nodes_with_a_choice(graph: Graph, k: int, seed: int) -> list[int]:
    """Test nodes in random order, of those where more than 2 k edges are near."""
    assert graph.test is not None
    degrees = graph.degrees.cpu()
    near = degrees.clone()
    for one, other in (graph.edges.cpu(), graph.edges.cpu().flip(0)):
        near.index_add_(0, one, degrees[other])
    nodes = [int(i) for i in graph.test.tolist() if degrees[i] and near[i] > 2 * k]
    order: list[int] = np.random.default_rng([seed % 2**32, 0xA11]).permutation(nodes).tolist()
    return [int(node) for node in order]


def _setting(record: Record) -> str:
    settings = record["settings"]
    if not record["gradients"]:
        return "drawn by seed"
    rounds, steps = settings.get("rounds"), settings.get("steps")
    rule = f" {settings['rule']}" if settings.get("rule") else ""
    return f"{rounds} × {steps}{rule}" if rounds and rounds > 1 else f"{steps}{rule}"


def _at(record: Record, measure: str, share: float) -> float:
    curve = record["trace"]
    at = min(range(len(SHARES)), key=lambda i: abs(curve["fractions"][i] - share))
    return float(curve[measure][at])
