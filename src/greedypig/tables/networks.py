"""How a mask over columns reaches a model: gates on its inputs, or on what its layers see.

x_S,j = baseline_j + gate_j · (x_j − baseline_j) for every column j of a row, the same gates for
all rows. A `Network` answers for one batch: the loss summed over its rows at each mask, and its
gradient in the gates. Parameter gradients are never computed. Three kinds: `GatedModel` takes gates
itself, `PlainModel` is gated from outside, `LinearNetwork` (linear.py) uses its first layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from ..core.objective import Objective
from .columns import Table
from .embeddings import LookUp, embeddings, hooked
from .losses import Loss, per_row
from .stream import Batch

if TYPE_CHECKING:
    from .conditional import Conditional


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch as a network takes it, checked and on its device."""

    features: Any
    labels: Tensor
    weights: Tensor | None = None
    """(rows,): what each row counts for; None where all count alike."""

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return int(self.labels.shape[0])

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self.rows) if self.weights is None else float(self.weights.double().sum())


class Line(NamedTuple):
    """Points 1_S + nodes_k · (1 − 1_S) of one straight path."""

    selected: Tensor
    """(columns,) bool: S."""
    nodes: list[float]

    @staticmethod
    def of(masks: Tensor) -> Line | None:
        """The path that these masks (s, columns) lie on; None where they lie on none."""
        selected = (masks == 1).all(0)
        if bool(selected.all()):  # The full table is the end of the path from nothing.
            selected = torch.zeros_like(selected)
        rest = masks[:, ~selected]
        straight = bool((rest == rest[:, :1]).all())
        return Line(selected, rest[:, 0].tolist()) if straight else None


class _Points(Objective):
    """A function of points, differentiated; what is not finite is told by the sum over the data."""

    def gradients(self, points: Tensor) -> Tensor:
        """(m, n) points → (m, n)."""
        gradients = self._evaluate(points.expand(1, 1, *points.shape), gradient=True)[1]
        assert gradients is not None
        return gradients[0, 0]


def gradients_of(function: Callable[[Tensor], Tensor], points: Tensor, *, rows: int) -> Tensor:
    """(m, n): the gradient of every row's value, function: points (m, n) → values (m,).

    rows: how many of the points the function takes at once.
    """
    start = points.new_zeros(1, 1, points.shape[1])
    differentiable = _Points(
        lambda part, _: function(part), start, torch.ones_like(start), batch_size=rows
    )
    return differentiable.gradients(points)


class Network:
    """A model whose columns can be gated, with a loss: sums over the rows of one batch."""

    conditional: Conditional | None = None
    """What absent columns are imputed by, where they are not at one baseline for all rows."""
    refusal = ""
    """Why absent columns of this model cannot be imputed."""

    def __init__(
        self, table: Table, loss: Loss, like: Tensor, column_of: Tensor | None = None
    ) -> None:
        """column_of: (inputs,) the column behind each number that the gates act on; None for a
        model that gates its columns itself, towards a baseline of its own."""
        self.table, self.loss, self.columns = table, loss, table.columns
        self.device, self.dtype = like.device, like.dtype
        self.column_of = None if column_of is None else column_of.to(like.device)
        self.put_absent_at(torch.zeros(0 if column_of is None else len(column_of)))

    def prepare(self, batch: Batch) -> Prepared:
        """The batch, checked and ready for several masks."""
        rows = self.table.read(batch).to(self.device)
        features = self.encode(rows.parts) if len(rows.labels) else rows.parts
        return Prepared(features, rows.labels, rows.weights)

    def encode(self, parts: list[Tensor]) -> Any:
        """What all masks of a batch have in common, computed once."""
        return parts

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's outputs with these gates, (columns,) for all rows or (rows, columns)."""
        raise NotImplementedError

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """(rows, inputs): what the gates act on, one or several numbers of each column."""
        raise NotImplementedError

    def encoded_numbers(self, features: Any) -> Tensor:
        """(rows, inputs): the numbers of a batch that was encoded."""
        raise NotImplementedError

    def outputs_at(self, features: Any, numbers: Tensor) -> Any:
        """The model's outputs with these numbers (rows, inputs) in place of its own."""
        raise NotImplementedError

    def put_absent_at(self, baseline: Tensor) -> None:
        """Absent columns are at this baseline (inputs,) from now on."""
        self.baseline = baseline.to(self.device, self.dtype)
        self.at_zero = not bool(baseline.any())

    def gated(self, x: Tensor, gates: Tensor) -> Tensor:
        """baseline + gates · (x − baseline), (rows, inputs)."""
        spread = gates.to(x)[..., self.column_of]
        if self.conditional is not None:
            return torch.lerp(self.conditional.rows(x, gates.detach() == 1), x, spread)
        return x * spread if self.at_zero else torch.lerp(self.baseline, x, spread)

    def values(self, batch: Prepared, masks: Tensor) -> Tensor:
        """(m,) float64: −Σ over rows of the loss at each mask."""
        with torch.no_grad():
            return self._sums(batch, masks.to(self.device)).double()

    def gradient(self, batch: Prepared, masks: Tensor, weights: Tensor) -> Tensor:
        """(columns,) float64: Σ_k weights_k · ∇(−Σ over rows of the loss) at masks_k."""
        line = Line.of(masks)
        if line is not None and self.conditional is not None:
            return self._imputed_gradient(batch, line, weights)
        # One mask at a time: the rows of the batch fill the device already.
        gradients = gradients_of(lambda m: self._sums(batch, m), masks.to(self.device), rows=1)
        return weights.to(gradients) @ gradients

    def _sums(self, batch: Prepared, masks: Tensor) -> Tensor:
        """(m,): −Σ over rows of the loss at each mask."""
        losses = [
            per_row(self.loss, self.outputs(batch.features, gates), batch.labels, batch.weights)
            for gates in masks
        ]
        return -torch.stack([loss.sum() for loss in losses])

    def _imputed_gradient(self, batch: Prepared, line: Line, weights: Tensor) -> Tensor:
        """Along the way from what S lets one expect to the rows themselves."""
        assert self.conditional is not None
        x, given = self.encoded_numbers(batch.features), self.conditional.given(line.selected)
        start = self.conditional.rows(x, line.selected)

        def negative_losses(points: Tensor) -> Tensor:
            outputs = self.outputs_at(batch.features, points)
            return -per_row(self.loss, outputs, batch.labels, batch.weights)

        slopes = torch.zeros_like(x)
        for node, weight in zip(line.nodes, weights.tolist(), strict=True):
            point = torch.lerp(start, x, node)
            slopes += weight * gradients_of(negative_losses, point, rows=len(point))
        news = (x - start).index_select(1, given.off)
        sums = self.conditional.gather(news, slopes.index_select(1, given.off))
        return self.per_column(given.off, self.conditional.per_number(given, sums))

    def per_column(self, places: Tensor, numbers: Tensor) -> Tensor:
        """(columns,) float64: the sum over the numbers of each column; others have 0."""
        assert self.column_of is not None
        total = torch.zeros(self.columns, dtype=torch.float64, device=self.device)
        return total.index_add_(0, self.column_of[places], numbers.double())


class GatedModel(Network):
    """A model with forward(…, gates=…), and perhaps baseline=…, that gates its columns itself."""

    refusal = "a model that puts its columns at the baseline itself"

    def __init__(
        self, model: Callable[..., Any], table: Table, loss: Loss, like: Tensor, module: Any = None
    ) -> None:
        """module: takes a baseline and shows what its gates act on, as `inputs` and `column_of`."""
        self.model, self.module = model, module
        super().__init__(table, loss, like, None if module is None else module.column_of)

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """What the model's gates act on."""
        return self.table.call(self.module.inputs, parts).detach()  # type: ignore[no-any-return]

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's own outputs for gates and baseline."""
        more = {} if self.module is None else {"baseline": self.baseline}
        return self.table.call(self.model, features, gates=gates.to(self.dtype), **more)


class PlainModel(Network):
    """Any model: numbers are gated where they enter, categories where their embeddings come out.

    Without embeddings every column is a number. The model is called for every point of a path, and
    looks up its embeddings each time: a bag may weight them by numbers that are gated too.
    """

    def __init__(
        self, model: Callable[..., Any], table: Table, loss: Loss, like: Tensor,
        lookups: list[LookUp] | None = None, module: nn.Module | None = None,
    ) -> None:  # fmt: skip
        """lookups: those of the module's embeddings in one call, in their order."""
        self.model, self.lookups = model, lookups or []
        self.modules = {} if module is None else embeddings(module)
        self.is_number = [not (self.lookups and part.categorical) for part in table.parts]
        owners = [c for c, category in enumerate(table.categorical)
                  if not (self.lookups and category)]  # fmt: skip
        self.widths = [len(owners)]
        for one in self.lookups:
            owners += [column for column in one.columns for _ in range(one.width)]
            self.widths.append(len(one.columns) * one.width)
        super().__init__(table, loss, like, torch.tensor(owners))

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """The numbers, then the outputs of every embedding, in the order of the look-ups."""
        rows = len(parts[0])
        floats = [part.reshape(rows, -1) for part, number in self._marked(parts) if number]
        vectors: list[Tensor] = []

        def keep(_: nn.Module, __: Any, output: Tensor) -> None:
            vectors.append(output.detach().reshape(rows, -1))

        if self.lookups:
            with torch.no_grad(), hooked(self.modules, keep):
                self.table.call(self.model, parts)
        made = [each.to(self.dtype) for each in floats + vectors]
        return made[0] if len(made) == 1 else torch.cat(made, dim=1)

    def find_weighting(self, parts: list[Tensor]) -> None:
        """Find out whether numbers weigh the embeddings: then those cannot be imputed."""
        rolled = [part.roll(1, 0) if number else part for part, number in self._marked(parts)]
        own = self.widths[0]
        if not torch.equal(self.numbers(parts)[:, own:], self.numbers(rolled)[:, own:]):
            self.refusal = "a model whose numbers weigh its embeddings"

    def encode(self, parts: list[Tensor]) -> Any:
        """The parts; and their numbers where they are at hand or needed."""
        known = not self.lookups or self.conditional is not None
        return parts, self.numbers(parts) if known else None

    def encoded_numbers(self, features: Any) -> Tensor:
        """Found when the batch was encoded."""
        return features[1]  # type: ignore[no-any-return]

    def outputs_at(self, features: Any, numbers: Tensor) -> Any:
        """The model's outputs with these in place of its numbers and embeddings."""
        if not self.lookups:
            return self.table.call(self.model, self.table.split(numbers))
        return self._mixed(features[0], torch.zeros_like(numbers), numbers)

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's outputs while its numbers and embeddings are gated."""
        if features[1] is not None:
            return self.outputs_at(features, self.gated(features[1], gates))
        return self._mixed(features[0], gates.to(self.dtype)[..., self.column_of], self.baseline)

    def _marked(self, parts: list[Tensor]) -> zip[tuple[Tensor, bool]]:
        return zip(parts, self.is_number, strict=True)

    def _mixed(self, parts: list[Tensor], spread: Tensor, absent: Tensor) -> Any:
        """The model's outputs at absent + spread · (its own numbers − absent)."""
        own, *gates = torch.split(spread, self.widths, dim=-1)
        rest, *rests = torch.split(absent, self.widths, dim=-1)
        following = iter(zip(self.lookups, gates, rests, strict=True))

        def gate(module: nn.Module, _: Any, output: Tensor) -> Tensor:
            lookup, gates_here, rest_here = next(following, (None, own, rest))
            if lookup is None or self.modules.get(lookup.name) is not module:
                raise InvalidInput(
                    "Expected the same embeddings to be looked up in every batch (got others). "
                    "Try a model with forward(numeric, categorical, gates=…)."
                )
            flat = output.reshape(len(output), -1)
            return torch.lerp(rest_here, flat, gates_here).reshape(output.shape)

        gated, lo = [], 0
        for (part, number), of in zip(self._marked(parts), self.table.parts, strict=True):
            if number:
                here = slice(lo, lo + of.width)
                lo += of.width
                flat = part.reshape(len(part), -1).to(self.dtype)
                part = torch.lerp(rest[..., here], flat, own[..., here]).reshape(part.shape)
            gated.append(part)
        with hooked(self.modules, gate):
            return self.table.call(self.model, gated)
