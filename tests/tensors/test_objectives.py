"""Every objective, recomputed by hand from the model at ∅, after every round, and in full."""

import numpy as np
import pytest
import torch
from torch import Tensor

import greedypig as gp
from agreement import agree
from nets import algorithm_1, close, linear, midpoints, mlp, row

PICKS = (1, 2, 1)
TARGET = 2


def by_name(net, x):
    """objective → (argument, G from the logits of x_S); all from the definition."""
    full = net(x[None]).detach()
    p = torch.softmax(full, 1)
    top = full[0].argsort(descending=True).tolist()
    runner_up = next(c for c in top if c != TARGET)
    other = next(c for c in range(4) if c not in (TARGET, runner_up))

    def kl(logits: Tensor) -> Tensor:
        return (p * (p.log() - torch.log_softmax(logits, 1))).sum(1)

    return {
        "softmax": ("softmax", lambda z: torch.softmax(z, 1)[:, TARGET]),
        "log-likelihood": ("log-likelihood", lambda z: (p * torch.log_softmax(z, 1)).sum(1)),
        "log-probability": ("log-probability", lambda z: torch.log_softmax(z, 1)[:, TARGET]),
        "logit": ("logit", lambda z: z[:, TARGET]),
        "margin": ("margin", lambda z: z[:, TARGET] - z[:, runner_up]),
        "margin()": (gp.margin(), lambda z: z[:, TARGET] - z[:, runner_up]),
        "margin(against)": (gp.margin(against=other), lambda z: z[:, TARGET] - z[:, other]),
        "counterfactual": ("counterfactual", kl),
        "callable": (lambda z: (z**2).sum(1), lambda z: (z**2).sum(1)),
    }


OBJECTIVES = list(by_name(mlp(), row()))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_values_and_picks_follow_from_the_definition(name):
    net, x, baseline = mlp().double(), row().double(), row(9).double()
    objective, read = by_name(net, x)[name]
    target = None if name == "callable" else TARGET
    a = gp.explain(
        net,
        x,
        target=target,
        objective=objective,
        baseline=baseline,
        method=gp.GreedyPIG(schedule=PICKS, steps=3),
    )

    def g(masks: Tensor) -> Tensor:
        here = 1 - masks if name == "counterfactual" else masks  # S is what is taken away.
        return read(net(baseline + here * (x - baseline)))

    order, scores = algorithm_1(g, 6, PICKS, midpoints(3))
    assert a.order[:4].tolist() == order
    assert close(a.feature_scores, scores, 1e-10)
    masks = [a.mask(k).double() for k in (0, 1, 3, 4)]
    expected = torch.cat([g(m[None]) for m in masks]).detach()
    assert close(a.values, expected, 1e-10)
    assert a.full_value == pytest.approx(g(torch.ones(1, 6).double()).item(), abs=1e-10)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_values_measured_after_every_round_are_those_at_the_end(name):
    net, x = mlp(), row()
    objective, _ = by_name(net, x)[name]
    method = gp.GreedyPIG(rounds=4, steps=2)
    a = gp.explain(net, x, objective=objective, method=method)
    limited = gp.explain(net, x, objective=objective, method=method, stop=gp.Stop(value=1e9))
    agree(a, limited)


def test_the_runner_up_is_the_best_class_but_the_target():
    logits = torch.tensor([3.0, 1.0, 2.0, 0.0])

    def model(x: Tensor) -> Tensor:
        return logits * x.sum(1, keepdim=True)

    for target, lead in ((0, 3 - 2), (2, 2 - 3), (3, 0 - 3)):
        a = gp.explain(
            model, torch.ones(1), target=target, objective="margin", method=gp.GreedyPIG(rounds=1)
        )
        assert a.full_value == pytest.approx(lead)


def test_nothing_changed_is_no_counterfactual():
    a = gp.explain(mlp(), row(), objective="counterfactual", method=gp.GreedyPIG(rounds=3, steps=2))
    assert a.values[0] == pytest.approx(0, abs=1e-6)
    assert a.full_value > 1e-3


def test_the_counterfactual_of_a_single_output_is_how_far_it_moves():
    net, x, baseline = linear(classes=1), row(), row(9)
    a = gp.explain(
        net,
        x,
        objective="counterfactual",
        baseline=baseline,
        method=gp.GreedyPIG(schedule=[2, 1, 3]),
    )
    for k, value in zip((0, 2, 3, 6), a.values.tolist(), strict=True):
        changed = torch.where(a.mask(k), baseline, x)
        moved = (net(changed[None]) - net(x[None])).abs().item()
        assert value == pytest.approx(moved, abs=1e-5)
    assert a.full_value == pytest.approx((net(baseline) - net(x)).abs().item(), abs=1e-5)


def test_the_counterfactual_of_a_single_output_takes_first_what_moves_it():
    def model(x: Tensor) -> Tensor:
        return 5 * x[:, 2] + x[:, 0] + 10

    a = gp.explain(
        model, torch.ones(4), objective="counterfactual", k=2, method=gp.GreedyPIG(per_round=1)
    )
    assert a.order[:2].tolist() == [2, 0]
    assert a.values.tolist() == pytest.approx([0, 5, 6], abs=1e-5)


def test_a_callable_sees_whatever_shape_the_model_returns():
    net = linear(classes=6)

    def model(x: Tensor) -> Tensor:
        return net(x).view(-1, 2, 3)

    a = gp.explain(model, row(), objective=lambda z: z[:, 1, 2], method="ig")
    assert close(a.scores, net.weight[5].detach() * row(), 1e-5)


def test_a_callable_of_a_single_output_column_may_keep_the_column():
    net = linear(classes=1)
    a = gp.explain(net, row(), objective=lambda z: 2 * z[:, 0], method="ig")
    assert close(a.scores, 2 * net.weight[0].detach() * row(), 1e-5)


@pytest.mark.parametrize("against", ["cat", True, 1.0, [1]])
def test_a_rival_that_is_no_number_of_a_class_is_refused(against):
    with pytest.raises(gp.InvalidInput, match="number of a class"):
        gp.explain(mlp(), row(), target=TARGET, objective=gp.margin(against=against))


@pytest.mark.parametrize("kind", [torch.tensor, np.int64])
def test_a_rival_straight_from_an_argmax_can_be_saved(kind, tmp_path):
    other = (TARGET + 1) % 3
    a = gp.explain(
        mlp(),
        row(),
        target=TARGET,
        objective=gp.margin(against=kind(other)),
        method=gp.GreedyPIG(rounds=2),
    )
    a.save(tmp_path / "a.gpig")
    assert gp.load(tmp_path / "a.gpig").settings["rival"] == other


@pytest.mark.parametrize("against", [TARGET, -1, 4])
def test_a_margin_is_against_another_class_there_is(against):
    with pytest.raises(gp.InvalidInput, match=rf"another class.*got {against}"):
        gp.explain(mlp(), row(), target=TARGET, objective=gp.margin(against=against))


def test_a_callable_must_give_one_number_per_row():
    with pytest.raises(gp.InvalidInput, match=r"one number per row"):
        gp.explain(mlp(), row(), objective=lambda z: z.sum())


def test_a_value_to_reach_may_be_negative():
    """G < 0 for log-likelihood."""
    net, x = mlp(), row()
    whole = gp.explain(
        net, x, objective="log-likelihood", baseline=row(9), method=gp.GreedyPIG(per_round=1)
    )
    threshold = 1.01 * whole.full_value
    expected = int((whole.values >= threshold).nonzero()[0])
    assert 0 < expected < 6
    a = gp.explain(
        net,
        x,
        objective="log-likelihood",
        baseline=row(9),
        stop=gp.Stop(value=threshold),
        method=gp.GreedyPIG(per_round=1),
    )
    assert a.stop is gp.StopReason.VALUE
    assert a.selected == expected


def test_matching_a_picture_takes_many_rounds_of_one_gradient():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    x = torch.randn(3, 8, 8)
    a = gp.explain(net, x, objective="log-likelihood")
    same = gp.explain(
        net, x, objective="log-likelihood", method=gp.GreedyPIG(rounds=100, steps=1, rule="left")
    )
    assert torch.equal(a.order, same.order)
    assert a.gradients_used == 100
    assert a.method == "sequential-gradient"
    pixels = gp.explain(net, x, objective="log-likelihood", features="pixels")
    assert pixels.method == "sequential-gradient"
    assert pixels.gradients_used == len(pixels.picks) == 64
    flat = gp.explain(net, x.reshape(-1), objective="log-likelihood")
    assert flat.gradients_used == gp.explain(net, x).gradients_used == 100
    assert len(flat.picks) == len(gp.explain(net, x).picks) == 20
