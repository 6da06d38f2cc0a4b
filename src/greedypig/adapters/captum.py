"""Captum both ways: Greedy PIG as a Captum class, and Captum's classes as scorers.

`GreedyPIG` stands where `IntegratedGradients` stood. `from_captum(captum.attr.DeepLift)` gives a
scorer for `gp.explain(method=…)`, and `gp.Greedy` around it makes it adaptive.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.algorithms import make_problem
from ..core.errors import InvalidInput, InvalidType, MissingPackage
from ..core.features import Elements, Features, Groups
from ..core.layout import Layout
from ..core.lockstep import Undisturbed
from ..core.objective import MeanObjective, Oracle, PointObjective, Runs
from ..core.quadrature import Rule, rule
from ..core.randomness import Fork
from ..core.rounds import Problem, run
from ..core.schedule import check_switch, whole
from ..core.scorers import IntegratedGradients
from ..network.model_cache import Loan
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
    "FeaturePermutation": "It permutes the rows of a batch, and an example is a single one. "
    "Try FeatureAblation.",
}

_RULES = {
    "gausslegendre": "gauss_legendre",
    "riemann_middle": "midpoint",
    "riemann_left": "left",
    "riemann_right": "right",
    "riemann_trapezoid": "trapezoid",
}


class GreedyPIG(GradientAttribution):  # type: ignore[misc]
    """Greedy PIG with the interface of captum.attr.IntegratedGradients.

    The objective is the forward function's own output at the target, as Captum does; wrap the
    model in a softmax to explain a probability. A module is never changed: a frozen copy in
    eval mode is used.

    multiply_by_inputs=False gives attributions per unit of the inputs: those of `attribute` divided
    by (inputs − baselines). With n_rounds=1 that is the mean gradient on the way, also where an
    input is at its baseline; with more rounds such an input has 0. Selection is the same.
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
        is_tuple = isinstance(inputs, tuple)
        rows, starts = _format_input_baseline(inputs, baselines)
        _check_rows(rows)
        n_rounds = self._checked(method, n_rounds, feature_mask)
        loan = Loan(self.forward_func)
        batch = _Batch(
            loan.plain, rows, starts, target, additional_forward_args,
            internal_batch_size, feature_mask,
        )  # fmt: skip
        scorer = IntegratedGradients(n_steps, _RULES[method])
        measured = n_rounds > 1 or return_convergence_delta
        problems = batch.problems(scorer, n_rounds, measured=measured)
        results = [p.attribution() for p in run(problems)]
        trees = [a.scores if n_rounds == 1 else a.contributions() for a in results]
        columns = zip(*(batch.layout.tensors(t) for t in trees), strict=True)
        attributions = tuple(
            torch.stack(column).to(row) for column, row in zip(columns, rows, strict=True)
        )
        if not self._multiply_by_inputs:
            attributions = batch.per_unit(
                attributions, rule(_RULES[method], n_steps) if n_rounds == 1 else None
            )
        loan.end()
        output = _format_output(is_tuple, attributions)
        if not return_convergence_delta:
            return output
        errors = [
            max((t - (a.full_value - v) for t, v in zip(a.totals, a.values.tolist(), strict=False)),
                key=abs)
            for a in results
        ]  # fmt: skip
        return output, torch.tensor(errors, dtype=rows[0].dtype, device=rows[0].device)

    def _checked(self, method: str, n_rounds: Any, feature_mask: Any) -> int:
        """The number of rounds, if what was asked can be done."""
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
        self.count = self.rows[0].shape[0]
        self.layout = Layout("tuple", tuple(str(i) for i in range(len(rows))),
                             tuple(tuple(r.shape[1:]) for r in rows))  # fmt: skip
        self.starts = [
            torch.broadcast_to(s.detach() if isinstance(s, Tensor) else torch.tensor(s), r.shape)
            for s, r in zip(starts, self.rows, strict=True)
        ]
        self.masks = None if feature_mask is None else _format_tensor_into_tuples(feature_mask)
        self.oracle = Oracle(
            self._values, self.layout.n, batch_size="auto" if batch_size is None else batch_size
        )

    def problems(
        self, scorer: IntegratedGradients, rounds: int, *, measured: bool
    ) -> Iterator[Problem]:
        """One run of Algorithm 1 per row; with the values of F only where they are asked for."""
        for i in range(self.count):
            start, end = self._ends(i)
            objective = PointObjective(self.oracle, start, end, owner=i, layout=self.layout)
            if not measured:
                objective.ends = (0.0, 0.0)  # Nobody looks, and a pass for nothing is saved.
            features = self._features(i)
            yield make_problem(
                objective, scorer, features=features, rounds=min(rounds, features.units),
                schedule="geometric" if rounds > 1 else None, label=f"row {i}",
                values="end" if measured else "free",
            )  # fmt: skip

    def per_unit(self, attributions: tuple[Tensor, ...], path: Rule | None) -> tuple[Tensor, ...]:
        """attributions / (inputs − baselines); where that is 0 / 0, the mean gradient on the path,
        or 0 without one."""
        ways = [r - s.to(r) for r, s in zip(self.rows, self.starts, strict=True)]
        still = torch.stack([(w == 0).flatten(1).any(1) for w in ways]).any(0)
        means = [torch.zeros_like(r) for r in self.rows]
        if path is not None:
            for i in still.nonzero().flatten().tolist():
                for mean, part in zip(means, self._mean_gradient(i, path), strict=True):
                    mean[i] = part
        return tuple(
            torch.where(w == 0, m, a / torch.where(w == 0, 1, w))
            for a, w, m in zip(attributions, ways, means, strict=True)
        )

    def _mean_gradient(self, row: int, path: Rule) -> list[Tensor]:
        """Σ_k weights_k · ∇F(start + nodes_k · (end − start)), like each of the row's inputs."""
        start, end = self._ends(row)
        nodes = start.new_tensor(path.nodes).unsqueeze(1)
        points = torch.lerp(start, end, nodes)
        with Undisturbed():
            _, found, _ = self.oracle.evaluate(points, [(row, len(points))], gradient=True)
        assert found is not None
        weights = found.new_tensor(path.weights)
        return [part[0] for part in self.layout.split((weights @ found).unsqueeze(0))]

    def _ends(self, row: int) -> tuple[Tensor, Tensor]:
        """(n,) each: the baselines and the inputs of a row, end to end."""
        end = torch.cat([r[row].reshape(-1) for r in self.rows])
        return torch.cat([s[row].reshape(-1).to(end) for s in self.starts]), end

    def _features(self, row: int) -> Features:
        if self.masks is None:
            return Elements(self.layout.n)
        ids = [
            torch.broadcast_to(m, r.shape)[row].reshape(-1)
            for m, r in zip(self.masks, self.rows, strict=True)
        ]
        # Captum's ids may have gaps; ours count the features there are.
        return Groups(torch.unique(torch.cat(ids), return_inverse=True)[1])

    def _values(self, points: Tensor, runs: Runs) -> Tensor:
        index = torch.tensor([i for i, _ in runs]).repeat_interleave(
            torch.tensor([count for _, count in runs])
        )
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
        if isinstance(extra, Tensor) and extra.dim() and extra.shape[0] == self.count:
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
                f"Expected inputs with a batch axis and something in them (got shape "
                f"{tuple(row.shape)} for input {i})."
            )


class CaptumScorer:
    """A Captum attribution method as a scorer: its inputs are x, its baselines are place(1_S).

    Methods without baselines see a single point. On their own that is the input, as in Captum;
    in greedy rounds it is the one at 1_S, as Sequential Gradient does, since no pick could change
    what they say of the input. at="input" or "mask" asks for one of them.
    """

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

    def for_run(self, *, seed: int, rounds: int) -> CaptumScorer:
        """The same scorer for this run: its seed unless it has one of its own, and its point."""
        at = self.at or ("input" if rounds == 1 else "mask")
        return CaptumScorer(
            self.method, at=at, seed=seed if self.seed is None else self.seed, **self.options
        )

    def settings(self) -> dict[str, Any]:
        """The name and every knob, for provenance."""
        options = {k: v if isinstance(v, int | float | str | None) else repr(v)
                   for k, v in self.options.items()}  # fmt: skip
        return {"scorer": self.name, "at": self.at} | options

    def __call__(self, objective: PointObjective | MeanObjective, mask: Tensor, /) -> Tensor:
        """Captum's attributions of the elements, with what is selected moved into the baseline."""
        found = [self._part(part, mask) for part in objective.parts]
        return torch.stack(found).mean(0)

    def _part(self, objective: PointObjective, mask: Tensor) -> Tensor:
        wrapped = _Objective(objective)
        captum = self.method(wrapped)
        if isinstance(captum, _OF_LAYERS) and not wrapped.shows_layers:
            raise InvalidInput(
                f"Expected an nn.Module for {self.name}, which works on its layers (got a "
                "function or a compiled module). Try the module itself."
            )
        begin = objective.layout.split(objective.place(mask).unsqueeze(0))
        end = objective.layout.split(objective.end.unsqueeze(0))
        # A NoiseTunnel takes whatever the method inside it takes.
        inner = getattr(captum, "attribution_method", captum)
        parameters = inspect.signature(inner.attribute).parameters
        takes_baselines = "baselines" in parameters or "kwargs" in parameters
        inputs = end if takes_baselines or self.at == "input" else begin
        extra = {"baselines": tuple(begin)} if takes_baselines else {}
        with torch.enable_grad():
            leaves = tuple(t.detach().clone().requires_grad_(True) for t in inputs)
            found = _seeded(self.seed or 0, captum.attribute, leaves, **extra, **self.options)
        return torch.cat([t.detach().reshape(-1) for t in found])


def from_captum(
    method: Callable[[nn.Module], Any],
    /,
    *,
    at: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> CaptumScorer:
    """A Captum class (or any function from a module to a Captum method) as a scorer.

    options go to its attribute(): from_captum(captum.attr.IntegratedGradients, n_steps=20).
    at: where a method without baselines, such as Saliency, looks: "input", or "mask": what is
        selected so far. None takes the input, and in greedy rounds the mask.
    """
    return CaptumScorer(method, at=at, seed=seed, **options)


class _Objective(nn.Module):
    """inputs (m, …) → values (m,), with the network's layers inside for methods that hook them."""

    def __init__(self, objective: PointObjective) -> None:
        super().__init__()
        if isinstance(objective, ModelObjective):
            self.network = objective.network()
        self._objective = [objective]  # In a list, so that it is not taken for a submodule.

    @property
    def shows_layers(self) -> bool:
        """Can Captum hook the layers that compute the answer?"""
        network = getattr(self, "network", None)
        return network is not None and not isinstance(network, torch.jit.ScriptModule)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The objective's values; rows that will be differentiated are counted."""
        objective = self._objective[0]
        points = torch.cat([t.reshape(t.shape[0], -1) for t in inputs], 1)
        if torch.is_grad_enabled():
            objective.paid(points.shape[0])
        values: Tensor = objective.oracle.function(points, [(objective.owner, points.shape[0])])
        return values


def _seeded(seed: int, attribute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Captum draws from torch's and NumPy's global generators. Torch's is left alone; NumPy has no
    other for one thread, so its own is seeded and put back."""
    state = np.random.get_state()
    try:
        np.random.seed(seed % 2**32)
        return Fork(seed).call(attribute, *args, **kwargs)
    finally:
        np.random.set_state(state)
