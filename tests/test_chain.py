"""Chains of layers are differentiated by hand as autograd would do it, or by autograd itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from greedypig.network import mlp_gradient

CLASSES = ("softmax", "log-likelihood", "log-probability", "logit", "margin", "counterfactual")


class Named(nn.Module):
    """A chain by a forward of its own."""

    def __init__(self, *, skip: bool = False, twice: bool = False, pair: bool = False) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(12, 12), nn.GELU("tanh"), nn.Linear(12, 20)
        self.skip, self.twice, self.pair = skip, twice, pair

    def forward(self, x: Tensor) -> Any:
        h = self.act(self.first(x))
        if self.twice:
            h = self.act(self.first(h))
        out = self.last(h + x if self.skip else h)
        return (out, h) if self.pair else out


def activations(*, last: int = 4) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 20), nn.LeakyReLU(0.1), nn.Dropout(0.5), nn.Linear(20, 20),
        nn.SiLU(), nn.Sequential(nn.Linear(20, 20, bias=False), nn.Tanh(), nn.Identity()),
        nn.Linear(20, 20), nn.Sigmoid(), nn.Linear(20, 20), nn.GELU(), nn.Linear(20, 20),
        nn.ReLU(), nn.Linear(20, last),
    )  # fmt: skip


def seeded(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return make().to(dtype)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def by_autograd(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for every gradient that autograd was asked for."""
    asked: list[int] = []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: asked.append(1) or grad(*a, **k))
    return asked


def same(a: gp.Attribution, b: gp.Attribution) -> bool:
    agree(a, b, 1e-9)
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("objective", CLASSES)
@pytest.mark.parametrize("make", [activations, Named])
def test_it_gives_the_bits_of_autograd(
    make: Callable[[], nn.Module], objective: str, dtype: torch.dtype, x: Tensor,
    by_autograd: list[int],
) -> None:  # fmt: skip
    net, x = seeded(make, dtype), x.to(dtype)
    gp.explain(net, x, rounds=1, steps=1)  # Where a forward of its own was compared once.
    by_autograd.clear()
    by_hand = gp.explain(net, x, objective=objective, rounds=4, steps=3)
    assert not by_autograd
    plain = gp.explain(net, x, objective=objective, rounds=4, steps=3, optimize=False)
    assert len(by_autograd) == 4
    assert same(by_hand, plain)


@pytest.mark.parametrize("objective", ["increase", "decrease", "counterfactual"])
def test_a_single_output(objective: str, x: Tensor, by_autograd: list[int]) -> None:
    net = seeded(lambda: activations(last=1))
    by_hand = gp.explain(net, x, objective=objective, rounds=4, steps=3)
    assert not by_autograd
    assert same(by_hand, gp.explain(net, x, objective=objective, rounds=4, steps=3, optimize=False))


def test_a_picture_that_is_flattened_first(x: Tensor, by_autograd: list[int]) -> None:
    net, picture = seeded(activations), x.view(3, 2, 2)
    by_hand = gp.explain(net, picture, rounds=4, steps=3)
    assert not by_autograd
    assert same(by_hand, gp.explain(net, picture, rounds=4, steps=3, optimize=False))


def test_layers_on_the_last_axis_are_left_to_autograd(x: Tensor, by_autograd: list[int]) -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(15, 2)))
    a = gp.explain(net, x.view(3, 4), rounds=4, steps=3)
    assert by_autograd
    assert same(a, gp.explain(net, x.view(3, 4), rounds=4, steps=3, optimize=False))


def test_a_large_first_layer_is_asked_once_for_a_line(x: Tensor, by_autograd: list[int]) -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 4)))
    by_hand = gp.explain(net, x, rounds=4, steps=3)
    assert not by_autograd
    plain = gp.explain(net, x, rounds=4, steps=3, optimize=False)
    agree(by_hand, plain, 1e-9)


@pytest.mark.parametrize("method", ["ig", "gradient", "guided-ig", "smooth-ig"])
def test_other_methods(method: str, x: Tensor) -> None:
    net = seeded(activations)
    a, b = (gp.explain(net, x, method=method, optimize=o) for o in (True, False))
    assert same(a, b)


def test_rows_in_lockstep_equal_rows_alone(x: Tensor, by_autograd: list[int]) -> None:
    net, rows = seeded(activations), torch.stack([x, x.flip(0), -x, x * 2])
    together = list(gp.explain_many(net, rows, rounds=4, steps=3, objective="margin"))
    assert not by_autograd
    for row, a in zip(rows, together, strict=True):
        b = gp.explain(net, row, rounds=4, steps=3, objective="margin")
        agree(a, b, 1e-9)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    net = Named()
    net.first.register_forward_hook(_twice)
    return net


def _twice(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return 2 * output


def patched() -> nn.Module:
    net = Named()
    net.act.forward = torch.tanh  # type: ignore[method-assign]
    return net


@pytest.mark.parametrize(
    "make",
    [
        lambda: Named(skip=True),
        lambda: nn.Sequential(Doubled(12, 12), nn.ReLU(), nn.Linear(12, 20)),
        lambda: nn.Sequential(nn.Linear(12, 12), nn.LayerNorm(12), nn.Linear(12, 20)),
        lambda: Named(pair=True),
        hooked,
        patched,
    ],
    ids=["skip", "subclass", "layer norm", "pair", "hook", "patched"],
)
def test_what_is_no_chain_is_left_to_autograd(
    make: Callable[[], nn.Module], x: Tensor, by_autograd: list[int]
) -> None:
    net = seeded(make)
    a = gp.explain(net, x, rounds=4, steps=3)
    assert by_autograd
    assert same(a, gp.explain(net, x, rounds=4, steps=3, optimize=False))


def test_a_layer_may_come_twice(x: Tensor, by_autograd: list[int]) -> None:
    net = seeded(lambda: Named(twice=True))
    a = gp.explain(net, x, rounds=4, steps=3)
    assert len(by_autograd) == 1  # To compare.
    assert same(a, gp.explain(net, x, rounds=4, steps=3, optimize=False))


class _Reversed(torch.autograd.Function):
    """The same there, the opposite back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return -gradient


class Unseen(nn.Module):
    """A chain to whoever reads what its forward calls, and something else to autograd."""

    def __init__(self, how: str, *, large: bool = False) -> None:
        super().__init__()
        width = 80 if large else 12
        self.first, self.act, self.last = nn.Linear(12, width), nn.Tanh(), nn.Linear(width, 6)
        self.how, self.large = how, large

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "real tensors" and isinstance(x, Tensor):
            x = x.clamp(min=0.25)
        with torch.set_grad_enabled(self.how != "no_grad"):
            h = self.first(x)
        if self.how == "function":
            h = _Reversed.apply(h)
        return self.last(nn.functional.softplus(h) if self.large else self.act(h))


@pytest.mark.parametrize("large", [False, True], ids=["chain", "cut"])
@pytest.mark.parametrize("how", ["real tensors", "function"])
def test_what_only_autograd_sees_is_left_to_it(how: str, large: bool, x: Tensor) -> None:
    net, x = seeded(lambda: Unseen(how, large=large)), x.abs() + 0.3
    a, b = (gp.explain(net, x, rounds=4, steps=3, optimize=o) for o in (True, False))
    agree(a, b, 1e-9)


@pytest.mark.parametrize("large", [False, True], ids=["chain", "cut"])
def test_a_network_that_cannot_be_differentiated_is_refused(large: bool, x: Tensor) -> None:
    with pytest.raises(gp.NotDifferentiable, match="no_grad"):
        gp.explain(seeded(lambda: Unseen("no_grad", large=large)), x, rounds=4, steps=3)


def _backwards(module: nn.Module, before: Any, after: Any) -> Any:
    return tuple(-gradient for gradient in before)


def test_a_hook_on_a_large_first_layer_is_called(x: Tensor) -> None:
    net = seeded(lambda: Unseen("", large=True))
    net.first.register_full_backward_hook(_backwards)  # type: ignore[union-attr, operator]
    a, b = (gp.explain(net, x, rounds=4, steps=3, optimize=o) for o in (True, False))
    assert same(a, b)


def test_mixed_precision_is_left_to_autograd(x: Tensor, by_autograd: list[int]) -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 4)),
                 torch.float32)  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = (gp.explain(net, x.float(), rounds=4, steps=3, optimize=o) for o in (True, False))
    assert len(by_autograd) == 8
    assert same(a, b)


def test_a_layer_whose_class_was_patched_is_left_to_autograd(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = seeded(activations)
    before = gp.explain(net, x, rounds=4, steps=3)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: torch.tanh(x))
    a, b = (gp.explain(net, x, rounds=4, steps=3, optimize=o) for o in (True, False))
    assert same(a, b)
    assert not torch.equal(before.scores, a.scores)


def _with_buffer() -> nn.Module:
    layer = nn.Linear(12, 5)
    weight = layer.weight.detach()
    del layer.weight
    layer.register_buffer("weight", weight)
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(5, 3))


def _without_bias() -> nn.Module:
    layer = nn.Linear(12, 5)
    del layer.bias
    layer.bias = None  # type: ignore[assignment]
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(5, 3))


def _named_in_two_lines() -> nn.Module:
    net = nn.Sequential(nn.Linear(12, 5))
    net.add_module("last\nlayer", nn.Linear(5, 3))
    return net


@pytest.mark.parametrize("make", [_with_buffer, _without_bias, _named_in_two_lines])
def test_odd_layers_are_left_to_autograd(make: Callable[[], nn.Module], x: Tensor) -> None:
    net = seeded(make)
    a, b = (gp.explain(net, x, rounds=4, steps=3, optimize=o) for o in (True, False))
    agree(a, b, 1e-9)


def test_a_layer_that_holds_others_is_no_link() -> None:
    held = nn.Sequential(nn.DataParallel(nn.Linear(2, 2)), nn.ReLU(), nn.Linear(2, 2))
    assert mlp_gradient.find_chain(held) == ""


def test_an_objective_of_ones_own_is_left_to_autograd(x: Tensor, by_autograd: list[int]) -> None:
    gp.explain(seeded(activations), x, objective=lambda logits: logits[:, 0] ** 2, rounds=2)
    assert by_autograd


def test_hooks_on_all_modules_are_called(x: Tensor, by_autograd: list[int]) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        gp.explain(seeded(activations), x, rounds=2, steps=2)
    finally:
        handle.remove()
    assert by_autograd


def test_what_changes_between_calls_is_seen(x: Tensor) -> None:
    net = seeded(activations)
    gp.explain(net, x, rounds=4, steps=3)

    def fresh() -> bool:
        a, b = (gp.explain(net, x, rounds=4, steps=3, optimize=o) for o in (True, False))
        return same(a, b)

    with torch.no_grad():
        net[1].weight.mul_(-1)  # type: ignore[index]
    assert fresh()
    net[1].weight.data[0, 0] = 9  # type: ignore[index]
    assert fresh()
    net[4].weight = nn.Parameter(net[4].weight.detach().flip(0))  # type: ignore[index]
    assert fresh()
    net[2] = nn.Tanh()  # type: ignore[index]
    assert fresh()
    handle = net[2].register_forward_hook(_twice)  # type: ignore[index]
    assert fresh()
    handle.remove()
    assert fresh()


SWITCH = {"act": True}


class Switched(Named):
    def forward(self, x: Tensor) -> Any:
        if SWITCH["act"]:
            return super().forward(x)
        return self.last(self.first(x))


def test_a_forward_that_goes_another_way_is_followed(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = seeded(Switched)
    before = gp.explain(net, x, rounds=4, steps=3)
    monkeypatch.setitem(SWITCH, "act", False)
    after = gp.explain(net, x, rounds=4, steps=3)
    assert same(after, gp.explain(net, x, rounds=4, steps=3, optimize=False))
    assert not torch.equal(before.values, after.values)


def test_what_is_not_finite_is_named(x: Tensor) -> None:
    # Finite everywhere, and so steep at 0 that its slope is not.
    net = nn.Sequential(nn.Linear(12, 30, bias=False), nn.Tanh(), nn.Linear(30, 40)).double()
    with torch.no_grad():
        for layer in (net[0], net[2]):
            layer.weight.fill_(1e200)  # type: ignore[union-attr, operator]
    with pytest.raises(gp.NonFinite, match="gradient of input 'x' at step 1 of 3 in round 1"):
        gp.explain(net, x, objective="logit", steps=3, rule="left", rounds=2)


def test_the_network_is_left_alone_and_its_copy_keeps_no_numbers(x: Tensor) -> None:
    net = seeded(activations).train()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    gp.explain(net, x, rounds=4, steps=3)
    assert all(m.training for m in net.modules())
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    assert all(torch.equal(before[name], p) for name, p in net.named_parameters())


def test_paths_of_a_chain() -> None:
    assert mlp_gradient.find_chain(Named().eval()) == "first\nact\nlast"
    assert mlp_gradient.find_chain(nn.Sequential(nn.Linear(2, 2), nn.Softsign())) == ""
    assert mlp_gradient.only_layers(activations())
    assert not mlp_gradient.only_layers(Named())
