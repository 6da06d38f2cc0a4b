"""The set function of feature selection: G(S) = −loss(y, f(X_S; θ)) over the data.

The mean over rows, by their weights where they have some, with one mask for all of them. A pure
function of masks and of which batches: gradients of a round are taken on that round's share of the
batches, so that a run of Algorithm 1 spends a stated number of them; values are measured on a fixed
sample, so that they can be compared. Sums are in float64 and over all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType, NonFinite
from ..core.objective import OwnGradient
from ..core.rounds import Round
from ..core.scorers import OneShot
from ..network.distributed import Group
from ..results.table_notes import HeldOut
from .batch import Batch, Rows
from .networks import Network
from .stream import Feed, seed_from

ALL_POINTS = 1 << 20
"""All points of a path come in one call, so that they share their batches."""
PIECES = 32
"""Pieces of a batch of held-out rows: a standard error needs many, also from a single batch."""
MOST_ROWS = 65_536
"""Held-out rows, about, at most."""


class TableObjective(OwnGradient):
    """g(mask) = −mean over rows of loss(label, model(row gated by mask)).

    shares: how many batches the gradients of each round are taken on; None takes all batches in
    every round. sample: how many batches values are measured on; None takes all.
    """

    def __init__(
        self,
        network: Network,
        feed: Feed,
        group: Group,
        *,
        shares: Sequence[int] | None = None,
        sample: int | None = None,
    ) -> None:
        start = torch.zeros(1, 1, network.columns, dtype=torch.float64)
        super().__init__(self._measured, start, torch.ones_like(start), batch_size=ALL_POINTS)
        self.network, self.feed, self.group = network, feed, group
        self.shares, self.sample, self.round = shares, sample, 0
        self.paid = {"gradient_batches": 0, "gradient_rows": 0}
        """What gradients have cost all processes: one batch at one point of a path is one. The
        objectives of all rounds count together."""

    def for_round(self, number: int) -> TableObjective:
        """The objective with the batches of one round, counted from 0."""
        return self._with(round=number)

    def gradient(self, masks: Tensor, weights: Tensor, /, *, step: int = 0) -> Tensor:
        """(1, s, n) masks, (s,) weights → (1, n), on this round's share of the batches."""
        points, weights = masks[0].double(), weights.double()
        self.count_gradients(len(points))
        network = self.network
        gradient = self._mean(
            self.share(),
            self.n,
            lambda rows: network.gradient(network.encoded(rows), points, weights),
            points=len(points),
        )
        if not bool(torch.isfinite(gradient).all()):
            columns = torch.nonzero(~torch.isfinite(gradient)).squeeze(1).tolist()
            raise NonFinite(
                "Expected finite gradients (got NaN or infinity in the columns "
                f"{network.table.listed(columns)})."
            )
        return gradient.unsqueeze(0)

    def permuted(self, seed: int) -> Tensor:
        """(n,): how much g falls if a column's values change places among the rows of a batch."""
        network, everything = self.network, torch.ones(1, self.n, dtype=torch.float64)

        def falls(rows: Rows) -> Tensor:
            values = [
                network.values(network.encoded(replace(rows, features=parts)), everything)
                for parts in self._shuffled(rows.features, seed)
            ]
            return values[0] - torch.cat(values[1:])

        return self._mean(self.share(), self.n, falls, points=self.n + 1)

    def toward(self, *_: Any) -> NoReturn:
        """Refuse methods that change an input: a table's rows are not one input."""
        raise InvalidInput(
            "Expected a method that only switches columns on and off for a table (got one that "
            "changes the input). Try gp.GreedyPIG() or gp.IG()."
        )

    seen = repeated = toward  # type: ignore[assignment]

    def share(self) -> Iterator[Batch]:
        """This process's part of the batches that this round's gradients are taken on."""
        if self.shares is None:
            return self.feed.all()
        return self.feed.take(sum(self.shares[: self.round]), self.shares[self.round])

    def sampled(self) -> Iterator[Batch]:
        """This process's part of the batches that values are measured on."""
        return self.feed.all() if self.sample is None else self.feed.sample(self.sample)

    def _measured(self, masks: Tensor, _: Tensor) -> Tensor:
        """(m, n) masks → (m,) values, by the forward pass alone."""
        network = self.network
        return self._mean(
            self.sampled(), len(masks), lambda rows: network.values(network.encoded(rows), masks)
        )

    def _mean(
        self, batches: Iterator[Batch], width: int, work: Callable[[Rows], Tensor], points: int = 0
    ) -> Tensor:
        """(width,): the mean over the rows of all processes of work(rows), in one exchange.

        points: how often every batch is paid.
        """
        total = torch.zeros(3 + width, dtype=torch.float64)
        for rows in map(self.network.read, batches):
            total[:3] += torch.tensor([rows.weight, len(rows), 1], dtype=torch.float64)
            if len(rows):
                total[3:] += work(rows).cpu()
        total = self.group.sum(total)
        self.paid["gradient_rows"] += int(total[1]) * points
        self.paid["gradient_batches"] += int(total[2]) * points
        if not total[0] > 0:
            raise InvalidInput("Expected at least one row that counts in the batches (got none).")
        return total[3:] / total[0]

    def _shuffled(self, parts: list[Tensor], seed: int) -> Iterator[list[Tensor]]:
        """The parts as they are, then with every column in turn in an order drawn by seed."""
        yield parts
        for column in range(self.n):
            generator = torch.Generator().manual_seed(seed_from(seed, column))
            order = torch.randperm(len(parts[0]), generator=generator).to(self.network.device)
            shuffled = partial(torch.index_select, dim=0, index=order)
            yield self.network.table.changed(parts, column, shuffled)


@dataclass(frozen=True)
class Permutation(OneShot):
    """scores_j = how much worse the loss is with column j's values shuffled among the rows."""

    name = "permutation"

    def __call__(self, objective: Any, round: Round, /) -> Tensor:
        """The scores, whatever the mask: a one-shot method around the full table."""
        if not isinstance(objective.plain, TableObjective):
            raise InvalidType("Expected a table for method='permutation' (got another objective).")
        return objective.plain.permuted(round.seed)


def held_out(
    network: Network, batches: Iterator[Batch], order: Sequence[int], selected: int
) -> HeldOut:
    """G of the first 0, 1, …, `selected` columns of an order and of all columns, on these rows, and
    the fewest columns after which nothing is gained.

    The rows are cut into pieces, and every piece is evaluated with all sets of columns. So two sets
    are compared on the same rows, and the standard error of their difference comes from the pieces.
    Nothing is gained after S if no larger set T has a mean of loss(S) − loss(T) of more than one
    standard error, a common rule for the size of a model. (Two would call too many useful columns
    of a small table useless.) The rows must not be training rows: there every column gains.
    """
    masks = torch.zeros(selected + 2, network.columns, dtype=torch.float64)
    for place, column in enumerate(order[:selected]):
        masks[place + 1 :, column] = 1
    masks[-1] = 1
    sums, weights, count = [], [], 0
    for batch in batches:
        rows = network.read(batch)
        for piece in rows.pieces(max(1, len(rows) // PIECES)):
            sums.append(network.values(network.encoded(piece), masks).cpu())
            weights.append(piece.weight)
        count += len(rows)
        if count >= MOST_ROWS:
            break
    if not count:
        return HeldOut()
    total, weight = torch.stack(sums), torch.tensor(weights, dtype=torch.float64)
    values = (total.sum(0) / weight.sum()).tolist()
    finite = tuple(value if isfinite(value) else None for value in values)
    return HeldOut(_without_gain(total, weight), finite, count)


def _without_gain(sums: Tensor, weights: Tensor) -> int | None:
    """The fewest columns after which no larger set gains more than one standard error.

    sums: (pieces, sets) of −loss, the last of all columns. weights: (pieces,).
    """
    pieces = len(weights)
    if pieces < 2:
        return None
    for few in range(sums.shape[1] - 1):
        gains = sums[:, few + 1 :] - sums[:, few : few + 1]
        mean = gains.sum(0) / weights.sum()
        spread = (gains - weights.unsqueeze(1) * mean).square().sum(0)
        error = (spread * pieces / (pieces - 1)).sqrt() / weights.sum()
        if bool((mean <= error).all()):
            return few
    return None
