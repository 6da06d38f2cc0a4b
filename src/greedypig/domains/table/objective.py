"""The set function of post-hoc feature selection: G(S) = −loss(y, f(X_S; θ)) over the data.

The mean over rows, one mask for all of them. Gradients are taken on the next share of batches at
every call, so that a run of Algorithm 1 spends a stated number of batches; values are measured on
a fixed sample of batches, so that they can be compared. Sums are in float64 and over all processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ...core.errors import InvalidInput
from .batches import Batch, Feed
from .networks import Network, Prepared


class Adding(Protocol):
    """Processes whose numbers can be summed."""

    def sum(self, tensor: Tensor, /) -> Tensor:
        """Σ over the processes."""
        ...


class TableObjective:
    """g(mask) = −mean over rows of loss(label, model(row gated by mask)).

    shares: the batches of each gradient evaluation in turn (the points of one path share them);
    None takes all batches every time. sample: the batches on which values are measured.
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
        shares: tuple[int, ...] | None,
        sample: int | None,
        done: int = 0,
    ) -> None:
        self.n, self.network = network.columns, network
        self.feed, self.group = feed, group
        self.shares, self.sample = shares, sample
        self.call = done
        """Gradient calls so far, those of earlier sittings included."""
        self.batches_used = 0
        """Gradient batches paid by all processes: one per batch and point of the path."""
        self.rows_used = 0
        """Rows in them, times points."""

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m,) values on the fixed sample."""
        batches = self.feed.all() if self.sample is None else self.feed.sample(self.sample)
        total = torch.zeros(len(masks) + 1, dtype=torch.float64)
        for batch in self._prepared(batches):
            total[:-1] += self.network.values(batch, masks).cpu()
            total[-1] += batch.rows
        total = self.group.sum(total)
        return total[:-1] / _rows(total[-1])

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, n) masks → values (m,), gradients (m, n) on the next share of batches."""
        m, n = masks.shape
        total = torch.zeros(m * n + m + 2, dtype=torch.float64)
        for batch in self._prepared(self._next()):
            values, gradients = self.network.gradients(batch, masks)
            total[: m * n] += gradients.cpu().reshape(-1)
            total[m * n : -2] += values.cpu()
            total[-2:] += torch.tensor([batch.rows, 1.0], dtype=torch.float64)
        total = self._summed(total, m)
        return total[m * n : -2], total[: m * n].reshape(m, n)

    def path(self, mask: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
        """(n,): Σ_k weights_k · ∇g(mask + nodes_k · (1 − mask)) on the next share of batches."""
        total = torch.zeros(self.n + 2, dtype=torch.float64)
        for batch in self._prepared(self._next()):
            total[:-2] += self.network.path(batch, mask, nodes, weights)[1].cpu()
            total[-2:] += torch.tensor([batch.rows, 1.0], dtype=torch.float64)
        return self._summed(total, len(nodes))[:-2]

    def _summed(self, total: Tensor, points: int) -> Tensor:
        """One sum over the processes, per row; counts what it cost."""
        total = self.group.sum(total)
        rows, batches = total[-2], int(total[-1])
        self.batches_used += batches * points
        self.rows_used += int(rows) * points
        self.call += 1
        return total / _rows(rows)

    def _next(self) -> Iterator[Batch]:
        if self.shares is None:
            return self.feed.all()
        if self.call >= len(self.shares):
            raise InvalidInput(
                f"Expected at most the {len(self.shares)} gradients that the budget was made for."
            )
        return self.feed.take(sum(self.shares[: self.call]), self.shares[self.call])

    def _prepared(self, batches: Iterator[Batch]) -> Iterator[Prepared]:
        for batch in batches:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise InvalidInput("Expected batches of two, (features, label).")
            prepared = self.network.prepare(*batch)
            if prepared.rows:
                yield prepared


def _rows(count: Tensor) -> float:
    if not count > 0:
        raise InvalidInput("Expected at least one row in the batches (got none).")
    return float(count)
