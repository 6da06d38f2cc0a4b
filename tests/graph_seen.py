"""Results about graphs with all that their figures and pages need, made without any network."""

import gzip

import torch

import greedypig as gp


def plain_result(count=6, **notes):
    objective = gp.objective(lambda m: m @ torch.arange(count, 0, -1.0), count)
    return gp.maximize(objective, gp.GreedyPIG(per_round=1, steps=2)).with_notes(notes)


def compressed(accuracy=True):
    shares = [0.0, 0.25, 0.5, 1.0]

    def curve(title, agreement, gradients):
        found = {
            "fractions": shares,
            "edges": [0, 2, 3, 6],
            "agreement": agreement,
            "g": [-2.0, -1.0, -0.4, -0.5],
            "title": title,
            "gradients": gradients,
            "seconds": 1.5,
        }
        return found | ({"accuracy": [0.3, 0.6, 0.8, 0.81]} if accuracy else {})

    return plain_result(
        kind="graph-compression",
        source="<toy>.npz",
        model="GCN 3-4-2",
        keep=0.5,
        kept_edges=3,
        full={"accuracy": 0.81 if accuracy else None, "g": -0.5},
        command="greedypig compress x",
        graph={"nodes": 5, "edges": 6, "notes": ["This graph is generated: for a test."]},
        traces={
            "greedy-pig": curve("Greedy PIG", [0.5, 0.9, 0.99, 1.0], 100),
            "random": curve("random edges", [0.5, 0.6, 0.7, 1.0], 0),
        },
    )


def explained(edges=((0, 1), (0, 2), (2, 3), (1, 2)), **more):
    kinds = [1, 1, 0, None]
    nodes = [
        {"id": 40 + i, "name": f"paper <{i}>", "class": k, "predicted": 1}
        for i, k in enumerate(kinds)
    ]
    edges = list(edges)
    return plain_result(
        kind="graph-node",
        source="toy.npz",
        model="GCN",
        node=40,
        probability=0.9,
        alone=0.4,
        kept_probabilities=[0.5, 0.6, 0.7, 0.8][: len(edges)],
        nodes=nodes if edges else nodes[:1],
        edges=[list(e) for e in edges],
        classes=["art & craft", "biology"],
        around=17,
        same=0.5,
        truth="art & craft",
        random={"draws": 3, "same": 0.25, "kept": 0.45, "g": -0.9},
        objective="log-likelihood",
        g=[-1.5, None, -0.8, -0.75, -0.7] if edges else [],
        g_full=-0.2,
        target=1,
        **{"class": "biology", **more},
    )


def crowd(count=30):
    """A node with thirty others in three rings."""
    edges = [(0, i) for i in range(1, 7)] + [((i - 7) % 6 + 1, i) for i in range(7, 22)]
    edges += [((i - 22) % 15 + 7, i) for i in range(22, count + 1)] + [(1, 2), (7, 8)]
    nodes = [
        {"id": i, "name": str(1000 + i), "class": i % 5, "predicted": i % 5}
        for i in range(count + 1)
    ]
    names = ["theory", "neural networks", "genetic algorithms", "case based", "rule learning"]
    return plain_result(
        kind="graph-node",
        source="crowd.npz",
        model="GCN",
        node=0,
        probability=0.9,
        alone=0.4,
        kept_probabilities=[1 - 0.6 * 0.9**i for i in range(len(edges))],
        nodes=nodes,
        edges=[list(e) for e in edges],
        classes=names,
        around=200,
        same=0.8,
        target=0,
        random={"same": 0.5, "kept": 0.6},
        **{"class": "theory"},
    )


def write_ogb(graph, folder):
    """As OGB ships a node-property set."""
    (folder / "raw").mkdir(parents=True)
    (folder / "split/time").mkdir(parents=True)

    def put(name, rows):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in rows)

    put("raw/edge", graph.edges.T.tolist())
    put("raw/node-feat", graph.x.tolist())
    put("raw/node-label", [[y] for y in graph.y.tolist()])
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        put(f"split/time/{name}", [[i] for i in getattr(graph, part).tolist()])
