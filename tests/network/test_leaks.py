"""A thousand calls in one process leave nothing behind."""

import gc
import os
import sys
from types import FunctionType

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from nets import cnn, picture

MEGABYTE = 1 << 20
ALLOWED = 12 * MEGABYTE
"""One vector of 10,000 float32 kept per call would be 38 MB after 1,000 calls, its order (int64)
twice that; the allocator's own drift over the same calls is below 1 MB."""


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def living() -> tuple[int, int]:
    """Tensors and modules that the garbage collector can see, after it has run."""
    gc.collect()
    objects = gc.get_objects()
    return (
        sum(issubclass(type(o), Tensor) for o in objects),
        sum(issubclass(type(o), nn.Module) for o in objects),
    )


def steady(call, times: int) -> int:
    """Run `call` many times; nothing it makes is alive afterwards. Returns how RSS grew."""
    for _ in range(20):  # Caches, thread pools and the allocator's arenas are set up once.
        call()
    alive, before = living(), resident()
    for _ in range(times):
        call()
    grown = resident() - before  # No gc.collect(): cycles must not hoard memory either.
    assert living() == alive
    return grown


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.slow
@linux
def test_a_thousand_calls_leak_nothing():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(10_000, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(10_000)
    assert (
        steady(lambda: gp.explain(model, x, method=gp.GreedyPIG(rounds=2, steps=2)), 1000) < ALLOWED
    )


@pytest.mark.slow
@linux
def test_the_fast_copy_leaks_nothing():
    """60 kB per picture: one kept per call would be 12 MB after 200 calls."""
    model, x = cnn(), picture(0, (3, 70, 70))
    assert (
        steady(lambda: gp.explain(model, x, method=gp.GreedyPIG(rounds=2, steps=2)), 200)
        < ALLOWED / 2
    )


@pytest.mark.slow
@linux
def test_new_models_and_retrained_models_leak_nothing():
    """Every call makes or changes a network; its fast copy goes with it."""
    kept, x = cnn(), picture()

    def call() -> None:
        gp.explain(cnn(), x, method=gp.GreedyPIG(rounds=1, steps=1))
        kept[0].weight.data.add_(0.001)
        gp.explain(kept, x, method=gp.GreedyPIG(rounds=1, steps=1))

    assert steady(call, 60) < ALLOWED


@pytest.mark.slow
@linux
def test_streams_finished_or_abandoned_leak_nothing():
    torch.manual_seed(0)
    model, xs = nn.Linear(2000, 3), torch.randn(6, 2000)

    def call() -> None:
        list(gp.explain_many(model, xs, batch_size=4, method=gp.GreedyPIG(rounds=2, steps=2)))
        next(gp.explain_many(model, xs, batch_size=4, method=gp.GreedyPIG(rounds=2, steps=2)))

    assert steady(call, 50) < ALLOWED


@pytest.mark.slow
@linux
def test_errors_leak_nothing():
    model = nn.Linear(2000, 3)

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: Tensor) -> Tensor:
            if x.requires_grad:
                raise RuntimeError("broken")
            return self.net(x)

    broken, x = Broken(), torch.randn(2000)

    def call() -> None:
        with pytest.raises(RuntimeError, match="broken"):
            gp.explain(broken, x, method=gp.GreedyPIG(rounds=2, steps=2))

    assert steady(call, 100) < ALLOWED


def test_results_hold_numbers_only_and_not_the_model():
    model, x = cnn(), picture()
    a = gp.explain(model, x, method=gp.GreedyPIG(rounds=2, steps=2))
    assert any(o is model for o in referred([model]))  # The walk does find modules.
    assert not any(issubclass(type(o), nn.Module) for o in referred(a))
    assert not any(o is x for o in referred(a))


def referred(root: object) -> list[object]:
    """Everything an object keeps alive; of functions only what they close over."""
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        o = todo.pop()
        if id(o) in seen or isinstance(o, type | type(sys)):
            continue
        seen[id(o)] = o
        todo += (o.__closure__ or ()) if isinstance(o, FunctionType) else gc.get_referents(o)
    return list(seen.values())
