"""What an absent edge is: the reading that fits a model, and the search that fits the reading."""

import warnings

import pytest
import torch
from torch import nn

import greedypig as gp
from made_graphs import both_ways, features, random_graph, seeded

pyg = pytest.importorskip("torch_geometric.nn", reason="needs the extra pyg")


class Attention(nn.Module):
    """Attention with the weight as a feature of the edge."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GATConv(5, 3, edge_dim=1)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight[:, None])


class Plain(nn.Module):
    """Called as model(x, edge_index)."""

    def __init__(self, layer=pyg.GCNConv):
        super().__init__()
        self.one, self.two = layer(5, 8), layer(8, 3)

    def forward(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)


def calls():
    """`explain_edges` and `explain_node` as one function of a model and a graph."""
    two = gp.GreedyPIG(rounds=2)
    yield lambda model, x, edges, **more: gp.explain_edges(model, x, edges, method=two, **more)
    yield lambda model, x, edges, **more: gp.explain_node(model, x, edges, 3, k=2, **more)


@pytest.mark.parametrize("explain", calls(), ids=["edges", "node"])
def test_attention_to_edges_of_weight_0_is_told_and_messages_are_masked(explain):
    model, x, (edges, _) = seeded(Attention), features(), random_graph()
    with pytest.warns(UserWarning, match="weight 0 is not a removed edge.*messages are masked"):
        a = explain(model, x, edges)
    assert a.settings["normalisation"] == "kept"
    with pytest.warns(UserWarning, match="weight 0 is not a removed edge.*Try normalisation"):
        b = explain(model, x, edges, normalisation="recomputed")
    assert b.settings["normalisation"] == "recomputed"


@pytest.mark.parametrize("explain", calls(), ids=["edges", "node"])
def test_a_model_to_which_weight_0_is_a_removed_edge_is_taken_without_a_word(explain):
    edges, _ = random_graph()
    models = {
        "ours": seeded(gp.models.GCN, 5, 3, 8),
        "pyg": seeded(pyg.models.GCN, 5, 8, 2, 3),
        "sum": seeded(pyg.GraphConv, 5, 3),
    }
    for model in models.values():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            a = explain(model, features(), edges)
        assert a.settings["normalisation"] == "recomputed"


BARE = {
    "forward(x, edge_index)": lambda: Plain(),
    "SAGEConv": lambda: pyg.SAGEConv(5, 3),
    "GINConv": lambda: pyg.GINConv(nn.Linear(5, 3)),
    "TransformerConv": lambda: pyg.TransformerConv(5, 3),
    "GATConv": lambda: pyg.GATConv(5, 3),
}


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("explain", calls(), ids=["edges", "node"])
def test_models_without_edge_weight_have_their_messages_masked(explain, name):
    model, x, (edges, _) = seeded(BARE[name]), features(), random_graph()
    a = explain(model, x, edges, normalisation="kept", objective="log-likelihood")
    rows = model(x, edges).detach()
    rows = rows if a.settings.get("node") is None else rows[3:4]
    own = (rows.softmax(1) * rows.log_softmax(1)).sum(1).mean()
    assert a.full_value == pytest.approx(float(own), rel=1e-9)
    with pytest.warns(UserWarning, match="messages are masked instead"):
        b = explain(model, x, edges, objective="log-likelihood")
    assert b.settings["normalisation"] == "kept"
    assert b.order.tolist() == a.order.tolist()
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises((gp.InvalidInput, gp.NotDifferentiable), match=r"edge_weight|ignores its"),
    ):
        explain(model, x, edges, normalisation="recomputed")


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["kept", "recomputed"])
def test_no_part_of_the_edges_is_better_than_the_node_s_own_answer(normalisation):
    """Σ p log p_S is highest at p_S = p: an answer is matched, not exceeded."""
    edges, _ = random_graph(60, 150)
    model, x = seeded(gp.models.GCN, 5, 3, 8), features(60)
    for node in range(3):
        p = model(x, edges).detach()[node].log_softmax(0)
        ask = {"normalisation": normalisation, "objective": "log-likelihood"}
        a = gp.explain_node(model, x, edges, node, k=5, **ask)
        assert float(a.values.max()) <= float((p.exp() * p).sum()) + 1e-12


def sums(model):
    """Bare sum of messages as a lone logit: G depends on Σ_e s_e · message_e alone."""
    nn.init.ones_(model.lin_l.weight)
    return model


def test_what_exceeds_the_answer_is_taken_back():
    # Messages 3, −3 and 1 make the logit 1. Alone, 3 is too much: −3 comes before 1.
    x = torch.tensor([[0.0], [3.0], [-3.0], [1.0]], dtype=torch.float64)
    edges = torch.tensor([[1, 2, 3], [0, 0, 0]])
    model = sums(seeded(pyg.SAGEConv, 1, 1, aggr="sum", bias=False, root_weight=False))
    ask = {"k": 3, "normalisation": "kept"}
    edges = gp.index_edges(x, edges, undirected=False)
    assert gp.explain_node(model, x, edges, 0, **ask).order.tolist() == [0, 1, 2]
    surer = gp.explain_node(model, x, edges, 0, objective="log-probability", **ask)
    assert surer.order.tolist() == [0, 2, 1]
    assert gp.explain_node(model, x, edges, 0, target=1, **ask).order.tolist() == [0, 2, 1]


def test_growth_goes_toward_the_best_edge_and_stays_connected():
    # 0 – 1 – 2 and 0 – 3: the edge 1 – 2 is the best, and 0 – 1 leads to it.
    edges = both_ways([(0, 1), (1, 2), (0, 3)])
    worth = {frozenset((0, 1)): 0.0, frozenset((1, 2)): 5.0, frozenset((0, 3)): 1.0}
    scores = torch.tensor([worth[frozenset(pair)] for pair in edges.T.tolist()])
    model, x = seeded(gp.models.GCN, 5, 3, 8), features(4)
    method = gp.Greedy(lambda objective, round: scores.to(round.mask))
    a = gp.explain_node(model, x, edges, 0, k=3, method=method, normalisation="kept")
    pairs = [set(pair) for pair in edges[:, gp.edge_columns(a)].T.tolist()]
    assert pairs == [{0, 1}, {0, 1}, {1, 2}, {1, 2}, {0, 3}, {0, 3}]  # Either direction.


def test_with_recomputed_degrees_an_edge_scores_by_what_it_adds_and_by_what_the_rest_loses():
    """The first round's scores, of edges at the node: G(F) − G(∅) + G(all) − G(all but F)."""
    edges, _ = random_graph(60, 120)
    model, x = seeded(gp.models.GCN, 5, 3, 8), features(60)
    node = int(edges[1].bincount().argmax())
    method = gp.GreedyPIG(steps=200, rule="gauss-legendre")
    ask = {"method": method, "objective": "log-likelihood"}
    a = gp.explain_node(model, x, edges, node, k=1, **ask)
    at_node = (edges[0] == node) | (edges[1] == node)
    full = model(x, edges).detach()[node].softmax(0)

    def value(stay):
        return float((model(x, edges[:, stay]).detach()[node].log_softmax(0) * full).sum())

    none, every = at_node & ~at_node, at_node | ~at_node
    expected = value(at_node) - value(none) + value(every) - value(~at_node)
    assert a.totals[0] == pytest.approx(expected, abs=1e-4)
    others = ~at_node[a.attachments["edges"]]
    assert not a.last_scores[a.features.ids[others].unique()].any()
