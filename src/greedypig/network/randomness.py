"""Random numbers that leave torch's global generator alone.

All threads of a process share that generator. Saving its state and putting it back later would give
the other threads the numbers in between a second time. So nothing is ever put back here: called by
a `Fork`, a function draws from a generator of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import Any, TypeVar

import torch

from ..compat import TorchDispatchMode, argument_names, private

T = TypeVar("T")
_LIKE = {"rand_like": "uniform_", "randn_like": "normal_", "randint_like": "random_"}
"""Operations that take no generator in older versions of torch, and how to do the same with one."""
_push, _pop = private("torch")
_one_reader = RLock()
"""Two threads that read the global generator's state at once can block each other for ever: torch
holds the generator's mutex while it makes the tensor of the state, which may let go of the GIL."""


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
    def _should_skip_dynamo(cls) -> bool:
        """No: that would import torch's compiler, which takes most of a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device") or getattr(args[0] if args else None, "device", "cpu")
        random = torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None
        if not random or torch.device(device).type != "cpu":
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in _LIKE:
            draw = getattr(torch.empty_like(args[0], **kwargs), _LIKE[name])
            return draw(*args[1:], generator=self.generator)
        if (seeded := _with_generator(func)) is None:
            return func(*args, **kwargs)
        return seeded(*args, **kwargs, generator=self.generator)

    @property
    def generator(self) -> torch.Generator:
        """The generator that is drawn from."""
        self.drew = True
        if self._generator is None:
            with _one_reader:
                state = torch.get_rng_state()
            self._generator = torch.Generator()
            self._generator.set_state(state)
        return self._generator


@cache
def _with_generator(func: Any) -> Any:
    """The operation, or the overload of it, that takes a generator as well; None if there is none.

    Those without are of other devices, or are made of operations that do take one.
    """
    names = argument_names(func) | {"generator"}
    overloads = (getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads())
    return next((f for f in (func, *overloads) if argument_names(f) == names), None)


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
