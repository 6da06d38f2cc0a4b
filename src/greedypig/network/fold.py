"""A faster stand-in for the caller's network, where it answers alike.

Convolutional networks get BatchNorm folded into the convolutions, and channels last. Networks
that begin with a large linear layer are cut after it. Whatever is made is tried against the plain
network before it is used.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from ..core.randomness import Fork
from .eval_mode import all_modules
from .frozen import HOOKS, Frozen, twin_of

if TYPE_CHECKING:
    from torch.fx import Graph

log = logging.getLogger(__name__)

SAME_OUTPUT = 1e-4
"""How far a faster network's output may be from the original's, relative to its largest."""

Probe: TypeAlias = "Callable[[Frozen], Tensor]"
"""Runs the caller's own inputs through a network and gives what comes out."""


# By the model's id, with a weak reference whose callback is C code alone: a Ctrl-C that lands in
# a callback written in Python is lost.
_kept: dict[int, tuple[ReferenceType[nn.Module], str, Frozen | None]] = {}


def optimised(
    model: Callable[..., Any], plain: Frozen, fingerprint: str, at_input: Probe, on_line: Probe
) -> Frozen:
    """The fast stand-in where it is safe, else `plain`.

    It is made once, tried on a line of inputs (on_line), and kept as long as the model lives and
    its fingerprint stays the same. As no fingerprint sees everything it is tried once more at
    the input of every call (at_input).
    """
    if plain.held or not isinstance(model, nn.Module) or not convolutional(model):
        return plain
    key = f"{fingerprint} {_hooks(model)}"
    kept = _kept.get(id(model))
    if kept is None or kept[0]() is not model or kept[1] != key:
        forget = partial(_kept.pop, id(model))
        kept = (ref(model, forget), key, _made_fast(model, plain, on_line))
        _kept[id(model)] = kept
    fast = kept[2]
    if fast is None:
        return plain
    if _agree(fast, plain, at_input):
        return fast
    _kept.pop(id(model), None)
    return plain


def _made_fast(model: nn.Module, plain: Frozen, on_line: Probe) -> Frozen | None:
    try:
        fast = _folded(model)
        if _agree(fast, plain, on_line):
            return fast
        log.debug("no faster %s that answers alike", type(model).__name__)
    except Exception as error:  # The fast path is a convenience; the plain one always works.
        log.debug("%s was not made faster (%s)", type(model).__name__, error)
    return None


def _agree(fast: Frozen, plain: Frozen, probe: Probe) -> bool:
    expected, found = probe(plain), probe(fast)
    scale = expected.abs().max().clamp(min=1e-6)
    return bool((found - expected).abs().max() <= SAME_OUTPUT * scale)


def _folded(model: nn.Module) -> Frozen:
    """The network with BatchNorm folded into convolutions, channels last."""
    twin = twin_of(model)
    _fold(twin)
    twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Frozen(twin, twin, channels_last=True, watched=True)  # As the plain one was.


class FirstLayer:
    """A network cut after its first layer, which is linear.

    Of a straight line of inputs the layer makes a straight line: layer(begin + t · (end − begin))
    = layer(begin) + t · (layer(end) − layer(begin)). So two products with its weights stand for
    those of all points, and one for those of all gradients on the way back.
    """

    def __init__(self, network: Frozen, path: str) -> None:
        assert network.module is not None
        parent, _, self.name = path.rpartition(".")
        self.network, self.siblings = network, network.module.get_submodule(parent)._modules
        layer = self.siblings[self.name]
        assert isinstance(layer, nn.Linear)
        self.layer, self.inputs, self.outputs = layer, layer.in_features, layer.out_features

    def of(self, points: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs): what the layer makes of these points."""
        return nn.functional.linear(points, self.layer.weight, self.layer.bias)

    def back(self, gradient: Tensor) -> Tensor:
        """(outputs,) → (inputs,): the gradient with respect to the layer's input."""
        return gradient @ self.layer.weight

    def rest(self, made: Tensor) -> Any:
        """The network's output where its first layer made this."""
        self.siblings[self.name] = _AS_IT_IS
        try:
            return self.network(made)
        finally:
            self.siblings[self.name] = self.layer


_AS_IT_IS = nn.Identity()


def first_linear(network: nn.Module, n: int) -> str:
    """Where the layer is that alone reads the network's input (n,), if it is linear and holds
    most of the weights; else ""."""
    sizes = {id(p): p.numel() for p in network.parameters()}
    large = {
        id(m)
        for m in all_modules(network)
        if type(m) is nn.Linear
        and m.in_features == n
        and 2 * m.weight.numel() > sum(sizes.values())
    }
    if not large or id(network) in large:
        return ""
    nodes = nodes_of(network)
    readers = list(nodes[0].users) if nodes else []
    if len(readers) != 1 or readers[0].op != "call_module" or readers[0].args != (nodes[0],):
        return ""
    path = str(readers[0].target)
    once = sum(node.op == "call_module" and node.target == path for node in nodes) == 1
    return path if once and id(network.get_submodule(path)) in large else ""


def _hooks(model: nn.Module) -> list[int]:
    """Who hooks in where: a hook changes the answer and no weight."""
    return [
        id(hook)
        for m in model.modules()
        for name in HOOKS
        for hook in getattr(m, name, {}).values()
    ]


def convolutional(model: Callable[..., Any], modules: Sequence[nn.Module] = ()) -> bool:
    """Is there a convolution of pictures in the network, whose modules may be known already?"""
    return isinstance(model, nn.Module) and any(
        isinstance(m, nn.Conv2d) for m in modules or all_modules(model)
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
