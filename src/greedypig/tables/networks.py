"""How a mask over columns reaches a model: gates on its inputs, or on what its layers see.

x_S,j = baseline_j + gate_j · (x_j − baseline_j) for every column j of a row, the same gates for
all rows. A `Network` answers for one batch: the loss summed over its rows at each mask, and its
gradient in the gates. Parameter gradients are never computed. Three kinds: `GatedModel` takes gates
itself, `PlainModel` is gated from outside, `LinearNetwork` is gated before its linear first layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput, InvalidType, NotDifferentiable, first_line
from ..core.objective import NO_GRADIENT
from ..network.frozen import Frozen, freeze
from ..network.reach import modules_behind
from .columns import Batch, Rows, Table
from .embeddings import LookUp, embeddings, find_lookups, hooked
from .losses import Loss, check_labels, per_row
from .stream import Feed

if TYPE_CHECKING:
    from .baseline import Conditional

PROBED = 16
"""Rows on which a shortcut is compared with the model itself."""
ROWS = 128
"""Rows of a batch that `LinearNetwork` works on at a time on a CPU: they stay in its cache."""


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


def gradients_of(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """(m, n): the gradient of every point's value, function: points (m, n) → values (m,)."""
    leaf = points.detach().requires_grad_()
    with torch.enable_grad():
        # A copy, as the function may write on its points.
        values = function(leaf.clone())
        if not values.requires_grad:
            raise NotDifferentiable(NO_GRADIENT)
        (gradients,) = torch.autograd.grad(values.sum(), leaf, allow_unused=True)
    if gradients is None:
        raise NotDifferentiable(NO_GRADIENT)
    return gradients


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

    def read(self, batch: Batch) -> Rows:
        """The batch, checked and on the network's device."""
        return self.table.read(batch).to(self.device)

    def encoded(self, rows: Rows) -> Rows:
        """Rows that were read, ready for several masks."""
        return replace(rows, features=self.encode(rows.features)) if len(rows) else rows

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
        if not bool(torch.isfinite(baseline).all()):
            raise InvalidInput("Expected a finite baseline (got NaN or infinity).")
        self.baseline = baseline.to(self.device, self.dtype)
        self.at_zero = not bool(baseline.any())

    def gated(self, x: Tensor, gates: Tensor) -> Tensor:
        """baseline + gates · (x − baseline), (rows, inputs)."""
        spread = gates.to(x)[..., self.column_of]
        if self.conditional is not None:
            return torch.lerp(self.conditional.rows(x, gates.detach() == 1), x, spread)
        return x * spread if self.at_zero else torch.lerp(self.baseline, x, spread)

    def values(self, batch: Rows, masks: Tensor) -> Tensor:
        """(m,) float64: −Σ over rows of the loss at each mask."""
        with torch.no_grad():
            return self._sums(batch, masks.to(self.device)).double()

    def gradient(self, batch: Rows, masks: Tensor, weights: Tensor) -> Tensor:
        """(columns,) float64: Σ_k weights_k · ∇(−Σ over rows of the loss) at masks_k."""
        line = Line.of(masks)
        if line is not None and self.conditional is not None:
            return self._imputed_gradient(batch, line, weights)
        # One mask at a time: the rows of the batch fill the device already.
        gradients = [
            gradients_of(lambda point: self._sums(batch, point), mask.unsqueeze(0))
            for mask in masks.to(self.device)
        ]
        return weights.to(self.device, masks.dtype) @ torch.cat(gradients)

    def _sums(self, batch: Rows, masks: Tensor) -> Tensor:
        """(m,): −Σ over rows of the loss at each mask."""
        losses = [self._losses(batch, self.outputs(batch.features, gates)) for gates in masks]
        return -torch.stack([loss.sum() for loss in losses])

    def _imputed_gradient(self, batch: Rows, line: Line, weights: Tensor) -> Tensor:
        """The gradient along the path from the imputed rows to the rows themselves."""
        assert self.conditional is not None
        x = self.encoded_numbers(batch.features)
        regression = self.conditional.regression(line.selected)
        start = self.conditional.rows(x, line.selected)
        slopes = self._slopes(
            batch, start, line.nodes, weights, x - start, partial(self.outputs_at, batch.features)
        )
        news = (x - start).index_select(1, regression.off)
        sums = self.conditional.gather(news, slopes.index_select(1, regression.off))
        return self.per_column(regression.off, self.conditional.per_number(regression, sums))

    def _slopes(
        self,
        batch: Rows,
        start: Tensor,
        nodes: list[float],
        weights: Tensor,
        along: Tensor,
        outputs: Callable[[Tensor], Any],
    ) -> Tensor:
        """(rows, numbers): Σ_k weights_k · the gradient of −loss at start + nodes_k · along."""
        total = torch.zeros_like(start)
        for node, weight in zip(nodes, weights.tolist(), strict=True):
            point = torch.add(start, along, alpha=node)
            slopes = gradients_of(lambda p: -self._losses(batch, outputs(p)), point)
            total.add_(slopes, alpha=weight)
        return total

    def _losses(self, batch: Rows, outputs: Any) -> Tensor:
        """(rows,) losses, each times its row's weight."""
        return per_row(self.loss, outputs, batch.labels, batch.weights)

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
        owners = [c for c, category in enumerate(table.categorical) if not (lookups and category)]
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
        return torch.cat([each.to(self.dtype) for each in floats + vectors], dim=1)

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
        """The numbers that `encode` computed."""
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


class LinearNetwork(Network):
    """inputs(parts) → first (linear) → rest → loss, with gates between inputs and first.

    On the way from 1_S to 1 the first layer's output is before + t · along: `before` is made by the
    columns of S, `along` by the others, so both together cost one product per batch, whatever the
    number of points. Backwards the layer is linear too: the points' gradients are added up at its
    output and sent through it once. Twice the rows per second of a training step
    (benchmarks/tables.py).
    """

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

    def values(self, batch: Rows, masks: Tensor) -> Tensor:
        """From one mask to the next only the columns that change go through the first layer."""
        if self.conditional is not None:
            return super().values(batch, masks)
        gates = masks.to(batch.features)[:, self.column_of]
        moves = torch.diff(gates, dim=0, prepend=torch.zeros_like(gates[:1]))
        total = torch.zeros(len(masks), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for rows in batch.pieces(self._rows):
                x = rows.features
                hidden = self.bias.expand(len(x), -1)
                for k, move in enumerate(moves):
                    at = torch.nonzero(move).squeeze(1)
                    step = x.index_select(1, at) * move[at]
                    hidden = torch.addmm(hidden, step, self.weight.T.index_select(0, at))
                    # A copy, as the layers behind may begin with a step in place.
                    losses = self._losses(rows, self.rest(hidden.clone()))
                    total[k] -= losses.sum(dtype=torch.float64)
        return total

    def gradient(self, batch: Rows, masks: Tensor, weights: Tensor) -> Tensor:
        """One product for `before` and `along`, then the rest of the network at every point."""
        line = Line.of(masks)
        if line is None:
            return super().gradient(batch, masks, weights)
        taken = line.selected.to(self.device)[self.column_of]
        on, off = torch.nonzero(taken).squeeze(1), torch.nonzero(~taken).squeeze(1)
        of_selected, of_others = self.weight.T[on], self.weight.T[off]
        imputed = self.conditional
        regression = None if imputed is None else imputed.regression(line.selected)
        if regression is not None:
            of_selected = torch.addmm(of_selected, regression.coefficients, of_others)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for rows in batch.pieces(self._rows):
            x = rows.features
            known, rest = x.index_select(1, on), x.index_select(1, off)
            if regression is not None:
                rest = torch.addmm(rest, known, regression.coefficients, alpha=-1)
            before = torch.addmm(self.bias, known, of_selected)
            along = rest @ of_others
            slopes = self._slopes(rows, before, line.nodes, weights, along, self.rest)
            if imputed is None:
                total = total + (slopes @ self.weight).mul_(x).sum(0).double()
            else:
                total = total + imputed.gather(rest, slopes @ of_others.T)
        if imputed is None or regression is None:
            return self.per_column(torch.arange(len(taken), device=self.device), total)
        return self.per_column(off, imputed.per_number(regression, total))


def network_for(
    model: Callable[..., Any],
    feed: Feed,
    loss_name: str,
    loss: Loss,
    names: Sequence[str] | None,
    *,
    fast: bool = True,
) -> Network:
    """The kind of network that fits this model, decided from the model and one batch.

    fast=False leaves even a linear first layer to autograd, for comparison and for training.
    """
    if not callable(model):
        raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
    frozen = freeze(model)
    example = feed.example()
    table = replace(Table.of(example.features), check=partial(check_labels, loss_name))
    # Names that do not fit yet may fit once bags are known as single columns.
    fits = names is not None and len(names) == table.columns
    fitting = table.named(names) if fits else table
    parts = fitting.read(example).features
    like = _like(frozen, parts)
    parts = [part.to(like.device) for part in parts]
    few = [part[:PROBED] for part in parts]
    takes_gates, module = _takes("gates", frozen), _with_embeddings(frozen)
    if any(table.categorical) and module is not None and not takes_gates:
        lookups, bags = find_lookups(frozen, module, fitting, parts)
        if bags:
            table = replace(Table.of(example.features, bags), check=table.check)
        hooked_model = PlainModel(frozen, table.named(names), loss, like, lookups, module)
        hooked_model.find_weighting(few)
        return hooked_model
    table = table.named(names)
    if takes_gates:
        return _gated(frozen, table, loss, like, few, fast=fast)
    if fast and len(table.parts) == 1 and (layers := _linear_chain(frozen)) is not None:
        first, rest = layers[0], nn.Sequential(*layers[1:])
        _check_width(first.in_features, table)
        owners, dtype = torch.arange(table.columns), first.weight.dtype
        return LinearNetwork(lambda parts: parts[0].to(dtype), first, rest, table, loss, owners)
    plain = PlainModel(frozen, table, loss, like)
    if any(table.categorical):
        _check_takes_numbers(plain, few)
    return plain


def _gated(
    frozen: Frozen, table: Table, loss: Loss, like: Tensor, few: list[Tensor], *, fast: bool
) -> Network:
    """A model with forward(…, gates=…), by its linear first layer where it shows one."""
    module: Any = frozen.module
    _check_width(getattr(module, "n_columns", None), table)
    shows_inputs = all(hasattr(module, name) for name in ("inputs", "column_of"))
    baselined = module if shows_inputs and _takes("baseline", frozen) else None
    gated = GatedModel(frozen, table, loss, like, baselined)
    if not (fast and shows_inputs and _is_private(frozen) and hasattr(module, "rest")):
        return gated
    if type(getattr(module, "first", None)) is not nn.Linear:
        return gated
    linear = LinearNetwork(
        partial(table.call, module.inputs), module.first, module.rest, table, loss, module.column_of
    )
    # The outputs of a subclass may differ from those of its parts.
    gates = torch.linspace(0, 1, table.columns, device=like.device).roll(1)
    try:
        with torch.no_grad():
            ours = linear.outputs(linear.encode(few), gates)
            theirs = gated.outputs(gated.encode(few), gates)
    except (RuntimeError, TypeError, AttributeError):
        return gated
    agree = ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    return linear if agree else gated


def _check_takes_numbers(network: PlainModel, few: list[Tensor]) -> None:
    """Whole numbers are given as floating point, which no look-up of ids takes."""
    try:
        with torch.no_grad():
            network.outputs(network.encode(few), torch.ones(network.columns))
    except (RuntimeError, IndexError, TypeError) as error:
        ids = [c for c, whole in enumerate(network.table.categorical) if whole]
        raise InvalidInput(
            f"Expected a model that takes {network.table.listed(ids)} as numbers or looks them up "
            f"in an nn.Embedding, not by a function or an index (got {type(error).__name__}: "
            f"{first_line(error)}). Try nn.Embedding, or a model with "
            "forward(numeric, categorical, gates=…)."
        ) from error


def _takes(argument: str, frozen: Frozen) -> bool:
    called = frozen.call
    try:
        signature = inspect.signature(called.forward if isinstance(called, nn.Module) else called)
    except (TypeError, ValueError):
        return False
    return argument in signature.parameters


def _is_private(frozen: Frozen) -> bool:
    """Is the model a module of which this is a copy?"""
    return frozen.module is not None and frozen.call is frozen.module and not frozen.held


def _linear_chain(frozen: Frozen) -> list[Any] | None:
    """The layers of a plain chain that begins with a linear one; None for any other model."""
    module = frozen.module
    if module is None or not _is_private(frozen) or _has_hooks(module):
        return None
    layers = list(module) if type(module) is nn.Sequential else [module]
    return layers if type(layers[0]) is nn.Linear and not _has_hooks(layers[0]) else None


def _has_hooks(module: nn.Module) -> bool:
    """Hooks of the caller's are to be called, so the module must be called, too."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _modules(frozen: Frozen) -> list[nn.Module]:
    return [frozen.module] if frozen.module is not None else modules_behind(frozen.call)


def _with_embeddings(frozen: Frozen) -> nn.Module | None:
    """The module whose embeddings are looked up, if there are any."""
    modules = [module for module in _modules(frozen) if embeddings(module)]
    return modules[0] if len(modules) == 1 else (nn.ModuleList(modules) if modules else None)


def _check_width(own: Any, table: Table) -> None:
    if isinstance(own, int) and own != table.columns:
        raise InvalidInput(
            f"Expected features with the model's {own} columns (got {table.columns})."
        )


def _like(frozen: Frozen, parts: list[Tensor]) -> Tensor:
    """An empty tensor with the device and the dtype of the model, else of the numbers."""
    parameters = [p.detach() for module in _modules(frozen) for p in module.parameters()]
    for tensor in (*parameters, *parts):
        if tensor.is_floating_point():
            return tensor.new_empty(0)
    raise InvalidInput(
        "Expected floating-point numbers, or a model with embeddings for its categories "
        f"(got {', '.join(sorted({str(part.dtype) for part in parts}))})."
    )
