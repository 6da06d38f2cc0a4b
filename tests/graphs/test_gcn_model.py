"""greedypig.models.GCN against its formula, dense."""

import pytest
import torch

import greedypig as gp
from greedypig.models import GCN
from made_graphs import adjacency_of, both_ways, dense_logits, features, random_graph, seeded


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("messy", [True, False])
def test_logits_are_those_of_the_dense_formula(symmetric, messy):
    edges, weight = random_graph(symmetric=symmetric, messy=messy)
    model, x = seeded(GCN, 5, 3, 8), features()
    expected = dense_logits(model.gcn_layers(), x, adjacency_of(edges, weight, 30))
    assert torch.allclose(model(x, edges, weight), expected, rtol=1e-12)
    leaf = weight.clone().requires_grad_()  # Weights with a gradient take another way.
    assert torch.allclose(model(x, edges, leaf), expected, rtol=1e-12)


def test_gradients_of_parameters_are_the_same_with_and_without_those_of_edges():
    edges, weight = random_graph(symmetric=False)
    model, x = seeded(GCN, 5, 3, 8), features()
    parameters = list(model.parameters())
    one = torch.autograd.grad(model(x, edges, weight).square().sum(), parameters)
    leaf = weight.clone().requires_grad_()
    other = torch.autograd.grad(model(x, edges, leaf).square().sum(), parameters)
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, rtol=1e-10)


def test_two_nodes_by_hand():
    # Â of one edge is ½ everywhere; one layer, identity matrix.
    model = GCN(2, 2, layers=1).double().eval()
    with torch.no_grad():
        model.weights[0].copy_(torch.eye(2))
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    found = model(x, both_ways([(0, 1)]))
    assert torch.allclose(found, torch.tensor([[1.0, 2.0], [1.0, 2.0]]).double(), atol=1e-15)
    alone = model(x, both_ways([(0, 1)]), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(alone, x)  # Without the edge every node hears itself alone.


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features_give_the_dense_answer(layout):
    edges, weight = random_graph()
    x = features() * (features(seed=5) > 0)
    model = seeded(GCN, 5, 3, 8)
    sparse = x.to_sparse() if layout == torch.sparse_coo else x.to_sparse_csr()
    assert torch.allclose(model(sparse, edges, weight), model(x, edges, weight), rtol=1e-12)
    model.train()
    model(sparse, edges, weight).sum().backward()
    assert model.weights[0].grad is not None


def test_a_graph_without_edges_is_a_plain_network():
    model, x = seeded(GCN, 5, 3, 8), features()
    nothing = torch.empty(2, 0, dtype=torch.long)
    expected = dense_logits(model.gcn_layers(), x, torch.zeros(30, 30, dtype=torch.float64))
    assert torch.allclose(model(x, nothing), expected)


def test_a_graph_changed_in_place_is_seen():
    edges, _ = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    before = model(x, edges)
    edges[0, 0] = (edges[0, 0] + 1) % 30
    fresh = model(x, edges.clone())
    assert not torch.equal(before, fresh)
    assert torch.equal(model(x, edges), fresh)


def test_wrong_shapes_are_named():
    model, x = seeded(GCN, 5, 3), features()
    with pytest.raises(gp.InvalidInput, match=r"edge_index of shape \(2, edges\) \(got \(4, 2\)"):
        model(x, torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(gp.InvalidInput, match=r"one edge weight per column.*\(3,\)"):
        model(x, torch.zeros(2, 4, dtype=torch.long), torch.ones(3))
    with pytest.raises(gp.InvalidInput, match="hidden"):
        GCN(5, 3, hidden=0)
