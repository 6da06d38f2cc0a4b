"""Gradients that see past the kinks of ReLU: the network answers as ever, its slope is a ramp.

A ReLU passes all of a gradient where its input is a hair above 0, and nothing where it is a hair
below: the slope there is an accident of rounding, lighting and the next layer's taste, and picks
that follow such accidents convince nobody but this very network. Here the step becomes a ramp over
±width · (standard deviation of the layer's input), so that a unit which nearly fired counts nearly.
Values are exactly the network's own. Like Dombrowski et al. 2019, who smooth the activation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from ..core.objective import Oracle, Runs

TINY = 1e-12


class _Ramp(torch.autograd.Function):
    """clamp(x, low, high) with the slope clamp(½ + (distance from the nearest kink) / width)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float, width: float) -> Tensor:
        ctx.save_for_backward(x, (2 * width * _deviation(x)).clamp_min_(TINY))
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, wide = ctx.saved_tensors
        if ctx.high == float("inf"):
            slope = (x - ctx.low if ctx.low else x) / wide
        else:  # min(x − low, high − x) = half − |x − middle|, with one new tensor instead of three.
            middle, half = (ctx.low + ctx.high) / 2, (ctx.high - ctx.low) / 2
            slope = (x - middle).abs_().mul_(-1 / wide).add_(half / wide)
        return slope.add_(0.5).clamp_(0, 1).mul_(gradients[0]), None, None, None


def _deviation(x: Tensor) -> Tensor:
    """(rows, 1, …): of every row; by its sums, as torch.std takes five times as long."""
    axes, count = tuple(range(1, x.dim())), x[0].numel()
    square = torch.linalg.vector_norm(x, dim=axes, keepdim=True).square() / count
    variance: Tensor = square - x.mean(axes, keepdim=True).square()
    return variance.clamp_min_(0).sqrt()


def _bounds_of_relu(inplace: bool = False) -> tuple[float, float, bool]:
    return 0.0, float("inf"), inplace


def _bounds_of_relu6(inplace: bool = False) -> tuple[float, float, bool]:
    return 0.0, 6.0, inplace


def _bounds_of_hardtanh(
    min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> tuple[float, float, bool]:
    return float(min_val), float(max_val), inplace


def _in_place() -> tuple[float, float, bool]:
    return 0.0, float("inf"), True


_KINKED: dict[Callable[..., Any], Callable[..., tuple[float, float, bool]]] = {
    F.relu: _bounds_of_relu,
    torch.relu: _bounds_of_relu,
    Tensor.relu: _bounds_of_relu,
    torch.relu_: _in_place,
    Tensor.relu_: _in_place,
    F.relu6: _bounds_of_relu6,
    F.hardtanh: _bounds_of_hardtanh,
}
"""What is called → where its kinks are, and whether it writes on its input."""


class SoftKinks(TorchFunctionMode):
    """Within it every ReLU, ReLU6 and Hardtanh over `rows` rows has ramps instead of steps.

    Whoever calls them, modules or functions; what is not a matter of single rows stays as it is, as
    its deviation would be one of several examples. So do tensors with three axes: of those, which
    sequences have, the rows may be the first or the second.
    """

    def __init__(self, width: float, rows: int) -> None:
        super().__init__()
        self.width, self.rows = width, rows

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        bounds = _KINKED.get(func)
        if bounds is None or not args or not self._softens(args[0]):
            return func(*args, **kwargs)
        low, high, inplace = bounds(*args[1:], **kwargs)
        x = args[0]
        soft = _Ramp.apply(x.clone() if inplace else x, low, high, self.width)  # type: ignore[no-untyped-call]
        return x.copy_(soft) if inplace else soft

    def _softens(self, x: Any) -> bool:
        if not isinstance(x, Tensor) or not x.requires_grad:
            return False
        return x.dim() in (2, 4, 5) and x.shape[0] == self.rows


class SoftOracle(Oracle):
    """An oracle with soft kinks in its gradients; its values are the function's own."""

    def __init__(
        self, function: Callable[[Tensor, Runs], Tensor], n: int, *, width: float, batch_size: Any
    ) -> None:
        super().__init__(function, n, batch_size=batch_size)
        self.width, self.hard = width, False

    def _differentiated(self, points: Tensor, runs: Runs) -> tuple[Tensor, Tensor, Tensor]:
        if not self.hard:
            try:
                with SoftKinks(self.width, points.shape[0]):
                    return super()._differentiated(points, runs)
            except CheckpointError:
                # Layers under activation checkpointing run again on the way back, where torch
                # knows of no modes: such networks keep their hard kinks.
                self.hard = True
        return super()._differentiated(points, runs)
