"""`greedypig compress graph.npz --keep 0.5`: the edges that a graph network's predictions use."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import greedypig as gp

from .. import plots, report
from ..core.errors import InvalidInput
from ..core.scorers import IG
from ..core.stopping import Stop
from ..graphs import Graph, save_graph
from ..graphs.compression import METHODS, SHARES, Judge, edge_order, kept_count, trace
from ..results import verdicts
from ..results.files import write_whole
from ..results.graph_notes import COMPRESSION, MEASURES, Compression, Method
from ..results.wording import count
from ..tensors.methods import FOR_EDGES
from . import graph_model, options, outputs
from .failures import DONE, UsageError
from .graph_model import MODEL, network_for, read_graph
from .methods import knobs_of, set_knobs
from .resumable import Progress, Session
from .terminal import BOLD, DIM, Terminal, duration

DESCRIPTION = """\
Keep the best edges of a graph. The paper's graph network is trained on it (or use your own), Greedy
PIG orders the edges, and accuracy, agreement with the full graph's predictions and G are measured
at 0, 5, … 100 % of the edges, beside PIG, sampling by 1/√(DᵢDⱼ) and random edges. Writes the graph
of the kept edges, a table, a figure, the result and a page into a folder."""
EXAMPLES = """\
  greedypig compress graph.npz --keep 0.5
  greedypig compress edges.csv --nodes nodes.csv --label topic --keep 30%
  greedypig compress graph.npz --model my_models:build --weights gcn.pt --methods greedy-pig,ig"""
FILES = {
    "kept": "kept.npz",
    "table": "compression.csv",
    "result": "compression.gpig",
    "page": "compression.html",
    "figure": "compression.png",
}
CSV_MARK = b"method,share,edges"
FIRST = "greedy-pig"


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig compress`."""
    group = graph_model.add_options(parser, "compressed")
    group.add_argument(
        "--keep",
        type=share,
        default=0.5,
        metavar="SHARE",
        help="share of the edges to keep, 0.5 or 50%% (default: 0.5)",
    )
    group.add_argument(
        "--methods",
        metavar="A,B,…",
        help=f"methods to compare, of {', '.join(METHODS)}; the edges of the first one are kept "
        "(default: all)",
    )
    group.add_argument(
        "--budget", type=options.whole, metavar="N", help="stop Greedy PIG after N gradients"
    )


def share(text: str) -> float:
    """The type of --keep: 0.5 or 50%."""
    number, percent, _ = text.partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(
            f"expected a share above 0 and up to 1, such as 0.5 or 50%, got {text!r}"
        )
    return value


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train, order the edges by every method, measure them, write the files."""
    names, knobs = _methods(args.methods), knobs_of(args)
    graph = read_graph(args, terminal)
    if kept_count(args.keep, graph.m) < 1:
        raise UsageError(f"Expected --keep to keep an edge of {graph.m:,} (got {args.keep:g}).")
    folder = graph_model.results_folder(args, graph, "compressed")
    files = {what: folder / name for what, name in FILES.items()}
    outputs.refuse_foreign([f for w, f in files.items() if w != "table"] + [folder / MODEL])
    outputs.refuse_foreign([files["table"]], CSV_MARK)
    shares = tuple(sorted({*SHARES, args.keep}))
    inside = outputs.folder(folder / "methods")
    sessions = [
        Session(inside / f"{name}.gpig", args.resume, Progress(len(shares))) for name in names
    ]
    outputs.refuse_foreign([session.announced(terminal).result for session in sessions])
    results: dict[str, gp.Attribution] = {}
    with terminal.bar("") as bar:
        network = network_for(graph, args, folder, terminal, bar)
        try:
            judge = Judge(network.model, graph)
        except InvalidInput as error:
            raise UsageError(str(error)) from error
        session = sessions[0]
        bar.follow(lambda: len(results) + session.progress.share(), len(names))
        for name, session in zip(names, sessions, strict=True):
            bar.label = f"{graph.name}: {METHODS[name]}"
            method: Any = name
            if name == FIRST:
                method = set_knobs(FOR_EDGES, knobs)
            elif name == "ig" and FIRST in results:  # At equal cost.
                method = IG(max(1, results[FIRST].gradients_used), "gauss-legendre")
            search = {"method": method, "objective": args.objective, "seed": args.seed}
            if name == FIRST and args.budget is not None:
                search["stop"] = Stop(gradients=args.budget)
            task = EdgeTask(graph, judge, shares, network.model, search)
            done = count(len(results), "method")
            with session.interruptible(f"Stopped at {METHODS[name]}, after {done}."):
                results[name] = session.answer(task, graph.name, terminal.command_line())
    about = {"command": terminal.command_line(), "full": asdict(judge.full), "model": network.name}
    a = _with_notes(results, graph, args, about)
    compression = Compression.of(a)
    assert compression is not None
    written = _write(a, compression, graph, files)
    written += [] if network.file is None else [network.file]
    _show(compression, graph, terminal, written)
    terminal.result(_json(a, compression) | graph_model.record(a, network, args, written))
    return DONE


def _methods(text: str | None) -> tuple[str, ...]:
    names = [word.strip() for word in (",".join(METHODS) if text is None else text).split(",")]
    for name in names:
        if name not in METHODS:
            raise UsageError(
                f"Expected --methods as names with commas, among {', '.join(METHODS)} "
                f"(got {name!r})."
            )
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class EdgeTask:
    """One method's order of a graph's edges; a `Task` of a session."""

    graph: Graph
    judge: Judge
    shares: tuple[float, ...]
    model: Any
    search: Mapping[str, Any]
    """Arguments of `edge_order`: method, objective, seed and stop."""

    def explain(self, progress: Progress, resume: gp.Attribution | None) -> gp.Attribution:
        """The order of the edges."""
        if self.search["method"] in ("degree", "random"):  # Drawn at once: nothing to go on with.
            resume = None
        more = {"model": self.model, "graph": self.graph, "progress": progress, "resume": resume}
        return edge_order(**self.search, **more)

    def with_notes(self, a: gp.Attribution, source: str, command: str) -> gp.Attribution:
        """The order with its curves."""
        curves = trace(self.judge, a.order, self.shares)
        return a.with_notes({"source": source, "trace": curves.record(), "command": command})

    def is_complete(self, saved: gp.Attribution) -> bool:
        """Were all shares measured that are asked for?"""
        return tuple((saved.about.get("trace") or {}).get("fractions") or ()) == self.shares


def _with_notes(
    results: Mapping[str, gp.Attribution],
    graph: Graph,
    args: argparse.Namespace,
    about: dict[str, Any],
) -> gp.Attribution:
    """The first method's result, with what was compressed and the curves of all methods."""
    about |= {"kind": COMPRESSION, "source": Path(args.graph).name, "objective": args.objective}
    about |= {"keep": args.keep, "kept_edges": kept_count(args.keep, graph.m)}
    facts = {"name": graph.name, "nodes": graph.nodes, "edges": graph.m}
    facts |= {"features": graph.x.shape[1], "classes": graph.class_count}
    about["graph"] = facts | {"undirected": graph.undirected, "notes": list(graph.notes)}
    about["traces"] = {}
    for name, a in results.items():
        cost = {"gradients": a.gradients_used, "seconds": a.seconds}
        about["traces"][name] = a.about["trace"] | {"title": METHODS[name]} | cost
    first = next(iter(results.values()))
    return replace(first, about={}).with_notes(about, edges=graph.edges)


def _write(
    a: gp.Attribution, compression: Compression, graph: Graph, files: Mapping[str, Path]
) -> list[Path]:
    """Write the kept graph, the table, the result, the page and, with matplotlib, the figure."""
    kept = torch.sort(a.order[: compression.kept]).values.to(graph.edges.device)
    weight = None if graph.weight is None else graph.weight[kept]
    small = replace(graph, edges=graph.edges[:, kept], weight=weight)
    save_graph(small, files["kept"], kept=kept.cpu().numpy())
    write_whole(files["table"], table(compression))
    a.save(files["result"])
    report.write(a, files["page"])
    if importlib.util.find_spec("matplotlib") is None:
        return [file for what, file in files.items() if what != "figure"]
    outputs.save_figure(plots.compression(a), files["figure"])
    return list(files.values())


def table(compression: Compression) -> str:
    """The curves as CSV, a line for every method and share."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measures = list(compression.first.lines)
    writer.writerow(["method", "share", "edges", *measures])
    for method in compression.methods:
        shares = next(iter(method.lines.values())).fractions
        for i, part in enumerate(shares):
            values = (f"{method.lines[m].values[i]:.6g}" for m in measures)
            writer.writerow([method.name, f"{part:g}", method.edges[i], *values])
    return text.getvalue()


def _at(method: Method, measure: str, part: float) -> float | None:
    line = method.lines.get(measure)
    return None if line is None else line.get(part)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _show(compression: Compression, graph: Graph, terminal: Terminal, files: list[Path]) -> None:
    """Print the table of methods at the share kept, and the shares that keep the predictions."""
    say, full, methods = terminal.say, compression.full, compression.methods
    accuracy = f"accuracy {full['accuracy']:.3f}, " if "accuracy" in full else ""
    head = (
        f"{graph.name}: {graph.nodes:,} nodes, {graph.m:,} edges, {graph.class_count} classes, "
        f"{compression.model}; {accuracy}G {_cell(full['g'])} with all edges"
    )
    say(terminal.style(terminal.wrapped(head), BOLD))
    say(f"with {100 * compression.keep:g} % of the edges ({compression.kept:,}):")
    costs = ["gradients", "seconds"] if terminal.width >= 72 else []
    width = max(len(method.title) for method in methods)
    heads = "".join(f"{name:>11}" for name in ["accuracy", "agreement", "G", *costs])
    say(terminal.style(f"  {'':{width}}{heads}", DIM))
    for method in methods:
        cells = [_cell(_at(method, measure, compression.keep)) for measure in MEASURES]
        numbers = [method.numbers.get(cost, 0) for cost in costs]
        cells += [f"{n:,.0f}" if i == 0 else f"{n:.1f}" for i, n in enumerate(numbers)]
        say(f"  {method.title:{width}}" + "".join(f"{cell:>11}" for cell in cells))
    excess = compression.excess()
    if excess is not None:
        part, value = f"{100 * excess[0]:g} % of the edges", _cell(excess[1])
        sentence = verdicts.higher(part, value, "all edges", _cell(full["g"]), quantity="G")
        terminal.caution(f"{sentence}. Compare methods by agreement and accuracy.")
    for aim in (0.99, 0.95):
        shares = [(method.title, compression.share_for(method, aim)) for method in methods]
        needed = ", ".join(f"{title} {100 * s:g} %" for title, s in shares if s is not None)
        line = f"to agree on {100 * aim:g} % of the nodes: {needed} of the edges"
        say(terminal.wrapped(line, "", "  "))
    spent = duration(sum(method.numbers.get("seconds", 0.0) for method in methods))
    where = outputs.shown(files[0].parent)
    line = f"{spent} of runs. Wrote {where}: {', '.join(f.name for f in files)}"
    say(terminal.wrapped(line, "", "  "))


def _json(a: gp.Attribution, compression: Compression) -> dict[str, Any]:
    first, full = compression.first, compression.full
    return {
        "graph": a.about["graph"],
        "keep": compression.keep,
        "kept": compression.kept,
        **{measure: _at(first, measure, compression.keep) for measure in MEASURES},
        "accuracy_full": full.get("accuracy"),
        "g_full": full["g"],
        "order": a.order.tolist(),
        "curve": a.about["traces"][first.name],
        "methods": a.about["traces"],
    }
