"""The model's output with only the top features present, as a function of how many they are.

The paper's evaluation (Axiotis et al. 2023, Section 5.1 and Appendix): the Softmax Information
Curve (SIC) and the Loss Information Curve (LIC) over the number of values kept, from none to all,
both ends included. `insertion` and `deletion` are those of Petsiuk et al. 2018 (RISE). All curves
take the same keyword arguments, `CurveOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, repeat, zip_longest
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from .. import types
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, NonFinite
from ..core.layout import Layout
from ..core.objective import Objective
from ..results.curve import DELETION, Curve
from ..tensors.baselines import describe, recorded, resolve
from ..tensors.inputs import Model
from ..tensors.targets import Reference, Target
from .judges import check_same_classes, name_of, translation
from .ranking import counts_needed


class CurveOptions(TypedDict, total=False):
    """The keyword arguments of every curve."""

    target: int | Sequence[int | None] | None
    """The class. None takes the explained one, else the model's prediction. For
    `information_curves_many` also a list with one class per example."""
    baseline: types.Baseline
    """What absent values look like, as in `gp.explain`. None takes the explained one. A list is
    averaged over."""
    points: int | Sequence[float]
    """How many equally spaced k from 0 to n, both included (default 100; at most n + 1), or a
    rising list of shares of n. A feature of several values is shown once k has room for all."""
    judge: types.Model | None
    """Another network, for a second opinion. It gets the same masks and the same class. Where both
    models know their preprocessing (`to_pixels`, `from_pixels`), each picture is converted; else
    the judge takes the same tensor. The loss is then against the judge's own output at the full
    input."""
    ranking: str | None
    """"order" of selection, "absolute" or "signed" scores. None takes "order" for greedy runs and
    permutations, "absolute" for one-shot methods, as the paper does."""
    fixed: types.Fixed | list[types.Fixed]
    """Inputs passed along, as in `gp.explain`. For `information_curves_many` also a list with one
    per example."""
    outputs: str | None
    """"logits", "probabilities" or "values", as in `gp.explain`."""
    batch_size: types.BatchSize
    """Rows evaluated at once."""


def softmax_information_curve(
    model: types.Model, x: types.Inputs, a: types.Ranking, **options: Unpack[CurveOptions]
) -> Curve:
    """SIC: values_i = f_c(x_S), S the top k_i values of x, f the softmax of the model's logits.

    a: an Attribution, a permutation of x's values (best first), or scores shaped like x. For a
    model with a single output that is no logit the curve follows that output.
    """
    return _curves_of(model, x, a, ("softmax",), options)["softmax"]


def loss_information_curve(
    model: types.Model, x: types.Inputs, a: types.Ranking, **options: Unpack[CurveOptions]
) -> Curve:
    """LIC: values_i = KL(f(x) ‖ f(x_S)) = Σ_c f_c(x) · log(f_c(x) / f_c(x_S)), in nats.

    Lower is better. a: as for `softmax_information_curve`.
    """
    return _curves_of(model, x, a, ("loss",), options)["loss"]


def information_curves(
    model: types.Model, x: types.Inputs, a: types.Ranking, **options: Unpack[CurveOptions]
) -> dict[str, Curve]:
    """The SIC and the LIC of one example, {"softmax": …, "loss": …}, from the same forward passes.

    a: as for `softmax_information_curve`. The cost is one forward row per point (`forwards` in
    `curve.settings`), and a few more where a convolutional network gets a faster copy.
    """
    return _curves_of(model, x, a, ("softmax", "loss"), options)


def insertion(
    model: types.Model, x: types.Inputs, a: types.Ranking, **options: Unpack[CurveOptions]
) -> Curve:
    """RISE's insertion: the target's softmax as the top values come into a blurred picture.

    Higher is better. It is the SIC with baseline="blur", which hides detail without the sharp
    edges of a gray mask. For inputs that are not pictures give a baseline.
    """
    return _curves_of(model, x, a, ("insertion",), {"baseline": "blur", **options})["insertion"]


def deletion(
    model: types.Model, x: types.Inputs, a: types.Ranking, **options: Unpack[CurveOptions]
) -> Curve:
    """RISE's deletion: the target's softmax as the top values are replaced by the baseline.

    values_i = f_c(x without its top k_i values), from the full input to the baseline. Lower is
    better.
    """
    return _curves_of(model, x, a, ("deletion",), options)["deletion"]


def information_curves_many(
    model: types.Model,
    xs: Iterable[types.Inputs],
    attributions: Iterable[types.Ranking],
    **options: Unpack[CurveOptions],
) -> Iterator[dict[str, Curve]]:
    """`information_curves` for every example of an iterable, streamed in the order of xs."""
    network = _network(model, options, options.get("target") is not None)
    targets = _each(options.pop("target", None), list | tuple | Tensor)
    fixed = _each(options.pop("fixed", None), list)
    missing = object()
    for i, (x, a) in enumerate(zip_longest(xs, attributions, fillvalue=missing)):
        own: Any = {"target": next(targets, missing), "fixed": next(fixed, missing)}
        if any(item is missing for item in (x, a, *own.values())):
            raise InvalidInput(
                "Expected one attribution, and of lists of targets or fixed inputs one entry, per "
                f"example (got different numbers of them, equal up to {i})."
            )
        try:
            curves = _curves(model, network, x, a, ("softmax", "loss"), **options, **own)
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


def _curves_of(
    model: types.Model,
    x: types.Inputs,
    a: types.Ranking,
    kinds: tuple[str, ...],
    options: CurveOptions,
) -> dict[str, Curve]:
    given = options.get("target") is not None or _class_of(a) is not None
    return _curves(model, _network(model, options, given), x, a, kinds, **options)


def _network(model: Callable[..., Any], options: CurveOptions, class_given: bool) -> Model:
    """The network that is evaluated: the judge, or else the model."""
    judge = options.get("judge")
    if judge is not None:
        check_same_classes(model, judge)
    target = Target(None, options.get("outputs"), class_given=class_given)
    target.chosen = False  # A curve follows a value whichever way it moves.
    with torch.inference_mode(False):
        return Model(
            model if judge is None else judge, target, batch_size=options.get("batch_size", "auto")
        )


@torch.inference_mode(False)
def _curves(
    model: Callable[..., Any],
    network: Model,
    x: Any,
    a: Any,
    kinds: tuple[str, ...],
    *,
    target: Any = None,
    baseline: Any = None,
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
) -> dict[str, Curve]:
    """The curves of one example: the network's outputs at the nested masks of its ranking."""
    layout = Layout.of(x)
    needed, ranking = counts_needed(a, layout, ranking)
    counts = torch.tensor(counts_of(points, layout.n))
    baseline = _baseline_of(a) if baseline is None else baseline
    target, forwards = _class_of(a) if target is None else target, 1
    if target is None and judge is not None:
        explained = Model(model, network.target).example(x, fixed=fixed)
        target, forwards = explained.reference.target, 2
    is_picture = isinstance(x, Tensor) and x.dim() == 3
    translate = translation(model, judge) if judge is not None and is_picture else None
    own = x if translate is None else translate(x.detach().unsqueeze(0))[0]
    example = network.example(own, target=target, fixed=fixed)
    if "loss" in kinds and not example.reference.classes:
        raise InvalidInput(
            "Expected class scores for the loss curve (got a single output per row, read as a "
            "value). Try softmax_information_curve, which follows that output, or "
            "outputs='logits' for a binary classifier."
        )
    network.objective([example])  # This makes the network's fast copy.
    rows: list[Tensor] = []

    def values(points: Tensor, _: Tensor) -> Tensor:
        if translate is not None:
            points = translate(points.view(-1, *layout.shapes[0])).flatten(1).to(example.x)
        rows.append(_measures(network.logits(points, example), example.reference))
        return rows[-1][:, 0].nan_to_num()  # What is not finite is found in the rows.

    flat = example.x if translate is None else layout.flatten(x).detach()
    start = torch.stack([b.to(flat) for b in resolve(baseline, x, layout, model)]).unsqueeze(1)
    objective = Objective(values, start.detach(), flat.expand_as(start), batch_size=batch_size)
    removes = DELETION in kinds
    full = _measures(example.reference.output.unsqueeze(0), example.reference)
    measures = full.repeat(len(counts), 1)
    rest = torch.nonzero(counts != (0 if removes else layout.n)).squeeze(1)
    for part in rest.split(objective.points):  # type: ignore[no-untyped-call]
        top = needed <= counts[part].to(needed.device).view(1, -1, 1)
        rows.clear()
        objective.values(~top if removes else top)
        measures[part] = torch.cat(rows).view(objective.lines, len(part), 2).mean(0)
    finite = measures[:, : 2 if "loss" in kinds else 1].isfinite().all(1)
    if not bool(finite.all()):
        raise NonFinite(
            f"Expected finite outputs (got NaN or infinity with {int(counts[~finite][0])} of "
            f"{layout.n} values {'removed' if removes else 'present'})."
        )
    settings = {
        "ranking": ranking,
        "baseline": describe(baseline),
        "target": example.reference.target,
        "judge": None if judge is None else name_of(judge),
        "forwards": forwards + len(rest) * objective.lines,
    }
    curves = {}
    for kind in kinds:
        column = int(kind == "loss")
        fractions, heights = counts.double() / layout.n, measures[:, column]
        curves[kind] = Curve(fractions, heights, kind, float(full[0, column]), settings)
    return curves


def _measures(logits: Tensor, reference: Reference) -> Tensor:
    """(m, 2) float64 of logits (m, classes), f their softmax: f_c, and KL(f(x) ‖ f).

    Of an output that is a value: the value itself, and NaN.
    """
    logits = logits.detach().cpu().double()
    if logits.dim() == 1:
        return torch.stack([logits, torch.full_like(logits, torch.nan)], 1)
    log_f = torch.log_softmax(logits, 1)
    log_full = torch.log_softmax(reference.output.cpu().double(), 0)
    loss = (log_full.exp() * (log_full - log_f)).sum(1).clamp_min(0)
    return torch.stack([log_f[:, reference.target].exp(), loss], 1)


def _class_of(a: Any) -> int | None:
    """The class an attribution was made for, where it was made for one."""
    if not isinstance(a, Attribution) or "callable" in str(a.settings.get("objective")):
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


def _each(option: Any, several: Any) -> Iterator[Any]:
    """The option of each example; one that is not `several` is the same for all."""
    return iter(option) if isinstance(option, several) else repeat(option)
