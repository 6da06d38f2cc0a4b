"""A faster stand-in for the caller's network, where it answers alike.

Convolutional networks get BatchNorm folded into the convolutions, and channels last. The copy is
tried against the plain network before it is used.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from .frozen import HOOKS, Frozen, twin_of
from .randomness import Fork
from .reach import all_modules

if TYPE_CHECKING:
    from torch.fx import Graph

log = logging.getLogger(__name__)

SAME_OUTPUT = 1e-4
"""How far a faster network's output may be from the original's, relative to its largest."""

Probe: TypeAlias = "Callable[[Frozen], Tensor]"
"""Runs the caller's own inputs through a network and gives what comes out."""


def optimised(model: Callable[..., Any], plain: Frozen, probe: Probe) -> Frozen:
    """The fast stand-in where there is one that gives the plain network's outputs, else `plain`."""
    if plain.held or not isinstance(model, nn.Module) or not convolutional(model):
        return plain
    try:
        fast = _folded(model)
        expected, output = probe(plain), probe(fast)
        scale = expected.abs().max().clamp(min=1e-6)
        if bool((output - expected).abs().max() <= SAME_OUTPUT * scale):
            return fast
        log.debug("no faster %s that answers alike", type(model).__name__)
    except Exception as error:  # The fast path is a convenience; the plain one always works.
        log.debug("%s was not made faster (%s)", type(model).__name__, error)
    return plain


def _folded(model: nn.Module) -> Frozen:
    """The network with BatchNorm folded into convolutions, channels last."""
    twin = twin_of(model)
    _fold(twin)
    twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Frozen(twin, twin, channels_last=True)


def convolutional(model: Callable[..., Any]) -> bool:
    """Is there a convolution of pictures in the network?"""
    return isinstance(model, nn.Module) and any(
        isinstance(m, nn.Conv2d) for m in all_modules(model)
    )


def _fold(twin: nn.Module) -> None:
    """Fold every BatchNorm into the convolution that alone feeds it.

    The graph is only read, to see what feeds what; the twin keeps its own forward.
    """
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    nodes = nodes_of(twin)
    modules = dict(twin.named_modules())
    calls: dict[str, int] = {}
    for node in nodes:
        if node.op == "call_module":
            calls[str(node.target)] = calls.get(str(node.target), 0) + 1
    for node in nodes:
        if node.op != "call_module" or not node.args:
            continue
        feeder = node.args[0]
        if getattr(feeder, "op", "") != "call_module" or len(feeder.users) != 1:
            continue
        conv, norm = modules[str(feeder.target)], modules[str(node.target)]
        once = calls[str(feeder.target)] == calls[str(node.target)] == 1
        if once and _foldable(conv, norm):
            _replace(twin, str(feeder.target), fuse_conv_bn_eval(conv, norm))
            _replace(twin, str(node.target), nn.Identity())
    for parameter in twin.parameters():
        parameter.requires_grad_(False)


def _foldable(conv: nn.Module, norm: nn.Module) -> bool:
    pairs: dict[type, type] = {
        nn.Conv1d: nn.BatchNorm1d,
        nn.Conv2d: nn.BatchNorm2d,
        nn.Conv3d: nn.BatchNorm3d,
    }
    if pairs.get(type(conv)) is not type(norm) or getattr(norm, "running_mean", None) is None:
        return False
    return not any(getattr(m, name, None) for m in (conv, norm) for name in HOOKS)


class _Leaf(nn.Module):
    """Stands for a layer while the network is read: says that it is called, and with what."""

    def __init__(self, say: Callable[..., Any]) -> None:
        super().__init__()
        self.say = say

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A note in the graph in place of an output."""
        return self.say(args, kwargs)


def nodes_of(network: nn.Module) -> list[Any]:
    """What calls what, from the input to the output; nothing of a network that cannot be read."""
    try:
        return list(Fork().call(_read, network).nodes)  # Its forward may draw random numbers.
    except Exception as error:  # Control flow that depends on data, for one.
        log.debug("%s cannot be read (%s)", type(network).__name__, error)
        return []


def _read(twin: nn.Module) -> Graph:
    """What feeds what. `Tracer.trace` would patch nn.Module for all threads; this does not.

    The network's forward runs once, on a shell with buffers of its own to write on.
    """
    from torch.fx import Graph, Tracer

    tracer = Tracer()
    shell = copy.deepcopy(twin, {id(p): p for p in twin.parameters()})
    for path, module in list(shell.named_modules()):
        if path and tracer.is_leaf_module(module, path):
            _replace(shell, path, _Leaf(partial(tracer.create_proxy, "call_module", path)))
    tracer.root, tracer.graph = shell, Graph(tracer_cls=Tracer)
    tracer.tensor_attrs = {}
    answer = shell(tracer.create_proxy("placeholder", "x", (), {}))
    tracer.graph.output(tracer.create_arg(answer))
    return tracer.graph


def _replace(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(root.get_submodule(parent), name, module)
