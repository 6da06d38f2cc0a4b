"""Set functions with a gradient, side by side, and the one place that calls autograd.

An objective is a continuous extension g: [0,1]ⁿ → ℝ of a set function, G(S) = g(1_S). It is
evaluated at *points*, start + mask · (end − start): for a plain set function points are masks, for
a model they are inputs. b problems run side by side, each with its own start and end, so that
their rows share device batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType, NonFinite, NotDifferentiable
from .layout import Layout
from .numbers import whole

AUTO_VALUES = 1 << 21
"""batch_size="auto" starts with as many rows as make about this many values …"""
AUTO_ROWS = 256
"""… and at most this many rows."""
NO_GRADIENT = (
    "Expected an output that depends on the features through differentiable torch operations "
    "(got one without a gradient). Look for detach(), argmax, rounding, numpy or no_grad on the "
    "way, or an output that ignores its input."
)


@runtime_checkable
class SetFunction(Protocol):
    """A set function with a gradient of its own: `gp.maximize` takes any object of this form.

    `gp.objective(g, n)` makes an objective from a differentiable function; write a class where
    you know a faster gradient.
    """

    n: int

    def values(self, masks: Tensor, /) -> Tensor:
        """(m, n) masks in [0, 1] → (m,): g of each mask."""
        ...

    def gradient(self, masks: Tensor, weights: Tensor, /) -> Tensor:
        """(m, n) masks, (m,) weights → (n,): Σ_k weights_k · ∇g(masks_k)."""
        ...


class Objective:
    """b set functions: g(mask) = mean over lines of function(start + mask · (end − start)).

    function: (points (m, n), problems (m,)) → values (m,), where `problems` says to which of the b
    problems each row belongs. start, end: (lines, b, n); more than one line where several
    baselines are averaged. Copies (`toward`, `seen`, `repeated`) count their gradients together.
    """

    sides = 1
    """Gradients of each point on every line; 2 where the other side counts too (two_sided.py)."""
    is_probability = False
    """Is g a probability, from 0 to 1?"""
    removes = False
    """Do the lines lead away from the input, as a counterfactual's do?"""

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        start: Tensor,
        end: Tensor,
        *,
        layout: Layout | None = None,
        batch_size: int | Literal["auto"] = "auto",
        labels: Sequence[str] = (),
    ) -> None:
        self.function, self.start, self.end = function, start, end
        self.span = end - start
        self.lines, self.b, self.n = start.shape
        self.layout = layout or Layout.vector(self.n)
        self.labels = tuple(labels)
        """What each problem is called in an error: "input 3"."""
        self.origin: Callable[..., Any] = function
        """The caller's function, by which a checkpoint tells one set function from another."""
        self._times = 1
        """How many of the problems are repetitions of one."""
        self._adaptive, rows = _rows(batch_size, self.n)
        self._shared = {"rows": rows, "gradients": 0, "forwards": 0}

    @property
    def rows(self) -> int:
        """Rows of one device batch."""
        return self._shared["rows"]

    @property
    def points(self) -> int:
        """Points of every problem that one device batch holds."""
        return max(1, self.rows // (self.b * self.lines))

    @property
    def gradients_used(self) -> int:
        """Gradients paid so far for each of the problems."""
        return self._shared["gradients"]

    def count_gradients(self, number: int) -> None:
        """Count gradients that a scorer has taken itself, for each of the problems."""
        self._shared["gradients"] += number

    @property
    def forwards_used(self) -> int:
        """Forward passes so far for each of the problems that no gradient was taken of."""
        return self._shared["forwards"]

    def count_forwards(self, number: int) -> None:
        """Count forward passes that a scorer has taken itself, for each of the problems."""
        self._shared["forwards"] += number

    @property
    def plain(self) -> Objective:
        """The objective that wrappers such as `TwoSidedObjective` are put around; else itself."""
        return self

    # Changed copies.

    def for_round(self, number: int) -> Objective:
        """The objective of one round, counted from 0: itself, unless rounds have samples of their
        own."""
        return self

    def toward(self, end: Tensor) -> Self:
        """A copy whose lines lead to `end`."""
        return self._with(end=end, span=end - self.start)

    def repeated(self, times: int) -> Self:
        """A copy of b · times problems: each problem `times` times, next to each other."""
        function = self.function
        return self._with(
            function=lambda points, problems: function(points, problems // times),
            start=self.start.repeat_interleave(times, 1),
            end=self.end.repeat_interleave(times, 1),
            span=self.span.repeat_interleave(times, 1),
            b=self.b * times,
            labels=(),
            _times=self._times * times,
        )

    def seen(self, view: Callable[[Tensor, Tensor], Tensor]) -> Self:
        """A copy in which every point is changed by a differentiable view (points, problems) →
        points first."""
        function = self.function
        return self.computed_by(lambda points, problems: function(view(points, problems), problems))

    def computed_by(self, function: Callable[[Tensor, Tensor], Tensor]) -> Self:
        """A copy with another function (points, problems) → values."""
        return self._with(function=function)

    def _with(self, **attributes: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | attributes)
        return other

    # Values and gradients.

    def values(self, masks: Tensor, /) -> Tensor:
        """(b, s, n) masks → (b, s): g of each mask."""
        parts = self._parts(masks)
        values = torch.cat([self._evaluate(self._place(p), gradient=False)[0] for p in parts], 1)
        for problem, step in torch.nonzero(~torch.isfinite(values))[:1].tolist():
            present = int(masks[problem, step].sum())
            raise NonFinite(
                "Expected finite numbers (got NaN or infinity as the value with "
                f"{present} of {self.n} values present{self._of(problem)})."
            )
        return values

    def gradient(self, masks: Tensor, weights: Tensor, /, *, step: int = 0) -> Tensor:
        """(b, s, n) masks, (s,) weights → (b, n): Σ_k weights_k · ∇g(masks_k).

        step: the place of the first mask among the points of a round, for errors.
        """
        total, first = torch.zeros_like(self.end[0]), 0
        for part in self._parts(masks):
            _, slopes = self._evaluate(self._place(part), step + first)
            used = weights[first : first + part.shape[1]].to(slopes)
            total += _mean((used @ slopes) * self.span)
            first += part.shape[1]
        return total

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(b, s, n) masks → (b, s) values and (b, s, n) gradients with respect to the masks."""
        values, gradients = [], []
        for part in self._parts(masks):
            value, slopes = self._evaluate(self._place(part))
            values.append(value)
            gradients.append(_mean(slopes * self.span.unsqueeze(2)))
        return torch.cat(values, 1), torch.cat(gradients, 1)

    def point_gradients(self, points: Tensor, /) -> Tensor:
        """(b, s, n) points → (b, s, n): the function's gradients there, for paths that leave the
        lines from start to end."""
        return self._evaluate(points.unsqueeze(0))[1][0]

    def _parts(self, masks: Tensor) -> Iterator[Tensor]:
        """The masks in parts that fit one batch."""
        if masks.dim() != 3 or masks.shape[0] != self.b or masks.shape[2] != self.n:
            raise InvalidInput(
                f"Expected masks of shape ({self.b}, s, {self.n}) (got {tuple(masks.shape)})."
            )
        masks, first = masks.to(self.end), 0
        while first < masks.shape[1]:  # The batch may shrink on the way.
            size = self.points
            yield masks if masks.shape[1] <= size else masks[:, first : first + size]
            first += size

    def _place(self, masks: Tensor) -> Tensor:
        """(lines, b, s, n): the points of these masks, exactly `end` where the mask is 1."""
        return torch.lerp(self.start.unsqueeze(2), self.end.unsqueeze(2), masks)

    def _evaluate(
        self, points: Tensor, first: int = 0, *, gradient: bool = True
    ) -> tuple[Tensor, Tensor]:
        """(lines, b, s, n) points → (b, s) mean values and the points' gradients, if asked for.

        first: the first point's place among the points of a round. No more rows are evaluated at
        once than fit a batch, nor than fit into memory.
        """
        lines, b, s, n = points.shape
        count, done = lines * b * s, 0
        rows = points.detach().reshape(count, n)
        problems = torch.zeros(count, dtype=torch.long, device=rows.device)
        if b > 1:
            problems = torch.arange(b).to(problems).repeat_interleave(s).repeat(lines)
        values: list[Tensor] = []
        slopes: list[Tensor] = []
        while done < count:
            batch = slice(done, done + self.rows)
            leaf = rows[batch].requires_grad_(gradient)
            try:
                with torch.set_grad_enabled(gradient):
                    # A copy, as the function may write on its points.
                    output = self.function(leaf.clone(), problems[batch])
                    self._check_output(output, leaf)
                    if gradient:
                        # One summed root: rows are independent, so its gradient is every row's.
                        (slope,) = torch.autograd.grad(output.sum(), leaf, allow_unused=True)
                        if slope is None:
                            raise NotDifferentiable(NO_GRADIENT)
                        slopes.append(slope)
            except Exception as error:
                if not (self._adaptive and leaf.shape[0] > 1 and _is_out_of_memory(error)):
                    raise
                # The traceback holds the failed batch's activations; without it memory is free.
                error.__traceback__ = None
                self._shared["rows"] = max(1, leaf.shape[0] // 2)
                continue
            values.append(output.detach())
            done += leaf.shape[0]
        mean = _mean(torch.cat(values).view(lines, b, s))
        if not gradient:
            self.count_forwards(lines * s * self._times)
            return mean, mean.new_empty(0)
        self.count_gradients(lines * s * self._times)
        gradients = torch.cat(slopes).view(lines, b, s, n)
        self._check_finite(mean, gradients, first)
        return mean, gradients

    def _check_output(self, values: Any, points: Tensor) -> None:
        if not isinstance(values, Tensor):
            raise InvalidType(f"Expected a tensor of values (got {type(values).__name__}).")
        if values.shape != points.shape[:1]:
            raise InvalidInput(
                f"Expected values of shape ({points.shape[0]},), one per row of the masks "
                f"{tuple(points.shape)} (got {tuple(values.shape)}). "
                "Try torch.func.vmap(g) for a g of one mask."
            )
        if points.requires_grad and not values.requires_grad:
            raise NotDifferentiable(NO_GRADIENT)

    def _check_finite(self, values: Tensor, slopes: Tensor, first: int) -> None:
        """values (b, s), slopes (lines, b, s, n): name the first that is NaN or infinite."""
        if isfinite(float(values.sum() + slopes.sum())):
            return  # A sum may overflow, rarely; then all numbers are looked at.
        each = {"value": torch.isfinite(values), "gradient": torch.isfinite(slopes).all(0)}
        for what, finite in each.items():
            for problem, step, *value in torch.nonzero(~finite)[:1].tolist():
                place = f" with respect to {self.layout.place(value[0])}" if value else ""
                raise NonFinite(
                    f"Expected finite numbers (got NaN or infinity as a {what}{place} in step "
                    f"{first + step + 1}{self._of(problem)})."
                )

    def _of(self, problem: int) -> str:
        return f" of {self.labels[problem]}" if self.labels else ""


class OwnGradient(Objective):
    """An objective over masks with a `gradient` that is not autograd's."""

    def values_and_gradients(self, masks: Tensor, /) -> tuple[Tensor, Tensor]:
        """(b, s, n) masks → (b, s) values and (b, s, n) gradients, one mask at a time."""
        one = masks.new_ones(1)
        gradients = [self.gradient(masks[:, k : k + 1], one) for k in range(masks.shape[1])]
        return self.values(masks), torch.stack(gradients, 1)


class SetFunctionObjective(OwnGradient):
    """A set function of the caller's that brings its own gradient, as an objective."""

    def __init__(self, own: SetFunction) -> None:
        dtype = getattr(own, "dtype", None) or torch.get_default_dtype()
        start = torch.zeros(1, 1, own.n, dtype=dtype, device=getattr(own, "device", None))
        rows: Any = getattr(own, "batch_size", "auto")
        self.own = own
        super().__init__(self._own_values, start, torch.ones_like(start), batch_size=rows)
        self.origin = own.values

    def _own_values(self, points: Tensor, _: Tensor) -> Tensor:
        return self.own.values(points)

    def gradient(self, masks: Tensor, weights: Tensor, /, *, step: int = 0) -> Tensor:
        """(1, s, n) masks, (s,) weights → (1, n)."""
        total, first = torch.zeros_like(self.end[0]), 0
        for part in self._parts(masks):
            count = part.shape[1]
            used = weights[first : first + count].to(part)
            summed = self.own.gradient(self._place(part)[0, 0], used).detach()
            if summed.shape != (self.n,):
                raise InvalidInput(
                    f"Expected a gradient of shape ({self.n},) (got {tuple(summed.shape)})."
                )
            self.count_gradients(count)
            self._check_finite(part[:, :1, 0], summed.view(1, 1, 1, -1), step + first)
            total += summed * self.span[0]
            first += count
        return total


def _rows(batch_size: Any, n: int) -> tuple[bool, int]:
    """Whether the batch may shrink, and its rows."""
    if batch_size == "auto":
        return True, max(1, min(AUTO_ROWS, AUTO_VALUES // n))
    rows = whole(batch_size)
    if type(rows) is int and rows >= 1:
        return False, rows
    raise InvalidInput(
        f"Expected batch_size to be 'auto' or a whole number ≥ 1 (got {rows!r}).",
        argument="batch_size",
    )


def _mean(lines: Tensor) -> Tensor:
    """The mean over the first axis, which mostly has one entry."""
    return lines[0] if lines.shape[0] == 1 else lines.mean(0)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    signs = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(sign in text for sign in signs)
