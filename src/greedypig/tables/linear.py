"""Networks whose first layer is linear: one product for all points of a path.

On the way from 1_S to 1 the first layer sees before + t · along: `before` is made by the columns
of S, `along` by the others, so both together cost one product per batch, whatever the number of
points. Backwards the layer is linear too: the points' gradients are added up at its output and
sent through it once, to the columns that are still to be had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.objective import Oracle, Runs
from . import losses
from .columns import Table
from .conditional import Expected, Regression
from .losses import Loss, per_row
from .networks import Encoded, Prepared

ROWS = 512
"""Rows of a batch that a CPU works on at a time: what they need stays in its cache."""


@dataclass(frozen=True, eq=False)
class _Way:
    """The first layer cut in two at a mask of 0 and 1: weights of S, and of the others."""

    mask: Tensor
    on: Tensor
    off: Tensor
    before: Tensor
    """What the numbers of S do to the layer, those that they let one expect included."""
    along: Tensor
    given: Regression | None
    """What S says about the others; None where they rest at a baseline."""

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers of S, and how far the others are from where they rest."""
        known, rest = x.index_select(1, self.on), x.index_select(1, self.off)
        if self.given is not None:
            rest = torch.addmm(rest, known, self.given.coefficients, alpha=-1)
        return known, rest


class LinearNetwork(Encoded):
    """inputs(parts) → first (linear) → rest → loss, with gates between inputs and first."""

    expected: Expected | None = None

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
        own = first.bias
        self.own_bias = self.weight.new_zeros(len(self.weight)) if own is None else own.detach()
        self._way: _Way | None = None
        super().__init__(table, loss, column_of, self.weight)
        self._head = _relu_head(rest, loss) or _AutogradHead(rest, loss, len(self.weight))
        self._rows = ROWS if self.device.type == "cpu" else 1 << 30

    def rest_at(self, baseline: Tensor) -> None:
        """The baseline's share of the first layer is a constant: part of its bias."""
        super().rest_at(baseline)
        self.bias = self.own_bias + self.weight @ self.baseline

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """What the first layer sees of a batch without gates."""
        return self.inputs(parts).detach()

    def encode(self, parts: list[Tensor]) -> Tensor:
        """Looked up once per batch; from here on an absent column is a zero."""
        with torch.no_grad():
            numbers = self.numbers(parts)
            return numbers if self.at_zero else numbers - self.baseline

    def known(self, features: Any) -> Tensor:
        """With the baseline that an encoded batch is without."""
        return features + self.baseline  # type: ignore[no-any-return]

    def at(self, features: Any, numbers: Tensor) -> Any:
        """The whole network at these inputs."""
        return self.rest(functional.linear(numbers, self.weight, self.own_bias))

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The whole network at gated inputs."""
        if self.expected is not None:
            return self.at(features, self.gated(self.known(features), gates))
        x = features * gates.to(features)[..., self.column_of]
        return self.rest(functional.linear(x, self.weight, self.bias))

    def values(self, batch: Prepared, masks: Tensor) -> Tensor:
        """From one mask to the next only the columns that change go through the first layer."""
        if self.expected is not None:
            return super().values(batch, masks)
        gates = masks.to(batch.features)[:, self.column_of]
        moves = torch.diff(gates, dim=0, prepend=torch.zeros_like(gates[:1]))
        total = torch.zeros(len(masks), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for lo in range(0, batch.rows, self._rows):
                x, labels, weights = self._piece(batch, lo)
                hidden = self.bias.expand(len(x), -1)
                for k, move in enumerate(moves):
                    at = torch.nonzero(move).squeeze(1)
                    step = x.index_select(1, at) * move[at]
                    hidden = torch.addmm(hidden, step, self.weight.T.index_select(0, at))
                    # A copy, as the layers behind may begin with a step in place.
                    outputs = self.rest(hidden.clone())
                    found = per_row(self.loss, outputs, labels, weights)
                    total[k] -= found.sum(dtype=torch.float64)
        return total

    def path(self, batch: Prepared, mask: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
        """One product for `before` and `along`, then the rest of the network at every point."""
        if not bool(((mask == 0) | (mask == 1)).all()):
            return super().path(batch, mask, nodes, weights)
        way = self._cut(mask)
        total: Tensor | float = 0.0
        places, shares = nodes.tolist(), weights.tolist()
        for lo in range(0, batch.rows, self._rows):
            x, labels, row_weights = self._piece(batch, lo)
            known, rest = way.parts(x)
            before = torch.addmm(self.bias, known, way.before)
            slopes = self._head.slopes(before, rest @ way.along, labels, places, shares)
            if row_weights is not None:
                slopes = slopes * row_weights.to(slopes).unsqueeze(1)
            slopes = slopes @ way.along.T
            if self.expected is None:
                total = total + slopes.mul_(rest).sum(0).double()
            else:
                total = total + self.expected.gathered(rest, slopes)
        assert isinstance(total, Tensor)  # Batches without rows are not asked about.
        if self.expected is not None and way.given is not None:
            total = self.expected.per_number(way.given, total)
        found = torch.zeros(self.columns, dtype=torch.float64, device=self.device)
        return found.index_add_(0, self.column_of[way.off], total)

    def _piece(self, batch: Prepared, lo: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows from `lo` on, as many as are worked on at a time: inputs, labels, weights."""
        here = slice(lo, lo + self._rows)
        weights = None if batch.weights is None else batch.weights[here]
        return batch.features[here], batch.labels[here], weights

    def _cut(self, mask: Tensor) -> _Way:
        """The weights of both sides, contiguous; made once a round."""
        if self._way is None or not torch.equal(self._way.mask, mask):
            taken = mask.to(self.device)[self.column_of] == 1
            on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
            before, along = self.weight.T[on], self.weight.T[off]
            given = None if self.expected is None else self.expected.given(mask)
            if given is not None:
                before = torch.addmm(before, given.coefficients, along)
            self._way = _Way(mask.clone(), on, off, before, along, given)
        return self._way


class _AutogradHead:
    """Any layers behind the first one, any loss."""

    def __init__(self, rest: Callable[[Tensor], Any], loss: Loss, width: int) -> None:
        self.rest, self.loss = rest, loss
        self._oracle = Oracle(self._negative_losses, width, batch_size=1 << 30)

    def slopes(
        self,
        before: Tensor,
        along: Tensor,
        labels: Tensor,
        nodes: list[float],
        weights: list[float],
    ) -> Tensor:
        """(rows, width): Σ_k weights_k · gradient of −loss at before + nodes_k · along."""
        total = torch.zeros_like(before)
        for node, weight in zip(nodes, weights, strict=True):
            point = torch.add(before, along, alpha=node)
            found = self._oracle.evaluate(point, [(labels, len(point))], gradient=True)[1]
            assert found is not None
            total.add_(found, alpha=weight)
        return total

    def _negative_losses(self, points: Tensor, runs: Runs) -> Tensor:
        ((labels, _),) = runs
        return -per_row(self.loss, self.rest(points), labels)


class _ReluHead:
    """ReLU, linear, ReLU, …, linear and a known loss, its gradient written out by hand.

    The same numbers as autograd's, with buffers that are used again: a fresh tensor for every
    step of every point costs as much as the smaller products.
    """

    def __init__(self, layers: list[nn.Linear], slope: Loss) -> None:
        self.weights = [layer.weight.detach() for layer in layers]
        self.biases = [
            layer.weight.new_zeros(layer.out_features) if layer.bias is None else
            layer.bias.detach() for layer in layers
        ]  # fmt: skip
        self.slope = slope
        self._rows = -1

    def slopes(
        self,
        before: Tensor,
        along: Tensor,
        labels: Tensor,
        nodes: list[float],
        weights: list[float],
    ) -> Tensor:
        """(rows, width): Σ_k weights_k · gradient of −loss at before + nodes_k · along."""
        self._make_buffers(before)
        total = torch.zeros_like(before)
        with torch.no_grad():
            for node, weight in zip(nodes, weights, strict=True):
                torch.add(before, along, alpha=node, out=self._active[0])
                total.add_(self._backward(self._forward(), labels), alpha=weight)
        return total

    def _forward(self) -> Tensor:
        active = self._active
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            active[i].relu_()
            torch.addmm(bias, active[i], weight.T, out=active[i + 1])
        return active[-1]

    def _backward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        slope = self.slope(outputs, labels)
        for i in reversed(range(len(self.weights))):
            into = self._slopes[i]
            torch.mm(slope, self.weights[i], out=into)
            # relu(z) > 0 exactly where z > 0: the activations serve as the mask.
            torch.ops.aten.threshold_backward.grad_input(into, self._active[i], 0, grad_input=into)
            slope = into
        return slope

    def _make_buffers(self, like: Tensor) -> None:
        if len(like) != self._rows:
            widths = [w.shape[1] for w in self.weights] + [self.weights[-1].shape[0]]
            self._rows = len(like)
            self._active = [like.new_empty(self._rows, width) for width in widths]
            self._slopes = [like.new_empty(self._rows, width) for width in widths[:-1]]


def _binary_slope(outputs: Tensor, labels: Tensor) -> Tensor:
    return labels.reshape(-1, 1).to(outputs) - torch.sigmoid(outputs)


def _classes_slope(outputs: Tensor, labels: Tensor) -> Tensor:
    slope = -torch.softmax(outputs, dim=1)
    rows = torch.arange(len(slope), device=slope.device)
    slope[rows, losses.classes(outputs, labels)] += 1
    return slope


def _squared_slope(outputs: Tensor, labels: Tensor) -> Tensor:
    return (labels.reshape(len(outputs), -1).to(outputs) - outputs).mul_(2)


SLOPES: dict[Loss, Loss] = {
    losses.binary_cross_entropy: _binary_slope,
    losses.cross_entropy: _classes_slope,
    losses.squared_error: _squared_slope,
}
"""∂(−loss)/∂outputs of the losses known by name."""


def _relu_head(rest: Any, loss: Loss) -> _ReluHead | None:
    """The hand-written head of these layers, where they are the ones it knows."""
    if not isinstance(rest, nn.Sequential) or loss not in SLOPES or _hooked(rest):
        return None
    layers = [m for m in rest if type(m) not in (nn.Identity, nn.Dropout)]  # Frozen: eval mode.
    if not layers or len(layers) % 2:
        return None
    pairs = [(layers[i], layers[i + 1]) for i in range(0, len(layers), 2)]
    if not all(type(a) is nn.ReLU and type(b) is nn.Linear for a, b in pairs):
        return None
    linear = [b for _, b in pairs if isinstance(b, nn.Linear)]
    width = linear[-1].out_features
    fits: dict[Loss, bool] = {
        losses.binary_cross_entropy: width == 1,
        losses.cross_entropy: width > 1,
    }
    return _ReluHead(linear, SLOPES[loss]) if fits.get(loss, True) else None


def _hooked(module: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
