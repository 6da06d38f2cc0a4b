"""The set function of post-hoc feature selection: G(S) = −loss(y, f(X_S; θ)) over the data.

The mean over rows, by their weights where they have some, one mask for all of them. Gradients are
taken on the next share of batches at every call, so that a run of Algorithm 1 spends a stated
number of batches; values are measured on a fixed sample of batches, so that they can be compared.
Sums are in float64 and over all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from .networks import Network, Prepared
from .stream import Batch, Feed, seed_from


class Adding(Protocol):
    """Processes whose numbers can be summed."""

    def sum(self, tensor: Tensor, /) -> Tensor:
        """Σ over the processes."""
        ...


class TableObjective:
    """g(mask) = −mean over rows of loss(label, model(row gated by mask)).

    shares: the batches of each gradient call in turn (all points of a call share them); None takes
    all batches every time. sample: how many batches values are measured on; None takes all.
    """

    dtype = torch.float64
    batch_size = 1 << 20
    """All masks of a request come in one call, so that they share their batches."""

    def __init__(
        self,
        network: Network,
        feed: Feed,
        group: Adding,
        *,
        shares: tuple[int, ...] | None = None,
        sample: int | None = None,
    ) -> None:
        self.n, self.network = network.columns, network
        self.feed, self.group = feed, group
        self.shares, self.sample = shares, sample
        self.calls = 0
        """Gradient calls so far; a resumed run begins with those of its earlier sittings."""
        self.batches_used = 0
        """Batches paid by all processes in this sitting: one per batch and point, or look."""
        self.rows_used = 0
        """Rows in them, times points."""

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m,) values on the fixed sample, by the forward pass alone."""
        batches = self.feed.all() if self.sample is None else self.feed.sample(self.sample)
        total = self._over(batches, len(masks), lambda b: self.network.values(b, masks))
        return total[:-3] / _weight(total[-3])

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, n) masks → values (m,), gradients (m, n) on the next share of batches."""
        m, n = masks.shape

        def work(batch: Prepared) -> Tensor:
            values, gradients = self.network.gradients(batch, masks)
            return torch.cat([values, gradients.reshape(-1)])

        total = self._paid(self._over(self._next(), m + m * n, work), m)
        return total[:m], total[m:].reshape(m, n)

    def path(self, mask: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
        """(n,): Σ_k weights_k · ∇g(mask + nodes_k · (1 − mask)) on the next share of batches."""
        total = self._over(
            self._next(), self.n, lambda b: self.network.path(b, mask, nodes, weights)
        )
        return self._paid(total, len(nodes))

    def permuted(self, seed: int) -> Tensor:
        """(n,): how much g falls if a column's values change places among the rows of a batch."""

        network, everything = self.network, torch.ones(1, self.n, dtype=torch.float64)
        total = torch.zeros(self.n + 3, dtype=torch.float64)
        for batch in self._next():
            rows = network.table.read(batch).to(network.device)
            total[-1] += 1
            if not len(rows.labels):
                continue
            found = []
            for moved in _each_shuffled(rows.parts, network, seed):
                asked = Prepared(network.encode(moved), rows.labels, rows.weights)
                found.append(network.values(asked, everything).cpu())
            total[:-3] += found[0] - torch.cat(found[1:])
            total[-3:-1] += torch.tensor([asked.weight, asked.rows], dtype=torch.float64)
        return self._paid(self.group.sum(total), self.n + 1)

    def _over(
        self, batches: Iterator[Batch], width: int, work: Callable[[Prepared], Tensor]
    ) -> Tensor:
        """Σ over batches and processes of work(batch) (width,), weight, rows and batches, in one
        exchange."""
        total = torch.zeros(width + 3, dtype=torch.float64)
        for batch in batches:
            prepared = self.network.prepare(batch)
            total[-1] += 1
            if prepared.rows:
                total[:-3] += work(prepared).cpu()
                total[-3] += prepared.weight
                total[-2] += prepared.rows
        return self.group.sum(total)

    def _paid(self, total: Tensor, points: int) -> Tensor:
        """The sums per row, having counted what they cost."""
        rows, batches = int(total[-2]), int(total[-1])
        self.batches_used += batches * points
        self.rows_used += rows * points
        self.calls += 1
        return total[:-3] / _weight(total[-3])

    def _next(self) -> Iterator[Batch]:
        if self.shares is None:
            return self.feed.all()
        if self.calls >= len(self.shares):
            raise InvalidInput(
                f"Expected at most the {len(self.shares)} gradients that the budget was made for."
            )
        return self.feed.take(sum(self.shares[: self.calls]), self.shares[self.calls])


def _each_shuffled(parts: list[Tensor], network: Network, seed: int) -> Iterator[list[Tensor]]:
    """The parts as they are, then with every column in turn shuffled."""
    yield parts
    for column in range(network.columns):
        yield _shuffled(parts, network, column, seed)


def _shuffled(parts: list[Tensor], network: Network, column: int, seed: int) -> list[Tensor]:
    """The same parts, this column's values in another order: by seed, alike in all batches."""
    rows = len(parts[0])
    generator = torch.Generator().manual_seed(seed_from(seed, column))
    order = torch.randperm(rows, generator=generator).to(network.device)
    return network.table.reordered(parts, column, order)


def _weight(total: Tensor) -> float:
    if not total > 0:
        raise InvalidInput("Expected at least one row that counts in the batches (got none).")
    return float(total)
