"""Any model on any tensor: g(mask) = target(model(baseline + mask · (x − baseline))).

A `ModelFamily` is one model with one target; its examples share device batches. Works for a
picture, a row, a sequence of embeddings, and for several inputs at once by position or name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from ..core.errors import InvalidInput, InvalidType
from ..core.layout import Layout
from ..core.objective import Line, MeanObjective, Oracle, PointObjective, Runs
from ..network.fingerprint import fingerprint
from ..network.fold import SAME_OUTPUT, FirstLayer, convolutional, first_linear, optimised
from ..network.frozen import Frozen
from ..network.mlp_gradient import (
    Chain,
    ChainOracle,
    as_torch_made_them,
    chain_at,
    find_chain,
    only_layers,
)
from ..network.model_cache import Loan, description_of
from ..network.soft_relu import SoftOracle
from ..network.verify import slopes_alike
from .baselines import resolve
from .fixed import expanded, key_of
from .targets import Reference, Target

log = logging.getLogger(__name__)

_LATER = object()
"""Baselines that are not known yet."""


@dataclass(frozen=True, eq=False)
class Example:
    """One input with what its rows need: shapes, dtypes, fixed inputs, class and reference."""

    x: Tensor
    """(n,) all elements, flat."""
    layout: Layout
    dtypes: tuple[torch.dtype, ...]
    fixed: Any
    reference: Reference
    baselines: tuple[Tensor, ...] | None = None
    """(n,) each, where they were known when the model was asked …"""
    values: Tensor | None = None
    """… and then the objective at x and at each of them, if one pass could tell."""


class ModelObjective(PointObjective):
    """A problem that comes from a model, which scorers that look at layers can ask for."""

    family: ModelFamily
    first: FirstLayer | None = None
    """The network's first layer, where it need not be asked about every point of a line."""
    _after_first: PointObjective | None = None
    _made_of_end: tuple[Tensor, Tensor] | None = None

    def line(self, begin: Tensor, end: Tensor) -> Line:
        """The line between two points, or the one that the first layer makes of it."""
        if self.first is None:
            return super().line(begin, end)
        if self._after_first is None or self._after_first._meters is not self._meters:
            self._after_first = copy(self)
            self._after_first.oracle = self.family.rest
        if self._made_of_end is None or self._made_of_end[0] is not end:
            self._made_of_end = end, self.first.of(end)
        return Line(self._after_first, self.first.of(begin), self._made_of_end[1], self.first.back)

    def softened(self, width: float) -> PointObjective:
        """The same problem, differentiated with ramps in place of the steps of ReLU's slope."""
        other = copy(self)
        other.oracle = self.family.soft_oracle(self.owner, width)
        return other

    def network(self) -> nn.Module | None:
        """The frozen network, for methods that look at its layers; None for plain callables."""
        self.family.shown()
        return self.family.network.module


class ModelFamily:
    """One model, one target: makes examples and the objectives over them."""

    def __init__(
        self,
        model: Callable[..., Any],
        target: Target,
        *,
        batch_size: int | Literal["auto"] = "auto",
        optimize: bool = True,
    ) -> None:
        if not callable(model):
            raise InvalidType(f"Expected a model that can be called (got {type(model).__name__}).")
        self.model, self.target = model, target
        self.batch_size = batch_size
        self._loan = Loan(model)
        # A folded copy's numbers are its own, so what it was folded from must be known exactly.
        self._foldable = optimize and convolutional(model, self._loan.modules)
        self._fingerprint = self._loan.fingerprint(exact=self._foldable)
        self.plain = self._loan.plain
        self.network = self.plain
        self._prepared, self._optimize = False, optimize
        self.chain: Chain | None = None
        """The network's layers, where they are one after another and known …"""
        self._chained: object = None
        """… and the key of the examples that they take."""
        self._inert = False
        """Is the network such that a call leaves nothing on it?"""
        self.first: FirstLayer | None = None
        self.rest: Oracle
        """The network after its first layer, where it was cut there."""
        self._oracles: dict[object, Oracle] = {}

    @property
    def fingerprint(self) -> str:
        """What the model computes, with the modules that were only met when it was called."""
        met = [fingerprint(m).rpartition(" ")[2] for m in self.plain.met]
        return " ".join([self._fingerprint, *met])

    def end(self) -> None:
        """No more will be asked of the model: its private copy can serve the next call."""
        self._loan.end(inert=self._inert)

    def shown(self) -> None:
        """Somebody may do what he likes with the private copy."""
        self._inert = False

    def example(
        self, x: Any, *, target: int | None = None, fixed: Any = None, baselines: Any = _LATER
    ) -> Example:
        """Check one input and read the model's answer to it.

        Where the baselines are given too, one pass tells the objective at both ends of the line.
        """
        layout = Layout.of(x)
        tensors = [t.detach() for t in layout.tensors(x)]
        for name, tensor in zip(layout.names, tensors, strict=True):
            _check_input(name, tensor)
        wide = _widest(t.dtype for t in tensors)
        flat = torch.cat([t.reshape(-1).to(wide) for t in tensors])
        dtypes = tuple(t.dtype for t in tensors)
        probe = Example(flat, layout, dtypes, fixed, Reference(0, -1, flat, False))
        if baselines is not _LATER:
            starts = tuple(b.to(flat) for b in resolve(baselines, x, layout, self.model))
            probe = replace(probe, baselines=starts)
        logits = self._answers(probe)
        if not bool(torch.isfinite(logits[0]).all()):
            raise InvalidInput("Expected a finite output at the full input (got NaN or infinity).")
        reference = self.target.reference(logits[0], target)
        if probe.baselines is not None and self.target.is_undirected(reference):
            others = logits[1:] if len(logits) > 1 else self._at_baselines(probe)
            reference = self.target.directed(reference, others)
        example = replace(probe, reference=reference)
        if len(logits) == 1:
            return example
        with torch.no_grad():
            return replace(example, values=self.target.values(logits, [(example, len(logits))]))

    def _answers(self, probe: Example) -> Tensor:
        """The logits at the full input, and at the baselines where that is safe and of use: it is
        not where a folded copy will answer, nor where so many rows may not be asked at once."""
        rows = [probe.x, *(probe.baselines or ())]
        alike = not self._foldable and len(rows) <= self._oracle(probe).batch_size
        if len(rows) > 1 and alike:
            try:
                with torch.no_grad():
                    output = self._run(self.plain, torch.stack(rows), [(probe, len(rows))])
                    return self.target.logits(output, len(rows))
            except Exception as error:  # One row on its own tells what is wrong, if anything is.
                log.debug("%d rows at once failed (%s)", len(rows), error)
        return self._answer(probe).unsqueeze(0)

    def _at_baselines(self, probe: Example) -> Tensor:
        """The logits at the baselines, one row at a time."""
        with torch.no_grad():
            rows = [
                self.target.logits(self._run(self.plain, b.unsqueeze(0).clone(), [(probe, 1)]), 1)
                for b in probe.baselines or ()
            ]
        return torch.cat(rows)

    def _answer(self, probe: Example) -> Tensor:
        """The logits at the full input; where that fails, a batch axis left on is said so."""
        with torch.no_grad():
            try:
                # A copy, as the model may begin with a step in place.
                output = self._run(self.plain, probe.x.unsqueeze(0).clone(), [(probe, 1)])
                return self.target.logits(output, 1)[0]
            except Exception as error:
                rows = self._rows_if_batch(probe)
                if rows is None:
                    self._check_dtype(probe, error)
                    raise
                way = "x[0]" if rows == 1 else "gp.explain_many(model, x), or one row x[i]"
                raise InvalidInput(
                    f"Expected one example without a batch axis (got shape "
                    f"{probe.layout.shapes[0]}, which the model takes as a batch of {rows}). "
                    f"Try {way}."
                ) from error

    def _check_dtype(self, probe: Example, error: Exception) -> None:
        """A float64 row from NumPy for a float32 network: torch names neither of the two."""
        module = self.plain.module
        own = {p.dtype for p in module.parameters()} if module is not None else set()
        if len(own) == 1 and "dtype" in str(error) and not own & set(probe.dtypes):
            (wanted,) = own
            raise InvalidType(
                f"Expected x in the model's own dtype {wanted} (got {probe.dtypes[0]}). "
                f"Try x.to({wanted})."
            ) from error

    def _rows_if_batch(self, probe: Example) -> int | None:
        """How many examples x holds, if the model answers it as a batch."""
        shapes = probe.layout.shapes
        rows = shapes[0][0] if shapes[0] else 0
        if not rows or any(shape[:1] != (rows,) for shape in shapes):
            return None
        one = replace(
            probe, layout=Layout(probe.layout.kind, probe.layout.names,
                                 tuple(shape[1:] for shape in shapes)),
        )  # fmt: skip
        parts = [p[0].reshape(rows, -1) for p in probe.layout.split(probe.x.unsqueeze(0))]
        try:
            output = self._run(self.plain, torch.cat(parts, 1), [(one, rows)])
            self.target.logits(output, rows)
        except Exception:  # Not a batch either: the first error stands.
            return None
        return rows

    def objective(self, example: Example, x: Any, baseline: Any) -> PointObjective | MeanObjective:
        """g for one example: one part per baseline."""
        baselines = example.baselines or resolve(baseline, x, example.layout, self.model)
        parts = [self._part(example, b) for b in baselines]
        if example.values is not None:
            at_x, *at_baselines = example.values.double().tolist()
            for part, other in zip(parts, at_baselines, strict=True):
                part.ends = (at_x, other) if part.reversed else (other, at_x)
        return parts[0] if len(parts) == 1 else MeanObjective(parts)

    def _part(self, example: Example, baseline: Tensor) -> PointObjective:
        x, layout = example.x, example.layout
        baseline = baseline.to(x)
        if not self._prepared:
            self._prepare(example, baseline)
        start, end = (x, baseline) if self.target.towards_baseline else (baseline, x)
        objective = ModelObjective(
            self._oracle(example), start, end, owner=example, layout=layout,
            span=float(x.max() - x.min()),
        )  # fmt: skip
        objective.family = self
        if self.first is not None and _lone_row(example, self.first.inputs):
            objective.first = self.first
        objective.reversed = self.target.towards_baseline
        objective.probability = self.target.name == "softmax" and example.reference.classes
        return objective

    def _oracle(self, example: Example) -> Oracle:
        """The oracle of all examples whose rows may share a batch with this one's."""
        key = _batch_key(example)
        if key not in self._oracles:
            chain = self.chain if key == self._chained else None
            self._oracles[key] = self._new_oracle(self._values, example.layout.n, chain)
        return self._oracles[key]

    def soft_oracle(self, example: Example, width: float) -> Oracle:
        """The oracle of these examples, with `soft_kinks`."""
        key = _batch_key(example), width
        if key not in self._oracles:
            self._oracles[key] = SoftOracle(
                self._values, example.layout.n, width=width, batch_size=self.batch_size
            )
        return self._oracles[key]

    def _new_oracle(
        self, function: Callable[[Tensor, Runs], Tensor], n: int, chain: Chain | None
    ) -> Oracle:
        if chain is None:
            return Oracle(function, n, batch_size=self.batch_size)
        return ChainOracle(chain, self.target, function, n, batch_size=self.batch_size)

    def _prepare(self, example: Example, baseline: Tensor) -> None:
        """Choose the fast stand-in, if it agrees on the line from this baseline to this input."""
        self._prepared = True
        if not self._foldable:
            if self._optimize and not seen_otherwise(example):
                self._link(example)
                self._cut(example)
            return
        line = torch.stack([baseline, (baseline + example.x) / 2, example.x])
        self.network = optimised(
            self.model, self.plain, self._fingerprint,
            partial(self._probe, example, line[2:]), partial(self._probe, example, line),
        )  # fmt: skip
        if self.network is not self.plain:
            fast = self.network
            _tried[id(fast)] = ref(fast, partial(_tried.pop, id(fast))), self._state(example, fast)

    def was_tried(self, example: Example, fast: Frozen) -> bool:
        """Was the fast copy tried at an input, with all that it depends on as it is now?"""
        kept, state = _tried.get(id(fast), (lambda: None, ()))
        return kept() is fast and bool(state) and state == self._state(example, fast)

    def _state(self, example: Example, fast: Frozen) -> tuple[Any, ...]:
        """All that the two networks' answers to such inputs depend on; () if that is not known.

        The fast copy is remade when a weight of the model changes. Besides, either could have
        other attributes, and a copy that writes on itself is not what it was.
        """
        since = self._loan.note("tried", lambda: str(next(_times)))
        own = None if fast.module is None else description_of(fast.module, [])
        if not since or own is None or example.fixed is not None or seen_otherwise(example):
            return ()
        assert fast.module is not None
        tensors = [*fast.module.parameters(), *fast.module.buffers()]
        if any(t.is_inference() for t in tensors):  # They keep no count.
            return ()
        versions = [(id(t), t._version) for t in tensors]
        return since, example.layout, example.dtypes, example.x.device, own, versions

    def _private_network(self) -> nn.Module | None:
        """The copy that may be taken apart."""
        network = self.plain.module
        own = isinstance(self.model, nn.Module) and network is not self.model
        return network if own else None

    def _link(self, example: Example) -> None:
        """Differentiate the network by hand, if it is a chain of layers that answers alike."""
        network = self._private_network()
        if network is None or self.plain.held or not self.target.has_slopes:
            return
        if not _lone_tensor(example):
            return
        paths = self._loan.note("chain", lambda: find_chain(network))
        if not paths:
            return
        chain = self._loan.made("chain", lambda: chain_at(network, paths))
        if self.target.binary and chain.forward(example.x.unsqueeze(0))[-1].numel() == 1:
            return  # One logit that is read as two is left to autograd.
        self._inert = bool(self._loan.note("inert", lambda: "yes" * only_layers(network)))
        if not self._inert or not _lone_row(example, example.layout.n):
            alike = self._answers_alike(example, lambda x: chain.forward(x)[-1])
            if not (alike and (self._inert or self._slopes_alike(example, chain))):
                return
        self.chain, self._chained = chain, _batch_key(example)
        self._oracles.clear()

    def _cut(self, example: Example) -> None:
        """Cut the network after its first layer, if that is worth it and its rest agrees."""
        network, n = self._private_network(), example.layout.n
        if network is None or not _lone_row(example, n):
            return
        path = self._loan.note(f"first layer of {n}", lambda: first_linear(network, n))
        if not path:
            return
        first = FirstLayer(self.plain, path)
        chain = None if self.chain is None else self.chain.after_first()
        if chain or (
            self._answers_alike(example, lambda x: first.rest(first.of(x)))
            and self._slopes_alike(example, first)
        ):
            self.first = first
            self.rest = self._new_oracle(self._values_after_first, first.outputs, chain)

    def _answers_alike(self, example: Example, network: Callable[[Tensor], Any]) -> bool:
        """Does what was made of the network answer as it does at the full input?"""
        expected = example.reference.output
        with torch.no_grad():
            try:
                found = self.target.logits(network(example.x.unsqueeze(0)), 1)[0]
                off = (found - expected).abs().max() / expected.abs().max().clamp(min=1e-6)
            except Exception as error:  # A convenience; the plain network always works.
                log.debug("%s is left as it is (%s)", type(self.model).__name__, error)
                return False
        return bool(off <= SAME_OUTPUT)

    def _slopes_alike(self, example: Example, made: Chain | FirstLayer) -> bool:
        """Does it differentiate as the network does? Found once for inputs of this shape."""
        plain = partial(self._run, self.plain, runs=[(example, 1)])
        alike = partial(slopes_alike, made, plain, self.target.logits, example.x, self.batch_size)
        name = f"slopes of {type(made).__name__} {example.layout.shapes}"
        return bool(self._loan.note(name, lambda: "yes" * alike()))

    def _values_after_first(self, made: Tensor, runs: Runs) -> Tensor:
        assert self.first is not None
        logits = self.target.logits(self.first.rest(made), made.shape[0])
        return self.target.values(logits, runs)

    def _probe(self, example: Example, rows: Tensor, network: Frozen) -> Tensor:
        if network is self.plain and len(rows) == 1 and self.target.function is None:
            return example.reference.output.unsqueeze(0)
        with torch.no_grad():
            output = self._run(network, rows.clone(), [(example, len(rows))])
            return self.target.logits(output, len(rows))

    def logits(self, points: Tensor, runs: Runs) -> Tensor:
        """(m, classes), or (m,) for a single output: the model's own answers at these points."""
        return self.target.logits(self._run(self.network, points, runs), points.shape[0])

    def answers(self, example: Example, points: Tensor) -> Tensor:
        """The same at points of one example."""
        return self.logits(points, [(example, points.shape[0])])

    def _values(self, points: Tensor, runs: Runs) -> Tensor:
        return self.target.values(self.logits(points, runs), runs)

    def _run(self, network: Frozen, points: Tensor, runs: Runs) -> Any:
        example: Example = runs[0][0]
        layout = example.layout
        inputs = layout.split(points)
        for i, dtype in enumerate(example.dtypes):
            if points.dtype != dtype:
                inputs[i] = inputs[i].to(dtype)
            if network.channels_last and inputs[i].dim() == 4:
                inputs[i] = inputs[i].contiguous(memory_format=torch.channels_last)
        args: Sequence[Any] = inputs
        kwargs: dict[str, Any] = {}
        if layout.kind == "dict":
            args, kwargs = (), dict(zip(layout.names, inputs, strict=True))
        if example.fixed is not None:
            more, named = expanded([(owner.fixed, count) for owner, count in runs])
            args, kwargs = (*args, *more), kwargs | named
        return network(*args, **kwargs)


# By the fast copy's id, with a weak reference whose callback is C code alone: a Ctrl-C that lands
# in a callback written in Python is lost.
_tried: dict[int, tuple[Callable[[], Frozen | None], tuple[Any, ...]]] = {}
_times = count()


def seen_otherwise(example: Example) -> bool:
    """Does anything outside the network change what its layers do?"""
    by_mode = torch.is_autocast_enabled(example.x.device.type)
    return by_mode or _has_any_global_hook() or not as_torch_made_them()  # type: ignore[no-untyped-call]


def _lone_tensor(example: Example) -> bool:
    """Is it one tensor, as the model takes it, and nothing besides?"""
    plain = example.layout.kind == "tensor" and example.fixed is None
    return plain and example.dtypes == (example.x.dtype,)


def _lone_row(example: Example, n: int) -> bool:
    """Is it n numbers in a row, as the model takes them, and nothing besides?"""
    return _lone_tensor(example) and example.layout.shapes == ((n,),)


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


def _widest(dtypes: Any) -> torch.dtype:
    wide = torch.float32
    for dtype in dtypes:
        wide = torch.promote_types(wide, dtype)
    return wide


def _batch_key(example: Example) -> object:
    """Examples share batches if their tensors have the same shapes and dtypes, and what is passed
    along allows it."""
    return example.layout, example.dtypes, key_of(example.fixed)
