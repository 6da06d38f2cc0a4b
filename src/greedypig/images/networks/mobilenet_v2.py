"""MobileNetV2: 17 inverted-residual blocks with linear bottlenecks, ReLU6 throughout.

The network of Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018, Table
2). The modules are nested so that the state-dict keys are torchvision's (`features.0.0.weight` ...
`classifier.1.bias`) and its public weights fit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .image_model import ImageModel
from .inverted_residual import InvertedResidual, Stage, blocks

__all__ = ["MobileNetV2"]


_STAGES = (
    Stage(repeats=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(repeats=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(repeats=3, kernel=3, stride=2, expansion=6, channels=32),
    Stage(repeats=4, kernel=3, stride=2, expansion=6, channels=64),
    Stage(repeats=3, kernel=3, stride=1, expansion=6, channels=96),
    Stage(repeats=3, kernel=3, stride=2, expansion=6, channels=160),
    Stage(repeats=1, kernel=3, stride=1, expansion=6, channels=320),
)
"""The paper's Table 2."""


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
        self.features = nn.Sequential(
            _conv_bn_relu(3, 32, kernel=3, stride=2),
            *blocks(_STAGES, 32, _Block),
            _conv_bn_relu(_STAGES[-1].channels, 1280, kernel=1),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        """Images (m, 3, h, w) to logits (m, 1000); trained at 224 x 224."""
        x = torch.flatten(self.pool(self.features(x)), 1)
        logits: Tensor = self.classifier(x)
        return logits


class _Block(InvertedResidual):
    def __init__(self, channels: int, stage: Stage, stride: int) -> None:
        super().__init__(channels, stage, stride)
        wide = channels * stage.expansion
        layers: list[nn.Module] = []
        if stage.expansion != 1:
            layers.append(_conv_bn_relu(channels, wide, kernel=1))
        layers.append(_conv_bn_relu(wide, wide, kernel=stage.kernel, stride=stride, groups=wide))
        layers.append(nn.Conv2d(wide, stage.channels, 1, bias=False))
        layers.append(nn.BatchNorm2d(stage.channels))
        self.conv = nn.Sequential(*layers)

    def branch(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y


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
