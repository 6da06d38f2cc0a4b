"""Inverted-residual blocks, of which MobileNetV2 and EfficientNet-Lite are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

__all__ = ["InvertedResidual", "Stage", "blocks"]


class Stage(NamedTuple):
    """A row of blocks; the first one has the stride, the others have stride 1."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


class InvertedResidual(nn.Module):
    """Widen by a 1x1 convolution, filter each channel by itself, narrow by a 1x1 without ReLU.

    Where input and output agree in shape, the input is added. A subclass defines the layers, with
    the names that its public weights have.
    """

    def __init__(self, channels: int, stage: Stage, stride: int) -> None:
        super().__init__()
        self.adds_input = stride == 1 and channels == stage.channels

    def branch(self, x: Tensor) -> Tensor:
        """The layers."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(m, channels, h, w) to (m, stage.channels, h / stride, w / stride)."""
        y = self.branch(x)
        return x + y if self.adds_input else y


def blocks(
    stages: Sequence[Stage], channels: int, block: Callable[[int, Stage, int], nn.Module]
) -> list[nn.Module]:
    """The blocks of all stages, for an input of so many channels."""
    layers = []
    for stage in stages:
        for repeat in range(stage.repeats):
            layers.append(block(channels, stage, stage.stride if repeat == 0 else 1))
            channels = stage.channels
    return layers
