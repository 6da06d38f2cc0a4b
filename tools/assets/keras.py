"""Keras's ResNet50, as a TensorFlow.js manifest and its shards, to our own state dict.

The manifest lists the weights (name, shape, float32) in the order in which they follow one another
in the joined shards. The archive was checked by its SHA-256, so its content is taken as it is.
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

__all__ = ["resnet50", "shards"]

_SUFFIXES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_LAYERS = {"conv1": "conv1", "bn_conv1": "bn1", "fc1000": "fc"}
_BRANCHES = {
    ("res", "1"): "downsample.0",
    ("bn", "1"): "downsample.1",
    ("res", "2a"): "conv1",
    ("bn", "2a"): "bn1",
    ("res", "2b"): "conv2",
    ("bn", "2b"): "bn2",
    ("res", "2c"): "conv3",
    ("bn", "2c"): "bn3",
}


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
        array = np.frombuffer(content, "<f4", count, offset).reshape(entry["shape"])
        offset += 4 * count
        array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        if entry["name"] == "conv1/kernel":
            array = array[:, ::-1]
        state[_key(entry["name"])] = torch.from_numpy(array.copy())
    return save(dict(sorted(state.items())), {"format": "pt", "variant": "keras"})


def _groups(manifest: bytes) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = json.loads(manifest)["weightsManifest"]
    return groups


def _key(name: str) -> str:
    """Keras's name, such as "res3a_branch2b/kernel", in ours: "layer2.0.conv2.weight"."""
    layer, _, suffix = name.partition("/")
    place = _LAYERS.get(layer)
    if match := re.fullmatch(r"(res|bn)([2-5])([a-f])_branch(1|2[abc])", layer):
        kind, stage, block, branch = match.groups()
        part = _BRANCHES[kind, branch]
        place = f"layer{int(stage) - 1}.{ord(block) - ord('a')}.{part}"
    return f"{place}.{_SUFFIXES[suffix]}"
