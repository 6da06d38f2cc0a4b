"""EfficientNet-Lite0 and MobileNetV2: networks of inverted-residual blocks with ReLU6.

MobileNetV2 is the network of Sandler et al., "MobileNetV2: Inverted Residuals and Linear
Bottlenecks" (2018, Table 2). EfficientNet-Lite0 is the baseline network of Tan & Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks" (2019, Table 1) in its variant for small
devices, without squeeze-and-excitation. Modules are named so that the public weights fit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from .image_model import ImageModel

__all__ = ["EfficientNetLite0", "MobileNetV2"]


class Stage(NamedTuple):
    """A row of blocks; the first one has the stride, the others have stride 1."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


_LITE0 = (
    Stage(repeats=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(repeats=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(repeats=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(repeats=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(repeats=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(repeats=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(repeats=1, kernel=3, stride=1, expansion=6, channels=320),
)
_MOBILENET_V2 = (
    Stage(repeats=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(repeats=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(repeats=3, kernel=3, stride=2, expansion=6, channels=32),
    Stage(repeats=4, kernel=3, stride=2, expansion=6, channels=64),
    Stage(repeats=3, kernel=3, stride=1, expansion=6, channels=96),
    Stage(repeats=3, kernel=3, stride=2, expansion=6, channels=160),
    Stage(repeats=1, kernel=3, stride=1, expansion=6, channels=320),
)


class EfficientNetLite0(ImageModel):
    """EfficientNet-Lite0 for ImageNet: images (m, 3, 224, 224) to logits (m, 1000).

    Its input is `(level - 127) / 128`, so that mid-gray is exactly 0; height and width must be
    multiples of 32. The keys of the state dict are those of the checkpoint
    `efficientnet-lite0-57934424.pth`. The stochastic depth of the training is left out.
    """

    name = "efficientnet-lite0"
    resample = "BICUBIC"
    level_mean = (127.0, 127.0, 127.0)
    level_std = (128.0, 128.0, 128.0)
    gray_level = 127.0

    def __init__(self) -> None:
        super().__init__()
        self._stem_pad = _same_padding(3, stride=2)
        self._conv_stem = nn.Conv2d(3, 32, 3, stride=2, bias=False)
        self._bn0 = _batch_norm(32)
        self._stem_relu = nn.ReLU6()
        self._blocks = nn.Sequential(*_blocks(_LITE0, 32, _lite_layers))
        self._conv_head = nn.Conv2d(_LITE0[-1].channels, 1280, 1, bias=False)
        self._bn1 = _batch_norm(1280)
        self._head_relu = nn.ReLU6()
        self._pool = nn.AdaptiveAvgPool2d(1)
        self._flatten = nn.Flatten()
        self._dropout = nn.Dropout(0.2)
        self._fc = nn.Linear(1280, 1000)


class MobileNetV2(ImageModel):
    """MobileNetV2 for ImageNet: images (m, 3, 224, 224) to logits (m, 1000).

    Its input is normalised by ImageNet's mean and deviation. The keys of the state dict are
    torchvision's (`features.0.0.weight` ... `classifier.1.bias`).
    """

    name = "mobilenet-v2"

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _conv_bn_relu(3, 32, kernel=3, stride=2),
            *_blocks(_MOBILENET_V2, 32, _mobile_layers),
            _conv_bn_relu(_MOBILENET_V2[-1].channels, 1280, kernel=1),
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))


Layers = dict[str, nn.Module]


class _InvertedResidual(nn.Sequential):
    """Widen by a 1x1 convolution, filter each channel by itself, narrow by a 1x1 without ReLU.

    Where input and output agree in shape, the input is added.
    """

    def __init__(self, layers: Layers, adds_input: bool) -> None:
        super().__init__(OrderedDict(layers))
        self.adds_input = adds_input

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + y if self.adds_input else y


def _blocks(
    stages: Sequence[Stage], channels: int, layers: Callable[[int, Stage, int], Layers]
) -> list[nn.Module]:
    """The blocks of all stages, for an input of so many channels."""
    blocks: list[nn.Module] = []
    for stage in stages:
        for repeat in range(stage.repeats):
            stride = stage.stride if repeat == 0 else 1
            adds_input = stride == 1 and channels == stage.channels
            blocks.append(_InvertedResidual(layers(channels, stage, stride), adds_input))
            channels = stage.channels
    return blocks


def _lite_layers(channels: int, stage: Stage, stride: int) -> Layers:
    wide = channels * stage.expansion
    layers: Layers = {}
    if stage.expansion != 1:
        layers["_expand_conv"] = nn.Conv2d(channels, wide, 1, bias=False)
        layers["_bn0"] = _batch_norm(wide)
        layers["_expand_relu"] = nn.ReLU6()
    # At stride 1 "same" is symmetric, and the convolution pads by itself.
    padding = stage.kernel // 2 if stride == 1 else 0
    return layers | {
        "_pad": _same_padding(stage.kernel, stride),
        "_depthwise_conv": nn.Conv2d(
            wide, wide, stage.kernel, stride=stride, padding=padding, groups=wide, bias=False
        ),
        "_bn1": _batch_norm(wide),
        "_depthwise_relu": nn.ReLU6(),
        "_project_conv": nn.Conv2d(wide, stage.channels, 1, bias=False),
        "_bn2": _batch_norm(stage.channels),
    }


def _mobile_layers(channels: int, stage: Stage, stride: int) -> Layers:
    wide = channels * stage.expansion
    widen = [_conv_bn_relu(channels, wide, kernel=1)] if stage.expansion != 1 else []
    layers = nn.Sequential(
        *widen,
        _conv_bn_relu(wide, wide, kernel=stage.kernel, stride=stride, groups=wide),
        nn.Conv2d(wide, stage.channels, 1, bias=False),
        nn.BatchNorm2d(stage.channels),
    )
    return {"conv": layers}


def _same_padding(kernel: int, stride: int) -> nn.Module:
    """TensorFlow's "same" for even sizes: kernel - stride zeros, the odd one at bottom right."""
    if stride == 1:
        return nn.Identity()
    zeros = kernel - stride
    before, after = zeros // 2, zeros - zeros // 2
    return nn.ZeroPad2d((before, after, before, after))


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    # TensorFlow's epsilon, and its momentum of 0.99 in PyTorch's sense of the word.
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _conv_bn_relu(
    channels: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    convolution = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU6())
