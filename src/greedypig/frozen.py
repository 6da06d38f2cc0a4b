"""A private, frozen stand-in for the caller's model, so that the model itself is never touched.

The twin shares the parameters' storage but is in eval mode and asks for no parameter gradients.
For convolutional networks it is also made fast: BatchNorm folded into the convolution before
it, channels last. A twin is used only if it answers like the original on probe inputs. Models
that cannot be copied are guarded instead: modes and flags are set for each call and put back.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
from torch import Tensor, nn

from .core.errors import InvalidInput

log = logging.getLogger(__name__)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
SAME_OUTPUT = 1e-4
"""How far a folded network's output may be from the original's, relative to its largest."""


@dataclass(frozen=True, eq=False)
class Frozen:
    """A callable from batches to outputs that leaves no trace on the caller's model."""

    call: Callable[..., Any]
    module: nn.Module | None
    """The twin (or the guarded original), for methods that need to see layers."""
    channels_last: bool = False
    guarded: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output, computed in eval mode and without parameter gradients."""
        with _guard(self.module) if self.guarded and self.module is not None else nullcontext():
            return self.call(*args, **kwargs)


def freeze(model: Callable[..., Any]) -> Frozen:
    """A stand-in for `model` that computes exactly the same."""
    module = module_of(model)
    if module is None:
        return Frozen(model, None)
    if not isinstance(module, torch.jit.ScriptModule):
        try:
            twin = _twin(module)
        except Exception as error:  # Whatever a foreign __deepcopy__ may raise.
            log.debug("no private copy of %s (%s); guarding it", type(module).__name__, error)
        else:
            call = twin if model is module else MethodType(model.__func__, twin)  # type: ignore[attr-defined]
            return Frozen(call, twin)
    return Frozen(model, module, guarded=True)


def module_of(model: Callable[..., Any]) -> nn.Module | None:
    """The module that is called, or whose method is called, if there is one."""
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


_fast: WeakKeyDictionary[nn.Module, tuple[str, Frozen]] = WeakKeyDictionary()


def optimised(
    model: Callable[..., Any],
    plain: Frozen,
    fingerprint: str,
    probe: Callable[[Frozen], Tensor],
) -> Frozen:
    """The fast stand-in where it is safe, else `plain`.

    probe(frozen) runs the caller's own inputs through a stand-in; both must agree. The result
    is kept as long as the model lives and its fingerprint stays the same.
    """
    if plain.guarded or not isinstance(model, nn.Module) or not _convolutional(model):
        return plain
    key = f"{fingerprint} {_hooks(model)}"
    kept = _fast.get(model)
    if kept is not None and kept[0] == key:
        return kept[1]
    chosen = plain
    try:
        twin = _twin(model)
        _fold(twin)
        twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fast = Frozen(twin, twin, channels_last=True)
        expected, found = probe(plain), probe(fast)
        scale = expected.abs().max().clamp(min=1e-6)
        if bool((found - expected).abs().max() <= SAME_OUTPUT * scale):
            chosen = fast
        else:
            log.debug("the folded %s answers differently; not used", type(model).__name__)
    except Exception as error:  # The fast path is a convenience; the plain one always works.
        log.debug("%s was not made faster (%s)", type(model).__name__, error)
    _fast[model] = (key, chosen)
    return chosen


def fingerprint(model: Callable[..., Any]) -> str:
    """A digest of what the model computes: its structure, settings and numbers."""
    module = module_of(model)
    name = str(getattr(model, "__qualname__", type(model).__qualname__))
    if module is None:
        return f"callable {name}"
    return f"{name} {digest(_numbers(module), _structure(module))}"


def _numbers(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _structure(module: nn.Module) -> str:
    """Every submodule's class and plain attributes: two networks may share all weights."""
    lines = []
    for path, m in module.named_modules():
        if isinstance(m, torch.jit.ScriptModule):
            lines.append(f"{path} {m.original_name}")
            continue
        plain = {k: _plain(v) for k, v in vars(m).items() if k[0] != "_" and k != "training"}
        known = sorted(f"{k}={v}" for k, v in plain.items() if v is not None)
        lines.append(f"{path} {type(m).__module__}.{type(m).__qualname__} {' '.join(known)}")
    return "\n".join(lines)


def _plain(value: object) -> str | None:
    if isinstance(value, str | int | float | tuple | list | torch.dtype):
        return repr(value)
    return getattr(value, "__qualname__", None) if callable(value) else None


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """A digest of names, shapes and numbers; fast, since it is taken at every call.

    CRC-32 of each tensor runs at the memory's speed; SHA-256 binds the sums together.
    """
    total = sha256(text.encode())
    for name, tensor in tensors.items():
        flat = tensor.detach().reshape(-1).cpu().contiguous()
        check = crc32(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {check:08x};".encode())
    return total.hexdigest()[:32]


def _twin(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose parameters are frozen aliases of the original's."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()
    }
    twin = copy.deepcopy(model, memo)
    if not _independent(twin, model):
        raise InvalidInput("Expected a copy that shares no module with the original.")
    twin.eval()
    for buffer in twin.buffers():
        buffer.requires_grad_(False)
    return twin


def _independent(twin: nn.Module, model: nn.Module) -> bool:
    """Does the copy stand alone? Singletons copy to themselves, and closures are not copied."""
    originals = {id(m) for m in model.modules()}
    for m in twin.modules():
        cells = [c for v in vars(m).values() for c in getattr(v, "__closure__", None) or ()]
        if id(m) in originals or any(id(c.cell_contents) in originals for c in cells):
            return False
    return True


def _hooks(model: nn.Module) -> list[int]:
    """Who hooks in where: a hook changes the answer and no weight."""
    return [
        id(hook)
        for m in model.modules()
        for name in HOOKS
        for hook in getattr(m, name, {}).values()
    ]


@contextmanager
def _guard(module: nn.Module) -> Iterator[None]:
    """Eval mode and no parameter gradients for as long as the block runs."""
    modes = [(m, m.training) for m in module.modules()]
    flags = [(p, p.requires_grad) for p in module.parameters()]
    try:
        for m, _ in modes:
            m.training = False
        for p, flag in flags:
            if flag and p.is_leaf:
                p.requires_grad_(False)
        yield
    finally:
        for m, mode in modes:
            m.training = mode
        for p, flag in flags:
            if p.is_leaf:
                p.requires_grad_(flag)


def _convolutional(model: nn.Module) -> bool:
    return any(isinstance(m, nn.Conv2d) for m in model.modules())


def _fold(twin: nn.Module) -> None:
    """Fold every BatchNorm into the convolution that alone feeds it.

    The traced graph is only read, to see what feeds what; the twin keeps its own forward.
    """
    from torch.fx import Tracer
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    try:
        graph = Tracer().trace(twin)
    except Exception as error:  # Control flow that depends on data cannot be traced.
        log.debug("%s cannot be traced (%s); nothing folded", type(twin).__name__, error)
        return
    modules = dict(twin.named_modules())
    calls: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls[str(node.target)] = calls.get(str(node.target), 0) + 1
        elif node.op == "get_attr":  # Weights that are read outside their layer must stay.
            owner = str(node.target).rpartition(".")[0]
            calls[owner] = calls.get(owner, 0) + 2
    for node in graph.nodes:
        if node.op != "call_module" or not node.args:
            continue
        feeder = node.args[0]
        if getattr(feeder, "op", "") != "call_module" or len(feeder.users) != 1:
            continue
        conv, norm = modules[str(feeder.target)], modules[str(node.target)]
        once = calls[str(feeder.target)] == calls[str(node.target)] == 1
        if once and _foldable(conv, norm):
            _replace(twin, str(feeder.target), fuse_conv_bn_eval(conv, norm))
            _replace(twin, str(node.target), nn.Identity())
    for parameter in twin.parameters():
        parameter.requires_grad_(False)


def _foldable(conv: nn.Module, norm: nn.Module) -> bool:
    pairs: dict[type, type] = {
        nn.Conv1d: nn.BatchNorm1d,
        nn.Conv2d: nn.BatchNorm2d,
        nn.Conv3d: nn.BatchNorm3d,
    }
    if pairs.get(type(conv)) is not type(norm) or getattr(norm, "running_mean", None) is None:
        return False
    return not any(getattr(m, name, None) for m in (conv, norm) for name in HOOKS)


def _replace(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(root.get_submodule(parent), name, module)
