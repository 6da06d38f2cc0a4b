"""A graph of fewer edges, judged: what is known by hand, and what the objective itself says."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.graphs import generate, make_graph, train
from greedypig.graphs.compression import (
    TITLES,
    Growth,
    Judge,
    compare,
    edge_order,
    grow,
    kept_count,
    selected_edges,
    trace,
)
from greedypig.graphs.training import Recipe


class Votes(nn.Module):
    """A node's logits are the summed features of its neighbours, and a little of its own."""

    def forward(self, x, edge_index, edge_weight):
        source, target = edge_index
        heard = torch.zeros_like(x).index_add(0, target, x[source] * edge_weight.unsqueeze(1))
        return 0.5 * x + heard


@pytest.fixture(scope="module")
def star():
    """Node 0 hears three nodes of class 1 and is of class 0 by itself; its label is 1."""
    x = torch.tensor([[1.0, 0], [0, 1], [0, 1], [0, 1], [1, 0]])
    return make_graph(
        x, [[0, 0, 0], [1, 2, 3]], [1, 1, 1, 1, 0], train=[1, 4], val=[2], test=[0, 3]
    )


@pytest.fixture(scope="module")
def graph():
    return generate(150, 500, 10, 3, signal=1.5, labels_per_class=10, seed=2)


@pytest.fixture(scope="module")
def model(graph):
    return train(graph, Recipe(hidden=8, epochs=60, patience=60)).model


def test_the_three_judges_by_hand(star):
    judge = Judge(Votes(), star)
    # Whole: node 0 says 1 (0.5 against 3); its neighbours hear class 0 once, against 0.5 of theirs.
    assert judge.classes.tolist() == [1, 0, 0, 0, 0]
    assert judge.full.agreement == 1
    assert judge.full.accuracy == 0.5
    none = judge.look(torch.tensor([], dtype=torch.long))
    assert none.edges == 0
    assert none.accuracy == 0.5  # Node 0 is lost, node 3 won.
    assert none.agreement == pytest.approx(1 / 5)
    one = judge.look(torch.tensor([1]))
    assert one.agreement == pytest.approx(3 / 5)
    p = torch.softmax(torch.tensor([0.5, 1.0]), 0)  # Node 0 with one neighbour.
    q = torch.softmax(torch.tensor([1.0, 0.5]), 0)  # That neighbour.
    alone = torch.softmax(torch.tensor([0.0, 0.5]), 0)
    expected = (p[1].log() + q[0].log() + 2 * alone[0].log() + alone[1].log()) / 5
    assert one.g == pytest.approx(float(expected), abs=1e-6)


def test_g_is_the_objective_that_greedy_pig_climbs(graph, model):
    a = edge_order(gp.GreedyPIG(rounds=4), model, graph)
    judge = Judge(model, graph)
    ends = [0, *torch.tensor(a.picks).cumsum(0).tolist()]
    found = [judge.look(a.order[:end]).g for end in ends]
    assert found == pytest.approx(a.values.tolist(), abs=1e-5)
    assert judge.full.g == pytest.approx(a.full_value, abs=1e-5)


def test_the_fast_way_and_the_model_s_own_agree(graph, model):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x, edge_index, edge_weight):
            return self.inner(x, edge_index, edge_weight)

    fast, plain = Judge(model, graph), Judge(Wrapped(), graph)
    for ids in (None, torch.arange(0, graph.m, 3), torch.arange(0)):
        one, other = fast.look(ids), plain.look(ids)
        assert one.g == pytest.approx(other.g, abs=1e-5)
        assert (one.accuracy, one.agreement) == (other.accuracy, other.agreement)


def test_greedy_pig_is_ahead_of_the_samplers(graph, model):
    found = compare(model, graph, shares=(0.2, 0.4, 1.0))
    assert list(found) == list(TITLES)
    for share in (0.2, 0.4):
        g = {name: trace_.at(share).g for name, trace_ in found.items()}
        assert g["greedy-pig"] > max(g["degree"], g["random"])
    for one in found.values():
        assert one.at(1.0).agreement == 1
        assert one.record()["edges"] == [100, 200, 500]


def test_orders_are_permutations_and_samplers_follow_the_seed(graph, model):
    orders = {}
    for name in TITLES:
        a = edge_order(name, model, graph, seed=3)
        assert sorted(a.order.tolist()) == list(range(graph.m))
        orders[name] = a.order
    assert torch.equal(edge_order("degree", model, graph, seed=3).order, orders["degree"])
    assert not torch.equal(edge_order("degree", model, graph, seed=4).order, orders["degree"])


@pytest.mark.slow
def test_sampling_by_degree_prefers_edges_between_lonely_nodes():
    # A hub with 40 leaves, and 20 pairs: an edge of a pair weighs 1, one of the hub 40^-½.
    hub = [[0] * 40, list(range(1, 41))]
    pairs = [list(range(41, 81, 2)), list(range(42, 82, 2))]
    graph = make_graph(torch.eye(81), torch.tensor([hub[0] + pairs[0], hub[1] + pairs[1]]))
    firsts = [int(edge_order("degree", Votes(), graph, seed=s).order[0]) for s in range(300)]
    share = sum(first >= 40 for first in firsts) / 300
    expected = 20 / (20 + 40 * 40**-0.5)
    assert abs(share - expected) < 0.08


def test_counts_round_to_the_nearest_edge():
    assert [kept_count(s, 10) for s in (0, 0.04, 0.05, 0.5, 1)] == [0, 0, 1, 5, 10]


def test_without_labels_there_is_no_accuracy(graph, model):
    bare = make_graph(graph.x, graph.edges)
    judge = Judge(model, bare)
    assert judge.full.accuracy is None
    assert "accuracy" not in trace(judge, torch.arange(bare.m), (0.5, 1.0)).record()


def test_a_model_of_another_size_is_refused(graph):
    with pytest.raises(gp.InvalidInput, match=r"\(150, classes\)"):
        Judge(lambda x, e, w: x[:3], graph)
    with pytest.raises(gp.InvalidInput, match="3 classes"):
        Judge(lambda x, e, w: x[:, :2], graph)


def test_the_model_is_left_as_it_was(graph, model):
    model.train()
    Judge(model, graph).look(torch.arange(3))
    assert model.training
    model.eval()


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
