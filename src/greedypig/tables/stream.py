"""Where the rows come from: batches by position in one long, seeded, repeatable stream.

Position p of the stream is batch p mod N of epoch p div N, each epoch in an order of its own that
the seed decides. A round is a run of positions, so a resumed run and any number of processes see
the same batches. Batches that can be asked for by index are read only where they are needed;
others are streamed with a small shuffling buffer and never held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import chain, count, islice
from typing import Any

import torch

from ..core.errors import InvalidInput, InvalidType
from ..network.distributed import Group
from ..network.randomness import Fork
from .batch import Batch, as_batch, is_frame

SAMPLE = -1
"""The epoch whose order the fixed sample is taken from: no round ever gets there."""
BUFFER = 64
"""Batches held to shuffle a stream that cannot be asked for a batch by its index."""


def feed(batches: Any, seed: int, group: Group) -> Feed:
    """The stream of these batches.

    Batches by index may have methods of their own. `order(seed)` is a shuffle that reads well: one
    row group after the other, say; without it all indices are shuffled alike. `identity()` is a
    text that tells these batches from others.
    """
    if isinstance(batches, Iterator):
        raise InvalidInput(
            f"Expected batches that can be read again and again (got the one-time "
            f"{type(batches).__name__}). Try a list, or an object whose __iter__ starts anew."
        )
    is_data = isinstance(batches, torch.Tensor | str | bytes | dict) or is_frame(batches)
    if not is_data and hasattr(batches, "__len__") and hasattr(batches, "__getitem__"):
        return IndexedFeed(batches, seed, group)
    if is_data or not isinstance(batches, Iterable):
        raise InvalidType(
            "Expected batches, an iterable of (features, label) (got "
            f"{type(batches).__name__}). Try [(features, label)]."
        )
    return Feed(batches, seed, group)


class Feed:
    """This process's share of runs of positions, of batches that can only be read from the start.

    Each process reads everything and keeps every size-th batch: give batches by index where
    reading is what takes the time.
    """

    def __init__(self, batches: Any, seed: int, group: Group) -> None:
        self.batches, self.seed, self.group = batches, seed, group
        self._stream, self._position = self._shuffled(), 0

    def take(self, first: int, number: int) -> Iterator[Batch]:
        """Its part of the batches at positions first … first + number − 1."""
        if first < self._position:
            self._stream, self._position = self._shuffled(), 0
        for batch in islice(self._stream, first - self._position + number):
            place = self._position - first
            self._position += 1
            if place >= 0 and place % self.group.size == self.group.rank:
                yield batch

    def all(self) -> Iterator[Batch]:
        """Its part of every batch once, in the order in which they are given."""
        return islice(self._once(0), self.group.rank, None, self.group.size)

    def sample(self, number: int) -> Iterator[Batch]:
        """Its part of a fixed sample of `number` batches (at most all), the same at every call."""
        # A buffered shuffle's first batches: no pass over data that may not end soon.
        return islice(self._epoch(SAMPLE), self.group.rank, number, self.group.size)

    @cached_property
    def example(self) -> Batch:
        """The first batch with rows, to see what batches look like; the same on all processes."""
        batches = self._once(0)
        first = next(batches)
        full = (b for b in chain([first], batches) if 0 not in getattr(b.labels, "shape", (1,))[:1])
        return next(full, first)

    def identity(self) -> tuple[str, Batch | None]:
        """What tells these batches from others with the same first one, as far as that is cheap:
        words, and a further batch. A stream is not read for it."""
        return "", None

    def _once(self, epoch: int) -> Iterator[Batch]:
        """Every batch once; loaders that shuffle by the global random state do so by our seed."""

        def begin() -> tuple[Iterator[Any], list[Any]]:
            source = iter(self.batches)
            return source, list(islice(source, 1))

        source, first = Fork(seed_from(self.seed, epoch)).call(begin)
        if not first:
            raise InvalidInput("Expected at least one batch (got none).")
        yield from map(as_batch, chain(first, source))

    def _shuffled(self) -> Iterator[Batch]:
        return chain.from_iterable(map(self._epoch, count()))

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
        buffer: list[Batch] = []
        for batch in self._once(epoch):
            buffer.append(batch)
            if len(buffer) > BUFFER:
                yield _pop(buffer, generator)
        while buffer:
            yield _pop(buffer, generator)


class IndexedFeed(Feed):
    """Batches by index: every process reads its piece of each run, and no more."""

    def __init__(self, batches: Any, seed: int, group: Group) -> None:
        super().__init__(batches, seed, group)
        self.count = len(batches)
        self._shuffles: dict[int, list[int]] = {}

    def take(self, first: int, number: int) -> Iterator[Batch]:
        places = (divmod(position, self.count) for position in range(first, first + number))
        return self._read([self._shuffle(epoch)[place] for epoch, place in places])

    def all(self) -> Iterator[Batch]:
        return self._read(range(self.count))

    def sample(self, number: int) -> Iterator[Batch]:
        return self.all() if number >= self.count else self._read(self._shuffle(SAMPLE)[:number])

    def identity(self) -> tuple[str, Batch | None]:
        own = getattr(self.batches, "identity", None)
        if callable(own):
            return f"{self.count} {own()}", None
        return str(self.count), as_batch(self.batches[self.count - 1])

    def _once(self, epoch: int) -> Iterator[Batch]:
        if self.count == 0:
            raise InvalidInput("Expected at least one batch (got none).")
        return (as_batch(self.batches[i]) for i in range(self.count))

    def _read(self, run: Sequence[int]) -> Iterator[Batch]:
        """This process's piece of a run of indices: neighbours, which are often read together."""
        rank, size = self.group.rank, self.group.size
        if size > 1:
            run = sorted(run)
        for index in run[len(run) * rank // size : len(run) * (rank + 1) // size]:
            yield as_batch(self.batches[index])

    def _shuffle(self, epoch: int) -> list[int]:
        """The index of every batch, in this epoch's order."""
        if epoch not in self._shuffles:
            seed = seed_from(self.seed, epoch)
            own = getattr(self.batches, "order", None)
            if callable(own):
                order = torch.as_tensor(own(seed))
            else:
                order = torch.randperm(self.count, generator=torch.Generator().manual_seed(seed))
            self._shuffles = {epoch: order.tolist()}
        return self._shuffles[epoch]


def _pop(buffer: list[Batch], generator: torch.Generator) -> Batch:
    at = int(torch.randint(len(buffer), (), generator=generator))
    buffer[at], buffer[-1] = buffer[-1], buffer[at]
    return buffer.pop()


def seed_from(*parts: int) -> int:
    """A digest keeps neighbouring seeds and epochs apart."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest(), "little")
