"""What an absent feature looks like: G(∅) is the model's answer to the baseline itself."""

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from nets import TwoInputs, close, cnn, linear, mlp, picture, row, unfolded


def answer(model, x: Tensor, target: int) -> float:
    return torch.softmax(model(x[None]), 1)[0, target].item()


def nothing(model, x, **options):
    """G(∅) and the class it is about."""
    a = gp.explain(model, x, method=gp.GreedyPIG(rounds=1, steps=1), **options)
    return a.values[0].item(), a.settings["target"]


@pytest.mark.parametrize(
    ("baseline", "filled"),
    [
        (None, torch.zeros(6)),
        (0.25, torch.full((6,), 0.25)),
        (2, torch.full((6,), 2.0)),
        ("zero", torch.zeros(6)),
        (torch.tensor(0.5), torch.full((6,), 0.5)),
        (row(4), row(4)),
        (row(4).double(), row(4)),
        (row(4).requires_grad_(True), row(4)),
        (lambda x: x.flip(0), row().flip(0)),
        (lambda x: 0.75, torch.full((6,), 0.75)),
        ("mean", row().mean().expand(6)),
    ],
)
def test_the_empty_set_is_the_baseline(baseline, filled):
    found, target = nothing(mlp(), row(), baseline=baseline)
    assert found == pytest.approx(answer(mlp(), filled, target), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "filled"),
    [
        ("zero", torch.zeros(3, 6, 5)),
        ("black", torch.zeros(3, 6, 5)),
        ("gray", torch.full((3, 6, 5), 0.5)),
        ("white", torch.ones(3, 6, 5)),
        ("mean", picture().mean((1, 2), keepdim=True).expand(3, 6, 5)),
    ],
)
def test_named_baselines_of_a_picture(name, filled):
    found, target = nothing(unfolded(cnn()), picture(), baseline=name)
    assert found == pytest.approx(answer(cnn(), filled, target), abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 12, 17), (9, 8)])
def test_blur_is_a_gaussian_of_a_tenth_of_the_longer_side(shape):
    x = picture(0, shape)
    model = nn.Sequential(nn.Flatten(), mlp(x.numel())).eval()
    sigma = 0.1 * max(shape[-2:])
    axes = (0,) * (len(shape) - 2) + (sigma, sigma)
    blurred = torch.from_numpy(gaussian_filter(x.double().numpy(), axes, mode="nearest")).float()
    found, target = nothing(model, x, baseline="blur")
    assert found == pytest.approx(answer(model, blurred, target), abs=1e-6)


def test_a_baseline_broadcasts_to_the_input():
    colours = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    found, target = nothing(unfolded(cnn()), picture(), baseline=colours)
    full = answer(cnn(), colours.expand(3, 6, 5), target)
    assert found == pytest.approx(full, abs=1e-6)


def test_a_model_may_know_its_own_colours():
    class Normalised(nn.Module):
        """Pixels scaled to [−2, 2]: what gray is only the model can tell."""

        def __init__(self) -> None:
            super().__init__()
            self.net = cnn()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def baseline(self, name: str) -> Tensor:
            return {"gray": torch.zeros(3, 1, 1), "white": torch.full((3, 1, 1), 2.0)}[name]

    model, x = Normalised().eval(), picture() * 4 - 2
    white, target = nothing(model, x, baseline="white")
    assert white == pytest.approx(answer(model, torch.full_like(x, 2.0), target), abs=1e-6)
    default, _ = nothing(model, x)
    assert default == pytest.approx(answer(model, torch.zeros_like(x), target), abs=1e-6)


def test_several_inputs_have_a_baseline_each():
    model, image, other = TwoInputs().eval(), picture(0, (3, 4)), row(1, 5)
    by_position = gp.explain(
        model, (image, other), baseline=(0.5, row(2, 5)), method=gp.GreedyPIG(rounds=1)
    )
    target = by_position.settings["target"]
    logits = model(torch.full((1, 3, 4), 0.5), row(2, 5)[None])
    expected = torch.softmax(logits, 1)[0, target].item()
    assert by_position.values[0].item() == pytest.approx(expected, abs=1e-6)
    by_name = gp.explain(
        model,
        {"image": image, "row": other},
        baseline={"row": row(2, 5), "image": 0.5},
        method=gp.GreedyPIG(rounds=1),
    )
    assert by_name.values[0].item() == pytest.approx(expected, abs=1e-6)


def test_one_number_is_the_baseline_of_all_inputs():
    model, x = TwoInputs().eval(), (picture(0, (3, 4)), row(1, 5))
    a = gp.explain(model, x, baseline=0.25, method=gp.GreedyPIG(rounds=1))
    logits = model(torch.full((1, 3, 4), 0.25), torch.full((1, 5), 0.25))
    expected = torch.softmax(logits, 1)[0, a.settings["target"]].item()
    assert a.values[0].item() == pytest.approx(expected, abs=1e-6)


def test_several_baselines_average_their_objectives():
    model, x = cnn(), picture()
    names = ["black", "white", 0.3]
    singles = [gp.explain(model, x, baseline=b, method=gp.IG(steps=4)) for b in names]
    both = gp.explain(model, x, baseline=names, method=gp.IG(steps=4))
    assert close(both.scores, torch.stack([a.scores for a in singles]).mean(0), 1e-5)
    assert close(both.values, torch.stack([a.values for a in singles]).mean(0), 1e-5)
    assert both.full_value == pytest.approx(singles[0].full_value, abs=1e-6)
    assert both.gradients_used == 3 * 4


def test_several_baselines_are_averaged_in_every_greedy_round():
    model, x, baselines = mlp(), row(), [row(4), row(5)]

    def g(masks: Tensor) -> Tensor:
        target = int(model(x[None]).argmax())
        parts = [torch.softmax(model(b + masks * (x - b)), 1)[:, target] for b in baselines]
        return torch.stack(parts).mean(0)

    expected = gp.maximize(gp.objective(g, 6), gp.GreedyPIG(per_round=1, steps=4))
    found = gp.explain(model, x, baseline=baselines, method=gp.GreedyPIG(per_round=1, steps=4))
    agree(found, expected)


def test_the_same_baseline_twice_changes_nothing_but_the_bill():
    once = gp.explain(mlp(), row(), baseline=[0.5], method=gp.GreedyPIG(rounds=3, steps=2))
    twice = gp.explain(mlp(), row(), baseline=[0.5, 0.5], method=gp.GreedyPIG(rounds=3, steps=2))
    agree(once, twice)
    assert twice.gradients_used == 2 * once.gradients_used


def test_linear_scores_are_weights_times_the_way_from_the_baseline():
    model, x, baseline = linear(), row(), row(9)
    a = gp.explain(model, x, baseline=baseline, target=1, objective="logit", method=gp.IG(steps=1))
    assert close(a.scores, model.weight[1].detach() * (x - baseline), 1e-5)
