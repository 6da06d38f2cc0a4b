"""A curve: a model's output as more and more of its input is present. Frozen, and plain data.

Figures and files need this module alone; `metrics.curves` measures curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.enough import first_enough
from ..core.errors import InvalidInput, InvalidType
from ..core.records import read

DELETION = "deletion"
OF_ONE_CLASS = ("softmax", "insertion", DELETION)
"""Curves whose values are the target's own, so that they can lie above the full input's."""


@dataclass(frozen=True)
class Record:
    """A curve as a file holds it."""

    fractions: tuple[float, ...]
    values: tuple[float | None, ...]
    """None where one was not measured."""
    name: str = ""
    full: float | None = None
    auc: float | None = None
    judge: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Curve:
    """values[i] is what was measured with a share fractions[i] of the input's values present
    (removed, for "deletion")."""

    fractions: Tensor
    """(points,) float64 from 0 to 1, rising."""
    values: Tensor
    """(points,) float64; NaN where one was not measured."""
    name: str
    """"softmax", "loss", "insertion", "deletion", "quality", or what else it is called."""
    full: float | None = None
    """The value at the full input, to compare `values` with; None where it is not known."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Ranking, baseline, class, judge, and how else it was measured."""
    area: float | None = None
    """Its area where that was measured over other points; None computes it."""

    def __post_init__(self) -> None:
        for name in ("fractions", "values"):
            tensor = torch.as_tensor(getattr(self, name), dtype=torch.float64)
            object.__setattr__(self, name, tensor.detach().cpu().reshape(-1))
        count = len(self.fractions)
        if count < 2 or count != len(self.values):
            raise InvalidInput(
                f"Expected at least two points of {self.name!r:.60}, one value for each fraction "
                f"(got {count} fractions and {len(self.values)} values)."
            )
        low, high = float(self.fractions[0]), float(self.fractions[-1])
        if not bool((self.fractions.diff() >= 0).all()) or not 0 <= low <= high <= 1:
            raise InvalidInput(
                f"Expected fractions of {self.name!r:.60} that rise within 0 and 1 "
                f"(got {low:g} … {high:g}, or some that fall or are NaN)."
            )

    @staticmethod
    def from_points(points: Iterable[tuple[float, float]], name: str, **settings: Any) -> Curve:
        """The curve through (fraction, value) pairs."""
        pairs = torch.tensor(list(points), dtype=torch.float64).view(-1, 2)
        return Curve(pairs[:, 0], pairs[:, 1], name, settings=settings)

    @property
    def judge(self) -> str | None:
        """The network that judged, where it is not the one explained."""
        return self.settings.get("judge")

    @property
    def off(self) -> bool:
        """Is it over the share removed instead of kept?"""
        return self.name == DELETION or bool(self.settings.get("off"))

    @property
    def points(self) -> list[tuple[float, float]]:
        """(fraction, value) of every point."""
        return list(zip(self.fractions.tolist(), self.values.tolist(), strict=True))

    @property
    def auc(self) -> float:
        """Area under the curve by the trapezoid rule over `fractions`."""
        if self.area is not None:
            return self.area
        return float(torch.trapezoid(self.values, self.fractions))

    @property
    def excess(self) -> float | None:
        """max(values) − full: how far some part of the input lies above the full input.

        Such a part is an input with a high probability, not a faithful summary of this one. None
        for curves that are measured against the full input already.
        """
        if self.name not in OF_ONE_CLASS or self.full is None:
            return None
        return float(self.values.max()) - self.full

    @property
    def excess_at(self) -> float | None:
        """The fraction at which `excess` is found."""
        return None if self.excess is None else float(self.fractions[int(self.values.argmax())])

    def at(self, fraction: float) -> float:
        """The value at a fraction, by linear interpolation."""
        value = self.get(fraction)
        if value is None:
            low, high = float(self.fractions[0]), float(self.fractions[-1])
            raise InvalidInput(f"Expected a fraction from {low:g} to {high:g} (got {fraction!r}).")
        return value

    def get(self, fraction: float) -> float | None:
        """The same; None outside of the curve's fractions."""
        if not self.fractions[0] <= fraction <= self.fractions[-1]:
            return None
        return float(np.interp(fraction, self.fractions.numpy(), self.values.numpy()))

    def stays_from(self, value: float) -> float | None:
        """The smallest fraction from which on the curve does not fall below a value."""
        smallest = None
        for fraction, measured in reversed(self.points):
            if measured < value:
                break
            smallest = fraction
        return smallest

    def enough(self, full: float) -> float | None:
        """The smallest fraction at which the curve has risen by ENOUGH of the way from its first
        value to `full`; None where it does not rise."""
        return first_enough(self.fractions.tolist(), self.values.tolist(), full)

    @property
    def falling(self) -> Curve:
        """The curve turned upside down, so that a fall is a rise."""
        return replace(self, values=-self.values)

    def through(self, measured: Mapping[float, float]) -> Curve:
        """The same curve with further measured points; its area stays."""
        points = sorted({**measured, **dict(self.points)}.items())
        line = Curve.from_points(points, self.name)
        return replace(self, fractions=line.fractions, values=line.values, area=self.auc)

    def without_gaps(self) -> Curve:
        """The same curve without the points that were not measured."""
        known = ~self.values.isnan()
        return replace(self, fractions=self.fractions[known], values=self.values[known])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back."""
        return {
            "name": self.name,
            "fractions": self.fractions.tolist(),
            "values": [v if isfinite(v) else None for v in self.values.tolist()],
            "full": self.full,
            "auc": self.auc if isfinite(self.auc) else None,
            "excess": self.excess,
            "excess_at": self.excess_at,
            "settings": dict(self.settings),
        }

    def record(self) -> dict[str, Any]:
        """The curve in the facts of a result, which name it: what `from_dict` needs."""
        every = self.to_dict() | {"judge": self.judge}
        settings = {key: item for key, item in self.settings.items() if key != "judge"}
        parts = {key: every[key] for key in ("fractions", "values", "full", "auc", "judge")}
        return {k: v for k, v in (parts | {"settings": settings}).items() if v not in (None, {})}

    @staticmethod
    def from_dict(record: Any, where: str = "a curve") -> Curve:
        """The curve that `to_dict` wrote, checked; `where` names the record in errors."""
        own = read(Record, record, where)
        judge = {"judge": own.judge} if own.judge else {}
        values = [nan if value is None else value for value in own.values]
        return Curve(
            torch.tensor(own.fractions, dtype=torch.float64),
            torch.tensor(values, dtype=torch.float64),
            own.name or "curve",
            own.full,
            {**own.settings, **judge},
            own.auc,
        )

    def __repr__(self) -> str:
        above = ""
        if self.excess is not None and self.excess > 0:
            above = f", up to {self.excess:.3g} above it at {self.excess_at:.3g}"
        return (
            f"Curve({self.name}: AUC {self.auc:.4g} over {len(self.values)} points, "
            f"{float(self.values[0]):.3g} → {float(self.values[-1]):.3g}; "
            f"full input {nan if self.full is None else self.full:.3g}{above})"
        )


def median_curve(curves: Sequence[Curve]) -> Curve:
    """The median of several curves at each fraction, as the paper reports over examples.

    Of an even number it is the mean of the middle two. The area under it is not the median of the
    areas, and its `excess` is the median curve's own.
    """
    return _combined(curves, "median", lambda values: values.quantile(0.5, 0))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of several curves at each fraction; its area is the mean of their areas."""
    return _combined(curves, "mean", lambda values: values.mean(0))


def aligned(curves: Sequence[Curve]) -> list[Curve]:
    """Curves of inputs of different sizes over the same shares, for their median or mean.

    For curves over evenly spaced shares from 0 to 1. A share of n values is a whole number, so the
    fractions of different n differ a little: they are set to the shares that were asked for. A
    curve of a small input, with fewer points, is interpolated linearly.
    """
    curves = list(curves)
    if all(torch.equal(c.fractions, curves[0].fractions) for c in curves):
        return curves
    most = max(len(c.fractions) for c in curves)
    shares = torch.linspace(0, 1, most, dtype=torch.float64)

    def values(c: Curve) -> Any:
        return c.values if len(c.values) == most else np.interp(shares, c.fractions, c.values)

    return [replace(c, fractions=shares, values=values(c)) for c in curves]


def _combined(curves: Sequence[Curve], how: str, reduce: Callable[[Tensor], Tensor]) -> Curve:
    curves = list(curves)
    if not curves:
        raise InvalidInput(f"Expected at least one curve for the {how} (got none).")
    if strangers := [type(curve).__name__ for curve in curves if not isinstance(curve, Curve)]:
        raise InvalidType(f"Expected curves (got a {strangers[0]} among them).")
    first = curves[0]
    for curve in curves:
        if curve.name != first.name or not torch.equal(curve.fractions, first.fractions):
            raise InvalidInput(
                f"Expected curves of one kind over the same fractions (got {first.name!r} over "
                f"{len(first.fractions)} and {curve.name!r} over {len(curve.fractions)} points). "
                "Try the same points= for inputs of one size, or aligned(curves) of "
                "greedypig.results.curve."
            )
    common = {
        key: value
        for key, value in first.settings.items()
        if all(curve.settings.get(key) == value for curve in curves)
    }
    values = reduce(torch.stack([c.values for c in curves]))
    fulls = torch.tensor([nan if c.full is None else c.full for c in curves], dtype=torch.float64)
    full = None if bool(fulls.isnan().any()) else float(reduce(fulls))
    settings = common | {"combined": how, "examples": len(curves)}
    return Curve(first.fractions, values, first.name, full, settings)
