"""The model's output with only the top features present, as a function of how many they are.

The paper's evaluation (Axiotis et al. 2023, Section 5.1 and Appendix): the Softmax Information
Curve (SIC) and the Loss Information Curve (LIC) over the number of values kept, from none to all,
both ends included. `insertion` and `deletion` are those of Petsiuk et al. 2018 (RISE). All curves
take the same keyword arguments, `CurveOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, NonFinite
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
    """`information_curves` for every example of an iterable, streamed in the order of xs."""
    given = options.get("target") is not None
    question = _Question(model, ("softmax", "loss"), given, **options)
    missing = object()  # zip(strict=True) would raise a plain ValueError that names neither.
    for i, (x, a) in enumerate(zip_longest(xs, attributions, fillvalue=missing)):
        if x is missing or a is missing:
            more = "attributions" if x is missing else "examples"
            raise InvalidInput(f"Expected one attribution per example (got {i} and more {more}).")
        try:
            target = _one_of(question.target, list | tuple | Tensor, i, "target")
            fixed = _one_of(question.fixed, list, i, "fixed input")
            curves = question.curves(x, a, target, fixed)
        except Exception as error:
            error.add_note(f"This was input {i} of information_curves_many, counted from 0.")
            raise
        yield curves


def counts_of(points: int | Sequence[float], n: int) -> tuple[int, ...]:
    """How many of n values the points of a curve show: i · n / (points − 1), rounded half up."""
    if isinstance(points, int):
        if points < 2:
            raise InvalidInput(f"Expected at least 2 points, none and all (got {points}).")
        gaps = min(points, n + 1) - 1
        return tuple((2 * i * n + gaps) // (2 * gaps) for i in range(gaps + 1))
    shares = [float(share) for share in points]
    rising = all(low < high for low, high in pairwise(shares))
    if len(shares) < 2 or not rising or not (shares[0] >= 0 and shares[-1] <= 1):
        raise InvalidInput(
            f"Expected at least two shares from 0 to 1, rising (got {len(shares)} of them, "
            "too few, out of range or out of order)."
        )
    return tuple(int(share * n + 0.5) for share in shares)


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


@dataclass(eq=False)
class _Question:
    """What is asked of every example: which curves, by which network (the model or its judge)."""

    model: Callable[..., Any]
    kinds: tuple[str, ...]
    class_given: bool
    target: Any = None
    baseline: Any = None
    points: int | Sequence[float] = 100
    judge: Callable[..., Any] | None = None
    ranking: str | None = None
    fixed: Any = None
    outputs: str | None = None
    batch_size: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        counts_of(self.points, 1)  # Wrong points are refused before a network is evaluated.
        self.translate = None
        if self.judge is not None:
            check_same_classes(self.model, self.judge)
            self.translate = translation(self.model, self.judge)
        self.removes = DELETION in self.kinds
        self.measure = _Outputs(None, self.outputs, class_given=self.class_given)
        with torch.inference_mode(False):
            evaluated = self.model if self.judge is None else self.judge
            self.network = Model(evaluated, self.measure, batch_size=self.batch_size)

    @torch.inference_mode(False)
    def curves(self, x: Any, a: Any, target: int | None, fixed: Any) -> dict[str, Curve]:
        """The curves of one example by its ranking."""
        layout = Layout.of(x)
        needed, ranking = counts_needed(a, layout, self.ranking)
        baseline = _baseline_of(a) if self.baseline is None else self.baseline
        target, forwards = _class_of(a) if target is None else target, 1
        if target is None and self.judge is not None:
            explained = Model(self.model, self.measure).example(x, fixed=fixed)
            target, forwards = explained.reference.target, 2
        example = self.network.example(self._translated(x), target=target, fixed=fixed)
        if "loss" in self.kinds and not example.reference.classes:
            raise InvalidInput(
                "Expected class scores for the loss curve (got a single output per row, read as a "
                "value). Try softmax_information_curve, which follows that output, or "
                "outputs='logits' for a binary classifier."
            )
        objective = self._objective(x, layout, baseline, example)
        counts = torch.tensor(counts_of(self.points, layout.n), device=objective.end.device)
        full, values, rows = self._measured(objective, needed.to(counts.device), counts, example)
        settings = {
            "ranking": ranking,
            "baseline": describe(baseline),
            "target": example.reference.target,
            "judge": None if self.judge is None else name_of(self.judge),
            "forwards": forwards + rows,
        }
        fractions = counts.double() / layout.n
        columns = {kind: int(kind == "loss") for kind in self.kinds}
        return {
            kind: Curve(fractions, values[:, j], kind, float(full[j]), settings)
            for kind, j in columns.items()
        }

    def _objective(self, x: Any, layout: Layout, baseline: Any, example: Example) -> Objective:
        """The evaluated network over masks of the explained model's input."""
        flat = example.x if self.translate is None else layout.flatten(x).detach()
        baselines = [b.to(flat) for b in resolve(baseline, x, layout, self.model)]
        start = torch.stack(baselines).detach().unsqueeze(1)
        network: Objective = self.network.objective([example])
        translate = self.translate
        if translate is not None:

            def seen_by_judge(points: Tensor, _: Tensor) -> Tensor:
                images = translate(points.view(-1, *layout.shapes[0]))
                return images.reshape(len(points), -1).to(example.x)

            network = network.seen(seen_by_judge)
        end = flat.expand_as(start)
        return Objective(network.function, start, end, batch_size=self.batch_size)

    def _measured(
        self, objective: Objective, needed: Tensor, counts: Tensor, example: Example
    ) -> tuple[Tensor, Tensor, int]:
        """(2,) at the full input, (points, 2) at each count, and how many rows that took."""
        references = References.of([example.reference])
        full = _Outputs.measured(references.output, references.output, references.target)[0]
        values = full.repeat(len(counts), 1)
        whole = 0 if self.removes else objective.n
        rest = torch.nonzero(counts != whole).squeeze(1)  # The full input's output is known.
        for part in rest.split(objective.points):  # type: ignore[no-untyped-call]
            top = needed <= counts[part].view(1, -1, 1)
            self.measure.rows = []
            objective.values(~top if self.removes else top)
            rows = torch.cat(self.measure.rows).view(objective.lines, len(part), 2)
            finite = torch.isfinite(rows[..., 0] if "loss" not in self.kinds else rows.sum(2))
            if not bool(finite.all()):
                at = int(counts[part[torch.nonzero(~finite)[0, 1]]])
                verb = "removed" if self.removes else "present"
                raise NonFinite(
                    f"Expected finite outputs (got NaN or infinity with {at} of {objective.n} "
                    f"values {verb})."
                )
            values[part] = rows.mean(0)
        return full, values, len(rest) * objective.lines

    def _translated(self, x: Any) -> Any:
        if self.translate is None:
            return x
        if not isinstance(x, Tensor) or x.dim() != 3:
            raise InvalidInput(
                "Expected one picture (channels, height, width) for two models that know their "
                f"own preprocessing (got {Layout.of(x).shapes})."
            )
        return self.translate(x.detach().unsqueeze(0))[0]


def _curves_of(
    model: Callable[..., Any], x: Any, a: Any, kinds: tuple[str, ...], options: CurveOptions
) -> dict[str, Curve]:
    given = options.get("target") is not None or _class_of(a) is not None
    question = _Question(model, kinds, given, **options)
    return question.curves(x, a, question.target, question.fixed)


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


def _one_of(option: Any, several: Any, i: int, name: str) -> Any:
    """The option of example i; one that is not `several` is the same for all."""
    if not isinstance(option, several):
        return option
    if i >= len(option):
        raise InvalidInput(
            f"Expected one {name} per example (got {len(option)} for more examples)."
        )
    return option[i]
