"""`gp.explain` and `gp.explain_many`: from a model and an example to an `Attribution`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import repeat
from os import PathLike
from typing import Any, Literal, Never

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import Argument, GreedyPigWarning, InvalidInput, InvalidType, did_you_mean
from ..core.features import Elements, Features, Groups
from ..core.layout import Layout
from ..core.methods import MEASURED, as_method
from ..core.numbers import whole
from ..core.run import Run
from ..core.scorers import MarginalGains, Random
from ..core.stopping import Stop, as_stop
from ..network.fingerprint import callables
from ..network.fold import convolutional
from . import baselines
from .inputs import Example, Model, check_examples, check_names, ids_like
from .methods import choose, refuse_knobs
from .notes import notes_of
from .pictures import picture_shape, pixels, tokens
from .run import Folder, Progress, check_checkpoint, saved_run, versions
from .steady import SteadyPIG, bears_views
from .targets import Target, levels_to_caller

NAMED_FEATURES = {
    "elements": lambda layout: Elements(layout.n),
    "pixels": pixels,
    "tokens": tokens,
}


def explain(
    model: Callable[..., Any],
    x: Any,
    *,
    target: int | None = None,
    outputs: str | None = None,
    baseline: Any = None,
    objective: Any = None,
    features: Any = "elements",
    names: Sequence[str] | None = None,
    fixed: Any = None,
    method: Any = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    resume: Attribution | str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    **knobs: Never,
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
    seed: of everything random.
    batch_size: rows evaluated at once, "auto" or a number.
    resume: a stopped run of the same call, or its file; goes on as if it had never stopped.
    checkpoint: a file that is written after every round, to resume from after Ctrl-C or a crash.

    Examples:
        >>> a = gp.explain(lambda x: x.sum(1), torch.tensor([1.0, 3.0, 2.0]))
        >>> a.order.tolist()
        [1, 2, 0]
    """
    refuse_knobs(knobs, explain)
    check_checkpoint(checkpoint)
    question = objective, outputs, target is not None, baseline
    job = Job(model, *question, features, names, method, k, stop, seed, batch_size)
    run = job.run([job.example(x, target, fixed)], resume=resume)
    for _ in run:
        if checkpoint is not None:
            run.results(measure=False)[0].save(checkpoint)
    check_not_flat(run)
    return run.results()[0]


def explain_many(
    model: Callable[..., Any],
    xs: Iterable[Any],
    *,
    target: int | Sequence[int | None] | None = None,
    outputs: str | None = None,
    baseline: Any = None,
    objective: Any = None,
    features: Any = "elements",
    names: Sequence[str] | None = None,
    fixed: Any = None,
    method: Any = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[float, int | None], object] = False,
    **knobs: Never,
) -> Iterator[Attribution]:
    """`explain` for every example of an iterable; examples of one shape share device batches.

    Results are streamed in the order of xs. Each agrees with that of `explain` to rounding: batches
    of another size round otherwise. xs is read only as far as batches need. The arguments are
    those of `explain`, but for resume. A list of targets or of fixed inputs gives one per example.
    Stopping rules are per example. The seconds of a result are its share of its batches' time.

    checkpoint: a folder, made if it is not there, in which every result is saved when it is done:
        00000.gpig and so on. The same call goes on after an interruption: it reads the results in
        the folder and runs the examples that are left.
    progress: True writes how many examples are done to standard error; or a function that is
        called with that number and the length of xs, None where it has none. The examples that
        are running count by their rounds.

    Examples:
        >>> xs = torch.tensor([[1.0, 3.0, 2.0], [6.0, 5.0, 4.0]])
        >>> [a.order.tolist() for a in gp.explain_many(lambda x: x.sum(1), xs)]
        [[1, 2, 0], [0, 1, 2]]
    """
    refuse_knobs(knobs, explain_many)
    check_examples(xs)
    # A list is one per example; what else a caller may pass is the same for all.
    targets = target if isinstance(target, list | tuple | Tensor) else repeat(target)
    each = fixed if isinstance(fixed, list) else repeat(fixed)
    given = any(t is not None for t in ([target] if isinstance(targets, repeat) else targets))
    question = objective, outputs, given, baseline
    job = Job(model, *question, features, names, method, k, stop, seed, batch_size)
    folder = None if checkpoint is None else Folder(checkpoint)
    meter = Progress(progress, len(xs) if isinstance(xs, Sized) else None)
    return _stream(job, _examples(job, xs, iter(targets), iter(each)), folder, meter)


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


def _next(each: Iterator[Any], name: str, count: int) -> Any:
    for one in each:
        return one
    raise InvalidInput(f"Expected one {name} per example (got {count} for more examples).")


def _stream(
    job: Job, examples: Iterator[Example], folder: Folder | None, meter: Progress
) -> Iterator[Attribution]:
    """Examples are gathered as long as they may share batches, then run side by side. Those that
    the folder has already are not run again."""
    group: list[Example] = []
    most, done, error = 1, 0, None
    while True:
        try:
            example = next(examples, None)
        except Exception as failure:  # The results of those before come first.
            example, error = None, failure
        key = None if example is None else example.key
        number = done + len(group)
        saved = None if folder is None or example is None else folder.load(number)
        if group and (len(group) >= most or key != group[0].key or saved is not None):
            yield from _finish(job, group, done, folder, meter)
            done, group = done + len(group), []
        if example is None:
            break
        if saved is not None and folder is not None:
            yield folder.checked(done, saved, job.run([example], resume=saved))
            done += 1
            meter.report(done)
            continue
        most = most if group else job.side_by_side(example)
        group.append(example)
    if error is not None:
        raise error


def _finish(
    job: Job, group: Sequence[Example], first: int, folder: Folder | None, meter: Progress
) -> Iterator[Attribution]:
    """The results of examples side by side; where that fails, those before the one that fails."""
    try:
        run = job.run(group, labels=[f"input {first + i}" for i in range(len(group))])
        for _ in run:
            meter.report(first, run)
        check_not_flat(run)
        results = run.results()
        for i, a in enumerate(results, first):
            if folder is not None:
                folder.save(i, a)
        meter.report(first + len(group))
    except Exception:
        if len(group) == 1:
            raise
        for i, example in enumerate(group, first):
            yield from _finish(job, [example], i, folder, meter)
    else:
        yield from results


@dataclass(eq=False)
class Job:
    """The arguments of `explain` that do not depend on the example, checked once."""

    model: Callable[..., Any]
    objective: Any = None
    outputs: str | None = None
    class_given: bool = False
    baseline: Any = None
    features: Any = "elements"
    names: Sequence[str] | None = None
    method: Any = None
    k: int | None = None
    stop: Stop | None = None
    seed: int = 0
    batch_size: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        self.target = Target(self.objective, self.outputs, class_given=self.class_given)
        with torch.inference_mode(False):
            self.network = Model(self.model, self.target, batch_size=self.batch_size)
        self.by_name = self.method is None or isinstance(self.method, str)
        self.method = None if self.method is None else as_method(self.method)

    def example(self, x: Any, target: int | None = None, fixed: Any = None) -> Example:
        """One input, checked, with the model's output for it."""
        with torch.inference_mode(False):
            return self.network.example(x, target=target, fixed=fixed, baseline=self.baseline)

    def run(
        self,
        examples: Sequence[Example],
        *,
        labels: Sequence[str] = (),
        resume: Attribution | str | PathLike[str] | None = None,
    ) -> Run:
        """The run of examples that may share batches."""
        with torch.inference_mode(False):
            objective = self.network.objective(examples, labels)
            features = self._features(examples[0])
            method = self.method or choose(examples[0].layout, self.target.title)
            if isinstance(method, SteadyPIG):
                method = self._fitted(method, features, examples[0])
        known = versions() | callables(objective=self.target.function)
        known["model"] = self.network.fingerprint
        provenance = [known | {"input": e.fingerprint} for e in examples]
        settings = {
            "rival": self.target.against,
            "baseline": baselines.describe(self.baseline),
            "batch_size": whole(self.batch_size),
        }
        notes = [notes_of(self.model, example) for example in examples]
        return Run(
            objective,
            method,
            features=features,
            k=self.k,
            stop=self.stop,
            seed=self.seed,
            settings=[settings | self.target.described(e.reference) for e in examples],
            provenance=provenance,
            notes=notes.__getitem__,
            resume=saved_run(resume, provenance[0]),
        )

    def side_by_side(self, example: Example) -> int:
        """How many examples like this share rounds: as many as fill a batch with their points."""
        stop = as_stop(self.stop)
        alone = stop.value is not None or stop.gain or stop.seconds is not None
        read = getattr(self.features, "reads_input", False)
        # Whether views fit is decided for each picture.
        method = self.method or choose(example.layout, self.target.title)
        fitted = self.by_name and isinstance(method, SteadyPIG)
        alone |= getattr(method, "schedule", None) == MEASURED
        if alone or read or fitted or not self._features(example).side_by_side:
            return 1
        rows = self.network.objective([example]).rows
        return max(1, min(64, rows // len(example.baselines)))

    def _features(self, example: Example) -> Features:
        x = example.layout.unflatten(example.x)
        return make_features(self.features, self.names, example.layout, x)

    def _fitted(self, method: SteadyPIG, features: Features, example: Example) -> SteadyPIG:
        """Disable views for networks that are not convolutional, or whose output changes when the
        picture is mirrored; and neighbourhoods where features are not single values."""
        if not isinstance(features, Elements):
            method = replace(method, place=0.0)
        if not self.by_name:
            return method
        network = self.network.plain.module
        shape = picture_shape(example.layout, "method='steady-pig'")
        if network is not None and not convolutional(network):
            return method.without_views()
        with torch.no_grad():
            alike = bears_views(lambda p: self.network.logits(p, example), example.x, shape)
        return method if alike else method.without_views()


def check_not_flat(run: Run) -> None:
    """Refuse an output that does not depend on the features; warn of an order without meaning."""
    flat = ~run.state.first.any(1) if run.state.picks else run.state.taken.new_zeros(0)
    if not bool(flat.any()) or isinstance(run.scorer, Random | MarginalGains):
        return
    results, objective = run.results(), run.objective
    for b in torch.nonzero(flat).flatten().tolist():
        of = f" of {objective.labels[b]}" if objective.labels else ""
        moves = bool((objective.end[:, b] != objective.start[:, b]).any())
        full = results[b].full_value
        if full == float(results[b].values[0]) and moves:
            raise InvalidInput(
                f"Expected an output{of} that depends on the features (got every gradient 0, and "
                f"{full:g} with all features as with none).",
                advice=(
                    "Try another ",
                    Argument("target"),
                    ", ",
                    Argument("objective"),
                    " or ",
                    Argument("baseline"),
                    ".",
                ),
            )
        other: tuple[str | Argument, ...] = ("another ", Argument("baseline"), ".")
        why = "the input is the baseline itself"
        if moves:
            why = "the objective is flat where its gradient was taken"
            other = (Argument("objective", "log-probability"), " or 'logit', or ", *other)
        warning = GreedyPigWarning(
            f"Every score of the first round{of} is exactly 0, and features come in the order of "
            f"their indices: {why}.",
            advice=("Try ", *other),
        )
        warnings.warn(warning, stacklevel=levels_to_caller())


def make_features(spec: Any, names: Sequence[str] | None, layout: Layout, x: Any) -> Features:
    """The features of an input by features= and names= of `explain`."""
    if isinstance(spec, str):
        if spec not in NAMED_FEATURES:
            raise InvalidInput(
                f"Expected features to be one of {', '.join(NAMED_FEATURES)}, gp.grid(b), "
                f"gp.windows(b), gp.superpixels() or a tensor of group ids (got {spec!r})."
                f"{did_you_mean(spec, NAMED_FEATURES)}"
            )
        spec = NAMED_FEATURES[spec]
    if callable(spec):
        spec = spec(layout, x) if getattr(spec, "reads_input", False) else spec(layout)
    elif isinstance(spec, tuple | list | dict) or hasattr(spec, "__array__"):
        spec = Groups(_group_ids(spec, layout))
    if not isinstance(spec, Features):
        raise InvalidType(
            f"Expected features to be a name, gp.grid(b), gp.windows(b), gp.superpixels(), a "
            f"Features object or group ids (got {type(spec).__name__})."
        )
    if spec.n != layout.n:
        raise InvalidInput(f"Expected features over {layout.n} values (got {spec.n}).")
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
            f"(got {got})."
        )
    parts = []
    for each, shape, name in zip(ids, layout.shapes, layout.names, strict=True):
        parts.append(ids_like(name, shape, each).reshape(-1))
    return torch.cat(parts)
