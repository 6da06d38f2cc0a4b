"""Small tables whose answers are known, and ways to look at what a run reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def cut(features, labels, size=50):
    """Batches of `size` rows; features a tensor or a tuple of tensors."""
    rows = range(0, len(labels), size)
    if isinstance(features, Tensor):
        return [(features[i : i + size], labels[i : i + size]) for i in rows]
    return [(tuple(f[i : i + size] for f in features), labels[i : i + size]) for i in rows]


def regression(rows=400, weights=(3.0, 0.0, -2.0, 1.0, 0.0, 0.5), seed=0):
    """Independent columns and a linear model that is exactly right: G(S) is modular but for
    chance, and the order is that of |weight|."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, len(weights), generator=generator, dtype=torch.float64)
    model = nn.Linear(len(weights), 1, dtype=torch.float64)
    with torch.no_grad():
        model.weight[:] = torch.tensor(weights)
        model.bias.zero_()
    return model, x, x @ torch.tensor(weights, dtype=torch.float64)


def deep(columns=6, outputs=1, seed=0, dtype=torch.float32):
    """A ReLU network with random weights, drawn without the global generator."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(columns, 12), nn.ReLU(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, outputs)
    ).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return model


def mixed(rows=240, sizes=(5, 9, 3), numeric=4, classes=2, seed=0):
    """Numbers, category ids and labels, all by chance."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, numeric, generator=generator)
    ids = torch.stack([torch.randint(s, (rows,), generator=generator) for s in sizes], dim=1)
    return numbers, ids, torch.randint(classes, (rows,), generator=generator)


class Plain(nn.Module):
    """Numbers and categories, an nn.Embedding for each, and no gates."""

    def __init__(self, sizes=(5, 9, 3), numeric=4, seed=0, copies=False):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.copies = copies
        self.tables = nn.ModuleList([nn.Embedding(size, 3) for size in sizes])
        self.head = nn.Sequential(
            nn.Linear(numeric + 3 * len(sizes), 8), nn.Tanh(), nn.Linear(8, 1)
        )
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)

    def forward(self, numbers, ids):
        looked_up = [
            table(ids[:, j].clone() if self.copies else ids[:, j])
            for j, table in enumerate(self.tables)
        ]
        return self.head(torch.cat([numbers, *looked_up], dim=1))

    def gated(self, numbers, ids, gates):
        """By hand, what gating means: the truth that hooks are compared with."""
        p = numbers.shape[1]
        looked_up = [t(ids[:, j]) * gates[p + j] for j, t in enumerate(self.tables)]
        return self.head(torch.cat([numbers * gates[:p], *looked_up], dim=1))


class Counting:
    """A list of batches by index that keeps a diary of what was read."""

    def __init__(self, batches):
        self.batches, self.read = batches, []

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        self.read.append(index)
        return self.batches[index]


class Stream:
    """Batches that can only be read from the start; how many were handed out, and held at once."""

    def __init__(self, batches):
        self.batches, self.handed = batches, 0

    def __iter__(self):
        for batch in self.batches:
            self.handed += 1
            yield batch
