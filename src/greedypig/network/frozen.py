"""A private, frozen stand-in for the caller's model, so that the model itself is never touched.

The twin shares the parameters' storage but is in eval mode and asks for no parameter gradients.
Models that cannot be copied, and models behind a plain function, are put into eval mode for each
call and put back, whatever happens in between: modes, flags and buffers, not parameters or plain
attributes that a forward writes on.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..core.errors import InvalidInput, InvalidType
from .randomness import Forked
from .reach import all_modules, module_of, modules_behind, reachable

log = logging.getLogger(__name__)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_one_at_a_time = threading.RLock()
"""Threads that share a module would put back what another one has frozen."""


class Snapshot:
    """What a module was like before it was frozen."""

    def __init__(self, module: nn.Module) -> None:
        # A module that torch.jit.freeze made has no mode any more.
        self.module, self.mode = module, getattr(module, "training", None)
        self.flags = [
            p
            for p in module._parameters.values()
            if p is not None and p.is_leaf and p.requires_grad
        ]
        self.buffers = {
            name: None if b is None else (b, b.detach().clone())
            for name, b in module._buffers.items()
        }

    def freeze(self) -> None:
        """Eval mode, and no gradients for parameters."""
        if self.mode is not None:
            self.module.training = False
        for parameter in self.flags:
            parameter.requires_grad_(False)

    def restore(self) -> None:
        """Everything as it was; may be done again."""
        if self.mode is not None:
            self.module.training = self.mode
        for parameter in self.flags:
            parameter.requires_grad_(True)
        for name, saved in self.buffers.items():
            self.module._buffers[name] = None if saved is None else saved[0]
            if saved is not None:
                _put_back(*saved)


def _put_back(buffer: Tensor, before: Tensor) -> None:
    """The numbers that the buffer held before.

    They are compared, as writing by `.data`, by NumPy or by a fused kernel leaves no version.
    """
    try:
        if torch.equal(buffer, before):
            return
    except NotImplementedError:  # Of sparse tensors and some dtypes: written without a look.
        pass
    # Numbers that only inference mode may write on, were written on there.
    with torch.no_grad(), torch.inference_mode(buffer.is_inference()):
        if buffer.shape != before.shape:
            buffer.resize_(before.shape)
        buffer.data.copy_(before)  # By .data too, so that a graph of the caller's stays valid.


@dataclass(eq=False)
class Frozen:
    """A callable from batches to outputs that leaves no trace on the caller's model."""

    call: Callable[..., Any]
    module: nn.Module | None
    """The twin (or the original), for methods that need to see layers."""
    channels_last: bool = False
    held: tuple[nn.Module, ...] = ()
    """Modules of the caller's own that are frozen for each call and put back after it."""
    _forked: Forked = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._forked = Forked(self.call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output in eval mode, without parameter gradients; draws are forked."""
        if not self.held:
            return self._forked(*args, **kwargs)
        with _one_at_a_time:
            snapshots: list[Snapshot] = []
            interrupted: KeyboardInterrupt | None = None
            try:
                for module in (m for root in self.held for m in all_modules(root)):
                    snapshots.append(Snapshot(module))
                    snapshots[-1].freeze()
                return self._forked(*args, **kwargs)
            finally:
                while True:  # A second Ctrl-C may strike in here.
                    try:
                        for snapshot in reversed(snapshots):
                            snapshot.restore()
                        break
                    except KeyboardInterrupt as error:
                        interrupted = error
                if interrupted is not None:
                    raise interrupted


def freeze(model: Callable[..., Any]) -> Frozen:
    """A stand-in for `model` that computes exactly the same."""
    _check_callable(model)
    module, held = module_of(model), modules_behind(model)
    _check_parameters(held)
    if module is not None and not isinstance(module, torch.jit.ScriptModule):
        try:
            twin = twin_of(module)
        except Exception as error:  # Whatever a foreign __deepcopy__ may raise.
            log.debug("no private copy of %s (%s)", type(module).__name__, error)
        else:
            call = twin if model is module else MethodType(model.__func__, twin)  # type: ignore[attr-defined]
            return Frozen(call, twin, held=tuple(m for m in held if m is not module))
    return Frozen(model, module, held=tuple(held))


def _check_callable(model: Any) -> None:
    """Refuse what is no model, and say what was meant."""
    name = type(model).__name__
    if isinstance(model, type):
        raise InvalidType(
            f"Expected a model that can be called (got the class {model.__name__}).",
            argument="model",
            advice=f"Try an instance, {model.__name__}(…).",
        )
    if callable(model):
        return
    advice = "Try a torch.nn.Module, or a function from a batch to one row of outputs each."
    if isinstance(model, Tensor):
        advice = "Try the model first, then the input."
    elif isinstance(model, Mapping):
        advice = "Try module.load_state_dict(state) on a torch.nn.Module, and that module."
    elif isinstance(model, str | PathLike):
        advice = "Try the torch.nn.Module itself, with its weights loaded."
    raise InvalidType(
        f"Expected a model that can be called (got {name}).", argument="model", advice=advice
    )


def _check_parameters(modules: Iterable[nn.Module]) -> None:
    """Refuse weights that are not there, or that autograd may not work with."""
    for name, tensor in (
        item for m in modules for item in (*m.named_parameters(), *m.named_buffers())
    ):
        if is_lazy(tensor):
            state, way = (
                "which a lazy layer makes when it is first called",
                "calling the model once",
            )
        elif tensor.is_meta:
            state, way = "on the device meta", "model.to_empty(device='cpu') and load its weights"
        elif isinstance(tensor, nn.Parameter) and tensor.is_inference():  # Buffers are copied.
            state, way = "made in torch.inference_mode", "copy.deepcopy(model)"
        else:
            continue
        raise InvalidInput(
            f"Expected weights that are there and take gradients (got {name!r}, {state}). "
            f"Try {way}."
        )


def twin_of(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose parameters are frozen aliases of the original's."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()
    }
    twin = copy.deepcopy(model, memo)
    # Singletons copy to themselves, and functions are not copied with what they close over.
    if reachable(twin).keys() & {id(m) for m in all_modules(model)}:
        raise InvalidInput("Expected a copy that does not hold on to the original.")
    twin.eval()
    for buffer in twin.buffers():
        buffer.requires_grad_(False)
    return twin
