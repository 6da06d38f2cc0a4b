"""Graph networks for the command line's tests: --model tiny_graph_models:build."""

import torch
from torch import nn


class Votes(nn.Module):
    """Logits are a node's own features, narrowed, and those of its neighbours."""

    def __init__(self, classes=3):
        super().__init__()
        self.narrow = nn.Linear(6, classes)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(0)
            self.narrow.weight.copy_(torch.randn(classes, 6, generator=generator))
            self.narrow.bias.zero_()

    def forward(self, x, edge_index, edge_weight):
        z = self.narrow(x)
        source, target = edge_index
        return z + torch.zeros_like(z).index_add(0, target, z[source] * edge_weight.unsqueeze(1))


def build():
    return Votes()


def narrow():
    return Votes(2)


def of_nodes():
    """A model that takes no edges."""
    return nn.Linear(6, 3)


def of_messages():
    """A layer of PyG without edge_weight."""
    from torch_geometric.nn import SAGEConv

    torch.manual_seed(0)
    return SAGEConv(6, 3)
