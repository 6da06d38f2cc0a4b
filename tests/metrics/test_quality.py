"""Definition 4.1 where the best set is known, and its bounds where it is not."""

from itertools import combinations

import pytest
import torch

import greedypig as gp

M = gp.metrics
WEIGHTS = torch.tensor([3.0, 1.0, 4.0, 1.5, 2.0])


def modular(weights=WEIGHTS):
    return gp.objective(lambda masks: masks @ weights, len(weights))


def coverage():
    """Sets that cover points: monotone and submodular. Greedy takes the big set, the best two not.

    0 covers a b c d (4), 1 covers a b e (3), 2 covers c d f (3): {1, 2} covers six, {0, x} five.
    """
    covers = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]]).float()

    def g(masks):
        return 1 - torch.prod(1 - masks.unsqueeze(2) * covers, 1)

    return gp.objective(lambda masks: g(masks).sum(1), 3)


def wide(n=40, seed=0):
    """Coverage by many random sets, too many to try all."""
    covers = (torch.rand(n, 60, generator=torch.Generator().manual_seed(seed)) < 0.1).double()
    return gp.objective(
        lambda masks: (1 - torch.prod(1 - masks.unsqueeze(2) * covers, 1)).sum(1) + 1.0, n
    )


@pytest.mark.parametrize("k", range(1, 6))
def test_the_order_of_the_weights_is_best_at_every_k(k):
    order = WEIGHTS.sort(descending=True).indices
    quality = M.attribution_quality(modular(), order, k)
    assert quality.exact
    assert quality.quality == pytest.approx(1)
    assert quality.best_features == tuple(sorted(order[:k].tolist()))


def test_another_order_reaches_its_share_of_the_best():
    quality = M.attribution_quality(modular(), [1, 3, 4, 0, 2], 2)
    assert quality.value == pytest.approx(2.5)
    assert quality.best == pytest.approx(7.0)
    assert quality.quality == pytest.approx(2.5 / 7)
    assert str(quality) == "quality = 0.3571 at k = 2"


def test_greedy_misses_the_best_pair_by_a_sixth():
    objective = coverage()
    a = gp.maximize(objective, gp.MarginalGains(), k=2)
    assert a.order[0] == 0
    quality = M.attribution_quality(objective, a, 2)
    assert quality.best_features == (1, 2)
    assert quality.quality == pytest.approx(5 / 6)


def test_a_redundant_copy_costs_what_it_displaces():
    """Integrated gradients give both copies 1.5 and rank them before the feature worth 1."""
    objective = gp.objective(lambda m: 3 * m[:, :2].amax(1) + m[:, 2], 3)
    ig = M.attribution_quality(objective, gp.maximize(objective, "ig"), 2)
    greedy = M.attribution_quality(objective, gp.maximize(objective, gp.GreedyPIG(per_round=1)), 2)
    assert ig.quality == pytest.approx(3 / 4)
    assert greedy.quality == pytest.approx(1)


def test_features_are_what_is_counted():
    features = gp.Groups(torch.tensor([0, 0, 1, 1, 2]))  # worth 4, 5.5, 2
    a = gp.maximize(modular(), gp.GreedyPIG(per_round=1), features=features)
    assert M.attribution_quality(modular(), a, 1).value == pytest.approx(5.5)
    worst = gp.maximize(modular(), lambda objective, mask: -WEIGHTS, features=features)
    assert M.attribution_quality(modular(), worst, 1).quality == pytest.approx(2 / 5.5)


def test_absolute_ranking_takes_what_speaks_against():
    weights = torch.tensor([3.0, -5.0, 1.0])
    objective = gp.objective(lambda m: m @ weights + 6, 3)
    a = gp.maximize(objective, "ig")
    assert M.attribution_quality(objective, a, 1).quality == pytest.approx(1)
    assert M.attribution_quality(objective, a, 1, ranking="absolute").quality == pytest.approx(
        1 / 9
    )


def test_of_many_sets_greedy_gives_a_bound():
    """At k = 3 all sets can be tried too, and their best is no worse."""
    objective = wide()
    order = torch.arange(40)
    truth = M.attribution_quality(objective, order, 3)
    bounded = M.attribution_quality(objective, order, 3, most_subsets=100)
    assert truth.exact
    assert not bounded.exact
    assert bounded.best <= truth.best
    assert truth.quality <= bounded.quality
    assert str(bounded).startswith("quality ≤")
    modular_bound = M.attribution_quality(modular(torch.arange(1.0, 31.0)), torch.arange(30), 10)
    assert not modular_bound.exact
    assert modular_bound.quality == pytest.approx(55 / sum(range(21, 31)))


def test_a_ranking_better_than_greedy_is_the_best_known():
    """Two complements that are worth something together only: greedy never sees it."""

    def g(masks):
        return 10 * masks[:, 38] * masks[:, 39] + masks[:, :38].sum(1) * 0.1 + 1

    objective = gp.objective(g, 40)
    order = torch.tensor([38, 39, *range(38)])
    quality = M.attribution_quality(objective, order, 2, most_subsets=10)
    assert quality.best_features == (38, 39)
    assert quality.quality == 1


def test_best_is_the_maximum_over_all_sets():
    objective = wide(n=9, seed=4)
    masks = torch.zeros(84, 9, dtype=torch.float64)
    for row, chosen in zip(masks, combinations(range(9), 3), strict=True):
        row[list(chosen)] = 1
    quality = M.attribution_quality(objective, torch.arange(9), 3)
    assert quality.best == pytest.approx(float(objective.values(masks.unsqueeze(0)).max()))


def test_the_curve_holds_g_of_every_k_and_its_area_is_the_definition_s():
    order = WEIGHTS.sort(descending=True).indices
    curve = M.quality_curve(modular(), order)
    assert curve.values.tolist() == pytest.approx([0, 4, 7, 9, 10.5, 11.5])
    assert curve.fractions.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert curve.auc == pytest.approx((2 + 5.5 + 8 + 9.75 + 11) / 5)
    assert curve.full == pytest.approx(11.5)
    assert curve.name == "quality"
    assert curve.auc > M.quality_curve(modular(), order.flip(0)).auc


def test_objectives_below_zero_are_refused():
    objective = gp.objective(lambda m: m.sum(1) - 10, 3)
    with pytest.raises(gp.InvalidInput, match="positive values"):
        M.attribution_quality(objective, torch.arange(3), 2)


@pytest.mark.parametrize(
    ("a", "k", "says"),
    [
        ([0, 1, 2], 2, "permutation of the 5"),
        ([0, 1, 2, 3, 3], 2, "permutation of the 5"),
        (torch.rand(5), 2, "permutation of the 5"),
        ([0, 1, 2, 3, 4], 6, "k to be a whole number from 1 to 5"),
        ([0, 1, 2, 3, 4], 0, "k to be a whole number"),
    ],
)
def test_wrong_input_is_refused(a, k, says):
    with pytest.raises(gp.InvalidInput, match=says):
        M.attribution_quality(modular(), a, k)


def test_an_attribution_of_something_else_is_refused():
    with pytest.raises(gp.InvalidInput, match="of 5 values"):
        M.attribution_quality(modular(), gp.maximize(coverage(), gp.MarginalGains()), 1)
    with pytest.raises(gp.InvalidType, match="Attribution"):
        M.attribution_quality(modular(), "greedy", 1)


def test_values_that_are_not_finite_are_named():
    objective = gp.objective(lambda m: 1 / (m.sum(1) - 2), 4)
    with pytest.raises(gp.NonFinite, match="2 of 4 values"):
        M.quality_curve(objective, torch.arange(4))
