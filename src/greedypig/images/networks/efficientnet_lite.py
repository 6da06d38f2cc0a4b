"""EfficientNet-Lite0: 16 inverted-residual blocks, ReLU6, no squeeze-and-excitation.

The baseline network of Tan & Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks" (2019, Table 1) in its variant for small devices. The weights were trained in TensorFlow,
whose "same" padding puts the odd zero of a stride-2 convolution at the bottom right; with symmetric
padding every such window would sit one pixel off.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .image_model import ImageModel
from .inverted_residual import InvertedResidual, Stage, blocks

__all__ = ["EfficientNetLite0"]


_STAGES = (
    Stage(repeats=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(repeats=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(repeats=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(repeats=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(repeats=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(repeats=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(repeats=1, kernel=3, stride=1, expansion=6, channels=320),
)


class EfficientNetLite0(ImageModel):
    """EfficientNet-Lite0 for ImageNet: images (m, 3, 224, 224) to logits (m, 1000).

    Its input is `(level - 127) / 128`, so that mid-gray is exactly 0. The keys of the state dict
    are those of the checkpoint `efficientnet-lite0-57934424.pth`. The stochastic depth of the
    training is left out.
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
        self._blocks = nn.Sequential(*blocks(_STAGES, 32, _Block))
        self._conv_head = nn.Conv2d(_STAGES[-1].channels, 1280, 1, bias=False)
        self._bn1 = _batch_norm(1280)
        self._head_relu = nn.ReLU6()
        self._pool = nn.AdaptiveAvgPool2d(1)
        self._dropout = nn.Dropout(0.2)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Images (m, 3, h, w) to logits (m, 1000); h and w multiples of 32, trained at 224."""
        x = self._stem_relu(self._bn0(self._conv_stem(self._stem_pad(x))))
        x = self._blocks(x)
        x = self._head_relu(self._bn1(self._conv_head(x)))
        x = torch.flatten(self._pool(x), 1)
        logits: Tensor = self._fc(self._dropout(x))
        return logits


class _Block(InvertedResidual):
    def __init__(self, channels: int, stage: Stage, stride: int) -> None:
        super().__init__(channels, stage, stride)
        wide = channels * stage.expansion
        self._widens = stage.expansion != 1
        if self._widens:
            self._expand_conv = nn.Conv2d(channels, wide, 1, bias=False)
            self._bn0 = _batch_norm(wide)
            self._expand_relu = nn.ReLU6()
        self._pad = _same_padding(stage.kernel, stride)
        # At stride 1 "same" is symmetric, and the convolution pads by itself.
        padding = stage.kernel // 2 if stride == 1 else 0
        self._depthwise_conv = nn.Conv2d(
            wide, wide, stage.kernel, stride=stride, padding=padding, groups=wide, bias=False
        )
        self._bn1 = _batch_norm(wide)
        self._depthwise_relu = nn.ReLU6()
        self._project_conv = nn.Conv2d(wide, stage.channels, 1, bias=False)
        self._bn2 = _batch_norm(stage.channels)

    def branch(self, x: Tensor) -> Tensor:
        if self._widens:
            x = self._expand_relu(self._bn0(self._expand_conv(x)))
        x = self._depthwise_relu(self._bn1(self._depthwise_conv(self._pad(x))))
        y: Tensor = self._bn2(self._project_conv(x))
        return y


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
