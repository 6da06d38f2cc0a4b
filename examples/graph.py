"""What `greedypig compress` and `explain-node` do, with the library: train, rank, compare, draw.

    python examples/graph.py [graph.npz]

Without an argument it makes a graph of its own. The figure is in the folder out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import greedypig as gp
from greedypig.graphs import generate, load_graph, train
from greedypig.graphs.compression import TITLES, compare
from greedypig.plots import Band, BandPanel, band_sheet


def main() -> None:
    if len(sys.argv) > 1:
        graph = load_graph(sys.argv[1])
    else:
        graph = generate(500, 2000, 16, 4, signal=1.2, labels_per_class=15, seed=1)
    print(f"{graph.name}: {graph.nodes:,} nodes, {graph.m:,} edges", *graph.notes)
    model = train(graph, seed=0).model  # The paper's three-layer GCN.

    # Which edges do the predictions depend on? An undirected pair is one feature.
    a = gp.explain_edges(model, graph.x, graph.edge_index)
    half = a.mask(graph.m // 2)  # Over the columns of edge_index.
    print(f"{int(half.sum())} of {half.numel()} directions kept, {a.gradients_used} gradients")

    shares = [i / 10 for i in range(11)]
    traces = compare(model, graph, shares=shares)
    for name, trace in traces.items():
        accuracy, agreement, g = (trace.at(key, 0.3) for key in ("accuracy", "agreement", "g"))
        print(
            f"{TITLES[name]:20} with 30 % of the edges: accuracy {accuracy:.3f}, "
            f"agreement {agreement:.3f}, G {g:.3f}"
        )

    # Which edges does the prediction for one node depend on? A subgraph that grows from it.
    node = int(graph.test[0])
    b = gp.explain_node(model, graph.x, graph.edge_index, node, k=8)
    ends = graph.edge_index[:, gp.edge_columns(b)]
    print(f"node {node}: {sorted({tuple(sorted(p)) for p in ends.T.tolist()})}")

    out = Path("out")
    out.mkdir(exist_ok=True)
    panels = [
        BandPanel("", key, {TITLES[n]: Band(shares, getattr(t, key)) for n, t in traces.items()})
        for key in ("accuracy", "agreement", "g")
    ]
    band_sheet([panels], title=graph.name).savefig(out / "graph.png", dpi=120)
    print(f"wrote {out / 'graph.png'}")


if __name__ == "__main__":
    main()
