"""An explanation whose value is reached and lost again is noticed, and told everywhere."""

import math

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.core.enough import find_fall


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 0.95, 1.0], None),
        ([0.0, 0.95, 0.8, 1.0], None),  # A dip above three quarters.
        ([0.0, 0.6, 0.1, 1.0], None),  # It was never reached.
        ([0.0, 0.95, 0.1, 1.0], (0.1, 0.95, 0.2, 0.1)),
        ([0.0, 0.95, math.nan, 0.3], (0.1, 0.95, 1.0, 0.3)),
        ([-3.0, -0.1, -2.0, -0.2], None),  # 72 % of the rise from −3 to 1.
        ([-3.0, 0.9, -2.0, -0.2], (0.1, 0.9, 0.2, -2.0)),
        ([2.0, 2.0, 0.1, 1.0], None),  # G of everything is below G(∅).
    ],
)
def test_a_value_that_is_reached_and_lost_is_a_fall(values, expected):
    assert find_fall([0, 0.1, 0.2, 1], values, 1.0) == expected


class Spoiled(nn.Module):
    """Two features give the class, the third takes it away, the fourth brings it back."""

    def forward(self, x):
        logit = 6 * x[:, 0] + 6 * x[:, 1] - 12 * x[:, 2] + 12 * x[:, 3] - 6
        return torch.stack([torch.zeros_like(logit), logit], 1)


def spoiled():
    x = torch.ones(4)
    order = [0, 1, 2, 3]
    scorer = lambda objective, mask: -torch.arange(4.0)  # noqa: E731
    a = gp.explain(Spoiled(), x, target=1, baseline="zero", method=gp.Greedy(scorer, per_round=1))
    assert a.order.tolist() == order
    return a


def test_results_know_of_their_fall():
    fall = spoiled().fall
    assert (fall.reached_at, fall.lost_at) == (0.5, 0.75)
    assert fall.reached == pytest.approx(1 / (1 + math.exp(-6)))
    assert fall.lost == pytest.approx(1 / (1 + math.exp(6)))
    assert gp.explain(Spoiled(), torch.ones(4), target=1, baseline="zero").fall is None


def test_pages_say_that_such_an_explanation_does_not_hold():
    line = {"fractions": [0, 0.5, 0.75, 1], "values": [0, 0.998, 0.002, 0.998]}
    a = spoiled().with_notes({"class": "cat", "probability": 0.998, "curves": {"softmax": line}})
    text = gp.report.html(a)
    assert "does not hold" in text
    assert "0.002" in text
