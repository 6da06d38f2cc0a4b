"""Figure 4 of the paper: graphs compressed to a share of their edges; and single nodes explained.

A network is trained for every graph and seed, and each method orders the edges for it. What is
measured is kept method by method, the networks too: a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
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
    runs,
    save_model,
)
from greedypig.graphs.compression import METHODS, SHARES, Judge, edge_order, trace
from greedypig.graphs.node_context import grow
from greedypig.graphs.training import fingerprint
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.models import GCN
from greedypig.plots import Band, BandPanel, band_sheet

from . import cache
from .cache import Shelf
from .outputs import Written
from .request import Request, Result, Table
from .resumable import Batch, Task, carry_out
from .settings import Settings

FILES = ("graph.md", "graph.png", "graph.csv", "graph-curves.csv", "graph-seeds.csv")
MEASURES = {"accuracy": "accuracy on the test nodes", "agreement": "agreement with the full graph",
            "g": "G"}  # fmt: skip
AROUND = "nodes"
"""The task of a graph and seed that explains single nodes."""
COLUMNS = {
    "graph": "graph", "title": "method", "setting": "setting", "gradients": "gradients",
    "claim": "paper", "full": "accuracy, all edges", "accuracy_30": "accuracy, 30 %",
    "accuracy_40": "accuracy, 40 %", "accuracy_50": "accuracy, 50 %",
    "agreement_10": "agreement, 10 %", "agreement_30": "agreement, 30 %",
    "agreement_40": "agreement, 40 %", "g_20": "G, 20 %", "same": "nodes reached of its class",
    "kept": "prediction kept",
}  # fmt: skip


def run(request: Request) -> Result:
    """The table and its figure."""
    job = Job.of(request, Settings.of("graph"))
    carry_out(list(job.batches()), request)
    result = job.result()
    return job.written(result) if request.group.first else result


@dataclass(frozen=True, eq=False)
class Panel:
    """One graph of the figure."""

    name: str
    title: str
    graph: Graph
    source: str
    """Where it comes from, in a sentence."""
    nodes: int
    """How many single nodes are explained."""

    @cached_property
    def digest(self) -> str:
        """Of all that the graph is."""
        return fingerprint(self.graph)

    @cached_property
    def recipe(self) -> Recipe:
        """How its network is trained."""
        return Recipe.of(self.graph)


@dataclass(frozen=True, eq=False)
class Job:
    """One run: the graphs, the seeds, and the methods."""

    request: Request
    settings: Settings
    panels: tuple[Panel, ...]
    searches: Mapping[str, Mapping[str, Any]]
    seeds: tuple[int, ...]
    shelf: Shelf

    @staticmethod
    def of(request: Request, settings: Settings) -> Job:
        """Read the graphs, the same in every process."""
        if request.objective not in (None, "log-likelihood"):
            raise InvalidInput(
                f"Expected the objective log-likelihood for graph (got {request.objective!r})."
            )
        searches = _searches(request, settings)
        known = {spec["name"]: spec for spec in settings.more["panels"]}
        names = list(request.panels or known)
        for name in names:
            if name not in known:
                raise InvalidInput(f"Expected panels among {', '.join(known)} (got {name!r}).")
        panels = tuple(_panel(spec, request) for name, spec in known.items() if name in names)
        count = request.seeds or settings.more["seeds"]
        seeds = tuple(range(request.seed, request.seed + count))
        return Job(request, settings, panels, searches, seeds, Shelf(request.out / "rows/graph"))

    def batches(self) -> Iterator[Batch]:
        """A graph and a seed, with all methods, is one piece of work."""
        for panel in self.panels:
            for seed in self.seeds:
                what = [*self.searches, AROUND]
                tasks = tuple(Task(self.place(panel, seed, name), name) for name in what)
                yield Batch(
                    f"{panel.title}, seed {seed}", tasks, partial(self.measured, panel, seed)
                )

    def place(self, panel: Panel, seed: int, name: str) -> Path:
        """Where a method's result for a graph and seed lies."""
        search = self.settings.more["node"] if name == AROUND else self.searches[name]
        own = (panel.nodes,) if name == AROUND else ()
        return self.shelf.place(panel.name, f"{name}-{seed}", panel.digest, asdict(panel.recipe),
                                seed, name, sorted(search.items()), _defaults(), SHARES,
                                *own)  # fmt: skip

    def measured(self, panel: Panel, seed: int, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Train, then order the edges by each method and judge them."""
        graph = panel.graph.to(self.request.device)
        model = self._network(panel, graph, seed)
        judge = Judge(model, graph)
        for name in names:
            if name == AROUND:
                yield self._around(panel, graph, model, judge, seed)
                continue
            a = edge_order(name, model, graph, seed=seed, **self.searches[name])
            found = trace(judge, a.order)
            yield {
                "panel": panel.name, "seed": seed, "method": name, "full": asdict(judge.full),
                "trace": found.record(), "gradients": a.gradients_used,
                "seconds": round(a.seconds, 3),
                "settings": {k: a.settings.get(k) for k in ("scorer", "steps", "rule", "rounds",
                                                            "schedule", "objective")},
            }  # fmt: skip

    def _network(self, panel: Panel, graph: Graph, seed: int) -> GCN:
        place = self.shelf.place(
            panel.name, f"network-{seed}", panel.digest, asdict(panel.recipe), seed
        ).with_suffix(".safetensors")
        if place.is_file() and self.request.resume:
            return load_model(place, graph)
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(".partial.safetensors")
        training = Training(graph, panel.recipe, seed=seed)
        if self.request.resume:
            training.take_up(partial)
        try:
            while not training.finished:
                training.step()
        except KeyboardInterrupt:  # In large graphs that is a while: the next run goes on.
            training.save(partial)
            raise
        model = training.trained().model
        save_model(model, place)
        partial.unlink(missing_ok=True)
        return model

    def _around(
        self, panel: Panel, graph: Graph, model: GCN, judge: Judge, seed: int
    ) -> dict[str, Any]:
        """Single nodes: the edges of Greedy PIG against edges that grow at random."""
        k, draws = (self.settings.more["node"][key] for key in ("k", "draws"))
        assert graph.test is not None
        # Only where there is a choice: more than k edges touch the node and its neighbours.
        degrees = graph.degrees.cpu()
        wide = degrees.clone()
        for one, other in (graph.edges.cpu(), graph.edges.cpu().flip(0)):
            wide.index_add_(0, one, degrees[other])
        able = [int(i) for i in graph.test.tolist() if degrees[i] and wide[i] > 2 * k]
        drawn = np.random.default_rng([seed % 2**32, 0xA11]).permutation(able)
        chosen = drawn[: panel.nodes].tolist()
        found: dict[str, list[dict[str, float | None]]] = {"greedy-pig": [], "random": []}
        for node in chosen:
            target = int(judge.classes[node])
            own = [("greedy-pig", seed)] + [("random", 1000 * (seed + 1) + i) for i in range(draws)]
            for method, each in own:
                _, growth = grow(model, graph, node, k=k, target=target, method=method, seed=each)
                found[method].append({
                    "node": node, "same": growth.same_class(graph), "kept": float(growth.kept),
                    "probability": growth.probabilities[-1],
                })  # fmt: skip
        return {"panel": panel.name, "seed": seed, "method": AROUND, "k": k, "nodes": len(chosen),
                "found": found}  # fmt: skip

    def read(self, panel: Panel, seed: int, name: str) -> dict[str, Any] | None:
        """A result that is there and is no failure."""
        found = cache.read(self.place(panel, seed, name))
        return None if found is None or "error" in found else found

    def records(self, panel: Panel, name: str) -> list[dict[str, Any]]:
        """Of every seed that all methods finished."""
        whole = [s for s in self.seeds if all(self.read(panel, s, n) for n in self.searches)]
        return [r for s in whole if (r := self.read(panel, s, name)) is not None]

    def result(self) -> Result:
        """The table."""
        rows = [row for panel in self.panels for row in self._rows(panel)]
        if not rows:
            first = next((reason for _, reason in self._failed()), "it was not measured.")
            raise InvalidInput(f"Expected graphs that every method orders (got none). {first}")
        numbers = [key for key in COLUMNS if key not in ("graph", "title", "setting", "claim")]
        formats = dict.fromkeys(numbers, "{:.3f}") | {"gradients": "{:,.0f}"}
        table = Table(COLUMNS, rows, formats, {key: f"{key}_error" for key in numbers})
        about = {"seeds": list(self.seeds), "panels": [p.name for p in self.panels],
                 "k": self.settings.more["node"]["k"]}  # fmt: skip
        remarks = self._remarks()
        spoken = list(dict.fromkeys([*remarks[:2], *self._quick()]))
        return Result("graph", self.settings.title, table, remarks, self._failed(), about=about,
                      spoken=spoken)  # fmt: skip

    def _rows(self, panel: Panel) -> Iterator[dict[str, Any]]:
        single = [r for s in self.seeds if (r := self.read(panel, s, AROUND)) is not None]
        for name in self.searches:
            records = self.records(panel, name)
            if not records:
                continue
            row: dict[str, Any] = {
                "graph": panel.title, "panel": panel.name, "method": name, "title": METHODS[name],
                "setting": _setting(records[0]), "gradients": mean(r["gradients"] for r in records),
                "claim": self.settings.more["claim"] if name == "greedy-pig" else "",
                "seeds": len(records), "seconds": mean(r["seconds"] for r in records),
            }  # fmt: skip
            columns = {"full": [r["full"]["accuracy"] for r in records]}
            for key in COLUMNS:
                measure, _, percent = key.partition("_")
                if percent:
                    columns[key] = [_at(r, measure, int(percent) / 100) for r in records]
            for what in ("same", "kept") if name in ("greedy-pig", "random") else ():
                each = [_mean(f[what] for f in r["found"][name]) for r in single]
                columns[what] = [v for v in each if v is not None]
            for key, values in columns.items():
                if values:
                    row[key], row[f"{key}_error"] = mean(values), _error(values)
            yield row

    def _failed(self) -> list[tuple[str, str]]:
        found = []
        for panel in self.panels:
            for seed in self.seeds:
                for name in (*self.searches, AROUND):
                    record = cache.read(self.place(panel, seed, name)) or {}
                    if "error" in record:
                        found.append((f"{panel.title}, {name}, seed {seed}", record["error"]))
        return found

    def _remarks(self) -> list[str]:
        remarks = [
            f"{panel.title}: {panel.source} {panel.graph.nodes:,} nodes, {panel.graph.m:,} edges, "
            f"{panel.graph.x.shape[1]:,} features, {panel.graph.class_count} classes; "
            f"{_count(len(self.records(panel, next(iter(self.searches)))), 'seed')}, "
            f"{panel.nodes} nodes explained for each. {' '.join(panel.graph.notes)}".strip()
            for panel in self.panels
        ]
        return remarks + self._quick() + list(self.settings.differs)

    def _quick(self) -> list[str]:
        budget = self.request.budget
        told = f"Run with at most {budget:,} gradients: a quick look."
        return [] if budget is None else [told]

    def written(self, result: Result) -> Result:
        """The files of the result."""
        out = Written(self.request, result)
        rows = [{k: v for k, v in row.items() if k not in ("title", "graph", "claim")}
                for row in result.table.rows]  # fmt: skip
        out.csv("graph.csv", rows, "panel")
        out.csv("graph-curves.csv", list(self._curves()), "panel")
        out.csv("graph-seeds.csv", list(self._each()), "panel")
        out.figure("graph.png", self._figure)
        return out.page("graph.md")

    def _curves(self) -> Iterator[dict[str, Any]]:
        for panel in self.panels:
            for name in self.searches:
                records = self.records(panel, name)
                for share in SHARES if records else ():
                    row: dict[str, Any] = {"panel": panel.name, "method": name, "share": share}
                    for measure in MEASURES:
                        values = [_at(r, measure, share) for r in records]
                        row |= {measure: mean(values), f"{measure}_error": _error(values)}
                    yield row

    def _each(self) -> Iterator[dict[str, Any]]:
        for panel in self.panels:
            for name in self.searches:
                for r in self.records(panel, name):
                    for share in SHARES:
                        yield {"panel": panel.name, "method": name, "seed": r["seed"],
                               "share": share, "gradients": r["gradients"]} | {
                            m: _at(r, m, share) for m in MEASURES}  # fmt: skip

    def _figure(self) -> Any:
        rows = []
        for measure, quantity in MEASURES.items():
            row = []
            for panel in self.panels:
                bands, full = {}, []
                for name in self.searches:
                    records = self.records(panel, name)
                    if not records:
                        continue
                    each = [[_at(r, measure, s) for r in records] for s in SHARES]
                    bands[METHODS[name]] = Band(SHARES, [mean(v) for v in each],
                                                [_error(v) or 0.0 for v in each])  # fmt: skip
                    full = [r["full"][measure] for r in records]
                if bands:
                    row.append(BandPanel(panel.title, quantity, bands, mean(full)))
            rows.append(row)
        seeds = _count(len(self.seeds), "seed")
        return band_sheet(rows, title=f"{self.settings.title}; {seeds}, bands: standard error")


def _searches(request: Request, settings: Settings) -> dict[str, dict[str, Any]]:
    known = {spec["name"]: dict(spec["search"]) for spec in settings.more["contenders"]}
    for name in request.methods or ():
        if name not in known:
            raise InvalidInput(
                f"Expected methods of graph among {', '.join(known)} (got {name!r})."
            )
    chosen = {n: s for n, s in known.items() if request.methods is None or n in request.methods}
    if not chosen:
        raise InvalidInput(f"Expected methods among {', '.join(known)} (got none).")
    if request.budget is not None:
        steps = min(runs.STEPS, request.budget)
        cut = {"greedy-pig": {"rounds": max(1, request.budget // steps), "steps": steps},
               "ig": {"steps": min(known["ig"]["steps"], request.budget)}}  # fmt: skip
        few = request.budget < runs.GRADIENTS
        chosen = {n: cut.get(n, s) if few or n == "ig" else s for n, s in chosen.items()}
    return chosen


def _panel(spec: Mapping[str, Any], request: Request) -> Panel:
    """The graph of a panel: a file, or a folder, or generated where there is none."""
    folder = Path(request.graphs) if request.graphs is not None else assets_folder() / "graphs"
    names = [spec["file"]] if "file" in spec else spec["folders"]
    place = next((folder / name for name in names if (folder / name).exists()), None)
    given = "the folder given" if request.graphs is not None else "`make assets`"
    if place is not None:
        graph = load_graph(place, seed=request.seed)
        return Panel(spec["name"], spec["title"], graph, f"from {given}.", spec["nodes"])
    if "generate" not in spec:
        raise InvalidInput(
            f"Expected {names[0]} in {folder} (there is none). Try make assets, or --graphs FOLDER."
        )
    title = f"generated, {spec['title']}'s size"
    return Panel(spec["name"], title, generate(**spec["generate"]),
                 "generated, as the real graph is not here (--graphs FOLDER with the folder that "
                 "OGB ships takes it).", spec["nodes"])  # fmt: skip


def _defaults() -> tuple[Any, ...]:
    """What words that are not said mean today."""
    return runs.GRADIENTS, runs.STEPS, runs.RULE, runs.RATIO


def _setting(record: Mapping[str, Any]) -> str:
    found = record["settings"]
    if not record["gradients"]:
        return "drawn by seed"
    rounds, steps = found.get("rounds"), found.get("steps")
    rule = f" {found['rule']}" if found.get("rule") else ""
    return f"{rounds} × {steps}{rule}" if rounds and rounds > 1 else f"{steps}{rule}"


def _at(record: Mapping[str, Any], measure: str, share: float) -> float:
    found = record["trace"]
    at = min(range(len(SHARES)), key=lambda i: abs(found["fractions"][i] - share))
    return float(found[measure][at])


def _mean(values: Any) -> float | None:
    known = [v for v in values if v is not None]
    return mean(known) if known else None


def _error(values: Sequence[float]) -> float | None:
    """Standard error of the mean."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
