"""gp.explain_node: connected growth, on the neighbourhood alone, with the whole graph's values."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.core import carry_out
from greedypig.models import GCN
from made_graphs import Undeclared, both_ways, features, random_graph, seeded


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("fast", [True, False])
def test_values_are_those_of_the_whole_graph_with_all_other_edges_removed(symmetric, fast):
    edges, weight = random_graph(200, 260, symmetric=symmetric)
    model, x = seeded(GCN, 5, 3, 8), features(200)
    node = int(edges[1, 0])
    a = gp.explain_node(
        model if fast else Undeclared(model),
        x,
        edges,
        node,
        weight,
        k=6,
        hops=3,
        objective="log-probability",
    )
    assert a.settings["fast"] == fast
    assert a.layout.n < edges.shape[1]
    at = model(x, edges, weight)[node].argmax()
    for count, value in zip(torch.tensor((0, *a.picks)).cumsum(0).tolist(), a.values, strict=True):
        stay = gp.edge_columns(a, count).sort().values
        found = model(x, edges[:, stay], weight[stay]).detach()[node].log_softmax(0)[at]
        assert float(value) == pytest.approx(float(found), rel=1e-9)


@pytest.mark.parametrize("objective", ["log-probability", "log-likelihood"])
def test_all_edges_are_those_of_the_whole_graph(objective):
    edges, weight = random_graph(200, 260)
    model, x = seeded(GCN, 5, 3, 8), features(200)
    node = int(edges[1, 0])
    log_p = model(x, edges, weight).detach()[node].log_softmax(0)
    whole = {"log-probability": log_p.max(), "log-likelihood": (log_p.exp() * log_p).sum()}
    for k in (3, None):  # Also where all edges within reach are selected.
        a = gp.explain_node(model, x, edges, node, weight, k=k, hops=3, objective=objective)
        assert a.full_value == pytest.approx(float(whole[objective]), rel=1e-9)


@pytest.mark.parametrize(
    ("normalisation", "target", "objective"),
    [
        ("recomputed", None, "log-probability"),
        ("kept", None, "log-likelihood"),
        ("kept", 1, "log-probability"),
    ],
)
def test_the_default_objective_is_the_class_s_probability(normalisation, target, objective):
    edges, _ = random_graph(30, 60)
    search = {"normalisation": normalisation, "target": target, "k": 1}
    a = gp.explain_node(seeded(GCN, 5, 3, 8), features(30), edges, int(edges[1, 0]), **search)
    assert a.settings["objective"] == objective


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False])
def test_kept_degrees_are_those_of_the_whole_graph(fast):
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.nn.models import GCN as PyGGCN

    edges, weight = random_graph(200, 260)
    model, x = seeded(PyGGCN, 5, 8, 3, 3, act="relu" if fast else "elu"), features(200)
    node = int(edges[1, 0])
    a = gp.explain_node(
        model, x, edges, node, weight, normalisation="kept", objective="log-probability"
    )
    value = model(x, edges, weight).detach()[node].log_softmax(0).max()
    assert a.settings["fast"] == fast
    assert a.settings["hops"] == 3
    assert a.full_value == pytest.approx(float(value), rel=1e-9)


@pytest.mark.parametrize("method", ["greedy-pig", "sequential-gradient", "ig", "random"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_every_edge_touches_what_was_discovered_before(method, symmetric):
    edges, weight = random_graph(100, 220, symmetric=symmetric)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    node = int(edges[1, 0])
    a = gp.explain_node(model, x, edges, node, weight, k=12, method=method)
    known = {node}
    for source, target in edges[:, gp.edge_columns(a)].T.tolist():  # In order of selection.
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
    assert sorted(gp.edge_columns(a).tolist()) == [0, 1, 4, 5]
    assert a.stop is gp.StopReason.ALL
    near = gp.explain_node(seeded(GCN, 5, 3, 8, layers=2), features(5), edges, 0, hops=1)
    assert near.attachments["edges"].tolist() == [0, 4]


def test_messages_are_followed_against_their_direction():
    edges = torch.tensor([[1, 2, 0, 3], [0, 1, 4, 2]])  # 3 → 2 → 1 → 0 → 4
    a = gp.explain_node(seeded(GCN, 5, 3, 8, layers=2), features(5), edges, 0)
    assert sorted(gp.edge_columns(a).tolist()) == [0, 1]


def test_messages_that_flow_back_are_refused():
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.nn.models import GCN as PyGGCN

    edges, x = both_ways([(0, 1), (1, 2)]), features(3)
    model = seeded(PyGGCN, 5, 8, 2, 3, flow="target_to_source")
    with pytest.raises(gp.InvalidInput, match=r"target_to_source.*nodes=\[node\]"):
        gp.explain_node(model, x, edges, 0)


@pytest.mark.parametrize("normalisation", ["recomputed", "kept"])
def test_loops_stay_and_are_no_candidates(normalisation):
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.nn import GCNConv

    edges = torch.tensor([[1, 0, 0, 2], [0, 1, 0, 2]])
    weight = torch.tensor([1.0, 1.0, 3.0, 5.0], dtype=torch.float64)
    model, x = seeded(GCNConv, 5, 3), features(3)
    a = gp.explain_node(
        model, x, edges, 0, weight, normalisation=normalisation, objective="log-probability"
    )
    assert a.attachments["edges"].tolist() == [0, 1]
    value = model(x, edges, weight).detach()[0].log_softmax(0).max()
    assert a.full_value == pytest.approx(float(value), rel=1e-12)
    alone = gp.explain_node(model, x, edges, 2, weight, normalisation=normalisation)
    assert alone.selected == 0


@pytest.mark.slow
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
    a = gp.explain_node(model, x, edges, 21, objective="log-probability")
    value = model(x, edges).detach()[21].log_softmax(0).max()
    assert a.order.numel() == a.selected == a.features.count == 0
    assert a.mask(0).shape == (0,)
    assert a.full_value == pytest.approx(float(value), rel=1e-12)
    assert gp.edge_columns(a).tolist() == []
    assert a.importance.shape == (0,)
    a.save(tmp_path / "empty.gpig")
    assert gp.load(tmp_path / "empty.gpig").settings["node"] == 21
    assert "0 of 0" in repr(a)
    none = torch.empty(2, 0, dtype=torch.long)
    assert gp.explain_node(model, x, none, 3).selected == 0


@pytest.mark.slow
def test_a_run_goes_on_from_its_file_to_the_bit(tmp_path):
    edges, weight = random_graph(100, 220)
    ask = (seeded(GCN, 5, 3, 8), features(100), edges, 3, weight)
    search = {"k": 10, "checkpoint": tmp_path / "node.gpig"}
    whole = gp.explain_node(*ask, k=10)
    part = gp.explain_node(*ask, **search, stop=gp.Stop(gradients=160))
    assert part.selected == 4  # Both gradients of each of the 20 points of a round count.
    again = gp.explain_node(*ask, **search)
    for name in ("order", "feature_scores", "values"):
        assert torch.equal(getattr(again, name), getattr(whole, name))


@pytest.mark.slow
def test_indexed_edges_give_the_same_to_the_bit():
    edges, weight = random_graph(100, 220)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    indexed = gp.index_edges(x, edges, weight)
    loops = torch.cat([edges, torch.tensor([[3, 7], [3, 7]])], 1)
    alone = torch.cat([edges[:, ::2], torch.tensor([[3], [3]])], 1)  # One direction of each pair.
    for own, index in ((edges, indexed), (loops, None), (alone, None)):
        for node in (0, 3, 7):
            given = weight if index is not None else None
            plain = gp.explain_node(model, x, own, node, given, k=8)
            other = gp.explain_node(model, x, index or gp.index_edges(x, own), node, k=8)
            for name in ("order", "feature_scores", "values"):
                assert torch.equal(getattr(plain, name), getattr(other, name))
            assert torch.equal(plain.attachments["edges"], other.attachments["edges"])
            assert plain.provenance == other.provenance


def test_the_index_says_whether_both_directions_are_one_feature():
    edges, x = both_ways([(0, 1), (1, 2), (0, 3)]), features(4)
    for undirected, features_around in ((True, 3), (False, 6), (None, 3)):
        indexed = gp.index_edges(x, edges, undirected=undirected)
        a = gp.explain_node(seeded(GCN, 5, 3, 8), x, indexed, 0)
        assert a.settings["undirected"] is (undirected is not False)
        assert a.features.count == features_around


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
    assert a.about.note == "20 edges were asked for; only 2 are within 3 steps."
    assert not gp.explain_node(model, x, edges, 5, k=1).about.note


def test_a_checkpoint_tells_which_edges_they_are(tmp_path, monkeypatch):
    edges, weight = random_graph(100, 220)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    file, saved = tmp_path / "node.gpig", []

    def progress(done, total):
        if file.exists():
            saved.append(gp.load(file))

    monkeypatch.setattr(carry_out, "BETWEEN", 0)
    whole = gp.explain_node(model, x, edges, 3, weight, k=4, checkpoint=file, progress=progress)
    assert [a.selected for a in saved] == [1, 2, 3, 4]
    for a in saved:
        assert torch.equal(a.attachments["edges"], whole.attachments["edges"])


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
    # Once with a few strangers, to see whether the model hears of them.
    assert sum(nodes != 3 for nodes, _ in seen) == 1
    assert max(nodes for nodes, _ in seen) <= 17
    assert max(columns for _, columns in seen) == 4


class Tied(nn.Module):
    """One graph convolution, called several times."""

    def __init__(self, times=3):
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first, self.conv, self.times = nn.Linear(5, 8), GCNConv(8, 8), times
        self.last = nn.Linear(8, 3)

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x)
        for _ in range(self.times):
            x = self.conv(x, edge_index, edge_weight).relu()
        return self.last(x)


class Unseen(Tied):
    """The same, whose calls cannot be counted."""

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x)
        for _ in range(self.times):
            x = self.conv.forward(x, edge_index, edge_weight).relu()
        return self.last(x)


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.one, self.norm, self.two = GCNConv(5, 8), norm, GCNConv(8, 3)

    def forward(self, x, edge_index, edge_weight=None):
        x = self.norm(self.one(x, edge_index, edge_weight)).relu()
        return self.two(x, edge_index, edge_weight)


def check_values(a, model, x, edges, node):
    """The class is the whole graph's, and so is every G(S)."""
    rows = model(x, edges).detach()
    assert a.settings["target"] == int(rows[node].argmax())
    for count, value in zip(torch.tensor((0, *a.picks)).cumsum(0).tolist(), a.values, strict=True):
        stay = gp.edge_columns(a, count).sort().values
        found = model(x, edges[:, stay]).detach()[node].log_softmax(0)[a.settings["target"]]
        assert float(value) == pytest.approx(float(found), rel=1e-9)


@pytest.mark.parametrize("kind", [Tied, Unseen])
def test_layers_that_are_called_again_are_heard_as_far_as_they_reach(kind):
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    edges, x = both_ways([(i, i + 1) for i in range(9)]), features(10)
    model = seeded(kind)
    for node in (0, 4):
        a = gp.explain_node(model, x, edges, node, k=3, objective="log-probability")
        check_values(a, model, x, edges, node)
        if kind is Tied:
            assert a.settings["hops"] == 3
            assert a.features.count == (3 if node == 0 else 6)
            assert not a.about.note
        else:
            assert a.features.count == 9
            assert "more than the edges within 1 steps" in a.about.note


@pytest.mark.parametrize("name", ["PairNorm", "GraphNorm", "LayerNorm"])
@pytest.mark.parametrize("hops", [None, 2])
def test_norms_over_all_nodes_run_on_the_whole_graph(name, hops):
    pyg = pytest.importorskip("torch_geometric.nn", reason="needs the extra pyg")
    norm = {"PairNorm": (), "GraphNorm": (8,), "LayerNorm": (8,)}[name]
    # The path 0 … 5, a pair and two nodes alone; a loop that stays.
    edges = both_ways([(i, i + 1) for i in range(5)] + [(6, 7)])
    edges = torch.cat([edges, torch.tensor([[7], [7]])], 1)
    model, x = seeded(Normed, getattr(pyg, name)(*norm)), features(10)
    for node in (0, 3, 9):
        a = gp.explain_node(model, x, edges, node, k=2, hops=hops, objective="log-probability")
        assert "run on the whole graph" in a.about.note
        if node == 9:
            value = model(x, edges).detach()[9].log_softmax(0).max()
            assert a.full_value == pytest.approx(float(value), rel=1e-9)
            continue
        rows = model(x, edges).detach()
        assert a.settings["target"] == int(rows[node].argmax())
        for count, value in zip(range(3), a.values, strict=True):
            stay = torch.cat([gp.edge_columns(a, count).sort().values, torch.tensor([12])])
            found = model(x, edges[:, stay]).detach()[node].log_softmax(0)
            assert float(value) == pytest.approx(float(found[a.settings["target"]]), rel=1e-9)
        assert a.features.count == (5 if hops is None else 2 if node == 0 else 4)


def test_norms_of_single_nodes_are_cut():
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    edges, x = both_ways([(i, i + 1) for i in range(9)]), features(10)
    a = gp.explain_node(seeded(Normed, nn.LayerNorm(8)), x, edges, 0, k=2)
    assert a.settings["hops"] == a.features.count == 2
    assert "run on the whole graph" not in a.about.note


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [False, True])
def test_fewer_hops_than_layers_leave_the_class_as_it_is(wrapped):
    edges, _ = random_graph(60, 90)
    model, x = seeded(GCN, 5, 3, 8), features(60)
    classes = model(x, edges).argmax(1)
    asked = (lambda x, e, w: model(x, e, w)) if wrapped else model
    for node in range(20):
        a = gp.explain_node(asked, x, edges, node, k=2, hops=1)
        assert a.settings["target"] == int(classes[node])
        assert a.settings["hops"] == 1
        assert all(node in pair for pair in edges[:, a.attachments["edges"]].T.tolist())


@pytest.mark.parametrize(
    "change", [torch.Tensor.double, torch.Tensor.long, torch.Tensor.half, lambda x: x[:, :4]]
)
def test_features_that_the_model_does_not_take_are_named(change):
    edges, _ = random_graph()
    model, x = seeded(GCN, 5, 3, 8).float(), change(features().float())
    for explain in (
        lambda: gp.explain_node(model, x, edges, 3),
        lambda: gp.explain_edges(model, x, edges),
    ):
        with pytest.raises(
            gp.InvalidInput, match=rf"got features {x.dtype} of shape .*, {x.shape[1]}\)"
        ):
            explain()


def test_negative_weights_are_named_where_they_leave_no_numbers():
    edges = both_ways([(0, 1), (1, 2)])
    weight = torch.tensor([-3.0, 1.0, -3.0, 1.0], dtype=torch.float64)
    model, x = seeded(GCN, 5, 3, 8), features(3)
    for explain in (
        lambda: gp.explain_node(model, x, edges, 0, weight),
        lambda: gp.explain_edges(model, x, edges, weight),
    ):
        with pytest.raises(gp.InvalidInput, match="negative weights"):
            explain()


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


def test_a_result_brings_its_page_and_figure():
    gcn, x = seeded(gp.models.GCN, 5, 3), features(12)
    edges = both_ways([(0, 1), (1, 2), (2, 3), (0, 4), (4, 5)])
    gcn.classes = ("art", "biology", "chemistry")
    a = gp.explain_node(gcn, x, edges, 0, k=3)
    about = a.about
    assert about.label in gcn.classes
    assert [about.nodes[0].id, about.nodes[0].name] == [0, "0"]
    assert len(about.kept_probabilities) == len(about.edges) == 3
    measured = [about.alone, *about.kept_probabilities]
    assert [float(value.exp()) for value in a.values] == pytest.approx(measured, abs=1e-4)
    page = gp.report.html(a)
    assert f"Why “{about.label}” for node 0?" in page
    assert "? – ?" not in page  # No class of a node is known.


def test_several_nodes_and_own_objectives_have_no_node_s_page():
    gcn, x, edges = seeded(gp.models.GCN, 5, 3), features(12), both_ways([(0, 1), (1, 2), (2, 3)])
    several = gp.explain_node(gcn, x, edges, [0, 3], k=2)
    own = gp.explain_node(gcn, x, edges, 0, k=2, objective=lambda logits: logits[:, 0].mean())
    assert [several.about.kind, own.about.kind] == ["graph", "graph"]
    assert "of 6 edges" in gp.report.html(own) or "of 3 edges" in gp.report.html(own)
