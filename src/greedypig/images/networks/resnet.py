"""ResNet50: 16 bottleneck blocks with shortcuts, in the two variants whose weights are around.

The network of He et al., "Deep Residual Learning for Image Recognition" (2016, Table 1). Weights
that were trained for one variant make a worse network in the other, without any error:

| | torchvision | Keras |
|---|---|---|
| a stage's stride is in its first block's | 3x3 convolution | first 1x1 convolution |
| convolutions have a bias | no | yes |
| epsilon of BatchNorm | 1e-5 | 1e-3 |
| input | ImageNet's mean and deviation | levels minus their mean |

So the weights decide: where `conv1.bias` is among them, they are Keras's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from torch import Tensor, nn

from .image_model import ImageModel

__all__ = ["ResNet50"]


_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""Blocks, channels and stride of each stage."""
_EXPANSION = 4
"""A block gives four times the channels that its 3x3 convolution works on."""


class ResNet50(ImageModel):
    """ResNet50 for ImageNet: images (m, 3, 224, 224) to logits (m, 1000).

    The keys of the state dict are torchvision's (`conv1.weight`, `layer1.0.conv1.weight` ...
    `fc.bias`), with `keras=True` also `conv1.bias` and so on. The Keras weights were trained on
    blue, green, red; `conv1.weight` is expected turned to red, green, blue, like all inputs here.
    """

    name = "resnet50"

    def __init__(self, *, keras: bool = False) -> None:
        super().__init__()
        self.keras = keras
        if keras:
            self.level_mean = (123.68, 116.779, 103.939)
            self.level_std = (1.0, 1.0, 1.0)
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=keras)
        self.bn1 = nn.BatchNorm2d(64, eps=1e-3 if keras else 1e-5)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        stages = []
        for count, width, stride in _STAGES:
            blocks = [_Bottleneck(channels, width, stride, keras)]
            channels = width * _EXPANSION
            blocks += [_Bottleneck(channels, width, 1, keras) for _ in range(count - 1)]
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(channels, 1000)

    @classmethod
    def for_weights(cls, state: object) -> Self:
        """The variant that the state dict was made for."""
        return cls(keras=isinstance(state, Mapping) and "conv1.bias" in state)


class _Bottleneck(nn.Module):
    """Narrow by a 1x1 convolution, filter by a 3x3, widen by a 1x1; add the input.

    Where input and output differ in shape, the input passes a 1x1 convolution (`downsample`).
    """

    def __init__(self, channels: int, width: int, stride: int, keras: bool) -> None:
        super().__init__()
        out = width * _EXPANSION
        epsilon = 1e-3 if keras else 1e-5
        first, second = (stride, 1) if keras else (1, stride)
        self.conv1 = nn.Conv2d(channels, width, 1, stride=first, bias=keras)
        self.bn1 = nn.BatchNorm2d(width, eps=epsilon)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=keras)
        self.bn2 = nn.BatchNorm2d(width, eps=epsilon)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, out, 1, bias=keras)
        self.bn3 = nn.BatchNorm2d(out, eps=epsilon)
        self.relu3 = nn.ReLU()
        self.downsample: nn.Sequential | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=keras),
                nn.BatchNorm2d(out, eps=epsilon),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.relu2(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        shortcut = x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu3(y + shortcut)
        return out
