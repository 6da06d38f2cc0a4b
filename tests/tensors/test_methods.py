"""Methods by name and as objects, and the knobs of their rounds."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from greedypig.core.methods import with_knobs
from greedypig.core.registry import METHODS, TENSORS
from greedypig.tensors.baselines import gaussian_blur
from nets import Calls, algorithm_1, close, linear, mlp, picture, row

FEW = {"blur-ig": 8, "guided-ig": 8, "smooth-ig": 2, "ig": 8, "greedy-pig": 3}


def flat(net: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), net).eval()


@pytest.mark.parametrize("method", [m.name for m in METHODS.values() if m.kinds & TENSORS])
def test_every_name_gives_a_complete_order(method):
    x = picture(0, (1, 4, 5))
    a = gp.explain(flat(mlp(20)), x, method=with_knobs(method, steps=FEW.get(method)))
    assert sorted(a.order.tolist()) == list(range(20))
    assert a.scores.shape == x.shape
    assert a.settings["method"] == method
    expected = {
        "greedy-pig": 60,
        "two-sided-pig": 5 + 19 * 10,
        "sequential-gradient": 20,
        "ig": 8,
        "gradient": 1,
        "smooth-ig": 50,
        "blur-ig": 8,
        "guided-ig": 8,
        "random": 0,
        "steady-pig": 60,
        "marginal-gains": 0,
        "leave-one-out": 0,
    }
    assert a.gradients_used == expected[method]


@pytest.mark.parametrize("method", ["ig", "gradient", "guided-ig"])
def test_on_a_linear_model_straight_paths_give_weight_times_way(method):
    net, x, baseline = linear(), row(), row(9)
    a = gp.explain(
        net,
        x,
        target=1,
        objective="logit",
        baseline=baseline,
        method=with_knobs(method, steps=FEW.get(method)),
    )
    assert close(a.scores, net.weight[1].detach() * (x - baseline), 1e-5)


@pytest.mark.parametrize("method", ["greedy-pig", "sequential-gradient"])
def test_on_a_linear_model_greedy_rounds_change_nothing(method):
    net, x = linear(), row()
    way = net.weight[1].detach() * x
    for rounds in (1, 2, 6):
        a = gp.explain(
            net, x, target=1, objective="logit", method=with_knobs(method, rounds=rounds)
        )
        assert close(a.scores, way, 1e-5)
        assert a.order.tolist() == way.argsort(descending=True).tolist()


def test_blur_ig_on_a_linear_model_is_weight_times_what_the_blur_took():
    x = picture(0, (2, 7, 6))
    net = linear(84)
    scorer = gp.BlurIG(steps=400, sigma=3.0)
    a = gp.explain(flat(net), x, target=1, objective="logit", method=scorer)
    weight = net.weight[1].detach().view_as(x)
    assert close(a.scores, weight * (x - gaussian_blur(x, 3.0)), 0.02)


def test_sequential_gradient_is_algorithm_1_with_one_node_at_the_left():
    net, x = mlp().double(), row().double()
    target = int(net(x[None]).argmax())
    order, scores = algorithm_1(
        lambda m: torch.softmax(net(m * x), 1)[:, target], 6, (1, 1, 2), [0.0]
    )
    a = gp.explain(net, x, method=gp.SequentialGradient(schedule=(1, 1, 2)))
    assert a.order[:4].tolist() == order
    assert close(a.feature_scores, scores, 1e-10)


@pytest.mark.parametrize(
    ("scorer", "name"),
    [
        (gp.IG(5), "greedy-pig"),
        (gp.Gradient(at=0.0), "sequential-gradient"),
    ],
)
def test_greedy_around_a_scorer_is_the_named_method(scorer, name):
    made = gp.explain(mlp(), row(), method=gp.Greedy(scorer, rounds=4))
    named = gp.explain(mlp(), row(), method=with_knobs(name, rounds=4))
    assert torch.equal(made.order, named.order)
    assert torch.equal(made.scores, named.scores)


@pytest.mark.parametrize("scorer", [gp.GuidedIG(4), gp.SmoothIG(gp.IG(2), 3)])
def test_greedy_makes_any_scorer_adaptive(scorer):
    """Two equal copies: one-shot ranks both on top, adaptive takes one and then the other kind."""

    def model(x: Tensor) -> Tensor:
        return torch.tanh(6 * (x[:, 0] + x[:, 1])) + 0.9 * torch.tanh(x[:, 2])

    x = torch.ones(3)
    one_shot = gp.explain(model, x, objective="logit", method=scorer)
    adaptive = gp.explain(model, x, objective="logit", method=gp.Greedy(scorer, per_round=1))
    assert one_shot.selected == 3
    assert adaptive.order[:2].tolist() in ([2, 0], [0, 2], [2, 1], [1, 2])
    last = adaptive.order[2]
    assert last in (0, 1)
    assert adaptive.scores[last].abs() < 0.1  # The copy adds nothing any more.


def test_greedy_carries_the_knobs_of_its_rounds():
    method = gp.Greedy(gp.Gradient(), rounds=2, schedule="equal")
    assert gp.explain(mlp(), row(), method=method).picks == (3, 3)
    assert gp.explain(mlp(), row(), method=gp.Greedy("gradient", schedule=[1, 4])).picks == (1, 4)


def test_methods_are_frozen_and_equal_by_their_knobs():
    assert gp.GreedyPIG(rounds=3) == gp.GreedyPIG(rounds=3) != gp.GreedyPIG(rounds=4)
    with pytest.raises(FrozenInstanceError):
        gp.IG().steps = 3


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (
            gp.GreedyPIG(rounds=3),
            {
                "method": "greedy-pig",
                "rounds": 3,
                "steps": 5,
                "rule": "midpoint",
                "schedule": "geometric",
                "ratio": 50.0,
            },
        ),
        (gp.IG(7, "left"), {"method": "ig", "steps": 7, "rule": "left", "rounds": 1}),
        (
            gp.Greedy(gp.GuidedIG(4), rounds=2),
            {
                "method": "greedy",
                "rounds": 2,
                "one_shot": {"method": "guided-ig", "steps": 4, "fraction": 0.25, "max_dist": 0.02},
            },
        ),
        (gp.SmoothIG(gp.IG(2), samples=3), {"method": "smooth-ig", "samples": 3, "noise": 0.15}),
        ("gradient", {"method": "gradient", "at": 1.0}),
    ],
    ids=str,
)
def test_results_name_their_method_and_its_knobs(method, settings):
    a = gp.explain(mlp(), row(), method=method)
    assert settings.items() <= a.settings.items()
    assert a.method == settings["method"]
    assert a.method in repr(a)


def test_the_gradient_is_taken_at_the_full_input():
    net, x = mlp(), row()
    leaf = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(net(leaf[None])[0, 2], leaf)
    a = gp.explain(net, x, target=2, objective="logit", method="gradient")
    assert close(a.scores, slope * x, 1e-5)


def test_the_default_rounds_are_few_and_grow():
    a = gp.explain(flat(mlp(90)), picture())
    assert len(a.picks) == 20
    assert a.gradients_used == 100
    assert sum(a.picks) == 90
    assert a.picks[0] <= 2
    assert a.picks[-1] == max(a.picks) > 10


def test_batch_size_bounds_the_rows_and_changes_nothing():
    net, x = mlp(), row()
    expected = gp.explain(net, x, method=gp.GreedyPIG(rounds=3, steps=7))
    for size in (1, 2, 7, 100):
        counted = Calls(net)
        a = gp.explain(counted, x, batch_size=size, method=gp.GreedyPIG(rounds=3, steps=7))
        assert max(counted.gradient_rows + counted.value_rows) <= size
        assert sum(counted.gradient_rows) == a.gradients_used == 21
        agree(a, expected)
