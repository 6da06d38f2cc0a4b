"""A curve: what a model answers as more and more of its input is present. Frozen, and plain data.

Whatever is drawn or saved needs this file alone; how curves are measured is in `curves`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType

LOWER_IS_BETTER = ("loss", "deletion")
OF_ONE_ANSWER = ("softmax", "insertion", "deletion")
"""Curves whose values are the target's own, so that they can lie above the full input's."""


@dataclass(frozen=True, eq=False, repr=False)
class Curve:
    """values[i] is what was measured with a share fractions[i] of the elements.

    Present for "softmax", "loss" and "insertion"; taken away for "deletion"; for "pair-sic" and
    "pair-aic" the share is of the picture's information instead.
    """

    fractions: Tensor
    """(points,) float64, rising."""
    values: Tensor
    """(points,) float64."""
    name: str
    """"softmax", "loss", "insertion", "deletion", "quality", "pair-sic" or "pair-aic"."""
    full: float
    """The value at the full input, to compare `values` with."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Ranking, baseline, class, judge, and what else tells how it was measured."""

    def __post_init__(self) -> None:
        for name in ("fractions", "values"):
            tensor = torch.as_tensor(getattr(self, name), dtype=torch.float64)
            object.__setattr__(self, name, tensor.detach().cpu().reshape(-1))
        if len(self.fractions) < 2 or len(self.fractions) != len(self.values):
            raise InvalidInput(
                f"Expected at least two points, one value for each fraction (got "
                f"{len(self.fractions)} fractions and {len(self.values)} values)."
            )
        if not bool((self.fractions.diff() >= 0).all()):
            raise InvalidInput("Expected fractions that rise (got some that fall or are NaN).")

    @property
    def auc(self) -> float:
        """Area under the curve by the trapezoid rule over `fractions`."""
        return float(torch.trapezoid(self.values, self.fractions))

    @property
    def higher_is_better(self) -> bool:
        """Does a better explanation lift this curve, rather than lower it?"""
        return self.name not in LOWER_IS_BETTER

    @property
    def excess(self) -> float | None:
        """max(values) − full: how much surer than the full input some part of it makes the model.

        A mask that does so is an input the model likes, not a faithful summary of this one. None
        for curves that are measured against the full input already.
        """
        return float(self.values.max()) - self.full if self.name in OF_ONE_ANSWER else None

    @property
    def excess_at(self) -> float | None:
        """The fraction at which `excess` is found."""
        if self.name not in OF_ONE_ANSWER:
            return None
        return float(self.fractions[int(self.values.argmax())])

    def at(self, fraction: float) -> float:
        """The value at a fraction, on the straight line between its neighbours."""
        low, high = float(self.fractions[0]), float(self.fractions[-1])
        if not low <= fraction <= high:
            raise InvalidInput(f"Expected a fraction from {low:g} to {high:g} (got {fraction!r}).")
        right = int(torch.searchsorted(self.fractions, torch.tensor(fraction).double()))
        left = max(right - 1, 0)
        step = float(self.fractions[right] - self.fractions[left])
        part = 0.0 if step == 0 else (fraction - float(self.fractions[left])) / step
        return float(torch.lerp(self.values[left], self.values[right], part))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back."""
        return {
            "name": self.name,
            "fractions": self.fractions.tolist(),
            "values": [v if isfinite(v) else None for v in self.values.tolist()],
            "full": self.full if isfinite(self.full) else None,
            "auc": self.auc if isfinite(self.auc) else None,
            "excess": self.excess,
            "excess_at": self.excess_at,
            "settings": dict(self.settings),
        }

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Curve:
        """The curve that `to_dict` wrote down; what follows from it is computed anew."""
        missing = [k for k in ("name", "fractions", "values", "full") if k not in record]
        if missing:
            raise InvalidInput(f"Expected a curve's record (got none of {', '.join(missing)}).")
        numbers = [float("nan") if v is None else float(v) for v in record["values"]]
        full = float("nan") if record["full"] is None else float(record["full"])
        return Curve(torch.tensor(record["fractions"], dtype=torch.float64),
                     torch.tensor(numbers, dtype=torch.float64), str(record["name"]), full,
                     dict(record.get("settings", {})))  # fmt: skip

    def __repr__(self) -> str:
        above = ""
        if self.excess is not None and self.excess > 0:
            above = f", up to {self.excess:.3g} above it at {self.excess_at:.3g}"
        return (
            f"Curve({self.name}: AUC {self.auc:.4g} over {len(self.values)} points, "
            f"{float(self.values[0]):.3g} → {float(self.values[-1]):.3g}; "
            f"full input {self.full:.3g}{above})"
        )


def median_curve(curves: Sequence[Curve]) -> Curve:
    """The median of several curves at each fraction, as the paper reports over examples.

    Of an even number it is the mean of the middle two. The area under it is not the median of the
    areas, and its `excess` is the median curve's own.
    """
    return _combined(curves, "median", _median)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of several curves at each fraction; its area is the mean of their areas."""
    return _combined(curves, "mean", lambda values: values.mean(0))


def aligned(curves: Sequence[Curve]) -> list[Curve]:
    """Curves of inputs of different sizes over the same shares, for their median or mean.

    For curves that were asked at evenly spaced shares from 0 to 1. Of n elements a share keeps a
    whole number, so the fractions of different n differ a little: they are set to the shares that
    were asked for. Where an input is so small that it has fewer points, its curve is read on the
    straight lines between them.
    """
    curves = list(curves)
    if all(torch.equal(c.fractions, curves[0].fractions) for c in curves):
        return curves
    most = max(len(c.fractions) for c in curves)
    shares = torch.arange(most, dtype=torch.float64) / (most - 1)
    return [
        Curve(shares, c.values if len(c.values) == most
              else torch.tensor([c.at(float(s)) for s in shares], dtype=torch.float64),
              c.name, c.full, c.settings)
        for c in curves
    ]  # fmt: skip


def _median(values: Tensor) -> Tensor:
    ordered, count = values.sort(0).values, len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _combined(curves: Sequence[Curve], how: str, reduce: Callable[[Tensor], Tensor]) -> Curve:
    curves = list(curves)
    if not curves:
        raise InvalidInput(f"Expected at least one curve for the {how} (got none).")
    for curve in curves:
        if not isinstance(curve, Curve):
            raise InvalidType(f"Expected curves (got a {type(curve).__name__} among them).")
    first = curves[0]
    for curve in curves:
        if curve.name != first.name:
            raise InvalidInput(
                f"Expected curves of one kind (got {first.name!r} and {curve.name!r})."
            )
        if not torch.equal(curve.fractions, first.fractions):
            raise InvalidInput(
                f"Expected curves over the same fractions (got {len(first.fractions)} and "
                f"{len(curve.fractions)} points that differ). Try the same points= for inputs of "
                "one size, or aligned(curves) of greedypig.metrics.curve."
            )
    common = {
        key: value
        for key, value in first.settings.items()
        if all(curve.settings.get(key) == value for curve in curves)
    }
    values = reduce(torch.stack([c.values for c in curves]))
    full = float(reduce(torch.tensor([[c.full] for c in curves], dtype=torch.float64)))
    settings = common | {"combined": how, "examples": len(curves)}
    return Curve(first.fractions, values, first.name, full, settings)
