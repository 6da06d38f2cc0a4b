"""A user's own network by package.module:factory: what it brings is used, the rest found out."""

from __future__ import annotations

import sys

import pytest
import torch

import greedypig as gp
from greedypig import models
from greedypig.images import model_from

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

MODULE = '''
import torch
from torch import nn


class Plain(nn.Module):
    """Mean colour to logits; notes the mode it is called in."""

    def __init__(self, outputs=1000, channels=3):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, outputs)

    def forward(self, x):
        return self.head(self.norm(x).mean((2, 3)))


def plain():
    return Plain()


def few():
    return Plain(4)


class Knowing(Plain):
    """Takes 32 x 32 of (level / 255) * 2 - 1 and knows four colours of things."""

    classes = ["red", "green", "blue", "dark"]

    def __init__(self):
        super().__init__(4)

    def preprocess(self, image):
        small = image.resize((32, 32))
        levels = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
        return levels.view(32, 32, 3).permute(2, 0, 1).float() / 127.5 - 1


class Batched(Knowing):
    classes = {1: "one"}

    def preprocess(self, image):
        return super().preprocess(image)[None]


class Everything(Knowing):
    def baseline(self, name):
        return torch.full((3, 1, 1), {"gray": 0.25, "black": 0.5, "white": 0.75}[name])

    def to_pixels(self, x):
        return x * 0 + 0.125


class Transform(nn.Module):
    def forward(self, image):
        return torch.full((3, 8, 8), float(image.getpixel((0, 0))[0]))


class WithModuleTransform(Plain):
    def __init__(self):
        super().__init__(5)
        self.preprocess = Transform()


class WithLayerOfThatName(Plain):
    def __init__(self):
        super().__init__(5)
        self.preprocess = nn.Conv2d(3, 3, 1)
        self.baseline = nn.Linear(1, 1)


class Standardising(Knowing):
    def preprocess(self, image):
        x = super().preprocess(image)
        return (x - x.mean()) / (x.std() + 1e-6)


class WrongClasses(Knowing):
    classes = ["only one"]


class NoTensor(Knowing):
    def preprocess(self, image):
        return [1, 2, 3]


class Flat(Knowing):
    def preprocess(self, image):
        return super().preprocess(image).reshape(-1)


class NoLogits(Plain):
    def forward(self, x):
        return x


class Small(Plain):
    def forward(self, x):
        raise RuntimeError("size 224 does not fit\\nand pages more")


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))


class Namespace:
    build = staticmethod(few)


instance = Plain(6)
number = 7


def raising():
    raise OSError("no weights on this disk")


def needing(argument):
    return Plain()


def text():
    return "a model"


def built_in():
    from greedypig import models

    return models.load("mobilenet-v2", weights="random")
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(MODULE)
    (tmp_path / "importing_nothing.py").write_text("import no_such_package_anywhere\n")
    (tmp_path / "with_a_typo.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_models", "importing_nothing", "with_a_typo"):
        sys.modules.pop(name, None)


def plain(colour):
    return Image.new("RGB", (300, 260), colour)


def test_a_plain_network_is_fed_as_usual_for_imagenet(own):
    net = model_from("own_models:plain")
    mobilenet = models.load("mobilenet-v2", weights="random")
    for colour in ("red", "white", (10, 20, 30)):
        assert torch.equal(net.preprocess(plain(colour)), mobilenet.preprocess(plain(colour)))
    assert torch.equal(net.baseline("gray"), mobilenet.baseline("gray"))
    assert net.classes == mobilenet.classes
    assert net(net.preprocess(plain("red"))[None]).shape == (1, 1000)


def test_it_comes_frozen_and_in_eval_mode(own):
    net = model_from("own_models:plain")
    assert not any(module.training for module in net.modules())
    assert not any(parameter.requires_grad for parameter in net.parameters())
    # Looking at it left no trace in its running statistics.
    assert torch.equal(net.net.norm.running_mean, torch.zeros(3))


def test_what_the_network_brings_is_used(own):
    net = model_from("own_models:Knowing")
    assert net.classes == ("red", "green", "blue", "dark")
    x = net.preprocess(plain((255, 0, 51)))
    assert x.shape == (3, 32, 32)
    assert x[:, 5, 5].tolist() == pytest.approx([1.0, -1.0, -0.6])


def test_colours_are_found_from_the_network_s_own_preprocessing(own):
    net = model_from("own_models:Knowing")
    for name, level in {"black": -1.0, "gray": 0.0, "white": 1.0}.items():
        assert net.baseline(name).flatten().tolist() == pytest.approx([level] * 3)
    x = net.preprocess(plain((255, 0, 51)))
    assert net.to_pixels(x[None])[0, :, 3, 3].tolist() == pytest.approx([1.0, 0.0, 0.2])
    with pytest.raises(gp.InvalidInput, match="Did you mean 'gray'"):
        net.baseline("grey")


def test_own_baseline_and_pixels_go_before_what_could_be_found(own):
    net = model_from("own_models:Everything")
    assert net.baseline("gray").flatten().tolist() == [0.25] * 3
    assert float(net.to_pixels(torch.zeros(3, 2, 2)).max()) == 0.125


def test_a_batch_of_one_and_a_mapping_of_names_will_do(own):
    net = model_from("own_models:Batched")
    assert net.preprocess(plain("red")).shape == (3, 32, 32)
    assert net.classes == ("class 0", "one", "class 2", "class 3")


def test_a_transform_that_is_a_module_is_used_and_adds_no_second_layer(own):
    net = model_from("own_models:WithModuleTransform")
    assert net.preprocess(plain((9, 0, 0))).unique().tolist() == [9.0]


def test_a_layer_of_that_name_is_no_preprocessing(own):
    net = model_from("own_models:WithLayerOfThatName")
    assert net.preprocess(plain("red")).shape == (3, 224, 224)
    assert net.baseline("gray").shape == (3, 1, 1)


def test_photos_are_upright_rgb_when_the_network_gets_them(own):
    net = model_from("own_models:Knowing")
    assert net.preprocess(Image.new("RGBA", (40, 40), (0, 0, 0, 0))).unique().tolist() == [1.0]
    with pytest.raises(gp.InvalidType, match="Expected a PIL image"):
        net.preprocess("photo.jpg")


@pytest.mark.parametrize(
    ("spec", "outputs"), [("few", 4), ("Namespace.build", 4), ("instance", 6), ("lazy", 4)]
)
def test_factories_classes_paths_and_networks_themselves_are_found(own, spec, outputs):
    assert len(model_from(f"own_models:{spec}").classes) == outputs


def test_a_built_in_network_from_a_factory_stays_what_it_is(own):
    assert type(model_from("own_models:built_in")) is models.MobileNetV2


def test_an_explanation_of_an_own_network_is_that_of_the_network(own):
    net = model_from("own_models:Knowing")
    x = net.preprocess(plain((200, 30, 60)))
    quick = gp.GreedyPIG(rounds=2, steps=3)
    a = gp.explain(net, x, target=0, baseline="gray", features="pixels", method=quick)
    b = gp.explain(net.net, x, target=0, baseline=0.0, features="pixels", method=quick)
    assert torch.equal(a.order, b.order)
    assert torch.allclose(a.scores, b.scores, atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        ("no_such_module:build", r"No module named 'no_such_module'\)\. Try the folder"),
        ("own_models.deeper:build", r"Expected .*own_models\.deeper"),
        ("importing_nothing:build", r"importing_nothing:build.*no_such_package_anywhere"),
        ("with_a_typo:build", r"with_a_typo:build.*SyntaxError"),
        ("own_models:missing", r"own_models:missing.*no attribute 'missing'"),
        ("own_models:number", r"got TypeError: 'int' object is not callable"),
        ("own_models:raising", r"got OSError: no weights on this disk"),
        ("own_models:needing", r"with 0 arguments \(got TypeError"),
        ("own_models:text", r"to give a torch\.nn\.Module \(got str\)"),
        ("own_models:", r"got TypeError: 'module' object is not callable"),
        (":build", r"package\.module:factory"),
        ("own models:build", r"package\.module:factory"),
        ("own_models.few", r'without a colon\)\. Try "own_models:few"'),
        ("own_models:WrongClasses", r"each of 4 classes .*got 1"),
        ("own_models:NoTensor", r"preprocess of own_models:NoTensor to give a tensor .*'list'"),
        ("own_models:Flat", r"\(channels, height, width\) \(got shape \(3072,"),
        ("own_models:NoLogits", r"own_models:NoLogits: .*\(1, classes\) .*got \(1, 3, 224, 224\)"),
        ("own_models:Small", r"\(1, 3, 224, 224\) \(got RuntimeError: size 224 does not fit\)"),
        ("mobilnet-v2", "Did you mean 'mobilenet-v2'"),
        ("resnet18", "your own as package.module:factory .*Did you mean 'resnet50'"),
    ],
)
def test_what_goes_wrong_is_one_sentence(own, spec, pattern):
    with pytest.raises(gp.InvalidInput, match=pattern) as caught:
        model_from(spec)
    assert "\n" not in str(caught.value)


def test_colours_that_cannot_be_found_are_asked_for(own):
    net = model_from("own_models:Standardising")
    with pytest.raises(gp.InvalidInput, match=r"Try giving the model attributes baseline\(name\)"):
        net.baseline("gray")
