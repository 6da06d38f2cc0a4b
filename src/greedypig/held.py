"""The caller's own modules, frozen for the time of a call and put back after it.

Several threads may hold the same module: the first finds it as the caller left it, the last puts
it back. Every step may be interrupted by Ctrl-C and done again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

Copies: TypeAlias = "dict[int, tuple[Tensor, int, Tensor]]"
"""By a buffer's id: the buffer, its version when it was copied, and the copy."""


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


class _Before:
    """What a module was like before anybody held it, and who does now."""

    def __init__(self, module: nn.Module, copies: Copies, *, running: bool) -> None:
        self.module, self.mode = module, module.training
        # Flags only save time, and inside vmap and its like nobody may change them.
        self.flags = [] if running else [
            p for p in module._parameters.values()
            if p is not None and p.is_leaf and p.requires_grad
        ]  # fmt: skip
        self.buffers = {name: None if b is None else _copied(b, copies)
                        for name, b in module._buffers.items()}  # fmt: skip
        self.holders: set[int] = set()

    def freeze(self) -> None:
        """Eval mode, and no gradients for parameters."""
        self.module.training = False
        for parameter in self.flags:
            parameter.requires_grad_(False)

    def restore(self) -> None:
        """Everything as it was; may be done again."""
        self.module.training = self.mode
        for parameter in self.flags:
            parameter.requires_grad_(True)
        with torch.no_grad():
            for name, kept in self.buffers.items():
                self.module._buffers[name] = None if kept is None else kept[0]
                if kept is not None and _version(kept[0]) != kept[1]:
                    kept[0].copy_(kept[2])


_held: dict[int, _Before] = {}
_lock = threading.RLock()


class Hold:
    """Modules that one call has in its hands."""

    def __init__(self, copies: Copies) -> None:
        self.roots: list[nn.Module] = []
        """What was asked to be held; their submodules are too."""
        self._mine: dict[int, _Before] = {}
        self._copies = copies

    def take(self, root: nn.Module, *, running: bool = False) -> None:
        """Freeze a module and all in it, unless that is done; running: it is being called."""
        if id(root) in self._mine:
            return
        with _lock:
            for module in all_modules(root):
                before = _held.get(id(module))
                if before is None:
                    before = _Before(module, self._copies, running=running)
                self._mine[id(module)] = before
                before.holders.add(id(self))
                _held[id(module)] = before
                before.freeze()
            self.roots.append(root)

    @contextmanager
    def watching(self, *, but: set[int]) -> Iterator[None]:
        """Every module that this thread calls is taken before it runs, but for those named."""
        thread = threading.get_ident()

        def see(module: nn.Module, _: Any) -> None:
            if threading.get_ident() == thread and id(module) not in but:
                self.take(module, running=True)

        handle = register_module_forward_pre_hook(see)
        try:
            yield
        finally:
            handle.remove()

    def release(self) -> None:
        """Let go of everything, also if a second Ctrl-C lands in here."""
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                self._release()
                break
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def _release(self) -> None:
        with _lock:
            for key, before in self._mine.items():
                before.holders.discard(id(self))
                if not before.holders:
                    before.restore()
                    _held.pop(key, None)


def _copied(buffer: Tensor, copies: Copies) -> tuple[Tensor, int, Tensor]:
    """A copy of the buffer; of an earlier call where nobody wrote on it since."""
    kept, version = copies.get(id(buffer)), _version(buffer)
    if kept is None or kept[0] is not buffer or kept[1] != version or version < 0:
        kept = buffer, version, buffer.detach().clone()
        copies[id(buffer)] = kept
    return kept


def _version(tensor: Tensor) -> int:
    """How often torch saw it written on; −1 for tensors that keep no count."""
    return -1 if tensor.is_inference() else tensor._version
