"""The fast gradient against autograd and against differences."""

import pytest
import torch
from torch import nn

from greedypig.graphs import propagation
from greedypig.graphs.edge_model import EdgeModel, frozen_model
from greedypig.graphs.edges import read_graph
from greedypig.graphs.gcn_stack import GCNStack
from greedypig.graphs.objectives import OBJECTIVES, NodeTarget
from greedypig.graphs.propagation import Layer
from greedypig.models import GCN
from made_graphs import adjacency_of, dense_logits, features, random_graph, seeded


def both(model, x, edges, weight, *, objective="log-probability", nodes=None, labels=None, **how):
    """The graph, the objective by autograd and the fast one."""
    graph = read_graph(x, edges, weight, **how)
    edge_model = EdgeModel(frozen_model(model), x, graph, "recomputed")
    target = NodeTarget(objective, model(x, edges, weight).detach(), labels, nodes)
    assert edge_model.is_fast(target)
    return graph, edge_model.plain_objective(target), edge_model.objective(target)


def at(objective, masks):
    """(m,) values and (m, columns) gradients at masks (m, columns)."""
    values, gradients = objective.values_and_gradients(masks.unsqueeze(0))
    return values[0], gradients[0]


def masks_of(graph, rows=2, seed=0):
    """Random masks that are constant on units."""
    units = int(graph.units.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, units, generator=generator, dtype=torch.float64)[:, graph.units]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("messy", [True, False])
@pytest.mark.parametrize("widths", [(5, 8, 3), (8, 5, 9), (4, 4, 4)])
def test_values_and_gradients_are_those_of_autograd(symmetric, messy, widths):
    edges, weight = random_graph(symmetric=symmetric, messy=messy)
    into, hidden, classes = widths
    model = seeded(GCN, into, classes, hidden)
    graph, slow, fast = both(model, features(width=into), edges, weight)
    assert graph.undirected == symmetric
    masks = masks_of(graph)
    (v1, g1), (v2, g2) = at(slow, masks), at(fast, masks)
    units = graph.features()
    assert torch.allclose(v1, v2, rtol=1e-12)
    assert torch.allclose(fast.values(masks[None])[0], v1, rtol=1e-12)
    for a, b in zip(g1, g2, strict=True):
        assert torch.allclose(units.sum(a[None]), units.sum(b[None]), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("nodes", [None, [3, 7]])
@pytest.mark.parametrize("classes", [3, 1])
def test_every_objective_has_its_slope(objective, nodes, classes):
    edges, weight = random_graph()
    labels = torch.arange(30) % 2 if objective == "label-loss" else None
    graph, slow, fast = both(
        seeded(GCN, 5, classes, 8), features(), edges, weight, objective=objective, nodes=nodes,
        labels=labels,
    )  # fmt: skip
    masks = masks_of(graph, 1)
    (v1, g1), (v2, g2) = at(slow, masks), at(fast, masks)
    units = graph.features()
    assert torch.allclose(v1, v2, rtol=1e-12)
    assert torch.allclose(units.sum(g1), units.sum(g2), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_any_number_of_layers(layers):
    edges, weight = random_graph()
    model = seeded(GCN, 5, 3, 6, layers=layers)
    graph, slow, fast = both(model, features(), edges, weight)
    masks = masks_of(graph)
    one, other = at(slow, masks)[1], at(fast, masks)[1]
    units = graph.features()
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(units.sum(a[None]), units.sum(b[None]), rtol=1e-9, atol=1e-14)


def test_gradient_agrees_with_differences():
    edges, weight = random_graph()
    graph, _, fast = both(seeded(GCN, 5, 3, 8), features(), edges, weight)
    mask, step = masks_of(graph, 1), 1e-6
    slope = graph.features().sum(at(fast, mask)[1])[0]
    for unit in (0, 5, 11):
        move = step * (graph.units == unit)
        ends = fast.values(torch.cat([mask + move, mask - move])[None])[0]
        assert float((ends[0] - ends[1]) / (2 * step)) == pytest.approx(
            float(slope[unit]), rel=1e-5
        )


def test_kept_normalisation_masks_messages_alone():
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    graph = read_graph(x, edges, weight)
    target = NodeTarget("log-probability", model(x, edges, weight).detach())
    fast = EdgeModel(frozen_model(model), x, graph, "kept").objective(target)
    mask = masks_of(graph, 1)
    full = adjacency_of(edges, weight, 30) + torch.eye(30, dtype=torch.float64)
    scale = full.sum(1).rsqrt()
    leaf = mask[0].clone().requires_grad_()
    masked = adjacency_of(edges, weight * leaf, 30) + torch.eye(30, dtype=torch.float64)
    matrix = scale[:, None] * masked * scale
    h = x
    for i, (w, b) in enumerate(model.gcn_layers()):
        h = matrix @ h @ w + b
        h = h if i == 2 else h.relu()
    value = target.value(h)
    (slope,) = torch.autograd.grad(value, leaf)
    found = at(fast, mask)
    units = graph.features()
    assert torch.allclose(found[0][0], value, rtol=1e-12)
    assert torch.allclose(units.sum(found[1]), units.sum(slope[None]), rtol=1e-9, atol=1e-14)


def test_blocks_of_rows_change_nothing(monkeypatch):
    edges, weight = random_graph()
    model, x = seeded(GCN, 5, 3, 8), features()
    graph, _, fast = both(model, x, edges, weight)
    masks = masks_of(graph)
    whole = at(fast, masks)
    monkeypatch.setattr(propagation, "BLOCK", 16)
    _, _, fast = both(model, x, edges, weight)
    parts = at(fast, masks)
    assert torch.allclose(whole[0], parts[0], rtol=1e-13)
    assert torch.allclose(whole[1], parts[1], rtol=1e-10, atol=1e-16)


def test_a_second_gradient_is_the_first_to_the_bit():
    edges, weight = random_graph()
    graph, _, fast = both(seeded(GCN, 5, 3, 8), features(), edges, weight)
    masks = masks_of(graph)
    first = at(fast, masks)
    at(fast, 1 - masks)
    again = at(fast, masks)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


def test_isolated_nodes_and_an_empty_mask_are_finite():
    edges, weight = random_graph(nodes=20)
    x = features(30)  # Ten nodes have no edge at all.
    model = seeded(GCN, 5, 3, 8)
    graph, _, fast = both(model, x, edges, weight)
    stack = EdgeModel(frozen_model(model), x, graph, "recomputed").stack
    nothing = torch.zeros(1, graph.columns, dtype=torch.float64)
    values, gradients = at(fast, nothing)
    alone = dense_logits(model.gcn_layers(), x, torch.zeros(30, 30, dtype=torch.float64))
    assert torch.allclose(stack.logits(nothing[0]), alone, rtol=1e-12)
    assert bool(torch.isfinite(values).all())
    assert bool(torch.isfinite(gradients).all())


def test_no_bias_and_no_relu_are_layers_too():
    x, (edges, weight) = features(), random_graph()
    graph = read_graph(x, edges, weight)
    weights = [seeded(nn.Linear, a, b).weight.detach().T.contiguous() for a, b in ((5, 4), (4, 3))]
    stack = GCNStack([Layer(w, None, False) for w in weights], x, graph, "recomputed")
    target = NodeTarget("softmax", x[:, :3])
    mask = masks_of(graph, 1)
    masked = mask[0].clone().requires_grad_()
    ours = target.value(stack.logits(masked))
    (gradient,) = torch.autograd.grad(ours, masked)
    leaf = mask[0].clone().requires_grad_()
    looped = adjacency_of(edges, weight * leaf, 30) + torch.eye(30, dtype=torch.float64)
    scale = looped.sum(1).rsqrt()
    matrix = scale[:, None] * looped * scale
    value = target.value(matrix @ (matrix @ x @ weights[0]) @ weights[1])
    (slope,) = torch.autograd.grad(value, leaf)
    units = graph.features()
    assert torch.allclose(ours, value, rtol=1e-12)
    assert torch.allclose(units.sum(gradient[None]), units.sum(slope[None]), rtol=1e-9, atol=1e-14)
