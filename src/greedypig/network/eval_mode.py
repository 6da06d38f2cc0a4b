"""The caller's own modules, frozen for the time of a call and put back after it.

Modes, flags and buffers are put back; parameters and plain attributes that a forward writes on are
not. Several threads may hold the same module: the first finds it as the caller left it, the last
puts it back. Every step may be interrupted by Ctrl-C and done again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook


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

    def __init__(self, module: nn.Module, *, running: bool) -> None:
        # A module that torch.jit.freeze made has no mode any more.
        self.module, self.mode = module, getattr(module, "training", None)
        # Flags only save time, and inside vmap and its like nobody may change them.
        self.flags = [] if running else [
            p for p in module._parameters.values()
            if p is not None and p.is_leaf and p.requires_grad
        ]  # fmt: skip
        self.buffers = {name: None if b is None else (b, b.detach().clone())
                        for name, b in module._buffers.items()}  # fmt: skip
        self.holders: set[int] = set()

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
        for name, kept in self.buffers.items():
            self.module._buffers[name] = None if kept is None else kept[0]
            if kept is not None:
                _put_back(*kept)


_held: dict[int, _Before] = {}
_lock = threading.RLock()


class Hold:
    """Modules that one call has in its hands."""

    def __init__(self) -> None:
        self.roots: list[nn.Module] = []
        """What was asked to be held; their submodules are too."""
        self._mine: dict[int, _Before] = {}

    def take(self, root: nn.Module, *, running: bool = False) -> None:
        """Freeze a module and all in it, unless that is done; running: it is being called."""
        if id(root) in self._mine:
            return
        with _lock:
            for module in all_modules(root):
                before = _held.get(id(module))
                if before is None:
                    before = _Before(module, running=running)
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
