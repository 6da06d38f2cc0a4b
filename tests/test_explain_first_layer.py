"""A large first linear layer is asked once for a line of inputs, and nobody can tell."""

import copy

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from greedypig.network import fold
from greedypig.network.fold import FirstLayer, first_linear
from greedypig.network.frozen import freeze
from nets import close, row

N = 40


def wide(*rest: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(N, 8), nn.Softsign(), *rest, nn.Linear(8, 3)).double().eval()


class Own(nn.Module):
    """Its forward is readable, and x goes nowhere but into the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = wide()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * 2


class Skips(Own):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x[:, :3]


class Branches(Own):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) if bool((x.sum() > 0).any()) else self.body(x) * 3


class Scales(Own):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x * 2)


class Twice(Own):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.body(x)


class Reads(Own):
    """Uses the layer's weights besides calling it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.body[0].weight.sum()


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for every pass of the network after its first layer."""
    seen: list[int] = []
    rest = FirstLayer.rest
    monkeypatch.setattr(
        FirstLayer, "rest", lambda self, made: seen.append(len(made)) or rest(self, made)
    )
    return seen


def far(n: int = N) -> Tensor:
    return row(n=n).double()


@pytest.mark.parametrize(
    "options",
    [
        {"rounds": 5, "steps": 4},
        {"method": "ig"},
        {"method": "smooth-ig"},
        {"method": "sequential-gradient", "rounds": 4},
        {"rounds": 3, "steps": 3, "baseline": [0, 1.0]},
        {"rounds": 3, "steps": 3, "objective": "counterfactual"},
        {"rounds": 3, "steps": 5, "batch_size": 2},
        {"rounds": 3, "steps": 5, "features": torch.arange(N) // 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [wide, Own])
def test_the_cut_network_answers_alike(make, options, cuts):
    model, x = make(), far()
    found = gp.explain(model, x, **options)
    assert cuts
    cuts.clear()
    expected = gp.explain(model, x, optimize=False, **options)
    assert not cuts
    agree(found, expected)
    assert found.gradients_used == expected.gradients_used
    assert max(cuts, default=0) <= options.get("batch_size", 256)


@pytest.mark.parametrize("make", [Skips, Branches, Scales, Twice, Reads])
def test_networks_that_use_their_input_otherwise_are_not_cut(make, cuts):
    model, x = make(), far()
    found = gp.explain(model, x, rounds=3, steps=4)
    assert not cuts
    assert close(
        found.unit_scores, gp.explain(model, x, rounds=3, steps=4, optimize=False).unit_scores
    )


def test_hooks_keep_their_effect(cuts):
    model, x = wide(), far()
    model[0].register_forward_hook(lambda module, inputs, output: output * 3)
    assert close(
        gp.explain(model, x, method="ig").unit_scores,
        gp.explain(model, x, method="ig", optimize=False).unit_scores,
    )
    assert not cuts


def test_small_first_layers_are_left_alone():
    deep = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    assert first_linear(deep, 8) == ""
    assert first_linear(nn.Linear(8, 3), 8) == ""
    assert first_linear(wide(), N) == "0"
    assert first_linear(wide(), N + 1) == ""
    assert first_linear(Own(), N) == "body.0"


def test_inputs_of_other_shapes_are_not_cut(cuts):
    model = wide(nn.Flatten(1), nn.Linear(16, 8).double())
    x = torch.stack([far(), far()])
    gp.explain(model, x, method="ig", steps=3)
    assert not cuts


def test_changed_weights_count_and_the_model_is_untouched(cuts):
    model, x = wide(), far()
    before = gp.explain(model, x, rounds=3, steps=4)
    model[0].weight.data.mul_(-1)
    kept = copy.deepcopy(model.state_dict())
    after = gp.explain(model, x, rounds=3, steps=4)
    assert not torch.equal(before.unit_scores, after.unit_scores)
    assert close(
        after.unit_scores, gp.explain(model, x, rounds=3, steps=4, optimize=False).unit_scores
    )
    assert type(model[0]) is nn.Linear
    assert all(torch.equal(v, kept[k]) for k, v in model.state_dict().items())


def test_a_class_whose_forward_was_replaced_is_found_out(monkeypatch):
    model, x = Own(), far()
    gp.explain(model, x, method="ig")
    monkeypatch.setattr(Own, "forward", Scales.forward)
    expected = gp.explain(model, x, method="ig", optimize=False)
    assert close(gp.explain(model, x, method="ig").unit_scores, expected.unit_scores)


def test_examples_in_lockstep_share_the_rest_of_the_network(cuts):
    model = wide()
    xs = [far() * (i + 1) for i in range(4)]
    together = list(gp.explain_many(model, xs, rounds=3, steps=4))
    assert max(cuts) == 16
    for a, x in zip(together, xs, strict=True):
        alone = gp.explain(model, x, rounds=3, steps=4)
        agree(a, alone)


def test_a_stopped_run_goes_on_bit_for_bit(cuts):
    model, x = wide(), far()
    whole = gp.explain(model, x, rounds=6, steps=4)
    half = gp.explain(model, x, rounds=6, steps=4, budget=12)
    rest = gp.explain(model, x, rounds=6, steps=4, resume=half)
    assert cuts
    assert torch.equal(rest.order, whole.order)
    assert torch.equal(rest.unit_scores, whole.unit_scores)


def test_an_overflow_on_the_way_back_is_named():
    model, x = wide().float(), far().float()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].weight[:, 1] = 1e38
        model[2].weight.fill_(1e3)
        model[2].weight[0] = -1e3
    x[1] = 1e-38
    with pytest.raises(gp.NonFinite, match=r"gradient of input 'x'.*round 1"):
        gp.explain(model, x, target=1, objective="logit", rounds=2, steps=2)


def test_after_an_error_in_the_rest_the_layer_is_back():
    network = freeze(wide())
    first = FirstLayer(network, "0")
    with pytest.raises(RuntimeError):
        first.rest(torch.zeros(1, 5, dtype=torch.float64))
    assert network.module[0] is first.layer
    assert fold._AS_IT_IS not in list(network.module)
