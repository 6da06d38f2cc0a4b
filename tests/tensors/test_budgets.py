"""One rule for every --budget: what is paid never exceeds it, and both commands cut alike."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.cli import compare_methods
from greedypig.tensors import methods
from greedypig.tensors.budgets import fewer_rounds, scaled, within
from reproduction.settings import Settings

SEARCHES = {
    "default": {"method": "greedy-pig"},
    "by name": {"method": "steady-pig"},
    "matching": {"method": "greedy-pig", "objective": "log-likelihood"},
    "blocks": {"method": "greedy-pig", "features": gp.grid(8)},
    "more rounds": {"method": "greedy-pig", "rounds": 60},
    "sequential": {"method": "sequential-gradient"},
    "rolling": {"method": "rolling-pig"},
    "paper": {"method": "greedy-pig", "rounds": 100, "steps": 20, "schedule": "equal"},
    "ig": {"method": "ig"},
    "ig with steps": {"method": "ig", "steps": 2000},
    "smooth": {"method": "smooth-ig"},
    "smooth with steps": {"method": "smooth-ig", "steps": 80},
    "blur": {"method": "blur-ig"},
    "guided": {"method": "guided-ig"},
    "gradient": {"method": "gradient"},
    "random": {"method": "random"},
}

PHOTO = torch.zeros(3, 224, 224)


def paid(search):
    """(rounds, gradients a round), of a photo's elements."""
    scorer, greedy = methods.resolve(search["method"], steps=search.get("steps"))
    if search["method"] == "greedy-pig" and not {"steps", "features"} & set(search):
        scorer = methods.default_scorer(search.get("objective", "softmax"), (3, 224, 224))
    usual = 1 if greedy is None else greedy.rounds or methods.default_rounds(scorer)
    return search.get("rounds", usual), scorer.cost()


def price(search):
    rounds, steps = paid(search)
    return rounds * steps


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("budget", [1, 4, 9, 50, 100, 400, 5000])
def test_a_budget_is_never_exceeded_and_room_changes_nothing(name, budget):
    search = SEARCHES[name]
    cut = within(search, budget)
    assert price(cut) <= budget
    assert price(cut) <= price(search)
    assert (cut == search) == (price(search) <= budget)
    assert price(cut) >= 0.5 * min(budget, price(search))


def test_defaults_keep_the_steps_of_a_round_and_named_settings_their_proportion():
    assert paid(within(SEARCHES["default"], 50)) == (16, 3)
    assert paid(within(SEARCHES["default"], 10)) == (3, 3)
    assert paid(within(SEARCHES["default"], 5)) == (2, 2)  # Not one round of 3.
    assert paid(within(SEARCHES["default"], 1)) == (1, 1)
    assert paid(within(SEARCHES["matching"], 50)) == (50, 1)
    assert paid(within(SEARCHES["blocks"], 50)) == (16, 3)
    assert paid(within(SEARCHES["sequential"], 50)) == (50, 1)
    assert paid(within(SEARCHES["paper"], 50)) == scaled(100, 20, 50) == (15, 3)
    assert paid(within(SEARCHES["ig with steps"], 50)) == (1, 50)
    smooth, _ = methods.resolve(within(SEARCHES["smooth with steps"], 50)["method"])
    assert (smooth.samples, smooth.scorer.steps) == (25, 2)
    smooth, _ = methods.resolve(within(SEARCHES["smooth"], 10)["method"])
    assert (smooth.samples, smooth.scorer.steps) == (10, 1)
    assert fewer_rounds(20, 5, 1000) == (20, 5)


def test_only_defaults_are_stretched():
    assert paid(within(SEARCHES["default"], 400, stretch=True)) == (133, 3)
    assert paid(within(SEARCHES["matching"], 400, stretch=True)) == (400, 1)
    assert paid(within(SEARCHES["ig"], 400, stretch=True)) == (1, 400)
    assert price(within(SEARCHES["smooth"], 5000, stretch=True)) == 5000
    for name in ("paper", "ig with steps", "smooth with steps", "random", "gradient"):
        assert within(SEARCHES[name], 10_000, stretch=True) == SEARCHES[name]


@pytest.mark.parametrize("budget", [2, 5, 50, 400])
@pytest.mark.parametrize("objective", ["softmax", "log-likelihood"])
@pytest.mark.parametrize("side", [32, 128])
def test_a_cut_keeps_the_scorer_of_the_default(budget, objective, side):
    """Greedy PIG on a picture is the same method, whatever it may cost."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 3))
    x = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0))
    search = {"method": "greedy-pig", "objective": objective}
    usual = gp.explain(model, x, **search)
    cut = gp.explain(model, x, **within(search, budget, shape=x.shape, stretch=True))
    assert cut.settings["scorer"] == usual.settings["scorer"]
    assert 0.6 * budget <= cut.gradients_used <= budget


@pytest.mark.parametrize("budget", [1, 7, 20, 50, 90])
@pytest.mark.parametrize(
    "name", ["greedy-pig", "paper", "ig", "smooth-ig", "blur-ig", "guided-ig", "random"]
)
def test_both_commands_cut_a_method_alike(name, budget):
    name_there = compare_methods.ALIASES.get(name, name)
    in_compare = compare_methods.arguments(name_there, "elements", budget, "softmax", PHOTO)
    (contender,) = [c for c in Settings.of("sic").contenders if c.name == name]
    assert paid(contender.within(budget).asked()) == paid(in_compare)
