"""A graph of fewer edges, judged: what is known by hand, and what the objective itself says."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.graphs import generate, make_graph, train
from greedypig.graphs.compression import (
    TITLES,
    Judge,
    compare,
    compression,
    edge_order,
    kept_count,
    shares_with,
    trace,
)
from greedypig.graphs.node_notes import explain_node_of, facts_of, selected_edges
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


def test_orders_are_measured_for_the_page_of_a_compression(graph, model, tmp_path):
    judge = Judge(model, graph)
    orders = {name: edge_order(name, model, graph) for name in ("ig", "random")}
    a = compression(orders, judge, keep=0.33)
    assert a.about.kept_edges == 165
    assert 0.33 in a.about.traces["random"].fractions
    measured = trace(judge, orders["random"].order, shares_with(0.33))
    assert a.about.traces["random"].agreement == measured.agreement
    a.to_html(tmp_path / "c.html")
    assert "random edges" in (tmp_path / "c.html").read_text()


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
        g = {name: trace_.at("g", share) for name, trace_ in found.items()}
        assert g["greedy-pig"] > max(g["degree"], g["random"])
    for one in found.values():
        assert one.at("agreement", 1.0) == 1
        assert one.edges == (100, 200, 500)


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
    assert trace(judge, torch.arange(bare.m), (0.5, 1.0)).accuracy is None


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


def grown(model, graph, node, **search):
    """The result, and the pairs of node ids that were selected."""
    a = explain_node_of(model, graph, node, **search)
    ids = [one.id for one in a.about.nodes]
    return a, [(ids[u], ids[v]) for u, v in a.about.edges]


@pytest.mark.parametrize("method", [None, "greedy-pig", "random"])
def test_growth_is_connected_and_of_the_graph_s_own_edges(graph, model, method):
    a, pairs = grown(model, graph, 7, k=12, method=method, seed=1)
    own = {tuple(p) for p in graph.edges.T.tolist()}
    assert len(pairs) == len(set(pairs)) == 12
    assert set(pairs) <= own
    assert connected(7, pairs)
    assert pairs == [tuple(p) for p in graph.edges[:, selected_edges(a, graph)].T.tolist()]
    assert facts_of(a).nodes[0].id == 7


@pytest.mark.parametrize("objective", ["log-probability", "log-likelihood"])
def test_probabilities_are_those_of_the_whole_graph_with_these_edges_alone(graph, model, objective):
    a, pairs = grown(model, graph, 7, k=6, objective=objective)
    measured = (a.about.alone, *a.about.kept_probabilities)
    for count in (0, 3, 6):
        part = torch.tensor(pairs[:count], dtype=torch.long).reshape(-1, 2).T
        logits = model(graph.x, torch.cat([part, part.flip(0)], 1))[7]
        expected = float(torch.softmax(logits.double(), 0)[a.about.target])
        assert measured[count] == pytest.approx(expected, abs=1e-5)
    if objective == "log-probability":  # Its own values, log p, say the same.
        assert [float(v.exp()) for v in a.values] == pytest.approx(measured, abs=1e-4)


def test_weights_are_those_of_the_edges(graph, model):
    weight = torch.rand(graph.m, generator=torch.Generator().manual_seed(3)) + 0.5
    heavy = make_graph(graph.x, graph.edges, weight=weight)
    a, _ = grown(model, heavy, 7, k=4)
    logits = model(heavy.x, *heavy.part(selected_edges(a, heavy)))[7].detach()
    expected = torch.softmax(logits.double(), 0)[a.about.target]
    assert a.about.kept_probabilities[-1] == pytest.approx(float(expected), abs=1e-5)


def test_names_and_classes_are_the_graph_s(graph, model):
    named = make_graph(
        graph.x,
        graph.edges,
        graph.y,
        classes=["art", "biology", "chemistry"],
        names=[f"paper-{i}" for i in range(150)],
    )
    a, pairs = grown(model, named, 7, k=6)
    reached = dict.fromkeys([7, *(end for pair in pairs for end in pair)])
    assert [node.name for node in a.about.nodes] == [f"paper-{i}" for i in reached]
    assert a.about.truth == named.classes[int(graph.y[7])]
    others = [int(graph.y[i] == graph.y[7]) for i in list(reached)[1:]]
    assert a.about.same == pytest.approx(sum(others) / len(others))
    assert "paper-7" in gp.report.html(a)
    unlabelled, _ = grown(model, make_graph(graph.x, graph.edges), 7, k=6)
    assert (unlabelled.about.truth, unlabelled.about.same) == (None, None)


def test_a_node_without_edges_has_an_empty_growth(graph, model):
    x = torch.cat([graph.x, graph.x[:1]])
    lonely = make_graph(x, graph.edges)
    a, pairs = grown(model, lonely, 150, k=5)
    assert (pairs, a.about.kept_probabilities, a.about.same) == ([], (), None)
    assert a.about.alone == pytest.approx(a.about.probability)
    assert a.selected == 0
