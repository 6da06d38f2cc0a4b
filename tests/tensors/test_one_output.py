"""Models with one output: a binary logit, a probability, or a value."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp

ONES = torch.ones(4)
WEIGHTS = torch.tensor([0.5, -3.0, 0.2, -1.0])
DOWN, UP = [1, 3, 2, 0], [0, 2, 3, 1]


def score(x: Tensor) -> Tensor:
    return x @ WEIGHTS


def two_logits(x: Tensor) -> Tensor:
    return torch.stack([torch.zeros(len(x)), score(x)], 1)


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).eval()


def doubled(model: nn.Module):
    return lambda x: torch.cat([torch.zeros(len(x), 1), model(x)], 1)


def test_the_feature_that_made_the_prediction_comes_first():
    """z = 0.5 − 3 + 0.2 − 1 = −3.3, class 0: the second feature made it."""
    for options in ({}, {"outputs": "logits"}, {"outputs": "values"}, {"objective": "softmax"}):
        a = gp.explain(score, ONES, **options)
        assert a.order.tolist() == DOWN
        assert int(a.importance.argmax()) == 1
    assert gp.explain(two_logits, ONES).order.tolist() == DOWN


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "objective", ["softmax", "log-likelihood", "log-probability", "margin", "counterfactual"]
)
def test_one_logit_is_explained_as_two_logits_are(objective, seed):
    model, x = net(seed), torch.randn(6, generator=torch.Generator().manual_seed(seed))
    for target in (None, 0, 1):
        one = gp.explain(model, x, objective=objective, outputs="logits", target=target)
        two = gp.explain(doubled(model), x, objective=objective, target=target)
        assert torch.allclose(one.scores, two.scores, atol=1e-6)
        assert torch.allclose(one.values, two.values, atol=1e-6)
        assert one.settings["target"] == two.settings["target"]


def test_a_target_or_an_objective_over_classes_makes_it_a_logit():
    down, up = torch.sigmoid(torch.tensor([3.3, -3.3])).tolist()
    cases = (
        ({"target": 0}, down),
        ({"target": 1}, up),
        ({"objective": "softmax"}, down),
        ({"objective": "logit"}, 3.3),
        ({"objective": "logit", "target": 1}, -3.3),
    )
    for options, full in cases:
        a = gp.explain(score, ONES, **options)
        assert a.full_value == pytest.approx(full, abs=1e-5)
        assert a.settings["outputs"] == "logits"
    assert gp.explain(score, ONES, target=1).order.tolist() == UP
    many = list(gp.explain_many(score, [ONES, -ONES], target=[1, None]))
    assert [a.settings["target"] for a in many] == [1, 1]
    assert many[0].order.tolist() == UP
    assert many[1].order.tolist() == DOWN


def test_a_probability_is_that_of_class_1():
    a = gp.explain(lambda x: torch.sigmoid(score(x)), ONES, outputs="probabilities")
    b = gp.explain(score, ONES, outputs="logits")
    assert a.settings["target"] == 0
    assert a.order.tolist() == b.order.tolist() == DOWN
    assert torch.allclose(a.scores, b.scores, atol=1e-5)
    with pytest.raises(gp.InvalidInput, match=r"from 0 to 1.*Try outputs='logits'"):
        gp.explain(score, ONES, outputs="probabilities")


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("offset", [-50.0, 0.0, 50.0])
def test_a_value_is_explained_toward_the_prediction_whatever_its_offset(sign, offset):
    a = gp.explain(lambda x: offset + sign * score(x), ONES, outputs="values")
    assert a.order.tolist() == DOWN
    assert a.settings["objective"] == ("decrease" if sign > 0 else "increase")
    assert a.full_value - float(a.values[0]) == pytest.approx(3.3, abs=1e-4)


def test_the_direction_of_a_value_can_be_asked_for():
    assert gp.explain(score, ONES, objective="increase").order.tolist() == UP
    assert gp.explain(score, ONES, objective="decrease").order.tolist() == DOWN
    assert gp.explain(score, ONES, objective="decrease").full_value == pytest.approx(3.3)


def test_each_example_and_the_mean_of_its_baselines_have_their_own_direction():
    many = gp.explain_many(score, [ONES, -ONES, ONES], outputs="values")
    assert [a.settings["objective"] for a in many] == ["decrease", "increase", "decrease"]
    # f(x) = −3.3; the baselines give 0 and −33, whose mean lies below.
    a = gp.explain(score, ONES, baseline=[0.0, 10.0], outputs="values")
    assert a.settings["objective"] == "increase"


def test_a_convolution_with_one_output_has_a_direction_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(9, 1))
    x = torch.rand(1, 3, 3)
    with torch.no_grad():
        move = (model.eval()(x[None]) - model(torch.zeros(1, 1, 3, 3))).item()
    a = gp.explain(model, x, outputs="values")
    assert a.full_value - float(a.values[0]) == pytest.approx(abs(move), abs=1e-5)


def test_a_reading_that_decides_the_direction_is_asked_for():
    def model(x: Tensor) -> Tensor:
        return score(x) + 10  # 6.7 from 10: it fell, and as a logit it is class 1.

    with pytest.warns(UserWarning, match="outputs='logits'.*outputs='values'") as caught:
        a = gp.explain(model, ONES)
    assert caught[0].filename == __file__
    assert a.order.tolist() == DOWN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gp.explain(model, ONES, outputs="values").order.tolist() == DOWN
        assert gp.explain(model, ONES, outputs="logits").order.tolist() == UP
        gp.explain(score, ONES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 2}, r"class from 0 to 1.*got 2"),
        ({"target": 0, "outputs": "values"}, r"outputs='values', a target.*outputs='logits'"),
        ({"target": 0, "objective": "increase"}, r"objective='increase'.*objective='logit'"),
        ({"objective": "softmax", "outputs": "values"}, r"objective='softmax', outputs='values'"),
        ({"outputs": "numbers"}, r"'logits', 'probabilities' or 'values'"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(gp.InvalidInput, match=message):
        gp.explain(score, ONES, **options)


@pytest.mark.parametrize("options", [{"objective": "increase"}, {"outputs": "values"}])
def test_values_need_a_single_output(options):
    with pytest.raises(gp.InvalidInput, match=r"single output.*got 2 outputs.*Try"):
        gp.explain(two_logits, ONES, **options)


def test_curves_follow_what_was_explained():
    p = torch.sigmoid(torch.tensor(3.3)).item()
    a = gp.explain(score, ONES, target=0)
    curves = gp.metrics.information_curves(score, ONES, a)
    assert curves["softmax"].values[-1] == pytest.approx(p, abs=1e-5)
    assert curves["loss"].values[-1] == pytest.approx(0, abs=1e-6)
    value = gp.explain(score, ONES, outputs="values")
    curve = gp.metrics.softmax_information_curve(score, ONES, value)
    assert curve.values[-1] == pytest.approx(-3.3, abs=1e-5)


def test_a_saved_result_and_its_page_say_what_was_explained(tmp_path):
    a = gp.explain(score, ONES, outputs="values")
    a.save(tmp_path / "a.gpig")
    assert gp.load(tmp_path / "a.gpig").settings["objective"] == "decrease"
    page = gp.report.html(gp.load(tmp_path / "a.gpig"))
    assert "features that decrease it" in page
    binary = gp.report.html(gp.explain(score, ONES, outputs="logits"))
    assert "features that decrease it" not in binary
