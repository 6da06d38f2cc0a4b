"""Which models are plain stacks of graph convolutions, and so have the fast gradient?

A model that says so itself (`gcn_layers()`, as greedypig.models.GCN does), or a run of PyG's
GCNConv with ReLU or nothing (and BatchNorm, which in eval mode is part of the matrix) in between,
however it is written: the layers are watched at work on a small part of the graph. Nothing is
believed that is not checked there: values and gradients must equal those of autograd.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..network.frozen import Frozen
from .edges import EdgeFunction, Graph
from .gcn_gradient import GCNObjective, Layer, Stack
from .objectives import NodeTarget
from .propagation import Propagation

log = logging.getLogger(__name__)

SAMPLE = 2000
"""About so many units of the graph serve for the check."""
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative distance up to which two gradients are the same; ReLU's kinks show in float32."""


@dataclass(frozen=True, eq=False)
class Shape:
    """A stack of graph convolutions, and what it does with loops."""

    layers: tuple[Layer, ...]
    loop: float = 1.0
    """The weight of every node's loop to itself."""
    own_loops: bool = False
    """Does an edge from a node to itself set the weight of its loop? Else it does nothing."""

    def stack(self, x: Tensor, graph: Graph, normalisation: str = "recomputed") -> Stack:
        """The stack on a graph."""
        propagation = Propagation(
            graph, normalisation=normalisation, loop=self.loop, own_loops=self.own_loops
        )
        return Stack(self.layers, x, propagation)


def fast_stack(network: Frozen, x: Tensor, graph: Graph, normalisation: str) -> Stack | None:
    """The model as a stack of graph convolutions, if that is what it is."""
    if network.module is None or network.held or x.device.type != "cpu" or x.dim() != 2:
        return None
    if x.dtype not in CLOSE or network.call is not network.module:
        return None
    try:
        part, features = sample(graph, x)
        shape = _declared(network.module) or _watched(network, features, part)
        if shape is None or any(la.weight.dtype != x.dtype for la in shape.layers):
            return None
        if shape.own_loops and _repeated_loops(graph):
            return None
        if _agrees(shape, network, features, part):
            return shape.stack(x, graph, normalisation)
    except Exception as error:  # Whatever a foreign model may raise on another graph.
        log.debug("%s is taken as it is (%s)", type(network.module).__name__, error)
    return None


def sample(graph: Graph, x: Tensor) -> tuple[Graph, Tensor]:
    """A part of the graph with whole units, its nodes numbered anew, and their features."""
    if graph.columns <= SAMPLE:
        return graph, x
    count = int(graph.units.max()) + 1
    chosen = torch.zeros(count, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    chosen[torch.randint(count, (SAMPLE,), generator=generator)] = True
    source, target = graph.edge_index
    chosen[graph.units[source == target][:100]] = True
    return restricted(graph, x, torch.nonzero(chosen[graph.units]).squeeze(1))[:2]


def restricted(graph: Graph, x: Tensor, columns: Tensor) -> tuple[Graph, Tensor, Tensor]:
    """The graph of these columns alone, their nodes' features, and those nodes' ids."""
    nodes, ends = torch.unique(graph.edge_index[:, columns], return_inverse=True)
    part = Graph(nodes.numel(), ends, graph.weight[columns], graph.undirected)
    return part, rows_of(x, nodes), nodes


def rows_of(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows of x, dense or sparse."""
    if x.layout not in (torch.strided, torch.sparse_coo):
        x = x.to_sparse_coo()  # type: ignore[no-untyped-call]
    return x.index_select(0, nodes)


def _declared(module: nn.Module) -> Shape | None:
    """What a model says of itself: W (in, out) and b of every layer, ReLU between them."""
    declared = getattr(module, "gcn_layers", None)
    if not callable(declared):
        return None
    layers = [(w.detach(), None if b is None else b.detach()) for w, b in declared()]
    last = len(layers) - 1
    return Shape(tuple(Layer(w.contiguous(), b, i < last) for i, (w, b) in enumerate(layers)))


@dataclass
class _Seen:
    """One module at work: what went in, what came out."""

    module: Any
    args: dict[str, Any]
    output: Tensor


def _watched(network: Frozen, x: Tensor, graph: Graph) -> Shape | None:
    """A run of GCNConv, seen at work."""
    module = network.module
    assert module is not None
    if not any(_is_conv(m) for m in module.modules()):
        return None
    seen: list[_Seen] = []
    with _watching(module, seen), torch.no_grad():
        output = network(x, graph.edge_index, graph.weight)
    convs = [s for s in seen if _is_conv(s.module)]
    loops = {2.0 if s.module.improved else 1.0 for s in convs}
    if len(loops) != 1 or not all(_usual(s, graph) for s in convs):
        return None
    if seen[0] is not convs[0] or not torch.equal(seen[0].args["x"], x):
        return None
    layers, i = [], 0
    while i < len(seen):
        weight, bias = _parameters(seen[i].module)
        out = seen[i].output
        i += 1
        if i < len(seen) and not _is_conv(seen[i].module):
            if not torch.equal(seen[i].args["x"], out):
                return None
            weight, bias = _folded(weight, bias, seen[i].module)
            out = seen[i].output
            i += 1
        relu = _between(out, seen[i].args["x"] if i < len(seen) else None, output)
        if relu is None:
            return None
        layers.append(Layer(weight.contiguous(), bias, relu))
    return Shape(tuple(layers), loops.pop(), own_loops=True)


@contextmanager
def _watching(module: nn.Module, seen: list[_Seen]) -> Iterator[None]:
    """Note every GCNConv and BatchNorm at work, in order."""

    def note(m: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        names = ("x", "edge_index", "edge_weight") if _is_conv(m) else ("x",)
        given = dict(zip(names, args, strict=False)) | kwargs
        if "input" in given:
            given["x"] = given.pop("input")
        given["x"] = given["x"].clone()  # A step in place may follow.
        seen.append(_Seen(m, given, output.clone()))

    hooks = [
        m.register_forward_hook(note, with_kwargs=True)
        for m in module.modules()
        if _is_conv(m) or isinstance(m, nn.BatchNorm1d)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_conv(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "GCNConv" and kind.__module__.startswith("torch_geometric.")


def _usual(seen: _Seen, graph: Graph) -> bool:
    """Is this convolution the paper's, on the graph as it was given?"""
    m, index, weight = seen.module, seen.args.get("edge_index"), seen.args.get("edge_weight")
    if not (m.normalize and m.add_self_loops and m.flow == "source_to_target"):
        return False
    if m.aggr != "add" or m.lin.bias is not None:
        return False
    same = isinstance(index, Tensor) and torch.equal(index, graph.edge_index)
    return same and isinstance(weight, Tensor) and torch.equal(weight, graph.weight)


def _parameters(module: Any) -> tuple[Tensor, Tensor | None]:
    bias = None if module.bias is None else module.bias.detach()
    return module.lin.weight.detach().t(), bias


def _folded(weight: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The matrix and bias with a BatchNorm after them, in eval mode."""
    assert isinstance(norm, nn.BatchNorm1d)
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scale = (variance + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight
    shift = ((0 if bias is None else bias) - mean) * scale
    return (weight * scale).detach(), (shift if norm.bias is None else shift + norm.bias).detach()


def _between(out: Tensor, following: Any, output: Any) -> bool | None:
    """Is there a ReLU (True) or nothing (False) between a layer and what follows it?"""
    if following is not None:
        if torch.equal(following, out):
            return False
        return True if torch.equal(following, out.relu()) else None
    if not isinstance(output, Tensor) or output.shape != out.shape:
        return None
    ends = torch.equal(output, out) or torch.equal(output, torch.log_softmax(out, -1))
    return False if ends else None


def _repeated_loops(graph: Graph) -> bool:
    """Has a node several edges to itself? Which of them PyG takes is not said."""
    source, target = graph.edge_index
    own = source[source == target]
    return bool(torch.unique(own).numel() != own.numel())


def _agrees(shape: Shape, network: Frozen, x: Tensor, graph: Graph) -> bool:
    """Are values and gradients at masks inside the cube those of autograd?"""
    ones = torch.ones_like(graph.weight)
    with torch.no_grad():
        plain = network(x, graph.edge_index, graph.weight)
    target = NodeTarget("log-likelihood", plain)
    fast = GCNObjective(shape.stack(x, graph), target)
    close = CLOSE[x.dtype]
    found = target.logits(fast.logits(ones)).log_softmax(1)
    if not torch.allclose(found, target.logits(plain).log_softmax(1), rtol=close, atol=close):
        return False
    slow = EdgeFunction(network, x, graph, target).objective()
    features = graph.features()
    generator = torch.Generator().manual_seed(1)
    of_units = torch.rand(features.units, generator=generator, dtype=x.dtype)
    mask = of_units[graph.units].unsqueeze(0)
    one, other = slow.values_and_gradients(mask), fast.values_and_gradients(mask)
    slopes = features.sum(one[1][0]), features.sum(other[1][0])
    off = torch.linalg.vector_norm(slopes[0] - slopes[1])
    size = torch.linalg.vector_norm(slopes[0])
    return bool(off <= close * size) and torch.allclose(one[0], other[0], rtol=close, atol=close)
