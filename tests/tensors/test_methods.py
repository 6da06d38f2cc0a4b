"""Methods by name and as objects, and the knobs of their rounds."""

import time
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from greedypig.core.methods import METHODS, with_knobs
from greedypig.tensors.baselines import gaussian_blur
from nets import Calls, algorithm_1, close, linear, midpoints, mlp, picture, row

FEW = {"blur-ig": 8, "guided-ig": 8, "smooth-ig": 2, "ig": 8, "greedy-pig": 3}


def flat(net: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), net).eval()


@pytest.mark.parametrize("method", METHODS)
def test_every_name_gives_a_complete_order(method):
    x = picture(0, (1, 4, 5))
    a = gp.explain(flat(mlp(20)), x, method=with_knobs(method, steps=FEW.get(method)))
    assert sorted(a.order.tolist()) == list(range(20))
    assert a.scores.shape == x.shape
    assert a.settings["method"] == method
    expected = {
        "greedy-pig": 60, "sequential-gradient": 20, "ig": 8, "gradient": 1, "smooth-ig": 50,
        "blur-ig": 8, "guided-ig": 8, "random": 0, "steady-pig": 60, "marginal-gains": 0,
    }  # fmt: skip
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
    assert close(a.unit_scores, scores, 1e-10)


def test_one_round_of_greedy_pig_is_ig():
    one = gp.explain(mlp(), row(), method=gp.GreedyPIG(rounds=1, steps=7))
    ig = gp.explain(mlp(), row(), method=gp.IG(steps=7))
    assert torch.equal(one.scores, ig.scores)
    assert torch.equal(one.order, ig.order)


def test_smoothing_without_noise_is_the_method_itself():
    inner = gp.IG(steps=4)
    smooth = gp.explain(mlp(), row(), method=gp.SmoothIG(inner, samples=3, noise=0.0))
    assert close(smooth.scores, gp.explain(mlp(), row(), method=inner).scores, 1e-5)


def test_random_is_uniform_over_features():
    firsts = [
        int(gp.explain(mlp(), row(), seed=seed, method="random").order[0]) for seed in range(120)
    ]
    counts = torch.bincount(torch.tensor(firsts), minlength=6)
    assert counts.sum() == 120
    assert counts.min() >= 8  # Mean 20, standard deviation 4.1: three of them.


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


def test_greedy_around_a_function_uses_its_scores_in_every_round():
    seen = []

    def scorer(objective: gp.Objective, mask: Tensor) -> Tensor:
        seen.append(mask.clone())
        return objective.gradient(mask.unsqueeze(1), torch.ones(1))

    greedy = gp.explain(mlp(), row(), method=gp.Greedy(scorer, per_round=2))
    named = gp.explain(mlp(), row(), method=gp.SequentialGradient(per_round=2))
    agree(greedy, named)
    assert [int(m.sum()) for m in seen] == [0, 2, 4]
    assert greedy.gradients_used == 3


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
        (gp.GreedyPIG(rounds=3), {"method": "greedy-pig", "rounds": 3, "steps": 5,
                                  "rule": "midpoint", "schedule": "geometric", "ratio": 50.0}),
        (gp.IG(7, "left"), {"method": "ig", "steps": 7, "rule": "left", "rounds": 1}),
        (gp.Greedy(gp.GuidedIG(4), rounds=2),
         {"method": "greedy", "rounds": 2, "one_shot": {"method": "guided-ig", "steps": 4,
                                                        "fraction": 0.25, "max_dist": 0.02}}),
        (gp.SmoothIG(gp.IG(2), samples=3), {"method": "smooth-ig", "samples": 3, "noise": 0.15}),
        ("gradient", {"method": "gradient", "at": 1.0}),
    ],
    ids=str,
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("knobs", "picks", "stop"),
    [
        ({"rounds": 3, "schedule": "equal"}, (2, 2, 2), "ALL"),
        ({"rounds": 6}, (1,) * 6, "ALL"),
        ({"per_round": 4}, (4, 2), "ALL"),
        ({"per_round": 2, "rounds": 2}, (2, 2), "ROUNDS"),
        ({"k": 3, "per_round": 1}, (1, 1, 1), "K"),
        ({"k": 2, "rounds": 1}, (2,), "K"),
        ({"k": 2}, (1, 1), "K"),
        ({"schedule": [1, 1, 3]}, (1, 1, 3), "ROUNDS"),
        ({"schedule": (6,)}, (6,), "ALL"),
        ({"rounds": 2, "schedule": "geometric", "ratio": 5.0}, (2, 4), "ALL"),
        ({"rounds": 2, "ratio": 1.0}, (3, 3), "ALL"),
    ],
)
def test_schedules_pick_what_they_say(knobs, picks, stop):
    method = gp.GreedyPIG(steps=2, **{name: knobs[name] for name in knobs if name != "k"})
    a = gp.explain(mlp(), row(), method=method, k=knobs.get("k"))
    assert a.picks == picks
    assert a.selected == sum(picks)
    assert a.stop is gp.StopReason[stop]
    assert a.gradients_used == 2 * len(picks)
    assert a.values.shape == (len(picks) + 1,)


@pytest.mark.parametrize("rule", ["midpoint", "left", "right", "trapezoid", "gauss_legendre"])
def test_every_quadrature_rule_is_the_sum_it_says(rule):
    net, x = mlp().double(), row().double()
    target = int(net(x[None]).argmax())
    quadrature = gp.rule(rule, 4)
    expected = torch.zeros(6).double()
    for node, weight in zip(quadrature.nodes, quadrature.weights, strict=True):
        point = (node * x).requires_grad_(True)
        value = torch.softmax(net(point[None]), 1)[0, target]
        expected += weight * torch.autograd.grad(value, point)[0] * x
    for given in (rule, quadrature):
        a = gp.explain(net, x, method=gp.IG(steps=4, rule=given))
        assert close(a.scores, expected, 1e-10)


def test_a_rule_of_one_s_own_has_its_own_number_of_steps():
    a = gp.explain(mlp(), row(), method=gp.GreedyPIG(rounds=2, rule=gp.rule("left", 3)))
    assert a.settings["steps"] == 3
    assert a.gradients_used == 6


def test_completeness_of_every_round():
    """Σ scores of a round ≈ G(everything) − G(S before it)."""
    net, x = mlp(), row()
    a = gp.explain(net, x, method=gp.GreedyPIG(per_round=1, steps=64, rule="gauss_legendre"))
    for total, before in zip(a.totals, a.values.tolist(), strict=False):
        assert total == pytest.approx(a.full_value - before, abs=1e-4)


def test_budget_stops_before_it_is_exceeded():
    a = gp.explain(
        mlp(), row(), stop=gp.Stop(gradients=11), method=gp.GreedyPIG(per_round=1, steps=4)
    )
    assert a.stop is gp.StopReason.GRADIENTS
    assert a.gradients_used == 8
    assert a.selected == 2
    whole = gp.explain(mlp(), row(), method=gp.GreedyPIG(per_round=1, steps=4))
    assert a.order[:2].tolist() == whole.order[:2].tolist()
    assert sorted(a.order.tolist()) == list(range(6))


def test_seconds_stop_a_slow_model():
    def slow(x: Tensor) -> Tensor:
        time.sleep(0.02)
        return torch.stack([x.sum(1), x.prod(1)], 1)

    a = gp.explain(
        slow, torch.rand(50), stop=gp.Stop(seconds=0.1), method=gp.GreedyPIG(per_round=1, steps=1)
    )
    assert a.stop is gp.StopReason.SECONDS
    assert 0 < a.selected < 10
    assert sorted(a.order.tolist()) == list(range(50))


def test_a_value_to_reach_stops_once_the_objective_is_there():
    def model(x: Tensor) -> Tensor:
        return x @ torch.tensor([4.0, 3.0, 2.0, 1.0])

    a = gp.explain(
        model,
        torch.ones(4),
        objective="logit",
        stop=gp.Stop(value=6.9),
        method=gp.GreedyPIG(per_round=1),
    )
    assert a.stop is gp.StopReason.VALUE
    assert a.order[: a.selected].tolist() == [0, 1]
    assert a.values.tolist() == pytest.approx([0, 4, 7])


def test_gain_takes_only_what_helps():
    def model(x: Tensor) -> Tensor:
        return x @ torch.tensor([4.0, -3.0, 2.0, -1.0])

    a = gp.explain(
        model,
        torch.ones(4),
        objective="logit",
        stop=gp.Stop(gain=True),
        method=gp.GreedyPIG(per_round=1),
    )
    assert a.stop is gp.StopReason.NO_GAIN
    assert a.order[: a.selected].tolist() == [0, 2]
    assert a.order.tolist() == [0, 2, 3, 1]


def test_batch_size_bounds_the_rows_and_changes_nothing():
    net, x = mlp(), row()
    expected = gp.explain(net, x, method=gp.GreedyPIG(rounds=3, steps=7))
    for size in (1, 2, 7, 100):
        counted = Calls(net)
        a = gp.explain(counted, x, batch_size=size, method=gp.GreedyPIG(rounds=3, steps=7))
        assert max(counted.gradient_rows + counted.value_rows) <= size
        assert sum(counted.gradient_rows) == a.gradients_used == 21
        agree(a, expected)


def test_midpoints_is_what_the_default_rule_is():
    assert gp.rule("midpoint", 3).nodes == pytest.approx(midpoints(3))
