"""Networks that are one layer after another, differentiated by hand.

A small network's gradient costs less than autograd's book-keeping and the calls of its modules.
Where a network is nothing but linear layers and the usual activations, the same kernels that
autograd would run are run here in a row: there, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from ..core.objective import Oracle, Runs
from .fold import nodes_of
from .frozen import HOOKS

_aten = torch.ops.aten

Forward: TypeAlias = Callable[[Tensor], Tensor]
Backward: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


class Link(NamedTuple):
    """One layer: its output, and from (gradient, input, output) the gradient at its input."""

    forward: Forward
    back: Backward


class Slopes(Protocol):
    """What is maximised, with its derivative known."""

    def logits(self, output: Any, rows: int) -> Tensor:
        """The output as (m, classes) or (m,)."""
        ...

    def values(self, logits: Tensor, runs: Any) -> Tensor:
        """The objective of every row."""
        ...

    def slopes(self, logits: Tensor, runs: Any) -> tuple[Tensor, Tensor]:
        """values (m,), and their derivatives with respect to each row's logits."""
        ...


class Chain:
    """Layers one after another."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = tuple(links)

    def after_first(self) -> Chain:
        """The chain without its first layer."""
        return Chain(self.links[1:])

    def forward(self, points: Tensor) -> list[Tensor]:
        """The points, and what every layer makes of them."""
        trail = [points]
        for link in self.links:
            points = link.forward(points)
            trail.append(points)
        return trail

    def back(self, gradient: Tensor, trail: list[Tensor]) -> Tensor:
        """From the gradient at the last layer's output to the one at the points."""
        for i in range(len(self.links) - 1, -1, -1):
            gradient = self.links[i].back(gradient, trail[i], trail[i + 1])
        return gradient


class ChainOracle(Oracle):
    """Values and gradients of a target at a chain's output, without autograd.

    `function` is the same by the network itself, for whoever looks at its layers.
    """

    def __init__(
        self,
        chain: Chain,
        target: Slopes,
        function: Callable[[Tensor, Runs], Tensor],
        n: int,
        *,
        batch_size: int | Literal["auto"],
    ) -> None:
        super().__init__(function, n, batch_size=batch_size)
        self.chain, self.target = chain, target

    def _call(
        self, points: Tensor, runs: Runs, gradient: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        with torch.no_grad():
            trail = self.chain.forward(points)
            output = trail[-1]
            logits = self.target.logits(output, points.shape[0])
            if not gradient:
                values = self.target.values(logits, runs)
                return values, None, values.sum()
            values, slopes = self.target.slopes(logits, runs)
            gradients = self.chain.back(slopes.view_as(output), trail)
            return values, gradients, values.sum()


def find_chain(network: nn.Module) -> str:
    """The paths of the layers of a network that is a chain, one a line; else ""."""
    layers = [m for m in network.modules() if not m._modules]
    if not all(map(_known, layers)) or any(map(_watched, network.modules())):
        return ""
    nodes = nodes_of(network)
    for before, node in pairwise(nodes):
        if node.args != (before,) or node.kwargs or len(before.users) != 1:
            return ""
    calls = nodes[1:-1]
    if any(node.op != "call_module" for node in calls):
        return ""
    paths = [str(node.target) for node in calls]
    # A module that torch calls a layer may hold others, and a path is one line here.
    readable = all("\n" not in path and _known(network.get_submodule(path)) for path in paths)
    return "\n".join(paths) if readable else ""


def chain_at(network: nn.Module, paths: str) -> Chain:
    """The chain of the layers at these paths, whose weights are read at every call."""
    links = (_link(network.get_submodule(path)) for path in paths.split("\n"))
    return Chain([link for link in links if link is not None])


def only_layers(network: nn.Module) -> bool:
    """Is the network made of torch's own sequences and layers alone, none of them changed, so
    that a call can neither leave anything on it nor depend on anything besides?"""
    return all(
        (type(m) is nn.Sequential or _known(m)) and not _watched(m) for m in network.modules()
    )


def as_torch_made_them() -> bool:
    """Are the forwards of the layers those that came with torch, and not patched in their class?"""
    return all(kind.forward is forward for kind, forward in _FORWARDS)


def _known(module: nn.Module) -> bool:
    """Is it a layer of torch's own, with its weights where such a layer has them?"""
    if type(module) is nn.Linear:
        return module._parameters.keys() == {"weight", "bias"}
    return type(module) in _LINKS


def _watched(module: nn.Module) -> bool:
    own = vars(module)
    return "forward" in own or any(own.get(name) for name in HOOKS)


def _link(layer: nn.Module) -> Link | None:
    return _LINKS[type(layer)](layer)


def _linear(layer: Any) -> Link:
    own = layer._parameters

    def forward(x: Tensor) -> Tensor:
        return nn.functional.linear(x, own["weight"], own["bias"])

    return Link(forward, lambda gradient, *_: gradient @ own["weight"])


def _relu(layer: Any) -> Link:
    return Link(torch.relu, lambda gradient, _, y: _aten.threshold_backward.default(gradient, y, 0))


def _leaky_relu(layer: Any) -> Link:
    slope = layer.negative_slope
    return Link(
        lambda x: nn.functional.leaky_relu(x, slope),
        lambda gradient, x, _: _aten.leaky_relu_backward.default(gradient, x, slope, False),
    )


def _tanh(layer: Any) -> Link:
    return Link(torch.tanh, lambda gradient, _, y: _aten.tanh_backward.default(gradient, y))


def _sigmoid(layer: Any) -> Link:
    return Link(torch.sigmoid, lambda gradient, _, y: _aten.sigmoid_backward.default(gradient, y))


def _silu(layer: Any) -> Link:
    return Link(nn.functional.silu, lambda gradient, x, _: _aten.silu_backward.default(gradient, x))


def _gelu(layer: Any) -> Link:
    kind = layer.approximate
    return Link(
        lambda x: nn.functional.gelu(x, approximate=kind),
        lambda gradient, x, _: _aten.gelu_backward.default(gradient, x, approximate=kind),
    )


def _nothing(layer: Any) -> None:
    """Dropout in eval mode, for one."""


_LINKS: dict[type[nn.Module], Callable[[Any], Link | None]] = {
    nn.Linear: _linear,
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.SiLU: _silu,
    nn.GELU: _gelu,
    nn.Dropout: _nothing,
    nn.Identity: _nothing,
    nn.Flatten: _nothing,  # Points are flat already.
}
_FORWARDS = [(kind, kind.forward) for kind in _LINKS]
