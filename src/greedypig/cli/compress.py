"""`greedypig compress graph.npz --keep 0.5`: the edges that a graph network's predictions use."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch

import greedypig as gp

from .. import plots, report
from ..core.errors import InvalidFile, InvalidInput
from ..core.scorers import IG
from ..core.stopping import Stop
from ..graphs import Graph, save_graph
from ..graphs.compression import METHODS, SHARES, Judge, Look, kept_count, order_run, trace
from ..results import verdicts
from ..results.files import write_whole
from ..results.graph_notes import COMPRESSION, Compression, Method
from ..results.wording import count
from ..tensors.methods import FOR_EDGES
from . import graph_options, options, outputs
from .failures import DONE, UsageError
from .graph_model import MODEL, Network, network_for, read_graph
from .methods import knobs_of, set_knobs
from .resumable import Progress, Session
from .terminal import BOLD, DIM, Bar, Terminal, duration

DESCRIPTION = """\
Keep the best edges of a graph. The paper's graph network is trained on it (or use your own), Greedy
PIG orders the edges, and accuracy, agreement with the full graph's predictions and G are measured
at 0, 5, … 100 % of the edges, beside PIG, sampling by 1/√(DᵢDⱼ) and random edges. Writes the graph
of the kept edges, a table, a figure, the result and a page into a folder."""
EXAMPLES = """\
  greedypig compress graph.npz --keep 0.5
  greedypig compress edges.csv --nodes nodes.csv --label topic --keep 30%
  greedypig compress graph.npz --model my_models:build --weights gcn.pt --methods greedy-pig,ig"""
FILES = {"kept": "kept.npz", "table": "compression.csv", "figure": "compression.png",
         "result": "compression.gpig", "page": "compression.html"}  # fmt: skip
METHODS_FOLDER = "methods"
CSV_MARK = b"method,share,edges"
FIRST = "greedy-pig"


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig compress`."""
    graph_options.add_graph(parser)
    graph_options.add_network(parser)
    group = options.group(parser, "method")
    group.add_argument("--keep", type=graph_options.share, default=0.5, metavar="SHARE",
                       help="share of the edges to keep, 0.5 or 50%% (default: 0.5)")  # fmt: skip
    group.add_argument(
        "--methods",
        metavar="A,B,…",
        help=f"methods to compare, of {', '.join(METHODS)}; the edges of the first one are kept "
        "(default: all)",
    )
    graph_options.add_search(group)
    group.add_argument("--budget", type=options.whole, metavar="N",
                       help="stop Greedy PIG after N gradients")  # fmt: skip
    options.add_hardware(parser, batch_size=False)
    graph_options.add_output(parser, "compressed")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Train, order the edges by every method, measure them, write the files."""
    names = _methods(args.methods)
    knobs = knobs_of(args)
    graph = read_graph(args, terminal)
    if kept_count(args.keep, graph.m) < 1:
        raise UsageError(f"Expected --keep to keep an edge of {graph.m:,} (got {args.keep:g}).")
    folder = outputs.folder(graph_options.folder_name(args, graph.name, "compressed"))
    files = {what: folder / name for what, name in FILES.items()}
    outputs.refuse_foreign([f for w, f in files.items() if w != "table"] + [folder / MODEL])
    outputs.refuse_foreign([files["table"]], CSV_MARK)
    _note_earlier(files["result"], folder, names, terminal)
    with terminal.bar("") as bar:
        network = network_for(graph, args, folder, terminal, bar)
        results, judge = _judge_all(names, graph, network, knobs, args, folder, terminal, bar)
    a = _with_all(results, graph, network, judge, args, terminal.command_line())
    written = _write(a, graph, args, files, network)
    _show(a, graph, terminal, written)
    terminal.result(_json(a, args, network, written))
    return DONE


def _note_earlier(result: Path, folder: Path, names: tuple[str, ...], terminal: Terminal) -> None:
    """Say which run's files are replaced, and which of its files stay as they are."""
    try:
        command = str(gp.load(result).about.get("command") or "")
    except (InvalidFile, FileNotFoundError):
        return
    here = terminal.command_line()
    if _without_resume(command) == _without_resume(here):
        return
    where = outputs.shown(folder)
    text = f"{where} has the results of another run ({command}), which are replaced."
    left = [f.name for f in sorted((folder / METHODS_FOLDER).glob("*.gpig"))
            if f.name.split(".")[0] not in names]  # fmt: skip
    if left:
        text += f" Its {', '.join(left)} in {METHODS_FOLDER} {'stay' if left[1:] else 'stays'}."
    terminal.note(f"{text} Try --out FOLDER to keep both.")


def _without_resume(command: str) -> str:
    return " ".join(word for word in command.split() if word != "--resume")


@dataclass(frozen=True)
class EdgeTask:
    """One method's order of a graph's edges; a `Task` of a session."""

    name: str
    graph: Graph
    judge: Judge
    shares: tuple[float, ...]
    network: Network
    search: Mapping[str, Any]
    """Arguments of `order_run`: objective, seed, and where they are set method and stop."""

    def explain(self, progress: Progress, resume: gp.Attribution | None) -> gp.Attribution:
        """The order of the edges."""
        if self.name in ("degree", "random"):  # Drawn at once: nothing to go on with.
            resume = None
        search = {"method": self.name, **self.search}
        run = order_run(model=self.network.model, graph=self.graph, resume=resume, **search)
        progress(run)
        return run.finish(watch=progress)

    def with_notes(self, a: gp.Attribution, source: str, command: str) -> gp.Attribution:
        """The order with its curves."""
        curves = trace(self.judge, a.order, self.shares)
        return a.with_notes({"source": source, "trace": curves.record(), "command": command})

    def is_complete(self, saved: gp.Attribution) -> bool:
        """Were all shares measured that are asked for?"""
        return tuple((saved.about.get("trace") or {}).get("fractions") or ()) == self.shares


def _judge_all(
    names: tuple[str, ...], graph: Graph, network: Network, knobs: Mapping[str, Any],
    args: argparse.Namespace, folder: Path, terminal: Terminal, bar: Bar,
) -> tuple[dict[str, gp.Attribution], Judge]:  # fmt: skip
    """Every method's result with its curves."""
    try:
        judge = Judge(network.model, graph)
    except InvalidInput as error:
        raise UsageError(str(error)) from error
    shares = tuple(sorted({*SHARES, args.keep}))
    inside = outputs.folder(folder / METHODS_FOLDER)
    sessions = {name: Session(inside / f"{name}.gpig", args.resume, Progress(len(shares)))
                for name in names}  # fmt: skip
    outputs.refuse_foreign([s.announced(terminal).result for s in sessions.values()])
    results: dict[str, gp.Attribution] = {}
    for i, (name, session) in enumerate(sessions.items()):
        progress = session.progress
        bar.label = f"{graph.name}: {METHODS[name]}"
        share = lambda i=i, progress=progress: i + progress.share()  # noqa: E731
        bar.follow(share, len(names))
        search: dict[str, Any] = {"objective": args.objective, "seed": args.seed}
        if name == FIRST:
            search["method"] = set_knobs(FOR_EDGES, knobs)
            search["stop"] = Stop(gradients=args.budget)
        elif name == "ig" and FIRST in results:  # At equal cost.
            search["method"] = IG(max(1, results[FIRST].gradients_used), "gauss-legendre")
        task = EdgeTask(name, graph, judge, shares, network, search)
        with session.interruptible(f"Stopped at {METHODS[name]}, after {count(i, 'method')}."):
            results[name] = session.answer(task, graph.name, terminal.command_line())
    return results, judge


def _with_all(
    results: Mapping[str, gp.Attribution], graph: Graph, network: Network, judge: Judge,
    args: argparse.Namespace, command: str,
) -> gp.Attribution:  # fmt: skip
    """The first method's result with the curves of all."""
    first = next(iter(results.values()))
    traces = {
        name: {**a.about["trace"], "title": METHODS[name], "gradients": a.gradients_used,
               "seconds": a.seconds}
        for name, a in results.items()
    }  # fmt: skip
    full: Look = judge.full
    about = {
        "kind": COMPRESSION, "source": Path(args.graph).name, "model": network.name,
        "objective": args.objective, "command": command, "keep": args.keep,
        "kept_edges": kept_count(args.keep, graph.m),
        "full": {"accuracy": full.accuracy, "g": full.g},
        "graph": {"name": graph.name, "nodes": graph.nodes, "edges": graph.m,
                  "features": graph.x.shape[1], "classes": graph.class_count,
                  "undirected": graph.undirected, "notes": list(graph.notes)},
        "traces": traces,
    }  # fmt: skip
    return replace(first, about={}).with_notes(about, edges=graph.edges)


def _write(
    a: gp.Attribution, graph: Graph, args: argparse.Namespace, files: Mapping[str, Path],
    network: Network,
) -> list[Path]:  # fmt: skip
    found = Compression.of(a)
    assert found is not None
    kept = torch.sort(a.order[: found.kept]).values.to(graph.edges.device)
    weight = None if graph.weight is None else graph.weight[kept]
    small = replace(graph, edges=graph.edges[:, kept], weight=weight)
    save_graph(small, files["kept"], kept=kept.cpu().numpy().astype(np.int64))
    write_whole(files["table"], table(found))
    a.save(files["result"])
    report.write(a, files["page"])
    written = [files["kept"], files["table"], files["result"], files["page"]]
    if importlib.util.find_spec("matplotlib") is not None:
        outputs.save_figure(plots.compression(a), files["figure"])
        written.append(files["figure"])
    else:
        files["figure"].unlink(missing_ok=True)  # Of an earlier run: it would tell of other edges.
    return written + ([] if network.file is None else [network.file])


def table(found: Compression) -> str:
    """The curves as CSV, a line for every method and share."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measures = list(found.first.lines)
    writer.writerow(["method", "share", "edges", *measures])
    for method in found.methods:
        shares = next(iter(method.lines.values())).fractions
        for i, share in enumerate(shares):
            values = (f"{method.lines[m].values[i]:.6g}" for m in measures)
            writer.writerow([method.name, f"{share:g}", method.edges[i], *values])
    return text.getvalue()


def _at(method: Method, measure: str, share: float) -> float | None:
    line = method.lines.get(measure)
    return None if line is None else line.get(share)


def _show(a: gp.Attribution, graph: Graph, terminal: Terminal, files: list[Path]) -> None:
    found = Compression.of(a)
    assert found is not None
    say = terminal.say
    whole = found.full.get("accuracy")
    right = "" if whole is None else f"accuracy {whole:.3f}, "
    right = f"; {right}G {_cell(found.full['g'])} with all edges"
    say(terminal.style(terminal.wrapped(
        f"{graph.name}: {graph.nodes:,} nodes, {graph.m:,} edges, {graph.class_count} classes, "
        f"{found.model}{right}"), BOLD))  # fmt: skip
    say(f"with {100 * found.keep:g} % of the edges ({found.kept:,}):")
    wide = terminal.width >= 72
    heads = ["accuracy", "agreement", "G", *(["gradients", "seconds"] if wide else [])]
    first = max(len(m.title) for m in found.methods)
    say(terminal.style(f"  {'':{first}}" + "".join(f"{h:>11}" for h in heads), DIM))
    for method in found.methods:
        numbers = [_cell(_at(method, m, found.keep)) for m in ("accuracy", "agreement", "g")]
        if wide:
            numbers += [f"{method.numbers.get('gradients', 0):,.0f}",
                        f"{method.numbers.get('seconds', 0):.1f}"]  # fmt: skip
        say(f"  {method.title:{first}}" + "".join(f"{n:>11}" for n in numbers))
    excess = found.excess()
    if excess is not None:
        sentence = verdicts.higher(f"{100 * excess[0]:g} % of the edges", _cell(excess[1]),
                                   "all edges", _cell(found.full["g"]), quantity="G")  # fmt: skip
        terminal.caution(f"{sentence}. Compare methods by agreement and accuracy.")
    for aim in (0.99, 0.95):
        shares = [(m.title, found.share_for(m, aim)) for m in found.methods]
        needed = ", ".join(f"{t} {100 * s:g} %" for t, s in shares if s is not None)
        say(terminal.wrapped(f"to agree on {100 * aim:g} % of the nodes: {needed} of the edges",
                             "", "  "))  # fmt: skip
    spent = sum(m.numbers.get("seconds", 0.0) for m in found.methods)
    where = outputs.shown(files[0].parent)
    say(terminal.wrapped(f"{duration(spent)} of runs. Wrote {where}: "
                         + ", ".join(f.name for f in files), "", "  "))  # fmt: skip


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _json(
    a: gp.Attribution, args: argparse.Namespace, network: Network, files: list[Path]
) -> dict[str, Any]:
    found = Compression.of(a)
    assert found is not None
    first = found.first
    return {
        "graph": a.about["graph"],
        "keep": found.keep,
        "kept": found.kept,
        "accuracy": _at(first, "accuracy", found.keep),
        "accuracy_full": found.full.get("accuracy"),
        "agreement": _at(first, "agreement", found.keep),
        "g": _at(first, "g", found.keep),
        "g_full": found.full["g"],
        "method": a.settings["method"],
        "order": a.order.tolist(),
        "curve": a.about["traces"][first.name],
        "methods": a.about["traces"],
        "gradients": a.gradients_used,
        "seconds": a.seconds,
        "settings": dict(a.settings) | {"model": network.name, "seed": args.seed,
                                        "training": network.facts},
        "files": [fspath(file) for file in files],
    }  # fmt: skip


def _methods(text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(METHODS)
    names = [word.strip() for word in text.split(",") if word.strip()]
    for name in names:
        if name not in METHODS:
            raise UsageError(f"Expected --methods among {', '.join(METHODS)} (got {name!r}).")
    if not names:
        raise UsageError(f"Expected --methods as names with commas: {', '.join(METHODS)}.")
    return tuple(dict.fromkeys(names))
