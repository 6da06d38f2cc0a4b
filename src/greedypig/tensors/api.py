"""`gp.explain` and `gp.explain_many`: from a model and an example to an `Attribution`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import repeat
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import advise
from ..core.attribution import Attribution
from ..core.carry_out import carry_out
from ..core.errors import (
    Argument,
    GreedyPigWarning,
    InvalidInput,
    InvalidType,
    did_you_mean,
    levels_to_caller,
)
from ..core.features import Features, Groups
from ..core.layout import Layout
from ..core.methods import Method, as_method
from ..core.numbers import whole
from ..core.objective import Objective
from ..core.progress import Progress
from ..core.question import Question, Record, alone_among
from ..core.registry import FEATURES, ROWS, serving
from ..core.revisions import revisions_of
from ..core.rules import rules_of
from ..core.stopping import Stop, as_stop
from ..network.fingerprint import callables, versions
from ..types import (
    Baseline,
    BatchSize,
    FeaturesLike,
    Fixed,
    Inputs,
    MethodLike,
    Model,
    ObjectiveLike,
    PathOrText,
    ProgressLike,
    Seed,
    Target,
)
from . import baselines
from .inputs import Example, check_examples, check_names, ids_like
from .inputs import Model as ModelInputs
from .methods import choose
from .notes import notes_of
from .targets import Target as OutputTarget


@advise
def explain(
    model: Model,
    x: Inputs,
    *,
    fixed: Fixed = None,
    target: Target = None,
    outputs: str | None = None,
    objective: ObjectiveLike = None,
    baseline: Baseline = None,
    features: FeaturesLike = "elements",
    names: Sequence[str] | None = None,
    method: MethodLike | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: Seed = 0,
    batch_size: BatchSize = "auto",
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Which features of the example x does the model use for its output?

    model: an nn.Module or any callable from a batch to logits; never changed. A convolutional
        module is explained by a private copy with BatchNorm folded, where that copy gives the same
        outputs; a plain function around the module keeps it as it is. Figures use its attributes
        `classes`, the names of its outputs, and `to_pixels`, from x to its picture in [0, 1].
    x: one example without a batch axis: a tensor, or a tuple or dict of tensors.
    target: the class to explain; None takes the predicted one. 0 or 1 for a binary logit.
    outputs: "logits", "probabilities" if the model ends in a softmax or sigmoid, or "values" for
        a regression. Where it is None, several outputs are logits. One output is a value, unless
        target or an objective over classes asks for classes: then it is the logit of class 1.
    baseline: what an absent feature looks like: number, tensor, callable, name ("zero", "gray",
        "black", "white", "mean", "blur"), or a list of these, averaged.
    objective: "softmax", "log-likelihood", "log-probability", "logit", "margin",
        "counterfactual", gp.margin(against=…), or a callable from logits to one number per row;
        "increase" or "decrease" for a value. None takes "softmax" for classes; for a value, what
        moves it from the baseline's output to the input's. gp.two_sided(…) of any of these asks
        for necessity beside sufficiency.
    features: "elements", "pixels", "tokens", gp.grid(b), gp.windows(b), gp.superpixels(), a
        Features object, or an integer tensor of group ids shaped like x.
    names: one per feature.
    fixed: inputs passed along and not explained, a tuple (after x) or a dict (by name). Tensors
        are of this example, without a batch axis as x is: the model gets one row for each of its
        rows. What is the same for all rows (weights, a table) belongs into the model.
    method: None (chosen by what is explained, see `greedypig.tensors.methods`), a name
        ("greedy-pig", "steady-pig", "sequential-gradient", "ig", "gradient", "smooth-ig",
        "blur-ig", "guided-ig", "random"), or an object that carries its knobs:
        gp.GreedyPIG(rounds=100, steps=20), gp.IG(steps=50), gp.Greedy(gp.GuidedIG()).
    k: how many features to select (default: all).
    stop: gp.Stop(gradients=…, seconds=…, value=…, gain=True): reasons to stop early.
    seed: of everything random; (seed, i) for the random numbers of example i in `explain_many`.
    batch_size: rows evaluated at once, "auto" or a number.
    checkpoint: a file to which rounds are saved, and the result. The same call goes on from it as
        if it had never stopped; a file of another question is refused and left as it is.
    progress: True for a line on standard error, or a function that is called with the rounds done
        and the number of rounds, before the first and after every one.

    Examples:
        >>> a = gp.explain(lambda x: x.sum(1), torch.tensor([1.0, 3.0, 2.0]))
        >>> a.order.tolist()
        [1, 2, 0]
    """
    job = Job(
        model=model,
        objective=objective,
        outputs=outputs,
        class_given=target is not None,
        baseline=baseline,
        features=features,
        names=names,
        method=method,
        batch_size=batch_size,
    )
    question, chosen = job.question([job.example(x, target, fixed)])
    search: dict[str, Any] = {"k": k, "stop": stop, "seed": seed}
    return carry_out(question, chosen, **search, checkpoint=checkpoint, progress=progress)[0]


@advise
def explain_many(
    model: Model,
    xs: Iterable[Inputs],
    *,
    fixed: Fixed | list[Fixed] = None,
    target: Target | Sequence[Target] = None,
    outputs: str | None = None,
    objective: ObjectiveLike = None,
    baseline: Baseline = None,
    features: FeaturesLike = "elements",
    names: Sequence[str] | None = None,
    method: MethodLike | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: Seed = 0,
    batch_size: BatchSize = "auto",
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Iterator[Attribution]:
    """`explain` for every example of an iterable; examples of one shape share device batches.

    Results are streamed in the order of xs. Each agrees with that of `explain` to rounding: batches
    of another size round otherwise. xs is read only as far as batches need. The arguments are
    those of `explain`. A list of targets or of fixed inputs gives one per example. Stopping rules
    are per example. Random numbers depend on the seed and the example's place in xs. The seconds of
    a result are its share of its batches' time.

    checkpoint: a folder, made if it is not there, with a file for every example, 00000.gpig and so
        on, to which its rounds are saved, and its result. The same call goes on after an
        interruption.
    progress: True for a line on standard error, or a function that is called with the examples
        done and the length of xs, None where it has none. The examples that are running count by
        their rounds.

    Examples:
        >>> xs = torch.tensor([[1.0, 3.0, 2.0], [6.0, 5.0, 4.0]])
        >>> [a.order.tolist() for a in gp.explain_many(lambda x: x.sum(1), xs)]
        [[1, 2, 0], [0, 1, 2]]
    """
    check_examples(xs)
    # A list is one per example; what else a caller may pass is the same for all.
    targets = target if isinstance(target, list | tuple | Tensor) else repeat(target)
    each_fixed = fixed if isinstance(fixed, list) else repeat(fixed)
    given = any(t is not None for t in ([target] if isinstance(targets, repeat) else targets))
    job = Job(
        model=model,
        objective=objective,
        outputs=outputs,
        class_given=given,
        baseline=baseline,
        features=features,
        names=names,
        method=method,
        batch_size=batch_size,
    )
    search = {"k": k, "stop": as_stop(stop), "seed": seed}
    folder = None if checkpoint is None else Folder(checkpoint)
    told = Progress(progress, "examples")
    total = len(xs) if isinstance(xs, Sized) else None
    many = Many(job, search, folder, lambda done: told(done, total))
    return _told(many.results(_examples(job, xs, iter(targets), iter(each_fixed))), told)


def _told(results: Iterator[Attribution], told: Progress) -> Iterator[Attribution]:
    """The results; the line of progress ends with them, also after an error."""
    try:
        yield from results
    finally:
        told.end()


def _examples(
    job: Job, xs: Iterable[Any], targets: Iterator[Any], fixed: Iterator[Any]
) -> Iterator[Example]:
    """The examples of xs, checked."""
    for i, x in enumerate(xs):
        try:
            yield job.example(x, _next(targets, "target", i), _next(fixed, "fixed", i))
        except Exception as error:
            error.add_note(f"This was input {i} of explain_many, counted from 0.")
            raise


def _next(given: Iterator[Any], name: str, count: int) -> Any:
    for one in given:
        return one
    raise InvalidInput(f"Expected one {name} per example (got {count} for more examples).")


@dataclass(eq=False)
class Many:
    """Examples that are explained one after the other, those that may share batches together."""

    job: Job
    search: dict[str, Any]
    """k, stop and seed."""
    folder: Folder | None
    tell: Callable[[float], None]
    """Is told how many examples are done."""

    def results(self, examples: Iterator[Example]) -> Iterator[Attribution]:
        """Examples are gathered as long as they may share batches, then run side by side. Those
        that the folder has already are not run again."""
        group: list[Example] = []
        most, done, error = 1, 0, None
        while True:
            try:
                example = next(examples, None)
            except Exception as failure:  # The results of those before come first.
                example, error = None, failure
            key = None if example is None else example.key
            number = done + len(group)
            saved = self.folder is not None and self.folder.file(number).exists()
            if group and (len(group) >= most or key != group[0].key or saved):
                yield from self._explained(group, done)
                done, group = done + len(group), []
            if example is None:
                break
            if saved:
                yield from self._explained([example], done)
                done += 1
                continue
            most = most if group else self._side_by_side(example)
            group.append(example)
        if error is not None:
            raise error

    def _explained(self, group: Sequence[Example], first: int) -> Iterator[Attribution]:
        """The results of examples side by side; where that fails, those before the one that
        fails."""
        labels = [f"input {first + i}" for i in range(len(group))]
        alone = len(group) == 1
        files = [self.folder.file(n) for n, _ in enumerate(group, first)] if self.folder else []
        try:
            question, method = self.job.question(group, labels, first)
            results = carry_out(
                question,
                method,
                **self.search,
                checkpoint=files[0] if files and alone else None,
                saves=[] if alone else files,
                # What is measured after the rounds counts as one more.
                progress=lambda r, rounds: self.tell(first + len(group) * r / (1 + (rounds or 0))),
            )
        except Exception:
            if alone:
                raise
            for number, example in enumerate(group, first):
                yield from self._explained([example], number)
        else:
            self.tell(first + len(group))
            yield from results

    def _side_by_side(self, example: Example) -> int:
        """How many examples like this share rounds: as many as fill a batch with their points."""
        job, stop = self.job, self.search["stop"]
        method = job.method_for(example)
        revisions = method.revisions(self.search["k"], stop) + revisions_of(stop)
        alone = bool(alone_among(revisions, rules_of(stop)))
        # Whether views fit is decided for each picture.
        alone |= bool(job.by_name) and method.fits_each_input
        read = getattr(job.features, "reads_input", False)
        if alone or read or not job.features_of(example).side_by_side:
            return 1
        rows = job.model_inputs.objective([example]).rows
        return max(1, min(64, rows // len(example.baselines)))


class Folder:
    """The results of `explain_many` in a folder, a file for each example, by number."""

    def __init__(self, path: str | PathLike[str]) -> None:
        if not isinstance(path, str | PathLike):
            raise InvalidType(
                f"Expected checkpoint to be a path (got {path!r}).", argument="checkpoint"
            )
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise InvalidInput(
                f"Expected checkpoint to be a folder for explain_many (got a file, "
                f"{fspath(path)!r}).",
                argument="checkpoint",
            )
        self.path.mkdir(parents=True, exist_ok=True)

    def file(self, number: int) -> Path:
        """The file of an example."""
        return self.path / f"{number:05}.gpig"


@dataclass(eq=False, kw_only=True)
class Job:
    """The arguments of `explain` that do not depend on the example, checked once."""

    model: Model
    objective: ObjectiveLike = None
    outputs: str | None = None
    class_given: bool = False
    baseline: Baseline = None
    features: FeaturesLike = "elements"
    names: Sequence[str] | None = None
    method: MethodLike | None = None
    batch_size: BatchSize = "auto"
    by_name: bool | None = None
    """Is the method fitted to the model? None fits it unless it is given as an object."""

    def __post_init__(self) -> None:
        self.target = OutputTarget(self.objective, self.outputs, class_given=self.class_given)
        with torch.inference_mode(False):
            self.model_inputs = ModelInputs(self.model, self.target, batch_size=self.batch_size)
        if self.by_name is None:
            self.by_name = self.method is None or isinstance(self.method, str)
        self.chosen = None if self.method is None else as_method(self.method)

    def example(self, x: Any, target: Any = None, fixed: Any = None) -> Example:
        """One input, checked, with the model's output for it."""
        with torch.inference_mode(False):
            return self.model_inputs.example(x, target=target, fixed=fixed, baseline=self.baseline)

    def question(
        self, examples: Sequence[Example], labels: Sequence[str] = (), first: int = 0
    ) -> tuple[Question, Method]:
        """The question about examples that may share batches, and the method that answers it.

        first: the first one's place among the caller's examples.
        """
        with torch.inference_mode(False):
            objective = self.model_inputs.objective(examples, labels)
            features = self.features_of(examples[0])
            method = self.method_for(examples[0])
            method = method.fitted(objective, features, by_name=bool(self.by_name))
        origin = versions() | callables(objective=self.target.function)
        origin["model"] = self.model_inputs.fingerprint
        settings = {
            "rival": self.target.against,
            "baseline": baselines.describe(self.baseline),
            "batch_size": whole(self.batch_size),
        }
        records = [
            Record(
                settings | self.target.described(example.reference),
                origin | {"input": example.fingerprint},
                lambda example=example: notes_of(self.model, example),  # type: ignore[misc]
                place,
            )
            for place, example in enumerate(examples, first)
        ]
        may_be_flat = method.round_scorer.may_be_flat

        def finish(problem: int, attribution: Attribution) -> Attribution:
            if not may_be_flat:
                check_not_flat(objective, problem, attribution)
            return attribution

        return Question(objective, features, tuple(records), finish=finish), method

    def method_for(self, example: Example) -> Method:
        """The method given, or the one chosen for an input of this layout."""
        return self.chosen or choose(example.layout, self.target.title)

    def features_of(self, example: Example) -> Features:
        """The features of an input."""
        x = example.layout.unflatten(example.x)
        return make_features(self.features, self.names, example.layout, x)


def check_not_flat(objective: Objective, problem: int, attribution: Attribution) -> None:
    """Refuse an output that does not depend on the features; warn of an order without meaning."""
    first = attribution.order[: sum(attribution.picks[:1])]
    scored = any(attribution.totals[:1]) or attribution.feature_scores[first].any()
    if scored or not attribution.picks:
        return
    of = f" of {objective.labels[problem]}" if objective.labels else ""
    moves = bool((objective.end[:, problem] != objective.start[:, problem]).any())
    full = attribution.full_value
    if full == float(attribution.values[0]) and moves:
        argument = Argument("target"), ", ", Argument("objective"), " or ", Argument("baseline")
        raise InvalidInput(
            f"Expected an output{of} that depends on the features (got every gradient 0, and "
            f"{full:g} with all features as with none).",
            advice=("Try another ", *argument, "."),
        )
    why = "the input is the baseline itself"
    advice: tuple[str | Argument, ...] = ("Try another ", Argument("baseline"), ".")
    if moves:
        why = "the objective is flat where its gradient was taken"
        objectives = Argument("objective", "log-probability"), " or 'logit'"
        advice = ("Try ", *objectives, ", or another ", Argument("baseline"), ".")
    warnings.warn(
        GreedyPigWarning(
            f"Every score of the first round{of} is exactly 0, and features come in the order of "
            f"their indices: {why}.",
            advice=advice,
        ),
        stacklevel=levels_to_caller(),
    )


def make_features(spec: Any, names: Sequence[str] | None, layout: Layout, x: Any) -> Features:
    """The features of an input by features= and names= of `explain`."""
    if isinstance(spec, str):
        known = serving(FEATURES, ROWS)
        if spec not in known:
            raise InvalidInput(
                f"Expected features to be one of {', '.join(known)}, gp.grid(b), "
                f"gp.windows(b), gp.superpixels() or a tensor of group ids (got {spec!r})."
                f"{did_you_mean(spec, known)}",
                argument="features",
            )
        spec = FEATURES[spec].factory
    if callable(spec):
        spec = spec(layout, x) if getattr(spec, "reads_input", False) else spec(layout)
    elif isinstance(spec, tuple | list | dict) or hasattr(spec, "__array__"):
        spec = Groups(_group_ids(spec, layout))
    if not isinstance(spec, Features):
        raise InvalidType(
            f"Expected features to be a name, gp.grid(b), gp.windows(b), gp.superpixels(), a "
            f"Features object or group ids (got {type(spec).__name__}).",
            argument="features",
        )
    if spec.n != layout.n:
        raise InvalidInput(
            f"Expected features over {layout.n} values (got {spec.n}).", argument="features"
        )
    return spec if names is None else spec.named(check_names(names))


def _group_ids(spec: Any, layout: Layout) -> Tensor:
    """(n,) the groups of all values, of ids that broadcast to each input."""
    if isinstance(spec, dict) and layout.kind == "dict" and set(spec) == set(layout.names):
        spec = [spec[name] for name in layout.names]
    ids = list(spec) if isinstance(spec, tuple | list) else [spec]
    if isinstance(spec, dict) or len(ids) != len(layout.shapes):
        got = ", ".join(map(str, spec)) if isinstance(spec, dict) else len(ids)
        raise InvalidInput(
            f"Expected group ids for {len(layout.shapes)} inputs, {', '.join(layout.names)} "
            f"(got {got}).",
            argument="features",
        )
    parts = []
    for each, shape, name in zip(ids, layout.shapes, layout.names, strict=True):
        parts.append(ids_like(name, shape, each).reshape(-1))
    return torch.cat(parts)
