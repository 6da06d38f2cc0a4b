"""SIC, LIC, insertion and deletion: values in closed form, what they cost, and who may judge."""

import json
import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from greedypig.core.layout import Layout
from greedypig.metrics.curves import counts_of
from greedypig.metrics.ranking import counts_needed
from greedypig.tensors import baselines
from nets import Calls, TwoInputs, bits, cnn, linear, mlp, picture, row

M = gp.metrics
ONE, TWO, THREE, FOUR = (gp.GreedyPIG(rounds=r) for r in (1, 2, 3, 4))


class TwoLogits(nn.Module):
    """Logits (w·x, 0): the softmax of class 0 is the sigmoid of a sum over what is present."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1) @ self.weights
        return torch.stack([score, torch.zeros_like(score)], 1)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def entropy_gap(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


WEIGHTS = [1.0, -2.0, 3.0, 0.5]
MODEL, X = TwoLogits(WEIGHTS), torch.ones(4)
SUMS = [0.0, 3.0, 4.0, 4.5, 2.5]
"""Of the weights of the best 0, 1, 2, 3, 4 features."""
BEST = torch.tensor([2, 0, 3, 1])


def test_softmax_curve_of_a_known_order_is_known():
    curve = M.softmax_information_curve(MODEL, X, BEST)
    assert curve.fractions.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve.values.tolist() == pytest.approx([sigmoid(s) for s in SUMS], rel=1e-6)
    assert curve.full == pytest.approx(sigmoid(2.5), rel=1e-6)
    assert curve.name == "softmax"
    assert curve.settings["ranking"] == "order"
    assert curve.settings["target"] == 0


def test_loss_curve_is_the_divergence_from_the_full_answer():
    curve = M.loss_information_curve(MODEL, X, BEST)
    expected = [entropy_gap(sigmoid(2.5), sigmoid(s)) for s in SUMS]
    assert curve.values.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert curve.values[-1] == 0 == curve.full
    assert curve.excess is None


def test_deletion_takes_the_best_away_first():
    curve = M.deletion(MODEL, X, BEST)
    expected = [sigmoid(2.5 - s) for s in SUMS]
    assert curve.values.tolist() == pytest.approx(expected, rel=1e-6)
    assert curve.full == pytest.approx(sigmoid(2.5), rel=1e-6)


def test_insertion_is_the_softmax_curve_from_its_own_baseline():
    start = torch.tensor([0.5, 0.0, -1.0, 2.0])
    mine = M.insertion(MODEL, X, BEST, baseline=start)
    same = M.softmax_information_curve(MODEL, X, BEST, baseline=start)
    assert torch.allclose(mine.values, same.values)
    assert mine.values[0] == pytest.approx(sigmoid(0.5 - 3.0 + 1.0), rel=1e-6)
    assert mine.name == "insertion"


def test_insertion_starts_from_the_blurred_picture_unless_told_otherwise():
    net, x = cnn(), picture()
    curve = M.insertion(net, x, torch.arange(x.numel()), target=1)
    blurred = baselines.named("blur", x)
    expected = torch.softmax(net(blurred.unsqueeze(0)), 1)[0, 1].detach()
    assert curve.values[0] == pytest.approx(float(expected), rel=1e-4)


def test_auc_is_the_trapezoid_over_the_fractions():
    curve = M.Curve([0, 0.5, 1], [0.0, 1.0, 0.5], "softmax", 0.5)
    assert curve.auc == pytest.approx(0.25 + 0.375)
    uneven = M.Curve([0, 0.1, 1], [0.0, 1.0, 1.0], "softmax", 1.0)
    assert uneven.auc == pytest.approx(0.05 + 0.9)


def test_the_excess_over_the_full_input_is_said_and_where():
    curve = M.softmax_information_curve(MODEL, X, BEST)
    assert curve.excess == pytest.approx(sigmoid(4.5) - sigmoid(2.5), rel=1e-5)
    assert curve.excess_at == 0.75
    assert "above it at 0.75" in repr(curve)
    modest = M.softmax_information_curve(TwoLogits([1.0, 1.0]), torch.ones(2), torch.tensor([0, 1]))
    assert modest.excess == 0
    assert "above" not in repr(modest)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_order_of_a_modular_objective_beats_every_other(seed):
    """Of logits linear in what is present the curve is highest in the order of the weights."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(7, generator=generator)
    model, x = TwoLogits(weights.tolist()), torch.ones(7)
    best = weights.sort(descending=True).indices
    top = M.softmax_information_curve(model, x, best, target=0)
    other = M.softmax_information_curve(model, x, best.flip(0), target=0)
    mixed = M.softmax_information_curve(model, x, torch.randperm(7, generator=generator), target=0)
    assert bool((top.values >= mixed.values - 1e-7).all())
    assert bool((mixed.values >= other.values - 1e-7).all())
    assert top.auc > mixed.auc > other.auc


# Points


def test_the_papers_hundred_points_run_from_none_to_all():
    counts = counts_of(100, 224 * 224 * 3)
    assert len(counts) == 100
    assert counts[0] == 0
    assert counts[-1] == 150_528
    gaps = {b - a for a, b in pairwise(counts)}
    assert gaps == {1520, 1521}


@pytest.mark.parametrize(
    ("points", "n", "expected"),
    [
        (3, 3, (0, 2, 3)),  # 1.5 is rounded up
        (5, 10, (0, 3, 5, 8, 10)),  # 2.5 and 7.5 as well: not to even
        (100, 2, (0, 1, 2)),  # no k twice
        (2, 7, (0, 7)),
        ([0.0, 0.1, 0.25, 1.0], 10, (0, 1, 3, 10)),
    ],
)
def test_points_are_rounded_half_up(points, n, expected):
    assert counts_of(points, n) == expected


@pytest.mark.parametrize("points", [1, 0, -3, [0.5], [0.0, 0.0], [0.5, 0.2], [0, 1.1], [-0.1, 1]])
def test_wrong_points_are_refused(points):
    with pytest.raises(gp.InvalidInput, match="Expected at least"):
        M.softmax_information_curve(MODEL, X, BEST, points=points)


def test_a_list_of_shares_gives_the_curve_there_and_the_full_value_all_the_same():
    curve = M.softmax_information_curve(MODEL, X, BEST, points=[0.25, 0.5])
    assert curve.fractions.tolist() == [0.25, 0.5]
    assert curve.values.tolist() == pytest.approx([sigmoid(3.0), sigmoid(4.0)], rel=1e-6)
    assert curve.full == pytest.approx(sigmoid(2.5), rel=1e-6)


def test_a_curve_is_read_between_its_points():
    curve = M.Curve([0, 0.5, 1], [0.0, 1.0, 0.5], "softmax", 0.5)
    assert [curve.at(f) for f in (0, 0.25, 0.5, 0.75, 1)] == [0, 0.5, 1, 0.75, 0.5]
    with pytest.raises(gp.InvalidInput, match="from 0 to 1"):
        curve.at(1.2)


# What it costs


def test_a_hundred_points_cost_a_hundred_rows_for_all_curves_at_once():
    calls = Calls(mlp(200))
    x = row(n=200)
    curves = M.information_curves(calls, x, torch.randperm(200), batch_size=16)
    assert set(curves) == {"softmax", "loss"}
    assert sum(calls.value_rows) == 100
    assert not calls.gradient_rows
    assert max(calls.value_rows) == 16
    assert curves["loss"].settings["forwards"] == 100


def test_the_row_that_tells_the_explained_class_is_counted():
    model, judge = Calls(mlp(200)), Calls(mlp(200, seed=1))
    curve = M.softmax_information_curve(model, row(n=200), torch.arange(200), judge=judge)
    assert sum(model.value_rows) + sum(judge.value_rows) == curve.settings["forwards"] == 101


@pytest.mark.parametrize("judged", [False, True])
def test_the_explained_class_is_not_asked_for_again(judged):
    model, judge = Calls(mlp(200)), Calls(mlp(200, seed=1))
    x = row(n=200)
    a = gp.explain(model, x, method=TWO)
    del model.value_rows[:]
    M.deletion(model, x, a, judge=judge if judged else None)
    assert sum(model.value_rows) == (0 if judged else 100)
    assert sum(judge.value_rows) == (100 if judged else 0)


def test_several_baselines_share_the_full_input():
    calls = Calls(mlp())
    curve = M.softmax_information_curve(calls, row(), torch.arange(6), baseline=[0.0, 1.0])
    assert sum(calls.value_rows) == 1 + 2 * 6
    each = [
        M.softmax_information_curve(mlp(), row(), torch.arange(6), baseline=b) for b in (0.0, 1.0)
    ]
    assert curve.values.tolist() == pytest.approx(M.mean_curve(each).values.tolist(), rel=1e-6)


def test_each_of_many_examples_is_as_alone():
    calls = Calls(mlp())
    xs = [row(s) for s in range(3)]
    orders = [torch.randperm(6, generator=torch.Generator().manual_seed(s)) for s in range(3)]
    many = list(M.information_curves_many(calls, xs, orders))
    assert sum(calls.value_rows) == 3 * 7
    for x, order, curves in zip(xs, orders, many, strict=True):
        alone = M.information_curves(mlp(), x, order)
        for kind in ("softmax", "loss"):
            assert torch.allclose(curves[kind].values, alone[kind].values, rtol=1e-5, atol=1e-7)


def test_many_examples_are_read_one_at_a_time():
    read = []

    def xs():
        for s in range(5):
            read.append(s)
            yield row(s)

    curves = M.information_curves_many(mlp(), xs(), (torch.arange(6) for _ in range(5)))
    next(curves)
    assert read == [0]
    assert sum(1 for _ in curves) == 4


def test_examples_of_different_shapes_and_fixed_inputs_follow_each_other():
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
    xs = [picture(0), picture(1, (3, 4, 4)), picture(2, (3, 4, 4))]
    orders = [torch.arange(x.numel()) for x in xs]
    result = list(M.information_curves_many(net, xs, orders, target=[0, 1, 2], points=5))
    assert [c["softmax"].settings["target"] for c in result] == [0, 1, 2]
    for x, order, c, k in zip(xs, orders, result, range(3), strict=True):
        alone = M.softmax_information_curve(net, x, order, target=k, points=5)
        assert torch.allclose(c["softmax"].values, alone.values, atol=1e-7)
    both, rows = TwoInputs(), [row(s, 5) for s in range(2)]
    images = [picture(s, (3, 2, 2)) for s in range(2)]
    many = list(M.information_curves_many(both, images, [torch.arange(12)] * 2, fixed=rows))
    for image, own, curves in zip(images, rows, many, strict=True):
        alone = M.loss_information_curve(both, image, torch.arange(12), fixed=own)
        assert torch.allclose(curves["loss"].values, alone.values, atol=1e-6)


def test_what_is_under_way_is_finished_before_an_error_is_raised():
    xs = [row(0), row(1), torch.full((6,), float("nan")), row(3)]
    result = []
    with pytest.raises(gp.InvalidInput, match="finite input") as caught:
        result.extend(M.information_curves_many(mlp(), xs, [torch.arange(6)] * 4, batch_size=50))
    assert len(result) == 2
    assert "input 2 of information_curves_many" in caught.value.__notes__[0]


@pytest.mark.parametrize(("xs", "orders"), [(3, 2), (2, 3)])
def test_as_many_attributions_as_examples(xs, orders):
    with pytest.raises(gp.InvalidInput, match="Expected one"):
        list(M.information_curves_many(mlp(), [row()] * xs, [torch.arange(6)] * orders))


# Rankings


def test_one_shot_scores_are_ranked_by_absolute_value_and_greedy_ones_by_order():
    ig = gp.explain(MODEL, X, method="ig", target=0)
    greedy = gp.explain(MODEL, X, target=0, method=FOUR)
    one, many = (M.softmax_information_curve(MODEL, X, a) for a in (ig, greedy))
    assert one.settings["ranking"] == "absolute"
    assert many.settings["ranking"] == "order"
    sums = [0.0, 3.0, 1.0, 2.0, 2.5]  # |weights| 3, 2, 1, 0.5
    assert one.values.tolist() == pytest.approx([sigmoid(s) for s in sums], rel=1e-6)
    assert many.values.tolist() == pytest.approx([sigmoid(s) for s in SUMS], rel=1e-6)


def test_both_rankings_are_offered_for_either():
    ig = gp.explain(MODEL, X, method="ig", target=0)
    for ranking in ("signed", "order"):
        result = M.softmax_information_curve(MODEL, X, ig, ranking=ranking)
        assert result.values.tolist() == pytest.approx([sigmoid(s) for s in SUMS], rel=1e-6)
    greedy = gp.explain(MODEL, X, target=0, method=FOUR, objective="logit")
    result = M.softmax_information_curve(MODEL, X, greedy, ranking="absolute")
    sums = [0.0, 3.0, 1.0, 2.0, 2.5]
    assert result.values.tolist() == pytest.approx([sigmoid(s) for s in sums], rel=1e-6)


def test_one_round_of_k_is_a_choice_and_the_rest_follows_by_its_scores():
    a = gp.explain(MODEL, X, target=0, objective="logit", method=ONE, k=1)
    result = M.softmax_information_curve(MODEL, X, a)
    assert result.settings["ranking"] == "order"
    sums = [0.0, 3.0, 4.0, 4.5, 2.5]
    assert result.values.tolist() == pytest.approx([sigmoid(s) for s in sums], rel=1e-6)


def test_scores_shaped_like_the_input_are_ranked_with_ties_by_index():
    scores = torch.tensor([1.0, 1.0, -1.0, 1.0])
    signed = M.softmax_information_curve(MODEL, X, scores, ranking="signed")
    sums = [0.0, 1.0, -1.0, -0.5, 2.5]  # 0, 1, 3, then 2
    assert signed.values.tolist() == pytest.approx([sigmoid(s) for s in sums], rel=1e-6)
    absolute = M.softmax_information_curve(MODEL, X, scores)
    sums = [0.0, 1.0, -1.0, 2.0, 2.5]  # 0, 1, 2, 3
    assert absolute.values.tolist() == pytest.approx([sigmoid(s) for s in sums], rel=1e-6)


def test_many_ties_go_by_index():
    values = torch.arange(5000) % 2 / 2
    needed, _ = counts_needed(values, Layout.of(values))
    order = torch.cat([torch.arange(1, 5000, 2), torch.arange(0, 5000, 2)])
    assert torch.equal(needed.argsort(), order)


def test_a_feature_is_shown_whole_or_not_at_all():
    a = gp.explain(MODEL, X, features=torch.tensor([0, 1, 1, 0]), target=0, method=TWO)
    assert a.order.tolist() == [0, 1]
    result = M.softmax_information_curve(MODEL, X, a)
    sums = [0.0, 0.0, 1.5, 1.5, 2.5]  # One value has room for no feature.
    assert result.values.tolist() == pytest.approx([sigmoid(s) for s in sums], rel=1e-6)


def test_masks_of_whole_features_are_the_attributions_own():
    net, x = cnn(), picture(shape=(3, 6, 6))
    for features in ("pixels", gp.grid(2), gp.windows(3)):
        a = gp.explain(net, x, features=features, method=FOUR, baseline=0.5)
        sizes = [int(a.mask(k).sum()) for k in range(1, a.features.count)]
        k = next(k for k, size in enumerate(sizes, 1) if size > 20)
        share = sizes[k - 1] / x.numel()
        result = M.softmax_information_curve(net, x, a, points=[0, share])
        kept = torch.where(a.mask(k), x, torch.tensor(0.5))
        expected = torch.softmax(net(kept.unsqueeze(0)), 1)[0, a.settings["target"]].detach()
        assert float(result.values[1]) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("a", "says"),
    [
        (torch.tensor([0, 1, 2, 2]), "permutation"),
        (torch.tensor([0, 1, 2]), "permutation"),
        (torch.tensor([[0, 1, 2, 3]]), "permutation"),
        (torch.ones(3), "shaped like x"),
        (torch.tensor([1.0, 2.0, float("nan"), 0.0]), "finite"),
    ],
)
def test_what_is_no_ranking_is_refused(a, says):
    with pytest.raises(gp.InvalidInput, match=says):
        M.softmax_information_curve(MODEL, X, a)


def test_a_ranking_that_does_not_fit_is_refused():
    with pytest.raises(gp.InvalidInput, match="a permutation has no scores"):
        M.softmax_information_curve(MODEL, X, BEST, ranking="absolute")
    with pytest.raises(gp.InvalidInput, match="scores have no order of selection"):
        M.softmax_information_curve(MODEL, X, torch.rand(4), ranking="order")
    with pytest.raises(gp.InvalidInput, match="order, absolute, signed"):
        M.softmax_information_curve(MODEL, X, BEST, ranking="best")
    with pytest.raises(gp.InvalidType, match="Attribution, a permutation"):
        M.softmax_information_curve(MODEL, X, "greedy")
    other = gp.explain(mlp(), row(), method=ONE)
    with pytest.raises(gp.InvalidInput, match=r"shaped \(4,\)"):
        M.softmax_information_curve(MODEL, X, other)


def test_a_map_of_pixels_is_told_how_to_fit():
    with pytest.raises(gp.InvalidInput, match="expand_as"):
        M.softmax_information_curve(cnn(), picture(), torch.rand(6, 5))


# What is explained stays what is judged


def test_target_and_baseline_are_those_of_the_attribution():
    a = gp.explain(MODEL, X, target=1, baseline=2.0, method=TWO)
    result = M.softmax_information_curve(MODEL, X, a)
    assert result.settings["target"] == 1
    assert result.values[0] == pytest.approx(1 - sigmoid(5.0), rel=1e-5)
    other = M.softmax_information_curve(MODEL, X, a, target=0, baseline=0.0)
    assert other.values[0] == pytest.approx(0.5)


def test_an_objective_of_one_s_own_names_no_class():
    a = gp.explain(MODEL, X, objective=lambda logits: logits[:, 0], method=TWO)
    assert M.softmax_information_curve(MODEL, X, a).settings["target"] == 0
    low = torch.tensor([0.0, 1.0, 0.0, 0.0])
    a = gp.explain(MODEL, low, objective=lambda logits: logits[:, 0], method=TWO)
    assert M.softmax_information_curve(MODEL, low, a).settings["target"] == 1


def test_a_baseline_that_was_not_recorded_must_be_given():
    a = gp.explain(MODEL, X, baseline=torch.full((4,), 2.0), method=TWO)
    with pytest.raises(gp.InvalidInput, match="baseline"):
        M.softmax_information_curve(MODEL, X, a)
    result = M.softmax_information_curve(MODEL, X, a, baseline=torch.full((4,), 2.0), target=0)
    assert result.values[0] == pytest.approx(sigmoid(5.0), rel=1e-5)


def test_a_saved_attribution_gives_the_same_curve(tmp_path):
    a = gp.explain(MODEL, X, method=TWO)
    a.save(tmp_path / "a.gpig")
    result = M.information_curves(MODEL, X, gp.load(tmp_path / "a.gpig"))
    again = M.information_curves(MODEL, X, a)
    assert all(bits(result[k].values) == bits(again[k].values) for k in result)


def test_probabilities_and_logits_give_one_curve():
    net = linear(4)
    ready = nn.Sequential(net, nn.Softmax(1))
    x, order = row(n=4), torch.arange(4)
    a = M.information_curves(net, x, order)
    b = M.information_curves(ready, x, order, outputs="probabilities")
    for kind in a:
        assert torch.allclose(a[kind].values, b[kind].values, atol=1e-6)


def test_a_single_output_is_followed_and_has_no_loss_curve():
    net = nn.Linear(4, 1)
    curve = M.softmax_information_curve(net, torch.ones(4), torch.arange(4))
    assert curve.values[0] == pytest.approx(net.bias.item(), rel=1e-6)
    assert curve.values[-1] == pytest.approx((net.bias + net.weight.sum()).item(), rel=1e-5)
    with pytest.raises(gp.InvalidInput, match="class scores"):
        M.information_curves(net, torch.ones(4), torch.arange(4))


def test_several_inputs_by_position_or_name():
    net, image, tail = TwoInputs(), picture(shape=(3, 2, 2)), row(n=5)
    order = torch.randperm(17, generator=torch.Generator().manual_seed(0))
    by_place = M.softmax_information_curve(net, (image, tail), order)
    renumbered = torch.where(order < 12, order + 5, order - 12)  # Of (row, image).
    by_name = M.softmax_information_curve(net, {"row": tail, "image": image}, renumbered)
    assert torch.allclose(by_place.values, by_name.values, atol=1e-7)
    scores = {"image": torch.rand(3, 2, 2), "row": torch.rand(5)}
    result = M.softmax_information_curve(net, {"row": tail, "image": image}, scores)
    other = M.softmax_information_curve(net, (image, tail), (scores["image"], scores["row"]))
    assert torch.allclose(result.values, other.values, atol=1e-7)


def test_an_answer_that_is_not_finite_is_named():
    def model(x):
        return torch.stack([x.sum(1) / (x.sum(1) != 1), x[:, 0]], 1)

    x, order = torch.ones(3), torch.arange(3)
    with pytest.raises(gp.NonFinite, match="with 1 of 3 values present"):
        M.softmax_information_curve(model, x, order)
    with pytest.raises(gp.NonFinite, match="with 2 of 3 values removed"):
        M.deletion(model, x, order)


# A second opinion


class Seen(nn.Module):
    """A network that knows how pictures become its inputs: x = (pixels − mean) / std."""

    def __init__(self, mean: float, std: float, size: int = 6, seed: int = 0) -> None:
        super().__init__()
        self.net = cnn(seed=seed).requires_grad_(False)
        self.mean, self.std, self.size = mean, std, size

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def to_pixels(self, x: Tensor) -> Tensor:
        return (x * self.std + self.mean).clamp(0, 1)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        return self.size, self.size

    def baseline(self, name: str) -> Tensor:
        return self.from_pixels(torch.tensor({"gray": 0.5, "black": 0.0, "white": 1.0}[name]))


def test_a_judge_with_another_normalisation_sees_the_same_pictures():
    model, judge = Seen(0.4, 0.3), Seen(0.1, 0.7, seed=3)
    pixels = picture(shape=(3, 6, 6))
    x = model.from_pixels(pixels)
    a = gp.explain(model, x, method=THREE)
    result = M.information_curves(model, x, a, judge=judge, points=6)
    counts, ranks = counts_of(6, x.numel()), torch.empty(108, dtype=torch.long)
    ranks[a.ranking()] = torch.arange(108)
    target = a.settings["target"]
    for count, value, loss in zip(
        counts, result["softmax"].values, result["loss"].values, strict=True
    ):
        kept = torch.where(ranks.view(3, 6, 6) < count, pixels, torch.tensor(0.5))
        by_hand = torch.log_softmax(judge(judge.from_pixels(kept).unsqueeze(0))[0].double(), 0)
        whole = torch.log_softmax(judge(judge.from_pixels(pixels).unsqueeze(0))[0].double(), 0)
        assert float(value) == pytest.approx(float(by_hand[target].exp()), rel=1e-4)
        distance = (whole.exp() * (whole - by_hand)).sum()
        assert float(loss) == pytest.approx(float(distance), rel=1e-3, abs=1e-6)
    assert result["softmax"].settings["judge"] == "Seen"


def test_a_judge_is_asked_about_the_explained_class():
    model, judge = Seen(0.4, 0.3), Seen(0.1, 0.7, seed=3)
    for seed in range(20):
        x = model.from_pixels(picture(seed, (3, 6, 6)))
        mine = int(model(x[None]).argmax())
        other = int(judge(judge.from_pixels(model.to_pixels(x))[None]).argmax())
        if mine != other:
            break
    assert mine != other
    result = M.softmax_information_curve(model, x, torch.arange(108), judge=judge, points=3)
    assert result.settings["target"] == mine


def test_a_judge_of_another_size_gets_the_picture_resized():
    model, judge = Seen(0.4, 0.3), Seen(0.1, 0.7, size=12, seed=3)
    shapes = []
    judge.net.register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0].shape[1:])))
    x = model.from_pixels(picture(shape=(3, 6, 6)))
    result = M.softmax_information_curve(model, x, torch.arange(108), judge=judge, points=3)
    assert set(shapes) == {(3, 12, 12)}
    gray = judge.from_pixels(torch.full((1, 3, 12, 12), 0.5))
    expected = torch.softmax(judge(gray), 1)[0, result.settings["target"]]
    assert float(result.values[0]) == pytest.approx(float(expected), rel=1e-4)


def test_a_plain_judge_takes_the_same_tensor():
    judge = mlp(seed=4)
    order = torch.arange(6)
    result = M.softmax_information_curve(mlp(), row(), order, judge=judge, target=2)
    alone = M.softmax_information_curve(judge, row(), order, target=2)
    assert torch.allclose(result.values, alone.values)


def test_the_model_as_its_own_judge_changes_nothing():
    model, x = Seen(0.4, 0.3), picture(shape=(3, 6, 6))
    a = gp.explain(model, x, method=TWO)
    own = M.softmax_information_curve(model, x, a, points=5)
    result = M.softmax_information_curve(model, x, a, judge=model, points=5)
    assert torch.allclose(own.values, result.values)


def test_a_class_the_judge_does_not_have_is_refused():
    with pytest.raises(gp.InvalidInput, match="class from 0 to 2"):
        M.softmax_information_curve(
            mlp(classes=9), row(), torch.arange(6), target=7, judge=mlp(classes=3)
        )


# Nothing is left behind


def test_the_model_and_the_callers_state_are_untouched():
    net, x = cnn().train(), picture()
    net[1].eval()
    modes = [m.training for m in net.modules()]
    before = {k: bits(v) for k, v in net.state_dict().items()}
    state, kept = torch.get_rng_state(), x.clone()
    with torch.inference_mode():
        curve = M.softmax_information_curve(net, x, torch.arange(x.numel()), points=5)
    assert [m.training for m in net.modules()] == modes
    assert {k: bits(v) for k, v in net.state_dict().items()} == before
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, kept)
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    assert not curve.values.requires_grad


def test_the_fast_copy_answers_like_the_network():
    net, x = cnn(), picture()
    order = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))
    fast = M.information_curves(net, x, order, points=20)
    plain = M.information_curves(lambda x: net(x), x, order, points=20)
    for kind in fast:
        assert torch.allclose(fast[kind].values, plain[kind].values, atol=1e-5)


# Curves of many


def curve(values, fractions=(0, 0.5, 1), name="softmax", **settings):
    return M.Curve(fractions, values, name, values[-1], settings)


def test_the_median_is_taken_at_each_fraction():
    odd = M.median_curve([curve([0, 5, 1]), curve([1, 3, 2]), curve([9, 4, 0])])
    assert odd.values.tolist() == [1, 4, 1]
    assert odd.full == 1
    even = M.median_curve([curve([0, 2, 1]), curve([1, 3, 2])])
    assert even.values.tolist() == [0.5, 2.5, 1.5]
    assert even.settings["examples"] == 2


def test_the_mean_curve_has_the_mean_area():
    curves = [curve([0, 5, 1]), curve([1, 3, 2]), curve([9, 4, 0])]
    result = M.mean_curve(curves)
    assert result.auc == pytest.approx(sum(c.auc for c in curves) / 3)


def test_only_settings_that_all_share_are_kept():
    curves = [curve([0, 1, 1], target=target, ranking="order") for target in (3, 4)]
    result = M.median_curve(curves)
    assert result.settings == {"ranking": "order", "combined": "median", "examples": 2}


def test_curves_that_do_not_belong_together_are_refused():
    with pytest.raises(gp.InvalidInput, match="same fractions"):
        M.median_curve([curve([0, 1, 1]), curve([0, 1, 1], fractions=(0, 0.4, 1))])
    with pytest.raises(gp.InvalidInput, match="same fractions"):
        M.median_curve([curve([0, 1, 1]), curve([0, 1], fractions=(0, 1))])
    with pytest.raises(gp.InvalidInput, match="one kind"):
        M.median_curve([curve([0, 1, 1]), curve([0, 1, 1], name="loss")])
    with pytest.raises(gp.InvalidInput, match="at least one"):
        M.median_curve([])
    with pytest.raises(gp.InvalidType, match="float"):
        M.mean_curve([curve([0, 1, 1]), 1.0])


def test_a_curve_goes_through_json_and_back():
    one = M.softmax_information_curve(MODEL, X, BEST)
    text = json.dumps(one.to_dict(), allow_nan=False)
    back = M.Curve.from_dict(json.loads(text))
    assert torch.equal(back.values, one.values)
    assert torch.equal(back.fractions, one.fractions)
    assert back.to_dict() == one.to_dict()
    with pytest.raises(gp.InvalidInput, match="fractions"):
        M.Curve.from_dict({"name": "softmax"})


def test_curves_are_frozen_and_checked():
    one = curve([0, 1, 1])
    with pytest.raises(AttributeError):
        one.name = "loss"
    with pytest.raises(gp.InvalidInput, match="two points"):
        M.Curve([0.0], [1.0], "softmax", 1.0)
    with pytest.raises(gp.InvalidInput, match="rise"):
        M.Curve([0.0, 1.0, 0.5], [1.0, 1.0, 1.0], "softmax", 1.0)


def test_a_judge_that_counts_its_classes_otherwise_is_refused():
    model, judge = mlp(), mlp(seed=1)
    model.classes, judge.classes = ("a", "b", "c"), ("b", "a", "c")
    with pytest.raises(ValueError, match="classes of the model, in the same order"):
        M.softmax_information_curve(model, row(), torch.arange(6), judge=judge)
    judge.classes = ["a", "b", "c"]
    M.softmax_information_curve(model, row(), torch.arange(6), judge=judge)
