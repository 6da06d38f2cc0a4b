"""Any model on any tensors: g(mask) = target(model(baseline + mask · (x − baseline))).

A `Model` is one model with one target; it makes examples of inputs, and one objective of several
examples whose rows share device batches. An input is a picture, a row, a sequence of embeddings,
or several tensors by position or name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput, InvalidType
from ..core.layout import Layout, check_plain
from ..core.objective import Objective
from ..network.fingerprint import digest, fingerprint, identity
from ..network.fold import optimised
from ..network.frozen import Frozen, freeze
from ..network.soft_relu import SoftReLU
from .baselines import resolve
from .targets import Reference, References, Target

_ATOMS = (str, bytes, int, float, complex, torch.dtype, torch.device)


@dataclass(frozen=True, eq=False)
class Example:
    """One input with what its rows need: shapes, dtypes, fixed inputs, baselines, reference."""

    x: Tensor
    """(n,) all values, flat."""
    layout: Layout
    dtypes: tuple[torch.dtype, ...]
    fixed: Any
    baselines: Tensor
    """(lines, n)."""
    reference: Reference

    @property
    def key(self) -> object:
        """Examples with equal keys may share batches."""
        return self.layout, self.dtypes, _key(self.fixed), len(self.baselines)

    @property
    def fingerprint(self) -> str:
        """A digest of the input, of every baseline and of what is passed along."""
        tensors = {f"baseline {i}": b for i, b in enumerate(self.baselines)} | {"x": self.x}
        tensors |= {f"fixed {k}": v for k, v in _items(self.fixed) if isinstance(v, Tensor)}
        rest = [(k, v if _is_plain(v) else identity(v)) for k, v in _items(self.fixed)
                if not isinstance(v, Tensor)]  # fmt: skip
        return digest(tensors, f"{self.layout} {rest}")


class ModelObjective(Objective):
    """The objective of a model, which methods that look at layers can ask for its network."""

    model: Model
    examples: Sequence[Example]

    def softened(self, width: float) -> ModelObjective:
        """The same values; gradients with ramps in place of the steps of ReLU's derivative."""
        other = self.at(self.round, self.goal)
        assert isinstance(other, ModelObjective)
        function = self.function

        def soft(points: Tensor, problems: Tensor) -> Tensor:
            with SoftReLU(width, len(points)):
                return function(points, problems)

        other.function = soft
        return other

    def network(self) -> nn.Module | None:
        """The frozen network; None for plain callables."""
        return self.model.network.module


class Model:
    """One model and one target: makes examples, and the objective over them."""

    def __init__(
        self,
        model: Callable[..., Any],
        target: Target,
        *,
        batch_size: int | Literal["auto"] = "auto",
    ) -> None:
        if not callable(model):
            raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
        self.model, self.target, self.batch_size = model, target, batch_size
        self.plain = freeze(model)
        self.network = self.plain
        self._prepared = False
        self.fingerprint = fingerprint(model)
        """What the model computes, told apart from others."""

    def example(
        self, x: Any, *, target: int | None = None, fixed: Any = None, baseline: Any = None
    ) -> Example:
        """Check one input and read the model's output for it."""
        layout = Layout.of(x)
        tensors = [t.detach() for t in layout.tensors(x)]
        for name, tensor in zip(layout.names, tensors, strict=True):
            _check_input(name, tensor)
        for name, held in _items(fixed):
            if isinstance(held, Tensor):  # It is given a row for each of the model's.
                check_plain(f"fixed input {name!r}", held)
        dtypes = tuple(t.dtype for t in tensors)
        flat = torch.cat([t.reshape(-1).to(_widest(dtypes)) for t in tensors])
        baselines = torch.stack([b.to(flat) for b in resolve(baseline, x, layout, self.model)])
        example = Example(flat, layout, dtypes, fixed, baselines, Reference(0, -1, flat, False))
        output = self._output(example)
        if not bool(torch.isfinite(output).all()):
            raise InvalidInput("Expected a finite output at the full input (got NaN or infinity).")
        reference = self.target.reference(output, target)
        if self.target.is_undirected(reference):
            with torch.no_grad():
                rows = [self.logits(b[None].clone(), example, self.plain) for b in baselines]
            reference = self.target.directed(reference, torch.cat(rows))
        return replace(example, reference=reference)

    def objective(self, examples: Sequence[Example], labels: Sequence[str] = ()) -> ModelObjective:
        """One objective over examples that may share batches (equal keys)."""
        first = examples[0]
        x = torch.stack([e.x for e in examples]).unsqueeze(0)
        baselines = torch.stack([e.baselines for e in examples], 1)
        if not self._prepared:
            self._prepared = True
            line = torch.stack([first.baselines[0], (first.baselines[0] + first.x) / 2, first.x])
            self.network = optimised(
                self.model, self.plain, lambda net: self._probe(net, first, line)
            )
        references = References.of([e.reference for e in examples])
        fixed = _stacked([e.fixed for e in examples])

        def values(points: Tensor, problems: Tensor) -> Tensor:
            output = self._run(self.network, points, first, _rows_of(fixed, problems))
            logits = self.target.logits(output, len(points))
            return self.target.values(logits, references, problems)

        x = x.expand_as(baselines)
        start, end = (x, baselines) if self.target.towards_baseline else (baselines, x)
        objective = ModelObjective(
            values, start, end, layout=first.layout, batch_size=self.batch_size, labels=labels
        )
        objective.model, objective.examples = self, examples
        objective.removes = self.target.towards_baseline
        objective.is_probability = self.target.name == "softmax" and first.reference.classes
        return objective

    def logits(self, points: Tensor, example: Example, network: Frozen | None = None) -> Tensor:
        """(m, classes), or (m,) for a single output: the output at points of one example."""
        rows = _rows_of(_stacked([example.fixed]), torch.zeros(len(points), dtype=torch.long))
        output = self._run(network or self.network, points, example, rows)
        return self.target.logits(output, len(points))

    def _probe(self, network: Frozen, example: Example, points: Tensor) -> Tensor:
        with torch.no_grad():
            return self.logits(points.clone(), example, network)

    def _output(self, example: Example) -> Tensor:
        """The logits at the full input; where that fails, a batch axis left on is said so."""
        with torch.no_grad():
            try:
                # A copy, as the model may begin with a step in place.
                return self.logits(example.x.unsqueeze(0).clone(), example, self.plain)[0]
            except Exception as error:
                rows = self._rows_if_batch(example)
                if rows is None:
                    self._check_dtype(example, error)
                    raise
                way = "x[0]" if rows == 1 else "gp.explain_many(model, x), or one row x[i]"
                raise InvalidInput(
                    f"Expected one example without a batch axis (got shape "
                    f"{example.layout.shapes[0]}, which the model takes as a batch of {rows}). "
                    f"Try {way}."
                ) from error

    def _check_dtype(self, example: Example, error: Exception) -> None:
        """A float64 row from NumPy for a float32 network: torch names neither of the two."""
        module = self.plain.module
        own = {p.dtype for p in module.parameters()} if module is not None else set()
        if len(own) == 1 and "dtype" in str(error) and not own & set(example.dtypes):
            (wanted,) = own
            raise InvalidType(
                f"Expected x in the model's own dtype {wanted} (got {example.dtypes[0]}). "
                f"Try x.to({wanted})."
            ) from error

    def _rows_if_batch(self, example: Example) -> int | None:
        """How many examples x holds, if the model takes it as a batch."""
        layout = example.layout
        rows = layout.shapes[0][0] if layout.shapes[0] else 0
        if not rows or any(shape[:1] != (rows,) for shape in layout.shapes):
            return None
        shapes = tuple(shape[1:] for shape in layout.shapes)
        one = replace(example, layout=Layout(layout.kind, layout.names, shapes))
        parts = [p[0].reshape(rows, -1) for p in layout.split(example.x.unsqueeze(0))]
        try:
            self.logits(torch.cat(parts, 1), one, self.plain)
        except Exception:  # Not a batch either: the first error stands.
            return None
        return rows

    def _run(self, network: Frozen, points: Tensor, example: Example, fixed: Any) -> Any:
        """The network's raw output for points (m, n) of examples like this one."""
        layout = example.layout
        inputs = layout.split(points)
        for i, dtype in enumerate(example.dtypes):
            if points.dtype != dtype:
                inputs[i] = inputs[i].to(dtype)
            if network.channels_last and inputs[i].dim() == 4:
                inputs[i] = inputs[i].contiguous(memory_format=torch.channels_last)
        by_name = dict(zip(layout.names, inputs, strict=True)) if layout.kind == "dict" else {}
        args = () if by_name else tuple(inputs)
        if isinstance(fixed, Mapping):
            return network(*args, **by_name, **fixed)
        return network(*args, *fixed, **by_name)


def _items(fixed: Any) -> list[tuple[Any, Any]]:
    """Fixed inputs with their names or positions; a lone one stands for a tuple of it."""
    if fixed is None:
        return []
    if isinstance(fixed, Mapping):
        return list(fixed.items())
    return list(enumerate(fixed if isinstance(fixed, tuple) else (fixed,)))


def _key(fixed: Any) -> object:
    """Fixed inputs may share a batch if their tensors have one shape and the rest is equal."""
    return tuple(
        (k, tuple(v.shape), v.dtype) if isinstance(v, Tensor)
        else (k, (type(v), repr(v)) if _is_plain(v) else id(v))
        for k, v in _items(fixed)
    )  # fmt: skip


def _is_plain(value: Any) -> bool:
    """Does its text tell all of it? That of an array leaves numbers out."""
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, _ATOMS)


def _stacked(fixed: Sequence[Any]) -> Any:
    """The fixed inputs of b examples: tensors (b, …), the rest as it is."""
    first = dict(_items(fixed[0]))
    made = {
        k: torch.stack([dict(_items(f))[k].detach() for f in fixed]) if isinstance(v, Tensor) else v
        for k, v in first.items()
    }
    return made if isinstance(fixed[0], Mapping) else tuple(made.values())


def _rows_of(fixed: Any, problems: Tensor) -> Any:
    """The fixed inputs of every row."""

    def rows(value: Any) -> Any:
        return value[problems.to(value.device)] if isinstance(value, Tensor) else value

    if isinstance(fixed, Mapping):
        return {k: rows(v) for k, v in fixed.items()}
    return tuple(map(rows, fixed))


def _check_input(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise InvalidType(
            f"Expected a floating-point input {name!r} (got {tensor.dtype}): only real numbers "
            "have a gradient here. Try x.float() as the model expects it, the embeddings of ids, "
            "or fixed= for what is not explained."
        )
    if tensor.numel() == 0:
        raise InvalidInput(f"Expected a non-empty input {name!r} (got {tuple(tensor.shape)}).")
    if not bool(torch.isfinite(tensor).all()):
        raise InvalidInput(f"Expected a finite input {name!r} (got NaN or infinity).")


def _widest(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    wide = torch.float32
    for dtype in dtypes:
        wide = torch.promote_types(wide, dtype)
    return wide
