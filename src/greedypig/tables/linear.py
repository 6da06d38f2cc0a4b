"""Networks whose first layer is linear: one product for all points of a path.

On the way from 1_S to 1 the first layer's output is before + t · along: `before` is made by the
columns of S, `along` by the others, so both together cost one product per batch, whatever the
number of points. Backwards the layer is linear too: the points' gradients are added up at its
output and sent through it once. Twice the rows per second of a training step
(benchmarks/tables.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .columns import Table
from .losses import Loss, per_row
from .networks import Line, Network, Prepared, gradients_of

ROWS = 128
"""Rows of a batch that a CPU works on at a time: what they need stays in its cache."""


class LinearNetwork(Network):
    """inputs(parts) → first (linear) → rest → loss, with gates between inputs and first."""

    def __init__(
        self,
        inputs: Callable[[list[Tensor]], Tensor],
        first: nn.Linear,
        rest: Callable[[Tensor], Any],
        table: Table,
        loss: Loss,
        column_of: Tensor,
    ) -> None:
        self.inputs, self.rest = inputs, rest
        self.weight = first.weight.detach()
        self.own_bias = self.weight.new_zeros(len(self.weight))
        if first.bias is not None:
            self.own_bias = first.bias.detach()
        super().__init__(table, loss, self.weight, column_of)
        self._rows = ROWS if self.device.type == "cpu" else 1 << 30

    def put_absent_at(self, baseline: Tensor) -> None:
        """The baseline's share of the first layer is a constant: part of its bias."""
        super().put_absent_at(baseline)
        self.bias = self.own_bias + self.weight @ self.baseline

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """The inputs of the first layer without gates."""
        return self.inputs(parts).detach()

    def encode(self, parts: list[Tensor]) -> Tensor:
        """Looked up once per batch; from here on an absent column is a zero."""
        with torch.no_grad():
            numbers = self.numbers(parts)
            return numbers if self.at_zero else numbers - self.baseline

    def encoded_numbers(self, features: Any) -> Tensor:
        """With the baseline, which an encoded batch is without."""
        return features + self.baseline  # type: ignore[no-any-return]

    def outputs_at(self, features: Any, numbers: Tensor) -> Any:
        """The whole network at these inputs."""
        return self.rest(functional.linear(numbers, self.weight, self.own_bias))

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The whole network at gated inputs."""
        if self.conditional is not None:
            return self.outputs_at(features, self.gated(self.encoded_numbers(features), gates))
        x = features * gates.to(features)[..., self.column_of]
        return self.rest(functional.linear(x, self.weight, self.bias))

    def values(self, batch: Prepared, masks: Tensor) -> Tensor:
        """From one mask to the next only the columns that change go through the first layer."""
        if self.conditional is not None:
            return super().values(batch, masks)
        gates = masks.to(batch.features)[:, self.column_of]
        moves = torch.diff(gates, dim=0, prepend=torch.zeros_like(gates[:1]))
        total = torch.zeros(len(masks), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for x, labels, weights in self._pieces(batch):
                hidden = self.bias.expand(len(x), -1)
                for k, move in enumerate(moves):
                    at = torch.nonzero(move).squeeze(1)
                    step = x.index_select(1, at) * move[at]
                    hidden = torch.addmm(hidden, step, self.weight.T.index_select(0, at))
                    # A copy, as the layers behind may begin with a step in place.
                    losses = per_row(self.loss, self.rest(hidden.clone()), labels, weights)
                    total[k] -= losses.sum(dtype=torch.float64)
        return total

    def gradient(self, batch: Prepared, masks: Tensor, weights: Tensor) -> Tensor:
        """One product for `before` and `along`, then the rest of the network at every point."""
        line = Line.of(masks)
        if line is None:
            return super().gradient(batch, masks, weights)
        taken = line.selected.to(self.device)[self.column_of]
        on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
        of_selected, of_others = self.weight.T[on], self.weight.T[off]
        given = None if self.conditional is None else self.conditional.given(line.selected)
        if given is not None:
            of_selected = torch.addmm(of_selected, given.coefficients, of_others)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for x, labels, row_weights in self._pieces(batch):
            known, rest = x.index_select(1, on), x.index_select(1, off)
            if given is not None:
                rest = torch.addmm(rest, known, given.coefficients, alpha=-1)
            before = torch.addmm(self.bias, known, of_selected)
            slopes = self._slopes(before, rest @ of_others, labels, line.nodes, weights)
            if row_weights is not None:
                slopes = slopes * row_weights.to(slopes).unsqueeze(1)
            if self.conditional is None:
                total = total + (slopes @ self.weight).mul_(x).sum(0).double()
            else:
                total = total + self.conditional.gather(rest, slopes @ of_others.T)
        if self.conditional is None or given is None:
            return self.per_column(torch.arange(len(taken), device=self.device), total)
        return self.per_column(off, self.conditional.per_number(given, total))

    def _slopes(
        self, before: Tensor, along: Tensor, labels: Tensor, nodes: list[float], weights: Tensor
    ) -> Tensor:
        """(rows, width): Σ_k weights_k · gradient of −loss at before + nodes_k · along."""

        def negative_losses(points: Tensor) -> Tensor:
            return -per_row(self.loss, self.rest(points), labels)

        total = torch.zeros_like(before)
        for node, weight in zip(nodes, weights.tolist(), strict=True):
            point = torch.add(before, along, alpha=node)
            total.add_(gradients_of(negative_losses, point, rows=len(point)), alpha=weight)
        return total

    def _pieces(self, batch: Prepared) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Inputs, labels and weights of as many rows as are worked on at a time."""
        pieces = []
        for lo in range(0, batch.rows, self._rows):
            here = slice(lo, lo + self._rows)
            weights = None if batch.weights is None else batch.weights[here]
            pieces.append((batch.features[here], batch.labels[here], weights))
        return pieces
