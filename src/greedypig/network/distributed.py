"""One job on several processes: the only file that knows ranks.

`torchrun --nproc-per-node N -m greedypig …` starts N processes that each run the whole program.
Inside `joined()` they know of each other: every one takes its own share of the work, and a barrier
holds all of them until the last has done it. Without torchrun there is one process, the first.

On "cuda" every process has the GPU of its local rank, and sums go by NCCL; else by gloo.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")
PATIENCE = timedelta(days=30)
"""How long a process waits for the others: shares of a long job end hours apart."""
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""How often torchrun has started the processes anew."""


@dataclass(frozen=True)
class Group:
    """The processes that do a job together, as one of them sees it."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Is this the process that prints and writes the results?"""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> list[Item]:
        """This process's part of the items: every size-th, so that long and short ones mix."""
        return list(items[self.rank :: self.size])

    def sum(self, tensor: Tensor) -> Tensor:
        """Σ over the processes, the same bits on each; the tensor itself where there is one.

        In the tensor's own type, float64 for sums that are compared: gloo and NCCL both add it.
        """
        if self.size == 1:
            return tensor
        import torch.distributed

        total = tensor.detach().clone()
        if torch.distributed.get_backend() == "nccl":
            total = total.cuda()
        torch.distributed.all_reduce(total)
        return total.to(tensor.device)

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.size > 1:
            import torch.distributed

            torch.distributed.barrier()


ALONE = Group()


@contextmanager
def joined(device: str = "cpu") -> Iterator[Group]:
    """The group that torchrun started this process in; `ALONE` where there is none.

    device: "cuda" takes the GPU of the local rank for this process, and NCCL for the exchange.
    """
    size = _number("WORLD_SIZE", 1)
    if size == 1:
        yield ALONE
        return
    import torch.distributed

    if torch.distributed.is_initialized():  # The caller's own program has joined already.
        yield Group(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    nccl, own = device == "cuda" and torch.distributed.is_nccl_available(), own_device(device)
    if nccl:
        torch.cuda.set_device(own)  # What NCCL exchanges from, barriers included.
    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    store.set_timeout(PATIENCE)
    # torchrun keeps one store over its restarts, with the addresses of processes that are gone.
    torch.distributed.init_process_group(
        "nccl" if nccl else "gloo",
        store=PrefixStore(f"restart {_number(RESTARTS, 0)}", store),
        rank=rank,
        world_size=size,
        timeout=PATIENCE,
    )
    try:
        yield Group(torch.distributed.get_rank(), torch.distributed.get_world_size())
    finally:
        torch.distributed.destroy_process_group()


def own_device(device: str) -> str:
    """This process's device: of several processes on "cuda" each has the GPU of its local rank."""
    if device != "cuda" or _number("WORLD_SIZE", 1) == 1:
        return device
    import torch

    local, there = _number("LOCAL_RANK", 0), torch.cuda.device_count()
    if local >= there:
        raise InvalidInput(
            f"Expected a GPU for every process of a machine (got {there} for process {local + 1}). "
            f"Try --nproc-per-node {max(there, 1)}, or the device cpu."
        )
    return f"cuda:{local}"


def restarted() -> bool:
    """Has torchrun started this process anew, after one of the group was lost?"""
    return _number(RESTARTS, 0) > 0


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise
