"""Generated graphs have the asked size, communities, and the same content for a seed."""

import pytest
import torch

import greedypig as gp
from greedypig.graphs import generate


def test_sizes_are_as_asked_and_it_says_that_it_is_generated():
    graph = generate(500, 2000, 16, 4, seed=2)
    assert (graph.nodes, graph.m, graph.x.shape[1], graph.class_count) == (500, 2000, 16, 4)
    assert "generated" in graph.notes[0]
    assert graph.name.startswith("generated")
    assert bool((graph.edges[0] < graph.edges[1]).all())
    keys = graph.edges[0] * 500 + graph.edges[1]
    assert len(keys.unique()) == 2000


def test_a_seed_is_a_graph_and_global_state_is_left_alone():
    before = torch.get_rng_state()
    one, again, other = (generate(200, 600, 4, 3, seed=s) for s in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.edges, again.edges)
    assert torch.equal(one.x, again.x)
    assert not torch.equal(one.edges, other.edges)


@pytest.mark.parametrize("homophily", [0.0, 0.5, 0.9])
def test_homophily_is_the_share_of_edges_within_classes(homophily):
    graph = generate(4000, 20_000, 2, 5, homophily=homophily, exponent=50.0)
    within = float((graph.y[graph.edges[0]] == graph.y[graph.edges[1]]).double().mean())
    expected = homophily + (1 - homophily) / 5  # The others fall within by chance.
    assert abs(within - expected) < 0.02


def test_a_power_law_has_hubs_and_a_steep_one_has_none():
    plain = generate(3000, 15_000, 2, 3, exponent=50.0).degrees
    hubs = generate(3000, 15_000, 2, 3, exponent=2.2).degrees
    assert float(plain.max()) < 40 < 100 < float(hubs.max())


def test_features_lie_around_their_class_s_centre():
    graph = generate(6000, 6000, 8, 2, signal=3.0)
    means = torch.stack([graph.x[graph.y == c].mean(0) for c in range(2)])
    assert torch.allclose(means.norm(dim=1), torch.tensor([3.0, 3.0]), atol=0.15)


def test_labels_per_class():
    graph = generate(400, 900, 3, 4, labels_per_class=7)
    assert torch.bincount(graph.y[graph.train]).tolist() == [7] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 3},
        {"edges": 0},
        {"classes": 1},
        {"edges": 10**6},
        {"homophily": 1.5},
        {"exponent": 1.5},
        {"nodes": 10.5},
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(gp.InvalidInput, match="Expected"):
        generate(**{"nodes": 100, "edges": 300, **wrong})
