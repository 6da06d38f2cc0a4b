"""Small graphs and networks with known answers, and what stands in for real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

DATA = Path(__file__).parent.parent.parent / "shared" / "data"


def both_ways(pairs: list[tuple[int, int]]) -> Tensor:
    """edge_index of an undirected graph: all pairs, then all of them reversed."""
    there = torch.tensor(pairs, dtype=torch.long).T
    return torch.cat([there, there.flip(0)], 1)


def random_graph(
    nodes: int = 30,
    pairs: int = 70,
    *,
    symmetric: bool = True,
    seed: int = 0,
    messy: bool = False,
) -> tuple[Tensor, Tensor]:
    """edge_index and weights; messy ones have duplicates and edges from a node to itself."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, pairs), generator=generator)
    if not messy:
        low, high = ends.min(0).values, ends.max(0).values
        keys = torch.unique((low * nodes + high)[low != high])
        ends = torch.stack([keys // nodes, keys % nodes])
        ends = ends[:, torch.randperm(ends.shape[1], generator=generator)]
    weights = torch.rand(ends.shape[1], generator=generator, dtype=torch.float64) + 0.5
    if symmetric:
        ends, weights = torch.cat([ends, ends.flip(0)], 1), weights.repeat(2)
    return ends, weights


def features(nodes: int = 30, width: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(nodes, width, generator=generator, dtype=torch.float64)


def seeded(make: type[nn.Module], *args: object, seed: int = 0, **kwargs: object) -> nn.Module:
    """A module with weights, and biases that are not 0, by seed; in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = make(*args, **kwargs).double()
        for name, parameter in made.named_parameters():
            if "bias" in name:
                nn.init.normal_(parameter, std=0.3)
    return made.eval()


class Undeclared(nn.Module):
    """A GCN that does not declare its layers, so that its gradients are autograd's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        messages: Tensor | None = None,
    ) -> Tensor:
        more = {} if messages is None else {"messages": messages}
        return self.model(x, edge_index, edge_weight, **more)


def dense_logits(layers: list[tuple[Tensor, Tensor]], x: Tensor, adjacency: Tensor) -> Tensor:
    """The GCN by its formula: A_ij is the weight of j → i."""
    looped = adjacency + torch.eye(len(x), dtype=x.dtype)
    scale = looped.sum(1).rsqrt()
    matrix = scale[:, None] * looped * scale
    for i, (weight, bias) in enumerate(layers):
        x = matrix @ x @ weight + bias
        x = x if i == len(layers) - 1 else x.relu()
    return x


def adjacency_of(edge_index: Tensor, weight: Tensor, nodes: int) -> Tensor:
    """(nodes, nodes): the summed weight of the edges j → i at [i, j], loops left out."""
    out = torch.zeros(nodes, nodes, dtype=weight.dtype)
    source, target = edge_index
    proper = source != target
    return out.index_put((target[proper], source[proper]), weight[proper], accumulate=True)


def real(name: str) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """x, edge_index, y and the split of a real graph, where it is there."""
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"needs {path.name} in ../shared/data")
    with np.load(path) as held:
        rows, columns = torch.from_numpy(held["x_row"]), torch.from_numpy(held["x_col"])
        x = torch.zeros(tuple(held["x_shape"]))
        x[rows.long(), columns.long()] = torch.from_numpy(held["x_val"]).float()
        there = torch.from_numpy(held["edges"]).long()
        split = {k: torch.from_numpy(held[k]).long() for k in ("train", "val", "test")}
        y = torch.from_numpy(held["y"]).long()
    x = x / x.sum(1, keepdim=True).clamp_min(1e-9)
    return x, torch.cat([there, there.flip(0)], 1), y, split
