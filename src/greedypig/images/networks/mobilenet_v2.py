"""MobileNetV2: 17 inverted-residual blocks with linear bottlenecks, ReLU6 throughout.

The network of Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018, Table
2). The modules are nested so that the state-dict keys are torchvision's (`features.0.0.weight` ...
`classifier.1.bias`) and its public weights fit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .image_model import ImageModel

__all__ = ["MobileNetV2"]


class _Stage(NamedTuple):
    """One row of the paper's Table 2: t, c, n and s."""

    expansion: int
    channels: int
    repeats: int
    stride: int


_STAGES = (
    _Stage(expansion=1, channels=16, repeats=1, stride=1),
    _Stage(expansion=6, channels=24, repeats=2, stride=2),
    _Stage(expansion=6, channels=32, repeats=3, stride=2),
    _Stage(expansion=6, channels=64, repeats=4, stride=2),
    _Stage(expansion=6, channels=96, repeats=3, stride=1),
    _Stage(expansion=6, channels=160, repeats=3, stride=2),
    _Stage(expansion=6, channels=320, repeats=1, stride=1),
)


class MobileNetV2(ImageModel):
    """MobileNetV2 for ImageNet: images (m, 3, 224, 224) to logits (m, 1000).

    Its input is normalised by ImageNet's mean (0.485, 0.456, 0.406) and deviation (0.229, 0.224,
    0.225).
    """

    name = "mobilenet-v2"
    resample = "BILINEAR"
    level_mean = (255 * 0.485, 255 * 0.456, 255 * 0.406)
    level_std = (255 * 0.229, 255 * 0.224, 255 * 0.225)

    def __init__(self) -> None:
        super().__init__()
        features: list[nn.Module] = [_conv_bn_relu(3, 32, kernel=3, stride=2)]
        channels = 32
        for stage in _STAGES:
            for repeat in range(stage.repeats):
                stride = stage.stride if repeat == 0 else 1
                features.append(_InvertedResidual(channels, stage, stride))
                channels = stage.channels
        features.append(_conv_bn_relu(channels, 1280, kernel=1))
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        """Images (m, 3, h, w) to logits (m, 1000); trained at 224 x 224."""
        x = torch.flatten(self.pool(self.features(x)), 1)
        logits: Tensor = self.classifier(x)
        return logits


class _InvertedResidual(nn.Module):
    """Widen by a 1x1 convolution, filter each channel by itself, narrow by a 1x1 without ReLU.

    Where input and output agree in shape, the input is added.
    """

    def __init__(self, channels: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        wide = channels * stage.expansion
        layers: list[nn.Module] = []
        if stage.expansion != 1:
            layers.append(_conv_bn_relu(channels, wide, kernel=1))
        layers.append(_conv_bn_relu(wide, wide, kernel=3, stride=stride, groups=wide))
        layers.append(nn.Conv2d(wide, stage.channels, 1, bias=False))
        layers.append(nn.BatchNorm2d(stage.channels))
        self.conv = nn.Sequential(*layers)
        self.adds_input = stride == 1 and channels == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds_input else y


def _conv_bn_relu(
    channels: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(
            channels, out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        ),
        nn.BatchNorm2d(out),
        nn.ReLU6(),
    )
