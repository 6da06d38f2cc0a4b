"""The model's output with only the top features present, as a function of how many they are.

The paper's evaluation (Axiotis et al. 2023, Section 5.1 and Appendix): the Softmax Information
Curve (SIC) and the Loss Information Curve (LIC) over the number of values kept, from none to all,
both ends included. `insertion` and `deletion` are those of Petsiuk et al. 2018 (RISE). All curves
take the same keyword arguments, `CurveOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, NonFinite
from ..core.layout import Layout
from ..core.objective import Objective
from ..results.curve import DELETION, Curve
from ..tensors.baselines import describe, recorded, resolve
from ..tensors.inputs import Example, Model
from ..tensors.targets import Reference, References, Target
from .judges import check_same_classes, name_of, translation
from .ranking import counts_needed


class CurveOptions(TypedDict, total=False):
    """The keyword arguments of every curve."""

    target: int | Sequence[int | None] | None
    """The class. None takes the explained one, else the model's prediction. For
    `information_curves_many` also a list with one class per example."""
    baseline: Any
    """What absent values look like, as in `gp.explain`. None takes the explained one. A list is
    averaged over."""
    points: int | Sequence[float]
    """How many equally spaced k from 0 to n, both included (default 100; at most n + 1), or a
    rising list of shares of n. A feature of several values is shown once k has room for all."""
    judge: Callable[..., Any] | None
    """Another network, for a second opinion. It gets the same masks and the same class. Where both
    models know their preprocessing (`to_pixels`, `from_pixels`), each picture is converted; else
    the judge takes the same tensor. The loss is then against the judge's own output at the full
    input."""
    ranking: str | None
    """"order" of selection, "absolute" or "signed" scores. None takes "order" for greedy runs and
    permutations, "absolute" for one-shot methods, as the paper does."""
    fixed: Any
    """Inputs passed along, as in `gp.explain`. For `information_curves_many` also a list with one
    per example."""
    outputs: str | None
    """"logits", "probabilities" or "values", as in `gp.explain`."""
    batch_size: int | Literal["auto"]
    """Rows evaluated at once."""


def softmax_information_curve(
    model: Callable[..., Any], x: Any, a: Any, **options: Unpack[CurveOptions]
) -> Curve:
    """SIC: values_i = f_c(x_S), S the top k_i values of x, f the softmax of the model's logits.

    a: an Attribution, a permutation of x's values (best first), or scores shaped like x. For a
    model with a single output that is no logit the curve follows that output.
    """
    return _curves_of(model, x, a, ("softmax",), options)["softmax"]


def loss_information_curve(
    model: Callable[..., Any], x: Any, a: Any, **options: Unpack[CurveOptions]
) -> Curve:
    """LIC: values_i = KL(f(x) ‖ f(x_S)) = Σ_c f_c(x) · log(f_c(x) / f_c(x_S)), in nats.

    Lower is better. a: as for `softmax_information_curve`.
    """
    return _curves_of(model, x, a, ("loss",), options)["loss"]


def information_curves(
    model: Callable[..., Any], x: Any, a: Any, **options: Unpack[CurveOptions]
) -> dict[str, Curve]:
    """The SIC and the LIC of one example, {"softmax": …, "loss": …}, from the same forward passes.

    a: as for `softmax_information_curve`. The cost is one forward row per point (`forwards` in
    `curve.settings`), and a few more where a convolutional network gets a faster copy.
    """
    return _curves_of(model, x, a, ("softmax", "loss"), options)


def insertion(model: Callable[..., Any], x: Any, a: Any, **options: Unpack[CurveOptions]) -> Curve:
    """RISE's insertion: the target's softmax as the top values come into a blurred picture.

    Higher is better. It is the SIC with baseline="blur", which hides detail without the sharp
    edges of a gray mask. For inputs that are not pictures give a baseline.
    """
    return _curves_of(model, x, a, ("insertion",), {"baseline": "blur", **options})["insertion"]


def deletion(model: Callable[..., Any], x: Any, a: Any, **options: Unpack[CurveOptions]) -> Curve:
    """RISE's deletion: the target's softmax as the top values are replaced by the baseline.

    values_i = f_c(x without its top k_i values), from the full input to the baseline. Lower is
    better.
    """
    return _curves_of(model, x, a, ("deletion",), options)["deletion"]


def information_curves_many(
    model: Callable[..., Any],
    xs: Iterable[Any],
    attributions: Iterable[Any],
    **options: Unpack[CurveOptions],
) -> Iterator[dict[str, Curve]]:
    """`information_curves` for every example of an iterable; small examples share batches.

    Curves are streamed in the order of xs, which is read only as far as batches need.
    """
    given = options.get("target") is not None
    return _Sweep(model, ("softmax", "loss"), given, **options).stream(xs, attributions)


def counts_of(points: int | Sequence[float], n: int) -> tuple[int, ...]:
    """How many of n values the points of a curve show: i · n / (points − 1), rounded half up."""
    if isinstance(points, int) and not isinstance(points, bool):
        if points < 2:
            raise InvalidInput(f"Expected at least 2 points, none and all (got {points}).")
        gaps = min(points, n + 1) - 1
        return tuple((2 * i * n + gaps) // (2 * gaps) for i in range(gaps + 1))
    if isinstance(points, bool | str) or not isinstance(points, Sequence | Tensor):
        raise InvalidType(
            f"Expected points to be a whole number or a list of shares (got {points!r})."
        )
    shares = [float(share) for share in points]
    rising = all(low < high for low, high in pairwise(shares))
    if len(shares) < 2 or not rising or not (shares[0] >= 0 and shares[-1] <= 1):
        raise InvalidInput(
            f"Expected at least two shares from 0 to 1, rising (got {len(shares)} of them, "
            "too few, out of range or out of order)."
        )
    return tuple(int(share * n + 0.5) for share in shares)


def _curves_of(
    model: Callable[..., Any], x: Any, a: Any, kinds: tuple[str, ...], options: CurveOptions
) -> dict[str, Curve]:
    given = options.get("target") is not None or _class_of(a) is not None
    sweep = _Sweep(model, kinds, given, **options)
    return sweep.curves([sweep.masked(x, a, sweep.target, sweep.fixed)])[0]


class _Outputs(Target):
    """A target that keeps, of every row, what the curves need: (m, 2) float64 in `rows`.

    p_c(row), and KL(f(x) ‖ f(row)) = Σ_c f_c(x) · (log f_c(x) − log f_c(row)). Of an output that is
    a value: the value itself, and NaN.
    """

    rows: list[Tensor]

    def is_undirected(self, reference: Reference) -> bool:
        """No: a curve follows a value whichever way it moves."""
        return False

    def values(self, logits: Tensor, references: References, problems: Tensor) -> Tensor:
        """(m,): p_c of every row, or the value. Numbers that are not finite are found in `rows`."""
        rows = self.measured(logits, references.output[problems], references.target[problems])
        self.rows.append(rows)
        return rows[:, 0].nan_to_num()

    @staticmethod
    def measured(logits: Tensor, full: Tensor, target: Tensor) -> Tensor:
        """(m, 2) of logits (m, classes), those at the full input and the classes (m,)."""
        logits = logits.detach().double()
        if logits.dim() == 1:
            return torch.stack([logits, torch.full_like(logits, torch.nan)], 1)
        log_f, log_full = torch.log_softmax(logits, 1), torch.log_softmax(full.double(), 1)
        loss = (log_full.exp() * (log_full - log_f)).sum(1).clamp_min(0)
        return torch.stack([log_f.gather(1, target.unsqueeze(1)).squeeze(1).exp(), loss], 1)


@dataclass(frozen=True, eq=False)
class _Masked:
    """One example, and the order in which its values are shown."""

    layout: Layout
    """Of the explained model's input, in which masks are made."""
    x: Tensor
    """(n,) the explained model's input."""
    baselines: Tensor
    """(lines, n) what absent values look like."""
    needed: Tensor
    """(n,) long: with how many values present each one is among them."""
    example: Example
    """The full input as the evaluated network gets it, with its output."""
    settings: dict[str, Any]
    """What the curves record."""

    @property
    def key(self) -> object:
        """Examples with equal keys may share batches."""
        return self.layout, self.example.key, len(self.baselines)


class _Sweep:
    """One call: the network that is evaluated (the model, or its judge) and which curves."""

    def __init__(
        self,
        model: Callable[..., Any],
        kinds: tuple[str, ...],
        class_given: bool,
        *,
        target: Any = None,
        baseline: Any = None,
        points: int | Sequence[float] = 100,
        judge: Callable[..., Any] | None = None,
        ranking: str | None = None,
        fixed: Any = None,
        outputs: str | None = None,
        batch_size: int | Literal["auto"] = "auto",
    ) -> None:
        counts_of(points, 1)  # Wrong points are refused before a network is evaluated.
        if judge is not None:
            check_same_classes(model, judge)
        self.model, self.judge, self.kinds = model, judge, kinds
        self.removes = DELETION in kinds
        self.target, self.fixed, self.baseline = target, fixed, baseline
        self.points, self.ranking, self.batch_size = points, ranking, batch_size
        self.outputs = _Outputs(None, outputs, class_given=class_given)
        evaluated = model if judge is None else judge
        with torch.inference_mode(False):
            self.network = Model(evaluated, self.outputs, batch_size=batch_size)
            self.translate = None if judge is None else translation(model, judge)

    @cached_property
    def explained(self) -> Model:
        """The explained model beside its judge, for the class that it predicts."""
        return Model(self.model, self.outputs)

    @torch.inference_mode(False)
    def masked(self, x: Any, a: Any, target: int | None, fixed: Any) -> _Masked:
        """One example with its ranking, checked."""
        layout = Layout.of(x)
        needed, ranking = counts_needed(a, layout, self.ranking)
        baseline = _baseline_of(a) if self.baseline is None else self.baseline
        target, forwards = _class_of(a) if target is None else target, 1
        if target is None and self.judge is not None:
            target, forwards = self.explained.example(x, fixed=fixed).reference.target, 2
        example = self.network.example(self._translated(x), target=target, fixed=fixed)
        if "loss" in self.kinds and not example.reference.classes:
            raise InvalidInput(
                "Expected class scores for the loss curve (got a single output per row, read as a "
                "value). Try softmax_information_curve, which follows that output, or "
                "outputs='logits' for a binary classifier."
            )
        flat = example.x if self.translate is None else layout.flatten(x).detach()
        baselines = torch.stack([b.to(flat) for b in resolve(baseline, x, layout, self.model)])
        settings = {
            "ranking": ranking, "baseline": describe(baseline),
            "target": example.reference.target,
            "judge": None if self.judge is None else name_of(self.judge), "forwards": forwards,
        }  # fmt: skip
        return _Masked(layout, flat, baselines.detach(), needed.to(flat.device), example, settings)

    @torch.inference_mode(False)
    def curves(self, group: Sequence[_Masked]) -> list[dict[str, Curve]]:
        """The curves of examples that may share batches."""
        objective = self._objective(group)
        n = objective.n
        counts = torch.tensor(counts_of(self.points, n), device=objective.end.device)
        references = References.of([m.example.reference for m in group])
        full = _Outputs.measured(references.output, references.output, references.target)
        table = full.unsqueeze(1).repeat(1, len(counts), 1)
        whole = 0 if self.removes else n
        rest = torch.nonzero(counts != whole).squeeze(1)  # The full input's output is known.
        needed = torch.stack([m.needed for m in group]).unsqueeze(1)
        for part in rest.split(objective.points):  # type: ignore[no-untyped-call]
            top = needed <= counts[part].view(1, -1, 1)
            self.outputs.rows = []
            objective.values(~top if self.removes else top)
            rows = torch.cat(self.outputs.rows).view(objective.lines, len(group), len(part), 2)
            self._check_finite(rows, counts[part], n)
            table[:, part] = rows.mean(0)
        curves: list[dict[str, Curve]] = [{} for _ in group]
        for i, one in enumerate(group):
            forwards = one.settings["forwards"] + len(rest) * objective.lines
            settings = one.settings | {"forwards": forwards}
            for kind in self.kinds:
                j = int(kind == "loss")
                values, whole_value = table[i, :, j], float(full[i, j])
                curves[i][kind] = Curve(counts.double() / n, values, kind, whole_value, settings)
        return curves

    def stream(self, xs: Iterable[Any], attributions: Iterable[Any]) -> Iterator[dict[str, Curve]]:
        """The curves of many examples in their order."""
        group: list[_Masked] = []
        for one in self._examples(xs, attributions):
            if isinstance(one, Exception):
                yield from self.curves(group) if group else []
                raise one
            if group and (one.key != group[0].key or len(group) >= self._most(group[0])):
                yield from self.curves(group)
                group = []
            group.append(one)
        yield from self.curves(group) if group else []

    def _examples(
        self, xs: Iterable[Any], attributions: Iterable[Any]
    ) -> Iterator[_Masked | Exception]:
        """Every example, checked; an error comes last, so that those before it are finished."""
        index = 0
        try:
            for index, (x, a) in enumerate(_pairs(xs, attributions)):
                target = _own(self.target, list | tuple | Tensor, index, "target")
                yield self.masked(x, a, target, _own(self.fixed, list, index, "fixed input"))
        except Exception as error:
            error.add_note(f"This was input {index} of information_curves_many, counted from 0.")
            yield error

    def _most(self, one: _Masked) -> int:
        """How many examples like this one fit a batch with all their points but the full input."""
        rows = (len(counts_of(self.points, len(one.x))) - 1) * len(one.baselines)
        return max(1, min(64, self._objective([one]).rows // rows))

    def _objective(self, group: Sequence[_Masked]) -> Objective:
        """The evaluated network over masks of the explained model's inputs."""
        network: Objective = self.network.objective([m.example for m in group])
        if self.translate is not None:
            network = network.seen(lambda points, _: self._view(points, group[0]))
        start = torch.stack([m.baselines for m in group], 1)
        end = torch.stack([m.x for m in group]).expand_as(start)
        return Objective(network.function, start, end, batch_size=self.batch_size)

    def _view(self, points: Tensor, one: _Masked) -> Tensor:
        """Inputs (m, n) of the explained model as inputs of its judge."""
        assert self.translate is not None
        images = self.translate(points.view(-1, *one.layout.shapes[0]))
        return images.reshape(len(points), -1).to(one.example.x)

    def _translated(self, x: Any) -> Any:
        if self.translate is None:
            return x
        if not isinstance(x, Tensor) or x.dim() != 3:
            raise InvalidInput(
                "Expected one picture (channels, height, width) for two models that know their "
                f"own preprocessing (got {Layout.of(x).shapes})."
            )
        return self.translate(x.detach().unsqueeze(0))[0]

    def _check_finite(self, rows: Tensor, counts: Tensor, n: int) -> None:
        """(lines, b, s, 2): name the first output that is NaN or infinite."""
        finite = torch.isfinite(rows[..., 0] if "loss" not in self.kinds else rows.sum(3))
        if bool(finite.all()):
            return
        at = int(counts[torch.nonzero(~finite)[0, 2]])
        verb = "removed" if self.removes else "present"
        raise NonFinite(
            f"Expected finite outputs (got NaN or infinity with {at} of {n} values {verb})."
        )


def _class_of(a: Any) -> int | None:
    """The class an attribution was made for, where it was made for one."""
    if not isinstance(a, Attribution) or a.settings.get("objective") == "callable":
        return None
    target = a.settings.get("target")
    return target if isinstance(target, int) else None


def _baseline_of(a: Any) -> Any:
    """The baseline an attribution was made with; refused where its record does not hold it."""
    if not isinstance(a, Attribution):
        return None
    baseline = a.settings.get("baseline")
    if not recorded(baseline):
        raise InvalidInput(
            f"Expected the baseline that the attribution was made with (got None, and its record "
            f"says only {baseline!r}). Try baseline= the one given to gp.explain."
        )
    return baseline


def _pairs(xs: Iterable[Any], attributions: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    missing = object()  # zip(strict=True) would raise a plain ValueError that names neither.
    for i, (x, a) in enumerate(zip_longest(xs, attributions, fillvalue=missing)):
        if a is missing:
            raise InvalidInput(f"Expected one attribution per example (got {i} for more examples).")
        if x is missing:
            raise InvalidInput("Expected one example per attribution (got more attributions).")
        yield x, a


def _own(option: Any, several: Any, i: int, name: str) -> Any:
    """The option of example i; one that is not `several` is the same for all."""
    if not isinstance(option, several):
        return option
    if i >= len(option):
        raise InvalidInput(
            f"Expected one {name} per example (got {len(option)} for more examples)."
        )
    return option[i]
