"""Where the rows come from: batches by position in one long, seeded, repeatable stream.

Position p of the stream is batch p mod N of epoch p div N, each epoch in an order of its own that
the seed decides. A round is a run of positions, so a resumed run and any number of processes see
the same batches. Batches that can be asked for by index are read only where they are needed;
others are streamed with a small shuffling buffer and never held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from ...core.errors import InvalidInput, InvalidType

Batch: TypeAlias = "tuple[Any, Any]"
"""(features, label): features a tensor, a tuple or a dict of tensors, rows first."""

SAMPLE = -1
"""The epoch whose order the fixed sample is taken from: no round ever gets there."""
BUFFER = 64
"""Batches held to shuffle a stream that cannot be asked for a batch by its index."""


@runtime_checkable
class Indexed(Protocol):
    """Batches by index. `order(seed)`, where there is one, is a shuffle that reads well: one row
    group after the other, say; without it all indices are shuffled alike."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


class Members(Protocol):
    """The processes that share the work, as one of them sees it."""

    @property
    def rank(self) -> int:
        """Which one it is."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...


def feed(batches: Any, seed: int, group: Members) -> Feed:
    """The stream of these batches."""
    if isinstance(batches, Iterator):
        raise InvalidInput(
            f"Expected batches that can be read again and again (got the one-time "
            f"{type(batches).__name__}). Try a list, or an object whose __iter__ starts anew."
        )
    if isinstance(batches, torch.Tensor | str | bytes | dict):
        raise InvalidType(
            f"Expected batches, an iterable of (features, label) (got {type(batches).__name__}). "
            "Try [(features, label)]."
        )
    if isinstance(batches, Indexed):
        return IndexedFeed(batches, seed, group)
    if isinstance(batches, Iterable):
        return StreamedFeed(batches, seed, group)
    raise InvalidType(
        f"Expected batches, an iterable of (features, label) (got {type(batches).__name__})."
    )


class Feed:
    """This process's share of runs of positions."""

    _first: Batch | None = None

    def take(self, first: int, count: int) -> Iterator[Batch]:
        """Its part of the batches at positions first … first + count − 1."""
        raise NotImplementedError

    def all(self) -> Iterator[Batch]:
        """Its part of every batch once, in the order in which they are given."""
        raise NotImplementedError

    def sample(self, count: int) -> Iterator[Batch]:
        """Its part of a fixed sample of `count` batches (at most all), the same at every call."""
        raise NotImplementedError

    def example(self) -> Batch:
        """The first batch as given, to see what batches look like; read once and kept."""
        if self._first is None:
            self._first = self._read_first()
        return self._first

    def _read_first(self) -> Batch:
        raise NotImplementedError

    def __len__(self) -> int:
        """How many batches there are; a stream is read through once to know."""
        raise NotImplementedError


class IndexedFeed(Feed):
    """Batches by index: every process reads a contiguous piece of each run, and no more."""

    def __init__(self, batches: Indexed, seed: int, group: Members) -> None:
        self.batches, self.seed, self.group = batches, seed, group
        self.count = len(batches)
        if self.count == 0:
            raise InvalidInput("Expected at least one batch (got none).")
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def take(self, first: int, count: int) -> Iterator[Batch]:
        rank, size = self.group.rank, self.group.size
        lo, hi = first + count * rank // size, first + count * (rank + 1) // size
        return (self.batches[self._index(position)] for position in range(lo, hi))

    def all(self) -> Iterator[Batch]:
        rank, size = self.group.rank, self.group.size
        lo, hi = self.count * rank // size, self.count * (rank + 1) // size
        return (self.batches[index] for index in range(lo, hi))

    def sample(self, count: int) -> Iterator[Batch]:
        if count >= self.count:
            yield from self.all()
            return
        order = self._shuffle(SAMPLE)[:count]
        rank, size = self.group.rank, self.group.size
        for index in order[count * rank // size : count * (rank + 1) // size].tolist():
            yield self.batches[index]

    def _read_first(self) -> Batch:
        return self.batches[0]

    def __len__(self) -> int:
        return self.count

    def _index(self, position: int) -> int:
        epoch, place = divmod(position, self.count)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffle(epoch)
        return int(self._order[place])

    def _shuffle(self, epoch: int) -> torch.Tensor:
        seed = seed_from(self.seed, epoch)
        own = getattr(self.batches, "order", None)
        if not callable(own):
            return torch.randperm(self.count, generator=torch.Generator().manual_seed(seed))
        order = torch.as_tensor(own(seed))
        if not torch.equal(order.sort().values, torch.arange(self.count)):
            raise InvalidInput(f"Expected order(seed) to permute the {self.count} batches.")
        return order


class StreamedFeed(Feed):
    """Batches that can only be read from the start, again and again.

    Each process reads everything and keeps every size-th batch: give batches by index where
    reading is what takes the time.
    """

    def __init__(self, batches: Iterable[Batch], seed: int, group: Members) -> None:
        self.batches, self.seed, self.group = batches, seed, group
        self.count: int | None = None
        self._stream, self._position = self._shuffled(), 0

    def take(self, first: int, count: int) -> Iterator[Batch]:
        if first < self._position:
            self._stream, self._position = self._shuffled(), 0
        for batch in islice(self._stream, first - self._position + count):
            place = self._position - first
            self._position += 1
            if place >= 0 and place % self.group.size == self.group.rank:
                yield batch

    def all(self) -> Iterator[Batch]:
        return self._mine(self._once(0))

    def sample(self, count: int) -> Iterator[Batch]:
        # A buffered shuffle's first batches: no pass over data that may not end soon.
        return self._mine(islice(self._epoch(SAMPLE), count))

    def _mine(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        return islice(batches, self.group.rank, None, self.group.size)

    def _read_first(self) -> Batch:
        return next(self._once(0))

    def __len__(self) -> int:
        if self.count is None:
            for _ in self._once(0):
                pass
        assert self.count is not None
        return self.count

    def _once(self, epoch: int) -> Iterator[Batch]:
        """Every batch once; loaders that shuffle by the global random state do so by our seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_from(self.seed, epoch))
            source = iter(self.batches)
            first = list(islice(source, 1))
        count = len(first)
        yield from first
        for batch in source:
            count += 1
            yield batch
        if count == 0:
            raise InvalidInput("Expected at least one batch (got none).")
        self.count = count

    def _shuffled(self) -> Iterator[Batch]:
        epoch = 0
        while True:
            yield from self._epoch(epoch)
            epoch += 1

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
        held: list[Batch] = []
        for batch in self._once(epoch):
            held.append(batch)
            if len(held) > BUFFER:
                yield _pop(held, generator)
        while held:
            yield _pop(held, generator)


def _pop(held: list[Batch], generator: torch.Generator) -> Batch:
    at = int(torch.randint(len(held), (), generator=generator))
    held[at], held[-1] = held[-1], held[at]
    return held.pop()


def seed_from(*parts: int) -> int:
    """A digest keeps neighbouring seeds and epochs apart."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest(), "little")
