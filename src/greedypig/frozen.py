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
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

HASHED_BYTES = 1 << 28
"""Models up to this size are fingerprinted whole, larger ones by evenly spaced samples."""
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
    module = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    if not isinstance(module, nn.Module):
        return Frozen(model, None)
    if module is model and not isinstance(model, torch.jit.ScriptModule):
        try:
            twin = _twin(model)
        except Exception as error:  # Whatever a foreign __deepcopy__ may raise.
            log.debug("no private copy of %s (%s); guarding it", type(model).__name__, error)
        else:
            return Frozen(twin, twin)
    return Frozen(model, module, guarded=True)


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
    kept = _fast.get(model)
    if kept is not None and kept[0] == fingerprint:
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
    _fast[model] = (fingerprint, chosen)
    return chosen


def fingerprint(model: Callable[..., Any]) -> str:
    """A digest of the model's class, parameter names, shapes and numbers."""
    if not isinstance(model, nn.Module):
        return f"callable {getattr(model, '__qualname__', type(model).__qualname__)}"
    state = [(k, v) for k, v in model.state_dict().items() if isinstance(v, Tensor)]
    return f"{type(model).__qualname__} {digest(dict(state))}"


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names, shapes and numbers; fast, since it is taken at every call.

    CRC-32 of each tensor runs at the memory's speed; SHA-256 binds the sums together. Very
    large collections are sampled evenly.
    """
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    stride = max(1, -(-size // HASHED_BYTES))
    total = sha256()
    for name, tensor in tensors.items():
        flat = tensor.detach().reshape(-1)[::stride].cpu().contiguous()
        check = crc32(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {check:08x};".encode())
    return total.hexdigest()[:32]


def _twin(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose parameters are frozen aliases of the original's."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()
    }
    twin = copy.deepcopy(model, memo)
    twin.eval()
    for buffer in twin.buffers():
        buffer.requires_grad_(False)
    return twin


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
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not any(getattr(m, name, None) for m in (conv, norm) for name in hooks)


def _replace(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(root.get_submodule(parent), name, module)
