"""How a mask over columns reaches a model: gates on its inputs, or on what its layers see.

x_S,j = baseline_j + gate_j · (x_j − baseline_j) for every column j of a row, the same gates for
all rows. A `Network` answers for one batch: the loss summed over its rows at each mask, and its
gradient in the gates. Parameter gradients are never computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..core.objective import Oracle, Runs
from .columns import Table
from .losses import Loss, per_row
from .stream import Batch


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch as a network takes it, checked and on its device."""

    features: Any
    labels: Tensor
    weights: Tensor | None = None
    """(rows,): what each counts for; None where all count alike."""

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return int(self.labels.shape[0])

    @property
    def weight(self) -> float:
        """What its rows count for together."""
        return float(self.rows) if self.weights is None else float(self.weights.double().sum())


class Network:
    """A model whose columns can be gated, with a loss: sums over the rows of one batch."""

    def __init__(self, table: Table, loss: Loss, device: torch.device) -> None:
        self.table, self.loss, self.device = table, loss, device
        self.columns = table.columns
        # One mask at a time: the batch of rows fills the device already.
        self._oracle = Oracle(self._negative_losses, self.columns, batch_size=1)

    def prepare(self, batch: Batch) -> Prepared:
        """The batch, checked and ready for several masks."""
        rows = self.table.read(batch).to(self.device)
        held = self.encode(rows.parts) if len(rows.labels) else rows.parts
        return Prepared(held, rows.labels, rows.weights)

    def encode(self, parts: list[Tensor]) -> Any:
        """What all masks of a batch have in common, worked out once."""
        return parts

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's answer with these gates, (columns,) for all rows or (rows, columns)."""
        raise NotImplementedError

    def values(self, batch: Prepared, masks: Tensor) -> Tensor:
        """(m,) float64: −Σ over rows of the loss at each mask."""
        masks = masks.to(self.device)
        return self._oracle.evaluate(masks, [(batch, len(masks))], gradient=False)[0].double()

    def gradients(self, batch: Prepared, masks: Tensor) -> tuple[Tensor, Tensor]:
        """Values (m,) and their gradients (m, columns) in the gates, float64."""
        masks = masks.to(self.device)
        values, gradients, _ = self._oracle.evaluate(masks, [(batch, len(masks))], gradient=True)
        assert gradients is not None
        return values.double(), gradients.double()

    def path(self, batch: Prepared, mask: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
        """(columns,) float64: Σ_k weights_k · gradient at mask + nodes_k · (1 − mask)."""
        masks = torch.lerp(mask, torch.ones_like(mask), nodes.unsqueeze(1))
        gradients = self.gradients(batch, masks)[1]
        return weights.to(gradients) @ gradients

    def _negative_losses(self, points: Tensor, runs: Runs) -> Tensor:
        batches = [batch for batch, rows in runs for _ in range(rows)]
        return torch.stack([
            -per_row(
                self.loss, self.outputs(batch.features, gates), batch.labels, batch.weights
            ).sum()
            for batch, gates in zip(batches, points, strict=True)
        ])  # fmt: skip


class Expecting(Protocol):
    """Knows what the columns that are there let one expect of the others."""

    def rows(self, x: Tensor, gates: Tensor, /) -> Tensor:
        """(rows, inputs): x where a column is there, what is expected elsewhere."""
        ...

    def given(self, gates: Tensor, /) -> Any:
        """Which numbers are there (`on`) and which are not (`off`)."""
        ...

    def gathered(self, news: Tensor, slopes: Tensor, /) -> Tensor:
        """What `per_number` needs of some rows, to be added up."""
        ...

    def per_number(self, given: Any, gathered: Tensor, /) -> Tensor:
        """(off,): what the absent numbers' news are worth, Σ over rows."""
        ...


class Encoded(Network):
    """A network whose columns are numbers (rows, inputs) somewhere, with a baseline there."""

    expected: Expecting | None = None
    """Where absent columns are not at one baseline for all rows, but at what the others say."""
    refusal = ""
    """Why that cannot be."""

    def __init__(self, table: Table, loss: Loss, column_of: Tensor, like: Tensor) -> None:
        super().__init__(table, loss, like.device)
        self.column_of = column_of.to(like.device)
        self.dtype = like.dtype
        self.rest_at(torch.zeros(len(column_of), dtype=like.dtype, device=like.device))

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """(rows, inputs): what the gates act on, one or several numbers of each column."""
        raise NotImplementedError

    def rest_at(self, baseline: Tensor) -> None:
        """Absent columns are at this baseline (inputs,) from now on."""
        self.baseline = baseline.to(self.device, self.dtype)
        self.at_zero = not bool(baseline.any())

    def at(self, features: Any, numbers: Tensor) -> Any:
        """The model's answer to these numbers (rows, inputs) in the place of its own."""
        raise NotImplementedError

    def known(self, features: Any) -> Tensor:
        """(rows, inputs): the numbers of a batch that was encoded."""
        raise NotImplementedError

    def path(self, batch: Prepared, mask: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
        """Along the way from what the mask's columns let one expect to the rows themselves."""
        if self.expected is None:
            return super().path(batch, mask, nodes, weights)
        x = self.known(batch.features)
        start, given = self.expected.rows(x, mask), self.expected.given(mask)
        slopes = torch.zeros_like(x)
        oracle = Oracle(self._negative_losses_at, x.shape[1], batch_size=1 << 30)
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            point = torch.lerp(start, x, node)
            found = oracle.evaluate(point, [(batch, len(point))], gradient=True)[1]
            assert found is not None
            slopes.add_(found, alpha=weight)
        news = (x - start).index_select(1, given.off)
        gathered = self.expected.gathered(news, slopes.index_select(1, given.off))
        total = self.expected.per_number(given, gathered)
        made = torch.zeros(self.columns, dtype=torch.float64, device=self.device)
        return made.index_add_(0, self.column_of[given.off], total)

    def _negative_losses_at(self, points: Tensor, runs: Runs) -> Tensor:
        ((batch, _),) = runs
        outputs = self.at(batch.features, points)
        return -per_row(self.loss, outputs, batch.labels, batch.weights)

    def gated(self, x: Tensor, gates: Tensor) -> Tensor:
        """baseline + gates · (x − baseline)."""
        spread = gates.to(x)[..., self.column_of]
        if self.expected is not None:
            return torch.lerp(self.expected.rows(x, gates.detach()), x, spread)
        return x * spread if self.at_zero else torch.lerp(self.baseline, x, spread)


class DenseNetwork(Encoded):
    """Any model on one matrix (rows, columns) of numbers, or on several side by side."""

    def __init__(self, model: Callable[..., Any], table: Table, loss: Loss, like: Tensor) -> None:
        self.model = model
        super().__init__(table, loss, torch.arange(table.columns), like)

    def encode(self, parts: list[Tensor]) -> Tensor:
        """All columns in one matrix."""
        return self.numbers(parts)

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """The columns themselves."""
        held = [part.to(self.dtype).reshape(len(part), -1) for part in parts]
        return held[0] if len(held) == 1 else torch.cat(held, dim=1)

    def known(self, features: Any) -> Tensor:
        """The columns themselves."""
        return features  # type: ignore[no-any-return]

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model at gated numbers."""
        return self.at(features, self.gated(features, gates))

    def at(self, features: Any, numbers: Tensor) -> Any:
        """The model at these numbers."""
        return self.table.call(self.model, self.table.split(numbers))


class GatedNetwork(Network):
    """A model with forward(…, gates=…) that gates its columns itself, towards its own baseline."""

    def __init__(self, model: Callable[..., Any], table: Table, loss: Loss, like: Tensor) -> None:
        super().__init__(table, loss, like.device)
        self.model, self.dtype = model, like.dtype

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's own answer to the gates."""
        return self.table.call(self.model, features, gates=gates.to(self.dtype))


class BaselinedNetwork(Encoded):
    """A model with forward(…, gates=…, baseline=…) that shows what its gates act on: `inputs`."""

    refusal = "a model that puts its columns at the baseline itself"

    def __init__(
        self, model: Callable[..., Any], module: Any, table: Table, loss: Loss, like: Tensor
    ) -> None:
        self.model, self.inputs = model, module.inputs
        super().__init__(table, loss, module.column_of, like)

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """What the model's gates act on."""
        return self.table.call(self.inputs, parts).detach()  # type: ignore[no-any-return]

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's own answer to gates and baseline."""
        gates = gates.to(self.dtype)
        return self.table.call(self.model, features, gates=gates, baseline=self.baseline)
