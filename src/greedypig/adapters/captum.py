"""Captum both ways: Greedy PIG as a Captum class, and Captum's classes as methods.

`GreedyPIG` replaces `captum.attr.IntegratedGradients`. `from_captum(captum.attr.DeepLift)` is a
one-shot method for `gp.explain(method=…)`, and `gp.Greedy` around it makes it adaptive.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, MissingPackage
from ..core.features import Elements, Features, Groups
from ..core.layout import Layout
from ..core.methods import GreedyPIG as Rounds
from ..core.numbers import check_switch, whole
from ..core.objective import Objective
from ..core.quadrature import Rule
from ..core.randomness import Fork
from ..core.run import Run
from ..core.scorers import IG
from ..network.frozen import freeze
from ..tensors.inputs import ModelObjective

try:
    from captum._utils.common import (
        _format_additional_forward_args,
        _format_output,
        _format_tensor_into_tuples,
        _run_forward,
    )
    from captum.attr import LRP, Deconvolution, DeepLift, GradientAttribution, GuidedBackprop
    from captum.attr._utils.common import _format_input_baseline
    from captum.log import log_usage
except ImportError as error:
    raise MissingPackage(
        "Expected the package captum for greedypig.adapters.captum (it is not installed). "
        'Try pip install "greedypig[captum]".'
    ) from error

_OF_LAYERS = (DeepLift, GuidedBackprop, Deconvolution, LRP)
"""Methods with rules of their own for layers, which they hook."""
_NOT_OF_MODULES = {
    "NoiseTunnel": "Try gp.from_captum(lambda net: NoiseTunnel(Saliency(net)), nt_samples=10).",
    "FeaturePermutation": "It permutes the rows of a batch, and an example is a single row. "
    "Try FeatureAblation.",
}
_RULES = {
    "gausslegendre": "gauss-legendre",
    "riemann_middle": "midpoint",
    "riemann_left": "left",
    "riemann_right": "right",
    "riemann_trapezoid": "trapezoid",
}


class GreedyPIG(GradientAttribution):  # type: ignore[misc]
    """Greedy PIG with the interface of captum.attr.IntegratedGradients.

    The objective is the forward function's own output at the target, as in Captum; wrap the
    model in a softmax to explain a probability. A module is never changed: a frozen copy in
    eval mode is used.

    multiply_by_inputs=False gives attributions per unit of the inputs: those of `attribute` divided
    by (inputs − baselines). With n_rounds=1 that is the mean gradient along the path, also where an
    input equals its baseline; with more rounds such an input has 0. Selection is the same.
    """

    def __init__(
        self, forward_func: Callable[..., Tensor], multiply_by_inputs: bool = True
    ) -> None:
        super().__init__(forward_func)
        check_switch("multiply_by_inputs", multiply_by_inputs)
        self._multiply_by_inputs = multiply_by_inputs

    @log_usage()  # type: ignore[untyped-decorator]  # NoiseTunnel calls its __wrapped__.
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int = 5,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        feature_mask: Any = None,
        n_rounds: int = 10,
    ) -> Any:
        """Attributions shaped like `inputs`, batch axis included.

        With n_rounds=1 they are integrated gradients, with weights that sum to 1 (Captum's own of
        riemann_trapezoid do not). With more they are `Attribution.contributions()`: the mean of
        integrals over straight paths and paths by way of what each round began with, with the sum
        F(inputs) − F(baselines). Raw scores of different rounds do not compare.
        Every row of the batch is a problem of its own.

        feature_mask: ids of features that are selected together, as elsewhere in Captum.
        delta: per row, the largest completeness error of its rounds,
        Σ scores − (F(inputs) − F(point where the round started)).
        """
        rows, starts = _format_input_baseline(inputs, baselines)
        _check_rows(rows)
        n_rounds = self._checked(method, n_rounds, feature_mask)
        scorer = IG(n_steps, _RULES[method])
        with torch.inference_mode(False):
            batch = _Batch(
                freeze(self.forward_func), rows, starts, target, additional_forward_args,
                internal_batch_size, feature_mask,
            )  # fmt: skip
            measured = n_rounds > 1 or return_convergence_delta
            results = batch.results(scorer, n_rounds, measured=measured)
            trees = [a.scores if n_rounds == 1 else a.contributions() for a in results]
            attributions = batch.split(torch.stack([batch.layout.flatten(t) for t in trees]))
            if not self._multiply_by_inputs:
                path = scorer.quadrature if n_rounds == 1 else None
                attributions = batch.per_unit(attributions, path)
        output = _format_output(isinstance(inputs, tuple), attributions)
        if not return_convergence_delta:
            return output
        deltas = [_largest_error(a) for a in results]
        return output, torch.tensor(deltas, dtype=rows[0].dtype, device=rows[0].device)

    def _checked(self, method: str, n_rounds: Any, feature_mask: Any) -> int:
        """The number of rounds, if the arguments fit together."""
        if method not in _RULES:
            raise InvalidInput(
                f"Expected method to be one of {', '.join(_RULES)} (got {method!r})."
            )
        if feature_mask is not None and not self._multiply_by_inputs:
            raise InvalidInput(
                "Expected no feature_mask with multiply_by_inputs=False (got both): a group of "
                "inputs has no single unit. Try multiply_by_inputs=True."
            )
        rounds = whole(n_rounds)
        if type(rounds) is not int or rounds < 1:
            raise InvalidInput(f"Expected n_rounds to be a whole number ≥ 1 (got {n_rounds!r}).")
        return rounds

    def has_convergence_delta(self) -> bool:
        """Yes: see `attribute`."""
        return True

    def attribute_future(self, *args: Any, **kwargs: Any) -> Any:
        """Not implemented, as in captum.attr.IntegratedGradients."""
        raise NotImplementedError(
            "Expected attribute() (got attribute_future(), which methods with gradients do not "
            "have). Try attribute()."
        )

    @property
    def multiplies_by_inputs(self) -> bool:
        """Are attributions multiplied by (inputs − baselines)?"""
        return self._multiply_by_inputs


def _largest_error(a: Attribution) -> float:
    """The largest completeness error of a run's rounds."""
    values: list[float] = a.values.tolist()
    errors = (t - (a.full_value - v) for t, v in zip(a.totals, values, strict=False))
    return max(errors, key=abs)


class _Batch:
    """The rows of one call of `attribute`, each a problem over the shared forward function."""

    def __init__(
        self,
        forward: Callable[..., Any],
        rows: tuple[Tensor, ...],
        starts: tuple[Any, ...],
        target: Any,
        extra: Any,
        batch_size: int | None,
        feature_mask: Any,
    ) -> None:
        self.forward, self.target = forward, target
        self.extra = _format_additional_forward_args(extra)
        self.rows = tuple(r.detach() for r in rows)
        self.layout = Layout("tuple", tuple(str(i) for i in range(len(rows))),
                             tuple(tuple(r.shape[1:]) for r in rows))  # fmt: skip
        self.end = torch.cat([r.flatten(1) for r in self.rows], 1)
        """(count, n) the inputs."""
        self.start = self._flat(starts).to(self.end)
        """(count, n) the baselines."""
        self.ids = None
        """(count, n) the feature of every input, where features are selected together."""
        if feature_mask is not None:
            self.ids = self._flat(_format_tensor_into_tuples(feature_mask))
        self.batch_size: Any = "auto" if batch_size is None else batch_size

    def results(self, scorer: IG, rounds: int, *, measured: bool) -> list[Attribution]:
        """One result per row; with the values of F only where they are asked for."""
        results: dict[int, Attribution] = {}
        for rows, features in self._groups():
            method: Any = scorer
            if rounds > 1:
                count = min(rounds, features.units)
                method = Rounds(rounds=count, steps=scorer.steps, rule=scorer.rule)
            run = Run(self._objective(rows), method, features=features)
            for _ in run:
                pass
            results |= zip(rows.tolist(), run.results(measure=measured), strict=True)
        return [results[i] for i in range(len(self.end))]

    def split(self, flat: Tensor) -> tuple[Tensor, ...]:
        """(count, n) → like each of the inputs."""
        parts = self.layout.split(flat)
        return tuple(p.to(r) for p, r in zip(parts, self.rows, strict=True))

    def per_unit(self, attributions: tuple[Tensor, ...], path: Rule | None) -> tuple[Tensor, ...]:
        """attributions / (inputs − baselines); where that is 0 / 0, the mean gradient along the
        path, or 0 without one."""
        ways = self.end - self.start
        means = torch.zeros_like(ways)
        if path is not None:
            for i in (ways == 0).any(1).nonzero().flatten().tolist():
                means[i] = self._mean_gradient(torch.tensor([i]), path)
        return tuple(
            torch.where(w == 0, m, a / torch.where(w == 0, 1, w))
            for a, w, m in zip(attributions, self.split(ways), self.split(means), strict=True)
        )

    def _mean_gradient(self, row: Tensor, path: Rule) -> Tensor:
        """(n,): Σ_k weights_k · ∇F(start + nodes_k · (end − start)) for one row."""
        nodes = self.end.new_tensor(path.nodes).view(1, -1, 1)
        points = torch.lerp(self.start[row].unsqueeze(1), self.end[row].unsqueeze(1), nodes)
        gradients = self._objective(row).point_gradients(points)[0]
        return gradients.new_tensor(path.weights) @ gradients

    def _groups(self) -> Iterator[tuple[Tensor, Features]]:
        """Rows with the same features, no more than a device batch holds, run side by side."""
        every = torch.arange(len(self.end))
        most = self._objective(every).rows
        groups: list[tuple[Tensor, Features]] = [(every, Elements(self.layout.n))]
        if self.ids is not None:
            kinds, kind_of = torch.unique(self.ids, dim=0, return_inverse=True)
            # Captum's ids may have gaps; those of Groups have none.
            groups = [
                ((kind_of == i).nonzero().flatten().cpu(),
                 Groups(torch.unique(ids, return_inverse=True)[1]))
                for i, ids in enumerate(kinds)
            ]  # fmt: skip
        for rows, features in groups:
            for first in range(0, len(rows), most):
                yield rows[first : first + most], features

    def _objective(self, rows: Tensor) -> Objective:
        return Objective(
            lambda points, problems: self._values(points, rows[problems.cpu()]),
            self.start[rows].unsqueeze(0), self.end[rows].unsqueeze(0), layout=self.layout,
            batch_size=self.batch_size, labels=[f"row {i}" for i in rows.tolist()],
        )  # fmt: skip

    def _flat(self, tensors: tuple[Any, ...]) -> Tensor:
        """(count, n): numbers and tensors that broadcast to the inputs, end to end."""
        parts = [
            torch.broadcast_to(torch.as_tensor(t).detach().to(r.device), r.shape).flatten(1)
            for t, r in zip(tensors, self.rows, strict=True)
        ]
        return torch.cat(parts, 1)

    def _values(self, points: Tensor, index: Tensor) -> Tensor:
        """(m,): F at points whose rows of the batch are index (m,)."""
        inputs = tuple(
            p.to(r.dtype) for p, r in zip(self.layout.split(points), self.rows, strict=True)
        )
        extra = None if self.extra is None else tuple(self._rows_of(e, index) for e in self.extra)
        try:
            output: Tensor = _run_forward(self.forward, inputs, self._target_of(index), extra)
        except IndexError as error:
            raise InvalidInput(
                f"Expected a target within the forward function's output (got {self.target!r})."
            ) from error
        if output.shape[:1] == points.shape[:1] and output.numel() == points.shape[0]:
            return output.reshape(-1)  # (m,), (m, 1), (m, 1, 1, 1) …
        raise InvalidInput(
            f"Expected one number per row at target={self.target!r} (got "
            f"{tuple(output.shape)}). Try target= for a forward function with several outputs."
        )

    def _rows_of(self, extra: Any, index: Tensor) -> Any:
        if isinstance(extra, Tensor) and extra.dim() and extra.shape[0] == len(self.end):
            return extra[index.to(extra.device)]
        return extra

    def _target_of(self, index: Tensor) -> Any:
        target = self.target
        if isinstance(target, Tensor) and target.numel() > 1:
            return target[index.to(target.device)]
        return [target[i] for i in index.tolist()] if isinstance(target, list) else target


def _check_rows(rows: tuple[Tensor, ...]) -> None:
    for i, row in enumerate(rows):
        if not row.is_floating_point():
            raise InvalidType(
                f"Expected floating-point inputs (got {row.dtype} for input {i}): only real "
                "numbers have a gradient. Try the embeddings of ids, or additional_forward_args."
            )
        if row.dim() == 0 or row.numel() == 0:
            raise InvalidInput(
                f"Expected inputs with a batch axis and at least one value (got shape "
                f"{tuple(row.shape)} for input {i})."
            )


def from_captum(
    method: Callable[[nn.Module], Any],
    /,
    *,
    at: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> CaptumMethod:
    """A Captum class (or any function from a module to a Captum method) as a one-shot method.

    options go to its attribute(): from_captum(captum.attr.IntegratedGradients, n_steps=20).
    at: where a method without baselines, such as Saliency, takes its gradients: "input", or
        "mask": the input with only the selected features. None takes the input, and in greedy
        rounds the mask, as the scores at the input are the same in every round.
    seed: of its random numbers; None takes that of the run.
    """
    return CaptumMethod(method, at=at, seed=seed, **options)


class CaptumMethod:
    """A Captum attribution method as a one-shot method: inputs x, baselines with S present."""

    def __init__(
        self,
        method: Callable[[nn.Module], Any],
        /,
        *,
        at: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if at not in (None, "mask", "input"):
            raise InvalidInput(f"Expected at to be None, 'mask' or 'input' (got {at!r}).")
        name = getattr(method, "__name__", type(method).__name__)
        if not callable(method):
            raise InvalidType(
                f"Expected a Captum class (got an instance of {name}). "
                f"Try gp.from_captum(captum.attr.{name}, …) with the options of its attribute()."
            )
        if name in _NOT_OF_MODULES:
            raise InvalidInput(
                f"Expected a Captum class made of a module (got {name}). {_NOT_OF_MODULES[name]}"
            )
        self.method, self.at, self.seed, self.options = method, at, seed, options
        self.name = f"captum.{name}"

    @property
    def in_rounds(self) -> CaptumMethod:
        """The same method for greedy rounds."""
        at = self.at or "mask"
        return CaptumMethod(self.method, at=at, seed=self.seed, **self.options)

    def settings(self) -> dict[str, Any]:
        """Every knob, for the record."""
        options = {k: v if isinstance(v, int | float | str | None) else repr(v)
                   for k, v in self.options.items()}  # fmt: skip
        return {"at": self.at or "input"} | options

    def __call__(self, objective: Objective, mask: Tensor, /) -> Tensor:
        """(b, n) masks → (b, n): Captum's attributions, with the selected values in the baselines.

        Captum repeats rows in orders of its own, so each of the problems has calls of its own.
        """
        begin = torch.lerp(objective.start, objective.end, mask)
        end = objective.end
        if objective.goal is not None:
            end = torch.lerp(objective.start, end, objective.goal.to(mask))
        rows = [
            torch.stack([
                self._scores(objective, problem, begin[line, problem], end[line, problem])
                for line in range(objective.lines)
            ]).mean(0)
            for problem in range(objective.b)
        ]  # fmt: skip
        return torch.stack(rows)

    def _scores(self, objective: Objective, problem: int, begin: Tensor, end: Tensor) -> Tensor:
        """(n,): the attributions of one problem on the path from begin to end, (n,) each."""
        wrapped = _Wrapped(objective, problem)
        captum = self.method(wrapped)
        if isinstance(captum, _OF_LAYERS) and not wrapped.shows_layers:
            raise InvalidInput(
                f"Expected an nn.Module for {self.name}, which works on its layers (got a "
                "function or a compiled module). Try the module itself."
            )
        # A NoiseTunnel takes the arguments of the method inside it.
        inner = getattr(captum, "attribution_method", captum)
        parameters = inspect.signature(inner.attribute).parameters
        takes_baselines = "baselines" in parameters or "kwargs" in parameters
        first, last = (objective.layout.split(t.unsqueeze(0)) for t in (begin, end))
        inputs = first if self.at == "mask" and not takes_baselines else last
        extra = {"baselines": tuple(first)} if takes_baselines else {}
        with torch.enable_grad():
            leaves = tuple(t.detach().clone().requires_grad_(True) for t in inputs)
            parts = _seeded(
                self._seed(objective), captum.attribute, leaves, **extra, **self.options
            )
        return torch.cat([t.detach().reshape(-1) for t in parts])

    def _seed(self, objective: Objective) -> int:
        if self.seed is not None:
            return self.seed
        return int(torch.randint(2**31, (1,), generator=objective.generator()))


class _Wrapped(nn.Module):
    """inputs (m, …) → values (m,) of one problem, with the network's layers inside for methods
    that hook them."""

    def __init__(self, objective: Objective, problem: int) -> None:
        super().__init__()
        if isinstance(objective, ModelObjective):
            self.network = objective.network()
        self._objective = [objective]  # In a list, so that it is not taken for a submodule.
        self._problem = problem

    @property
    def shows_layers(self) -> bool:
        """Can Captum hook the layers that compute the output?"""
        network = getattr(self, "network", None)
        return network is not None and not isinstance(network, torch.jit.ScriptModule)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The objective's values; gradients are counted for the first of the problems."""
        objective = self._objective[0]
        points = torch.cat([t.reshape(t.shape[0], -1) for t in inputs], 1)
        if torch.is_grad_enabled() and self._problem == 0:
            objective.count_gradients(len(points))
        problems = torch.full((len(points),), self._problem, device=points.device)
        values: Tensor = objective.function(points, problems)
        return values


def _seeded(seed: int, attribute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Captum draws from torch's and NumPy's global generators. Torch's is left alone. NumPy has no
    other for one thread, so its own is seeded and then restored."""
    state = np.random.get_state()
    try:
        np.random.seed(seed % 2**32)
        return Fork(seed).call(attribute, *args, **kwargs)
    finally:
        np.random.set_state(state)
