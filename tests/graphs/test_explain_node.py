"""gp.explain_node: connected growth, on the neighbourhood alone, with the whole graph's values."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.models import GCN
from made_graphs import both_ways, features, random_graph, seeded


def taken(a):
    """Columns of edge_index that were taken."""
    return a.attachments["edges"][a.mask(a.selected)]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("optimize", [True, False])
def test_values_are_those_of_the_whole_graph_with_all_other_edges_removed(symmetric, optimize):
    edges, weight = random_graph(200, 260, symmetric=symmetric)
    model, x = seeded(GCN, 5, 3, 8), features(200)
    node = int(edges[1, 0])
    a = gp.explain_node(model, x, edges, node, weight, k=6, optimize=optimize, values="each")
    assert a.layout.n < edges.shape[1]
    at = model(x, edges, weight)[node].argmax()
    for count, value in zip(torch.tensor((0, *a.picks)).cumsum(0).tolist(), a.values, strict=True):
        stay = a.attachments["edges"][a.mask(count)]
        found = model(x, edges[:, stay], weight[stay]).detach()[node].log_softmax(0)[at]
        assert float(value) == pytest.approx(float(found), rel=1e-9)
    assert torch.equal(a.attachments["ends"], edges[:, a.attachments["edges"]])


@pytest.mark.parametrize("optimize", [True, False])
def test_kept_degrees_are_those_of_the_whole_graph(optimize):
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.nn.models import GCN as PyGGCN

    edges, weight = random_graph(200, 260)
    model, x = seeded(PyGGCN, 5, 8, 3, 3), features(200)
    node = int(edges[1, 0])
    a = gp.explain_node(model, x, edges, node, weight, normalisation="kept", optimize=optimize)
    value = model(x, edges, weight).detach()[node].log_softmax(0).max()
    assert a.settings["fast"] == optimize
    assert a.settings["hops"] == 3
    assert a.full_value == pytest.approx(float(value), rel=1e-9)


@pytest.mark.parametrize("method", ["greedy-pig", "sequential-gradient", "ig", "random"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_every_edge_touches_what_was_discovered_before(method, symmetric):
    edges, weight = random_graph(100, 220, symmetric=symmetric)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    node = int(edges[1, 0])
    a = gp.explain_node(model, x, edges, node, weight, k=12, method=method)
    ends, known = a.attachments["ends"], {node}
    for unit in a.order[: a.selected].tolist():
        source, target = ends[:, a.features.ids == unit][:, 0].tolist()
        assert target in known or (symmetric and source in known)
        known |= {source, target}
    assert a.selected == 12
    assert a.settings["method"] == method


def test_edges_further_away_than_the_model_hears_are_not_candidates():
    # A path 0 – 1 – 2 – 3 – 4: two layers hear the first two edges.
    edges = both_ways([(i, i + 1) for i in range(4)])
    a = gp.explain_node(seeded(GCN, 5, 3, 8, layers=2), features(5), edges, 0)
    assert a.settings["hops"] == 2
    assert sorted(a.attachments["edges"].tolist()) == [0, 1, 4, 5]
    assert sorted(taken(a).tolist()) == [0, 1, 4, 5]
    assert a.stop is gp.StopReason.ALL
    near = gp.explain_node(seeded(GCN, 5, 3, 8, layers=2), features(5), edges, 0, hops=1)
    assert near.attachments["edges"].tolist() == [0, 4]


def test_messages_are_followed_against_their_direction():
    edges = torch.tensor([[1, 2, 0, 3], [0, 1, 4, 2]])  # 3 → 2 → 1 → 0 → 4
    a = gp.explain_node(seeded(GCN, 5, 3, 8, layers=2), features(5), edges, 0)
    assert sorted(taken(a).tolist()) == [0, 1]


@pytest.mark.parametrize("normalisation", ["recomputed", "kept"])
def test_messages_that_flow_back_are_followed_along_their_edges(normalisation):
    """A network of the other flow on the edges turned is the same network."""
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.nn import Sequential as Run
    from torch_geometric.nn.models import GCN as PyGGCN

    edges, weight = random_graph(100, 220, symmetric=False)
    x, node = features(100), int(edges[1, 0])
    usual = seeded(PyGGCN, 5, 8, 2, 3)
    other = seeded(PyGGCN, 5, 8, 2, 3, flow="target_to_source")
    ask = {"k": 8, "normalisation": normalisation, "values": "each"}
    a = gp.explain_node(usual, x, edges, node, weight, **ask)
    b = gp.explain_node(other, x, edges.flip(0), node, weight, **ask)
    assert a.selected == 8
    assert torch.equal(a.order, b.order)
    assert torch.allclose(a.values, b.values)
    assert torch.equal(a.attachments["edges"], b.attachments["edges"])
    assert torch.equal(a.attachments["ends"], b.attachments["ends"].flip(0))
    both = Run("x, e, w", [(m.convs[0], "x, e, w -> x") for m in (usual, other)])
    with pytest.raises(gp.InvalidInput, match=r"layers of one flow \(got source.*, target.*Try"):
        gp.explain_node(both, x, edges, node, weight)


@pytest.mark.parametrize("normalisation", ["recomputed", "kept"])
def test_loops_stay_and_are_no_candidates(normalisation):
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.nn import GCNConv

    edges = torch.tensor([[1, 0, 0, 2], [0, 1, 0, 2]])
    weight = torch.tensor([1.0, 1.0, 3.0, 5.0], dtype=torch.float64)
    model, x = seeded(GCNConv, 5, 3), features(3)
    a = gp.explain_node(model, x, edges, 0, weight, normalisation=normalisation)
    assert a.attachments["edges"].tolist() == [0, 1]
    value = model(x, edges, weight).detach()[0].log_softmax(0).max()
    assert a.full_value == pytest.approx(float(value), rel=1e-12)
    alone = gp.explain_node(model, x, edges, 2, weight, normalisation=normalisation)
    assert alone.selected == 0


def test_the_wanted_class_is_explained():
    edges, _ = random_graph(50, 120)
    model, x = seeded(GCN, 5, 3, 8), features(50)
    full = model(x, edges)[7].detach()
    other = int(full.argmin())
    a = gp.explain_node(model, x, edges, 7, target=other, objective="softmax", hops=5)
    assert a.settings["target"] == other
    assert float(a.values[-1]) > float(a.values[0])
    with pytest.raises(gp.InvalidInput, match="class from 0 to 2"):
        gp.explain_node(model, x, edges, 7, target=3)


def test_a_node_without_edges_has_an_empty_valid_answer(tmp_path):
    edges, _ = random_graph(20, 40)
    model, x = seeded(GCN, 5, 3, 8), features(22)
    a = gp.explain_node(model, x, edges, 21)
    value = model(x, edges).detach()[21].log_softmax(0).max()
    assert a.order.numel() == a.selected == a.features.units == 0
    assert a.mask(0).shape == (0,)
    assert a.full_value == pytest.approx(float(value), rel=1e-12)
    assert a.attachments["edges"][a.mask(a.selected)].tolist() == []
    assert a.attachments["ends"].shape == (2, 0)
    a.save(tmp_path / "empty.gpig")
    assert gp.load(tmp_path / "empty.gpig").settings["node"] == 21
    assert "0 of 0" in repr(a)
    none = torch.empty(2, 0, dtype=torch.long)
    assert gp.explain_node(model, x, none, 3).selected == 0


def test_a_run_is_resumed_to_the_bit():
    edges, weight = random_graph(100, 220)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    whole = gp.explain_node(model, x, edges, 3, weight, k=10)
    part = gp.explain_node(model, x, edges, 3, weight, k=10, budget=12)
    assert part.selected == 4
    again = gp.explain_node(model, x, edges, 3, weight, k=10, resume=part)
    for name in ("order", "unit_scores", "values"):
        assert torch.equal(getattr(again, name), getattr(whole, name))


@pytest.mark.parametrize("undirected", [None, True, False])
def test_indexed_edges_give_the_same_to_the_bit(undirected):
    edges, weight = random_graph(100, 220)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    indexed = gp.index_edges(x, edges, weight)
    loops = torch.cat([edges, torch.tensor([[3, 7], [3, 7]])], 1)
    alone = torch.cat([edges[:, ::2], torch.tensor([[3], [3]])], 1)  # One direction of each pair.
    for own, index in ((edges, indexed), (loops, None), (alone, None)):
        for node in (0, 3, 7):
            given = weight if index is not None else None
            plain = gp.explain_node(model, x, own, node, given, k=8, undirected=undirected)
            other = gp.explain_node(
                model, x, index or gp.index_edges(x, own), node, k=8, undirected=undirected
            )
            for name in ("order", "unit_scores", "values"):
                assert torch.equal(getattr(plain, name), getattr(other, name))
            for name in ("edges", "ends"):
                assert torch.equal(plain.attachments[name], other.attachments[name])
            assert plain.provenance == other.provenance


def test_indexed_edges_have_their_own_weights_and_nodes():
    edges, weight = random_graph(100, 220)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    indexed = gp.index_edges(x, edges, weight)
    with pytest.raises(gp.InvalidInput, match=r"no edge_weight beside indexed edges.*Try"):
        gp.explain_node(model, x, indexed, 3, weight)
    with pytest.raises(gp.InvalidInput, match=r"x with the 100 nodes that were indexed \(got \(99"):
        gp.explain_node(model, x[1:], indexed, 3)


def test_fewer_edges_than_asked_for_are_told():
    edges = both_ways([(0, 1), (1, 2), (5, 6)])
    model, x = seeded(GCN, 5, 3, 8), features(9)
    a = gp.explain_node(model, x, edges, 0, k=20)
    assert a.selected == a.settings["k"] == 2
    assert a.about["note"] == "20 edges were asked for; only 2 edges are within 3 steps."
    assert gp.explain_node(model, x, edges, 5, k=1).about == {}
    assert (
        "only 1 edge is within 1 step." in gp.explain_node(model, x, edges, 0, hops=1).about["note"]
    )


def test_a_checkpoint_tells_which_edges_they_are(tmp_path):
    edges, weight = random_graph(100, 220)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    seen = []

    def look(rounds):
        if rounds.problem.rounds:
            seen.append(gp.load(tmp_path / "node.gpig"))

    whole = gp.explain_node(model, x, edges, 3, weight, k=4, checkpoint=tmp_path / "node.gpig",
                            progress=look)  # fmt: skip
    assert [a.selected for a in seen] == [1, 2, 3, 4]
    for a in seen:
        for name in ("edges", "ends"):
            assert torch.equal(a.attachments[name], whole.attachments[name])


def test_the_rest_of_the_graph_costs_nothing():
    edges = both_ways([(0, 1), (1, 2)])
    model, x = seeded(GCN, 5, 3, 8), features(2000)
    far = torch.randint(10, 2000, (2, 5000), generator=torch.Generator().manual_seed(0))
    seen = []

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, edge_index, edge_weight=None):
            seen.append((x.shape[0], edge_index.shape[1]))
            return self.model(x, edge_index, edge_weight)

    gp.explain_node(Watched(), x, torch.cat([edges, far], 1), 0, hops=3)
    assert max(nodes for nodes, _ in seen) == 3
    assert max(columns for _, columns in seen) == 4


def test_mistakes_are_named():
    edges, _ = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    with pytest.raises(gp.InvalidInput, match="id from 0 to 29"):
        gp.explain_node(model, x, edges, 30)
    with pytest.raises(gp.InvalidInput, match="hops"):
        gp.explain_node(model, x, edges, 3, hops=0)
    with pytest.raises(gp.InvalidInput, match="Expected k"):
        gp.explain_node(model, x, edges, 3, k=0)
    with pytest.raises(gp.InvalidInput, match="'random'"):
        gp.explain_node(model, x, edges, 3, method="degree")
    with pytest.raises(gp.InvalidInput, match="hops, the number of layers"):
        gp.explain_node(lambda x, e, w: model(x, e, w), x, edges, 3)
