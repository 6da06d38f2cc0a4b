"""ReLU with a ramp as its derivative: values are the network's own, gradients are smoother.

ReLU's derivative jumps from 0 to 1 at 0, so small changes of the input flip whole gradient paths.
Here the step becomes a ramp over ±width · (standard deviation of the layer's input) in the
backward pass. Dombrowski et al. 2019 smooth the activation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

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
        if ctx.high == inf:
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


def _bounds(
    min_val: float = 0.0, max_val: float = inf, inplace: bool = False
) -> tuple[float, float, bool]:
    """Where the kinks are, and whether the input is written on, by the arguments of Hardtanh."""
    return float(min_val), float(max_val), inplace


_KINKED: dict[Callable[..., Any], Callable[..., tuple[float, float, bool]]] = {
    F.relu: lambda inplace=False: _bounds(inplace=inplace),
    F.relu6: lambda inplace=False: _bounds(0, 6, inplace),
    F.hardtanh: lambda min_val=-1.0, max_val=1.0, inplace=False: _bounds(min_val, max_val, inplace),
    **dict.fromkeys((torch.relu, Tensor.relu), _bounds),
    **dict.fromkeys((torch.relu_, Tensor.relu_), lambda: _bounds(inplace=True)),
}


class SoftReLU(TorchFunctionMode):
    """Within it every ReLU, ReLU6 and Hardtanh over `rows` rows has ramps instead of steps.

    Modules and functions alike. Tensors whose first axis is not the batch stay as they are, as
    their deviation would mix examples. So do tensors with three axes, as sequences have: their
    batch axis may be the first or the second.
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
