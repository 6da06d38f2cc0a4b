"""`within` cuts a method to a number of gradients, or stretches it to equal cost."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.methods import as_method
from greedypig.tensors.methods import within

METHODS = {
    "steady": gp.SteadyPIG(),
    "greedy": gp.GreedyPIG(),
    "more rounds": gp.GreedyPIG(rounds=60),
    "sequential": gp.SequentialGradient(),
    "paper": gp.GreedyPIG(rounds=100, steps=20, schedule="equal"),
    "ig": gp.IG(),
    "many steps": gp.IG(2000),
    "smooth": gp.SmoothIG(),
    "smooth with steps": gp.SmoothIG(gp.IG(80)),
    "blur": gp.BlurIG(),
    "guided": gp.GuidedIG(),
    "gradient": gp.Gradient(),
    "random": gp.Random(),
}
PHOTO = Elements(3 * 224 * 224)


def paid(method) -> tuple[int, int]:
    """(rounds, gradients a round), of a photo's values."""
    return len(method.picks(PHOTO)), method.round_scorer.cost


def price(method) -> int:
    rounds, steps = paid(method)
    return rounds * steps


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("budget", [1, 4, 9, 50, 100, 400, 5000])
def test_a_budget_is_never_exceeded_and_room_changes_nothing(name, budget):
    method = METHODS[name]
    cut = within(method, budget)
    assert price(cut) <= budget
    assert price(cut) <= price(method)
    if price(method) <= budget:
        assert paid(cut) == paid(method)
    assert price(cut) >= 0.5 * min(budget, price(method))
    assert type(cut) is type(method)


def test_steps_are_kept_as_long_as_there_are_as_many_rounds():
    assert paid(within(gp.SteadyPIG(), 50)) == (16, 3)
    assert paid(within(gp.SteadyPIG(), 10)) == (3, 3)
    assert paid(within(gp.SteadyPIG(), 5)) == (2, 2)  # Not one round of 3.
    assert paid(within(gp.SteadyPIG(), 1)) == (1, 1)
    assert paid(within(gp.SequentialGradient(), 50)) == (50, 1)
    assert paid(within(gp.IG(2000), 50)) == (1, 50)
    smooth = within(gp.SmoothIG(gp.IG(80)), 50)
    assert (smooth.samples, smooth.scorer.steps) == (25, 2)
    smooth = within(gp.SmoothIG(), 10)
    assert (smooth.samples, smooth.scorer.steps) == (10, 1)


def test_many_steps_are_cut_in_proportion_to_rounds():
    assert paid(within(METHODS["paper"], 500)) == (50, 10)
    assert paid(within(METHODS["paper"], 200)) == (33, 6)
    assert paid(within(METHODS["paper"], 50)) == (10, 5)


def test_methods_are_stretched_to_equal_cost():
    assert paid(within(gp.SteadyPIG(), 400, stretch=True)) == (133, 3)
    assert paid(within(gp.SequentialGradient(), 400, stretch=True)) == (400, 1)
    assert paid(within(gp.IG(), 400, stretch=True)) == (1, 400)
    assert price(within(gp.SmoothIG(), 5000, stretch=True)) == 5000
    for name in ("random", "gradient"):
        assert within(METHODS[name], 10_000, stretch=True) == METHODS[name]


@pytest.mark.parametrize("budget", [2, 5, 50, 400])
@pytest.mark.parametrize("name", ["greedy-pig", "steady-pig", "sequential-gradient", "ig"])
def test_a_cut_method_pays_no_more(budget, name):
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 3))
    x = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    method = within(as_method(name), budget, stretch=True)
    a = gp.explain(model, x, method=method)
    assert a.method == name
    assert 0.6 * budget <= a.gradients_used <= budget
