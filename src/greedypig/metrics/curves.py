"""What the model still answers with only the top features present, as a function of how many.

The paper's evaluation (Axiotis et al. 2023, Section 5.1 and Appendix): the Softmax Information
Curve (SIC) and the Loss Information Curve (LIC) over the number of features kept, from none to
all, both ends included. `insertion` and `deletion` are those of Petsiuk et al. 2018 (RISE). The
curves of Kapishnikov et al. 2019 over a picture's compressed size are in `pair`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType
from ..core.layout import Layout
from ..results.curve import Curve, mean_curve, median_curve
from ..tensors.baselines import describe
from .ranking import counts_needed
from .sweep import Network, Sweep, baseline_of, class_of, run

__all__ = [
    "Curve", "deletion", "information_curves", "information_curves_many", "insertion",
    "loss_information_curve", "mean_curve", "median_curve", "softmax_information_curve",
]  # fmt: skip


def softmax_information_curve(
    model: Callable[..., Any],
    x: Any,
    a: Any,
    *,
    target: int | None = None,
    baseline: Any = None,
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Curve:
    """SIC: values_i = f_c(x_S), S the top k_i elements, f the softmax of the model's logits.

    The arguments are those of `information_curves`. Of a model whose single output is a value the
    curve's values are that output; of a binary logit they are p or 1 − p.
    """
    want = _Want(points, ranking, kinds=("softmax",))
    network = Network(model, judge, outputs=outputs, batch_size=batch_size, optimize=optimize,
                      class_given=target is not None or class_of(a) is not None)  # fmt: skip
    return _measure(network, want, x, a, target, baseline, fixed)["softmax"]


def loss_information_curve(
    model: Callable[..., Any],
    x: Any,
    a: Any,
    *,
    target: int | None = None,
    baseline: Any = None,
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Curve:
    """LIC: values_i = KL(f(x) ‖ f(x_S)) = Σ_c f_c(x) · log(f_c(x) / f_c(x_S)), in nats.

    The arguments are those of `information_curves`. Lower is better.
    """
    want = _Want(points, ranking, kinds=("loss",))
    network = Network(model, judge, outputs=outputs, batch_size=batch_size, optimize=optimize,
                      class_given=target is not None or class_of(a) is not None)  # fmt: skip
    return _measure(network, want, x, a, target, baseline, fixed)["loss"]


def information_curves(
    model: Callable[..., Any],
    x: Any,
    a: Any,
    *,
    target: int | None = None,
    baseline: Any = None,
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> dict[str, Curve]:
    """The SIC and the LIC of one example, {"softmax": …, "loss": …}, from the same forward passes.

    a: an Attribution, a permutation of x's elements (best first), or scores shaped like x.
    target: the class; None takes the one that was explained, else the model's prediction.
    baseline: what absent elements look like, as in `gp.explain`; None takes the explained one.
        A list is averaged over.
    points: how many equally spaced k from 0 to n, both included (at most n + 1, as no k comes
        twice); or a rising list of shares of n. A unit larger than an element is shown once k
        has room for all of it.
    judge: another network for a second opinion. It is shown the same masks and asked about the
        same class. Where both models know their preprocessing (`to_pixels`, `from_pixels`) each
        picture is converted; else it takes the same tensor. The loss is then against the judge's
        own answer at the full input.
    ranking: "order" of selection, "absolute" or "signed" scores; None takes "order" for greedy
        runs and permutations, "absolute" for one-shot ones, as the paper does.
    fixed, outputs, batch_size, optimize: as in `gp.explain`.

    It costs one forward row per point. Where optimize finds a fast copy of the network the first
    call pays a few more to try it, and so does one after the network was changed. `forwards` of
    `curve.settings` says how many rows were paid.
    """
    want = _Want(points, ranking)
    network = Network(model, judge, outputs=outputs, batch_size=batch_size, optimize=optimize,
                      class_given=target is not None or class_of(a) is not None)  # fmt: skip
    return _measure(network, want, x, a, target, baseline, fixed)


def information_curves_many(
    model: Callable[..., Any],
    xs: Iterable[Any],
    attributions: Iterable[Any],
    *,
    target: int | Sequence[int | None] | None = None,
    baseline: Any = None,
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Iterator[dict[str, Curve]]:
    """`information_curves` for every example of an iterable, whose rows share device batches.

    Answers are streamed in the order of xs, which is read only as far as batches need. A list of
    targets or of fixed inputs gives one per example.
    """
    want = _Want(points, ranking)
    targets: Any = target if isinstance(target, list | tuple | Tensor) else None
    network = Network(model, judge, outputs=outputs, batch_size=batch_size, optimize=optimize,
                      class_given=target is not None)  # fmt: skip
    each_fixed = fixed if isinstance(fixed, list) else None

    def makers() -> Iterator[Callable[[], Sweep]]:
        for i, (x, a) in enumerate(_pairs(xs, attributions)):
            one: Any = target if targets is None else _one_of(targets, i, "target")
            held = fixed if each_fixed is None else _one_of(each_fixed, i, "fixed")
            yield partial(_named, i, partial(_sweep, network, want, x, a, one, baseline, held))

    return (want.curves(sweep) for sweep in run(network, makers()))


def insertion(
    model: Callable[..., Any],
    x: Any,
    a: Any,
    *,
    target: int | None = None,
    baseline: Any = "blur",
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Curve:
    """RISE's insertion: the target's softmax as the top elements come into a blurred picture.

    Higher is better. It is the SIC from another baseline: blur hides detail without the sharp
    edges that a gray mask draws. The arguments are those of `information_curves`; for inputs that
    are not pictures give a baseline.
    """
    want = _Want(points, ranking, kinds=("insertion",))
    network = Network(model, judge, outputs=outputs, batch_size=batch_size, optimize=optimize,
                      class_given=target is not None or class_of(a) is not None)  # fmt: skip
    return _measure(network, want, x, a, target, baseline, fixed)["insertion"]


def deletion(
    model: Callable[..., Any],
    x: Any,
    a: Any,
    *,
    target: int | None = None,
    baseline: Any = None,
    points: int | Sequence[float] = 100,
    judge: Callable[..., Any] | None = None,
    ranking: str | None = None,
    fixed: Any = None,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Curve:
    """RISE's deletion: the target's softmax as the top elements are replaced by the baseline.

    values_i = f_c(x without its top k_i elements), from the full input to the baseline. Lower is
    better. The arguments are those of `information_curves`.
    """
    want = _Want(points, ranking, kinds=("deletion",), removing=True)
    network = Network(model, judge, outputs=outputs, batch_size=batch_size, optimize=optimize,
                      class_given=target is not None or class_of(a) is not None)  # fmt: skip
    return _measure(network, want, x, a, target, baseline, fixed)["deletion"]


@dataclass(frozen=True)
class _Want:
    """Which curves, over which points, by which ranking."""

    points: int | Sequence[float]
    ranking: str | None
    kinds: tuple[str, ...] = ("softmax", "loss")
    removing: bool = False

    def __post_init__(self) -> None:
        counts_of(self.points, 1)  # Wrong points are refused before a network is asked.

    def curves(self, sweep: Sweep) -> dict[str, Curve]:
        table, full = sweep.table()
        fractions = torch.tensor(sweep.counts, dtype=torch.float64) / sweep.x.numel()
        column = {"loss": 1}
        return {
            kind: Curve(fractions, table[:, column.get(kind, 0)], kind,
                        float(full[column.get(kind, 0)]), sweep.about)
            for kind in self.kinds
        }  # fmt: skip


def counts_of(points: int | Sequence[float], n: int) -> tuple[int, ...]:
    """How many of n elements the points of a curve show: i · n / (points − 1), rounded half up."""
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


def _measure(
    network: Network, want: _Want, x: Any, a: Any, target: int | None, baseline: Any, fixed: Any
) -> dict[str, Curve]:
    make = partial(_sweep, network, want, x, a, target, baseline, fixed)
    (sweep,) = run(network, [make])
    return want.curves(sweep)


def _sweep(
    network: Network, want: _Want, x: Any, a: Any, target: int | None, baseline: Any, fixed: Any
) -> Sweep:
    layout = Layout.of(x)
    needed, ranking = counts_needed(a, layout, want.ranking)
    target = class_of(a) if target is None else target
    baseline = baseline_of(a) if baseline is None else baseline
    before = network.rows
    example, baselines = network.example(x, baseline, target, fixed)
    paid = network.rows - before
    if "loss" in want.kinds and example.reference.log_probabilities is None:
        raise InvalidInput(
            "Expected class scores for the loss curve (got a single output per row, read as a "
            "value). Try softmax_information_curve, which follows that output, or "
            "outputs='logits' for a binary classifier."
        )
    flat = example.x if network.translate is None else layout.flatten(x).detach()
    return Sweep(
        example, layout, flat, tuple(b.to(flat) for b in baselines), needed.to(flat.device),
        counts_of(want.points, layout.n), want.removing,
        {"ranking": ranking, "baseline": describe(baseline), "target": example.reference.target,
         "judge": None if network.judge is None else _name(network.judge)},
        paid,
    )  # fmt: skip


def _named(i: int, make: Callable[[], Sweep]) -> Sweep:
    """Make the sweep of example i; an error says which it was."""
    try:
        return make()
    except Exception as error:
        error.add_note(f"This was input {i} of information_curves_many, counted from 0.")
        raise


def _name(judge: Any) -> str:
    return str(getattr(judge, "name", None) or getattr(judge, "__qualname__", type(judge).__name__))


def _pairs(xs: Iterable[Any], attributions: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    # zip(strict=True) would raise a plain ValueError that names neither.
    missing = object()
    theirs = iter(attributions)
    for i, x in enumerate(xs):
        a = next(theirs, missing)
        if a is missing:
            raise InvalidInput(f"Expected one attribution per example (got {i} for more examples).")
        yield x, a
    if next(theirs, missing) is not missing:
        raise InvalidInput("Expected one example per attribution (got more attributions).")


def _one_of(each: Any, i: int, name: str) -> Any:
    if i >= len(each):
        raise InvalidInput(f"Expected one {name} per example (got {len(each)} for more examples).")
    return each[i]
