"""PyG's own models: the recognised ones are fast and equal, all others go through autograd."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import greedypig as gp
from agreement import agree
from greedypig.graphs.edge_model import EdgeModel, frozen_model
from greedypig.graphs.edges import read_graph
from greedypig.graphs.objectives import NodeTarget
from made_graphs import features, random_graph, seeded

pyg = pytest.importorskip("torch_geometric", reason="needs the extra pyg")
from torch_geometric.nn import (  # noqa: E402
    GATConv,
    GCNConv,
    GraphConv,
    SAGEConv,
    Sequential,
)
from torch_geometric.nn.models import GCN as PyGGCN  # noqa: E402


class Stack(nn.Module):
    """Convolutions with what is usual between them."""

    def __init__(self, widths=(5, 8, 3), *, norm=False, end=False, **options):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(a, b, **options) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(w) if norm else nn.Identity() for w in widths[1:-1]
        )
        self.dropout, self.end = nn.Dropout(0.5), end

    def forward(self, x, edge_index, edge_weight=None):
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = self.dropout(norm(conv(x, edge_index, edge_weight)).relu())
        x = self.convs[-1](x, edge_index, edge_weight)
        return x.log_softmax(1) if self.end else x


def with_statistics(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm1d):
            torch.nn.init.uniform_(m.running_mean, -1, 1)
            torch.nn.init.uniform_(m.running_var, 0.5, 2)
            torch.nn.init.uniform_(m.weight, 0.5, 2)
    return model


def sequence():
    return Sequential(
        "x, edge_index, edge_weight",
        [
            (GCNConv(5, 8), "x, edge_index, edge_weight -> x"),
            nn.ReLU(inplace=True),
            (GCNConv(8, 3), "x, edge_index, edge_weight -> x"),
        ],
    )


FAST = {
    "stack": lambda: Stack(),
    "wide": lambda: Stack((5, 3, 8, 4)),
    "log-softmax": lambda: Stack(end=True),
    "no bias": lambda: Stack(bias=False),
    "cached": lambda: Stack(cached=True),
    "sequential": sequence,
    "basic GNN": lambda: PyGGCN(5, 8, 3, 3),
    "one layer": lambda: GCNConv(5, 3),
}


def made(make):
    return seeded(lambda: make())


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("symmetric", [True, False])
def test_stacks_of_gcn_are_recognised_and_equal_autograd(name, symmetric):
    model, x = made(FAST[name]), features()
    edges, weight = random_graph(symmetric=symmetric)
    method = gp.GreedyPIG(rounds=5, steps=2)
    a = gp.explain_edges(model, x, edges, weight, method=method)
    assert a.settings["fast"]
    agree(a, by_autograd(model, x, edges, weight, method), 1e-9)


def test_a_callable_objective_gets_the_model_s_own_output():
    model, x, (edges, weight) = made(FAST["log-softmax"]), features(), random_graph()
    a = gp.explain_edges(model, x, edges, weight, objective=lambda z: z[:, 0].mean(), method="ig")
    assert not a.settings["fast"]
    assert a.full_value == pytest.approx(float(model(x, edges, weight)[:, 0].mean()), rel=1e-12)


def by_autograd(model, x, edges, weight, method, normalisation="recomputed"):
    graph = read_graph(x, edges, weight)
    edge_model = EdgeModel(frozen_model(model), x, graph, normalisation)
    edge_model.stack = None
    target = NodeTarget("log-probability", edge_model.logits())
    objective = edge_model.objective(target)
    return gp.maximize(objective, method, features=graph.features())


@pytest.mark.parametrize("normalisation", ["recomputed", "kept"])
@pytest.mark.parametrize("loops", [True, False])
def test_loops_and_duplicates_mean_what_pyg_means_by_them(normalisation, loops):
    edges, weight = random_graph()
    own = torch.tensor([[4, 9], [4, 9]])[:, : 2 * loops]
    edges = torch.cat([edges, own, edges[:, :3], edges[:, :3].flip(0)], 1)
    weight = torch.cat([weight, torch.tensor([2.0, 0.5])[: 2 * loops], weight[:3], weight[:3]])
    model, x = made(FAST["stack"]), features()
    method = gp.GreedyPIG(rounds=5)
    a = gp.explain_edges(model, x, edges, weight, method=method, normalisation=normalisation)
    assert a.settings["fast"] == (not loops)
    agree(a, by_autograd(model, x, edges, weight, method, normalisation), 1e-9)


class Skip(Stack):
    def forward(self, x, edge_index, edge_weight=None):
        return super().forward(x, edge_index, edge_weight) + 0.1 * x[:, :3]


class Squared(Stack):
    def forward(self, x, edge_index, edge_weight=None):
        return super().forward(x, edge_index, edge_weight**2)


class Late(nn.Module):
    """Looks like a stack until few edges are left."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(5, 3)

    def forward(self, x, edge_index, edge_weight=None):
        out = self.conv(x, edge_index, edge_weight)
        return out if bool((edge_weight >= 0.5).all()) else out * (1 + edge_weight.mean())


OTHERS = {
    "batch norm": lambda: with_statistics(Stack(norm=True)),
    "basic GNN with norm": lambda: with_statistics(PyGGCN(5, 8, 2, 3, norm="batch_norm")),
    "improved": lambda: Stack(improved=True),
    "skip": Skip,
    "squared weights": Squared,
    "late": Late,
    "elu between": lambda: PyGGCN(5, 8, 2, 3, act="elu"),
    "jumping knowledge": lambda: PyGGCN(5, 8, 2, 3, jk="cat"),
    "no loops": lambda: Stack(add_self_loops=False, normalize=False),
    "mean": lambda: Stack(aggr="mean"),
    "graph conv": lambda: Sequential(
        "x, edge_index, edge_weight", [(GraphConv(5, 3), "x, edge_index, edge_weight -> x")]
    ),
    "attention": lambda: Attention(),
}


class Attention(nn.Module):
    """Attention with the weight as a feature of the edge."""

    def __init__(self):
        super().__init__()
        self.conv = GATConv(5, 3, edge_dim=1)

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight[:, None])


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_such_stack_goes_through_autograd(name):
    model, x = made(OTHERS[name]), features()
    edges, weight = random_graph()
    a = gp.explain_edges(
        model, x, edges, weight, method=gp.GreedyPIG(rounds=4, steps=2), normalisation="recomputed"
    )
    assert not a.settings["fast"]
    with torch.no_grad():
        full = model(x, edges, weight)
        value = full.log_softmax(1).max(1).values.mean()
    assert a.full_value == pytest.approx(float(value), rel=1e-12)
    assert bool((a.feature_scores != 0).all())


def test_to_attention_over_edge_features_weight_0_is_a_feature_and_not_a_missing_edge():
    """Of masked messages nothing is heard; the attention they had goes to no other edge."""
    model, x = made(Attention), features()
    edges, weight = random_graph()

    def without_edges(normalisation):
        a = gp.explain_edges(
            model,
            x,
            edges,
            weight,
            objective=lambda z: z.square().mean(),
            method="gradient",
            normalisation=normalisation,
        )
        return float(a.values[0])

    with torch.no_grad():
        zero, none = model(x, edges, 0 * weight), model(x, edges[:, :0], weight[:0])
        full = model.conv(x, edges, weight[:, None], return_attention_weights=True)[1]
        own = full[1][edges.shape[1] :]  # Every node's share for its own loop.
        loops = own * model.conv.lin(x) + model.conv.bias
    assert without_edges("recomputed") == pytest.approx(float(zero.square().mean()))
    assert without_edges("kept") == pytest.approx(float(loops.square().mean()))
    assert not torch.allclose(zero, none)


def test_layers_that_ignore_weights_are_named_and_their_messages_can_be_masked():
    class Sage(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(5, 3, aggr="add")

        def forward(self, x, edge_index, edge_weight=None):
            return self.conv(x, edge_index)

    model, x = seeded(Sage), features()
    edges, _ = random_graph()
    with (
        pytest.warns(UserWarning, match="normalisation='kept'"),
        pytest.raises(gp.NotDifferentiable),
    ):
        gp.explain_edges(model, x, edges, normalisation="recomputed")
    a = gp.explain_edges(model, x, edges, normalisation="kept", method=gp.GreedyPIG(rounds=3))
    stay = a.mask(a.picks[0])
    expected = model(x, edges[:, stay]).detach().log_softmax(1)
    classes = model(x, edges).argmax(1, keepdim=True)
    value = expected.gather(1, classes).mean()  # A sum of messages: masked is cut.
    assert float(a.values[1]) == pytest.approx(float(value), rel=1e-10)


def test_the_model_is_left_without_masks_hooks_and_caches():
    model, x = made(FAST["cached"]), features()
    edges, weight = random_graph()
    for how in ("kept", "recomputed"):
        gp.explain_edges(model, x, edges, weight, method="ig", normalisation=how)
        gp.explain_edges(
            model,
            x,
            edges,
            weight,
            method="ig",
            normalisation=how,
            objective=lambda logits: logits[:, 0].mean(),
        )
    for conv in model.convs:
        assert conv.cached
        assert conv._cached_edge_index is None
        assert conv._edge_mask is None
        assert not conv._forward_hooks


def test_float32_is_recognised_on_a_larger_graph_by_a_part_of_it():
    edges, weight = random_graph(1500, 6000)
    model, x = made(FAST["stack"]).float(), features(1500).float()
    a = gp.explain_edges(model, x, edges, weight, method="gradient")
    assert a.settings["fast"]
    slow = by_autograd(model, x, edges, weight, "gradient")
    off = (a.feature_scores - slow.feature_scores).norm() / slow.feature_scores.norm()
    assert float(off) < 3e-4
