"""The caller's model, input and random state come back as they were: after success, after an
error from inside the model, and after Ctrl-C."""

import copy
import random
import sys
import threading
from collections import OrderedDict
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from nets import batch_norm, picture, row

CALLS = {"left": None, "error": None}
"""A fuse that all models below burn: after `left` more calls they raise `error`."""


def burn() -> None:
    if CALLS["error"] is not None:
        CALLS["left"] -= 1
        if CALLS["left"] <= 0:
            raise CALLS["error"]


@pytest.fixture(autouse=True)
def fuse(monkeypatch):
    """Compiled modules take no hooks, so their fuse is where they are called from python."""
    plain = nn.Module.__call__

    def call(self, *args, **kwargs):
        burn()
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(torch.jit.RecursiveScriptModule, "__call__", call, raising=False)
    yield
    CALLS.update(left=None, error=None)


class Net(nn.Module):
    """Everything a careless library would disturb: BatchNorm, dropout, mixed modes and flags."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 4, 3), batch_norm(4)
        self.drop, self.frozen = nn.Dropout(0.5), nn.Conv2d(4, 4, 1)
        self.late = batch_norm(4)
        self.head = nn.Linear(4, 3)
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(torch.tanh(self.norm(self.conv(x))))
        return self.head(torch.tanh(self.late(self.frozen(h))).mean((2, 3))) + self.hidden

    def scores(self, x: Tensor) -> Tensor:
        return self.forward(x) * 2


class Locked(Net):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class CopiesToItself(Net):
    """A singleton: its copy is itself."""

    def __deepcopy__(self, memo):
        return self


class SharedPart(Net):
    """One submodule is a singleton, the rest is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = SingletonNorm(4)


class SingletonNorm(nn.BatchNorm2d):
    def __deepcopy__(self, memo):
        return self


class Closure(Net):
    """A function that holds on to the original: copies share it."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = lambda x: self.norm(self.conv(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(x)).mean((2, 3)))


class ClosureInAList(Closure):
    """The same, one container deeper."""

    def __init__(self) -> None:
        super().__init__()
        del self.middle
        self.steps = [lambda x: self.norm(self.conv(x))]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.steps[0](x)).mean((2, 3)))


class ClosureInAHook(Net):
    """A hook that calls another part of the original."""

    def __init__(self) -> None:
        super().__init__()
        self.drop.register_forward_hook(lambda module, inputs, output: self.late(output))


class BoundByDefault(Net):
    """A function that holds the original in a default argument."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = lambda x, net=self: net.norm(net.conv(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(x)).mean((2, 3)))


def in_use(model: nn.Module) -> nn.Module:
    """In the middle of training: modes mixed, some frozen, some with gradients."""
    model.train()
    model.drop.eval()
    for p in model.frozen.parameters():
        p.requires_grad_(False)
    out = nn.functional.cross_entropy(
        model.forward(torch.stack([picture(s) for s in range(3)])), torch.tensor([0, 1, 2])
    )
    out.backward()
    model.head.bias.grad = None
    return model


def subject(kind: str):
    """(module, what is called); the fuse is lit by a hook, which is itself to be kept."""
    if kind == "script":
        module = torch.jit.script(in_use(Net()))
        return module, module
    makers = {
        "plain": Net,
        "locked": Locked,
        "method": Net,
        "itself": CopiesToItself,
        "shared part": SharedPart,
        "closure": Closure,
        "locked method": Locked,
        "closure in a list": ClosureInAList,
        "closure in a hook": ClosureInAHook,
        "bound by default": BoundByDefault,
    }
    module = in_use(makers[kind]())
    module.conv.register_forward_pre_hook(lambda m, args: burn())
    return module, module.scores if "method" in kind else module


KINDS = ["plain", "locked", "method", "locked method", "script"]
ODD = [
    "itself",
    "shared part",
    "closure",
    "closure in a list",
    "closure in a hook",
    "bound by default",
]
"""Their copies are not free of the original."""

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def state_of(module: nn.Module) -> dict[str, object]:
    """Everything about a module that explain might disturb, in comparable form."""
    found: dict[str, object] = {}
    for name, m in module.named_modules():
        found[f"{name}: mode"] = m.training
        if not isinstance(m, torch.jit.ScriptModule):
            found[f"{name}: attributes"] = sorted(vars(m))
            found[f"{name}: class"] = (type(m), id(m))
            for key, value in vars(m).items():
                if "hooks" in key and isinstance(value, dict | OrderedDict):
                    found[f"{name}: {key}"] = list(value.items())
    for name, p in module.named_parameters():
        found[f"{name}: flag"] = p.requires_grad
        found[f"{name}: place"] = (p.data_ptr(), p.stride(), p.is_leaf)
        found[f"{name}: grad"] = None if p.grad is None else (p.grad.data_ptr(), bits(p.grad))
    for name, b in module.named_buffers():
        found[f"{name}: buffer"] = (bits(b), b.requires_grad, b.data_ptr())
    for name, t in module.state_dict().items():
        found[f"{name}: state"] = bits(t)
    return found


def bits(t: Tensor) -> bytes:
    return t.detach().clone().numpy().tobytes()


def world() -> tuple[object, ...]:
    """Global state: random generators and autograd's modes."""
    return (
        bits(torch.get_rng_state()),
        repr(np.random.get_state()),
        random.getstate(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )


class Watch:
    """Compare a module and the world before and after."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.state, self.world = module, state_of(module), world()

    def check(self) -> None:
        after = state_of(self.module)
        changed = [k for k in self.state.keys() | after.keys() if self.state.get(k) != after.get(k)]
        assert changed == []
        assert world() == self.world


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["greedy-pig", "smooth-ig", "random", gp.Greedy(gp.GuidedIG(3))])
def test_success_leaves_no_trace(kind, method):
    module, model = subject(kind)
    watch = Watch(module)
    a = gp.explain(model, picture(), method=method)
    assert sorted(a.order.tolist()) == list(range(90))
    watch.check()


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("fails", [False, True])
def test_copies_that_are_tied_to_the_original_leave_no_trace(kind, fails):
    module, model = subject(kind)
    watch = Watch(module)
    if fails:
        CALLS.update(left=5, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            gp.explain(model, picture(), batch_size=2, method=gp.GreedyPIG(rounds=9, steps=3))
        CALLS.update(error=None)
    else:
        gp.explain(model, picture(), method=gp.GreedyPIG(rounds=3, steps=2))
    watch.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()], ids=type)
@pytest.mark.parametrize("call", [1, 2, 3, 5, 9])
def test_a_failing_call_leaves_no_trace(kind, error, call):
    module, model = subject(kind)
    watch = Watch(module)
    CALLS.update(left=call, error=error)
    with pytest.raises((type(error), gp.InvalidInput), match=str(error)):
        gp.explain(model, picture(), batch_size=2, method=gp.GreedyPIG(rounds=9, steps=3))
    CALLS.update(error=None)
    watch.check()


@pytest.mark.parametrize("kind", KINDS)
def test_an_abandoned_stream_leaves_no_trace(kind):
    module, model = subject(kind)
    watch = Watch(module)
    stream = gp.explain_many(
        model, [picture(s) for s in range(9)], batch_size=4, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    next(stream)
    watch.check()  # Also between two answers, while work is under way.
    next(stream)
    stream.close()
    watch.check()


@pytest.mark.parametrize("kind", ["plain", "locked", "script"])
def test_an_error_inside_a_stream_leaves_no_trace(kind):
    module, model = subject(kind)
    watch = Watch(module)
    CALLS.update(left=12, error=KeyboardInterrupt())
    stream = gp.explain_many(
        model, [picture(s) for s in range(9)], batch_size=4, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    CALLS.update(error=None)
    watch.check()


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_backward_pass_leaves_no_trace(kind, monkeypatch):
    module, model = subject(kind)
    watch = Watch(module)
    plain, calls = torch.autograd.grad, []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gp.explain(model, picture(), method=gp.GreedyPIG(rounds=9, steps=3))
    watch.check()


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_that_of_the_model_in_eval_mode(kind):
    """Not of dropout and batch statistics, and the same however the model had to be frozen."""
    _, model = subject(kind)
    a = gp.explain(model, picture(), objective="logit", method=gp.IG(steps=3))
    plain = copy.deepcopy(in_use(Net())).eval()
    called = plain.scores if "method" in kind else plain
    b = gp.explain(called, picture(), objective="logit", method=gp.IG(steps=3))
    assert torch.allclose(a.scores, b.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("fails", [False, True])
def test_inputs_baselines_and_fixed_tensors_are_only_read(fails):
    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x: Tensor, shift: Tensor) -> Tensor:
            burn()
            return self.net(x + shift)

    x = row().requires_grad_(True)
    x.grad = torch.ones(6)
    baseline, shift = row(1), row(2)
    ids = torch.arange(6) // 2
    tensors = [x, baseline, shift, ids]
    before = [(bits(t), t._version, t.requires_grad, t.data_ptr()) for t in tensors]
    run = partial(
        gp.explain,
        Conditioned(),
        x,
        baseline=baseline,
        fixed=shift,
        features=ids,
        method=gp.GreedyPIG(rounds=3, steps=2),
    )
    if fails:
        CALLS.update(left=4, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run()
    else:
        run()
    assert [(bits(t), t._version, t.requires_grad, t.data_ptr()) for t in tensors] == before
    assert torch.equal(x.grad, torch.ones(6))
    assert baseline.grad is None


def test_the_result_does_not_change_with_the_caller_s_tensors():
    model, x, ids = nn.Linear(6, 3), row(), torch.arange(6) // 2
    a = gp.explain(model, x, features=ids, method=gp.GreedyPIG(rounds=2, steps=2))
    scores, order, mask = a.scores.clone(), a.order.clone(), a.mask(1).clone()
    x.zero_()
    ids.zero_()
    assert torch.equal(a.scores, scores)
    assert torch.equal(a.order, order)
    assert torch.equal(a.mask(1), mask)


FREEZING = ("network/frozen.py", "network/reach.py", "contextlib.py")


def interrupt_at(call: int, run) -> int:
    """Run, raising KeyboardInterrupt as the call-th function of the freezing code is entered.

    Functions are entered where Python looks for signals, so this is where Ctrl-C can strike.
    Returns how many such places there were.
    """
    seen = 0

    def trace(frame, event, arg):
        nonlocal seen
        code = frame.f_code
        place = code.co_filename.endswith(FREEZING)
        if event == "call" and (place or code.co_name == "__setattr__"):
            seen += 1
            if seen == call:
                raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["locked", "plain", "script"])
def test_ctrl_c_at_any_place_of_the_freezing_code_leaves_no_trace(kind):
    module, model = subject(kind)
    watch = Watch(module)
    run = partial(gp.explain, model, picture(), method=gp.GreedyPIG(rounds=1, steps=1))
    places = interrupt_at(0, run)
    assert places > 10
    for place in range(1, places + 1, max(1, places // 150)):
        interrupt_at(place, run)
        watch.check()


class Reads(nn.Module):
    """Looks around while it is run, also when it is only read to find out what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), batch_norm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        LOOKS.append((nn.Module.__call__, nn.Module.__getattr__))
        elsewhere = threading.Thread(target=self.other_work)
        elsewhere.start()
        elsewhere.join()
        return self.head(torch.tanh(self.norm(self.conv(x))).mean((2, 3)))

    @staticmethod
    def other_work() -> None:
        try:
            OTHER(torch.ones(1, 2))
        except BaseException as error:
            LOOKS.append(error)


LOOKS: list[object] = []
OTHER = nn.Linear(2, 2)


def test_nothing_global_is_patched_and_other_threads_go_on():
    """An interrupt or another thread would meet torch itself changed."""
    LOOKS.clear()
    expected = (nn.Module.__call__, nn.Module.__getattr__)
    gp.explain(Reads().eval(), picture(), method=gp.GreedyPIG(rounds=1, steps=1))
    assert len(LOOKS) >= 3
    assert all(look == expected for look in LOOKS), set(map(str, LOOKS))


@pytest.mark.parametrize(
    "wrap", [partial, lambda m: lambda x: m(x), lambda m: lambda x, net=[m]: net[0](x)]
)
def test_modules_behind_a_plain_function_are_frozen_and_put_back(wrap):
    module = in_use(Net())
    expected = gp.explain(module, picture(), method=gp.IG(steps=3)).scores
    watch = Watch(module)
    found = gp.explain(wrap(module), picture(), method=gp.IG(steps=3)).scores
    watch.check()
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("place", [0, 1])
def test_in_place_steps_write_on_nothing_of_the_caller_s(place):
    x = row()
    layers = [nn.Linear(6, 6), nn.Linear(6, 3)]
    layers.insert(place, nn.ReLU(inplace=True))
    before = x.clone()
    fast = gp.explain(
        nn.Sequential(*layers), x, baseline=0.5, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    layers[place] = nn.ReLU()
    plain = gp.explain(
        nn.Sequential(*layers), x, baseline=0.5, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    agree(fast, plain)
    assert torch.equal(x, before)


# Models that no search through closures finds: seen when they are called.


class Service:
    """Holds its models where nobody looks."""

    def __init__(self, net: nn.Module) -> None:
        self.registry = {"v1": {"nets": [net]}}

    def predict(self, x: Tensor) -> Tensor:
        return self.registry["v1"]["nets"][0](x)


def _deep(net: nn.Module):
    f = net
    for _ in range(6):
        f = (lambda inner: lambda x: inner(x))(f)
    return f


def _patched(net: nn.Module) -> nn.Module:
    """Its forward is a function that names the old one among its globals."""
    space = {"old": net.forward}
    exec("def forward(x):\n    return old(x) * 1.0", space)
    space["forward"].__module__ = "somewhere"
    net.forward = space["forward"]
    return net


class ReachesOut(nn.Module):
    """A module whose forward calls another one that is not its own."""

    outside: ClassVar[list[nn.Module]] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.outside[0](x)


def _outside(net: nn.Module) -> nn.Module:
    ReachesOut.outside[:] = [net]
    return ReachesOut()


HIDDEN = {
    "registry": lambda net: Service(net).predict,
    "lambda around a service": lambda net: (lambda s: lambda x: s.predict(x))(Service(net)),
    "six closures": _deep,
    "vmap": lambda net: lambda x: torch.func.vmap(lambda u: net(u.unsqueeze(0))[0])(x),
    "patched forward": _patched,
    "module of another": _outside,
}


def _dropping() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16),
        batch_norm(16, nn.BatchNorm1d),
        nn.Dropout(0.5),
        nn.Tanh(),
        nn.Linear(16, 3),
    ).train()


@pytest.mark.parametrize("hide", HIDDEN)
def test_a_model_reached_in_a_roundabout_way_is_explained_in_eval_mode_and_put_back(hide):
    net, x = _dropping(), torch.linspace(-1, 1, 6)
    wanted = gp.explain(copy.deepcopy(net), x, target=0, method=gp.GreedyPIG(rounds=3, steps=3))
    before = copy.deepcopy(net.state_dict())
    found = gp.explain(HIDDEN[hide](net), x, target=0, method=gp.GreedyPIG(rounds=3, steps=3))
    assert torch.allclose(found.scores, wanted.scores, atol=1e-6)
    assert all(m.training for m in net.modules())
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    assert all(torch.equal(before[k], t) for k, t in net.state_dict().items())


@pytest.mark.parametrize("hide", HIDDEN)
def test_a_model_reached_in_a_roundabout_way_is_known_by_its_weights(hide, tmp_path):
    net, x = _dropping(), torch.linspace(-1, 1, 6)
    model = HIDDEN[hide](net)

    def explained(file: str) -> gp.Attribution:
        method = gp.GreedyPIG(rounds=3, steps=3)
        return gp.explain(model, x, target=0, method=method, checkpoint=tmp_path / file)

    first = explained("first.gpig").provenance["model"]
    assert explained("second.gpig").provenance["model"] == first
    with torch.no_grad():
        net[0].weight[0, 0] += 1
    assert explained("third.gpig").provenance["model"] != first
    with pytest.raises(gp.InvalidInput, match="model of the saved run"):
        explained("first.gpig")


class Writes(nn.Module):
    """Counts its calls in a buffer, in a way that torch may not see."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.net = how, nn.Linear(6, 3)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "in place":
            self.count += 1
        elif self.how == "by data":
            self.count.data += 1
        elif self.how == "by NumPy":
            self.count.numpy()[:] += 1
        elif self.how == "in another size":
            self.count.resize_(3).fill_(7.0)
        elif self.how == "anew":
            self.count = self.count + 1
        return self.net(x) * (1 + self.count.sum())


@pytest.mark.parametrize("how", ["in place", "by data", "by NumPy", "in another size", "anew"])
def test_buffers_come_back_however_a_function_s_model_writes_on_them(how):
    net = Writes(how)
    kept, place = net.count, net.count.data_ptr()
    a = gp.explain(
        lambda x: net(x), torch.linspace(-1, 1, 6), target=0, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    assert net.count is kept
    assert net.count.tolist() == [0, 0]
    if how != "in another size":
        assert net.count.data_ptr() == place
    # Every call of the model found it at 0, and so made it 1 and 1, or 7, 7 and 7.
    scale, plain = 1 + (21 if how == "in another size" else 2), net.net
    expected = gp.explain(
        lambda x: plain(x) * scale,
        torch.linspace(-1, 1, 6),
        target=0,
        method=gp.GreedyPIG(rounds=3, steps=2),
    )
    agree(a, expected)


def test_sparse_buffers_of_a_function_s_model_stay():
    class Neighbours(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("edges", torch.eye(6).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(self.edges, x.T).T

    net = Neighbours()
    kept = net.edges
    gp.explain(
        lambda x: net(x), torch.linspace(-1, 1, 6), target=0, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    assert net.edges is kept
    assert torch.equal(net.edges.to_dense(), torch.eye(6))


def test_what_the_caller_writes_between_two_answers_stays():
    net = Writes("not at all")
    xs = [torch.linspace(-1, i, 6) for i in range(4)]
    for done, _ in enumerate(
        gp.explain_many(lambda x: net(x), xs, batch_size=2, method=gp.GreedyPIG(rounds=2)), 1
    ):
        net.count.data += 1  # As a fused optimiser does: torch counts no version.
        assert net.count.tolist() == [done, done]


def test_the_caller_s_own_graph_stays_valid_while_its_model_is_explained():
    net = Writes("by data")
    out = (net.net(torch.ones(1, 6)).sum(1, keepdim=True) * net.count).sum()
    gp.explain(lambda x: net(x), torch.ones(6), method=gp.GreedyPIG(rounds=2, steps=2))
    out.backward()  # It saved the buffer, which must not count as written on.


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: lambda x: m(x)], ids=["model", "function"])
def test_observers_of_quantisation_come_back(wrap, trained):
    """They write by a fused kernel, in eval mode too, and resize what is empty."""
    from torch.ao import quantization

    net = nn.Sequential(
        quantization.QuantStub(),
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
        quantization.DeQuantStub(),
    )
    net.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    net = quantization.prepare_qat(net.train())
    if trained:
        net(torch.rand(2, 3, 6, 5))
    watch = Watch(net)
    gp.explain(wrap(net), 5 * picture(), target=0, method=gp.GreedyPIG(rounds=2, steps=2))
    after = net.state_dict()
    assert {k: bits(t) for k, t in after.items()} == {
        k.removesuffix(": state"): v for k, v in watch.state.items() if k.endswith(": state")
    }
    net(torch.rand(2, 3, 6, 5))  # It can still be trained.


def test_threads_that_share_a_function_s_model_leave_it_as_it_was():
    net = _dropping()
    wanted = gp.explain(
        copy.deepcopy(net), torch.ones(6), target=0, method=gp.GreedyPIG(rounds=3, steps=3)
    )
    found: list[gp.Attribution] = []

    def work() -> None:
        for _ in range(8):
            f = lambda x: net(x)  # noqa: E731
            found.append(
                gp.explain(f, torch.ones(6), target=0, method=gp.GreedyPIG(rounds=3, steps=3))
            )

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 24
    for a in found:
        agree(a, wanted)
    assert all(m.training for m in net.modules())
    assert all(p.requires_grad for p in net.parameters())
