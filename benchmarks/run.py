"""Speed and memory as ratios against a peer or a bound measured in the same run.

    python benchmarks/run.py            every table (about ten minutes on two cores)
    python benchmarks/run.py --only overhead captum memory
    python benchmarks/run.py --write    also put the tables into benchmarks/RESULTS.md

Weights are random: time does not depend on them. Every ratio is the median over pairs timed in
turn; the brackets hold the quartiles, and beside them stands the ratio of processor time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from timing import Ratio, compare
from torch import Tensor, nn

import greedypig as gp

HERE = Path(__file__).parent


def mlp(*sizes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval().requires_grad_(False)


def small_cnn() -> nn.Module:
    return (
        nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )
        .eval()
        .requires_grad_(False)
    )  # fmt: skip


class Sequence(nn.Module):
    """A transformer layer over 32 embeddings of size 64."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(1))


def mobilenet() -> nn.Module:
    return gp.models.load("mobilenet-v2", weights="random")


def bare_loop(net: nn.Module, x: Tensor, rounds: int, steps: int) -> Callable[[], None]:
    """The forward and input-gradient calls of a run, each on rows of its own, and nothing else."""
    target = int(net(x.unsqueeze(0)).argmax())
    shares = torch.rand(steps, 1).view(-1, *[1] * x.dim())

    def run() -> None:
        for _ in range(rounds):
            leaf = (shares * x).requires_grad_(True)
            value = torch.softmax(net(leaf), 1)[:, target]
            torch.autograd.grad(value.sum(), leaf)

    return run


def by_hand(net: nn.Module, x: Tensor, rounds: int, steps: int) -> Callable[[], None]:
    """Algorithm 1 in as few torch operations as it takes: no checks, values, ties or results."""
    target, n, end = int(net(x.unsqueeze(0)).argmax()), x.numel(), x.reshape(-1)
    nodes = (torch.arange(steps).unsqueeze(1) + 0.5) / steps
    weights, each = torch.full((steps,), 1 / steps), n // rounds

    def run() -> None:
        begin, taken = torch.zeros(n), torch.zeros(n, dtype=torch.bool)
        for _ in range(rounds):
            leaf = torch.lerp(begin, end, nodes).requires_grad_(True)
            value = torch.softmax(net(leaf.view(steps, *x.shape)), 1)[:, target]
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
            scores = (weights @ gradient) * (end - begin)
            chosen = torch.topk(scores.masked_fill(taken, -torch.inf), each).indices
            taken[chosen] = True
            begin = torch.where(taken, end, 0)

    return run


def plain(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """The network behind a function, so that no folded copy is made of it."""
    return lambda batch: net(batch)


def overhead() -> list[list[str]]:
    """Algorithm 1 against a bare loop of its own gradient calls on the caller's network."""
    net, photo, row = mobilenet(), torch.rand(3, 224, 224), torch.randn(1000)
    wide, small = mlp(1000, 256, 256, 10), mlp(1000, 64, 10)
    cases: list[tuple[str, nn.Module, Callable[..., Any], Tensor, int, int, int, int]] = [
        ("MobileNetV2, 3×224×224", net, net, photo, 5, 20, 5, 1),
        ("the same behind a function (not folded)", net, plain(net), photo, 5, 20, 5, 1),
        ("MLP 1000-256-256-10", wide, wide, row, 50, 20, 21, 2),
        ("MLP 1000-64-10", small, small, row, 50, 20, 21, 4),
    ]
    rows = []
    for name, net, model, x, rounds, steps, pairs, inner in cases:
        method = gp.GreedyPIG(rounds=rounds, steps=steps, schedule="equal")
        ours = partial(gp.explain, model, x, method=method, batch_size=steps)
        bare = bare_loop(net, x, rounds, steps)
        result = compare(ours, bare, pairs=pairs, inner=inner)
        hand = compare(by_hand(net, x, rounds, steps), bare, pairs=max(pairs // 2, 3), inner=inner)
        rows.append([name, f"{rounds} × {steps}", *cells(result), f"{hand.ratio:.2f} ×"])
    return rows


def captum() -> list[list[str]]:
    """Integrated gradients by `explain` and by the adapter, against Captum's, 50 gradients."""
    from captum.attr import IntegratedGradients

    from greedypig.adapters.captum import GreedyPIG

    cases: list[tuple[str, nn.Module, Tensor, int, int]] = [
        ("MobileNetV2, 3×224×224", mobilenet(), torch.rand(3, 224, 224), 5, 1),
        ("CNN, 3×32×32", small_cnn(), torch.rand(3, 32, 32), 15, 3),
        ("transformer layer, 32×64", Sequence().eval(), torch.randn(32, 64), 15, 3),
        ("MLP 1000-256-256-10", mlp(1000, 256, 256, 10), torch.randn(1000), 21, 5),
    ]
    rows = []
    for name, net, x, pairs, inner in cases:
        target = int(net(x.unsqueeze(0)).argmax())
        peer = IntegratedGradients(net)

        def theirs(peer: Any = peer, x: Tensor = x, target: int = target) -> Any:
            return peer.attribute(x.unsqueeze(0), target=target, n_steps=50)

        def ours(net: nn.Module = net, x: Tensor = x, target: int = target) -> Any:
            method = gp.IG(50, "gauss-legendre")
            return gp.explain(net, x, target=target, baseline=0, objective="logit", method=method)

        def adapter(net: nn.Module = net, x: Tensor = x, target: int = target) -> Any:
            return GreedyPIG(net).attribute(x.unsqueeze(0), target=target, n_steps=50, n_rounds=1)

        expected = theirs()[0]
        difference = float((ours().scores - expected).abs().max() / expected.abs().max())
        for label, function in (("explain", ours), ("adapter", adapter)):
            result = compare(function, theirs, pairs=pairs, inner=inner)
            rows.append([name, label, *speed_up(result), f"{difference:.0e}"])
            difference = float((adapter()[0] - expected).abs().max() / expected.abs().max())
    return rows


def many() -> list[list[str]]:
    """`explain_many` on many small problems against `explain` one at a time."""
    rows = []
    for name, net, xs in (
        ("MLP 1000-64-10, 64 rows", mlp(1000, 64, 10), torch.randn(64, 1000)),
        ("CNN 3×32×32, 32 pictures", small_cnn(), torch.rand(32, 3, 32, 32)),
    ):

        def together(net: nn.Module = net, xs: Tensor = xs) -> None:
            for _ in gp.explain_many(net, xs, method=gp.GreedyPIG(rounds=10)):
                pass

        def one_by_one(net: nn.Module = net, xs: Tensor = xs) -> None:
            for x in xs:
                gp.explain(net, x, method=gp.GreedyPIG(rounds=10))

        rows.append([name, *speed_up(compare(together, one_by_one, pairs=5))])
    return rows


MEMORY = """
import sys, torch
import greedypig as gp
def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(l for l in lines if l.startswith(name)).split()[1])
kind, batch = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
net = gp.models.load("mobilenet-v2", weights="random")
x = torch.rand(3, 224, 224)
open("/proc/self/clear_refs", "w").write("5")  # The peak from here on, not the parent's.
begin = status("VmRSS")
if kind == "captum":
    from captum.attr import IntegratedGradients
    IntegratedGradients(net).attribute(x[None], target=0, n_steps=batch)
elif kind == "examples":
    method = gp.GreedyPIG(rounds=2, steps=4)
    for _ in gp.explain_many(net, (x for _ in range(6)), method=method, batch_size=batch):
        pass
else:
    rounds, steps = {"base": (2, 4), "steps": (2, 24), "rounds": (12, 4)}[kind]
    gp.explain(net, x, method=gp.GreedyPIG(rounds=rounds, steps=steps), batch_size=batch)
print((status("VmHWM") - begin) / 1024)
"""


def memory() -> list[list[str]]:
    """Peak memory above the loaded network, each in a process of its own, MobileNetV2."""

    def peak(kind: str, batch: int) -> float:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, kind, str(batch)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return float(done.stdout)

    base = peak("base", 4)
    rows = [["1 example, 2 rounds × 4 steps", "4", f"{base:.0f} MiB", "1"]]
    for label, kind, batch in (
        ("1 example, 2 rounds × 24 steps", "steps", 4),
        ("1 example, 12 rounds × 4 steps", "rounds", 4),
        ("6 examples, 2 rounds × 4 steps", "examples", 4),
        ("1 example, 2 rounds × 24 steps", "steps", 8),
        ("Captum IG, 24 steps", "captum", 24),
    ):
        most = peak(kind, batch)
        rows.append([label, str(batch), f"{most:.0f} MiB", f"{most / base:.2f}"])
    return rows


def importing() -> list[list[str]]:
    """`import greedypig` against `import torch`, fresh processes in turn."""

    def run(package: str) -> Callable[[], None]:
        return lambda: (
            subprocess.run([sys.executable, "-c", f"import {package}"], check=True) and None
        )

    result = compare(run("greedypig"), run("torch"), pairs=9)
    return [["import greedypig", f"{result.ours:.2f} s", f"{result.theirs:.2f} s",
             f"{result.ours - result.theirs:+.2f} s"]]  # fmt: skip


def cells(result: Ratio) -> list[str]:
    return [
        f"{1000 * result.theirs:.1f} ms", f"{1000 * result.ours:.1f} ms",
        f"**{result.ratio:.2f} ×** ({result.low:.2f}–{result.high:.2f})", f"{result.cpu:.2f} ×",
    ]  # fmt: skip


def speed_up(result: Ratio) -> list[str]:
    return [
        f"{1000 * result.theirs:.1f} ms", f"{1000 * result.ours:.1f} ms",
        f"**{1 / result.ratio:.2f} ×** ({1 / result.high:.2f}–{1 / result.low:.2f})",
        f"{1 / result.cpu:.2f} ×",
    ]  # fmt: skip


TABLES: dict[str, tuple[str, list[str], Callable[[], list[list[str]]]]] = {
    "overhead": (
        "Greedy PIG against a bare loop of the same gradient calls",
        ["network", "rounds × steps", "bare", "greedypig", "cost", "processor",
         "Algorithm 1 written by hand"], overhead,
    ),
    "captum": (
        "Integrated gradients, 50 gradients, against Captum's IntegratedGradients",
        ["network", "by", "Captum", "greedypig", "speed-up", "processor",
         "largest relative difference"],
        captum,
    ),
    "many": (
        "explain_many against explain one at a time, 50 gradients an example",
        ["problem", "one by one", "side by side", "speed-up", "processor"], many,
    ),
    "memory": (
        "Peak memory above the loaded MobileNetV2",
        ["run", "batch_size", "peak", "of the first"], memory,
    ),
    "import": ("Import time", ["", "greedypig", "torch", "difference"], importing),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    text = (
        "# Benchmarks\n\nMade by `benchmarks/run.py --write` "
        f"(torch {torch.__version__}, {torch.get_num_threads()} threads). Ratios are medians of "
        "pairs timed in turn, quartiles in brackets; beside them the ratio of processor time.\n"
    )
    for name in options.only:
        title, header, table = TABLES[name]
        lines = [f"\n## {title}\n", "| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in table()]
        print("\n".join(lines), flush=True)
        text += "\n".join(lines) + "\n"
    if options.write:
        (HERE / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main()
