"""Explaining neither moves nor rewinds the global random generator, which all threads share."""

import threading

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from nets import mlp, row


class Watched(nn.Module):
    """At every call another thread draws a number, as in a program that trains meanwhile."""

    def __init__(self, *, draws: bool, others: list[float]) -> None:
        super().__init__()
        self.net, self.draws = mlp(), draws
        object.__setattr__(self, "others", others)

    def forward(self, x: Tensor) -> Tensor:
        elsewhere = threading.Thread(target=lambda: self.others.append(torch.rand(1).item()))
        elsewhere.start()
        elsewhere.join()
        out = self.net(x)
        return out + 0.1 * torch.randn_like(out) if self.draws else out

    def __deepcopy__(self, memo):
        return self  # So that it is the one list that is written to.


RUNS = {
    "explain": lambda model: gp.explain(model, row(), method=gp.GreedyPIG(rounds=3, steps=2)),
    "a function": lambda model: gp.explain(
        lambda x: model(x), row(), method=gp.GreedyPIG(rounds=3, steps=2)
    ),
    "explain_many": lambda model: list(
        gp.explain_many(model, [row(0), row(1)], method=gp.GreedyPIG(rounds=2, steps=2))
    ),
    "objective": lambda model: gp.maximize(
        gp.objective(lambda m: model(m * row())[:, 0], 6), gp.GreedyPIG(rounds=3, steps=2)
    ),
    "smooth-ig": lambda model: gp.explain(model, row(), method=gp.SmoothIG(gp.IG(steps=3))),
    "curve": lambda model: gp.metrics.softmax_information_curve(model, row(), torch.arange(6)),
}


@pytest.mark.parametrize("draws", [False, True], ids=["calm", "draws"])
@pytest.mark.parametrize("run", RUNS)
def test_other_threads_draw_every_number_once(run, draws):
    others: list[float] = []
    model = Watched(draws=draws, others=others)
    torch.manual_seed(0)
    RUNS[run](model)
    after = [torch.rand(1).item() for _ in range(3)]
    assert others
    torch.manual_seed(0)
    assert others + after == [torch.rand(1).item() for _ in range(len(others) + 3)]


class Draws(nn.Module):
    """A model that draws in eval mode too, in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.net, self.how = mlp(), how

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(x)
        if self.how == "noise":
            return out + torch.randn_like(out)
        if self.how == "dropout":
            return nn.functional.dropout(out, 0.3, training=True)
        if self.how == "sample":
            return out + torch.distributions.Gamma(1.0, 1.0).sample(out.shape)
        if self.how == "own seed":
            return out + torch.randn(out.shape, generator=torch.Generator().manual_seed(5))
        return out + torch.rand(len(x), 1) * torch.randint(1, 4, (1,)) + torch.randperm(4)


@pytest.mark.parametrize("how", ["noise", "dropout", "sample", "own seed", "several"])
def test_a_model_that_draws_gets_a_fork_of_the_global_generator(how):
    model = Draws(how)

    def scores(seed: int) -> Tensor:
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        a = gp.explain(model, row(), target=0, method=gp.GreedyPIG(rounds=3, steps=4))
        assert torch.equal(torch.get_rng_state(), before)
        return a.scores

    first = scores(1)
    assert torch.equal(scores(1), first)
    assert torch.equal(scores(2), first) == (how == "own seed")


def test_a_model_draws_the_numbers_that_it_would_draw_by_itself():
    """G(everything) is the output that the model gives with the same seed, one row alone."""
    model = Draws("noise")
    torch.manual_seed(4)
    expected = model(row().unsqueeze(0))[0, 1].item()
    torch.manual_seed(4)
    a = gp.explain(
        model, row(), target=1, objective="logit", batch_size=1, method=gp.GreedyPIG(rounds=1)
    )
    assert a.full_value == pytest.approx(expected, rel=1e-5)


def test_a_run_that_draws_goes_on_where_it_stopped(tmp_path):
    model, ask = Draws("noise"), {"target": 0, "method": gp.GreedyPIG(per_round=1, steps=3)}
    whole = gp.explain(model, row(), **ask)
    ask["checkpoint"] = tmp_path / "a.gpig"
    half = gp.explain(model, row(), stop=gp.Stop(gradients=9), **ask)
    rest = gp.explain(model, row(), **ask)
    assert half.selected < rest.selected
    assert torch.equal(rest.order, whole.order)
    assert torch.equal(rest.feature_scores, whole.feature_scores)


def test_scripted_models_that_draw_leave_the_generator_alone():
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) + torch.rand_like(self.net(x))

    with pytest.warns(DeprecationWarning, match="jit"):
        scripted = torch.jit.script(Noisy())
    before = torch.get_rng_state()
    gp.explain(scripted, row(), method=gp.GreedyPIG(rounds=3, steps=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_and_tables_of_ours_are_made_without_the_global_generator():
    before = torch.get_rng_state()
    gp.models.TabularMLP(2, [3], hidden=(4,), seed=1)
    data = torch.utils.data.TensorDataset(
        torch.rand(40, 3, generator=torch.Generator()), torch.arange(40) % 2
    )
    loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
    layer = nn.utils.skip_init(nn.Linear, 3, 1)
    for parameter in layer.parameters():  # Its memory may hold NaN.
        nn.init.ones_(parameter)
    gp.select_features(nn.Sequential(layer), loader, k=1)
    assert torch.equal(torch.get_rng_state(), before)
