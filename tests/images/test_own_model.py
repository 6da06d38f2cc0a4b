"""A user's own network: whatever it gives becomes logits, and a judge sees the picture its way."""

from __future__ import annotations

import warnings
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import greedypig as gp
import greedypig.metrics as M
from greedypig.images import from_spec
from greedypig.images.from_spec import OwnModel

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

Answer = namedtuple("Answer", "scores features")
QUICK = gp.GreedyPIG(rounds=2, steps=2)


class Net(nn.Module):
    """A small network on `side` x `side` pixels of (pixels − mean) / std, blue first if asked."""

    def __init__(self, side=12, mean=0.0, std=1.0, *, bgr=False, seed=0, outputs=3, gives=None):
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(3))
        self.head = nn.Linear(36, outputs)
        self.head.weight.data *= 40
        self.side, self.mean, self.std, self.bgr = side, mean, std, bgr
        self.gives = gives or (lambda z: z)

    def pixels(self, x):
        model = x * self.std + self.mean
        return model.flip(-3) if self.bgr else model

    def forward(self, x):
        return self.gives(self.head(self.body(self.pixels(x)).flatten(1)))

    def preprocess(self, image):
        small = image.resize((self.side, self.side)) if self.side else image
        levels = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
        pixels = levels.view(small.height, small.width, 3).permute(2, 0, 1).float() / 255
        return ((pixels.flip(0) if self.bgr else pixels) - self.mean) / self.std


@pytest.fixture(autouse=True)
def _no_seed_of_ours():
    with torch.random.fork_rng(devices=[]):
        yield


def own(*args, stated=None, **more):
    return OwnModel(Net(*args, **more), "mine:net", stated)


def photo(width=20, height=16):
    levels = torch.rand(height, width, 3, generator=torch.Generator().manual_seed(0))
    grown = (levels * 255).byte().numpy().tobytes()
    return Image.frombytes("RGB", (width, height), grown)


def order_of(x):
    return torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))


def curves(model, judge, x):
    options = {"target": 1, "baseline": "gray", "points": 9}
    return [M.information_curves(model, x, order_of(x), judge=j, **options) for j in (None, judge)]


# A judge


@pytest.mark.parametrize("how", [{}, {"mean": 0.5, "std": 0.5}])
def test_a_network_judged_by_itself_agrees_with_itself(how):
    model, judge = own(**how), own(**how)
    x = model.preprocess(photo())
    assert torch.allclose(model.from_pixels(model.to_pixels(x)), x, atol=1e-6 / abs(model.net.std))
    alone, judged = curves(model, judge, x)
    for name in ("softmax", "loss"):
        values = alone[name].values
        assert values.max() - values.min() > 0.01
        assert judged[name].values.tolist() == pytest.approx(values.tolist(), abs=1e-4)


def test_the_same_network_behind_another_preprocessing_sees_the_same_pictures():
    model, judge = own(), own(mean=0.5, std=0.5)
    alone, judged = curves(model, judge, model.preprocess(photo()))
    assert judged["softmax"].values.tolist() == pytest.approx(
        alone["softmax"].values.tolist(), abs=1e-4
    )


def test_a_built_in_judge_gets_a_small_picture_in_its_own_size():
    from greedypig.metrics.judges import translation

    model, judge = own(), gp.models.load("mobilenet-v2", weights="random")
    x = model.preprocess(photo())[None]
    assert translation(model, judge)(x).shape == (1, 3, 224, 224)
    assert translation(judge, model)(torch.zeros(1, 3, 224, 224)).shape == (1, 3, 12, 12)
    # A picture that is none of the model's customary ones keeps its size.
    assert translation(judge, model)(torch.zeros(1, 3, 32, 32)).shape == (1, 3, 32, 32)


def changed(change):
    """A network whose preprocessing ends in another step."""
    net = Net()
    plain = net.preprocess
    net.preprocess = lambda image: change(plain(image))
    return net


@pytest.mark.parametrize(
    "net",
    [
        lambda: changed(lambda x: x**2.2),
        lambda: Net(bgr=True),
        lambda: changed(lambda x: x + torch.linspace(0, 1, 12)),
        lambda: changed(lambda x: x[:1].expand(3, -1, -1)),
        lambda: Net(mean=0.3, std=0.2),
    ],
    ids=["gamma", "bgr", "uneven", "one colour", "another scale"],
)
def test_a_preprocessing_of_another_scale_asks_for_attributes(net):
    straight, crooked = own(), OwnModel(net(), "mine:net")
    x = straight.preprocess(photo())
    attributes = (
        r"preprocess of mine:net .*baseline\(name\), to_pixels\(x\) .*from_pixels\(pixels\)"
    )
    for model, judge in ((straight, crooked), (crooked, straight)):
        with pytest.raises(gp.InvalidInput, match=attributes):
            M.softmax_information_curve(model, x, order_of(x), judge=judge, target=1)
    with pytest.raises(gp.InvalidInput, match=attributes):
        crooked.baseline("gray")
    # With a baseline of one's own it is explained like any other.
    a = gp.explain(crooked, crooked.preprocess(photo()) + 0.1, baseline=0.0, method=QUICK)
    assert a.order.numel() == x.numel()


def test_ways_of_the_network_s_own_go_before_what_could_be_found():
    model = own()
    crooked = changed(lambda x: x**2.2)
    crooked.to_pixels = lambda x: x.clamp(0, 1) ** (1 / 2.2)
    crooked.from_pixels = lambda pixels: pixels**2.2
    crooked.baseline = lambda name: torch.full((3, 1, 1), {"gray": 0.5**2.2}[name])
    judge = OwnModel(crooked, "mine:gamma")
    pixels = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(2))
    assert torch.equal(judge.from_pixels(pixels), pixels**2.2)
    curves(model, judge, model.preprocess(photo()))
    curves(judge, model, judge.preprocess(photo()))


# What it gives

FORMS = {
    "a dict": lambda z: {"logits": z},
    "a tuple": lambda z: (z, None),
    "a named tuple": lambda z: Answer(z, None),
    "an object": lambda z: SimpleNamespace(logits=z),
}


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_found_where_gp_explain_finds_them(form):
    plain, other = own(), own(gives=FORMS[form])
    x = plain.preprocess(photo())
    assert torch.equal(other(x[None]), plain(x[None]))
    assert other.classes == ("class 0", "class 1", "class 2")
    a, b = (gp.explain(m, x, target=1, method=QUICK) for m in (plain, other))
    assert torch.equal(a.order, b.order)


def test_probabilities_are_read_as_such_where_the_network_says_so():
    net = Net(gives=lambda z: torch.softmax(z, 1))
    net.outputs = "probabilities"
    plain = own()
    x = torch.stack([plain.preprocess(photo())] * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OwnModel(net, "mine:net")
    assert torch.allclose(torch.softmax(model(x), 1), torch.softmax(plain(x), 1), atol=1e-6)
    del net.outputs
    assert torch.equal(OwnModel(net, "mine:net", "probabilities")(x), model(x))


def test_nothing_is_guessed_but_what_looks_like_probabilities_is_told():
    net = Net(gives=lambda z: torch.softmax(z, 1))
    with pytest.warns(UserWarning, match=r"probabilities .*outputs='probabilities'"):
        model = OwnModel(net, "mine:net")
    x = model.preprocess(photo())[None]
    assert torch.equal(model(x), net(x))


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_logit_is_two_classes(shape):
    model = own(outputs=1, gives=lambda z: z.reshape(shape))
    x = torch.stack([model.preprocess(photo())] * 3)
    z = model.net(x).flatten()
    assert model.classes == ("no", "yes")
    assert torch.allclose(torch.softmax(model(x), 1)[:, 1], torch.sigmoid(z), atol=1e-6)
    alone = M.information_curves(model, x[0], order_of(x[0]), points=5)
    assert torch.isfinite(alone["loss"].values).all()


def test_one_probability_is_two_classes():
    plain = own(outputs=1)
    model = own(outputs=1, gives=torch.sigmoid, stated="probabilities")
    x = plain.preprocess(photo())[None]
    assert torch.allclose(torch.softmax(model(x), 1), torch.softmax(plain(x), 1), atol=1e-6)
    sure = own(outputs=1, gives=lambda z: z * 0 + 1, stated="probabilities")
    assert torch.softmax(sure(x), 1)[0].tolist() == pytest.approx([0.0, 1.0], abs=1e-30)


def test_wrong_words_about_outputs_are_refused():
    for attribute in ("probability", "softmax"):
        net = Net()
        net.outputs = attribute
        with pytest.raises(gp.InvalidInput, match=f"mine:net: .*outputs.*got '{attribute}'"):
            OwnModel(net, "mine:net")
    for outputs in (1, 3):
        with pytest.raises(gp.InvalidInput, match=r"mine:net: Expected probabilities .*sum to 1"):
            own(outputs=outputs, gives=lambda z: z * 0 + 3, stated="probabilities")
    net = Net()
    net.outputs = 3  # A number of that name is something else.
    assert OwnModel(net, "mine:net").outputs == "logits"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(from_spec, "load", lambda name: gp.models.load(name, "random"))
        with pytest.raises(gp.InvalidInput, match=r"your own .*mobilenet-v2, which gives"):
            from_spec.model_from("mobilenet-v2", outputs="probabilities")


# An objective


def test_a_function_as_objective_is_measured_in_place_of_a_probability():
    def lead(logits):
        return logits[:, 1] - logits[:, 2]

    model = own()
    x = model.preprocess(photo())
    gray = model.baseline("gray").expand_as(x)
    a = gp.explain_photo(photo(), model, objective=lead, method=QUICK)
    best = torch.where(a.mask(round(0.1 * x.numel())), x, gray)
    nothing, tenth, whole = lead(model(torch.stack([gray, best, x]))).tolist()
    assert list(a.about.curves) == ["objective"]
    values = a.about.curves["objective"].values.tolist()
    assert values[0] == pytest.approx(nothing, abs=1e-4) == a.about.nothing
    assert values[-1] == pytest.approx(whole, abs=1e-4)
    assert a.about.kept[0.1] == pytest.approx(tenth, abs=1e-4)
    assert a.settings["target"] is None
    assert not a.about.label
    assert gp.report.html(a)
