"""Rows of a table as batches of tensors, in an order that depends on the seed alone.

The list of batches is laid down before any row is read: pieces are shuffled, neighbours are pooled
until they hold POOL rows, rows are shuffled within a pool and cut into batches. Any batch can be
asked for by its number, so every process of a group has the same list and takes its share of it.
`order(seed)` is a shuffle of the list that reads each pool once: a few pools at a time are in
memory, and their batches are mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import InvalidInput
from .files import Table
from .schema import Encoded, Schema
from .schema_inference import Survey

POOL = 32_768
"""Rows that are shuffled together, at least, where the table has them."""
TOGETHER = 8
"""Pools whose batches are mixed, at most."""
SMALLEST, LARGEST, STEPS = 16, 512, 16
"""Default rows of a batch, and default batches of a small table."""
MEMORY = 512 * 2**20
"""Bytes that encoded pools may take: fewer are mixed where they are large."""

Part = Literal["train", "valid"]
Pair = tuple[tuple[Tensor, Tensor] | Tensor, Tensor]
"""((numeric, categorical), label), or (numeric, label)."""


class Batches(Sequence[Pair]):
    """A sequence of ((numeric, categorical), label), the same however often it is read.

    numeric is float32 (rows, numbers), categorical int64 (rows, categories), label float32 for a
    binary label or a number and int64 for classes.
    """

    def __init__(
        self,
        table: Table,
        survey: Survey,
        *,
        batch_size: int | None = None,
        part: Part | None = None,
        share: float = 0.1,
        split_seed: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        schema: Schema | None = None,
    ) -> None:
        """Lay down the list; nothing is read.

        batch_size: rows of a batch, about; None takes 512, and fewer (16 at least) where that
            would be less than 16 batches: a small table is learned from in small steps.
        part, share: "valid" is this share of the rows, drawn by split_seed, and "train" the rest;
            None takes all rows.
        schema: the survey's, or fewer of its columns (`Schema.only`): others are not read.
        """
        if len(survey.rows) != len(table.pieces):
            raise InvalidInput(
                f"Expected a survey of {table.source} with its {len(table.pieces)} pieces "
                f"(got {len(survey.rows)}). Try the survey again: the files have changed."
            )
        if not 0 < share < 1:
            raise InvalidInput(f"Expected a share between 0 and 1 (got {share:g}).")
        self.table, self.survey, self.schema = table, survey, schema or survey.schema
        self.part, self.share, self._batch_size = part, share, batch_size
        self.split_seed, self.seed, self.shuffle = split_seed, seed, shuffle
        self._numbers_alone = False
        self._cache: dict[int, Encoded] = {}
        """Pools read last, the oldest first."""

    def only(self, names: Iterable[str]) -> Batches:
        """The same batches with these columns alone; others are not read."""
        other = copy(self)
        other.schema, other._cache = self.schema.only(names), {}
        other.__dict__.pop("together", None)  # Pools of fewer columns are smaller.
        return other

    def numbers_alone(self) -> Batches:
        """The same batches as (numeric, label), for a model of one input."""
        other = copy(self)
        other._numbers_alone = True
        return other

    @cached_property
    def batch_size(self) -> int:
        """Rows of a batch, about."""
        return self._batch_size or max(SMALLEST, min(LARGEST, self.rows // STEPS))

    @property
    def rows(self) -> int:
        """How many rows all batches have together."""
        return int(self._counts.sum())

    def identity(self) -> str:
        """Names and sizes of the files, rows of their pieces, and how they are shared out."""
        files = [(f.path.name, f.path.stat().st_size) for f in self.table.files]
        shared = (self.batch_size, self.part, self.share, self.split_seed, self.seed, self.shuffle)
        return repr((files, self.survey.rows, *shared))

    def order(self, seed: int) -> NDArray[np.int64]:
        """The numbers of all batches, shuffled so that every pool is read once."""
        random = np.random.default_rng([seed, 3])
        pools = random.permutation(len(self._pools))
        parts = []
        for first in range(0, len(pools), self.together):
            mixed = np.isin(self._plan[:, 0], pools[first : first + self.together])
            parts.append(random.permutation(np.flatnonzero(mixed)))
        return np.concatenate(parts)

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: Any) -> Any:
        pool, start, stop = self._plan[int(index)].tolist()
        rows = self._pool(pool)
        numeric, label = map(torch.from_numpy, (rows.numeric[start:stop], rows.label[start:stop]))
        if self._numbers_alone:
            return numeric, label
        categorical = torch.from_numpy(rows.categorical[start:stop].astype(np.int64))
        return (numeric, categorical), label

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))

    def _mine(self, piece: int) -> NDArray[np.bool_]:
        """Which labelled rows of a piece belong to this part."""
        drawn = np.random.default_rng([self.split_seed, piece]).random(self.survey.rows[piece])
        is_valid = drawn < self.share
        return {"valid": is_valid, "train": ~is_valid, None: np.ones(len(drawn), bool)}[self.part]

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """Rows of this part in each piece."""
        counts = [int(self._mine(i).sum()) for i in range(len(self.survey.rows))]
        if not sum(counts):
            raise InvalidInput(
                f"Expected rows in {self.table.source}"
                f"{'' if self.part is None else f' for the part {self.part!r}'} (got none of "
                f"{self.survey.total:,}). Try more rows, or another share."
            )
        return np.array(counts, np.int64)

    @cached_property
    def _pools(self) -> list[list[int]]:
        """The pieces of each pool."""
        pieces = np.flatnonzero(self._counts)
        if self.shuffle:
            pieces = np.random.default_rng([self.seed, 1]).permutation(pieces)
        pools: list[list[int]] = []
        room = 0
        for piece in pieces.tolist():
            if room <= 0:
                pools.append([])
                room = POOL
            pools[-1].append(piece)
            room -= int(self._counts[piece])
        return pools

    @cached_property
    def together(self) -> int:
        """How many pools are mixed, and held in memory."""
        largest = max(int(self._counts[pool].sum()) for pool in self._pools)
        size = largest * (4 * len(self.schema.names) + 8)
        return max(1, min(TOGETHER, len(self._pools), MEMORY // size))

    @cached_property
    def _plan(self) -> NDArray[np.int64]:
        """(batches, 3): pool, first row, row behind the last."""
        batches = []
        for pool, pieces in enumerate(self._pools):
            rows = int(self._counts[pieces].sum())
            # Batches of nearly the same size, rather than a small one at the end.
            cuts = np.linspace(0, rows, max(1, round(rows / self.batch_size)) + 1).round()
            batches += [(pool, a, b) for a, b in pairwise(cuts.astype(int).tolist())]
        return np.array(batches, np.int64)

    def _pool(self, pool: int) -> Encoded:
        rows = self._cache.pop(pool, None)
        while rows is None and len(self._cache) >= self.together:
            del self._cache[next(iter(self._cache))]
        self._cache[pool] = rows or self._read(pool)
        return self._cache[pool]

    def _read(self, pool: int) -> Encoded:
        columns = [*self.schema.names, self.schema.label.name]
        parts = []
        for piece in self._pools[pool]:
            rows = self.schema.encode(self.table.read(piece, columns))
            if len(rows.label) != self.survey.rows[piece]:
                raise InvalidInput(
                    f"Expected {self.survey.rows[piece]:,} rows in piece {piece} of "
                    f"{self.table.source} (got {len(rows.label):,}). The files have changed: "
                    "try the survey again."
                )
            mine = self._mine(piece)
            parts.append([array[mine] for array in rows])
        whole = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        if self.shuffle:
            order = np.random.default_rng([self.seed, 2, pool]).permutation(len(whole[0]))
            whole = [array[order] for array in whole]
        return Encoded(*whole)
