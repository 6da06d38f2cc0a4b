"""The network of a model and its data: which of the ways to gate columns fits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput, InvalidType, first_line
from ..network.frozen import Frozen, freeze
from ..network.reach import modules_behind
from .columns import Table, entries
from .embeddings import embeddings, find_lookups
from .losses import Loss, check_labels
from .networks import GatedModel, LinearNetwork, Network, PlainModel
from .stream import Feed

PROBED = 16
"""Rows on which a shortcut is compared with the model itself."""
PARTS_OF_A_LINEAR_FIRST = ("inputs", "first", "rest", "column_of")


def network_for(
    model: Callable[..., Any],
    feed: Feed,
    loss_name: str,
    loss: Loss,
    names: Sequence[str] | None,
    *,
    fast: bool = True,
) -> Network:
    """How masks reach the columns of this model, found from the model and one batch.

    fast=False leaves even a linear first layer to autograd, for comparison and for training.
    """
    if not callable(model):
        raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
    frozen = freeze(model)
    example = feed.example()
    features = example.features
    table = replace(Table.of(features), check=partial(check_labels, loss_name))
    _named_if_fitting(table, names).read(example)
    like = _like(frozen, features)
    takes_gates, module = _takes("gates", frozen), _with_embeddings(frozen)
    if any(table.categorical) and module is not None and not takes_gates:
        return _by_hooks(frozen, module, table, loss, features, names, like)
    table = table.named(names)
    if takes_gates:
        _check_width(frozen.module, table)
        own = all(hasattr(frozen.module, name) for name in ("inputs", "column_of"))
        baselined = frozen.module if own and _takes("baseline", frozen) else None
        gated = GatedModel(frozen, table, loss, like, baselined)
        if fast and _linear_first(frozen):
            linear = _own_linear(frozen, table, loss)
            return linear if _agree(linear, gated, features) else gated
        return gated
    if fast and len(table.parts) == 1 and (layers := _linear_chain(frozen)) is not None:
        return _sequential(layers, table, loss)
    plain = PlainModel(frozen, table, loss, like)
    if any(table.categorical):
        _check_takes_numbers(plain, features)
    return plain


def _check_takes_numbers(network: PlainModel, features: Any) -> None:
    """Whole numbers are given as floating point, which no look-up of ids takes."""
    parts = [tensor[:PROBED].to(network.device) for _, tensor in entries(features)]
    try:
        with torch.no_grad():
            network.outputs(network.encode(parts), torch.ones(network.columns))
    except (RuntimeError, IndexError, TypeError) as error:
        ids = [c for c, whole in enumerate(network.table.categorical) if whole]
        raise InvalidInput(
            f"Expected a model that takes {network.table.listed(ids)} as numbers or looks them up "
            f"in an nn.Embedding, not by a function or an index (got {type(error).__name__}: "
            f"{first_line(error)}). Try nn.Embedding, or a model with "
            "forward(numeric, categorical, gates=…)."
        ) from error


def _own_linear(frozen: Frozen, table: Table, loss: Loss) -> Network:
    """A model that shows its linear first layer itself: TabularMLP and its like."""
    module: Any = frozen.module

    def inputs(parts: list[Tensor]) -> Tensor:
        return table.call(module.inputs, parts)  # type: ignore[no-any-return]

    return LinearNetwork(inputs, module.first, module.rest, table, loss, module.column_of)


def _agree(linear: Network, gated: Network, features: Any) -> bool:
    """Are the model's outputs for some gates those of its parts? A subclass may differ."""
    parts = [tensor[:PROBED].to(linear.device) for _, tensor in entries(features)]
    gates = torch.linspace(0, 1, linear.columns, device=linear.device).roll(1)
    try:
        with torch.no_grad():
            ours = linear.outputs(linear.encode(parts), gates)
            theirs = gated.outputs(gated.encode(parts), gates)
    except (RuntimeError, TypeError, AttributeError):
        return False
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def _sequential(layers: list[nn.Module], table: Table, loss: Loss) -> Network:
    first, rest = layers[0], nn.Sequential(*layers[1:])
    assert isinstance(first, nn.Linear)
    if first.in_features != table.columns:
        raise InvalidInput(
            f"Expected features with the model's {first.in_features} columns (got {table.columns})."
        )
    dtype = first.weight.dtype
    return LinearNetwork(
        lambda parts: parts[0].to(dtype), first, rest, table, loss, torch.arange(table.columns)
    )


def _by_hooks(
    frozen: Frozen, module: nn.Module, table: Table, loss: Loss, features: Any,
    names: Sequence[str] | None, like: Tensor,
) -> Network:  # fmt: skip
    parts = [tensor.to(like.device) for _, tensor in entries(features)]
    lookups, bags = find_lookups(frozen, module, _named_if_fitting(table, names), parts)
    if bags:
        table = replace(Table.of(features, bags), check=table.check)
    network = PlainModel(frozen, table.named(names), loss, like, lookups, module)
    network.find_weighting([part[:PROBED] for part in parts])
    return network


def _named_if_fitting(table: Table, names: Sequence[str] | None) -> Table:
    """With the caller's names, where they fit: bags are not known as single columns yet."""
    fits = names is not None and len(names) == table.columns
    return table.named(names) if fits else table


def _takes(argument: str, frozen: Frozen) -> bool:
    called = frozen.call
    try:
        signature = inspect.signature(called.forward if isinstance(called, nn.Module) else called)
    except (TypeError, ValueError):
        return False
    return argument in signature.parameters


def _linear_first(frozen: Frozen) -> bool:
    """Does the model show inputs → first (linear) → rest, and is it a private copy?"""
    module = frozen.module
    return (
        module is not None
        and frozen.call is module
        and not frozen.held
        and all(hasattr(module, name) for name in PARTS_OF_A_LINEAR_FIRST)
        and type(module.first) is nn.Linear
    )


def _linear_chain(frozen: Frozen) -> list[nn.Module] | None:
    """The layers of a plain chain that begins with a linear one; None for any other model."""
    module = frozen.module
    if frozen.call is not module or frozen.held or _has_hooks(module):
        return None
    layers = list(module) if type(module) is nn.Sequential else [module]
    return layers if type(layers[0]) is nn.Linear and not _has_hooks(layers[0]) else None


def _has_hooks(module: nn.Module | None) -> bool:
    """Hooks of the caller's are to be called, so the module must be called, too."""
    return module is None or bool(module._forward_hooks or module._forward_pre_hooks)


def _modules(frozen: Frozen) -> list[nn.Module]:
    return [frozen.module] if frozen.module is not None else modules_behind(frozen.call)


def _with_embeddings(frozen: Frozen) -> nn.Module | None:
    """The module whose embeddings are looked up, if there are any."""
    modules = [module for module in _modules(frozen) if embeddings(module)]
    return modules[0] if len(modules) == 1 else (nn.ModuleList(modules) if modules else None)


def _check_width(module: nn.Module | None, table: Table) -> None:
    own = getattr(module, "n_columns", table.columns)
    if isinstance(own, int) and own != table.columns:
        raise InvalidInput(
            f"Expected features with the model's {own} columns (got {table.columns})."
        )


def _like(frozen: Frozen, features: Any) -> Tensor:
    """An empty tensor with the device and the dtype of the model, else of the numbers."""
    for module in _modules(frozen):
        for parameter in module.parameters():
            if parameter.is_floating_point():
                return parameter.detach().new_empty(0)
    tensors = [tensor for _, tensor in entries(features)]
    floats = [t for t in tensors if t.is_floating_point()]
    if not floats:
        raise InvalidInput(
            "Expected floating-point numbers, or a model with embeddings for its categories "
            f"(got {', '.join(sorted({str(t.dtype) for t in tensors}))})."
        )
    return floats[0].new_empty(0)
