"""What is kept between calls never shows: every call answers as the first would."""

import copy
import gc
import subprocess
import sys
import threading
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from greedypig.network import model_cache
from nets import cnn, mlp, picture, row


class Net(nn.Module):
    """Parameters, buffers, settings and a list: all that a call may find changed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(6, 40), nn.BatchNorm1d(40)
        self.soft, self.last = nn.LeakyReLU(0.1), nn.Linear(40, 3)
        self.register_buffer("shift", torch.randn(6))
        self.scale, self.powers = 1.0, [1.0, 0.5]

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x + self.shift) * self.scale)
        return self.last(sum(p * self.soft(h) ** (i + 1) for i, p in enumerate(self.powers)))


def double(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
    return output * 2


def numpy_edit(t: Tensor) -> None:
    t.detach().numpy()[0] += 1


def in_place(t: Tensor) -> None:
    with torch.no_grad():
        t[0] += 1


EDITS = {
    "in place": lambda m: in_place(m.first.weight),
    "data": lambda m: m.first.weight.data.mul_(1.5),
    "a row of data": lambda m: m.first.weight.data[3].zero_(),
    "numpy": lambda m: numpy_edit(m.first.weight),
    "new data": lambda m: setattr(m.first.weight, "data", torch.ones(40, 6)),
    "new parameter": lambda m: setattr(m.first, "bias", nn.Parameter(torch.ones(40))),
    "no parameter": lambda m: setattr(m.first, "bias", None),
    "tied": lambda m: setattr(m.norm, "weight", m.first.bias),
    "buffer in place": lambda m: m.shift.add_(1),
    "buffer's data": lambda m: m.shift.data.add_(1),
    "buffer by numpy": lambda m: numpy_edit(m.norm.running_mean),
    "new buffer": lambda m: setattr(m, "shift", torch.ones(6)),
    "smaller buffer": lambda m: setattr(m, "shift", torch.ones(1)),
    "setting": lambda m: setattr(m, "scale", 2.0),
    "inner setting": lambda m: setattr(m.soft, "negative_slope", 0.9),
    "list": lambda m: m.powers.append(0.3),
    "list item": lambda m: m.powers.__setitem__(0, -1.0),
    "module": lambda m: setattr(m, "soft", nn.Tanh()),
    "inner class": lambda m: setattr(m.soft, "__class__", nn.Tanh),
    "hook": lambda m: m.first.register_forward_hook(double),
    "closure hook": lambda m: m.first.register_forward_hook(lambda a, b, out, by=3: out * by),
    "forward": lambda m: setattr(m.soft, "forward", torch.sin),
    "load": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
}


def edited(*names: str) -> Net:
    model = Net()
    for name in names:
        EDITS[name](model)
    return model


def answer(model: nn.Module, **options) -> gp.Attribution:
    return gp.explain(model, row(), rounds=3, steps=4, **options)


def same(a: gp.Attribution, b: gp.Attribution) -> bool:
    return (
        torch.equal(a.order, b.order)
        and torch.equal(a.unit_scores, b.unit_scores)
        and torch.equal(a.values, b.values)
        and a.provenance == b.provenance
    )


@pytest.mark.parametrize("name", EDITS)
def test_a_changed_model_answers_as_one_that_was_always_so(name):
    model = Net()
    before = answer(model)
    EDITS[name](model)
    after, expected = answer(model), answer(edited(name))
    assert same(after, expected)
    assert not torch.equal(after.unit_scores, before.unit_scores)
    assert same(answer(model), expected)


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 6), *layers, nn.Linear(6, 3))


def reorder(model: nn.Sequential) -> None:
    model._modules["1"] = model._modules.pop("1")
    model._modules["3"] = model._modules.pop("3")


def untie(model: nn.Sequential) -> None:
    model[2] = copy.deepcopy(model[2])
    with torch.no_grad():
        model[2].weight.neg_()


def tie(model: nn.Sequential) -> None:
    model[2] = model[1]


@pytest.mark.parametrize(
    ("shared", "edit"), [(False, reorder), (True, untie), (False, tie)],
    ids=["reordered", "untied", "tied"],
)  # fmt: skip
def test_a_tree_put_together_otherwise_is_another_model(shared, edit):
    def made() -> nn.Sequential:
        torch.manual_seed(3)
        first, second = nn.Linear(6, 6), nn.Linear(6, 6)
        return chain(first, first if shared else second)

    model, expected = made(), made()
    before = answer(model)
    edit(model)
    edit(expected)
    after = answer(model)
    assert same(after, answer(expected))
    assert not torch.equal(after.unit_scores, before.unit_scores)


def test_a_model_is_copied_once(monkeypatch):
    made = []
    monkeypatch.setattr(
        model_cache, "freeze", lambda m, f=model_cache.freeze: made.append(1) or f(m)
    )
    model = Net()
    first = answer(model)
    assert all(same(answer(model), first) for _ in range(3))
    agree(next(gp.explain_many(model, [row()], rounds=3, steps=4)), first)
    assert len(made) == 1
    list(gp.explain_many(model, [row()] * 3, rounds=3, steps=4))
    assert len(made) == 2  # The stream that was left before its end took its copy along.
    assert same(answer(model), first)
    assert len(made) == 2


class Counts(Net):
    """Writes on itself: the answer depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.shift.add_(0.1)
        return super().forward(x) * self.calls


class Drifts(Net):
    """Writes on a buffer, and on nothing that can be seen to differ."""

    def forward(self, x: Tensor) -> Tensor:
        self.shift.add_(0.1)
        return super().forward(x)


class Remembers(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.seen = x.detach().clone()
        return super().forward(x)


class Trains(Net):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        self.norm.train()
        return out


@pytest.mark.parametrize("kind", [Counts, Drifts, Remembers, Trains])
def test_a_model_that_writes_on_itself_starts_every_call_as_it_is(kind):
    model = kind()
    first = answer(model)
    assert same(answer(model), first)
    assert vars(model).keys() == vars(kind()).keys()
    assert torch.equal(model.shift, kind().shift)


def test_what_a_model_remembers_is_not_kept():
    model, seen = Remembers(), []
    plain = Remembers.forward

    def forward(self, x: Tensor) -> Tensor:
        out = plain(self, x)
        seen.append(ref(self.seen))
        return out

    Remembers.forward = forward
    try:
        answer(model)
    finally:
        Remembers.forward = plain
    gc.collect()
    assert seen
    assert all(r() is None for r in seen)


class Broken(Net):
    def forward(self, x: Tensor) -> Tensor:
        if self.scale < 0 and x.requires_grad:
            self.powers.append(7.0)
            raise RuntimeError("broken")
        return super().forward(x)


def test_after_an_error_the_next_call_is_as_ever():
    model = Broken()
    first = answer(model)
    model.scale = -1.0
    with pytest.raises(RuntimeError, match="broken"):
        answer(model)
    model.scale = 1.0
    assert same(answer(model), first)


def test_threads_that_share_a_model_do_not_share_its_copy():
    model = Net()
    expected = [gp.explain(Net(), row(i), rounds=3, steps=4) for i in range(4)]
    found: dict[tuple[int, int], gp.Attribution] = {}

    def work(i: int) -> None:
        for j in range(10):
            found[i, j] = gp.explain(model, row(i), rounds=3, steps=4)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    for (i, _), a in found.items():
        agree(a, expected[i])


def test_threads_that_fork_the_random_state_do_not_lock_each_other():
    """torch.get_rng_state alone does, within a second: in a process that can be given up."""
    program = """
import gc, os, sys, threading, time
import torch
from greedypig.core.randomness import Fork
gc.set_threshold(5)
sys.setswitchinterval(1e-6)

class Cycle:
    def __init__(self): self.me = self
    def __del__(self): sum(range(50))

def work():
    for _ in range(2000):
        Fork().call(lambda: (Cycle(), torch.rand(1)))

threads = [threading.Thread(target=work) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=120)
    assert done.returncode == 0


def test_captum_leaves_nothing_on_the_copy():
    attr = pytest.importorskip("captum.attr")
    model = mlp()
    first = answer(model)
    lift = gp.explain(model, row(), method=gp.from_captum(attr.DeepLift))
    assert same(answer(model), first)
    assert same(gp.explain(model, row(), method=gp.from_captum(attr.DeepLift)), lift)


def test_no_number_of_the_model_is_kept():
    """Old weights go when they are replaced, and the model when it is dropped."""
    model = Net()
    answer(model)
    gone = [ref(p) for p in model.first.parameters()]
    storage = model.last.weight.untyped_storage()._weak_ref()
    model.first = nn.Linear(6, 40)
    model.last.weight.data = torch.ones(3, 40)
    gc.collect()
    assert all(r() is None for r in gone)
    assert torch.UntypedStorage._expired(storage)
    gone = [ref(model), ref(model.first)]
    answer(model)
    del model
    gc.collect()
    assert all(r() is None for r in gone)


def test_a_class_that_closes_over_its_model_does_not_keep_it():
    def make() -> nn.Module:
        class Own(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return net(x) + len(instances)

        net, instances = mlp(), []
        instances.append(Own())
        return instances[0]

    model = make()
    answer(model)
    gone = ref(model)
    del model
    gc.collect()
    assert gone() is None


def fingerprint(model: nn.Module, x: Tensor) -> str:
    return gp.explain(model, x, method="gradient").provenance["model"]


WRITES = {
    "one number": lambda t: in_place(t[5]),
    "all by data": lambda t: t.data.mul_(1.01),
    "all by numpy": lambda t: t.detach().numpy().__imul__(1.01),
    "swapped": lambda t: setattr(t, "data", t.data.flip(0).contiguous()),
}


@pytest.mark.parametrize("name", WRITES)
def test_fingerprints_follow_the_weights(name):
    model = nn.Linear(300, 200)
    x = row(n=300)
    before = fingerprint(model, x)
    assert fingerprint(model, x) == before
    WRITES[name](model.weight)
    after = fingerprint(model, x)
    assert after != before
    assert after == fingerprint(copy.deepcopy(model), x)


def test_of_convolutions_every_number_counts():
    """Their fast copy has numbers of its own, so nothing may be missed."""
    model, x = (
        nn.Sequential(nn.Conv2d(3, 64, 3), nn.Flatten(), nn.Linear(64, 4)),
        picture(0, (3, 3, 3)),
    )
    before = fingerprint(model, x)
    model[0].weight.data.view(-1)[1000] += 1
    assert fingerprint(model, x) != before


def test_methods_of_a_model_keep_their_own_name():
    model = Net()
    one, two = fingerprint(model, row()), fingerprint(model.forward, row())
    assert one != two
    assert one.split()[-1] == two.split()[-1]
    assert torch.equal(answer(model).unit_scores, answer(model.forward).unit_scores)


def test_pictures_too():
    model, x = cnn(), picture()
    first = gp.explain(model, x, rounds=3, steps=2)
    assert same(gp.explain(model, x, rounds=3, steps=2), first)
    model[1].running_mean.data.add_(0.5)
    changed = gp.explain(model, x, rounds=3, steps=2)
    assert same(changed, gp.explain(copy.deepcopy(model), x, rounds=3, steps=2))
    assert not torch.equal(changed.unit_scores, first.unit_scores)
