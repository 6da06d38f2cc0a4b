"""Feature selection on tables: rows per second, as ratios against bounds of the same run.

    python -m benchmarks.tables            every table (a few minutes on one core)
    python -m benchmarks.tables --write    also put them into benchmarks/RESULTS-tables.md
    python -m benchmarks.tables --only parquet      one of its parts (--write: into its place)
    python -m benchmarks.tables --only conditional

The paper's network (13 numbers, 26 categories, embeddings of 8, 768-256-128) on generated rows with
random weights: time does not depend on either. One thread. A row at one point of a path counts as
one gradient row. Everything is compared with what is timed in turn with it, by processor time;
the rounds of a run differ in how many columns are left, so a timing goes through S = 0, 8, … 32.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from itertools import count
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.rounds import Round
from greedypig.core.schedule import equal
from greedypig.network.distributed import ALONE, Group, joined
from greedypig.tables import Batches, losses, new_network, open_table, row_batches, survey
from greedypig.tables.networks import network_for
from greedypig.tables.objective import TableObjective
from greedypig.tables.stream import feed
from reproduction.synthetic import CriteoShaped

HERE = Path(__file__).parent
NUMERIC, CATEGORICAL, STEPS = 13, 26, 5
COLUMNS = NUMERIC + CATEGORICAL
BATCHES, ROWS = 150_000, 512
"""The paper's budget: 76.8 million gradient rows."""
PAIR_BUDGET = COLUMNS * STEPS * 12
"""Gradient batches of the runs on one process and on two."""
PAIRS = 7
POOL, POOLS = 32_768, 4
PARQUET = "## From Parquet, against memory"
CONDITIONAL = "## Absent columns as expected, against absent columns at zero"
NODES = [(k + 0.5) / STEPS for k in range(STEPS)]


def generated(rows: int, vocabulary: int, count: int) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            (
                torch.randn(rows, NUMERIC, generator=generator),
                torch.randint(vocabulary, (rows, CATEGORICAL), generator=generator),
            ),
            torch.randint(2, (rows,), generator=generator),
        )
        for _ in range(count)
    ]


def masks() -> list[Tensor]:
    order = torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(1))
    out = []
    for selected in range(0, COLUMNS, 8):
        mask = torch.zeros(COLUMNS, dtype=torch.float64)
        mask[order[:selected]] = 1
        out.append(mask)
    return out


def bare(model: nn.Module, batches: list[Any], sparse: bool) -> Callable[[], int]:
    """Forward, and backward to the parameters: a training step without its update."""
    model.table.sparse = sparse  # type: ignore[union-attr]

    def run() -> int:
        rows = 0
        for features, labels in batches:
            model.zero_grad(set_to_none=True)
            outputs = model(*features).squeeze(1)
            functional.binary_cross_entropy_with_logits(outputs, labels.float()).backward()
            rows += len(labels)
        return rows

    return run


def looped(model: nn.Module, batches: list[Any]) -> Callable[[], int]:
    """The same gradient by autograd, point after point, from one look-up, parameters frozen."""

    def run() -> int:
        rows = 0
        for mask in masks():
            for features, labels in batches:
                x = model.inputs(*features).detach()
                for node in NODES:
                    gates = torch.lerp(mask, torch.ones_like(mask), node).float()
                    gates.requires_grad_(True)
                    outputs = model.rest(model.first(x * gates[model.column_of])).squeeze(1)
                    loss = functional.binary_cross_entropy_with_logits(outputs, labels.float())
                    torch.autograd.grad(loss, gates)
                    rows += len(labels)
        return rows

    return run


def round_at(mask: torch.Tensor, number: int = 0) -> Round:
    """The round that begins with this mask."""
    mask = mask.unsqueeze(0)
    return Round(mask, Elements(mask.shape[1]), mask.bool(), number=number)


def ours(model: nn.Module, batches: list[Any]) -> Callable[[], int]:
    source = feed(batches, 0, ALONE)
    network = network_for(model, source, *losses.resolve("binary-cross-entropy"), None)
    objective = TableObjective(network, source, ALONE)
    scorer = gp.IG(STEPS)

    def run() -> int:
        before = objective.paid["gradient_rows"]
        for mask in masks():
            scorer(objective, round_at(mask))
        return objective.paid["gradient_rows"] - before

    return run


def read_from(model: nn.Module, batches: Any, steps: int) -> Callable[[], int]:
    """Gradients of a pool's rows, batch by batch, wherever these come from."""
    source = feed(batches, 0, ALONE)
    network = network_for(model, source, *losses.resolve("binary-cross-entropy"), None)
    each = POOL // ROWS
    objective = TableObjective(network, source, ALONE, shares=(each,) * 10_000)
    scorer, some, rounds = gp.IG(steps), masks(), count()

    def run() -> int:
        before, number = objective.paid["gradient_rows"], next(rounds)
        scorer(objective.for_round(number), round_at(some[number % len(some)], number))
        return objective.paid["gradient_rows"] - before

    return run


def parquet() -> str:
    """The same batches decoded from a file as they are needed, and held in memory."""
    lines = [
        "| points of a path | from memory | from Parquet | ratio |",
        "|---|---|---|---|",
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        CriteoShaped(POOLS * POOL, chunk=POOL).write(file)
        table = open_table(file)
        # One pool at a time: whatever was decoded is thrown away when the next pool comes.
        row_batches.MEMORY = 1
        batches = Batches(table, survey(table, "label"), batch_size=ROWS)
        assert batches.together == 1
        assert len(batches) == POOLS * POOL // ROWS
        model = new_network(batches.schema).requires_grad_(False)
        held = list(batches)
        for steps in (STEPS, 1):
            runs = {"memory": read_from(model, held, steps),
                    "parquet": read_from(model, batches, steps)}  # fmt: skip
            found = rates(runs)
            mid = {name: median(each) for name, each in found.items()}
            ratio = median(a / b for a, b in zip(found["parquet"], found["memory"], strict=True))
            lines.append(f"| T = {steps} | {mid['memory']:,.0f} | {mid['parquet']:,.0f} | "
                         f"**{ratio:.2f} ×** |")  # fmt: skip
    return f"""{PARQUET}

Rows in Criteo's shape: {POOLS} pools of {POOL:,}, each decoded and encoded once for the
{POOL // ROWS} batches of {ROWS} of a gradient and then thrown away, against the same batches in
memory. Gradient rows per second of processor time, medians of {PAIRS} timings in turn. With T = 1 a
decoded row serves one point instead of five.

{chr(10).join(lines)}
"""


def conditional(pairs: int = 5) -> str:
    """Whole selections with `baseline="conditional"` and with zero, in turn."""
    lines = [
        "| gradient batches of 512 | zero | conditional | ratio |",
        "|---|---|---|---|",
    ]
    for budget in (PAIR_BUDGET, 4 * PAIR_BUDGET):
        found: dict[str, list[float]] = {"zero": [], "conditional": []}
        for _ in range(pairs):
            for baseline, seconds in found.items():
                seconds.append(selection(ALONE, budget, baseline)["cpu"])
        ratio = median(b / a for a, b in zip(*found.values(), strict=True))
        zero, expected = (median(seconds) for seconds in found.values())
        lines.append(f"| {budget:,} | {zero:.1f} s | {expected:.1f} s | **{ratio:.2f} ×** |")
    return f"""{CONDITIONAL}

The whole of `select_features`, one process, processor time, medians of {pairs} runs in turn.
`baseline="conditional"` sees the {NUMERIC + 8 * CATEGORICAL} numbers that the columns are for the
network, learns their covariance, and regresses the absent ones on the others in every round.

{chr(10).join(lines)}
"""


PARTS = {"parquet": (PARQUET, parquet), "conditional": (CONDITIONAL, conditional)}


def merged(before: str, heading: str, part: str) -> str:
    """The results with this section in its place, or at the end."""
    head, mark, rest = before.partition(heading)
    if not mark:
        return f"{before.rstrip()}\n\n{part}"
    _, mark, behind = rest.partition("\n## ")
    return head + part + (f"{mark}{behind}" if mark else "")


def rates(runs: dict[str, Callable[[], int]], pairs: int = PAIRS) -> dict[str, list[float]]:
    """Gradient rows per second of processor time, each in turn, `pairs` times."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(pairs):
        for name, run in runs.items():
            begin, rows = time.process_time(), 0
            while time.process_time() - begin < 0.4:
                rows += run()
            found[name].append(rows / (time.process_time() - begin))
    return found


def throughput() -> tuple[str, float]:
    lines = [
        "| batch | embeddings | forward + backward (sparse) | looped | greedypig | against "
        "forward + backward | against looped |",
        "|---|---|---|---|---|---|---|",
    ]
    best = 0.0
    for size, vocabulary in ((512, 1000), (4096, 1000), (512, 385_000), (4096, 385_000)):
        model = gp.models.TabularMLP(NUMERIC, [vocabulary] * CATEGORICAL)
        frozen = gp.models.TabularMLP(NUMERIC, [vocabulary] * CATEGORICAL).requires_grad_(False)
        batches = generated(size, vocabulary, max(1, 2048 // size))
        runs = {
            "sparse": bare(model, batches, sparse=True),
            "looped": looped(frozen, batches),
            "ours": ours(model, batches),
        }
        if vocabulary == 1000:
            dense = gp.models.TabularMLP(NUMERIC, [vocabulary] * CATEGORICAL)
            runs["dense"] = bare(dense, batches, sparse=False)
        found = rates(runs)
        mid = {name: median(each) for name, each in found.items()}
        ratio = {name: median(a / b for a, b in zip(found["ours"], found[name], strict=True))
                 for name in runs}  # fmt: skip
        against = f"**{ratio['sparse']:.2f} ×**"
        if "dense" in runs:
            against += f" (dense embedding gradients: {ratio['dense']:.2f} ×)"
        lines.append(
            f"| {size} | {vocabulary * CATEGORICAL:,} | {mid['sparse']:,.0f} | "
            f"{mid['looped']:,.0f} | {mid['ours']:,.0f} | {against} | "
            f"**{ratio['looped']:.2f} ×** |"
        )
        if size == 512 and vocabulary == 1000:
            best = mid["ours"]
    return "\n".join(lines), best


def selection(group: Group, budget: int, baseline: str = "zero") -> dict[str, Any]:
    """A whole run as one process sees it."""
    torch.set_num_threads(1)
    batches = generated(ROWS, 1000, 32)
    model = gp.models.TabularMLP(NUMERIC, [1000] * CATEGORICAL)
    ask: dict[str, Any] = {"budget": budget, "group": group, "baseline": baseline}
    gp.select_features(model, batches, k=1, **(ask | {"budget": STEPS * group.size}))  # Warm.
    group.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    found = gp.select_features(model, batches, **ask)
    group.barrier()
    return {
        "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
        "rows": found.about.gradient_rows, "order": found.order.tolist(),
    }  # fmt: skip


def child(rank: int, size: int, port: str, budget: int, answers: Any) -> None:
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    with joined() as group:
        found = selection(group, budget)
        found["exchange"] = exchange(group)
        answers.put(found)


def exchange(group: Group, times: int = 200) -> float:
    """Seconds of one sum over the processes of what a gradient needs."""
    numbers = torch.ones(COLUMNS + 2, dtype=torch.float64)
    group.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        group.sum(numbers)
    return (time.perf_counter() - begin) / times


def started(size: int, budget: int) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    running = [
        context.Process(target=child, args=(rank, size, port, budget, answers))
        for rank in range(size)
    ]
    for process in running:
        process.start()
    found = [answers.get(timeout=600) for _ in running]
    for process in running:
        process.join()
    return found


def two_processes(pairs: int = 3) -> tuple[str, float]:
    lines = [
        "| wall: one process | two | speed-up | processor: one process | each of two | speed-up "
        "| one exchange |",
        "|---|---|---|---|---|---|---|",
    ]
    latency = 0.0
    for _ in range(pairs):
        (one,) = started(1, PAIR_BUDGET)
        two = started(2, PAIR_BUDGET)
        assert all(each["order"] == one["order"] for each in two)
        wall, cpu = max(each["wall"] for each in two), max(each["cpu"] for each in two)
        slowest = max(each["exchange"] for each in two)
        latency = max(latency, slowest)
        lines.append(
            f"| {one['wall']:.1f} s | {wall:.1f} s | {one['wall'] / wall:.2f} × | "
            f"{one['cpu']:.1f} s | {cpu:.1f} s | **{one['cpu'] / cpu:.2f} ×** | "
            f"{slowest * 1e3:.2f} ms |"
        )
    return "\n".join(lines), latency


def projection(rate: float, latency: float) -> str:
    """Σ over rounds of the largest share of batches, plus one exchange a round."""
    lines = [
        "| cores | largest share of a round | minutes | speed-up | of ideal |",
        "|---|---|---|---|---|",
    ]
    shares = equal(BATCHES // STEPS, COLUMNS)

    def seconds(cores: int) -> float:
        work = sum(ceil(share / cores) for share in shares) * ROWS * STEPS / rate
        # A ring of small messages: its latency grows with its length.
        return work + COLUMNS * latency * max(0, cores - 1)

    for cores in (1, 2, 8, 16, 32, 64):
        gain = seconds(1) / seconds(cores)
        lines.append(
            f"| {cores} | {ceil(max(shares) / cores)} of {max(shares)} batches | "
            f"{seconds(cores) / 60:.2f} | {gain:.1f} × | {gain / cores:.0%} |"
        )
    return "\n".join(lines)


def report() -> str:
    torch.set_num_threads(1)
    fast, rate = throughput()
    pair, latency = two_processes()
    whole = BATCHES * ROWS
    return f"""# Benchmarks of feature selection on tables

Made by `benchmarks/tables.py --write` (torch {torch.__version__}, one thread, generated rows). The
paper's network: 13 numbers and 26 categories, embeddings of 8, 768-256-128.

## Gate gradients, T = {STEPS}, in gradient rows per second of processor time

A row at one point of a path is one gradient row. *Forward + backward* computes parameter gradients
as a training step does, those of the embeddings sparse, and no update; *looped* is autograd with
frozen parameters, point after point, embeddings looked up once per batch. Ratios are medians of
{PAIRS} timings in turn.

{fast}

{parquet()}
{conditional()}
## Two processes, one core each, against one process on one core

{PAIR_BUDGET:,} gradient batches of {ROWS}, the whole of `select_features`,
on gloo; the order of the columns is the same. Wall-clock time is disturbed by whatever else runs on
the machine; processor time is not, and waiting for the other process costs none.

{pair}

## The paper's budget: {BATCHES:,} batches of {ROWS} = {whole / 1e6:.1f} million gradient rows

At the {rate:,.0f} gradient rows a second measured above for batches of {ROWS} that is
{whole / rate / 60:.0f} minutes on one core. The rest of this table is computed, not measured:
each round's batches are dealt out whole, so the process with the most decides, ⌈share / cores⌉
batches; every round ends with one exchange of {COLUMNS + 2} numbers, taken as
{latency * 1e3:.2f} ms for each further process in a ring: the largest of those measured above,
between two processes of one busy machine. Reading the data and measuring values are not in it.

{projection(rate, latency)}
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write RESULTS-tables.md")
    parser.add_argument("--only", choices=PARTS, help="only that part")
    asked = parser.parse_args()
    results = HERE / "RESULTS-tables.md"
    torch.set_num_threads(1)
    heading, part = PARTS[asked.only] if asked.only else ("", report)
    text = part()
    print(text)
    if asked.write:
        results.write_text(merged(results.read_text(), heading, text) if heading else text)
