"""How a mask over columns reaches a model: gates on its inputs, or on what its layers see.

x_S,j = baseline_j + gate_j · (x_j − baseline_j) for every column j of a row, the same gates for
all rows. A `Network` answers for one batch: the loss summed over its rows at each mask, and its
gradient in the gates. Parameter gradients are never computed. What the gates act on is a matrix
(rows, inputs): the numbers of a model, the outputs of its embeddings, the inputs of its linear
first layer; or for a model with forward(…, gates=…) its gates themselves, a single row of ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput, NotDifferentiable, first_line
from ..core.objective import NO_GRADIENT
from ..network.frozen import Frozen, freeze
from ..network.reach import modules_behind
from .batch import Batch, Columns, Rows
from .embeddings import INSTEAD, LookUp, embeddings, find_lookups, replaced
from .losses import Loss, check_labels, per_row
from .stream import Feed
from .tabular_mlp import TabularMLP

if TYPE_CHECKING:
    from .baseline import Conditional

PROBED = 16
"""Rows on which a model of numbers is tried."""
ROWS = 128
"""Rows of a batch behind a linear first layer at a time on a CPU: they stay in its cache."""

Inputs = Callable[[list[Tensor]], Tensor]
"""parts → (rows, inputs): what the gates act on."""
Outputs = Callable[[Tensor, list[Tensor]], Any]
"""(inputs, parts) → the model's outputs with these inputs in place of its own."""


class Split(NamedTuple):
    """The inputs of the selected columns, and those of the others."""

    on: Tensor
    off: Tensor
    coefficients: Tensor | None
    """(on, off): what the others are imputed by; None where they are at the baseline."""

    def news(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The selected inputs of some rows, and how far the others are from where they start.

        x: (rows, inputs) less the baseline.
        """
        known, rest = x.index_select(1, self.on), x.index_select(1, self.off)
        if self.coefficients is None:
            return known, rest
        return known, torch.addmm(rest, known, self.coefficients, alpha=-1)

    def product(self, news: Tensor, slopes: Tensor) -> Tensor:
        """What the scores need of some rows, to be added up: Σ over rows of news · slope."""
        return ((news * slopes).sum(0) if self.coefficients is None else news.T @ slopes).double()


class Network:
    """A model whose columns can be gated, with a loss: sums over the rows of one batch.

    `gated_at` or `gated_before` says where the gates are; `network_for` decides which.
    """

    layers: tuple[nn.Linear, Callable[[Tensor], Any]] | None = None
    """The linear first layer, and what is behind it, where that is known."""
    gates_itself = False
    """Are the inputs the gates of the model's own?"""
    conditional: Conditional | None = None
    """What absent columns are imputed by, where they are not at one baseline for all rows."""
    credits_others = True
    """Do scores include what a column says about imputed ones?"""

    def __init__(
        self, model: Frozen, table: Columns, loss: Loss, example: Rows, like: Tensor
    ) -> None:
        """example: the rows of the first batch. like: has the model's device and dtype."""
        self.model, self.table, self.loss = model, table, loss
        self.device, self.dtype = like.device, like.dtype
        self.columns = table.columns
        self.example = example.changed(lambda tensor: tensor.to(like.device))

    def gated_at(self, inputs: Inputs, outputs: Outputs, column_of: Tensor) -> Network:
        """The same with gates on these inputs. column_of: (inputs,) the column behind each."""
        self.inputs, self.outputs_at = inputs, outputs
        self.column_of = column_of.to(self.device)
        self.put_absent_at(torch.zeros(len(column_of)))
        return self

    def gated_before(
        self, inputs: Inputs, first: nn.Linear, rest: Callable[[Tensor], Any], column_of: Tensor
    ) -> Network:
        """The same with gates between inputs and a linear first layer."""
        self.dtype, self.layers = first.weight.dtype, (first, rest)
        return self.gated_at(
            lambda parts: inputs(parts).to(self.dtype), lambda x, _: rest(first(x)), column_of
        )

    def put_absent_at(self, baseline: Tensor) -> None:
        """Absent columns are at this baseline (inputs,) from now on."""
        if not bool(torch.isfinite(baseline).all()):
            raise InvalidInput("Expected a finite baseline (got NaN or infinity).")
        self.baseline = baseline.to(self.device, self.dtype)

    def read(self, batch: Batch) -> Rows:
        """The batch, checked and on the network's device."""
        return self.table.read(batch).changed(lambda tensor: tensor.to(self.device))

    def encoded(self, rows: Rows) -> Rows:
        """Rows that were read, with their inputs first: computed once for several masks."""
        if not len(rows):
            return rows
        parts = [] if self.layers is not None else rows.features
        return replace(rows, features=[self.inputs(rows.features), *parts])

    def outputs(self, rows: Rows, gates: Tensor) -> Any:
        """The model's outputs for encoded rows, with gates (columns,) or (rows, columns)."""
        x, *parts = rows.features
        start = self.baseline
        if self.conditional is not None:
            start = self._start(x, self._split(gates.detach() == 1, self.conditional))
        return self.outputs_at(torch.lerp(start, x, gates.to(x)[..., self.column_of]), parts)

    def _split(self, selected: Tensor, conditional: Conditional | None) -> Split:
        """The inputs of these columns (columns,) bool, and those of the others."""
        taken = selected.to(self.device)[self.column_of]
        coefficients = None if conditional is None else conditional.coefficients(selected)
        on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
        return Split(on, off, coefficients)

    def _start(self, x: Tensor, split: Split) -> Tensor:
        """(rows, inputs): x in the selected columns, the others imputed or at the baseline."""
        _, news = split.news(x - self.baseline)
        return x.index_copy(1, split.off, x.index_select(1, split.off) - news)

    def losses(self, rows: Rows, outputs: Any) -> Tensor:
        """(rows,) losses, each times its row's weight."""
        return per_row(self.loss, outputs, rows.labels, rows.weights)

    def values(self, batch: Rows, masks: Tensor) -> Tensor:
        """(m,) float64: −Σ over encoded rows of the loss at each mask."""
        total = torch.zeros(len(masks), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for rows in batch.pieces(self._chunk):
                for k, gates in enumerate(masks.to(self.device)):
                    total[k] -= self.losses(rows, self.outputs(rows, gates)).sum()
        return total

    def gradient(self, batch: Rows, masks: Tensor, weights: Tensor) -> Tensor:
        """(columns,) float64: Σ_k weights_k · ∇(−Σ over encoded rows of the loss) at masks_k.

        Columns that are 1 in all masks, S, have 0: they do not move, and the others are imputed
        from them. At the full table the path is that from nothing.
        """
        selected = (masks == 1).all(0)
        selected = torch.zeros_like(selected) if bool(selected.all()) else selected
        conditional = self.conditional if self.credits_others else None
        split = self._split(selected, conditional)
        free = masks[:, ~selected]
        if self.layers is not None and bool((free == free[:, :1]).all()):
            slopes_of = self._behind(split, free[:, 0].tolist(), weights.tolist())
        else:
            slopes_of = partial(self._through, split, masks, weights.tolist())
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for rows in batch.pieces(self._chunk):
            news, slopes = slopes_of(rows)
            total = total + split.product(news, slopes)
        if conditional is not None:
            total = conditional.per_number(selected, total)
        scores = torch.zeros(self.columns, dtype=torch.float64, device=self.device)
        return scores.index_add_(0, self.column_of[split.off], total)

    def _behind(
        self, split: Split, nodes: list[float], weights: list[float]
    ) -> Callable[[Rows], tuple[Tensor, Tensor]]:
        """The news of some rows and their slopes, on a straight path behind the first layer.

        From 1_S to 1 the first layer's output is before + t · step: `before` is made by the columns
        of S, `step` by the others, so both together cost one product per batch, whatever the number
        of points. Backwards the layer is linear too: the points' gradients are added up at its
        output and sent through it once. Twice the rows per second of a training step
        (benchmarks/tables.py).
        """
        assert self.layers is not None
        first, rest = self.layers
        bias, of_selected, of_others = first(self.baseline), *(first.weight.T[i] for i in split[:2])
        if split.coefficients is not None:
            # What the others are imputed by is part of the weights of the selected ones.
            of_selected = torch.addmm(of_selected, split.coefficients, of_others)

        def slopes_of(rows: Rows) -> tuple[Tensor, Tensor]:
            known, news = split.news(rows.features[0] - self.baseline)
            before, step = torch.addmm(bias, known, of_selected), news @ of_others
            total = torch.zeros_like(before)
            for node, weight in zip(nodes, weights, strict=True):
                point = torch.add(before, step, alpha=node)
                total.add_(self._slopes(rows, point, rest), alpha=weight)
            return news, total @ of_others.T

        return slopes_of

    def _through(
        self, split: Split, masks: Tensor, weights: list[float], rows: Rows
    ) -> tuple[Tensor, Tensor]:
        """The same through the whole model, at any masks."""
        x, *parts = rows.features
        start, total = self._start(x, split), torch.zeros_like(x)
        for mask, weight in zip(masks.to(x), weights, strict=True):
            point = torch.lerp(start, x, mask[self.column_of])
            slopes = self._slopes(rows, point, lambda inputs: self.outputs_at(inputs, parts))
            total.add_(slopes, alpha=weight)
        return (x - start).index_select(1, split.off), total.index_select(1, split.off)

    def _slopes(self, rows: Rows, point: Tensor, outputs: Callable[[Tensor], Any]) -> Tensor:
        """The gradient of −Σ loss in the point, of the same shape."""
        leaf = point.detach().requires_grad_()
        with torch.enable_grad():
            # A copy, as the model may write on its inputs.
            value = -self.losses(rows, outputs(leaf.clone())).sum()
            if not value.requires_grad:
                raise NotDifferentiable(NO_GRADIENT)
            (slopes,) = torch.autograd.grad(value, leaf, allow_unused=True)
        if slopes is None:
            raise NotDifferentiable(NO_GRADIENT)
        return slopes

    @property
    def _chunk(self) -> int:
        """Rows that are worked on at a time."""
        return ROWS if self.layers is not None and self.device.type == "cpu" else 1 << 30


def network_for(
    model: Callable[..., Any],
    feed: Feed,
    loss_name: str,
    loss: Loss,
    names: Sequence[str] | None,
) -> Network:
    """The network of this model, decided from the model and one batch."""
    frozen, example = freeze(model), feed.example
    table = Columns.of(example.features, partial(check_labels, loss_name)).named(names)
    rows = table.read(example)
    modules = [frozen.module] if frozen.module is not None else modules_behind(frozen.call)
    network = Network(frozen, table, loss, rows, _like(modules, rows.features))
    if _takes_gates(frozen):
        return _gated(network)
    with_ids = embeddings(modules) if any(table.categorical) else []
    if with_ids:
        lookups = find_lookups(frozen, with_ids, table, network.example.features)
        return _hooked(network, lookups)
    if len(table.parts) == 1 and (layers := _linear_chain(frozen)) is not None:
        _check_width(layers[0].in_features, table)
        rest, owners = nn.Sequential(*layers[1:]), torch.arange(table.columns)
        return network.gated_before(lambda parts: parts[0], layers[0], rest, owners)
    network = _hooked(network, [])
    if any(table.categorical):
        _check_takes_numbers(network)
    return network


def _hooked(network: Network, lookups: list[LookUp]) -> Network:
    """Any model: numbers are gated where they enter, categories where their embeddings come out.

    Without embeddings every column is a number.
    """
    table, frozen = network.table, network.model
    is_number = [not (lookups and part.categorical) for part in table.parts]
    numbers = [part for part, number in zip(table.parts, is_number, strict=True) if number]
    modules = list({id(one.module): one.module for one in lookups}.values())
    owners = [c for c, part in enumerate(table.part_of) if part in numbers]
    owners += [column for one in lookups for column in one.owners]
    widths = [part.width for part in numbers] + [len(one.owners) for one in lookups]

    def inputs(parts: list[Tensor]) -> Tensor:
        tensors = [part for part, number in zip(parts, is_number, strict=True) if number]
        if lookups:
            with replaced(modules, lambda _, output: tensors.append(output)):
                table.call(frozen, parts)
        return torch.cat([t.reshape(len(parts[0]), -1).to(network.dtype) for t in tensors], dim=1)

    def outputs(x: Tensor, parts: list[Tensor]) -> Any:
        pieces, following = iter(torch.split(x, widths, dim=1)), iter(lookups)
        given = [
            next(pieces).reshape(part.shape) if number else part
            for part, number in zip(parts, is_number, strict=True)
        ]

        def put(module: nn.Module, output: Tensor) -> Tensor:
            lookup = next(following, None)
            if lookup is None or lookup.module is not module:
                raise InvalidInput(
                    "Expected the same embeddings to be looked up in every batch (got others). "
                    + INSTEAD
                )
            return next(pieces).reshape(output.shape)

        with replaced(modules, put):
            return table.call(frozen, given)

    return network.gated_at(inputs, outputs, torch.tensor(owners))


def _gated(network: Network) -> Network:
    """A model with forward(…, gates=…), by its linear first layer where that is known."""
    table, frozen, columns = network.table, network.model, network.columns
    module: Any = frozen.module
    _check_width(getattr(module, "n_columns", None), table)
    own = (getattr(type(module), name, None) for name in ("forward", "inputs"))
    if list(own) == [TabularMLP.forward, TabularMLP.inputs] and _is_plain(frozen, module.first):
        inputs = partial(table.call, module.inputs)
        return network.gated_before(inputs, module.first, module.rest, module.column_of)
    ones = torch.ones(1, columns, device=network.device, dtype=network.dtype)
    network.gates_itself = True
    return network.gated_at(
        lambda parts: ones,
        lambda gates, parts: table.call(frozen, parts, gates=gates[0]),
        torch.arange(columns),
    )


def _check_takes_numbers(network: Network) -> None:
    """Whole numbers are given as floating point, which no look-up of ids takes."""
    few = [part[:PROBED] for part in network.example.features]
    try:
        with torch.no_grad():
            network.outputs_at(network.inputs(few), few)
    except (RuntimeError, IndexError, TypeError) as error:
        ids = [c for c, whole in enumerate(network.table.categorical) if whole]
        raise InvalidInput(
            f"Expected a model that takes {network.table.listed(ids)} as numbers or looks them up "
            f"in an nn.Embedding, not by a function or an index (got {type(error).__name__}: "
            f"{first_line(error)}). Try nn.Embedding. {INSTEAD}"
        ) from error


def _takes_gates(frozen: Frozen) -> bool:
    called = frozen.call
    try:
        signature = inspect.signature(called.forward if isinstance(called, nn.Module) else called)
    except (TypeError, ValueError):
        return False
    return "gates" in signature.parameters


def _is_plain(frozen: Frozen, first: nn.Module) -> bool:
    """Is the model a module, copied and without hooks, whose first layer is this linear one?"""
    module = frozen.module
    if module is None or frozen.call is not module or frozen.held or type(first) is not nn.Linear:
        return False
    # Hooks of the caller's are to be called, so the module must be called, too.
    return not any(m._forward_hooks or m._forward_pre_hooks for m in (module, first))


def _linear_chain(frozen: Frozen) -> list[Any] | None:
    """The layers of a plain chain that begins with a linear one; None for any other model."""
    module = frozen.module
    layers: list[Any] = list(module) if type(module) is nn.Sequential else [module]
    return layers if layers and _is_plain(frozen, layers[0]) else None


def _check_width(own: Any, table: Columns) -> None:
    if isinstance(own, int) and own != table.columns:
        raise InvalidInput(
            f"Expected features with the model's {own} columns (got {table.columns})."
        )


def _like(modules: list[nn.Module], parts: list[Tensor]) -> Tensor:
    """An empty tensor with the device and the dtype of the model, else of the numbers."""
    parameters = [p.detach() for module in modules for p in module.parameters()]
    for tensor in (*parameters, *parts):
        if tensor.is_floating_point():
            return tensor.new_empty(0)
    raise InvalidInput(
        "Expected floating-point numbers, or a model with embeddings for its categories "
        f"(got {', '.join(sorted({str(part.dtype) for part in parts}))})."
    )
