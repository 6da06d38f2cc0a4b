"""Captum both ways: Greedy PIG as a Captum class, and Captum's classes as methods.

`GreedyPIG` replaces `captum.attr.IntegratedGradients`. `from_captum(captum.attr.DeepLift)` is a
one-shot method for `gp.explain(method=…)`, and `gp.Greedy` around it makes it adaptive.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..compat import private
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, MissingPackage
from ..core.layout import Layout
from ..core.maximize import rounds as rounds_of
from ..core.methods import GreedyPIG as Rounds
from ..core.numbers import check_count, check_switch
from ..core.objective import Objective
from ..core.quadrature import Rule
from ..core.rounds import Round
from ..core.scorers import IG, OneShot
from ..core.two_sided import TwoSidedObjective
from ..network.frozen import freeze
from ..network.randomness import Fork
from ..tensors.inputs import ModelObjective

try:
    from captum.attr import LRP, Deconvolution, DeepLift, GradientAttribution, GuidedBackprop
except ImportError as error:
    raise MissingPackage(
        "Expected the package captum for greedypig.adapters.captum (it is not installed). "
        'Try pip install "greedypig[captum]".'
    ) from error

FOR_CAPTUM = Rounds(rounds=10, steps=5, rule="gauss-legendre")
"""The defaults: 10 rounds of 5 Gauss–Legendre nodes, Captum's own rule."""
extra_arguments, shaped_as, run_forward, with_baselines, log_usage = private("captum")
_HOOK_LAYERS = (DeepLift, GuidedBackprop, Deconvolution, LRP)
"""Methods with rules of their own for layers, which they hook."""
GRADIENTS = 50
"""Gradients of a row in all rounds if n_steps is not given: Captum's default."""
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
        n_steps: int | None = None,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        n_rounds: int = FOR_CAPTUM.most_rounds,
    ) -> Any:
        """Attributions shaped like `inputs`, batch axis included.

        With n_rounds=1 they are integrated gradients, with weights that sum to 1 (Captum's own of
        riemann_trapezoid do not). With more they are `Attribution.contributions()`: the mean of
        integrals over straight paths and paths by way of what each round began with, with the sum
        F(inputs) − F(baselines). Raw scores of different rounds do not compare.
        Every row of the batch is a problem of its own.

        n_steps: gradients in each round. None spends 50 in all, as Captum does, and at least 5 in
        each round.
        delta: per row, the largest completeness error of its rounds,
        Σ scores − (F(inputs) − F(point where the round started)).
        """
        if method not in _RULES:
            raise InvalidInput(
                f"Expected method to be one of {', '.join(_RULES)} (got {method!r})."
            )
        n_rounds = check_count("n_rounds", n_rounds)
        with torch.inference_mode(False):
            batch = _Batch(
                self.forward_func,
                *with_baselines(inputs, baselines),
                target=target,
                extra=extra_arguments(additional_forward_args),
                batch_size=internal_batch_size,
            )
            rounds = min(n_rounds, batch.layout.n)
            if n_steps is None:
                n_steps = max(FOR_CAPTUM.steps, GRADIENTS // rounds)
            scorer = IG(n_steps, _RULES[method])
            greedy = Rounds(rounds=rounds, steps=n_steps, rule=scorer.rule)
            run = rounds_of(batch.objective, greedy)
            for _ in run:
                pass
            results = run.results(measure=n_rounds > 1 or return_convergence_delta)
            flat = torch.stack([batch.layout.flatten(a.contributions()) for a in results])
            if not self._multiply_by_inputs:
                flat = batch.per_unit(flat, scorer.quadrature if n_rounds == 1 else None)
            output = shaped_as(isinstance(inputs, tuple), batch.split(flat))
        if not return_convergence_delta:
            return output
        return output, batch.end.new_tensor([_largest_error(a) for a in results])

    def has_convergence_delta(self) -> bool:
        """Yes: see `attribute`."""
        return True

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
        *,
        target: Any,
        extra: tuple[Any, ...] | None,
        batch_size: int | None,
    ) -> None:
        for i, row in enumerate(rows):
            if not row.is_floating_point() or not row.dim() or not len(row):
                raise InvalidInput(
                    "Expected floating-point inputs with a batch axis and at least one row "
                    f"(got {row.dtype} of shape {tuple(row.shape)} for input {i}). "
                    "Try additional_forward_args for what is not explained."
                )
        count = len(rows[0])
        several = isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1)
        if several and len(target) != count:
            raise InvalidInput(f"Expected a target for each of {count} rows (got {len(target)}).")
        self.forward, self.target, self.extra = freeze(forward), target, extra
        self.rows = tuple(row.detach() for row in rows)
        self.layout = Layout.of(tuple(row[0] for row in self.rows))
        if not self.layout.n:
            raise InvalidInput(f"Expected inputs with values (got {self.layout.shapes} for a row).")
        self.end = self._flat(self.rows)
        """(count, n) the inputs."""
        self.start = self._flat(starts).to(self.end)
        """(count, n) the baselines."""
        self.objective = Objective(
            self._values,
            self.start.unsqueeze(0),
            self.end.unsqueeze(0),
            layout=self.layout,
            batch_size="auto" if batch_size is None else batch_size,
            labels=[f"row {i}" for i in range(len(self.end))],
        )

    def split(self, flat: Tensor) -> tuple[Tensor, ...]:
        """(m, n) → tensors like each of the inputs."""
        parts = self.layout.split(flat)
        return tuple(part.to(row) for part, row in zip(parts, self.rows, strict=True))

    def per_unit(self, flat: Tensor, path: Rule | None) -> Tensor:
        """attributions / (inputs − baselines); where that is 0 / 0, the mean gradient along the
        path Σ_k weights_k · ∇F(start + nodes_k · (end − start)), or 0 without one."""
        ways = self.end - self.start
        per_unit = flat.to(ways) / torch.where(ways == 0, 1, ways)
        if path is None or (ways != 0).all():
            return per_unit
        mean = torch.zeros_like(ways)
        for node, weight in zip(path.nodes, path.weights, strict=True):
            points = torch.lerp(self.start, self.end, node).unsqueeze(1)
            mean += weight * self.objective.point_gradients(points).squeeze(1)
        return torch.where(ways == 0, mean, per_unit)

    def _flat(self, tensors: tuple[Any, ...]) -> Tensor:
        """(count, n): numbers and tensors that broadcast to the inputs, end to end."""
        parts = [
            torch.broadcast_to(torch.as_tensor(t).detach().to(r.device), r.shape)
            for t, r in zip(tensors, self.rows, strict=True)
        ]
        # A batch of numbers, (count,), has a column of them.
        return torch.cat([part.unsqueeze(1).flatten(1) for part in parts], 1)

    def _values(self, points: Tensor, index: Tensor) -> Tensor:
        """(m,): F at points whose rows of the batch are index (m,)."""

        def rows(value: Any) -> Any:
            per_row = isinstance(value, Tensor) and value.dim() and len(value) == len(self.end)
            return value[index.to(value.device)] if per_row else value

        extra = None if self.extra is None else tuple(map(rows, self.extra))
        target = rows(self.target)
        if isinstance(target, list):
            target = [target[i] for i in index.tolist()]
        try:
            output: Tensor = run_forward(self.forward, self.split(points), target, extra)
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


def from_captum(method: Callable[[nn.Module], object], /, **options: object) -> CaptumMethod:
    """A Captum class (or any function from a module to a Captum method) as a one-shot method.

    options go to its attribute(): from_captum(captum.attr.IntegratedGradients, n_steps=20).
    A method without baselines, such as Saliency, takes its gradients at the input. In greedy rounds
    it takes them at the input with only the selected features, as the scores at the input are the
    same in every round. Random numbers follow the seed of the run.
    """
    name = getattr(method, "__name__", type(method).__name__)
    if not callable(method):
        raise InvalidType(
            f"Expected a Captum class (got an instance of {name}). "
            f"Try gp.from_captum(captum.attr.{name}, …) with the options of its attribute()."
        )
    if name in ("NoiseTunnel", "FeaturePermutation"):
        raise InvalidInput(
            f"Expected a Captum class made of a module that explains single rows (got {name}). Try "
            "gp.from_captum(lambda net: NoiseTunnel(Saliency(net)), nt_samples=10), or "
            "FeatureAblation."
        )
    if name.startswith(("Layer", "Neuron", "LLM")):
        raise InvalidInput(
            f"Expected a Captum class that attributes to the input (got {name}). For texts try "
            "gp.explain_text with method='leave-one-out', or with method='ig', absent='embedding'."
        )
    return CaptumMethod(method, options)


@dataclass(frozen=True)
class CaptumMethod(OneShot):
    """A Captum attribution method as a one-shot method: inputs x, baselines with S present."""

    method: Callable[[nn.Module], Any]
    options: Mapping[str, Any]
    """Keyword arguments of its attribute()."""
    at: str = "input"
    """Where gradients of a method without baselines are taken: "input" or "mask"."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """captum.Saliency for captum.attr.Saliency."""
        return f"captum.{getattr(self.method, '__name__', type(self.method).__name__)}"

    @property
    def in_rounds(self) -> CaptumMethod:
        """The same method for greedy rounds."""
        return replace(self, at="mask")

    def settings(self) -> dict[str, Any]:
        """Every knob, for the record."""
        plain = int | float | str | None
        return {"method": self.name, "at": self.at} | {
            name: value if isinstance(value, plain) else repr(value)
            for name, value in self.options.items()
        }

    def __call__(self, objective: Objective, round: Round, /) -> Tensor:
        """(b, n): Captum's attributions, with the selected values in the baselines.

        Captum repeats rows in orders of its own, so each of the problems has calls of its own.
        """
        if isinstance(objective, TwoSidedObjective):
            raise InvalidInput(
                f"Expected an objective of one side for {self.name} (got a two-sided one). Try "
                "gp.GreedyPIG() or gp.IG()."
            )
        mask, end = round.mask, objective.end
        begin = torch.lerp(objective.start, end, mask)
        if round.goal is not None:
            end = torch.lerp(objective.start, end, round.goal.to(mask))
        scores = torch.zeros_like(mask)
        for problem in range(objective.b):
            for line in range(objective.lines):
                path = begin[line, problem], end[line, problem]
                scores[problem] += self._scores(objective, round, problem, *path) / objective.lines
        return scores

    def _scores(
        self, objective: Objective, round: Round, problem: int, begin: Tensor, end: Tensor
    ) -> Tensor:
        """(n,): the attributions of one problem on the path from begin to end, (n,) each."""
        wrapped = _Wrapped(objective, problem)
        captum = self.method(wrapped)
        if isinstance(captum, _HOOK_LAYERS) and not wrapped.shows_layers:
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
        baselines = {"baselines": tuple(first)} if takes_baselines else {}
        seed = int(torch.randint(2**31, (1,), generator=round.generator(problem)))
        with torch.enable_grad():
            leaves = tuple(t.detach().clone().requires_grad_(True) for t in inputs)
            parts = _seeded(seed, captum.attribute, leaves, **baselines, **self.options)
        return torch.cat([t.detach().reshape(-1) for t in parts])


class _Wrapped(nn.Module):
    """inputs (m, …) → values (m,) of one problem, with the network's layers inside for methods
    that hook them."""

    def __init__(self, objective: Objective, problem: int) -> None:
        super().__init__()
        if isinstance(objective, ModelObjective):
            self.network = objective.network
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
