"""A private, frozen stand-in for the caller's model, so that the model itself is never touched.

The twin shares the parameters' storage but is in eval mode and asks for no parameter gradients.
Models that cannot be copied, and models behind a plain function, are held instead (see `held`):
modes and flags are set for each call and put back, whatever happens in between. Which modules a
function or a forward reaches is seen at the first call.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..core.errors import InvalidInput
from ..core.randomness import Forked
from .eval_mode import Hold, all_modules
from .fingerprint import module_of, modules_behind

log = logging.getLogger(__name__)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(eq=False)
class Frozen:
    """A callable from batches to outputs that leaves no trace on the caller's model."""

    call: Callable[..., Any]
    module: nn.Module | None
    """The twin (or the held original), for methods that need to see layers."""
    channels_last: bool = False
    held: tuple[nn.Module, ...] = ()
    """Modules of the caller's own that are frozen for each call and put back after it."""
    watched: bool = False
    """Is it known which modules a call reaches?"""
    met: tuple[nn.Module, ...] = ()
    """Those of the held ones that nobody knew of before the first call."""
    _forked: Forked = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._forked = Forked(self.call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output in eval mode, without parameter gradients; draws are forked."""
        if self.watched and not self.held:
            return self._forked(*args, **kwargs)
        hold = Hold()
        try:
            for module in self.held:
                hold.take(module)
            if self.watched:
                return self._forked(*args, **kwargs)
            # What a function or a forward reaches by way of globals, registries or other objects
            # is seen when it is called, and held from that very moment.
            private = [] if self.module is None else all_modules(self.module)
            with hold.watching(but={id(m) for m in private}):
                output = self._forked(*args, **kwargs)
            known = {id(m) for m in self.held}
            self.held, self.watched = tuple(hold.roots), True
            self.met = tuple(m for m in self.held if id(m) not in known)
            return output
        finally:
            hold.release()


def freeze(model: Callable[..., Any]) -> Frozen:
    """A stand-in for `model` that computes exactly the same."""
    module = module_of(model)
    if module is None:
        behind = tuple(modules_behind(model))
        _check_parameters(behind)
        compiled = hasattr(model, "_torchdynamo_orig_callable") or any(map(_compiled, behind))
        return Frozen(model, None, held=behind, watched=compiled)
    _check_parameters((module,))
    if not isinstance(module, torch.jit.ScriptModule):
        try:
            twin = twin_of(module)
        except Exception as error:  # Whatever a foreign __deepcopy__ may raise.
            log.debug("no private copy of %s (%s); guarding it", type(module).__name__, error)
        else:
            call = twin if model is module else MethodType(model.__func__, twin)  # type: ignore[attr-defined]
            return Frozen(call, twin, watched=_compiled(module))
    return Frozen(model, module, held=(module,), watched=_compiled(module))


def _check_parameters(modules: Iterable[nn.Module]) -> None:
    """Refuse weights that are not there, or that autograd may not work with."""
    for name, tensor in (item for m in modules for item in _weights(m)):
        if is_lazy(tensor):
            raise InvalidInput(
                f"Expected a model whose weights are there (got {name!r}, which a lazy layer makes "
                "when it is first called). Try calling the model once: model(x.unsqueeze(0))."
            )
        if tensor.is_meta:
            raise InvalidInput(
                f"Expected a model whose weights are there (got {name!r} on the device meta, which "
                "has a shape and nothing else). Try model.to_empty(device='cpu') and load its "
                "weights."
            )
        # Buffers are copied, and a copy is an ordinary tensor.
        if isinstance(tensor, nn.Parameter) and tensor.is_inference():
            raise InvalidInput(
                f"Expected weights that gradients can flow through (got {name!r}, made in "
                "torch.inference_mode). Try building the model outside of it, or "
                "copy.deepcopy(model), which makes ordinary ones."
            )


def _weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _compiled(module: nn.Module) -> bool:
    """Compiled code knows of no hooks, and warns of them."""
    return isinstance(module, torch.jit.ScriptModule) or any(
        type(m).__name__ == "OptimizedModule" for m in all_modules(module)
    )


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

    Singletons copy to themselves, and functions are not copied with what they close over or
    name among their globals.
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
            if item.__module__.partition(".")[0] != "torch":
                own = item.__globals__
                todo += [own[name] for name in item.__code__.co_names if name in own]
        else:
            todo += gc.get_referents(item)
    return False
