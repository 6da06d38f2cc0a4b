"""Which rounds, steps and rule serve best for 100 gradients on real graphs?

    python benchmarks/graph_defaults.py [--seeds 3] [--graphs cora pubmed]

Trains the paper's GCN (three layers, 64 hidden) on the graphs of `make assets`, compresses by each
setting and prints G and the agreement with the full graph's predictions, over all nodes, at
10 … 40 % of the edges, as means over training seeds. Results are in RESULTS-graph-defaults.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.graphs import load_graph, train
from greedypig.network.assets_folder import assets_folder

HERE = Path(__file__).parent
SHARES = (0.1, 0.2, 0.3, 0.4)
METHODS: dict[str, Any] = {
    "**Gauss–Radau 33 × 3, geometric (default)**": None,
    "Gauss–Radau 50 × 2, geometric": gp.GreedyPIG(rounds=50, steps=2, rule="gauss-radau", ratio=20),
    "Gauss–Legendre 20 × 5, geometric": gp.GreedyPIG(rule="gauss-legendre", ratio=20),
    "Gauss–Legendre 20 × 5, equal": gp.GreedyPIG(rule="gauss-legendre", schedule="equal"),
    "midpoints 20 × 5, geometric": gp.GreedyPIG(ratio=20),
    "Sequential Gradient 100, geometric": gp.SequentialGradient(rounds=100, ratio=20),
    "PIG, 50 Gauss–Legendre nodes": gp.IG(50, "gauss-legendre"),
    "1/√(DiDj) sampling": "degree",
    "random": "random",
}


def judged(model: gp.models.GCN, x: Tensor, edges: Tensor, method: Any) -> Tensor:
    """(2, shares): G and agreement."""
    with torch.no_grad():
        classes = model(x, edges).argmax(1)
        a = gp.explain_edges(model, x, edges, method=method)
        found = []
        for share in SHARES:
            logits = model(x, edges[:, a.mask(round(share * a.features.count))])
            g = logits.log_softmax(1).gather(1, classes[:, None]).mean()
            found.append((float(g), float((logits.argmax(1) == classes).float().mean())))
    return torch.tensor(found).T


def table(name: str, seeds: int) -> str:
    graph = load_graph(assets_folder() / "graphs" / f"{name}.npz")
    sums = {label: torch.zeros(2, len(SHARES)) for label in METHODS}
    for seed in range(seeds):
        model = train(graph, seed=seed).model
        for label, method in METHODS.items():
            sums[label] += judged(model, graph.x, graph.edge_index, method)
            print(name, seed, label, sums[label].tolist(), flush=True)
    heads = "".join(f" {share:.0%} |" for share in SHARES)
    lines = [f"## {name.capitalize()}, mean of {seeds} seeds", "",
             f"| G / agreement with the full graph at |{heads}",
             "|---|" + "---|" * len(SHARES)]  # fmt: skip
    for label, total in sums.items():
        g, same = total / seeds
        cells = "".join(f" {a:.3f} / {b:.2%} |" for a, b in zip(g, same, strict=True))
        lines.append(f"| {label} |{cells}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--graphs", nargs="*", default=["cora", "pubmed"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = "\n\n".join(
        ["# Graph settings compared by `python benchmarks/graph_defaults.py`",
         *(table(name, args.seeds) for name in args.graphs)]
    )  # fmt: skip
    print(text)
    (HERE / "RESULTS-graph-defaults.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
