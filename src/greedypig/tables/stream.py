"""Where the rows come from: batches by position in one long, seeded, repeatable stream.

Position p of the stream is batch p mod N of epoch p div N, each epoch in an order of its own that
the seed decides. A round is a run of positions, so a resumed run and any number of processes see
the same batches. Batches that can be asked for by index are read only where they are needed;
others are streamed with a small shuffling buffer and never held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import count, islice
from typing import Any

import torch

from ..core.errors import InvalidInput, InvalidType
from ..core.randomness import Fork
from .columns import Batch, as_batch, is_frame
from .distributed import Group

SAMPLE = -1
"""The epoch whose order the fixed sample is taken from: no round ever gets there."""
BUFFER = 64
"""Batches held to shuffle a stream that cannot be asked for a batch by its index."""


def feed(batches: Any, seed: int, group: Group) -> Feed:
    """The stream of these batches.

    Batches by index may have methods of their own. `order(seed)` is a shuffle that reads well: one
    row group after the other, say; without it all indices are shuffled alike. `homes(seed)` numbers
    the place that each batch of that order is read from: processes that share a run of batches then
    read from as few places as can be. `identity()` is a text that tells these batches from others.
    """
    if isinstance(batches, Iterator):
        raise InvalidInput(
            f"Expected batches that can be read again and again (got the one-time "
            f"{type(batches).__name__}). Try a list, or an object whose __iter__ starts anew."
        )
    if isinstance(batches, torch.Tensor | str | bytes | dict) or is_frame(batches):
        raise InvalidType(
            f"Expected batches, an iterable of (features, label) (got {type(batches).__name__}). "
            "Try [(features, label)]."
        )
    if hasattr(batches, "__len__") and hasattr(batches, "__getitem__"):
        return IndexedFeed(batches, seed, group)
    if isinstance(batches, Iterable):
        return StreamedFeed(batches, seed, group)
    raise InvalidType(
        f"Expected batches, an iterable of (features, label) (got {type(batches).__name__})."
    )


class Feed:
    """This process's share of runs of positions."""

    _first: Batch | None = None

    def take(self, first: int, number: int) -> Iterator[Batch]:
        """Its part of the batches at positions first … first + number − 1."""
        raise NotImplementedError

    def all(self) -> Iterator[Batch]:
        """Its part of every batch once, in the order in which they are given."""
        raise NotImplementedError

    def sample(self, number: int) -> Iterator[Batch]:
        """Its part of a fixed sample of `number` batches (at most all), the same at every call."""
        raise NotImplementedError

    def example(self) -> Batch:
        """The first batch with rows, to see what batches look like; read once and kept."""
        if self._first is None:
            given = self._in_order()
            first = next(given)
            rest = (batch for batch in given if not _is_empty(batch))
            self._first = next(rest, first) if _is_empty(first) else first
        return self._first

    def _in_order(self) -> Iterator[Batch]:
        """Every batch as it is given, for all processes alike."""
        raise NotImplementedError

    def identity(self) -> tuple[str, Batch | None]:
        """What tells these batches from others with the same first one, as far as that is cheap:
        words, and a further batch. A stream is not read for it."""
        return "", None


class IndexedFeed(Feed):
    """Batches by index: every process reads its piece of each run, by homes, and no more."""

    def __init__(self, batches: Any, seed: int, group: Group) -> None:
        self.batches, self.seed, self.group = batches, seed, group
        self.count = len(batches)
        if self.count == 0:
            raise InvalidInput("Expected at least one batch (got none).")
        self._epoch, self._order = -1, torch.empty(0, 2, dtype=torch.long)

    def take(self, first: int, number: int) -> Iterator[Batch]:
        return map(self._read, self._own([self._at(p) for p in range(first, first + number)]))

    def all(self) -> Iterator[Batch]:
        rank, size = self.group.rank, self.group.size
        lo, hi = self.count * rank // size, self.count * (rank + 1) // size
        return map(self._read, range(lo, hi))

    def sample(self, number: int) -> Iterator[Batch]:
        if number >= self.count:
            yield from self.all()
            return
        yield from map(self._read, self._own(self._shuffle(SAMPLE)[:number].tolist()))

    def _read(self, index: int) -> Batch:
        return as_batch(self.batches[index])

    def _in_order(self) -> Iterator[Batch]:
        return map(self._read, range(self.count))

    def identity(self) -> tuple[str, Batch | None]:
        own = getattr(self.batches, "identity", None)
        if callable(own):
            return f"{self.count} {own()}", None
        return str(self.count), self._read(self.count - 1)

    def _own(self, run: list[list[int]]) -> list[int]:
        """This process's piece of a run of (index, home): a contiguous one of the run by homes."""
        rank, size = self.group.rank, self.group.size
        if size > 1:
            run = sorted(run, key=lambda at: at[1])
        return [index for index, _ in run[len(run) * rank // size : len(run) * (rank + 1) // size]]

    def _at(self, position: int) -> list[int]:
        """The index and home of the batch at a position."""
        epoch, place = divmod(position, self.count)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffle(epoch)
        return self._order[place].tolist()

    def _shuffle(self, epoch: int) -> torch.Tensor:
        """(batches, 2): index and home."""
        seed = seed_from(self.seed, epoch)
        own, homes = (getattr(self.batches, name, None) for name in ("order", "homes"))
        if not callable(own):
            order = torch.randperm(self.count, generator=torch.Generator().manual_seed(seed))
            return torch.stack([order, torch.zeros_like(order)], dim=1)
        order = torch.as_tensor(own(seed))
        if not torch.equal(order.sort().values, torch.arange(self.count)):
            raise InvalidInput(f"Expected order(seed) to permute the {self.count} batches.")
        places = torch.as_tensor(homes(seed)) if callable(homes) else torch.zeros_like(order)
        return torch.stack([order, places.to(order)], dim=1)


class StreamedFeed(Feed):
    """Batches that can only be read from the start, again and again.

    Each process reads everything and keeps every size-th batch: give batches by index where
    reading is what takes the time.
    """

    def __init__(self, batches: Iterable[Any], seed: int, group: Group) -> None:
        self.batches, self.seed, self.group = batches, seed, group
        self._stream, self._position = self._shuffled(), 0

    def take(self, first: int, number: int) -> Iterator[Batch]:
        if first < self._position:
            self._stream, self._position = self._shuffled(), 0
        for batch in islice(self._stream, first - self._position + number):
            place = self._position - first
            self._position += 1
            if place >= 0 and place % self.group.size == self.group.rank:
                yield batch

    def all(self) -> Iterator[Batch]:
        return self._mine(self._once(0))

    def sample(self, number: int) -> Iterator[Batch]:
        # A buffered shuffle's first batches: no pass over data that may not end soon.
        return self._mine(islice(self._epoch(SAMPLE), number))

    def _mine(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        return islice(batches, self.group.rank, None, self.group.size)

    def _in_order(self) -> Iterator[Batch]:
        return self._once(0)

    def _once(self, epoch: int) -> Iterator[Batch]:
        """Every batch once; loaders that shuffle by the global random state do so by our seed."""

        def begin() -> tuple[Iterator[Any], list[Any]]:
            source = iter(self.batches)
            return source, list(islice(source, 1))

        source, first = Fork(seed_from(self.seed, epoch)).call(begin)
        if not first:
            raise InvalidInput("Expected at least one batch (got none).")
        yield from map(as_batch, first)
        yield from map(as_batch, source)

    def _shuffled(self) -> Iterator[Batch]:
        for epoch in count():
            yield from self._epoch(epoch)

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
        buffer: list[Batch] = []
        for batch in self._once(epoch):
            buffer.append(batch)
            if len(buffer) > BUFFER:
                yield _pop(buffer, generator)
        while buffer:
            yield _pop(buffer, generator)


def _is_empty(batch: Batch) -> bool:
    return getattr(batch.labels, "shape", None) is not None and 0 in batch.labels.shape[:1]


def _pop(buffer: list[Batch], generator: torch.Generator) -> Batch:
    at = int(torch.randint(len(buffer), (), generator=generator))
    buffer[at], buffer[-1] = buffer[-1], buffer[at]
    return buffer.pop()


def seed_from(*parts: int) -> int:
    """A digest keeps neighbouring seeds and epochs apart."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest(), "little")
