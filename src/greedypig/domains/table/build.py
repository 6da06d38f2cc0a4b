"""The network of a model and its data: which of the ways to gate columns fits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInput
from ...frozen import freeze
from .batches import Feed
from .losses import Loss
from .networks import DenseNetwork, GatedNetwork, Network, as_tensor


def network_for(
    model: Callable[..., Any], feed: Feed, loss: Loss, loss_name: str, baseline: Any, group: Any
) -> Network:
    """How masks reach the columns of this model, found from the model and one batch."""
    frozen = freeze(model)
    features, _ = feed.example()
    device = _device(frozen.module)
    if _takes_gates(frozen.module or frozen.call):
        network: Network = GatedNetwork(frozen, _columns(frozen.module, features), loss, device)
    else:
        x = as_tensor(features, "features")
        like = torch.empty(0, device=device, dtype=_dtype(frozen.module, x))
        network = DenseNetwork(frozen, x.shape[1], loss, like)
    network.baseline_name = str(baseline)
    network.layout = f"{network.columns} columns"
    return network


def _takes_gates(model: Callable[..., Any]) -> bool:
    forward = model.forward if isinstance(model, nn.Module) else model
    try:
        return "gates" in inspect.signature(forward).parameters
    except (TypeError, ValueError):
        return False


def _columns(module: nn.Module | None, features: Any) -> int:
    own = getattr(module, "n_columns", None)
    if isinstance(own, int):
        return own
    parts = features.values() if isinstance(features, Mapping) else features
    parts = [features] if isinstance(features, Tensor) else [p for p in parts if p is not None]
    return sum(1 if p.dim() == 1 else p.shape[1] for p in parts)


def _device(module: nn.Module | None) -> torch.device:
    held = next(iter(module.parameters()), None) if module is not None else None
    return torch.device("cpu") if held is None else held.device


def _dtype(module: nn.Module | None, x: Tensor) -> torch.dtype:
    held = next(iter(module.parameters()), None) if module is not None else None
    if held is not None and held.is_floating_point():
        return held.dtype
    if not x.is_floating_point():
        raise InvalidInput(f"Expected features as floating-point numbers (got {x.dtype}).")
    return x.dtype
