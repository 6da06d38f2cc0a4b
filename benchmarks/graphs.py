"""One gradient over every edge of a graph: time, memory and error against PyG's GCNConv.

    python benchmarks/graphs.py [gradient] [run] [start] [scaling] [captum]

Everything is measured in processes of its own, one thread, and as processor time, which other
processes disturb less than the clock. The graph of ogbn-arxiv's size (169,343 nodes, 1,166,243
undirected edges, 128 features, 40 classes) is generated, with degrees that follow a power law; the
network is a GCN 128-256-256-40. `run` is a whole compression, `start` its first rounds, from which
the rest can be told on a machine that has no time for it: all rounds cost the same. Results are
written to benchmarks/RESULTS-graphs.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.network.assets_folder import assets_folder

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS-graphs.md"
ARXIV = (169_343, 1_166_243)
WIDTHS = (128, 256, 256, 40)
MOST = int(os.environ.get("MOST_EDGES", 10_000_000))
"""How far `scaling` goes."""
GROWTH = """\
The number of operations is linear in the edges. The time is not quite: an edge costs about twice
as much at 10⁷ as at 10⁵, as ever less of the nodes' features is in the cache when an edge asks for
it (below 10⁶ most of it is). Memory, about 0.75 GiB for a million edges
of this network, is what ends it first: 10⁸ edges would want some 75 GiB."""
CORA = assets_folder() / "graphs" / "cora.npz"
"""From `make assets`."""


def power_law(nodes: int, pairs: int, seed: int = 0) -> Tensor:
    """edge_index (2, 2 · pairs) of different pairs of nodes, both ways; degrees by a power law."""
    generator = torch.Generator().manual_seed(seed)
    weights = (torch.arange(nodes, dtype=torch.float64) + 10) ** -0.6
    weights = weights[torch.randperm(nodes, generator=generator)].cumsum(0)
    weights /= weights[-1].clone()
    keys = torch.empty(0, dtype=torch.long)
    while keys.numel() < pairs:
        drawn = torch.rand(2, pairs, generator=generator, dtype=torch.float64)
        ends = torch.searchsorted(weights, drawn).clamp_(max=nodes - 1)
        low, high = ends.min(0).values, ends.max(0).values
        keys = torch.unique(torch.cat([keys, (low * nodes + high)[low != high]]))
    keys = keys[torch.randperm(keys.numel(), generator=generator)[:pairs]]
    there = torch.stack([keys // nodes, keys % nodes])
    return torch.cat([there, there.flip(0)], 1)


def problem(nodes: int, pairs: int) -> tuple[gp.models.GCN, Tensor, Tensor]:
    """The network, features and edges, the same in every process."""
    torch.manual_seed(0)
    model = gp.models.GCN(WIDTHS[0], WIDTHS[-1], WIDTHS[1]).eval()
    return model, torch.randn(nodes, WIDTHS[0]), power_law(nodes, pairs)


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# What a process of its own does.


def ours(nodes: int, pairs: int, out: str, double: bool = False) -> dict[str, float]:
    """One gradient at s = ½, by the objective that explain_edges uses."""
    from greedypig.graphs.edge_model import EdgeModel, frozen_model
    from greedypig.graphs.edges import read_graph
    from greedypig.graphs.objectives import NodeTarget

    model, x, edges = problem(nodes, pairs)
    if double:
        model, x = model.double(), x.double()
    begin = time.process_time()
    graph = read_graph(x, edges)
    network = EdgeModel(frozen_model(model), x, graph, "recomputed")
    assert network.stack is not None
    target = NodeTarget("log-probability", network.logits())
    objective = network.objective(target)
    prepared = time.process_time() - begin
    masks = torch.full((1, 1, graph.columns), 0.5, dtype=x.dtype)
    seconds = []
    for _ in range(2 if double else 3):
        begin = time.process_time()
        gradient = objective.gradient(masks, masks.new_ones(1))[0]
        seconds.append(time.process_time() - begin)
    pairwise = gradient[:pairs] + gradient[pairs:]
    torch.save({"pairwise": pairwise, "classes": target.classes}, out)
    return {"seconds": min(seconds[1:]), "first": seconds[0], "prepare": prepared,
            "gib": peak_gib()}  # fmt: skip


def pyg(nodes: int, pairs: int, out: str) -> dict[str, float]:
    """The same through PyG's GCNConv(edge_weight) and autograd."""
    from torch_geometric.nn.models import GCN

    model, x, edges = problem(nodes, pairs)
    theirs = GCN(WIDTHS[0], WIDTHS[1], 3, WIDTHS[-1]).eval().requires_grad_(False)
    for conv, (weight, bias) in zip(theirs.convs, model.gcn_layers(), strict=True):
        conv.lin.weight.copy_(weight.detach().T)
        conv.bias.copy_(bias.detach())
    with torch.no_grad():
        classes = theirs(x, edges, torch.ones(2 * pairs)).argmax(1, keepdim=True)
    begin = time.process_time()
    leaf = torch.full((2 * pairs,), 0.5, requires_grad=True)
    value = theirs(x, edges, leaf).log_softmax(1).gather(1, classes).mean()
    (gradient,) = torch.autograd.grad(value, leaf)
    seconds = time.process_time() - begin
    torch.save({"pairwise": gradient[:pairs] + gradient[pairs:]}, out)
    return {"seconds": seconds, "gib": peak_gib()}


def whole_run(nodes: int, pairs: int, out: str, budget: int | None = None) -> dict[str, float]:
    """A compression with explain_edges' defaults, or its first rounds."""
    model, x, edges = problem(nodes, pairs)
    begin = time.process_time()
    a = gp.explain_edges(model, x, edges, stop=gp.Stop(gradients=budget))
    return {"seconds": time.process_time() - begin, "gib": peak_gib(),
            "gradients": a.gradients_used, "rounds": len(a.picks)}  # fmt: skip


def captum(nodes: int, pairs: int, out: str) -> dict[str, float]:
    """Integrated gradients over Cora's edges, 50 gradients: PyG's CaptumExplainer and ours."""
    import numpy as np
    from torch_geometric.explain import CaptumExplainer, Explainer
    from torch_geometric.nn.models import GCN

    with np.load(CORA) as held:
        x = torch.zeros(tuple(held["x_shape"]))
        x[torch.from_numpy(held["x_row"]).long(), torch.from_numpy(held["x_col"]).long()] = 1.0
        there = torch.from_numpy(held["edges"]).long()
    edges = torch.cat([there, there.flip(0)], 1)
    torch.manual_seed(0)
    model = GCN(x.shape[1], 64, 3, 7).eval()
    explainer = Explainer(
        model, CaptumExplainer("IntegratedGradients", n_steps=50), explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node",
                      "return_type": "raw"},
    )  # fmt: skip
    found = []
    for _ in range(2):
        begin = time.process_time()
        explainer(x, edges)
        theirs = time.process_time() - begin
        begin = time.process_time()
        a = gp.explain_edges(model, x, edges, method=gp.IG(50, "gauss-legendre"))
        found.append((theirs, time.process_time() - begin))
    assert a.settings["fast"]
    assert a.gradients_used == 50
    return {"theirs": found[-1][0], "ours": found[-1][1]}


WAYS = {"ours": ours, "pyg": pyg, "run": whole_run, "captum": captum,
        "start": lambda n, p, out: whole_run(n, p, out, budget=9),
        "double": lambda n, p, out: ours(n, p, out, double=True)}  # fmt: skip


def measure(way: str, nodes: int, pairs: int, out: str = os.devnull) -> dict[str, Any]:
    """Run one way in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--way", way, "--nodes", str(nodes),
         "--pairs", str(pairs), "--out", out],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


# What is written.


def report_gradient() -> str:
    with tempfile.TemporaryDirectory() as folder:
        files = {way: f"{folder}/{way}.pt" for way in ("ours", "pyg", "double")}
        found = {way: measure(way, *ARXIV, file) for way, file in files.items()}
        print(found, flush=True)
        kept = {way: torch.load(file)["pairwise"].double() for way, file in files.items()}
    exact = kept["double"]
    count = round(0.02 * ARXIV[1])
    top = {way: set(torch.topk(g, count).indices.tolist()) for way, g in kept.items()}
    lines = ["| | CPU s | peak GiB | error against float64 | top 2 % other than float64's |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, way in (("PyG GCNConv(edge_weight), autograd", "pyg"), ("greedypig", "ours")):
        error = float((kept[way] - exact).norm() / exact.norm())
        other = len(top[way] - top["double"])
        lines.append(f"| {name} | {found[way]['seconds']:.1f} | {found[way]['gib']:.2f} | "
                     f"{error:.1e} | {other} of {count:,} |")  # fmt: skip
    faster = found["pyg"]["seconds"] / found["ours"]["seconds"]
    smaller = found["pyg"]["gib"] / found["ours"]["gib"]
    lines += ["", f"{faster:.1f} × less processor time, {smaller:.1f} × less memory (the whole "
              "process, libraries and graph included). Once for a graph: "
              f"{found['ours']['prepare']:.1f} s to sort its edges, recognise the network and "
              "check it against autograd on a part of the graph."]  # fmt: skip
    return "\n".join(["## One gradient at ogbn-arxiv's size", "", *lines])


def report_run() -> str:
    found = measure("run", *ARXIV)
    print(found, flush=True)
    each = found["seconds"] / found["gradients"]
    return "\n".join([
        "## A whole compression at ogbn-arxiv's size", "",
        f"`gp.explain_edges(model, x, edge_index)` with its defaults: {found['gradients']:.0f} "
        f"gradients in {found['rounds']:.0f} rounds, {found['seconds'] / 60:.1f} minutes of one "
        f"core ({each:.2f} s for each gradient, all else included), peak {found['gib']:.2f} GiB.",
    ])  # fmt: skip


def report_start() -> str:
    found = measure("start", *ARXIV)
    print(found, flush=True)
    each = found["seconds"] / found["gradients"]
    return "\n".join([
        "## The start of a compression at ogbn-arxiv's size", "",
        f"The first {found['gradients']:.0f} of the 99 gradients that `gp.explain_edges` pays by "
        f"default: {found['seconds']:.0f} s of one core, {each:.2f} s for each with all else "
        f"included (so {99 * each / 60:.1f} minutes for all), peak {found['gib']:.2f} GiB.",
    ])  # fmt: skip


def report_scaling() -> str:
    lines = ["| undirected edges | nodes | CPU s a gradient | µs an edge | peak GiB |",
             "|---|---|---|---|---|"]  # fmt: skip
    for pairs in (n for n in (100_000, 1_000_000, 10_000_000) if n <= MOST):
        nodes = pairs * ARXIV[0] // ARXIV[1]
        found = measure("ours", nodes, pairs)
        print(pairs, found, flush=True)
        if "failed" in found:
            lines.append(f"| {pairs:,} | {nodes:,} | {found['failed']} | | |")
        else:
            each = found["seconds"] / pairs * 1e6
            lines.append(f"| {pairs:,} | {nodes:,} | {found['seconds']:.2f} | {each:.2f} | "
                         f"{found['gib']:.2f} |")  # fmt: skip
    return "\n".join(["## Growth", "", *lines, "", GROWTH])


def report_captum() -> str:
    found = measure("captum", 1, 1)
    print(found, flush=True)
    ratio = found["theirs"] / found["ours"]
    return "\n".join([
        "## Integrated gradients on Cora", "",
        f"50 gradients over all edges of a PyG GCN 1433-64-64-7: CaptumExplainer "
        f"{found['theirs']:.2f} s, greedypig {found['ours']:.2f} s, {ratio:.1f} × less "
        "(processor time of the whole call).",
    ])  # fmt: skip


REPORTS = {"gradient": report_gradient, "run": report_run, "start": report_start,
           "scaling": report_scaling, "captum": report_captum}  # fmt: skip
MARK = "<!-- {} -->"


def write(name: str, text: str) -> None:
    """Put one part in its place and leave the others as they are."""
    parts = {}
    if RESULTS.exists():
        for block in RESULTS.read_text().split("<!-- ")[1:]:
            key, _, body = block.partition(" -->")
            parts[key] = body.strip()
    parts[name] = text
    head = (
        "# Graphs: measured by `python benchmarks/graphs.py`\n\nOne thread of a shared machine; "
        "processor time; generated graph with power-law degrees,\nGCN 128-256-256-40, unless said."
        f" torch {torch.__version__}.\n"
    )
    body = "\n\n".join(f"{MARK.format(k)}\n\n{parts[k]}" for k in REPORTS if k in parts)
    RESULTS.write_text(f"{head}\n{body}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(REPORTS))
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", default=os.devnull, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.way:
        print(json.dumps(WAYS[args.way](args.nodes, args.pairs, args.out)))
        return
    for name in args.parts or [r for r in REPORTS if r != "start"]:
        text = REPORTS[name]()
        print(text, flush=True)
        write(name, text)


if __name__ == "__main__":
    main()
