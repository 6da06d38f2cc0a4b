"""gp.explain_edges: features, readings, objectives, methods, and what can go wrong."""

import pytest
import torch
from torch import nn

import greedypig as gp
from agreement import agree
from greedypig.core import carry_out
from greedypig.core.errors import OtherQuestion
from greedypig.graphs.edges import read_graph
from greedypig.models import GCN
from made_graphs import Undeclared, both_ways, features, random_graph, real, seeded


class Plain(nn.Module):
    """A plain torch model: each node's own features and the weighted sum of those it hears."""

    def __init__(self, weights=(1.0, 1.0)):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(weights, dtype=torch.float64))

    def forward(self, x, edge_index, edge_weight=None):
        source, target = edge_index
        return (x * self.scale).index_add(0, target, x[source] * edge_weight[:, None])


def linear_value(logits):
    return logits[:, 0].sum()


def test_a_linear_model_ranks_edges_by_what_they_carry():
    # G(S) = Σ_i x_i + Σ_{j→i in S} w · x_j: the score of an edge is w · x_j, exactly.
    x = torch.tensor([[5.0], [1.0], [3.0], [2.0]]).double()
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    weight = torch.tensor([1.0, 9.0, 2.0, 1.0])
    model = Plain((1.0,))
    a = gp.explain_edges(model, x, edges, weight, objective=linear_value)
    assert a.order.tolist() == [1, 2, 0, 3]
    assert a.feature_scores.tolist() == pytest.approx([5, 9, 6, 2])
    assert a.values[0] == pytest.approx(11)
    assert a.full_value == pytest.approx(11 + 22)
    assert a.settings["undirected"] is False


def test_both_directions_of_a_pair_are_one_feature():
    x = torch.tensor([[5.0], [1.0], [3.0]]).double()
    edges = both_ways([(0, 1), (1, 2)])
    a = gp.explain_edges(Plain((1.0,)), x, edges, objective=linear_value)
    assert a.features.count == 2
    assert a.feature_scores.tolist() == pytest.approx([6, 4])  # The two directions' scores summed.
    assert a.mask(1).tolist() == [True, False, True, False]
    apart = gp.explain_edges(Plain((1.0,)), x, edges, objective=linear_value, undirected=False)
    assert apart.feature_scores.tolist() == pytest.approx([5, 1, 1, 3])


def test_a_reverse_that_is_missing_once_is_warned_of():
    x = torch.tensor([[5.0], [1.0], [3.0]]).double()
    edges = both_ways([(0, 1), (1, 2)])
    repeated = torch.cat([edges, edges[:, :1]], 1)
    with pytest.warns(UserWarning, match="undirected=True"):
        a = gp.explain_edges(Plain((1.0,)), x, repeated, objective=linear_value)
    assert a.features.count == 4
    a = gp.explain_edges(Plain((1.0,)), x, repeated, objective=linear_value, undirected=True)
    assert a.features.count == 2


def test_parallel_edges_are_one_feature_and_loops_are_always_there():
    x = features(3, 1)
    edges = torch.tensor([[0, 1, 0, 1, 2], [1, 0, 1, 0, 2]])
    a = gp.explain_edges(Plain((1.0,)), x, edges, objective=linear_value)
    assert a.features.ids.tolist() == [0, 0, 0, 0, 1]
    assert a.feature_scores.tolist() == pytest.approx([2 * float(x[0] + x[1]), 0])
    assert float(a.values[0]) == pytest.approx(float(x.sum() + x[2]))


def test_a_pair_with_unequal_weights_is_not_symmetric():
    edges = both_ways([(0, 1)])
    x = features(2, 1)
    a = gp.explain_edges(Plain((1.0,)), x, edges, torch.tensor([1.0, 2.0]), objective=linear_value)
    assert a.settings["undirected"] is False


def test_undirected_may_be_asked_of_a_graph_given_one_way():
    edges, weight = random_graph(symmetric=False)
    model, x = seeded(GCN, 5, 3, 8), features()
    fast = gp.explain_edges(model, x, edges, weight, undirected=True)
    slow = gp.explain_edges(Undeclared(model), x, edges, weight, undirected=True)
    assert fast.settings["fast"]
    agree(fast, slow, 1e-9)


@pytest.mark.parametrize("method", ["greedy-pig", "sequential-gradient", "ig", "gradient"])
def test_the_fast_way_and_autograd_agree(method):
    edges, weight = random_graph(messy=True)
    model, x = seeded(GCN, 5, 3, 8), features()
    fast = gp.explain_edges(model, x, edges, weight, method=method)
    slow = gp.explain_edges(Undeclared(model), x, edges, weight, method=method)
    assert fast.settings["fast"]
    assert not slow.settings["fast"]
    agree(fast, slow, 1e-9)
    assert fast.gradients_used == slow.gradients_used


def test_values_are_those_of_the_graph_with_the_edges_cut():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    a = gp.explain_edges(model, x, edges, weight, method=gp.GreedyPIG(rounds=5))
    classes = model(x, edges, weight).argmax(1, keepdim=True)
    for taken, value in zip(torch.tensor((0, *a.picks)).cumsum(0).tolist(), a.values, strict=True):
        stay = a.mask(taken)
        logits = model(x, edges[:, stay], weight[stay])
        expected = logits.detach().log_softmax(1).gather(1, classes).mean()
        assert float(value) == pytest.approx(float(expected), rel=1e-10)


def test_scores_sum_to_the_difference_of_values():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    a = gp.explain_edges(model, x, edges, weight, method=gp.IG(60, "gauss-legendre"))
    gain = a.full_value - float(a.values[0])
    assert a.totals[0] == pytest.approx(gain, rel=1e-3)  # Kinks of ReLU lie on the way.


def test_defaults_cost_at_most_a_hundred_gradients():
    edges, weight = random_graph(100, 300)
    model, x = seeded(GCN, 5, 3, 8), features(100)
    for method in (None, "greedy-pig", "sequential-gradient", "ig", "random", "degree"):
        assert gp.explain_edges(model, x, edges, weight, method=method).gradients_used <= 100
    a = gp.explain_edges(model, x, edges, weight)
    assert (a.gradients_used, len(a.picks)) == (99, 33)
    assert a.settings["rule"] == "gauss-radau"


def test_every_feature_is_ranked_once_and_the_best_first_rounds_are_small():
    edges, weight = random_graph(100, 300)
    a = gp.explain_edges(seeded(GCN, 5, 3, 8), features(100), edges, weight)
    assert sorted(a.order.tolist()) == list(range(a.features.count))
    assert a.picks[0] < a.picks[-1]
    assert a.mask(a.features.count).all()


def test_k_stops_after_k_features():
    edges, weight = random_graph()
    a = gp.explain_edges(seeded(GCN, 5, 3, 8), features(), edges, weight, k=7)
    assert a.selected == 7
    assert a.stop is gp.StopReason.K
    assert int(a.mask(7).sum()) == 14


@pytest.mark.parametrize("method", ["random", "degree"])
def test_samplers_follow_the_seed(method):
    edges, weight = random_graph(60, 200)
    model, x = seeded(GCN, 5, 3, 8), features(60)
    one, same, other = (
        gp.explain_edges(model, x, edges, weight, method=method, seed=s).order for s in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_degree_draws_by_one_over_the_root_of_both_degrees():
    # A star of 9 and a pair of its own: the pair has weight 1, each spoke 1/3.
    edges, x = both_ways([(0, i) for i in range(1, 10)] + [(10, 11)]), torch.ones(12, 2).double()
    ask = {"method": "degree", "objective": linear_value}
    first = [int(gp.explain_edges(Plain(), x, edges, **ask, seed=s).order[0]) for s in range(400)]
    share = sum(u == 9 for u in first) / len(first)
    assert share == pytest.approx(1 / (1 + 9 / 3), abs=0.07)  # Three standard errors.


def test_nodes_restrict_what_counts():
    edges = both_ways([(0, 1), (2, 3)])
    model, x = seeded(GCN, 5, 3, 8), features(4)
    a = gp.explain_edges(model, x, edges, nodes=[0])
    assert float(a.feature_scores[1]) == 0.0
    assert float(a.feature_scores[0]) != 0.0
    mask = torch.tensor([True, False, False, False])
    assert torch.equal(
        gp.explain_edges(model, x, edges, nodes=mask).feature_scores, a.feature_scores
    )


def test_label_loss_reads_labels():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    labels = torch.arange(30) % 3
    a = gp.explain_edges(model, x, edges, weight, objective="label-loss", labels=labels)
    loss = nn.functional.cross_entropy(model(x, edges, weight), labels)
    assert a.full_value == pytest.approx(-loss.item())
    with pytest.raises(gp.InvalidInput, match="Expected labels for objective='label-loss'"):
        gp.explain_edges(model, x, edges, weight, objective="label-loss")
    with pytest.raises(gp.InvalidInput, match="labels from 0 to 2"):
        gp.explain_edges(model, x, edges, objective="label-loss", labels=labels - 1)
    with pytest.raises(gp.InvalidInput, match="only with objective='label-loss'"):
        gp.explain_edges(model, x, edges, labels=labels)


def test_kept_and_recomputed_degrees_are_two_functions_with_the_same_ends():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    new = gp.explain_edges(model, x, edges, weight)
    kept = gp.explain_edges(model, x, edges, weight, normalisation="kept")
    assert new.full_value == pytest.approx(kept.full_value, rel=1e-10)
    assert not torch.allclose(new.values, kept.values)
    plain = gp.explain_edges(Undeclared(model), x, edges, weight, normalisation="kept")
    assert not plain.settings["fast"]
    assert kept.settings["fast"]
    agree(plain, kept, 1e-9)
    with pytest.raises(gp.InvalidInput, match="'recomputed', 'kept' or None"):
        gp.explain_edges(model, x, edges, normalisation="old")
    with pytest.raises(gp.InvalidInput, match="normalisation='kept'"):
        gp.explain_edges(Plain(), features(30, 2), edges, normalisation="kept")


def test_dropout_left_on_does_not_matter_and_the_model_is_left_alone():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    for asked in (model, Undeclared(model)):
        model.eval()
        calm = gp.explain_edges(asked, x, edges, weight)
        model.train()
        state = torch.get_rng_state()
        noisy = gp.explain_edges(asked, x, edges, weight)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(calm.order, noisy.order)
        assert model.training
        assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_sparse_features_give_the_dense_answer():
    edges, weight = random_graph()
    x = features() * (features(seed=5) > 0)
    model = seeded(GCN, 5, 3, 8)
    dense = gp.explain_edges(model, x, edges, weight)
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        found = gp.explain_edges(model, sparse, edges, weight)
        assert found.settings["fast"]
        agree(found, dense, 1e-9)


def test_a_model_that_ignores_weights_is_told_so():
    class Deaf(nn.Module):
        def forward(self, x, edge_index, edge_weight=None):
            return x.index_add(0, edge_index[1], x[edge_index[0]])

    edges, _ = random_graph()
    with (
        pytest.warns(UserWarning, match="weights are not used"),
        pytest.raises(gp.NotDifferentiable, match="ignores its input"),
    ):
        gp.explain_edges(Deaf(), features(), edges)


def test_a_model_without_a_gradient_is_told_so():
    class Rounding(Plain):
        def forward(self, x, edge_index, edge_weight=None):
            return super().forward(x, edge_index, (edge_weight > 0.5).double())

    edges, _ = random_graph()
    with pytest.raises(gp.NotDifferentiable, match="without a gradient"):
        gp.explain_edges(Rounding(), features(30, 2), edges)


def test_a_model_that_answers_one_class_alone_is_explained_all_the_same():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    with torch.no_grad():
        model.biases[-1][1] = 50.0
    a = gp.explain_edges(model, x, edges, weight)
    assert sorted(a.order.tolist()) == list(range(a.features.count))


@pytest.mark.slow
def test_pairs_are_told_apart_where_their_product_leaves_int32():
    nodes = 70_000  # 66,000 · 70,000 is more than 2³².
    edges = torch.tensor([[0, 66_000, 69_999, 1], [66_000, 0, 1, 69_999]], dtype=torch.int32)
    graph = read_graph(torch.zeros(nodes, 1), edges)
    assert graph.undirected
    assert graph.feature_ids.tolist() == [0, 0, 1, 1]
    model = seeded(GCN, 1, 2, 4).float()
    a = gp.explain_edges(model, torch.randn(nodes, 1), edges, nodes=[0, 1], method="ig")
    assert a.features.count == 2


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda a: a | {"edge_index": a["edge_index"].T}, gp.InvalidInput, r"\(2, edges\)"),
        (lambda a: a | {"edge_index": a["edge_index"] + 1}, gp.InvalidInput, "ids from 0 to 29"),
        (lambda a: a | {"edge_index": a["edge_index"] - 1}, gp.InvalidInput, r"got -1"),
        (lambda a: a | {"edge_index": a["edge_index"].double()}, gp.InvalidType, "whole node ids"),
        (
            lambda a: a | {"edge_index": a["edge_index"][:, :0], "edge_weight": None},
            gp.InvalidInput,
            "at least one edge",
        ),
        (lambda a: a | {"edge_weight": torch.ones(3)}, gp.InvalidInput, "one edge weight per"),
        (lambda a: a | {"edge_weight": a["edge_weight"] * torch.nan}, gp.InvalidInput, "finite"),
        (lambda a: a | {"x": None}, gp.InvalidType, "node features x"),
        (lambda a: a | {"nodes": [30]}, gp.InvalidInput, "id from 0 to 29"),
        (lambda a: a | {"nodes": []}, gp.InvalidInput, "at least one"),
        (lambda a: a | {"objective": "softmacs"}, gp.InvalidInput, "Did you mean 'softmax'"),
        (lambda a: a | {"model": 3}, gp.InvalidType, "can be called"),
        (lambda a: a | {"method": "greedy"}, gp.InvalidInput, "method"),
        (lambda a: a | {"stop": 100}, gp.InvalidType, "gp.Stop"),
    ],
)
def test_mistakes_are_named(change, error, words):
    edges, weight = random_graph()
    edges[0, 0] = 0
    edges[1, 0] = 29
    asked = {
        "model": seeded(GCN, 5, 3, 8),
        "x": features(),
        "edge_index": edges,
        "edge_weight": weight,
    }
    with pytest.raises(error, match=words):
        gp.explain_edges(**change(asked))


def test_a_run_goes_on_to_the_bit_and_only_with_its_own_graph(tmp_path):
    edges, weight = random_graph(60, 200)
    model, x, file = seeded(GCN, 5, 3, 8), features(60), tmp_path / "run.gpig"
    whole = gp.explain_edges(model, x, edges, weight)
    stop = gp.Stop(gradients=30)
    part = gp.explain_edges(model, x, edges, weight, stop=stop, checkpoint=file)
    assert part.stop is gp.StopReason.GRADIENTS
    for change, said in (
        ({"x": x + 1}, "input of the saved run"),
        ({"model": seeded(GCN, 5, 3, 8, seed=9)}, "model of the saved run"),
        ({"normalisation": "kept"}, "normalisation"),
    ):
        asked = {"model": model, "x": x, "edge_index": edges, "edge_weight": weight} | change
        with pytest.raises(OtherQuestion, match=said):
            gp.explain_edges(**asked, checkpoint=file)
    again = gp.explain_edges(model, x, edges, weight, checkpoint=file)
    for name in ("order", "feature_scores", "values", "last_scores"):
        assert torch.equal(getattr(again, name), getattr(whole, name))
    assert again.gradients_used == whole.gradients_used


def test_two_callable_objectives_are_told_apart_when_a_run_goes_on(tmp_path):
    edges, weight = random_graph(60, 200)
    model, x = seeded(GCN, 5, 3, 8), features(60)

    def lead(rival):
        return lambda logits: (logits[:, 0] - logits[:, rival]).mean()

    ask = {"method": gp.GreedyPIG(rounds=4, steps=2)}
    for explain, where in ((gp.explain_edges, ()), (gp.explain_node, (3,))):
        given, file = (model, x, edges, *where, weight), tmp_path / f"{explain.__name__}.gpig"
        explain(*given, objective=lead(1), stop=gp.Stop(gradients=4), checkpoint=file, **ask)
        for other in (lead(2), lambda logits: logits.mean()):
            with pytest.raises(OtherQuestion, match=r"objective of the saved run.*Try that"):
                explain(*given, objective=other, checkpoint=file, **ask)
        again = explain(*given, objective=lead(1), checkpoint=file, **ask)
        assert torch.equal(again.order, explain(*given, objective=lead(1), **ask).order)


def test_a_result_comes_back_from_its_file(tmp_path):
    edges, weight = random_graph()
    a = gp.explain_edges(seeded(GCN, 5, 3, 8), features(), edges, weight)
    a.save(tmp_path / "a.gpig")
    back = gp.load(tmp_path / "a.gpig")
    assert torch.equal(back.mask(9), a.mask(9))
    assert back.settings == a.settings
    assert set(back.provenance) >= {"model", "input", "torch", "greedypig"}


def test_a_checkpoint_has_the_rounds_done(tmp_path, monkeypatch):
    monkeypatch.setattr(carry_out, "BETWEEN", 0)
    edges, weight = random_graph()
    file, picks = tmp_path / "a.gpig", []
    whole = gp.explain_edges(
        seeded(GCN, 5, 3, 8),
        features(),
        edges,
        weight,
        method=gp.GreedyPIG(rounds=4),
        checkpoint=file,
        progress=lambda *_: picks.append(gp.load(file).picks if file.exists() else ()),
    )
    assert picks == [whole.picks[:i] for i in range(5)]


def test_cora_is_compressed_far_better_than_by_chance():
    x, edges, y, split = real("cora")
    x, train = x.to_sparse(), split["train"]
    model = GCN(x.shape[1], 7)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.reset_parameters()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x, edges)[train], y[train]).backward()
            optimiser.step()
    model.eval()
    full = model(x, edges).argmax(1)

    def agreements(method):
        a = gp.explain_edges(model, x, edges, method=method)
        kept = [edges[:, a.mask(round(share * a.features.count))] for share in (0.1, 0.4)]
        return [float((model(x, stay).argmax(1) == full).float().mean()) for stay in kept]

    greedy, once, chance = agreements(None), agreements("ig"), agreements("random")
    assert greedy[1] >= 0.985
    assert greedy[0] > once[0] > chance[0] + 0.05


def test_an_objective_that_no_edge_moves_is_said():
    x, (edges, _) = features(12, 4), random_graph(12, 20)
    with pytest.warns(UserWarning, match="no edge changes the objective"):
        gp.explain_edges(seeded(GCN, 4, 2), x, edges, torch.zeros(edges.shape[1]))


def test_loops_are_told():
    edges, model = both_ways([(0, 1), (1, 2), (2, 3)]), seeded(GCN, 3, 2, 8)
    edges = torch.cat([edges, torch.tensor([[3], [3]])], 1)
    with pytest.warns(UserWarning, match="1 edges lead from a node to itself"):
        gp.explain_edges(model, features(4, 3), edges, method="gradient")


def test_edge_columns_are_the_mask_in_order_of_selection(tmp_path):
    edges, weight = random_graph(30, 60)
    a = gp.explain_edges(seeded(GCN, 5, 3, 8), features(30), edges, weight, k=5)
    for k in (0, 3, 5, 20):
        columns = gp.edge_columns(a, k)
        assert torch.equal(columns.sort().values, torch.nonzero(a.mask(k)).squeeze(1))
        assert torch.equal(gp.edge_columns(a, 20)[: len(columns)], columns)
    assert torch.equal(gp.edge_columns(a), gp.edge_columns(a, 5))
    a.save(tmp_path / "a.gpig")
    assert torch.equal(gp.edge_columns(gp.load(tmp_path / "a.gpig")), gp.edge_columns(a))
    picture = gp.explain(lambda x: x.flatten(1)[:, :2], torch.rand(2, 2), method=gp.IG(2))
    with pytest.raises(gp.InvalidInput, match="explain_edges"):
        gp.edge_columns(picture)
