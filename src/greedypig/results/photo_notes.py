"""The notes that a result carries, checked: names, predictions, curves, a comparison of methods.

Notes are written by whoever ran the model (`Attribution.with_notes`) and are all optional; a file
may come from a stranger, so each is checked here before anybody draws it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from typing import Any, Protocol

import numpy as np
import torch

from ..core.attribution import REACHED, Attribution, Fall, find_fall
from ..core.errors import InvalidInput, InvalidType

DELETION = "deletion"
"""The curve of what is left, by its name in notes and metrics."""


class CurveLike(Protocol):
    """What can be drawn as a curve: values over the share of features kept."""

    @property
    def fractions(self) -> Any:
        """Shares kept, from 0 to 1."""

    @property
    def values(self) -> Any:
        """One value per share."""


@dataclass(frozen=True)
class Line:
    """A curve as plain numbers."""

    name: str
    fractions: tuple[float, ...]
    """Share of the elements kept, rising, within [0, 1]."""
    values: tuple[float, ...]
    judge: str | None = None
    """The network that judged, where it is not the one explained."""
    given_auc: float | None = None
    full: float | None = None
    """The value of everything, to compare with; None where it was not told."""
    off: bool = False
    """Over the share switched off instead of kept: of deletion and counterfactuals."""

    @staticmethod
    def of(curve: CurveLike, name: str | None = None) -> Line:
        """From anything with `fractions` and `values`, and perhaps `name` and `auc`."""
        if not hasattr(curve, "fractions") or not hasattr(curve, "values"):
            raise InvalidType(
                f"Expected a curve with fractions and values (got {type(curve).__name__})."
            )
        settings = getattr(curve, "settings", None) or {}
        return Line._checked(
            name or str(getattr(curve, "name", "") or "curve"),
            _listed(curve.fractions),
            _listed(curve.values),
            getattr(curve, "judge", None) or settings.get("judge"),
            getattr(curve, "auc", None),
            getattr(curve, "full", None),
        )

    @staticmethod
    def _checked(
        name: str, fractions: Any, values: Any, judge: Any, auc: Any, full: Any = None
    ) -> Line:
        xs, ys = _listed(fractions), _listed(values)
        for what, numbers in (("fractions", xs), ("values", ys)):
            if not isinstance(numbers, Sequence) or isinstance(numbers, str):
                raise InvalidInput(
                    f"Expected {name}'s {what} as a list of numbers (got {numbers!r:.60})."
                )
        if len(xs) != len(ys):
            raise InvalidInput(
                f"Expected {name} with a value for each fraction "
                f"(got {len(xs)} fractions and {len(ys)} values)."
            )
        # A value that could not be measured leaves a gap; the line goes on behind it.
        pairs = [
            (_number(x, f"{name}'s fractions"), _number(y, f"{name}'s values"))
            for x, y in zip(xs, ys, strict=True)
            if y is not None and y == y
        ]
        if len(pairs) < 2:
            raise InvalidInput(f"Expected {name} with at least two values (got {len(pairs)}).")
        rising = all(a[0] <= b[0] for a, b in pairwise(pairs))
        if pairs[0][0] < 0 or pairs[-1][0] > 1 or not rising:
            raise InvalidInput(
                f"Expected {name}'s fractions to rise within 0 and 1 "
                f"(got {pairs[0][0]:g} … {pairs[-1][0]:g})."
            )
        if not (judge is None or isinstance(judge, str)):
            raise InvalidInput(f"Expected {name}'s judge to be a name (got {judge!r:.60}).")
        area, whole = (
            None if v is None or v != v else _number(v, f"{name}'s numbers") for v in (auc, full)
        )
        return Line(
            name, tuple(x for x, _ in pairs), tuple(y for _, y in pairs), judge, area, whole,
            name == DELETION,
        )  # fmt: skip

    @property
    def auc(self) -> float:
        """The curve's own AUC where it came with one, else by trapezoids over the fractions."""
        if self.given_auc is not None:
            return self.given_auc
        return float(
            torch.trapezoid(
                torch.tensor(self.values, dtype=torch.float64),
                torch.tensor(self.fractions, dtype=torch.float64),
            )
        )

    def through(self, measured: Mapping[float, float]) -> Line:
        """The same curve drawn through further measured points; its area stays its own."""
        if not measured:
            return self
        points = {**measured, **dict(zip(self.fractions, self.values, strict=True))}
        xs, ys = zip(*sorted(points.items()), strict=True)
        return replace(self, fractions=xs, values=ys, given_auc=self.auc)

    def at(self, fraction: float) -> float | None:
        """The value at a share, by straight lines between points; None outside of them."""
        if not self.fractions[0] <= fraction <= self.fractions[-1]:
            return None
        return float(np.interp(fraction, self.fractions, self.values))


COMPARED = {
    "sic_auc": ("SIC AUC ↑", "{:.3f}"),
    "lic_auc": ("LIC AUC ↓", "{:.3f}"),
    "second_opinion_auc": ("second opinion ↑", "{:.3f}"),
    "excess": ("above full ↓", "{:.3f}"),
    "gradients": ("gradients", "{:,.0f}"),
    "seconds": ("seconds", "{:,.1f}"),
}
"""What methods are compared by: how a column is headed, and how its numbers are written. The
excess is how far the curve rises above the whole input's value."""


@dataclass(frozen=True)
class Method:
    """One method's row in a comparison."""

    name: str
    numbers: Mapping[str, float]
    """Any of COMPARED."""
    curve: Line | None
    """Its SIC."""
    loss: Line | None = None
    """Its LIC."""
    second: Line | None = None
    """Its SIC as another network judges."""
    kept: Mapping[float, float] = field(default_factory=dict)
    """Probability with only this share kept, as measured; `curve` is drawn through it."""


@dataclass(frozen=True)
class Notes:
    """The notes of a result, checked; None or empty where there are none."""

    kind: str | None
    source: str | None
    model: str | None
    label: str | None
    """The class explained, else "output 7" (of a single output that is no class: 0)."""
    probability: float | None
    predictions: tuple[tuple[str, float], ...]
    baseline: str | None
    objective: str | None
    command: str | None
    curves: Mapping[str, Line]
    """"softmax" is drawn through the points of `kept` too, "deletion" through `removed`."""
    kept: Mapping[float, float]
    """Probability with only this share kept, as measured."""
    removed: Mapping[float, float]
    """Probability with this share switched off, as measured: of counterfactuals."""
    comparison: tuple[Method, ...]
    warnings: tuple[str, ...] = ()
    """What was warned of when the result was made."""

    @staticmethod
    def of(a: Attribution) -> Notes:
        """Read and check a result's notes."""
        about = a.about
        target = about.get("target", a.settings.get("target"))
        label = _text(about, "class")
        if label is None and type(target) is int:
            label = f"output {target}"
        curves = {
            name: _line(name, spec, f"curve {name!r}")
            for name, spec in _mapping(about, "curves").items()
        }
        kept, removed = (_shares(about, what) for what in ("kept", "removed"))
        if "softmax" in curves:
            curves["softmax"] = curves["softmax"].through(kept)
        if DELETION in curves:
            curves[DELETION] = curves[DELETION].through(removed)
            judged = curves.get("second-opinion")
            curves |= {} if judged is None else {"second-opinion": replace(judged, off=True)}
        comparison = _mapping(about, "comparison").items()
        settings_objective = a.settings.get("objective")
        return Notes(
            kind=_text(about, "kind"),
            source=_text(about, "source"),
            model=_text(about, "model"),
            label=label,
            probability=_probability(about.get("probability")),
            predictions=tuple(_prediction(p) for p in _sequence(about, "predictions")),
            baseline=_text(about, "baseline"),
            objective=_text(about, "objective")
            or (settings_objective if isinstance(settings_objective, str) else None),
            command=_text(about, "command"),
            curves=curves,
            kept=kept,
            removed=removed,
            comparison=tuple(_method(name, row) for name, row in comparison),
            warnings=tuple(_warning(words) for words in _sequence(about, "warnings")),
        )

    @property
    def drawn_at(self) -> str | None:
        """What pictures show where the network saw several baselines, one after the other.

        None of a single one: there a picture shows what the network saw.
        """
        names = [name.strip() for name in (self.baseline or "").split(",")]
        if len(names) < 2 or not all(names):
            return None
        several = f"{', '.join(names[:-1])} and {names[-1]}"
        every = "both" if len(names) == 2 else f"all {len(names)}"
        return f"drawn at the mean of {several}; the numbers average {every}"

    @property
    def curve(self) -> Line | None:
        """The probability over the share kept, by the network itself."""
        return self.curves.get("softmax")

    @property
    def deletion(self) -> Line | None:
        """The probability over the share switched off, where that is what was asked."""
        return self.curves.get(DELETION)

    @property
    def removing(self) -> bool:
        """Is it about what is left without the features, rather than with them alone?

        So it is with a counterfactual, unless its features were measured alone all the same.
        """
        alone = self.curve is not None
        return self.deletion is not None or (self.objective == "counterfactual" and not alone)

    def probability_at(
        self, share: float, alike: tuple[float, float] | None = None, *, off: bool = False
    ) -> tuple[float, bool] | None:
        """(probability with this share kept, or off; was it measured): else read off the curve.

        alike: shares, from … up to but without …, that show the same as this one does, for units
            that are larger than a number (`places.shares_alike`).
        """
        line = self.deletion if off else self.curve
        low, high = alike or (share - 1e-9, share + 1e-9)
        points = [*(self.removed if off else self.kept).items()]
        points += [] if line is None else zip(line.fractions, line.values, strict=True)
        for place, value in points:
            if low <= place < high:
                return value, True
        read = None if line is None else line.at(share)
        return None if read is None else (read, False)

    @property
    def bare(self) -> float | None:
        """The probability with nothing but the baseline; None if the curve does not tell."""
        return None if self.curve is None else self.curve.at(0)

    @property
    def predicted(self) -> bool:
        """Is the class explained the one that the model itself names? As far as the notes tell."""
        if not self.predictions:
            return True
        name, most = self.predictions[0]
        # Classes may share a name; the likeliest is told by its probability.
        return self.label == name if self.probability is None else self.probability >= most - 1e-6

    @property
    def advises_log_likelihood(self) -> bool:
        """Is that objective an answer to a part that outdoes the whole?

        It asks for the model's whole answer, whichever class is explained: of another than the
        predicted one it would explain the predicted one.
        """
        return self.predicted and self.objective != "log-likelihood"

    def needed(self) -> float | None:
        """The smallest share from which the probability stays at 9/10 of the whole's or above."""
        if self.curve is None or not self.probability:
            return None
        points = list(zip(self.curve.fractions, self.curve.values, strict=True))
        enough = [v >= REACHED * self.probability for _, v in points]
        last = max((i for i, each in enumerate(enough) if not each), default=-1)
        return points[last + 1][0] if last + 1 < len(points) else None

    def fall(self) -> Fall | None:
        """Where the probability reached the whole's and is lost again with more features."""
        if self.curve is None or self.probability is None:
            return None
        return find_fall(self.curve.fractions, self.curve.values, self.probability)

    def excess(self) -> tuple[float, float] | None:
        """(share, probability) of a subset that outdoes the whole input by more than 0.01.

        The smallest share on the curve within 0.005 of the most certain one. It outdoes the bare
        baseline by as much: what this gives already is no subset's doing.
        """
        if self.curve is None or self.probability is None:
            return None
        best = max(self.curve.values)
        bar = max(self.probability, self.bare or 0.0) + 0.01
        if best <= bar:
            return None
        pairs = zip(self.curve.fractions, self.curve.values, strict=True)
        return next((f, v) for f, v in pairs if v >= max(best - 0.005, bar))

    def bare_excess(self) -> float | None:
        """The bare baseline's probability where it outdoes the whole input by more than 0.01."""
        if self.bare is None or self.probability is None or self.bare <= self.probability + 0.01:
            return None
        return self.bare


def _line(name: str, spec: Any, what: str) -> Line:
    if not isinstance(spec, Mapping):
        raise InvalidInput(f"Expected {what} with fractions and values (got {spec!r:.60}).")
    return Line._checked(
        name, spec.get("fractions"), spec.get("values"), spec.get("judge"), spec.get("auc"),
        spec.get("full"),
    )  # fmt: skip


def _method(name: str, row: Any) -> Method:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"Expected comparison[{name!r}] as a mapping (got {row!r:.60}).")
    numbers = {
        key: _number(row[key], f"{key} of {name}") for key in COMPARED if row.get(key) is not None
    }
    curve, loss, second = (
        None if row.get(key) is None else _line(name, row[key], f"{name}'s {key.replace('_', ' ')}")
        for key in ("curve", "loss_curve", "second_opinion_curve")
    )
    kept = _shares(row, "kept")
    return Method(name, numbers, curve and curve.through(kept), loss, second, kept)


def _listed(numbers: Any) -> Any:
    return numbers.tolist() if hasattr(numbers, "tolist") else numbers


def _number(value: Any, what: str) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    if not fine or not isfinite(value):
        raise InvalidInput(f"Expected {what} to be finite numbers (got {value!r:.60}).")
    return float(value)


def _probability(value: Any) -> float | None:
    if value is None:
        return None
    number = _number(value, "probability")
    if not -1e-6 <= number <= 1 + 1e-6:
        raise InvalidInput(f"Expected a probability from 0 to 1 (got {number:g}).")
    return number


def _shares(about: Mapping[str, Any], name: str) -> dict[float, float]:
    """Values by share, rising."""
    found = _mapping(about, name).items()
    return dict(sorted((_share(key), _number(p, f"{name}[{key!r}]")) for key, p in found))


def _share(key: str) -> float:
    fine = re.fullmatch(r"\d{0,3}\.?\d{0,12}", key) and key.strip(".")
    if not fine or float(key) > 1:
        raise InvalidInput(f"Expected shares such as '0.05' in kept (got {key[:40]!r}).")
    return float(key)


def _prediction(pair: Any) -> tuple[str, float]:
    if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InvalidInput(f"Expected predictions as [name, probability] (got {pair!r:.60}).")
    return pair[0], _probability(pair[1]) or 0.0


def _text(about: Mapping[str, Any], name: str) -> str | None:
    value = about.get(name)
    if not (value is None or isinstance(value, str)):
        raise InvalidInput(f"Expected {name!r} in the notes to be text (got {value!r:.60}).")
    return value or None


def _mapping(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = about.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"Expected {name!r} in the notes to be a mapping (got {value!r:.60}).")
    return value


def _warning(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"Expected warnings in the notes as text (got {value!r:.60}).")
    return value


def _sequence(about: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = about.get(name) or []
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"Expected {name!r} in the notes to be a list (got {value!r:.60}).")
    return value
