"""Scores that hold under other views: crops, noise, random parts of the rest, soft kinks."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import greedypig as gp
from agreement import agree
from greedypig.core.rounds import Round
from greedypig.images.soft_relu import SoftReLU
from greedypig.images.steady import Crop, around, best_compromise, closeness, interpolation
from names import without_address
from nets import cnn, picture, unfolded

STEADY = gp.SteadyPIG(rounds=4)


def plane(weights):
    """A model of one output: Σ weights · picture."""
    return lambda pictures: (pictures * weights).flatten(1).sum(1)


def slopes(function, x, width=0.5):
    x = x.clone().requires_grad_(True)
    with SoftReLU(width, len(x)):
        out = function(x * 1.0)
    return out.detach(), torch.autograd.grad(out.sum(), x)[0]


# Views.


@pytest.mark.parametrize(("share", "place"), [(1.0, 0.0), (0.5, 0.0), (0.5, 0.9), (0.37, 0.6)])
def test_interpolated_lines_are_means_and_keep_straight_lines_straight(share, place):
    weights = interpolation(20, share, place)
    assert torch.allclose(weights.sum(1), torch.ones(20, dtype=torch.float64))
    assert float(weights.min()) >= 0
    steps = (weights @ torch.arange(20, dtype=torch.float64)).diff()
    straight = torch.isclose(steps, torch.full((19,), share, dtype=torch.float64))
    assert int((~straight).sum()) <= 4  # Only where it wraps around the end.


def test_every_place_is_seen_equally_often():
    for share in (0.4, 0.7, 1.0):
        places = [interpolation(16, share, i / 16).sum(0) for i in range(16)]
        assert torch.allclose(sum(places), torch.full((16,), 16.0, dtype=torch.float64))


def test_the_whole_line_is_seen_as_it_is():
    assert torch.equal(interpolation(9, 1.0, 0.0), torch.eye(9, dtype=torch.float64))
    assert torch.equal(interpolation(1, 0.5, 0.5), torch.ones(1, 1, dtype=torch.float64))


def test_a_gradient_comes_back_by_the_adjoint_of_the_crop():
    torch.manual_seed(0)
    for chance in ([0.0, 0.2, 0.9, 0.1], [0.5, 0.5, 0.5, 0.9], [1.0, 0.0, 0.0, 0.4]):
        view = Crop.drawn((3, 12, 10), 0.15, chance, torch.zeros(1, dtype=torch.float64))
        x, g = torch.randn(2, 360, dtype=torch.float64)
        leaf = x.clone().requires_grad_(True)
        (back,) = torch.autograd.grad(view(leaf) @ g, leaf)
        assert torch.allclose(view(x) @ g, x @ back)


def test_a_view_enlarges_a_corner_and_mirrors_it():
    x = torch.zeros(1, 8, 8)
    x[0, :4, :4] = 1
    like = torch.zeros(1)
    seen = Crop.drawn((1, 8, 8), 0.25, [0.0, 0.0, 0.0, 0.9], like)(x.reshape(-1)).view(8, 8)
    assert torch.equal(seen[1:7, 1:7], torch.ones(6, 6))
    mirrored = Crop.drawn((1, 8, 8), 0.25, [0.0, 0.0, 0.0, 0.1], like)(x.reshape(-1)).view(8, 8)
    assert torch.equal(mirrored, seen.flip(1))


# Places.


def test_places_score_as_their_neighbours_do_on_average():
    """Of a single score its place has the neighbourhood's weights; even scores are even places."""
    scores = torch.zeros(2, 28, 28, dtype=torch.float64)
    scores[1, 10, 4] = 3
    nobody = torch.zeros(2 * 28 * 28)
    places = around(scores.reshape(-1), nobody, (2, 28, 28)).view(2, 28, 28)
    assert torch.equal(places[0], places[1])
    assert int(places[0].argmax()) // 28 == 10  # Rows far from an edge have the same weights.
    line = closeness(28, 2.0)
    expected = torch.outer(line[10] / line.sum(1), line[4] / line.sum(1))
    assert torch.allclose(places[0] / places[0].sum(), expected / expected.sum())
    assert torch.allclose(places.square().mean(), scores.square().mean())
    even = around(torch.full((2 * 28 * 28,), 0.7), nobody, (2, 28, 28))
    assert torch.allclose(even, torch.full_like(even, 0.7))


def test_what_is_selected_is_no_part_of_its_place():
    scores, mask = torch.full((3, 20, 20), 2.0), torch.zeros(3, 20, 20)
    scores[:, :8], mask[:, :8] = 0, 1
    places = around(scores.reshape(-1), mask.reshape(-1), (3, 20, 20))
    assert torch.allclose(places, places[0].expand(1200))
    full = around(torch.zeros(1200), torch.ones(1200), (3, 20, 20))
    assert torch.equal(full, torch.zeros(1200))


def test_a_lone_helper_amid_harm_waits():
    """Weights of ±1 with more − on the left, all of 0.9 on the right: the right comes first."""
    weights = torch.full((3, 28, 28), 0.9)
    chance = torch.rand(3, 28, 14, generator=torch.Generator().manual_seed(0))
    weights[:, :, :14] = torch.where(chance < 0.3, 1.0, -1.0)
    x = torch.ones(3, 28, 28)
    first = {
        place: gp.explain(
            plane(weights), x, baseline="zero", method=gp.SteadyPIG(rounds=1, place=place)
        ).mask(200)
        for place in (0, 1)
    }
    assert int(first[0][:, :, :14].sum()) == 200
    assert int(first[1][:, :, 14:].sum()) == 200


def test_places_count_until_a_tenth_is_selected():
    net, x = cnn(), picture()
    alike = []

    def scores(objective, round):
        placed, plain = (gp.SteadyPIG(place=p).scorer(objective, round) for p in (1, 0))
        alike.append(torch.equal(placed, plain))
        return plain

    n = x.numel()
    gp.explain(net, x, method=gp.Greedy(scores, schedule=[n // 12, n // 12, n // 12]))
    assert alike == [False, False, True]


# Matching the photo's probability.


def side_by_side():
    """Helpful and harmful weights, by turns, of sum 3."""
    places = torch.arange(32).unsqueeze(1) + torch.arange(32)
    weights = torch.where(places % 2 == 0, 1.0, -1.0).expand(3, 32, 32) / 40
    return weights + 3 / weights.numel()


def unsure(b):
    """p = σ(Σ weights · x − 3): p(0) = 0.05, p(1) = 0.5."""
    logits = (b * side_by_side()).flatten(1).sum(1) - 3
    return torch.stack([torch.zeros_like(logits), logits], 1)


def test_without_views_harmful_values_come_last():
    x = torch.ones(3, 32, 32)
    method = gp.SteadyPIG(rounds=20, noise=0, crop=1, ratio=50)
    exact = gp.explain(unsure, x, target=1, baseline="zero", method=replace(method, place=0))
    harmful = (side_by_side() < 0).reshape(-1)
    assert int(harmful[exact.order[:1536]].sum()) == 0
    a = gp.explain(unsure, x, target=1, baseline="zero", method=method)
    assert int(harmful[a.order[:307]].sum()) == 0


def test_an_unsure_photo_is_exceeded_by_halfway_and_not_lost():
    """p(x) = 0.5: helpful values alone give p = 1; a compromise stays between 0.5 and that."""
    x = torch.ones(3, 32, 32)
    method = gp.SteadyPIG(rounds=40, noise=0, crop=0.5, place=0)
    a = gp.explain(unsure, x, target=1, baseline="zero", method=method)
    reached = int((a.values >= a.full_value).nonzero()[0])
    after = a.values[reached + 1 : -1]
    assert len(after) > 20
    assert bool((after >= a.full_value).all())
    assert float((after - 0.75).abs().median()) < 0.1
    certain = gp.explain(unsure, x, target=1, baseline="zero", method=replace(method, crop=1))
    assert float(certain.values.max()) > 0.99


def test_the_compromise_is_the_one_nearest_halfway_from_above():
    """p = Σ weights of the picks: 0.9 by g's own scores, 0.6 by the mixture 1/4, less by others."""
    weights = torch.tensor([0.9, 0.6, 0.1, 0.2])
    objective = gp.objective(lambda masks: masks @ weights, 4)
    first_round = Round(torch.zeros(1, 4), gp.Elements(4), torch.zeros(1, 4, dtype=torch.bool))
    own, match = torch.tensor([[3.0, 2.9, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 2.0, 0.0]])

    def first(full):
        full = torch.tensor([full])
        return int(best_compromise(objective, first_round, own, match, full).argmax())

    assert first(0.3) == 1  # Halfway is 0.65, and 0.6 ≥ 0.3.
    assert first(0.7) == 0  # 0.6 is below 0.7.
    assert first(0.95) == 0  # All are below: g's own.


# Kinks.

KINKED = {
    "function": F.relu,
    "module": nn.ReLU(),
    "torch": torch.relu,
    "method": lambda x: x.relu(),
    "module in place": nn.ReLU(inplace=True),
    "in place": lambda x: x.relu_(),
    "by torch in place": lambda x: torch.relu_(x),
}


@pytest.mark.parametrize("function", KINKED.values(), ids=KINKED)
def test_values_are_relu_s_and_slopes_a_ramp(function):
    x = torch.tensor([[-2.0, -0.5, 0.0, 0.5, 2.0]])
    wide = 2 * 0.5 * x.std(correction=0)
    out, slope = slopes(function, x)
    assert torch.equal(out, x.relu())
    assert torch.allclose(slope, (x / wide + 0.5).clamp(0, 1))


@pytest.mark.parametrize("function", [nn.ReLU6(), F.relu6, lambda x: F.hardtanh(x, 0.0, 6.0)])
def test_two_kinks_have_two_ramps(function):
    x = torch.tensor([[-9.0, -1.0, 0.0, 3.0, 6.0, 7.0, 20.0]])
    wide = 2 * 0.1 * x.std(correction=0)
    out, slope = slopes(function, x, 0.1)
    assert torch.equal(out, x.clamp(0, 6))
    expected = (torch.minimum(x, 6 - x) / wide + 0.5).clamp(0, 1)
    assert torch.allclose(slope, expected, atol=1e-5)


def test_every_row_has_its_own_width_whoever_is_beside_it():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[0.1], [1], [10], [100]]
    )
    together = slopes(F.relu, x)[1]
    for i in range(4):
        assert torch.allclose(slopes(F.relu, x[i : i + 1])[1][0], together[i], atol=1e-5)


def test_what_is_no_row_stays_as_it_is_and_so_does_all_outside():
    x = torch.tensor([[-0.1, 0.1]], requires_grad=True)
    with SoftReLU(0.5, rows=3):
        out = F.relu(x)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.tensor([[0.0, 1.0]]))
    out = F.relu(x)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.tensor([[0.0, 1.0]]))


# Scores.


def test_whole_views_of_a_linear_model_score_exactly():
    torch.manual_seed(0)
    weights, x = torch.randn(3, 8, 8), torch.rand(3, 8, 8) + 0.5
    scorer = gp.SteadyPIG(rounds=1, views=2, place=0)
    a = gp.explain(plane(weights), x, baseline="zero", method=scorer)
    assert torch.allclose(a.scores, weights * x, atol=1e-5)


def test_crops_prefer_what_does_not_hang_on_single_pixels():
    """Weights that alternate from pixel to pixel are an accident of the grid; even ones are not."""
    places = torch.arange(32).unsqueeze(1) + torch.arange(32)
    weights = torch.zeros(3, 32, 32)
    weights[0] = torch.where(places % 2 == 0, 1.5, -1.5)
    weights[1], weights[2] = 1.0, -0.9  # 160 picks give more than the whole: 240 > 102.4.
    model, x = plane(weights), torch.ones(3, 32, 32)
    plain = gp.explain(model, x, method="ig").mask(512)
    assert bool(plain[0].sum() == 512)
    method = gp.SteadyPIG(views=40, noise=0, place=0, schedule=[160, 512])
    a = gp.explain(model, x, method=method)
    first, then = a.mask(160), a.mask(672)
    assert bool(first[0].sum() == 160)  # The picture is seen as it is.
    assert int((then & ~first)[1].sum()) > 480


def test_it_costs_steps_a_round_and_depends_on_the_seed_alone():
    model, x = cnn(), picture(0)
    a = gp.explain(model, x, method=STEADY)
    assert a.gradients_used == 12
    assert torch.equal(a.order, gp.explain(model, x, method=STEADY).order)
    assert not torch.equal(a.order, gp.explain(model, x, seed=1, method=STEADY).order)
    assert sorted(a.order.tolist()) == list(range(x.numel()))


def test_everything_is_evaluated_once_by_the_scorer_however_many_rounds():
    x, rows = picture(0, (3, 16, 16)), []

    def model(points):
        rows.append(int((points == x).flatten(1).all(1).sum()))
        return torch.stack([8 * points.flatten(1).mean(1), points[:, 0, 0, 0]], 1)

    counts = []
    for rounds in (2, 6):
        rows.clear()
        gp.explain(model, x, method=gp.SteadyPIG(rounds=rounds, views=2))
        counts.append(sum(rows))
    assert counts[0] == counts[1]


def test_views_that_outnumber_a_batch_score_alike():
    model, x = cnn(), picture(0)
    scorer = gp.SteadyPIG(rounds=1, views=7)
    whole = gp.explain(model, x, batch_size=7, method=scorer)
    parts = gp.explain(model, x, batch_size=3, method=scorer)
    agree(whole, parts)


def test_noise_alone_moves_and_mirrors_nothing():
    """With crop=1 a linear model's scores are its own, whatever the noise."""
    torch.manual_seed(0)
    weights, x = torch.randn(3, 12, 12), torch.rand(3, 12, 12) + 0.5
    method = gp.SteadyPIG(rounds=5, crop=1, noise=0.2, place=0)
    a = gp.explain(plane(weights), x, baseline="zero", method=method)
    assert torch.equal(a.order, (weights * x).reshape(-1).argsort(descending=True))


def test_each_picture_is_answered_as_alone_and_goes_on_where_it_stopped(tmp_path):
    model, xs = cnn(), [picture(s) for s in range(3)]
    many = list(gp.explain_many(model, xs, method=STEADY))
    assert len(many) == 3
    for place, found in enumerate(many):
        agree(found, gp.explain(model, xs[place], method=STEADY, seed=(0, place)))
    options = {"method": STEADY, "checkpoint": tmp_path / "a.gpig"}
    half = gp.explain(model, xs[0], stop=gp.Stop(gradients=6), **options)
    whole = gp.explain(model, xs[0], **options)
    assert half.selected < whole.selected
    assert torch.equal(whole.order, gp.explain(model, xs[0], method=STEADY).order)


def test_equal_pictures_are_seen_in_views_of_their_own():
    one, other = gp.explain_many(cnn(), [picture(0)] * 2, method=STEADY)
    assert not torch.equal(one.feature_scores, other.feature_scores)


def test_callables_windows_and_counterfactuals_are_scored_too():
    net, x = cnn(), picture(1)
    by_call = gp.explain(unfolded(net), x, method=STEADY)
    agree(by_call, gp.explain(net, x, method=STEADY), 1e-3)
    for options in (
        {"features": "pixels"},
        {"features": gp.windows(3)},
        {"objective": "counterfactual"},
        {"baseline": [0.0, 0.5]},
    ):
        a = gp.explain(net, x, method=STEADY, **options)
        assert bool(torch.isfinite(a.values).all())


def test_the_model_is_as_it_was():
    net, x = cnn(), picture(1)
    net.train()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    gp.explain(net, x, method=STEADY)
    assert net.training
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    y = torch.tensor([[-1.0, 1.0]], requires_grad=True)
    assert torch.equal(torch.autograd.grad(F.relu(y).sum(), y)[0], torch.tensor([[0.0, 1.0]]))


def large():
    torch.manual_seed(0)
    pool = (nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 5))
    return nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.ReLU(), *pool), torch.rand(3, 128, 128)


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({}, "steady-pig"),
        ({"features": "pixels"}, "steady-pig"),
        ({"features": gp.grid(32)}, "steady-pig"),
        ({"objective": "log-probability"}, "greedy-pig"),
        ({"objective": "counterfactual"}, "greedy-pig"),
        ({"objective": "log-likelihood"}, "sequential-gradient"),
        ({"method": "greedy-pig"}, "greedy-pig"),
    ],
    ids=without_address,
)
def test_steady_pig_is_chosen_for_the_probability_of_photos(options, method):
    net, x = large()
    a = gp.explain(net, x, **options)
    assert a.method == method
    cost = {"steady-pig": 3, "greedy-pig": 5, "sequential-gradient": 1}[method]
    assert a.gradients_used == cost * len(a.picks)
    rounds = {"steady-pig": 33, "greedy-pig": 20, "sequential-gradient": 100}[method]
    assert len(a.picks) == min(rounds, a.features.count)


def test_small_and_gray_pictures_are_explained_by_greedy_pig():
    net, x = large()
    gray = nn.Sequential(nn.Conv2d(1, 3, 1), net)
    for model, seen in ((net, x[:, :127]), (gray, x[:1])):
        assert gp.explain(model, seen, stop=gp.Stop(gradients=5)).method == "greedy-pig"


# Where views begin, and where they lie.


def test_the_picture_is_seen_as_it_is_until_the_prediction_is_reached():
    """p = σ(Σ picks): as long as p(S) < p(x) the scores are exact, whatever crops would show."""
    torch.manual_seed(0)
    weights = torch.rand(3, 16, 16) + 0.5
    model = lambda b: torch.stack([torch.zeros(len(b)), (b * weights).flatten(1).sum(1) / 99], 1)  # noqa: E731
    a = gp.explain(
        model,
        torch.ones(3, 16, 16),
        target=1,
        baseline="zero",
        method=gp.SteadyPIG(rounds=8, place=0),
    )
    assert torch.equal(a.order, weights.reshape(-1).argsort(descending=True, stable=True))


def circular(seed):
    """A network without a border: every place is like any other."""
    torch.manual_seed(seed)
    layers = []
    for width, out in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(width, out, 3, 2, 1, padding_mode="circular"), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    for parameter in net.parameters():
        parameter.data *= 1.8
    return net


@pytest.mark.slow
def test_the_border_of_noise_is_selected_as_often_as_its_middle():
    """Of the top 10 % of noise under networks without a border: 10 % at the border, 10 % inside."""
    border = torch.ones(128, 128, dtype=torch.bool)
    border[16:-16, 16:-16] = False
    shares = []
    for seed in range(12):
        x = torch.randn(3, 128, 128, generator=torch.Generator().manual_seed(seed))
        a = gp.explain(circular(seed), x, baseline="zero", seed=seed, k=4915, method="steady-pig")
        assert a.settings["crop"] < 1
        mask = a.mask(4915)
        shares.append([float(mask[:, part].double().mean()) for part in (border, ~border)])
    at_border, inside = torch.tensor(shares).mean(0).tolist()
    assert at_border == pytest.approx(0.1, abs=0.007)
    assert inside == pytest.approx(0.1, abs=0.007)


# Networks that were not trained to bear views.

UNSEEN = {"noise": 0.0, "crop": 1.0, "place": 0.0}


def test_a_linear_model_of_a_photo_is_answered_exactly():
    """σ(Σ weights · x) with all of + on the left: mirrored, what helps would harm."""
    x = picture(0, (3, 128, 128))
    weights = torch.ones(3, 128, 128)
    weights[..., 64:] = -1
    layer = nn.Linear(x.numel(), 2)
    scale = 4 / float(x[..., :64].sum())
    layer.weight.data = torch.stack([weights.reshape(-1) * scale, torch.zeros(x.numel())])
    layer.bias.data = torch.tensor([-2.0, 0.0])
    worth = (weights * x).reshape(-1)
    a = gp.explain(nn.Sequential(nn.Flatten(), layer), x, target=0, baseline="zero")
    assert a.method == "steady-pig"
    assert {name: a.settings[name] for name in UNSEEN} == UNSEEN
    best = worth.argsort(descending=True)
    for count in (500, 5_000, 20_000):
        assert set(a.order[:count].tolist()) == set(best[:count].tolist())


class LeftOrRight(nn.Module):
    """Which half is brighter: convolutions that know left from right."""

    def __init__(self):
        super().__init__()
        self.blur = nn.Conv2d(3, 1, 3, padding=1)
        self.blur.weight.data.fill_(1 / 27)

    def forward(self, x):
        halves = self.blur(x).unflatten(-1, (2, -1)).mean((1, 2, 4))
        return 60 * halves


@pytest.mark.parametrize("method", [None, "steady-pig"])
def test_views_are_not_taken_where_the_network_answers_to_them_otherwise(method):
    x = 0.2 * picture(0, (3, 128, 128))
    x[..., :40] += 0.3
    a = gp.explain(LeftOrRight(), x, target=0, baseline="zero", method=method)
    assert {name: a.settings[name] for name in UNSEEN} == UNSEEN
    assert int(a.mask(15_000)[..., 65:].sum()) == 0
    asked = gp.explain(LeftOrRight(), x, target=0, method=STEADY)  # As it was asked for.
    assert asked.settings["crop"] == gp.SteadyPIG().crop


def test_views_are_taken_where_they_are_borne():
    net, x = large()
    stop = gp.Stop(gradients=12)
    many = list(gp.explain_many(net, [x, 1 - x], stop=stop))
    for place, (seen, found) in enumerate(zip((x, 1 - x), many, strict=True)):
        assert found.settings["crop"] == gp.SteadyPIG().crop
        agree(found, gp.explain(net, seen, stop=stop, seed=(0, place)))


def test_pictures_as_they_are_have_no_mirror():
    """Without crops a linear model's rounds are exact, on the left as on the right."""
    torch.manual_seed(0)
    weights, x = torch.randn(3, 12, 12), torch.rand(3, 12, 12) + 0.5
    method = gp.SteadyPIG(rounds=5, crop=1, noise=0, place=0)
    a = gp.explain(plane(weights), x, baseline="zero", method=method)
    assert torch.equal(a.order, (weights * x).reshape(-1).argsort(descending=True))


# Networks that run in other ways.


class Checkpointed(nn.Module):
    """Layers that run again on the way back."""

    def __init__(self, again: bool):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.again = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU()), again
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        if self.again:
            seen = torch.utils.checkpoint.checkpoint(self.layers, x, use_reentrant=False)
        else:
            seen = self.layers(x)
        return self.last(seen.mean((2, 3)))


def test_layers_that_run_again_keep_the_derivative_of_relu():
    x = picture(0, (3, 12, 12))
    again = gp.explain(unfolded(Checkpointed(True)), x, method=STEADY)
    hard = gp.SteadyPIG(rounds=4, ramp=0)
    agree(again, gp.explain(unfolded(Checkpointed(False)), x, method=hard))
    assert again.gradients_used == 12


def test_whether_relu_can_be_softened_is_decided_once_a_run():
    model, calls = Checkpointed(True), []
    model.layers.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    gp.explain(unfolded(model), picture(0, (3, 12, 12)), method=STEADY)
    # One try, which runs the layers again in its backward pass and fails, and four rounds.
    assert sum(calls) == 2 + 4


class SequenceFirst(nn.Module):
    """Nine patches in a row, the batch second: with nine rows the axes look alike."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.mix, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).permute(2, 0, 1)
        return 10 * self.last(F.relu(self.mix(tokens)).mean(0))


def test_rows_that_are_not_first_are_each_on_their_own():
    net, xs = SequenceFirst().double(), [picture(s, (3, 12, 12)).double() for s in range(3)]
    for place, found in enumerate(gp.explain_many(net, xs, method=STEADY)):
        agree(found, gp.explain(net, xs[place], method=STEADY, seed=(0, place)))


def test_only_pictures_have_views():
    with pytest.raises(ValueError, match="picture"):
        gp.explain(nn.Linear(4, 2), torch.randn(4), method="steady-pig")


@pytest.mark.parametrize(
    "knobs",
    [{"views": 0}, {"noise": -1}, {"crop": 0}, {"ramp": -1}, {"place": 11}],
    ids=without_address,
)
def test_odd_knobs_are_refused_by_name(knobs):
    with pytest.raises(ValueError, match=next(iter(knobs))):
        gp.SteadyPIG(**knobs)
