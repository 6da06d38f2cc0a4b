"""Random numbers that leave torch's global generator alone.

All threads of a process share that generator. Saving its state and putting it back later would give
the other threads the numbers in between a second time. So nothing is ever put back here: called by
a `Fork`, a function draws from a generator of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_LIKE = {"rand_like": "uniform_", "randn_like": "normal_", "randint_like": "random_"}
"""Operations that take no generator in older versions of torch, and how to do the same with one."""
T = TypeVar("T")
_push, _pop = torch._C._push_on_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack
_one = RLock()


def _global_state() -> Tensor:
    """The state of the CPU's global generator, read by one thread at a time.

    Torch holds the generator's mutex while it makes the tensor of the state. Making it may collect
    garbage and so let another thread run; were that one to ask for the state too, it would wait for
    the mutex with the GIL held, and neither would ever go on.
    """
    with _one:
        return torch.get_rng_state()


def _unlock() -> None:
    """In a forked process, where the thread that held the lock is not."""
    global _one
    _one = RLock()


if hasattr(os, "register_at_fork"):  # Not on Windows.
    os.register_at_fork(after_in_child=_unlock)


class Fork(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random numbers drawn on the CPU by this thread come from a generator of their own.

    It starts with this seed, or else where the global generator stands at the first draw. So the
    numbers are those that the global generator would have given, and it does not move.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.drew = False
        """Was a number drawn that would have come from the global generator?"""

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What the function returns, its random numbers drawn from here.

        `with` would set flags of the whole process as well, which two threads might leave set, and
        with them torch.compile switched off. And no Ctrl-C can strike between these two calls of C
        and the try.
        """
        try:
            _push(self)
            return function(*args, **kwargs)
        finally:
            _pop(None)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs as it is."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: that would import torch's compiler, which takes most of a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or not _draws(args, kwargs, func):
            return func(*args, **kwargs)
        self.drew = True
        name = func.overloadpacket.__name__
        if name in _LIKE:
            limits = args[1:]
            if name == "randint_like":
                limits = tuple(int(a) for a in args[1:])
                limits = limits if len(limits) == 2 else (0, *limits)
            made = torch.empty_like(args[0], **kwargs)
            return getattr(made, _LIKE[name])(*limits, generator=self.generator)
        return _with_generator(func)(*args, **kwargs | {"generator": self.generator})

    @property
    def generator(self) -> torch.Generator:
        """The generator that is drawn from."""
        if self._generator is None:
            self._generator = torch.Generator()
            self._generator.set_state(_global_state())
        return self._generator


def _draws(args: tuple[Any, ...], kwargs: dict[str, Any], func: Any) -> bool:
    """Does this call draw from the CPU's global generator, and could it draw from another one?"""
    if kwargs.get("generator") is not None or _with_generator(func) is None:
        return False
    device = kwargs.get("device") or getattr(args[0] if args else None, "device", None)
    return device is None or torch.device(device).type == "cpu"


@cache
def _with_generator(func: Any) -> Any:
    """The operation, or the overload of it, that takes a generator as well; None if there is none.

    Those without are of other devices, or are made of operations that do take one.
    """
    names = [a.name for a in func._schema.arguments]
    if "generator" in names or func.overloadpacket.__name__ in _LIKE:
        return func
    for overload in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, overload)
        theirs = [a.name for a in other._schema.arguments]
        if "generator" in theirs and [n for n in theirs if n != "generator"] == names:
            return other
    return None


class Forked:
    """A function that draws from a fork of the global generator, if it draws at all.

    Looking costs time at every operation. So it is done in the first call with gradients and in the
    first one without, and after that only for a function that drew. One that begins to draw later
    moves the global generator.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._draws: dict[bool, bool] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        mode = torch.is_grad_enabled()
        if self._draws.get(mode) is False:
            return self.function(*args, **kwargs)
        fork = Fork()
        output = fork.call(self.function, *args, **kwargs)
        self._draws[mode] = fork.drew or self._draws.get(mode, False)
        return output
