"""Any model on any tensors: g(mask) = target(model(baseline + mask · (x − baseline))).

A `Model` is one model with one target; it makes examples of inputs, and one objective of several
examples whose rows share device batches. An input is a picture, a row, a sequence of embeddings,
or several tensors by position or name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..core.errors import GreedyPigError, InvalidInput, InvalidType, first_line, quoted
from ..core.layout import Layout, check_plain
from ..core.objective import Objective
from ..core.two_sided import with_sides
from ..network.fingerprint import digest, fingerprint, identity
from ..network.fold import optimised
from ..network.frozen import Frozen, freeze
from .baselines import channels_first, resolve
from .targets import Reference, References, Target, halfway_match

Fixed: TypeAlias = "dict[Any, Any]"
"""Inputs that are passed along, by name or by position."""


@dataclass(frozen=True, eq=False)
class Example:
    """One input with what its rows need: shapes, dtypes, fixed inputs, baselines, reference."""

    x: Tensor
    """(n,) all values, flat."""
    layout: Layout
    dtypes: tuple[torch.dtype, ...]
    fixed: Fixed
    baselines: Tensor
    """(lines, n)."""
    reference: Reference

    @property
    def key(self) -> object:
        """Examples with equal keys may share batches."""
        fixed = tuple(
            (k, v.shape, v.dtype) if isinstance(v, Tensor) else (k, identity(v))
            for k, v in self.fixed.items()
        )
        return self.layout, self.dtypes, fixed, len(self.baselines)

    @property
    def fingerprint(self) -> str:
        """A digest of the input, of every baseline and of what is passed along."""
        tensors = {f"baseline {i}": b for i, b in enumerate(self.baselines)} | {"x": self.x}
        return digest(tensors, f"{self.layout} {identity(self.fixed or None)}")


class ModelObjective(Objective):
    """The objective of a model, which methods that look at layers can ask for its network."""

    model: Model
    examples: Sequence[Example]
    outputs: Callable[[Tensor, Tensor], Tensor]
    """(points (m, n), problems (m,)) → the logits of every row."""

    def halfway(self, views: int, unsure: Tensor) -> Self:
        """`repeated(views)`, where all views but the last of an unsure problem, (b,) bool, are
        measured by their match with halfway from x's prediction to its class."""
        target, outputs = self.model.target, self.outputs
        references = References.of([e.reference for e in self.examples])

        def values(points: Tensor, problems: Tensor) -> Tensor:
            own = problems // views
            logits = outputs(points, own)
            matched = unsure[own] & (problems % views < views - 1)
            match = halfway_match(logits, references, own)
            return torch.where(matched, match, target.values(logits, references, own))

        return self.repeated(views).computed_by(values)

    @property
    def network(self) -> nn.Module | None:
        """The frozen network; None for plain callables."""
        return self.model.network.module

    @property
    def removes(self) -> bool:  # type: ignore[override]
        """Do the lines lead away from the input, as a counterfactual's do?"""
        return self.model.target.towards_baseline

    @property
    def is_probability(self) -> bool:  # type: ignore[override]
        """Is g a probability, from 0 to 1?"""
        return self.model.target.title == "softmax" and self.examples[0].reference.classes


class Model:
    """One model and one target: makes examples, and the objective over them."""

    def __init__(
        self,
        model: Callable[..., Any],
        target: Target,
        *,
        batch_size: int | Literal["auto"] = "auto",
    ) -> None:
        self.model, self.target, self.batch_size = model, target, batch_size
        self.plain = freeze(model)
        self.fast: Frozen | None = None
        self.fingerprint = fingerprint(model)
        """A digest of what the model computes."""

    @property
    def network(self) -> Frozen:
        """The folded copy, once it is made and gives the same outputs, else the plain twin."""
        return self.fast or self.plain

    def example(
        self, x: Any, *, target: int | None = None, fixed: Any = None, baseline: Any = None
    ) -> Example:
        """One input, checked, with the model's output for it."""
        if isinstance(x, str):
            raise InvalidType(
                "Expected x as a tensor, or a tuple or dict of tensors (got a text).",
                argument="x",
                advice="Try gp.explain_text(model, text, tokenizer=…), or gp.explain_photo(path).",
            )
        layout = Layout.of(x)
        tensors = [t.detach() for t in layout.tensors(x)]
        for name, tensor in zip(layout.names, tensors, strict=True):
            _check_input(name, tensor)
        fixed = _named(fixed)
        for name, value in fixed.items():
            if isinstance(value, Tensor):  # It is given a row for each of the model's.
                check_plain(f"fixed input {name!r}", value)
        dtypes = tuple(t.dtype for t in tensors)
        wide = reduce(torch.promote_types, dtypes, torch.float32)
        flat = torch.cat([t.reshape(-1).to(wide) for t in tensors])
        baselines = torch.stack([b.to(flat) for b in resolve(baseline, x, layout, self.model)])
        example = Example(flat, layout, dtypes, fixed, baselines, Reference(0, -1, flat, False))
        with torch.no_grad():
            try:
                output = self.logits(flat.unsqueeze(0), example, self.plain)[0]
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                if isinstance(error, GreedyPigError) and not self._rows_if_batch(example):
                    raise
                raise self._refusal(example, error) from error
            if not bool(torch.isfinite(output).all()):
                raise InvalidInput(
                    "Expected a finite output at the full input (got NaN or infinity)."
                )
            reference = self.target.reference(output, target)
            if self.target.is_undirected(reference):
                rows = [self.logits(b.unsqueeze(0), example, self.plain) for b in baselines]
                reference = self.target.directed(reference, torch.cat(rows))
        return replace(example, reference=reference)

    def objective(self, examples: Sequence[Example], labels: Sequence[str] = ()) -> Objective:
        """One objective over examples that may share batches (equal keys)."""
        first = examples[0]
        x = torch.stack([e.x for e in examples]).unsqueeze(0)
        baselines = torch.stack([e.baselines for e in examples], 1)
        if self.fast is None:
            line = torch.stack([first.baselines[0], (first.baselines[0] + first.x) / 2, first.x])
            with torch.no_grad():
                self.fast = optimised(
                    self.model, self.plain, lambda network: self.logits(line, first, network)
                )
        references = References.of([e.reference for e in examples])
        fixed = _stacked(examples)

        def outputs(points: Tensor, problems: Tensor) -> Tensor:
            output = self._run(self.network, points, first, fixed, problems)
            return self.target.logits(output, len(points))

        def values(points: Tensor, problems: Tensor) -> Tensor:
            return self.target.values(outputs(points, problems), references, problems)

        x = x.expand_as(baselines)
        start, end = (x, baselines) if self.target.towards_baseline else (baselines, x)
        objective = ModelObjective(
            values, start, end, layout=first.layout, batch_size=self.batch_size, labels=labels
        )
        objective.model, objective.examples, objective.outputs = self, examples, outputs
        return with_sides(objective, self.target.both)

    def logits(self, points: Tensor, example: Example, network: Frozen | None = None) -> Tensor:
        """(m, classes), or (m,) for a single output: the output at points of one example."""
        problems = torch.zeros(len(points), dtype=torch.long)
        network = network or self.network
        # A copy, as the model may begin with a step in place.
        output = self._run(network, points.clone(), example, _stacked([example]), problems)
        return self.target.logits(output, len(points))

    def _refusal(self, example: Example, error: Exception) -> GreedyPigError:
        """Why the model does not take the example: a batch axis, another dtype or shape."""
        shapes = example.layout.shapes
        rows, shape = self._rows_if_batch(example), shapes[0] if len(shapes) == 1 else shapes
        if rows:
            way = "x[0]" if rows == 1 else "gp.explain_many(model, x), or one row x[i]"
            return InvalidInput(
                f"Expected one example without a batch axis (got shape {shape}, which the model "
                f"takes as a batch of {rows}). Try {way}."
            )
        module = self.plain.module
        own = {p.dtype for p in module.parameters()} if module is not None else set()
        if len(own) == 1 and "dtype" in str(error) and not own & set(example.dtypes):
            (wanted,) = own
            return InvalidType(
                f"Expected x in the model's own dtype {wanted} (got {example.dtypes[0]}). "
                f"Try x.to({wanted})."
            )
        hint = channels_first(shapes[0]) if len(shapes) == 1 else ""
        return InvalidInput(
            f"Expected one example that the model takes with a batch axis before it (got shape "
            f"{shape}, which it refuses: {first_line(error)})."
            + (hint or " Try x[0] if x is a batch, or x.reshape(…); fixed= for further inputs.")
        )

    def _rows_if_batch(self, example: Example) -> int:
        """How many examples x holds, if the model takes it as a batch, else 0."""
        layout = example.layout
        rows = layout.shapes[0][0] if layout.shapes[0] else 0
        if any(shape[:1] != (rows,) for shape in layout.shapes):
            return 0
        shapes = tuple(shape[1:] for shape in layout.shapes)
        one = replace(example, layout=Layout(layout.kind, layout.names, shapes))
        parts = [p[0].reshape(rows, -1) for p in layout.split(example.x.unsqueeze(0))]
        try:
            self.logits(torch.cat(parts, 1), one, self.plain)
        except Exception:  # Not a batch either.
            return 0
        return rows

    def _run(
        self, network: Frozen, points: Tensor, example: Example, fixed: Fixed, problems: Tensor
    ) -> Any:
        """The network's raw output for points (m, n) of examples like this one; problems (m,) says
        of which of the fixed inputs."""
        layout = example.layout
        inputs = [t.to(d) for t, d in zip(layout.split(points), example.dtypes, strict=True)]
        if network.channels_last:
            nhwc = torch.channels_last
            inputs = [t.contiguous(memory_format=nhwc) if t.dim() == 4 else t for t in inputs]
        by_name = dict(zip(layout.names, inputs, strict=True)) if layout.kind == "dict" else {}
        args = [] if by_name else inputs
        for name, value in fixed.items():
            rows = value[problems.to(value.device)] if isinstance(value, Tensor) else value
            if isinstance(name, str):
                by_name[name] = rows
            else:
                args.append(rows)
        return network(*args, **by_name)


def _named(fixed: Any) -> Fixed:
    """Fixed inputs by name or position; a lone one stands for a tuple of it."""
    if isinstance(fixed, Mapping):
        return dict(fixed)
    if fixed is None:
        return {}
    return dict(enumerate(fixed if isinstance(fixed, tuple) else (fixed,)))


def _stacked(examples: Sequence[Example]) -> Fixed:
    """The fixed inputs of b examples: tensors (b, …), the rest as it is."""
    return {
        k: torch.stack([e.fixed[k].detach() for e in examples]) if isinstance(v, Tensor) else v
        for k, v in examples[0].fixed.items()
    }


def _check_input(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise InvalidType(
            f"Expected a floating-point input {name!r} (got {tensor.dtype}): only real numbers "
            "have a gradient here. Try x.float() as the model expects it, the embeddings of ids, "
            "or fixed= for what is not explained."
        )
    if tensor.numel() == 0:
        raise InvalidInput(f"Expected a non-empty input {name!r} (got {tuple(tensor.shape)}).")
    wrong = torch.nonzero(~torch.isfinite(tensor))
    if len(wrong):
        place = ", ".join(map(str, wrong[0].tolist()))
        value = "NaN" if bool(tensor[tuple(wrong[0])].isnan()) else "infinity"
        raise InvalidInput(
            f"Expected a finite input {name!r} (got {value} at {name}[{place}], {len(wrong):,} of "
            f"{tensor.numel():,} values are not finite).",
            argument="x",
            advice="Try filling what is missing, with the mean say, or x.nan_to_num().",
        )


def check_examples(xs: Any) -> None:
    """Refuse what gives batches where `explain_many` takes one example after the other."""
    if isinstance(xs, DataLoader) and xs.batch_sampler is not None:
        raise InvalidType(
            "Expected examples one by one (got a DataLoader, which gives batches).",
            argument="xs",
            advice="Try (x for x, _ in loader.dataset), or (x for batch in loader for x in batch).",
        )


def check_names(names: Sequence[str]) -> Sequence[str]:
    """The names, all different: figures and frames tell features apart by them."""
    twice = [name for name, times in Counter(map(str, names)).items() if times > 1]
    if twice:
        raise InvalidInput(
            f"Expected a name of its own for every feature (got {quoted(twice)} more than once).",
            argument="names",
        )
    return names


def ids_like(name: str, shape: tuple[int, ...], ids: Any) -> Tensor:
    """Group ids of an input, one for each of its values."""
    try:
        return torch.broadcast_to(torch.as_tensor(ids), shape)
    except (TypeError, ValueError):
        rows, *others = shape or (1,)
        raise InvalidType(
            f"Expected a tensor of group ids for input {name!r} (got {ids!r:.40}).",
            argument="features",
            advice=f"Try torch.arange({rows}).view{(rows, *(1 for _ in others))}, one for each of "
            "its rows; names are for an input of one tensor.",
        ) from None
    except RuntimeError:
        raise InvalidInput(
            f"Expected group ids shaped like input {name!r}, {shape} "
            f"(got {tuple(torch.as_tensor(ids).shape)}).",
            argument="features",
        ) from None
