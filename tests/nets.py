"""Small models for the tests, and Algorithm 1 written down once more, plainly, to check against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import greedypig as gp


def mlp(n: int = 6, classes: int = 4, seed: int = 0) -> nn.Module:
    """A smooth network on rows."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(n, 9), nn.Tanh(), nn.Linear(9, classes)).eval()


def linear(n: int = 6, classes: int = 3, seed: int = 0) -> nn.Linear:
    """Every path method's answer is known in closed form: weight · (x − baseline)."""
    torch.manual_seed(seed)
    return nn.Linear(n, classes).eval()


def batch_norm(channels: int, kind=nn.BatchNorm2d) -> nn.Module:
    """A BatchNorm whose numbers matter: nothing at its initial value."""
    norm = kind(channels)
    norm.running_mean.normal_(0, 0.3)
    norm.running_var.uniform_(0.5, 2.0)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, 0, 0.3)
    return norm


def cnn(channels: int = 3, classes: int = 4, seed: int = 0) -> nn.Module:
    """A smooth convolutional network with BatchNorm."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1), batch_norm(6), nn.Tanh(),
        nn.Conv2d(6, 6, 3, padding=1, bias=False), batch_norm(6), nn.Tanh(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, classes),
    ).eval()  # fmt: skip


def picture(seed: int = 0, shape: Sequence[int] = (3, 6, 5)) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def row(seed: int = 0, n: int = 6) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def unfolded(model: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The model behind a plain function, which is explained as it is, without a folded copy."""
    return lambda *inputs, **named: model(*inputs, **named)


class Returns(nn.Module):
    """A network whose logits come wrapped in something."""

    def __init__(self, net: nn.Module, wrap: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.net, self.wrap = net, wrap

    def forward(self, x: Tensor) -> object:
        return self.wrap(self.net(x))


class TwoInputs(nn.Module):
    """A picture and a row, by position or by name."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.image, self.row = nn.Linear(12, 4), nn.Linear(5, 4)

    def forward(self, image: Tensor, row: Tensor) -> Tensor:
        return torch.tanh(self.image(image.flatten(1)) + self.row(row)) * 2


class Calls:
    """A callable that counts how many rows it is asked for, and whether with gradients."""

    def __init__(self, model: Callable[..., Tensor]) -> None:
        self.model = model
        self.gradient_rows: list[int] = []
        self.value_rows: list[int] = []

    def __call__(self, x: Tensor, *rest: Tensor) -> Tensor:
        (self.gradient_rows if x.requires_grad else self.value_rows).append(x.shape[0])
        return self.model(x, *rest)


def algorithm_1(
    g: Callable[[Tensor], Tensor],
    n: int,
    picks: Sequence[int],
    nodes: Sequence[float],
    ids: Tensor | None = None,
) -> tuple[list[int], Tensor]:
    """The paper's loop over features for g: masks (m, n) → values (m,), equal weights, float64.

    Returns the order of selection and every feature's score in the round that took it.
    """
    ids = torch.arange(n) if ids is None else ids.reshape(-1)
    total_features = int(ids.max()) + 1
    mask, order, scores = (
        torch.zeros(n, dtype=torch.float64),
        [],
        torch.zeros(total_features).double(),
    )
    for count in picks:
        total = torch.zeros(n, dtype=torch.float64)
        for t in nodes:
            point = (mask + t * (1 - mask)).requires_grad_(True)
            (gradient,) = torch.autograd.grad(g(point.unsqueeze(0)).sum(), point)
            total += gradient / len(nodes)
        sums = torch.zeros(total_features).double().index_add_(0, ids, total * (mask == 0))
        free = [u for u in range(total_features) if u not in order]
        best = sorted(free, key=lambda u: (-float(sums[u]), u))[:count]
        for feature in best:
            order.append(feature)
            scores[feature] = sums[feature]
            mask[ids == feature] = 1
    return order, scores


def midpoints(steps: int) -> list[float]:
    return [(k + 0.5) / steps for k in range(steps)]


def close(found: Tensor, expected: Tensor, relative: float = 1e-4) -> bool:
    """Largest difference, relative to the largest number there is."""
    found, expected = found.double(), expected.double()
    scale = expected.abs().max().clamp(min=1e-12)
    return bool((found - expected).abs().max() <= relative * scale)


TENSORS = ("order", "feature_scores", "values", "last_scores")
WHOLE = ("selected", "full_value", "picks", "totals", "gradients_used", "stop", "layout")


def identical(a: gp.Attribution, b: gp.Attribution) -> bool:
    """Every number the same, bit for bit (NaN included); only the clock may differ."""
    for name in TENSORS:
        x, y = getattr(a, name), getattr(b, name)
        if x.dtype != y.dtype or x.shape != y.shape or bits(x) != bits(y):
            return False
    if any(getattr(a, name) != getattr(b, name) for name in WHOLE):
        return False
    (mine, my_tensors), (other, other_tensors) = a.features.state(), b.features.state()
    return mine == other and all(torch.equal(my_tensors[k], other_tensors[k]) for k in my_tensors)


def bits(t: Tensor) -> bytes:
    return t.detach().contiguous().numpy().tobytes()
