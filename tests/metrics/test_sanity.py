"""Explanations that must change with the model, and explanations that must not change by chance."""

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from nets import bits, cnn, linear, mlp, picture, row

M = gp.metrics


def attribution(order, features=None):
    """A greedy result with this order of units."""
    weights = torch.empty(len(order))
    weights[torch.tensor(order)] = torch.arange(len(order), 0.0, -1)
    objective = gp.objective(lambda m: m @ weights, len(order))
    return gp.maximize(objective, gp.GreedyPIG(per_round=1), features=features)


class OnlyTheInput(nn.Module):
    """Weights that no explanation can depend on: they add a constant to every logit."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones(len(x), 3, dtype=x.dtype)
        return torch.stack([x.sum(1), -x.sum(1)], 1) + self.first(ones) + self.last(ones)


# Two orders


def test_rank_correlation_is_one_minus_one_and_between():
    a = attribution([0, 1, 2, 3])
    assert M.rank_correlation(a, attribution([0, 1, 2, 3])) == 1
    assert M.rank_correlation(a, attribution([3, 2, 1, 0])) == -1
    # Two neighbours swapped: 1 − 6 · 2 / (64 − 4).
    assert M.rank_correlation(a, attribution([1, 0, 2, 3])) == pytest.approx(0.8)


def test_rank_correlation_is_spearmans():
    stats = pytest.importorskip("scipy.stats")
    orders = [torch.randperm(30, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    a, b = (attribution(order.tolist()) for order in orders)
    expected = stats.spearmanr(orders[0].argsort(), orders[1].argsort()).statistic
    assert M.rank_correlation(a, b) == pytest.approx(expected)


def test_overlap_is_the_common_share_of_the_top():
    a, b = attribution([0, 1, 2, 3]), attribution([1, 3, 0, 2])
    assert [M.top_overlap(a, b, k) for k in (1, 2, 3, 4)] == [0, 0.5, 2 / 3, 1]
    with pytest.raises(gp.InvalidInput, match="k"):
        M.top_overlap(a, b, 5)


def test_one_shot_scores_are_compared_by_their_size():
    x = torch.ones(3)
    plus, minus = nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)
    plus.weight.data = torch.tensor([[1.0, 2.0, 3.0]])
    minus.weight.data = -plus.weight.data
    a, b = (gp.explain(net, x, method="ig", objective="increase") for net in (plus, minus))
    assert M.rank_correlation(a, b) == 1
    assert M.rank_correlation(a, b, "signed") == -1


def test_explanations_of_other_units_do_not_compare():
    with pytest.raises(gp.InvalidInput, match="same features"):
        M.rank_correlation(attribution([0, 1]), attribution([0, 1, 2]))


# The model made random


def test_an_explanation_that_ignores_the_weights_is_found_out():
    x = torch.tensor([3.0, 1.0, 2.0])
    check = M.randomisation_check(OnlyTheInput(), x, method="ig", k=1)
    assert check.rank_correlation == (1.0, 1.0)
    assert check.overlap == (1.0, 1.0)


def test_explanations_change_with_the_weights():
    check = M.randomisation_check(mlp(40), row(n=40), method=gp.GreedyPIG(rounds=8))
    assert check.layers == ("2", "0")
    assert abs(check.rank_correlation[-1]) < 0.5
    assert check.chance == 0.1
    assert check.k == 4


def test_layers_fall_from_the_output_down_and_stay_random():
    """Each depth is the explanation of the copy with that layer and all above it shuffled."""
    net, x = cnn(), picture()
    check = M.randomisation_check(net, x, method=gp.IG(3))
    assert check.layers == ("8", "4", "3", "1", "0")
    top = M.randomisation_check(net, x, method=gp.IG(3), depths=2)
    assert top.layers == ("3", "0")  # 3 of 5 layers, then all
    assert top.rank_correlation == (check.rank_correlation[2], check.rank_correlation[4])


def test_a_linear_model_s_shuffled_weights_are_its_own_in_another_order():
    net, x = linear(30, classes=1), torch.ones(30)
    check = M.randomisation_check(net, x, method="ig", seed=3)
    generator = torch.Generator().manual_seed(3)
    # The layer's parameters in their order: the weight is shuffled first.
    shuffled = net.weight.detach().reshape(-1)[torch.randperm(30, generator=generator)]
    ranks = [
        w.abs().sort(descending=True, stable=True).indices.argsort().double()
        for w in (net.weight.detach()[0], shuffled)
    ]
    expected = 1 - 6 * float((ranks[0] - ranks[1]).square().sum()) / (30**3 - 30)
    assert check.rank_correlation[0] == pytest.approx(expected)


def test_the_check_repeats_by_seed_and_leaves_the_model_alone():
    net, x = cnn().train(), picture()
    before = {k: bits(v) for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    a, b, c = (M.randomisation_check(net, x, method=gp.IG(3), seed=s) for s in (0, 0, 1))
    assert a == b
    assert a.rank_correlation != c.rank_correlation
    assert {k: bits(v) for k, v in net.state_dict().items()} == before
    assert all(m.training for m in net.modules())
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_class_stays_the_one_that_was_predicted_first():
    net, x = mlp(), row()
    check = M.randomisation_check(net, x, method="ig")
    assert check.settings["target"] == int(net(x.unsqueeze(0)).argmax())


def test_what_cannot_be_randomised_is_refused():
    with pytest.raises(gp.InvalidType, match="whose layers"):
        M.randomisation_check(lambda x: x, row())
    with pytest.raises(gp.InvalidInput, match="with weights"):
        M.randomisation_check(nn.Identity(), row())
    with pytest.raises(gp.InvalidInput, match="depths"):
        M.randomisation_check(mlp(), row(), depths=3)


# The same again with other seeds


def test_a_method_without_chance_is_perfectly_stable():
    result = M.stability(mlp(), row(), seeds=3, method=gp.GreedyPIG(rounds=3))
    assert result.rank_correlation == 1
    assert result.overlap == 1
    assert result.seeds == (0, 1, 2)


def test_a_random_order_is_as_stable_as_chance():
    """Means over 28 pairs of 400 units: standard errors of about 0.01."""
    result = M.stability(mlp(400), row(n=400), seeds=8, method="random")
    assert abs(result.rank_correlation) < 0.05
    assert result.overlap == pytest.approx(result.chance, abs=0.05)
    assert result.chance == 0.1


def test_stability_is_the_mean_over_pairs():
    noisy = gp.SmoothIG(gp.IG(4), samples=1, noise=0.5)
    result = M.stability(mlp(30), row(n=30), seeds=[3, 5, 9], method=noisy, k=5)
    a, b, c = result.attributions
    pairs = [(a, b), (a, c), (b, c)]
    assert result.overlap == pytest.approx(sum(M.top_overlap(*p, 5) for p in pairs) / 3)
    assert result.rank_correlation == pytest.approx(sum(M.rank_correlation(*p) for p in pairs) / 3)
    assert 0 < result.overlap < 1


@pytest.mark.parametrize("seeds", [1, [4], [2, 2], []])
def test_one_seed_says_nothing_about_stability(seeds):
    with pytest.raises(gp.InvalidInput, match="two different seeds"):
        M.stability(mlp(), row(), seeds=seeds)
