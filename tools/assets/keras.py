"""Keras's ResNet50, as a TensorFlow.js manifest and its shards, to our own state dict.

The manifest lists the weights (name, shape, float32) in the order in which they follow one another
in the joined shards.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from greedypig.core.errors import InvalidFile
from greedypig.images.networks.resnet import ResNet50

__all__ = ["resnet50", "shards"]

_SUFFIXES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_BRANCHES = {"2a": "1", "2b": "2", "2c": "3"}


def shards(manifest: bytes) -> list[str]:
    """The names of the files that hold the weights, in order."""
    return [path for group in _groups(manifest) for path in group["paths"]]


def resnet50(manifest: bytes, content: bytes) -> bytes:
    """A safetensors file with the state dict of `ResNet50(keras=True)`.

    Convolutions go from (height, width, in, out) to (out, in, height, width), the dense layer from
    (in, out) to (out, in); the first convolution's channels from blue, green, red to red, green,
    blue.
    """
    state: dict[str, Tensor] = {}
    offset = 0
    for entry in (entry for group in _groups(manifest) for entry in group["weights"]):
        count = math.prod(entry["shape"])
        if entry["dtype"] != "float32" or offset + 4 * count > len(content):
            raise InvalidFile(
                f"Expected {count} numbers of float32 for {entry['name']} (got {entry['dtype']}, "
                f"{len(content) - offset} bytes left)."
            )
        array = np.frombuffer(content, "<f4", count, offset).reshape(entry["shape"])
        offset += 4 * count
        state[_key(entry["name"])] = torch.from_numpy(_turned(entry["name"], array).copy())
    if offset != len(content):
        raise InvalidFile(f"Expected {offset} bytes of weights (got {len(content)}).")
    _check(state)
    return save(dict(sorted(state.items())), {"format": "pt", "variant": "keras"})


def _groups(manifest: bytes) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = json.loads(manifest)["weightsManifest"]
    return groups


def _key(name: str) -> str:
    """Keras's name, such as "res3a_branch2b/kernel", in ours: "layer2.0.conv2.weight"."""
    layer, _, suffix = name.partition("/")
    if suffix in _SUFFIXES:
        end = _SUFFIXES[suffix]
        if layer in ("conv1", "bn_conv1", "fc1000"):
            return f"{ {'conv1': 'conv1', 'bn_conv1': 'bn1', 'fc1000': 'fc'}[layer] }.{end}"
        if match := re.fullmatch(r"(res|bn)([2-5])([a-f])_branch(1|2[abc])", layer):
            kind, stage, block, branch = match.groups()
            place = f"layer{int(stage) - 1}.{ord(block) - ord('a')}"
            if branch == "1":
                return f"{place}.downsample.{0 if kind == 'res' else 1}.{end}"
            return f"{place}.{'conv' if kind == 'res' else 'bn'}{_BRANCHES[branch]}.{end}"
    raise InvalidFile(f"Expected the weights of Keras's ResNet50 (got one called {name}).")


def _turned(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
        return array[:, ::-1] if name == "conv1/kernel" else array
    return array.T if array.ndim == 2 else array


def _check(state: dict[str, Tensor]) -> None:
    with torch.device("meta"):
        expected = ResNet50(keras=True).state_dict()
    shapes = {k: v.shape for k, v in expected.items() if not k.endswith("num_batches_tracked")}
    given = {key: value.shape for key, value in state.items()}
    if given != shapes:
        odd = sorted(key for key in given.keys() | shapes if given.get(key) != shapes.get(key))
        raise InvalidFile(f"Expected the weights of a ResNet50 (got a misfit at {odd[0]}).")
