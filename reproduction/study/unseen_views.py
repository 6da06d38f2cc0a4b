"""What views cost a network that was never shown any: digits in clutter, learnt as they stand.

    python reproduction/study/unseen_views.py

Two small networks learn scikit-learn's digits, enlarged and pasted at random places among fragments
of others, 72 × 72; one is explained and the other judges. Compared are `gp.SteadyPIG()`, the
same without views (what method="steady-pig" does where the mirrored picture is predicted
otherwise), Algorithm 1 at the same cost, and IG. The script also counts the pictures whose mirror
image is predicted otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import greedypig as gp

SIDE, DIGIT, FRAGMENT, FRAGMENTS = 72, 24, 8, 6
TRAINING, STEPS, BATCH, PICTURES = 1400, 900, 48, 20
CANDIDATES = {
    "views": gp.SteadyPIG(),
    "without views": gp.SteadyPIG().without_views(),
    "Algorithm 1, 20 × 5": gp.GreedyPIG(rounds=20, steps=5),
    "IG, 100 steps": gp.IG(steps=100),
}


class Clutter:
    """Pictures of digits among fragments, drawn anew at every call."""

    def __init__(self, seed: int) -> None:
        table = load_digits()
        small = torch.tensor(table.images / 16, dtype=torch.float32).unsqueeze(1)
        self.digits = F.interpolate(small, DIGIT, mode="bilinear")
        self.classes = torch.tensor(table.target)
        self.generator = torch.Generator().manual_seed(seed)

    def whole(self, high: int, count: int = 1) -> list[int]:
        """Numbers below `high`."""
        return torch.randint(high, (count,), generator=self.generator).tolist()

    def pictures(self, which: list[int]) -> Tensor:
        """(m, 1, 72, 72)"""
        shape = (len(which), 1, SIDE, SIDE)
        pictures = 0.35 + 0.1 * torch.randn(shape, generator=self.generator)
        for picture, digit in zip(pictures, which, strict=True):
            for other in self.whole(len(self.digits), FRAGMENTS):
                top, left = self.whole(DIGIT - FRAGMENT, 2)
                part = self.digits[other, :, top : top + FRAGMENT, left : left + FRAGMENT]
                self._paste(picture, part)
            self._paste(picture, self.digits[digit])
        return (pictures - 0.5) / 0.25

    def _paste(self, picture: Tensor, part: Tensor) -> None:
        size = part.shape[-1]
        top, left = self.whole(SIDE - size, 2)
        picture[:, top : top + size, left : left + size] += 0.6 * part


def network(seed: int, width: int) -> nn.Sequential:
    """Convolutions that pool to the strongest place."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 1
    for channels, stride in ((width, 2), (2 * width, 2), (2 * width, 1), (4 * width, 2)):
        convolution = nn.Conv2d(before, channels, 3, stride, 1)
        layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def trained(net: nn.Sequential, data: Clutter) -> nn.Sequential:
    """The network after training on pictures that are neither mirrored nor cropped."""
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS)
    for _ in range(STEPS):
        which = data.whole(TRAINING, BATCH)
        loss = F.cross_entropy(net(data.pictures(which)), data.classes[which])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return net.eval()


def area(
    model: nn.Module, xs: list[Tensor], attributions: list[gp.Attribution], judge: Any
) -> float:
    """Under the median curve."""
    curves = gp.metrics.information_curves_many(model, xs, attributions, judge=judge)
    return gp.metrics.median_curve([c["softmax"] for c in curves]).auc


def main() -> None:
    """Train, explain, judge."""
    data = Clutter(0)
    model, judge = trained(network(0, 16), data), trained(network(1, 12), data)
    which = list(range(TRAINING, len(data.digits)))
    pictures, classes = data.pictures(which), data.classes[which]
    with torch.no_grad():
        right = [net(pictures).argmax(1) == classes for net in (model, judge)]
    print(f"accuracy {right[0].double().mean():.3f}, the judge's {right[1].double().mean():.3f}")
    xs = list(pictures[right[0] & right[1]][:PICTURES])
    with torch.no_grad():
        mirrored = model(torch.stack(xs).flip(3)).argmax(1) != model(torch.stack(xs)).argmax(1)
    print(f"{int(mirrored.sum())} of {len(xs)} pictures are predicted otherwise when mirrored")
    for name, method in CANDIDATES.items():
        attributions = list(gp.explain_many(model, xs, method=method))
        own, second = (area(model, xs, attributions, who) for who in (None, judge))
        print(f"{name:20s} own {own:.3f}, second opinion {second:.3f}", flush=True)


if __name__ == "__main__":
    main()
