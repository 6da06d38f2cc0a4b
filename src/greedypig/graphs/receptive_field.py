"""How far does a model hear? Counted from its layers at work, then checked by its answers.

Layers tell how many steps a message goes, not whether a node also hears of all others at once, as
through a norm over all nodes. So the node's answer on its neighbourhood is compared with those on
a wider one and beside strangers that no edge joins to it; all of that costs what is around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.schedule import check_count, whole
from ..network.frozen import Frozen
from .detect_gcn import rows_of
from .subgraph import Neighbourhood

FEWEST = 8
"""At least so many strangers are put beside a neighbourhood, if the graph has them."""
CLOSE = {torch.float64: 1e-9}
"""Relative distance up to which two answers are the same; 1e-4 for all other dtypes."""


@dataclass(frozen=True, eq=False)
class Reach:
    """What a node's answer depends on."""

    hops: int
    """Steps after which nothing changes any more, if the answer is local."""
    everywhere: bool
    """Does it depend on nodes that no edge joins to it?"""
    row: Tensor | None
    """The answer on the neighbourhood of that many steps; None where it is everywhere."""


def reach_of(
    start: Neighbourhood,
    hops: int,
    cut: Callable[[int], Neighbourhood],
    answer: Callable[[Neighbourhood], Tensor],
    x: Tensor,
) -> Reach:
    """From `hops` on until the answer stays. start: the cut of so many steps."""
    around, row = start, answer(start)
    strange = _beside_strangers(around, x)
    if strange is not None and not same(answer(strange), row):
        return Reach(hops, True, None)
    while True:
        wider = cut(hops + 1)
        if wider.columns.numel() == around.columns.numel():
            return Reach(hops, False, row)
        further = answer(wider)
        if same(further, row):
            return Reach(hops, False, row)
        around, row, hops = wider, further, hops + 1


def same(one: Tensor, other: Tensor) -> bool:
    """Equal but for the order in which floats were added."""
    if one.shape != other.shape:
        return False
    close = CLOSE.get(one.dtype, 1e-4)
    return bool(((one - other).abs().max() <= close * one.abs().max()).item())


def _beside_strangers(around: Neighbourhood, x: Tensor) -> Neighbourhood | None:
    """The neighbourhood with about as many other nodes, alone, as it has itself."""
    count, here = x.shape[0], around.nodes
    wanted = min(count, 2 * here.numel() + FEWEST)
    spread = torch.arange(wanted, device=here.device) * count // wanted
    others = spread[~torch.isin(spread, here)]
    if here.numel() == count:
        return None
    if others.numel() == 0:  # The first that is not in here.
        missing = torch.ones(count, dtype=torch.bool, device=here.device)
        missing[here] = False
        others = torch.nonzero(missing).squeeze(1)[:1]
    nodes = torch.cat([here, others])
    graph = replace(around.graph, nodes=nodes.numel())
    return replace(around, nodes=nodes, x=rows_of(x, nodes), graph=graph)


def check_hops(hops: int | None) -> int | None:
    """The given number of hops."""
    if hops is None:
        return None
    hops = whole(hops)
    check_count("hops", hops)
    return hops


def depth_of(network: Frozen, run: Callable[[], Any]) -> int | None:
    """How many steps away a model hears: the layers that `run` calls; None if it has no such."""
    module = network.module
    declared = getattr(module, "gcn_layers", None)
    if callable(declared):
        return len(declared())
    layers = [m for m in ([] if module is None else module.modules()) if _passes_messages(m)]
    if not layers:
        return None
    if not network.held:  # A layer may be called several times, or not at all.
        with _counting(layers) as calls:
            run()
        layers = calls or layers
    # K of APPNP, SGConv, TAGConv and ChebConv: so many steps in one layer.
    return sum(max(1, whole(getattr(m, "K", 1)) or 1) for m in layers)


@contextmanager
def _counting(layers: list[Any]) -> Iterator[list[Any]]:
    """The layers in the order of their calls."""
    calls: list[Any] = []
    handles = [m.register_forward_pre_hook(lambda m, _: calls.append(m)) for m in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def unknown_depth() -> InvalidInput:
    """What is said of a model whose depth cannot be seen."""
    return InvalidInput(
        "Expected hops, the number of layers that pass messages, for a model whose layers are "
        "not PyG's (got None). Try hops=3."
    )


def flows_back(network: Frozen) -> bool:
    """Do messages go from an edge's target to its source (PyG's flow="target_to_source")?"""
    modules = [] if network.module is None else network.module.modules()
    flows = {m.flow for m in modules if _passes_messages(m) and hasattr(m, "flow")}
    if len(flows) > 1:
        raise InvalidInput(
            f"Expected layers of one flow (got {', '.join(sorted(map(str, flows)))}): which edges "
            "reach a node cannot be told. Try explain_edges with nodes=[node]."
        )
    return flows == {"target_to_source"}


def _passes_messages(module: Any) -> bool:
    return hasattr(module, "propagate") and hasattr(module, "_edge_mask")
