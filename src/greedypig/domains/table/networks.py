"""How a mask over columns reaches a model: gates on its inputs, or on what its first layer sees.

x_S,j = baseline_j + gate_j · (x_j − baseline_j) for every column j of a row, the same gates for
all rows. A `Network` answers for one batch: the loss summed over its rows at each mask, and its
gradient in the gates. Parameter gradients are never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InvalidInput, InvalidType
from ...core.objective import Oracle, Runs
from .losses import Loss, per_row


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch as a network takes it, checked and on its device."""

    features: Any
    labels: Tensor

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return int(self.labels.shape[0])


class Network:
    """A model whose columns can be gated, with a loss: sums over the rows of one batch."""

    columns: int
    baseline_name = "zero"
    layout = ""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        # One mask at a time: the batch of rows fills the device already.
        self._oracle = Oracle(self._negative_losses, self.columns, batch_size=1)

    def prepare(self, features: Any, labels: Any) -> Prepared:
        """The batch, checked and ready for several masks."""
        raise NotImplementedError

    def outputs(self, batch: Prepared, gates: Tensor) -> Any:
        """The model's answer with these gates (columns,)."""
        raise NotImplementedError

    def values(self, batch: Prepared, masks: Tensor) -> Tensor:
        """(m,) float64: −Σ over rows of the loss at each mask."""
        return self._oracle.evaluate(masks, [(batch, len(masks))], gradient=False)[0].double()

    def gradients(self, batch: Prepared, masks: Tensor) -> tuple[Tensor, Tensor]:
        """Values (m,) and their gradients (m, columns) in the gates, float64."""
        values, gradients, _ = self._oracle.evaluate(masks, [(batch, len(masks))], gradient=True)
        assert gradients is not None
        return values.double(), gradients.double()

    def path(
        self, batch: Prepared, mask: Tensor, nodes: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Values at mask + nodes_k · (1 − mask), and Σ_k weights_k · gradient there, float64."""
        masks = torch.lerp(mask, torch.ones_like(mask), nodes.unsqueeze(1))
        values, gradients = self.gradients(batch, masks)
        return values, weights.to(gradients) @ gradients

    def _negative_losses(self, points: Tensor, runs: Runs) -> Tensor:
        batches = [batch for batch, rows in runs for _ in range(rows)]
        return torch.stack([
            -per_row(self.loss, self.outputs(batch, gates), batch.labels).sum()
            for batch, gates in zip(batches, points, strict=True)
        ])  # fmt: skip


class DenseNetwork(Network):
    """Any model on one matrix (rows, columns) of numbers."""

    def __init__(self, model: Callable[..., Any], columns: int, loss: Loss, like: Tensor) -> None:
        self.model, self.columns = model, columns
        self.dtype, self.device = like.dtype, like.device
        self.baseline = torch.zeros(columns, dtype=like.dtype, device=like.device)
        super().__init__(loss)

    def prepare(self, features: Any, labels: Any) -> Prepared:
        x = as_tensor(features, "features").to(self.device, self.dtype)
        if x.dim() != 2 or x.shape[1] != self.columns:
            raise InvalidInput(
                f"Expected features (rows, {self.columns}) (got shape {tuple(x.shape)})."
            )
        return Prepared(x, as_labels(labels, x.shape[0], self.device))

    def outputs(self, batch: Prepared, gates: Tensor) -> Any:
        return self.model(torch.lerp(self.baseline, batch.features, gates.to(self.baseline)))


class GatedNetwork(Network):
    """A model with forward(numeric, categorical, gates=…) that gates its columns itself."""

    def __init__(
        self, model: Callable[..., Any], columns: int, loss: Loss, device: torch.device
    ) -> None:
        self.model, self.columns, self.device = model, columns, device
        super().__init__(loss)

    def prepare(self, features: Any, labels: Any) -> Prepared:
        if isinstance(features, Mapping):
            held: Any = {k: as_tensor(v, str(k)).to(self.device) for k, v in features.items()}
            rows = {len(v) for v in held.values()}
        else:
            parts = features if isinstance(features, tuple | list) else (features,)
            held = tuple(
                None if v is None else as_tensor(v, f"input {i}").to(self.device)
                for i, v in enumerate(parts)
            )
            rows = {len(v) for v in held if v is not None}
        if len(rows) != 1:
            raise InvalidInput(f"Expected inputs with equal numbers of rows (got {sorted(rows)}).")
        return Prepared(held, as_labels(labels, rows.pop(), self.device))

    def outputs(self, batch: Prepared, gates: Tensor) -> Any:
        gates = gates.float()
        if isinstance(batch.features, Mapping):
            return self.model(**batch.features, gates=gates)
        return self.model(*batch.features, gates=gates)


def as_tensor(given: Any, name: str) -> Tensor:
    """Numbers of any make as a tensor."""
    if isinstance(given, Tensor):
        return given.detach()
    if not hasattr(given, "__array__"):
        raise InvalidType(
            f"Expected {name} to be a tensor or an array (got {type(given).__name__})."
        )
    try:
        return torch.as_tensor(given)
    except TypeError as error:
        raise InvalidType(
            f"Expected {name} to hold numbers (got {getattr(given, 'dtype', 'other things')}). "
            "Try ids for categories, NaN-free numbers for the rest."
        ) from error


def as_labels(given: Any, rows: int, device: torch.device) -> Tensor:
    """Labels (rows, …) on the device."""
    labels = as_tensor(given, "the label").to(device)
    if labels.dim() == 0 or labels.shape[0] != rows:
        raise InvalidInput(
            f"Expected one label per row, {rows} of them (got shape {tuple(labels.shape)})."
        )
    return labels
