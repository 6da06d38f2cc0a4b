"""greedypig.models.GCN and its fast edge gradient, against the dense formula and autograd."""

import pytest
import torch

import greedypig as gp
from greedypig.graphs import propagation
from greedypig.graphs.edge_model import EdgeModel, frozen_model
from greedypig.graphs.edges import read_graph
from greedypig.graphs.objectives import NAMES, NodeTarget
from greedypig.graphs.propagation import Adjacency
from greedypig.models import GCN
from made_graphs import (
    Undeclared,
    adjacency_of,
    both_ways,
    dense_logits,
    features,
    random_graph,
    seeded,
)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("messy", [True, False])
@pytest.mark.parametrize("widths", [(5, 8, 3), (8, 5, 9)])  # It widens, or narrows.
def test_logits_and_all_gradients_are_those_of_the_dense_formula(symmetric, messy, widths):
    edges, weight = random_graph(symmetric=symmetric, messy=messy)
    into, hidden, classes = widths
    model, x = seeded(GCN, into, classes, hidden), features(width=into)
    leaves = [weight.clone().requires_grad_(), x.clone().requires_grad_(), *model.parameters()]
    ours = model(leaves[1], edges, leaves[0])
    dense = dense_logits(model.gcn_layers(), leaves[1], adjacency_of(edges, leaves[0], 30))
    assert torch.allclose(ours, dense, rtol=1e-12)
    gradients = (torch.autograd.grad(out.square().sum(), leaves) for out in (ours, dense))
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-9)


def test_two_nodes_by_hand():
    # Â of one edge is ½ everywhere; one layer, identity matrix.
    model = GCN(2, 2, layers=1).double().eval()
    with torch.no_grad():
        model.weights[0].copy_(torch.eye(2))
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    logits = model(x, both_ways([(0, 1)]))
    assert torch.allclose(logits, torch.tensor([[1.0, 2.0], [1.0, 2.0]]).double(), atol=1e-15)
    alone = model(x, both_ways([(0, 1)]), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(alone, x)  # Without the edge every node hears itself alone.
    nothing = torch.empty(2, 0, dtype=torch.long)
    assert torch.equal(model(x, nothing), x)


def test_masked_messages_leave_the_degrees():
    edges, weight = random_graph(messy=True)
    mask = torch.rand(edges.shape[1], dtype=torch.float64)
    eye = torch.eye(30, dtype=torch.float64)
    scale = (adjacency_of(edges, weight, 30) + eye).sum(1).rsqrt()
    expected = scale[:, None] * (adjacency_of(edges, weight * mask, 30) + eye) * scale
    assert torch.allclose(
        Adjacency(edges, 30).normalised(weight, mask).convolve(eye, None, None, relu=False),
        expected,
    )


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


def test_wrong_shapes_are_named():
    model, x = seeded(GCN, 5, 3), features()
    with pytest.raises(gp.InvalidInput, match=r"edge_index of shape \(2, edges\) \(got \(4, 2\)"):
        model(x, torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(gp.InvalidInput, match=r"one edge weight per column.*\(3,\)"):
        model(x, torch.zeros(2, 4, dtype=torch.long), torch.ones(3))
    with pytest.raises(gp.InvalidInput, match="hidden"):
        GCN(5, 3, hidden=0)


def both(model, x, edges, weight, *, normalisation="recomputed", **asked):
    """The graph, the objective by autograd and the fast one."""
    graph = read_graph(x, edges, weight)
    target = NodeTarget(
        asked.pop("objective", "log-probability"), model(x, edges, weight).detach(), **asked
    )
    plain, fast = (
        EdgeModel(frozen_model(m), x, graph, normalisation) for m in (Undeclared(model), model)
    )
    assert plain.stack is None
    assert fast.stack is not None
    return graph, plain.objective(target), fast.objective(target)


def masks_of(graph, rows=2):
    """(1, rows, columns) random masks that are constant on features."""
    count = int(graph.feature_ids.max()) + 1
    generator = torch.Generator().manual_seed(0)
    return torch.rand(1, rows, count, generator=generator, dtype=torch.float64)[
        ..., graph.feature_ids
    ]


def check_equal(graph, one, other):
    """Both objectives have the same values and gradients of features."""
    masks, features = masks_of(graph), graph.features()
    (v1, g1), (v2, g2) = (o.values_and_gradients(masks) for o in (one, other))
    assert torch.allclose(v1, v2, rtol=1e-12)
    assert torch.allclose(features.sum(g1[0]), features.sum(g2[0]), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("messy", [True, False])
@pytest.mark.parametrize("shape", [(5, 8, 3, 3), (8, 5, 9, 2), (4, 4, 4, 1), (5, 6, 3, 4)])
def test_the_fast_gradient_is_that_of_autograd(symmetric, messy, shape):
    into, hidden, classes, layers = shape
    edges, weight = random_graph(symmetric=symmetric, messy=messy)
    model = seeded(GCN, into, classes, hidden, layers=layers)
    check_equal(*both(model, features(width=into), edges, weight))


@pytest.mark.parametrize("objective", NAMES)
@pytest.mark.parametrize("nodes", [None, [3, 7]])
@pytest.mark.parametrize("classes", [3, 1])
@pytest.mark.parametrize("normalisation", ["recomputed", "kept"])
def test_every_objective_has_its_gradient(objective, nodes, classes, normalisation):
    edges, weight = random_graph()
    labels = torch.arange(30) % 2 if objective == "label-loss" else None
    asked = {"objective": objective, "nodes": nodes, "labels": labels}
    model = seeded(GCN, 5, classes, 8)
    check_equal(*both(model, features(), edges, weight, normalisation=normalisation, **asked))


def test_gradient_agrees_with_differences():
    edges, weight = random_graph()
    graph, _, fast = both(seeded(GCN, 5, 3, 8), features(), edges, weight)
    mask, step = masks_of(graph, 1), 1e-6
    slope = graph.features().sum(fast.gradient(mask, torch.ones(1)))[0]
    for feature in (0, 5, 11):
        move = step * (graph.feature_ids == feature)
        ends = fast.values(torch.cat([mask + move, mask - move], 1))[0]
        difference = float((ends[0] - ends[1]) / (2 * step))
        assert difference == pytest.approx(float(slope[feature]), rel=1e-5)


def test_blocks_of_rows_and_memory_that_is_used_again_change_nothing(monkeypatch):
    edges, weight = random_graph()
    graph, _, fast = both(seeded(GCN, 5, 3, 8), features(), edges, weight)
    masks = masks_of(graph)
    first = fast.values_and_gradients(masks)
    fast.values_and_gradients(1 - masks)
    for one, again in zip(first, fast.values_and_gradients(masks), strict=True):
        assert torch.equal(one, again)
    monkeypatch.setattr(propagation, "BLOCK", 16)
    for one, other in zip(first, fast.values_and_gradients(masks), strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-16)


def test_isolated_nodes_and_an_empty_mask_are_finite():
    edges, weight = random_graph(nodes=20)
    x = features(30)  # Ten nodes have no edge at all.
    model = seeded(GCN, 5, 3, 8)
    graph, _, fast = both(model, x, edges, weight)
    stack = EdgeModel(frozen_model(model), x, graph, "recomputed").stack
    nothing = torch.zeros(1, 1, graph.columns, dtype=torch.float64)
    alone = dense_logits(model.gcn_layers(), x, torch.zeros(30, 30, dtype=torch.float64))
    assert torch.allclose(stack.logits(nothing[0, 0]), alone, rtol=1e-12)
    values, gradients = fast.values_and_gradients(nothing)
    assert bool(torch.isfinite(values).all() and torch.isfinite(gradients).all())
