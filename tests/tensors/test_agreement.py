"""What is promised across batch sizes: agreement to rounding, and nothing less."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import greedypig as gp
from agreement import agree
from nets import mlp, row


class RoundsByBatch:
    """A network whose outputs round otherwise for every number of rows, as matrix products do."""

    def __init__(self, size: float) -> None:
        self.net, self.size = mlp(), size

    def __call__(self, x: Tensor) -> Tensor:
        noise = torch.Generator().manual_seed(len(x))
        out = self.net(x)
        return out * (1 + self.size * (torch.rand(out.shape, generator=noise) - 0.5))


@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_rounding_of_the_batch_s_shape_is_agreement(batch_size):
    model, xs = RoundsByBatch(1e-6), [row(s) for s in range(3)]
    many = gp.explain_many(model, xs, batch_size=batch_size, method=gp.GreedyPIG(rounds=3, steps=4))
    for x, found in zip(xs, many, strict=True):
        agree(found, gp.explain(model, x, method=gp.GreedyPIG(rounds=3, steps=4)))


def test_the_same_call_gives_the_same_bits():
    a, b = (
        gp.explain(RoundsByBatch(1e-6), row(), method=gp.GreedyPIG(rounds=3, steps=4))
        for _ in range(2)
    )
    assert torch.equal(a.order, b.order)
    assert torch.equal(a.feature_scores, b.feature_scores)
    assert torch.equal(a.values, b.values)


def test_more_than_rounding_is_no_agreement():
    a = gp.explain(mlp(), row(), method=gp.GreedyPIG(rounds=3, steps=4))
    with pytest.raises(AssertionError, match="scores differ"):
        agree(a, replace(a, feature_scores=a.feature_scores * 1.001))
    with pytest.raises(AssertionError, match="values differ"):
        agree(a, replace(a, values=a.values * 1.001))
    swapped = a.order.clone()
    swapped[:2] = a.order[[1, 0]]
    with pytest.raises(AssertionError, match="scores differ"):
        agree(a, replace(a, order=swapped))


def test_features_with_equal_scores_may_change_places_also_at_the_end_of_a_round():
    def model(x: Tensor) -> Tensor:
        return x.sum(1)

    a = gp.explain(model, torch.ones(6), objective="logit", method=gp.GreedyPIG(rounds=3, steps=1))
    agree(a, replace(a, order=a.order.flip(0)))
