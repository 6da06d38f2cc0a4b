"""A linear first layer maps a line to a line: the shorter way along it answers alike."""

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig.core.objective import Oracle
from nets import close, mlp, row


@pytest.fixture
def lines(monkeypatch):
    """How many rounds took the shorter way."""
    taken = []
    plain = Oracle.evaluate_line

    def counted(self, line, weights, runs):
        taken.append(len(weights))
        return plain(self, line, weights, runs)

    monkeypatch.setattr(Oracle, "evaluate_line", counted)
    return taken


def both(model, x, **knobs):
    return [gp.explain(model, x, optimize=optimize, **knobs) for optimize in (True, False)]


@pytest.mark.parametrize("objective", ["softmax", "log-likelihood", "margin", "counterfactual"])
@pytest.mark.parametrize("method", ["greedy-pig", "sequential-gradient", "ig", "smooth-ig"])
@pytest.mark.parametrize("baseline", [0.3, [0.0, 1.0]])
def test_the_shorter_way_answers_alike(objective, method, baseline):
    model, x = mlp().double(), row().double()
    fast, plain = both(model, x, objective=objective, method=method, baseline=baseline)
    assert torch.equal(fast.order, plain.order)
    assert close(fast.scores, plain.scores, 1e-9)
    assert close(fast.values, plain.values, 1e-9)
    assert fast.gradients_used == plain.gradients_used


def test_the_shorter_way_is_taken_by_sequences_that_begin_with_a_linear_layer(lines):
    gp.explain(mlp(), row(), rounds=3, steps=4)
    assert lines == [4, 4, 4]
    gp.explain(nn.Sequential(mlp(), nn.Tanh()), row(), rounds=2, steps=4)
    assert lines == [4] * 5


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.direct = mlp(), nn.Linear(6, 4)

    def forward(self, x):
        return self.net(x) + self.direct(x)


def reused() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(6, 4))


def hooked() -> nn.Module:
    model = mlp()
    model[0].register_forward_hook(lambda module, inputs, output: output**2)
    return model


@pytest.mark.parametrize("make", [Twice, reused, hooked], ids=lambda m: m.__name__)
def test_other_networks_take_the_ordinary_way(make, lines):
    model = make().eval()
    fast, plain = both(model, row(), rounds=3, steps=4)
    assert lines == []
    assert torch.equal(fast.order, plain.order)
    assert close(fast.scores, plain.scores, 1e-5)


def test_changed_weights_are_seen():
    model, x = mlp(), row()
    gp.explain(model, x, rounds=2, steps=3)
    with torch.no_grad():
        model[0].weight.mul_(-2)
    fast, plain = both(model, x, rounds=2, steps=3)
    assert close(fast.scores, plain.scores, 1e-5)


class Cliff(nn.Module):
    """log(h² − 1): of the four midpoints −1.5, −0.5, 0.5, 1.5 the middle two are beyond it."""

    def forward(self, h):
        return torch.log((h[:, :1] ** 2 - 1).expand(-1, 2))


def test_a_number_that_is_not_finite_is_named_with_its_step():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), Cliff())
    nn.init.ones_(model[0].weight)
    with pytest.raises(gp.NonFinite, match="step 2 of 4 in round 1"):
        gp.explain(model, torch.tensor([2.0]), baseline=-2.0, target=0, objective="logit",
                   rounds=1, steps=4)  # fmt: skip


def test_rows_that_share_batches_answer_as_alone():
    model = mlp()
    xs = [row(s) for s in range(5)]
    for x, a in zip(xs, gp.explain_many(model, xs, rounds=3, steps=4, batch_size=6), strict=True):
        alone = gp.explain(model, x, rounds=3, steps=4)
        assert torch.equal(a.order, alone.order)
        assert close(a.scores, alone.scores, 1e-5)
