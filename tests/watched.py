"""Models that are watched: their rows are counted, they may be slow, and they may end a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Watch:
    """Counts the rows that a model was evaluated on without a gradient, and those that gradients
    cost: a hook fires with every backward pass through the model's output."""

    __slots__ = ("forwards", "gradients", "most", "pause")

    def __init__(self) -> None:
        self.reset()

    def reset(self, *, most: int | None = None, pause: float = 0.0) -> None:
        """Begin at 0. most: so many gradients, and the next one is a KeyboardInterrupt. pause:
        seconds that a forward pass takes at least."""
        self.forwards = self.gradients = 0
        self.most, self.pause = most, pause

    def __call__(self, output: Tensor, rows: int | None = None) -> Tensor:
        """The output itself, watched."""
        rows = len(output) if rows is None else rows
        time.sleep(self.pause)
        if not output.requires_grad:
            self.forwards += rows
            return output
        if self.most is not None and self.gradients >= self.most:
            raise KeyboardInterrupt

        def paid(slope: Tensor) -> None:
            self.gradients += rows

        output.register_hook(paid)
        return output


WATCH = Watch()
"""A global, as networks are copied, and with them what they hold."""


class Watched(nn.Module):
    """A network whose outputs are watched."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        return WATCH(self.network(*inputs))


class WatchedGraph(nn.Module):
    """A graph network that is watched, and does not declare its layers: autograd's gradients. A
    pass over the graph is one row."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return WATCH(self.network(x, edge_index, edge_weight), rows=1)


def watched(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A plain function, of which no copy is made."""
    return lambda *inputs: WATCH(function(*inputs))


@contextmanager
def watched_texts(module: nn.Module) -> Iterator[None]:
    """All modules of this class of transformers are watched: doors work on copies."""
    kind, original = type(module), type(module).forward

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        output = original(self, *args, **options)
        WATCH(output.logits)
        return output

    forward.__signature__ = signature(original)  # type: ignore[attr-defined]
    kind.forward = forward
    try:
        yield
    finally:
        kind.forward = original


@contextmanager
def watched_photos(scale: float = 1.0) -> Iterator[str]:
    """The name under which a watched network of small photos is found; scale: of its weights."""
    from cli.tiny_models import Tiny

    class Photos(Tiny):
        def forward(self, x: Tensor) -> Tensor:
            return WATCH(super().forward(x))

    def build() -> nn.Module:
        net = Photos()
        with torch.no_grad():
            net.head.weight.mul_(scale)
        return net

    sys.modules["watched_photos"] = SimpleNamespace(build=build)  # type: ignore[assignment]
    try:
        yield "watched_photos:build"
    finally:
        del sys.modules["watched_photos"]
