"""A set is enough where G has risen by 95 % of the way from G(∅) to G of everything."""

import math

import pytest
import torch

import greedypig as gp
from greedypig.core.enough import ENOUGH, bar, first_enough


@pytest.mark.parametrize(
    ("values", "full", "expected"),
    [
        ([0.0, 0.5, 0.95, 1.0], 1.0, 2),
        ([-2.0, -0.2, -0.1, 0.0], 0.0, 2),
        ([0.5, 0.9, 0.974, 0.975], 1.0, 3),  # It is the rise that counts, not the value.
        ([0.0, 0.96, 0.2, 1.0], 1.0, 1),  # The first time: that it was lost again is a `Fall`.
        ([0.0, math.nan, 0.96], 1.0, 2),
        ([0.0, 0.5, 0.6], 1.0, None),
        ([1.0, 0.5, 0.2], 0.0, None),  # G falls.
        ([1.0, 2.0, 1.0], 1.0, None),
        ([0.0, 1.0], math.nan, None),
    ],
)
def test_enough_is_the_first_set_with_most_of_the_rise(values, full, expected):
    assert first_enough(range(len(values)), values, full) == expected


def test_the_whole_rise_is_reached_by_everything_in_spite_of_rounding():
    for empty in torch.rand(100, dtype=torch.float64).tolist():
        full = empty + 0.1 * torch.rand(1).item() + 1e-9
        assert bar(empty, full, 1.0) == full


def test_no_number_of_features_is_enough_where_g_falls():
    weights = torch.tensor([3.0, -10.0, 1.0])
    falling = gp.maximize(gp.objective(lambda m: m @ weights, 3), gp.GreedyPIG(per_round=1))
    assert falling.reach() is None
    assert falling.reach(0.0) is None


def test_a_result_reaches_the_share_that_is_enough():
    weights = torch.tensor([90.0, 5.0, 5.0])
    a = gp.maximize(gp.objective(lambda m: m @ weights, 3), gp.GreedyPIG(per_round=1))
    assert (a.reach(), a.reach(ENOUGH), a.reach(0.9), a.reach(1.0)) == (2, 2, 1, 3)
