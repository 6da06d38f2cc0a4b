"""A stopped run goes on from its file, bit for bit as if it had never stopped; and only it does."""

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from nets import Calls, identical, linear, mlp, row


@pytest.fixture
def path(tmp_path):
    return tmp_path / "result.gpig"


RESUMED = {
    "greedy-pig": {"method": gp.GreedyPIG(per_round=1, steps=3)},
    "geometric": {"method": gp.GreedyPIG(rounds=4, steps=3)},
    "left rule": {"method": gp.GreedyPIG(per_round=1, steps=3, rule="left")},
    "a rule of one's own": {
        "method": gp.GreedyPIG(per_round=1, rule=gp.Rule((0.2, 0.9), (0.5, 0.5)))
    },
    "explicit": {"method": gp.GreedyPIG(schedule=[1, 1, 2, 1], steps=2)},
    "sequential": {"method": gp.SequentialGradient(per_round=2)},
    "smooth": {"method": gp.Greedy(gp.SmoothIG(gp.IG(2), 2), per_round=2)},
    "guided": {"method": gp.Greedy(gp.GuidedIG(3), per_round=2)},
    "two baselines": {"method": gp.GreedyPIG(per_round=2, steps=2), "baseline": [0.0, 0.7]},
    "groups": {
        "method": gp.GreedyPIG(per_round=1, steps=2),
        "features": torch.tensor([0, 1, 2, 2, 1, 0]),
    },
    "counterfactual": {"method": gp.GreedyPIG(per_round=1, steps=2), "objective": "counterfactual"},
    "k": {"method": gp.GreedyPIG(per_round=1, steps=2), "k": 4},
}


@pytest.mark.parametrize("options", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_resumed_run_is_an_unbroken_one(path, options, share):
    whole = gp.explain(mlp(), row(), **options)
    budget = max(int(share * whole.gradients_used), whole.gradients_used // len(whole.picks))
    part = gp.explain(mlp(), row(), stop=gp.Stop(gradients=budget), checkpoint=path, **options)
    assert part.stop is gp.StopReason.GRADIENTS
    assert 0 < part.selected < whole.selected
    resumed = gp.explain(mlp(), row(), checkpoint=path, **options)
    assert identical(resumed, whole)
    assert identical(gp.load(path), whole)
    assert torch.equal(resumed.contributions(), whole.contributions())


@pytest.mark.parametrize("limit", [{"gain": True}, {"value": 0.9}])
def test_a_run_with_a_limit_goes_on_under_it(path, limit):
    options = {"method": gp.GreedyPIG(per_round=1, steps=3)}
    whole = gp.explain(mlp(), row(), stop=gp.Stop(**limit), **options)
    options["checkpoint"] = path
    part = gp.explain(mlp(), row(), stop=gp.Stop(gradients=6, **limit), **options)
    assert part.stop is gp.StopReason.GRADIENTS
    assert identical(gp.explain(mlp(), row(), stop=gp.Stop(**limit), **options), whole)


@pytest.mark.parametrize("after", [1, 3, 5])
def test_an_interrupted_run_goes_on_from_its_last_round(path, after):
    net, seen, rounds = mlp(), [], [after]

    def model(x: Tensor) -> Tensor:
        seen.append(x.requires_grad)
        if sum(seen) > rounds[0]:
            raise KeyboardInterrupt
        return net(x)

    method = gp.GreedyPIG(per_round=1, steps=2)
    whole = gp.explain(net, row(), method=method)
    with pytest.raises(KeyboardInterrupt):
        gp.explain(model, row(), method=method, checkpoint=path)
    saved = gp.load(path)
    assert saved.stop is gp.StopReason.RUNNING
    assert saved.picks == (1,) * after
    assert saved.order[:after].tolist() == whole.order[:after].tolist()
    seen.clear()
    rounds[0] = 6
    assert identical(gp.explain(model, row(), method=method, checkpoint=path), whole)
    assert sum(seen) == 6 - after


def test_a_finished_file_gives_the_result_again_without_new_gradients(path):
    model, options = Calls(mlp()), {"checkpoint": path, "method": gp.GreedyPIG(rounds=3, steps=2)}
    first = gp.explain(model, row(), **options)
    before = path.read_bytes()
    model.gradient_rows.clear()
    again = gp.explain(model, row(), **options)
    assert identical(again, first)
    assert again.seconds == first.seconds
    assert model.gradient_rows == []
    assert path.read_bytes() == before


def test_progress_tells_the_rounds_done_and_goes_on_from_a_file(path, capsys):
    told = []
    options = {"method": gp.GreedyPIG(rounds=3, steps=2), "checkpoint": path}
    options["progress"] = lambda done, total: told.append((done, total))
    gp.explain(mlp(), row(), stop=gp.Stop(gradients=4), **options)
    assert told == [(0, 2), (1, 2), (2, 2)]  # The gradients allow two rounds.
    told.clear()
    gp.explain(mlp(), row(), **options)
    assert told == [(2, 3), (3, 3)]
    gp.explain(mlp(), row(), method=gp.IG(2), progress=True)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "\r0 of 1 rounds   \r1 of 1 rounds, 0 s left   \n")


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


def pig(**knobs):
    return {"method": gp.GreedyPIG(**{"per_round": 1, "steps": 2} | knobs)}


BASE = {"target": 1, "baseline": 0.0, "seed": 0} | pig()
GROUPS = {"features": torch.tensor([0, 0, 1, 1, 2, 2])}


def of_class(index):
    """The same code for every class: what it closes over is all that differs."""
    return lambda logits: logits[:, index]


OTHERS = {
    # What is other → (first call, second call, what the error names).
    "model": ({}, {"model": linear(classes=4)}, "model"),
    "weights": ({"model": Plain()}, {"model": Retrained()}, "model"),
    "weights behind a method": (
        {"model": Plain().doubled},
        {"model": Retrained().doubled},
        "model",
    ),
    "activation module": (
        {"model": nn.Sequential(linear(), nn.Tanh())},
        {"model": nn.Sequential(linear(), nn.Sigmoid())},
        "model",
    ),
    "input": ({}, {"x": row(1)}, "input"),
    "input's shape": (
        {"model": nn.Sequential(nn.Flatten(), mlp()), "x": row().view(2, 3)},
        {"model": nn.Sequential(nn.Flatten(), mlp()), "x": row().view(3, 2)},
        "input",
    ),
    "baseline": ({}, {"baseline": 0.5}, "input|baseline"),
    "fixed": (
        {"model": Plain(), "fixed": torch.tensor(1.0)},
        {"model": Plain(), "fixed": torch.tensor(9.0)},
        "input|fixed",
    ),
    "target": ({}, {"target": 2}, "target"),
    "objective": ({}, {"objective": "logit"}, "objective"),
    "rival": (
        {"objective": gp.margin(against=2)},
        {"objective": gp.margin(against=3)},
        "objective|rival",
    ),
    "callable": (
        {"objective": of_class(1), "target": None},
        {"objective": of_class(2)},
        "objective",
    ),
    "method": ({}, {"method": gp.SequentialGradient(per_round=1)}, "method"),
    "steps": ({}, pig(steps=3), "steps"),
    "rule": ({}, pig(rule="left"), "rule"),
    "seed": ({}, {"seed": 1}, "seed"),
    "rounds": ({}, pig(per_round=2), "rounds|per_round"),
    "schedule": (
        pig(per_round=None, schedule=[1, 1, 4]),
        pig(per_round=None, schedule=[2, 1, 3]),
        "schedule",
    ),
    "group ids": (GROUPS, {"features": torch.tensor([0, 1, 1, 0, 2, 2])}, "features"),
    "features": (GROUPS, {"features": "elements"}, "features|rounds"),
    "noise": (
        {"method": gp.Greedy(gp.SmoothIG(gp.Gradient(), 2, 0.1), per_round=1)},
        {"method": gp.Greedy(gp.SmoothIG(gp.Gradient(), 2, 0.2), per_round=1)},
        "noise",
    ),
}


@pytest.mark.filterwarnings("ignore:The model's output looks like")
@pytest.mark.parametrize("other", OTHERS)
def test_another_model_input_or_setting_is_refused_by_name(path, other):
    first, second, named = OTHERS[other]
    first = {"model": mlp(), "x": row()} | BASE | first
    second = first | second
    gp.explain(**first, stop=gp.Stop(gradients=4), checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(gp.InvalidInput, match=rf"Expected the .*({named}).*\(got"):
        gp.explain(**second, checkpoint=path)
    assert path.read_bytes() == before


def test_limits_may_change_when_a_run_goes_on(path):
    options = {"checkpoint": path} | pig()
    gp.explain(mlp(), row(), stop=gp.Stop(gradients=4), **options)
    a = gp.explain(mlp(), row(), stop=gp.Stop(gradients=6, seconds=100), **options)
    assert a.stop is gp.StopReason.GRADIENTS
    assert a.selected == 3
