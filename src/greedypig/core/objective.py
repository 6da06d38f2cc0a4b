"""Set functions with a gradient, and the one place that calls autograd.

An objective is a continuous extension g: [0,1]ⁿ → ℝ of a set function, G(S) = g(1_S). Here it is
evaluated in *points*: start + mask · (end − start). For a plain set function points are masks;
for a model they are inputs, which methods that leave the straight line (guided, blurred, noisy
paths) need. Objectives that share an `Oracle` share its device batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType, NotDifferentiable
from .layout import Layout
from .randomness import Forked
from .schedule import whole

Runs: TypeAlias = "Sequence[tuple[Any, int]]"
"""Whose rows these are: (owner, number of consecutive rows)."""


AUTO_ELEMENTS = 1 << 21
"""batch_size="auto" starts with as many rows as make about this many elements …"""
AUTO_ROWS = 256
"""… and at most this many rows."""


@runtime_checkable
class Objective(Protocol):
    """What the core needs of a set function: n, its values, and its values with gradients.

    masks (m, n) in [0, 1] → values (m,), gradients (m, n). `objective(g, n)` makes one from a
    differentiable function; write a class of your own where you know a faster gradient.
    """

    n: int

    def values(self, masks: Tensor, /) -> Tensor:
        """values_r = g(masks_r)."""
        ...

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """values_r = g(masks_r) and gradients_ri = ∂g/∂mask_i at masks_r."""
        ...


class Oracle:
    """Values and gradients at rows of points, never more than `batch_size` rows at a time.

    function(points (m, n), runs) → values (m,), each row depending on its own point only.
    "auto" starts with a safe batch and halves it whenever memory runs out.
    """

    def __init__(
        self,
        function: Callable[[Tensor, Runs], Tensor],
        n: int,
        *,
        batch_size: int | Literal["auto"] = "auto",
    ) -> None:
        self.function = function
        self.copies = False
        batch_size = whole(batch_size)
        self.adaptive = batch_size == "auto"
        if isinstance(batch_size, int) and not isinstance(batch_size, bool) and batch_size >= 1:
            self.batch_size = batch_size
        elif batch_size == "auto":
            self.batch_size = max(1, min(AUTO_ROWS, AUTO_ELEMENTS // n))
        else:
            raise InvalidInput(
                f"Expected batch_size to be 'auto' or a whole number ≥ 1 (got {batch_size!r})."
            )

    def evaluate(
        self, points: Tensor, runs: Runs, *, gradient: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """values (m,); gradients (m, n) with respect to the points, if asked; and Σ values."""
        if points.shape[0] <= self.batch_size:
            try:
                return self._call(points, runs, gradient)
            except Exception as error:
                if not _is_out_of_memory(error) or not self._shrink(points.shape[0], error):
                    raise
        values, gradients = [], []
        lo = 0
        while lo < points.shape[0]:  # The batch may shrink on the way.
            chunk = points[lo : lo + self.batch_size]
            v, g, _ = self.evaluate(chunk, _cut(runs, lo, chunk.shape[0]), gradient=gradient)
            values.append(v)
            if g is not None:
                gradients.append(g)
            lo += chunk.shape[0]
        whole = torch.cat(values)
        return whole, torch.cat(gradients) if gradient else None, whole.sum()

    def _call(
        self, points: Tensor, runs: Runs, gradient: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        if not gradient:
            with torch.no_grad():
                # A copy, as the points may be the mask itself and the function may write on them.
                values = self._checked(self.function(points.clone(), runs), points).detach()
                return values, None, values.sum()
        if torch.is_grad_enabled():
            return self._differentiated(points, runs)
        with torch.enable_grad():
            return self._differentiated(points, runs)

    def _differentiated(self, points: Tensor, runs: Runs) -> tuple[Tensor, Tensor, Tensor]:
        leaf = points.detach().requires_grad_(True)
        values = self._checked(self._apply(leaf, runs), points)
        if not values.requires_grad:
            raise NotDifferentiable(
                "Expected an output that depends on the features through differentiable "
                "torch operations (got one without a gradient). Look for detach(), argmax, "
                "rounding, numpy or no_grad on the way, or an output that ignores its input."
            )
        # One summed root: rows are independent, so the sum's gradient is every row's own.
        root = values.sum()
        (gradients,) = torch.autograd.grad(root, leaf, allow_unused=True)
        if gradients is None:
            raise NotDifferentiable(
                "Expected an output that depends on the features (got one that ignores them)."
            )
        return values.detach(), gradients, root

    def _apply(self, leaf: Tensor, runs: Runs) -> Tensor:
        """The function at a leaf, or at a copy if it begins with a step in place."""
        if not self.copies:
            try:
                return self.function(leaf, runs)
            except RuntimeError as error:
                if "in-place" not in str(error):
                    raise
            self.copies = True
        return self.function(leaf.clone(), runs)

    def _checked(self, values: Tensor, points: Tensor) -> Tensor:
        if not isinstance(values, Tensor):
            raise InvalidType(f"Expected a tensor of values (got {type(values).__name__}).")
        rows = points.shape[0]
        if values.shape != (rows,):
            raise InvalidInput(
                f"Expected values of shape ({rows},), one per row of the masks "
                f"{tuple(points.shape)} (got {tuple(values.shape)}). "
                "Try torch.func.vmap(g) for a g of one mask."
            )
        return values

    def _shrink(self, rows: int, error: Exception) -> bool:
        if not self.adaptive or rows == 1:
            return False
        # The traceback's frames hold the failed batch's activations; without them memory is free.
        error.__traceback__ = None
        self.batch_size = max(1, rows // 2)
        return True


class Line(NamedTuple):
    """A straight line on which an objective is evaluated: its points, or what a first linear
    layer makes of them, which lies on a straight line too."""

    objective: PointObjective
    """Whose oracle takes the line's points."""
    begin: Tensor
    end: Tensor
    back: Callable[[Tensor], Tensor] | None = None
    """From a gradient with respect to the line's points to one with respect to the elements."""


class PointObjective:
    """One problem: the straight line from `start` to `end`, evaluated by a shared oracle.

    g(mask) = function(start + mask · (end − start)). `owner` tells the oracle's function whose
    rows it sees; `span` is the range of the input's values, the unit of added noise.
    """

    def __init__(
        self,
        oracle: Oracle,
        start: Tensor,
        end: Tensor,
        *,
        owner: Any = None,
        span: float = 1.0,
        layout: Layout | None = None,
    ) -> None:
        self.n = start.numel()
        self.oracle = oracle
        self.start, self.end, self.reach = start, end, end - start
        self.owner, self.span = owner, span
        self.layout = layout or Layout.vector(self.n)
        self.reversed = False
        """True where the line leads away from the input: a counterfactual."""
        self.probability = False
        """True where g is a probability, from 0 to 1."""
        self.ends: tuple[float, float] | None = None
        """g(0) and g(1), where they are known already."""
        self._meters = [[0]]
        self._unit = bool((start == 0).all()) and bool((end == 1).all())

    @property
    def parts(self) -> tuple[PointObjective, ...]:
        """The problems whose mean this is: itself alone."""
        return (self,)

    @property
    def gradients_used(self) -> int:
        """Gradient evaluations paid so far, one per point."""
        return self._meters[-1][0]

    def paid(self, rows: int) -> None:
        """Count `rows` more gradient evaluations."""
        for meter in self._meters:
            meter[0] += rows

    def metered(self) -> PointObjective:
        """The same problem with a meter of its own, which starts at 0 and also counts here."""
        other = copy(self)
        other._meters = [*self._meters, [0]]
        return other

    def toward(self, end: Tensor) -> PointObjective:
        """The same problem with another end of the line; both count on one meter."""
        other = copy(self)
        other.end, other.reach, other._unit = end, end - self.start, False
        other.ends = None
        return other

    def place(self, masks: Tensor) -> Tensor:
        """The points of these masks, exactly `start` at 0 and exactly `end` at 1."""
        return masks if self._unit else torch.lerp(self.start, self.end, masks)

    def line(self, begin: Tensor, end: Tensor) -> Line:
        """The straight line between two points, as what follows it should walk it."""
        return Line(self, begin, end)

    def softened(self, width: float) -> PointObjective:
        """The same values with gradients that see past kinks, where it is known how."""
        return self

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m,) values."""
        return self._rows(masks, gradient=False)[0]

    def gradients(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m, n) gradients with respect to the masks."""
        return self.values_and_gradients(masks)[1]

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, n) masks → (m,) values and (m, n) gradients with respect to the masks."""
        values, gradients, _ = self._rows(masks, gradient=True)
        assert gradients is not None
        return values, gradients if self._unit else gradients * self.reach

    def _rows(self, masks: Tensor, *, gradient: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        if masks.dim() != 2 or masks.shape[1] != self.n:
            raise InvalidInput(f"Expected masks of shape (m, {self.n}) (got {tuple(masks.shape)}).")
        masks = masks.to(dtype=self.start.dtype, device=self.start.device)
        if gradient:
            self.paid(masks.shape[0])
        runs = [(self.owner, masks.shape[0])]
        return self.oracle.evaluate(self.place(masks), runs, gradient=gradient)


class MeanObjective:
    """The mean of several problems over the same features: several baselines at once.

    g(mask) = mean over parts of g_p(mask). Scores are linear in g, so every scorer runs on each
    part and the scores are averaged.
    """

    def __init__(self, parts: Sequence[PointObjective]) -> None:
        self.parts = tuple(parts)
        self.n = self.parts[0].n
        self.layout = self.parts[0].layout
        self.start = self.parts[0].start

    @property
    def ends(self) -> tuple[float, float] | None:
        """g(0) and g(1), where they are known already."""
        known = [p.ends for p in self.parts if p.ends is not None]
        if len(known) < len(self.parts):
            return None
        first, last = (sum(each) / len(known) for each in zip(*known, strict=True))
        return first, last

    @property
    def gradients_used(self) -> int:
        """Gradient evaluations paid by all parts."""
        return sum(p.gradients_used for p in self.parts)

    def metered(self) -> MeanObjective:
        """The same mean with meters of its own, which start at 0 and also count here."""
        return MeanObjective([p.metered() for p in self.parts])

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m,) mean values."""
        return torch.stack([p.values(masks) for p in self.parts]).mean(0)

    def gradients(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks → (m, n) mean gradients with respect to the masks."""
        return self.values_and_gradients(masks)[1]

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(m, n) masks → (m,) mean values, (m, n) mean gradients."""
        pairs = [p.values_and_gradients(masks) for p in self.parts]
        values = torch.stack([v for v, _ in pairs]).mean(0)
        return values, torch.stack([g for _, g in pairs]).mean(0)


class _OwnGradient(Oracle):
    """The oracle of an objective that brings its own gradient."""

    def __init__(self, objective: Objective, batch_size: int | Literal["auto"]) -> None:
        super().__init__(
            lambda points, _: objective.values(points), objective.n, batch_size=batch_size
        )
        self.objective = objective

    def _call(
        self, points: Tensor, runs: Runs, gradient: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        if not gradient:
            values = self._checked(self.objective.values(points), points).detach()
            return values, None, values.sum()
        values, gradients = self.objective.values_and_gradients(points)
        if gradients.shape != points.shape:
            raise InvalidInput(
                f"Expected gradients of the masks' shape {tuple(points.shape)} "
                f"(got {tuple(gradients.shape)})."
            )
        values = self._checked(values, points).detach()
        return values, gradients.detach(), values.sum()


def objective(
    g: Callable[[Tensor], Tensor],
    n: int,
    *,
    batch_size: int | Literal["auto"] = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> PointObjective:
    """The objective of g: masks (m, n) in [0, 1] → values (m,), in differentiable torch.

    dtype None tries the default dtype and, where g's own tensors do not fit it, float64.
    """
    if not callable(g):
        raise InvalidType(f"Expected g to be callable (got {type(g).__name__}).")
    n = whole(n)
    if type(n) is not int or n < 1:
        raise InvalidInput(f"Expected n to be a whole number ≥ 1 (got {n!r}).")
    asked = Forked(g)
    oracle = Oracle(lambda points, _: asked(points), n, batch_size=batch_size)
    if dtype is None:
        dtype = _fitting_dtype(asked, n, device)
    elif not dtype.is_floating_point:
        raise InvalidType(f"Expected a floating-point dtype (got {dtype}).")
    start = torch.zeros(n, dtype=dtype, device=device)
    return PointObjective(oracle, start, torch.ones_like(start))


def as_objective(
    candidate: Any, *, batch_size: int | Literal["auto"] = "auto"
) -> PointObjective | MeanObjective:
    """The candidate in the form the loop works with; any `Objective` of the user's will do."""
    if isinstance(candidate, PointObjective | MeanObjective):
        return candidate
    if isinstance(candidate, Objective):
        dtype = getattr(candidate, "dtype", None) or torch.get_default_dtype()
        start = torch.zeros(candidate.n, dtype=dtype, device=getattr(candidate, "device", None))
        rows = getattr(candidate, "batch_size", batch_size)
        return PointObjective(_OwnGradient(candidate, rows), start, torch.ones_like(start))
    raise InvalidType(
        f"Expected an objective (got {type(candidate).__name__}). Try gp.objective(g, n)."
    )


def _fitting_dtype(
    g: Callable[[Tensor], Tensor], n: int, device: torch.device | str | None
) -> torch.dtype:
    default = torch.get_default_dtype()
    with torch.no_grad():
        try:
            found = g(torch.ones(1, n, dtype=default, device=device))
        except RuntimeError as error:
            if "dtype" not in str(error) and "Double" not in str(error):
                raise
            return torch.float64
    # Sums of products promote quietly; float64 constants ask for float64 masks all the same.
    return torch.float64 if getattr(found, "dtype", None) == torch.float64 else default


def _cut(runs: Runs, lo: int, count: int) -> list[tuple[Any, int]]:
    """The part of `runs` that covers rows lo … lo + count."""
    out, position = [], 0
    for owner, rows in runs:
        a, b = max(lo, position), min(lo + count, position + rows)
        if a < b:
            out.append((owner, b - a))
        position += rows
    return out


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        sign in text for sign in ("out of memory", "can't allocate memory", "not enough memory")
    )
