"""Single nodes: the edges taken, what they keep, and growth at random."""

import pytest
import torch

from greedypig.graphs import generate, make_graph, train
from greedypig.graphs.compression import Growth, grow, selected_edges
from greedypig.graphs.training import Recipe


@pytest.fixture(scope="module")
def graph():
    return generate(150, 500, 10, 3, signal=1.5, labels_per_class=10, seed=2)


@pytest.fixture(scope="module")
def model(graph):
    return train(graph, Recipe(hidden=8, epochs=60, patience=60)).model


def connected(node, pairs):
    reached = {node}
    for u, v in pairs:
        if u not in reached and v not in reached:
            return False
        reached |= {u, v}
    return True


@pytest.mark.parametrize("method", [None, "greedy-pig", "random"])
def test_growth_is_connected_and_of_the_graph_s_own_edges(graph, model, method):
    a, growth = grow(model, graph, 7, k=12, method=method, seed=1)
    own = {tuple(p) for p in graph.edges.T.tolist()}
    assert len(growth.pairs) == len(set(growth.pairs)) == 12
    assert {(min(p), max(p)) for p in growth.pairs} <= own
    assert connected(7, growth.pairs)
    assert list(growth.pairs) == [
        tuple(p) for p in graph.edges[:, selected_edges(a, graph)].T.tolist()
    ]
    assert growth.nodes[0] == 7


def test_probabilities_are_those_of_the_whole_graph_with_these_edges_alone(graph, model):
    a, growth = grow(model, graph, 7, k=6, objective="log-probability")
    target = a.settings["target"]
    for count in (0, 3, 6):
        pairs = torch.tensor(growth.pairs[:count], dtype=torch.long).reshape(-1, 2).T
        logits = model(graph.x, torch.cat([pairs, pairs.flip(0)], 1))[7]
        expected = float(torch.softmax(logits.double(), 0)[target])
        assert growth.probabilities[count] == pytest.approx(expected, abs=1e-5)
    # And the objective's own values, log p, say the same.
    assert [float(v.exp()) for v in a.values] == pytest.approx(growth.probabilities, abs=1e-4)


def test_weights_are_those_of_the_edges(graph, model):
    weight = torch.rand(graph.m, generator=torch.Generator().manual_seed(3)) + 0.5
    heavy = make_graph(graph.x, graph.edges, weight=weight)
    a, growth = grow(model, heavy, 7, k=4)
    logits = model(heavy.x, *heavy.part(selected_edges(a, heavy)))[7].detach()
    expected = torch.softmax(logits.double(), 0)[a.settings["target"]]
    assert growth.probabilities[-1] == pytest.approx(float(expected), abs=1e-5)


def test_the_share_of_the_centre_s_class(graph):
    y = graph.y.tolist()
    same = [i for i in range(1, 150) if y[i] == y[0]][:2]
    other = next(i for i in range(1, 150) if y[i] != y[0])
    growth = Growth(0, ((0, same[0]), (same[0], other), (0, same[1])), (0.5,) * 4)
    assert growth.same_class(graph) == pytest.approx(2 / 3)
    assert Growth(0, (), (0.5,)).same_class(graph) is None
    assert Growth(0, ((0, 1),), (0.5, 0.5)).same_class(make_graph(graph.x, graph.edges)) is None


def test_a_node_without_edges_has_an_empty_growth(graph, model):
    x = torch.cat([graph.x, graph.x[:1]])
    lonely = make_graph(x, graph.edges)
    a, growth = grow(model, lonely, 150, k=5)
    assert growth.pairs == ()
    assert len(growth.probabilities) == 1
    assert a.selected == 0
    assert growth.kept
