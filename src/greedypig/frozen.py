"""A private, frozen stand-in for the caller's model, so that the model itself is never touched.

The twin shares the parameters' storage but is in eval mode and asks for no parameter gradients.
Models that cannot be copied, and models behind a plain function, are held instead: modes and flags
are set for each call and put back, whatever happens in between.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from .core.errors import InvalidInput
from .fingerprint import module_of, modules_behind

log = logging.getLogger(__name__)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, eq=False)
class Frozen:
    """A callable from batches to outputs that leaves no trace on the caller's model."""

    call: Callable[..., Any]
    module: nn.Module | None
    """The twin (or the held original), for methods that need to see layers."""
    channels_last: bool = False
    held: tuple[nn.Module, ...] = ()
    """Modules of the caller's own that are frozen for each call and put back after it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output, computed in eval mode and without parameter gradients."""
        if not self.held:
            return self.call(*args, **kwargs)
        held = _Held(self.held)
        try:
            held.freeze()
            return self.call(*args, **kwargs)
        finally:
            # A second Ctrl-C in here must not leave the model half restored.
            interrupted: KeyboardInterrupt | None = None
            while True:
                try:
                    held.restore()
                    break
                except KeyboardInterrupt as error:
                    interrupted = error
            if interrupted is not None:
                raise interrupted


def freeze(model: Callable[..., Any]) -> Frozen:
    """A stand-in for `model` that computes exactly the same."""
    module = module_of(model)
    if module is None:
        return Frozen(model, None, held=tuple(modules_behind(model)))
    if not isinstance(module, torch.jit.ScriptModule):
        try:
            twin = twin_of(module)
        except Exception as error:  # Whatever a foreign __deepcopy__ may raise.
            log.debug("no private copy of %s (%s); guarding it", type(module).__name__, error)
        else:
            call = twin if model is module else MethodType(model.__func__, twin)  # type: ignore[attr-defined]
            return Frozen(call, twin)
    return Frozen(model, module, held=(module,))


def all_modules(root: nn.Module) -> list[nn.Module]:
    """Every module once, in an order that a copy shares; `modules()` of torch is far slower."""
    found, seen, todo = [], {id(root)}, [root]
    while todo:
        module = todo.pop()
        found.append(module)
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                todo.append(child)
    return found


def twin_of(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose parameters are frozen aliases of the original's."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()
    }
    twin = copy.deepcopy(model, memo)
    if _leads_back(twin, model):
        raise InvalidInput("Expected a copy that does not hold on to the original.")
    twin.eval()
    for buffer in twin.buffers():
        buffer.requires_grad_(False)
    return twin


def _leads_back(twin: nn.Module, model: nn.Module) -> bool:
    """Does anything the copy holds lead to an original module?

    Singletons copy to themselves, and functions are not copied with what they close over.
    """
    originals = {id(m) for m in model.modules()}
    if any(id(m) in originals for m in twin.modules()):
        return True
    seen: set[int] = set()
    todo: list[Any] = [vars(m) for m in twin.modules()]
    while todo:
        item = todo.pop()
        if id(item) in originals:
            return True
        if id(item) in seen or isinstance(item, type | ModuleType | Tensor | str | int | float):
            continue
        seen.add(id(item))
        if isinstance(item, FunctionType):
            todo += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        else:
            todo += gc.get_referents(item)
    return False


class _Held:
    """Modes and flags of a model as the caller left them."""

    def __init__(self, held: tuple[nn.Module, ...]) -> None:
        self.modes = [(m, m.training) for each in held for m in each.modules()]
        self.flags = [(p, p.requires_grad) for each in held for p in each.parameters() if p.is_leaf]

    def freeze(self) -> None:
        """Eval mode, and no gradients for parameters."""
        for module, _ in self.modes:
            module.training = False
        for parameter, _ in self.flags:
            parameter.requires_grad_(False)

    def restore(self) -> None:
        """Everything as it was; may be called again where it was interrupted."""
        for module, mode in self.modes:
            module.training = mode
        for parameter, flag in self.flags:
            parameter.requires_grad_(flag)
