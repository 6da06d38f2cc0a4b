"""The global random state of torch, read and put back by one thread at a time.

Torch holds its generator's mutex while it makes the tensor of the state. Making it may collect
garbage and so let another thread run; were that one to ask for the state too, it would wait for the
mutex with the GIL held, and neither would ever go on. `torch.random.fork_rng` does the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

_one = RLock()


def state() -> Tensor:
    """Of the CPU's default generator."""
    with _one:
        return torch.get_rng_state()


def put_back(before: Tensor) -> None:
    """What `state` gave."""
    with _one:
        torch.set_rng_state(before)


@contextmanager
def kept_state() -> Iterator[None]:
    """Whatever is drawn or seeded inside, the global state is afterwards what it was."""
    before = state()
    try:
        yield
    finally:
        put_back(before)


def _unlock() -> None:
    """In a forked process, where the thread that held the lock is not."""
    global _one
    _one = RLock()


if hasattr(os, "register_at_fork"):  # Not on Windows.
    os.register_at_fork(after_in_child=_unlock)
