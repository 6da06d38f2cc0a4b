"""One call from a model and an example to an `Attribution`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.algorithms import make_problem
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..core.features import Elements, Features, Groups, Windows
from ..core.layout import Layout, check_plain
from ..core.lockstep import Undisturbed
from ..core.objective import MeanObjective, PointObjective
from ..core.quadrature import Rule
from ..core.rounds import Problem, Rounds, ValuesWanted, run
from ..core.schedule import check_count, check_switch, real, whole
from ..core.scorers import PlannedScorer, Scorer
from ..core.stopping import Stop
from ..network.fingerprint import callables, digest
from ..network.fold import convolutional
from . import baselines, methods
from .fixed import described, items_of
from .inputs import Example, ModelFamily
from .methods import Greedy
from .pictures import is_picture, picture_shape, pixels, tokens
from .runs import carry_out, versions
from .steady import SteadyGradients, bears_views
from .targets import Target, levels_to_caller

NAMED_FEATURES = {"elements": lambda layout: Elements(layout.n), "pixels": pixels(),
                  "tokens": tokens()}  # fmt: skip


def explain(
    model: Callable[..., Any],
    x: Any,
    *,
    target: int | None = None,
    baseline: Any = None,
    objective: Any = None,
    outputs: str | None = None,
    features: Any = "elements",
    names: Sequence[str] | None = None,
    fixed: Any = None,
    method: Any = "greedy-pig",
    rounds: int | None = None,
    steps: int | None = None,
    schedule: str | Sequence[int] | None = None,
    per_round: int | None = None,
    k: int | None = None,
    ratio: float | None = None,
    rule: str | Rule | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    batch_size: int | Literal["auto"] = "auto",
    seed: int = 0,
    optimize: bool = True,
    values: ValuesWanted = "end",
    resume: Attribution | str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[Rounds], object] = False,
) -> Attribution:
    """Which features of the example x does the model use for its answer?

    model: an nn.Module or any callable from a batch to logits; never changed.
    x: one example without a batch axis: a tensor, or a tuple or dict of tensors.
    fixed: inputs passed along and not explained, a tuple (after x) or a dict (by name). Tensors
        are of this example, without a batch axis as x is: the model gets one row for each of its
        rows. What is the same for all rows (weights, a table) belongs into the model.
    target: the class to explain; None takes the predicted one. 0 or 1 for a binary logit.
    baseline: what an absent feature looks like: number, tensor, callable, name ("zero", "gray",
        "black", "white", "mean", "blur"), or a list of these, averaged.
    objective: "softmax", "log-likelihood", "log-probability", "logit", "margin",
        "counterfactual", gp.margin(against=…), or a callable from logits to one number per row;
        "increase" or "decrease" for a value. None takes "softmax" for classes; for a value, what
        moves it from the baseline's output to the input's.
    outputs: "logits", "probabilities" if the model ends in a softmax or sigmoid, or "values" for
        a regression. Where it is None, several outputs are logits. One output is a value, unless
        target or an objective over classes asks for classes: then it is the logit of class 1.
    features: "elements", "pixels", "tokens", gp.grid(b), gp.windows(b), gp.superpixels(), a
        Features object, or an integer tensor of group ids shaped like x. names: one per unit.
    method: "greedy-pig", "steady-pig", "rolling-pig", "sequential-gradient", "ig", "gradient",
        "smooth-ig", "blur-ig", "guided-ig", "random", a scorer, or gp.Greedy(scorer).
    rounds, per_round, k: how many rounds, units a round, units in all.
    schedule: "geometric" (the last round `ratio` = 50 times the first), "equal", or a list.
    steps, rule: nodes of the integral, and "midpoint", "left", "right", "trapezoid",
        "gauss-legendre", "gauss-radau" or a gp.Rule. Where nothing of all this is given, Greedy PIG
        takes 20 geometric rounds of 5 midpoints, and for a picture with
        objective="log-likelihood" 100 rounds of one gradient (rule "left"). Where no steps and no
        rule are given it takes 33 rounds of 3 views for a photo (three channels, 128 × 128 pixels
        or more): "steady-pig".
    budget, seconds, reach, gain: reasons to stop early: gradients paid, seconds passed,
        G(S) ≥ reach · G(full), no unit left with a positive score.
    values: when G(S) is measured: "each" round, for all at the "end" (cheapest), or only where it
        is "free" (NaN elsewhere).
    optimize: use a private copy with BatchNorm folded, channels last, cut after a large first
        linear layer, or differentiated by hand, where it answers alike.
    seed, batch_size: of everything random; rows evaluated at once, "auto" or a number.
    resume: a stopped run of the same call, or its file; goes on as if it had never stopped.
    checkpoint: a file that is written after every round, to resume from after Ctrl-C or a crash.
    progress: True for a line on the terminal, if there is one; or a function, called with the
        `Rounds` so far before the first round and after every one.
    """
    job = _Job(
        model, baseline=baseline, objective=objective, outputs=outputs, features=features,
        names=names, method=method, rounds=rounds, steps=steps, schedule=schedule,
        per_round=per_round, k=k, ratio=ratio, rule=rule, stop=Stop(budget, seconds, reach, gain),
        batch_size=batch_size, seed=seed, optimize=optimize, values=values,
        class_given=target is not None,
    )  # fmt: skip
    problem = job.problem(x, target, fixed)
    found = carry_out(problem, resume=resume, checkpoint=checkpoint, progress=progress)
    job.family.end()
    _check_not_flat(problem)
    return found


def explain_many(
    model: Callable[..., Any],
    xs: Iterable[Any],
    *,
    target: int | Sequence[int | None] | None = None,
    baseline: Any = None,
    objective: Any = None,
    outputs: str | None = None,
    features: Any = "elements",
    names: Sequence[str] | None = None,
    fixed: Any = None,
    method: Any = "greedy-pig",
    rounds: int | None = None,
    steps: int | None = None,
    schedule: str | Sequence[int] | None = None,
    per_round: int | None = None,
    k: int | None = None,
    ratio: float | None = None,
    rule: str | Rule | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    batch_size: int | Literal["auto"] = "auto",
    seed: int = 0,
    optimize: bool = True,
    values: ValuesWanted = "end",
) -> Iterator[Attribution]:
    """`explain` for every example of an iterable, in lockstep: their gradients share batches.

    Answers are streamed in the order of xs, each as soon as it and those before it are done.
    Each agrees with the answer of `explain` to rounding: batches of another size round otherwise.
    xs is read only as far as batches need. The arguments are those of `explain`, but for resume,
    checkpoint and progress. A list of targets or of fixed inputs gives one per example. budget and
    seconds are per example.
    """
    # A list is one per example; what else a caller may pass is the same for all.
    targets = target if isinstance(target, list | tuple | Tensor) else None
    job = _Job(
        model, baseline=baseline, objective=objective, outputs=outputs, features=features,
        names=names, method=method, rounds=rounds, steps=steps, schedule=schedule,
        per_round=per_round, k=k, ratio=ratio, rule=rule, stop=Stop(budget, seconds, reach, gain),
        batch_size=batch_size, seed=seed, optimize=optimize, values=values,
        class_given=any(t is not None for t in ([target] if targets is None else targets)),
    )  # fmt: skip
    each_fixed = fixed if isinstance(fixed, list) else None
    return _stream(job, xs, target, targets, fixed, each_fixed)


def _stream(
    job: _Job, xs: Iterable[Any], target: Any, targets: Any, fixed: Any, each_fixed: Any
) -> Iterator[Attribution]:
    broken: list[Exception] = []

    def problems() -> Iterator[Problem]:
        # Those under way are finished and handed out before an error here is raised.
        i = 0
        try:
            for i, x in enumerate(xs):
                one = target if targets is None else _one_of(targets, i, "target")
                held = fixed if each_fixed is None else _one_of(each_fixed, i, "fixed")
                yield job.problem(x, one, held, label=f"input {i}")
        except Exception as error:
            error.add_note(f"This was input {i} of explain_many, counted from 0.")
            broken.append(error)

    for problem in run(problems()):
        _check_not_flat(problem)
        yield problem.attribution()
    job.family.end()
    if broken:
        raise broken[0]


def _moves(problem: Problem) -> bool:
    """Is the input anywhere but at the baseline?"""
    return any(bool(part.reach.any()) for part in problem.objective.parts)


def _check_not_flat(problem: Problem) -> None:
    """Refuse an output that is the same whatever is there; warn of an order that tells nothing."""
    if not problem.flat:
        return
    of = f" of {problem.label}" if problem.label else ""
    if problem.full_value == problem.first_value and _moves(problem):
        raise InvalidInput(
            f"Expected an output{of} that depends on the features (got every gradient 0, and "
            f"{problem.full_value:g} with all features as with none). Try another target, "
            "objective or baseline."
        )
    why = "the input is the baseline itself. Try another baseline"
    if _moves(problem):
        why = ("the objective is flat where its gradient was taken. Try "
               "objective='log-probability' or 'logit', or another baseline")  # fmt: skip
    warnings.warn(
        f"Every score of the first round{of} is exactly 0, and features come in the order of "
        f"their indices: {why}.",
        stacklevel=levels_to_caller(),
    )


class _Job:
    """The arguments of `explain` that do not depend on the example, checked once."""

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        baseline: Any,
        objective: Any,
        outputs: str | None,
        features: Any,
        names: Sequence[str] | None,
        method: Any,
        rounds: int | None,
        steps: int | None,
        schedule: str | Sequence[int] | None,
        per_round: int | None,
        k: int | None,
        ratio: float | None,
        rule: str | Rule | None,
        stop: Stop,
        batch_size: int | Literal["auto"],
        seed: int,
        optimize: bool,
        values: ValuesWanted,
        class_given: bool,
    ) -> None:
        target = Target(objective, outputs, class_given=class_given)
        check_switch("optimize", optimize)
        with Undisturbed():
            self.family = ModelFamily(model, target, batch_size=batch_size, optimize=optimize)
        self.baseline, self.features, self.names = baseline, features, names
        self.stop, self.seed, self.values = stop, seed, values
        self.scorer, self.greedy = methods.resolve(method, steps=steps, rule=rule)
        usual = (
            isinstance(method, str) and method == "greedy-pig" and steps is None and rule is None
        )
        self.named = isinstance(method, str)
        self.usual = target.name if usual else ""
        """The objective, where no steps are asked of the usual method."""
        self.rounds = {"rounds": whole(rounds), "per_round": whole(per_round), "k": whole(k),
                       "schedule": schedule, "ratio": real(ratio)}  # fmt: skip
        if self.greedy is None and any(v is not None for v in self.rounds.values()):
            given = [name for name, value in self.rounds.items() if value is not None]
            raise InvalidInput(
                f"Expected {', '.join(given)} only for greedy methods (got a one-shot method). "
                "Try gp.Greedy(scorer)."
            )
        self.settings = {
            "method": method if isinstance(method, str) else type(method).__name__,
            "rival": target.against,
            "baseline": baselines.describe(baseline),
            "batch_size": whole(batch_size),
            "optimize": optimize,
        }
        self.versions = versions() | callables(objective=target.function)

    def problem(self, x: Any, target: int | None, fixed: Any, label: str = "") -> Problem:
        """The run for one example."""
        with Undisturbed():
            return self._problem(x, target, fixed, label)

    def _problem(self, x: Any, target: int | None, fixed: Any, label: str) -> Problem:
        for name, held in items_of(fixed):
            if isinstance(held, Tensor):  # It is given a row for each of the model's.
                check_plain(f"fixed input {name!r}", held)
        example = self.family.example(x, target=target, fixed=fixed, baselines=self.baseline)
        objective = self.family.objective(example, x, self.baseline)
        features = _features(self.features, self.names, example.layout, x)
        scorer = self.scorer
        if self.usual and is_picture(example.layout):
            scorer = methods.default_scorer(self.usual, example.layout.shapes[0]) or scorer
        if self.named and isinstance(scorer, SteadyGradients):
            scorer = self._borne(scorer, example)
        return make_problem(
            objective, scorer, features=features, stop=self.stop, seed=self.seed,
            values=self.values, label=label, **self._picks(scorer, features.units),
            settings=self.settings
            | self.family.target.described(example.reference)
            | self._named(scorer),
            provenance=self.versions
            | {"model": self.family.fingerprint, "input": _input_fingerprint(objective, fixed)},
        )  # fmt: skip

    def _borne(self, scorer: SteadyGradients, example: Example) -> SteadyGradients:
        """The scorer, without its views where the network cannot bear them: a layer that is not a
        convolution knows every pixel by its place, and others may have learnt from no views."""
        network = self.family.plain.module
        shape = picture_shape(example.layout, "method='steady-pig'")
        if network is not None and not convolutional(network):
            return scorer.without_views()
        with torch.no_grad():
            borne = bears_views(partial(self.family.answers, example), example.x, shape)
        return scorer if borne else scorer.without_views()

    def _named(self, scorer: PlannedScorer | Scorer) -> dict[str, str]:
        """The method's own name, where it was chosen for this example."""
        chosen = self.usual and isinstance(scorer, SteadyGradients)
        return {"method": "steady-pig"} if chosen else {}

    def _picks(self, scorer: PlannedScorer | Scorer, units: int) -> dict[str, Any]:
        """The schedule's knobs: what was asked, else the method's, else the defaults."""
        if self.greedy is None:
            return {"rounds": 1}
        asked = {n: v for n, v in self.rounds.items() if v is not None}
        own = {n: getattr(self.greedy, n) for n in ("rounds", "per_round", "schedule", "ratio")}
        picks = {n: v for n, v in own.items() if v is not None} | asked
        explicit = not isinstance(picks.get("schedule", ""), str)
        if not explicit and "per_round" not in picks:
            picks.setdefault("schedule", methods.SCHEDULE)
            if "k" in picks:
                check_count("k", picks["k"], units)
            rounds = methods.default_rounds(scorer)
            picks.setdefault("rounds", min(rounds, picks.get("k", units)))
            if picks["schedule"] == "geometric":
                picks.setdefault("ratio", methods.default_ratio(scorer))
        return picks


def _one_of(each: Any, i: int, name: str) -> Any:
    if i >= len(each):
        raise InvalidInput(f"Expected one {name} per example (got {len(each)} for more examples).")
    return each[i]


def _features(spec: Any, names: Sequence[str] | None, layout: Layout, x: Any) -> Features:
    if isinstance(spec, str):
        if spec not in NAMED_FEATURES:
            raise InvalidInput(
                f"Expected features to be one of {', '.join(NAMED_FEATURES)}, gp.grid(b), "
                f"gp.windows(b), gp.superpixels() or a tensor of group ids (got {spec!r})."
                f"{did_you_mean(spec, NAMED_FEATURES)}"
            )
        spec = NAMED_FEATURES[spec]
    if isinstance(spec, Features):
        made = spec
    elif callable(spec):
        made = spec(layout, x) if getattr(spec, "reads_input", False) else spec(layout)
    elif isinstance(spec, tuple | list | dict) or hasattr(spec, "__array__"):
        made = Groups(_group_ids(spec, layout))
    else:
        raise InvalidType(
            f"Expected features to be a name, gp.grid(b), gp.windows(b), gp.superpixels(), a "
            f"Features object or group ids (got {type(spec).__name__})."
        )
    if made.n != layout.n:
        raise InvalidInput(f"Expected features over {layout.n} elements (got {made.n}).")
    return made if names is None else _renamed(made, names)


def _group_ids(spec: Any, layout: Layout) -> Tensor:
    if isinstance(spec, dict):
        spec = {name: _tensor(ids) for name, ids in spec.items()}
    else:
        spec = [_tensor(ids) for ids in spec] if isinstance(spec, tuple | list) else _tensor(spec)
    given = Layout.of(spec)
    by_name = isinstance(spec, dict) and layout.kind == "dict"
    if len(given.shapes) != len(layout.shapes):
        raise InvalidInput(
            f"Expected group ids for {len(layout.shapes)} inputs (got {len(given.shapes)})."
        )
    if by_name and set(given.names) != set(layout.names):
        raise InvalidInput(
            f"Expected group ids for the inputs {', '.join(layout.names)} "
            f"(got them for {', '.join(given.names)})."
        )
    parts = []
    tensors = [spec[n] for n in layout.names] if by_name else layout.tensors(spec)
    for tensor, shape, name in zip(tensors, layout.shapes, layout.names, strict=True):
        try:
            parts.append(torch.broadcast_to(tensor, shape).reshape(-1))
        except RuntimeError:
            raise InvalidInput(
                f"Expected group ids shaped like input {name!r}, {shape} "
                f"(got {tuple(tensor.shape)})."
            ) from None
    return torch.cat(parts)


def _tensor(ids: Any) -> Any:
    """NumPy's arrays as tensors."""
    return torch.as_tensor(ids) if hasattr(ids, "__array__") else ids


def _renamed(features: Features, names: Sequence[str]) -> Features:
    if isinstance(features, Groups):
        return Groups(features.ids, names)
    if isinstance(features, Windows):
        return Windows(features.shape, features.size, axes=features.axes,
                       stride=features.stride, names=names)  # fmt: skip
    return Elements(features.n, names)


def _input_fingerprint(objective: PointObjective | MeanObjective, fixed: Any) -> str:
    """A digest of the input, of every baseline and of what is passed along."""
    ends: dict[str, Tensor] = {}
    for i, part in enumerate(objective.parts):
        ends |= {f"start {i}": part.start, f"end {i}": part.end}
    ends |= {f"fixed {k}": v for k, v in items_of(fixed) if isinstance(v, Tensor)}
    return digest(ends, f"{objective.layout} {described(fixed)}")


__all__ = ["Greedy", "explain", "explain_many"]
