"""A stopped run goes on from its file, bit for bit as if it had never stopped; and only it does."""

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from nets import Calls, cnn, identical, linear, mlp, picture, row


@pytest.fixture
def path(tmp_path):
    return tmp_path / "result.gpig"


RESUMED = {
    "greedy-pig": {"per_round": 1, "steps": 3},
    "geometric": {"rounds": 4, "steps": 3},
    "left rule": {"per_round": 1, "steps": 3, "rule": "left"},
    "a rule of one's own": {"per_round": 1, "rule": gp.Rule((0.2, 0.9), (0.5, 0.5))},
    "explicit": {"schedule": [1, 1, 2, 1], "steps": 2},
    "sequential": {"method": "sequential-gradient", "per_round": 2},
    "smooth": {"method": gp.Greedy(gp.Smooth(gp.IntegratedGradients(2), 2)), "per_round": 2},
    "guided": {"method": gp.Greedy(gp.GuidedIG(3)), "per_round": 2},
    "two baselines": {"per_round": 2, "steps": 2, "baseline": [0.0, 0.7]},
    "values each": {"per_round": 1, "steps": 3, "values": "each"},
    "values free": {"per_round": 1, "steps": 3, "values": "free"},
    "groups": {"features": torch.tensor([0, 1, 2, 2, 1, 0]), "per_round": 1, "steps": 2},
    "gain": {"per_round": 1, "steps": 3, "gain": True},
    "counterfactual": {"per_round": 1, "steps": 2, "objective": "counterfactual"},
    "k": {"k": 4, "per_round": 1, "steps": 2},
}


@pytest.mark.parametrize("options", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_resumed_run_is_an_unbroken_one(path, options, share):
    whole = gp.explain(mlp(), row(), **options)
    budget = max(int(share * whole.gradients_used), whole.gradients_used // len(whole.picks))
    part = gp.explain(mlp(), row(), budget=budget, **options)
    assert part.stop is gp.StopReason.BUDGET
    assert 0 < part.selected < whole.selected
    part.save(path)
    for saved in (path, part):
        resumed = gp.explain(mlp(), row(), resume=saved, **options)
        assert identical(resumed, whole)
        assert torch.equal(resumed.contributions(), whole.contributions())


def test_a_run_may_stop_many_times(path):
    options = {"per_round": 1, "steps": 2}
    whole = gp.explain(mlp(), row(), **options)
    a = gp.explain(mlp(), row(), budget=2, **options)
    for budget in (4, 8, 10):
        a.save(path)
        a = gp.explain(mlp(), row(), budget=budget, resume=path, **options)
        assert a.gradients_used == budget
        assert a.order[: a.selected].tolist() == whole.order[: a.selected].tolist()
    a.save(path)
    assert identical(gp.explain(mlp(), row(), resume=path, **options), whole)


@pytest.mark.parametrize("features", ["pixels", gp.windows(3)], ids=str)
@pytest.mark.parametrize("optimize", [True, False])
def test_pictures_go_on_as_well(path, features, optimize):
    options = {"features": features, "rounds": 4, "steps": 2, "optimize": optimize}
    whole = gp.explain(cnn(), picture(), **options)
    gp.explain(cnn(), picture(), budget=4, **options).save(path)
    assert identical(gp.explain(cnn(), picture(), resume=path, **options), whole)


def test_a_finished_run_has_nothing_to_go_on_with(path):
    whole = gp.explain(Calls(mlp()), row(), per_round=2, steps=2)
    whole.save(path)
    counted = Calls(mlp())
    assert identical(gp.explain(counted, row(), per_round=2, steps=2, resume=path), whole)
    assert counted.gradient_rows == []


class Plain(nn.Module):
    """The same weights, another function of them."""

    def __init__(self, activation=torch.tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.activation = nn.Linear(6, 5), nn.Linear(5, 4), activation

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        out = self.b(self.activation(self.a(x)))
        return out if scale is None else out * scale.unsqueeze(1)

    def doubled(self, x: Tensor) -> Tensor:
        return self.forward(x) * 2


class Retrained(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.a.weight.data *= 1.5


BASE = {"target": 1, "per_round": 1, "steps": 2, "baseline": 0.0, "seed": 0, "budget": 4}
GROUPS = {"features": torch.tensor([0, 0, 1, 1, 2, 2])}


def of_class(index):
    """The same code for every class: what it closes over is all that differs."""
    return lambda logits: logits[:, index]


OTHERS = {
    # What is other → (first call, second call, what the error names).
    "model": ({}, {"model": linear(classes=4)}, "model"),
    "weights": ({"model": Plain()}, {"model": Retrained()}, "model"),
    "weights behind a method": (
        {"model": Plain().doubled}, {"model": Retrained().doubled}, "model"),
    "activation module": (
        {"model": nn.Sequential(linear(), nn.Tanh())},
        {"model": nn.Sequential(linear(), nn.Sigmoid())}, "model"),
    "input": ({}, {"x": row(1)}, "input"),
    "input's shape": (
        {"model": nn.Sequential(nn.Flatten(), mlp()), "x": row().view(2, 3)},
        {"model": nn.Sequential(nn.Flatten(), mlp()), "x": row().view(3, 2)}, "input"),
    "baseline": ({}, {"baseline": 0.5}, "input|baseline"),
    "fixed": (
        {"model": Plain(), "fixed": torch.tensor(1.0)},
        {"model": Plain(), "fixed": torch.tensor(9.0)}, "input|fixed"),
    "target": ({}, {"target": 2}, "target"),
    "objective": ({}, {"objective": "logit"}, "objective"),
    "rival": (
        {"objective": gp.margin(against=2)}, {"objective": gp.margin(against=3)},
        "objective|rival"),
    "callable": (
        {"objective": of_class(1), "target": None}, {"objective": of_class(2)}, "objective"),
    "method": ({}, {"method": "sequential-gradient", "steps": None}, "method"),
    "steps": ({}, {"steps": 3}, "steps"),
    "rule": ({}, {"rule": "left"}, "rule"),
    "seed": ({}, {"seed": 1}, "seed"),
    "rounds": ({}, {"per_round": 2}, "rounds|schedule"),
    "schedule": (
        {"per_round": None, "schedule": [1, 1, 4]}, {"per_round": None, "schedule": [2, 1, 3]},
        "schedule"),
    "group ids": (GROUPS, {"features": torch.tensor([0, 1, 1, 0, 2, 2])}, "features"),
    "features": (GROUPS, {}, "features|rounds"),
    "noise": (
        {"method": gp.Greedy(gp.Smooth(gp.Gradient(), 2, 0.1)), "steps": None},
        {"method": gp.Greedy(gp.Smooth(gp.Gradient(), 2, 0.2)), "steps": None}, "noise"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The model's output looks like")
@pytest.mark.parametrize("other", OTHERS)
def test_another_model_input_or_setting_is_refused_by_name(path, other):
    first, second, named = OTHERS[other]
    first = {"model": mlp(), "x": row()} | BASE | first
    second = first | second
    if other == "features":
        second.pop("features")
    gp.explain(**first).save(path)
    with pytest.raises(gp.InvalidInput, match=rf"Expected the .*({named}).*\(got"):
        gp.explain(**second, resume=path)


def test_limits_may_change_when_a_run_goes_on(path):
    gp.explain(mlp(), row(), per_round=1, steps=2, budget=4).save(path)
    a = gp.explain(mlp(), row(), per_round=1, steps=2, budget=6, seconds=100, resume=path)
    assert a.stop is gp.StopReason.BUDGET
    assert a.selected == 3
