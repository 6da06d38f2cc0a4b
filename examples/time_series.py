"""Segments of a time series: a new kind of data, added by a function that makes its features.

    python examples/time_series.py

A network is trained to find a bump in a series. Which segments does it use? A new kind of data
needs a function from the input's layout to features, and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import greedypig as gp

LENGTH, CHANNELS, SEGMENT = 120, 2, 10


def segments(size: int) -> object:
    """Features of a (channels, length) input: `size` steps of one channel at a time."""

    def make(layout: object) -> gp.Features:
        ((channels, length),) = layout.shapes  # type: ignore[attr-defined]
        per_channel = -(-length // size)
        step = torch.arange(length) // size
        ids = torch.arange(channels).unsqueeze(1) * per_channel + step
        names = [
            f"channel {c}, steps {i * size}–{min((i + 1) * size, length) - 1}"
            for c in range(channels)
            for i in range(per_channel)
        ]
        return gp.Groups(ids, names)

    return make


def series(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise with a bump at steps 40 to 59 of channel 1 in half of the series."""
    x = 0.3 * torch.randn(count, CHANNELS, LENGTH, generator=generator)
    label = torch.arange(count) % 2
    bump = torch.hann_window(20).expand(count, 20) * label.unsqueeze(1)
    x[:, 1, 40:60] += 2 * bump
    return x, label


def train(generator: torch.Generator) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(CHANNELS, 8, 9, padding=4),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(12),
        nn.Flatten(),
        nn.Linear(96, 2),
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(100):
        x, label = series(64, generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), label).backward()
        optimiser.step()
    return network


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    network = train(generator)
    x = series(2, generator)[0][1]
    a = gp.explain(network, x, features=segments(SEGMENT), method=gp.GreedyPIG(per_round=1))
    print(a)
    for name, value in zip(a.top(3), a.values[1:4].tolist(), strict=True):
        print(f"{name}: probability {value:.3f}")


if __name__ == "__main__":
    main()
