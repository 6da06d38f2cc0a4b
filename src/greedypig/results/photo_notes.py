"""The notes that a result carries, checked: names, predictions, curves, a comparison of methods.

Notes are written by `Attribution.with_notes` and are all optional. A file may come from a stranger,
so each note is checked here before it is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.attribution import REACHED, Attribution, Fall, find_fall
from ..core.errors import InvalidInput
from .curve import DELETION, Curve
from .reader import Reader, as_number

COMPARED = {
    "sic_auc": ("SIC AUC ↑", "{:.3f}"),
    "lic_auc": ("LIC AUC ↓", "{:.3f}"),
    "second_opinion_auc": ("second opinion ↑", "{:.3f}"),
    "excess": ("above full ↓", "{:.3f}"),
    "gradients": ("gradients", "{:,.0f}"),
    "seconds": ("seconds", "{:,.1f}"),
}
"""What methods are compared by: the heading of a column, and the format of its numbers. The excess
is how far the curve rises above the full input's value."""


@dataclass(frozen=True)
class Method:
    """One method's row in a comparison."""

    name: str
    numbers: Mapping[str, float]
    """Any of COMPARED."""
    curve: Curve | None
    """Its SIC, drawn through the shares at which it was measured too."""
    loss: Curve | None = None
    """Its LIC."""
    second: Curve | None = None
    """Its SIC by another network."""


@dataclass(frozen=True)
class Notes:
    """The notes of a result, checked; None or empty where there are none."""

    kind: str | None
    source: str | None
    model: str | None
    label: str | None
    """The explained class, else "output 7" (0 for a single output that is no class)."""
    probability: float | None
    predictions: tuple[tuple[str, float], ...]
    baseline: str | None
    objective: str | None
    command: str | None
    curves: Mapping[str, Curve]
    """"softmax" is drawn through the points of `kept` too, "deletion" through `removed`."""
    kept: Mapping[float, float]
    """Probability with only this share kept, as measured."""
    removed: Mapping[float, float]
    """Probability with this share removed, as measured, for counterfactuals."""
    comparison: tuple[Method, ...]
    warnings: tuple[str, ...] = ()
    """Warnings of the run."""

    @staticmethod
    def of(a: Attribution) -> Notes:
        """Read and check a result's notes."""
        about = Reader(a.about, "the notes")
        target = a.about.get("target", a.settings.get("target"))
        kept, removed = _by_share(about, "kept"), _by_share(about, "removed")
        objective = a.settings.get("objective")
        return Notes(
            kind=about.text("kind") or None,
            source=about.text("source") or None,
            model=about.text("model") or None,
            label=about.text("class") or (f"output {target}" if type(target) is int else None),
            probability=_probability(a.about.get("probability")),
            predictions=tuple(_prediction(p) for p in about.items("predictions")),
            baseline=about.text("baseline") or None,
            objective=about.text("objective")
            or (objective if isinstance(objective, str) else None),
            command=about.text("command") or None,
            curves=_curves(about, kept, removed),
            kept=kept,
            removed=removed,
            comparison=tuple(_method(*item) for item in about.parts("comparison").items()),
            warnings=about.texts("warnings"),
        )

    @property
    def drawn_at(self) -> str | None:
        """A remark for pictures of a result with several baselines; None for a single one."""
        names = [name.strip() for name in (self.baseline or "").split(",")]
        if len(names) < 2 or not all(names):
            return None
        several = f"{', '.join(names[:-1])} and {names[-1]}"
        every = "both" if len(names) == 2 else f"all {len(names)}"
        return f"drawn at the mean of {several}; the numbers average {every}"

    @property
    def curve(self) -> Curve | None:
        """The probability over the share kept, by the network itself."""
        return self.curves.get("softmax")

    @property
    def deletion(self) -> Curve | None:
        """The probability over the share removed, for counterfactuals."""
        return self.curves.get(DELETION)

    @property
    def removing(self) -> bool:
        """Are features removed from the input, rather than shown alone?

        They are for a counterfactual, unless its features were measured alone.
        """
        alone = self.curve is not None
        return self.deletion is not None or (self.objective == "counterfactual" and not alone)

    def probability_at(
        self, share: float, alike: tuple[float, float] | None = None, *, off: bool = False
    ) -> tuple[float, bool] | None:
        """(probability with this share kept, or removed; was it measured, or interpolated?)

        alike: shares, from … up to but without …, at which the same features are present, for
            features of several values (`picture.shares_alike`).
        """
        line = self.deletion if off else self.curve
        low, high = alike or (share - 1e-9, share + 1e-9)
        points = [*(self.removed if off else self.kept).items()]
        points += [] if line is None else line.points
        for place, value in points:
            if low <= place < high:
                return value, True
        read = None if line is None else line.get(share)
        return None if read is None else (read, False)

    @property
    def bare(self) -> float | None:
        """The probability of the baseline; None if it is not known."""
        return None if self.curve is None else self.curve.get(0)

    @property
    def predicted(self) -> bool:
        """Is the explained class the predicted one, as far as the notes say?"""
        if not self.predictions:
            return True
        name, most = self.predictions[0]
        # Classes may share a name, so the probability decides.
        return self.label == name if self.probability is None else self.probability >= most - 1e-6

    @property
    def advises_log_likelihood(self) -> bool:
        """Is objective="log-likelihood" worth trying where a part lies above the whole?

        It is about the model's own prediction, so it is no advice for another class.
        """
        return self.predicted and self.objective != "log-likelihood"

    def needed(self) -> float | None:
        """The smallest share from which on the probability stays above 9/10 of the whole's."""
        if self.curve is None or not self.probability:
            return None
        points = self.curve.points
        enough = [v >= REACHED * self.probability for _, v in points]
        last = max((i for i, each in enumerate(enough) if not each), default=-1)
        return points[last + 1][0] if last + 1 < len(points) else None

    def fall(self) -> Fall | None:
        """Where the probability reached that of the whole and fell again with more features."""
        if self.curve is None or self.probability is None:
            return None
        line = self.curve
        return find_fall(line.fractions.tolist(), line.values.tolist(), self.probability)

    def excess(self) -> tuple[float, float] | None:
        """(share, probability) of a part that lies above the whole input by more than 0.01.

        It is the smallest share within 0.005 of the highest probability. It also lies above the
        baseline by 0.01: what the baseline gives is not due to any feature.
        """
        if self.curve is None or self.probability is None:
            return None
        best = float(self.curve.values.max())
        bar = max(self.probability, self.bare or 0.0) + 0.01
        if best <= bar:
            return None
        return next((f, v) for f, v in self.curve.points if v >= max(best - 0.005, bar))

    def bare_excess(self) -> float | None:
        """The baseline's probability where it lies above the whole input by more than 0.01."""
        if self.bare is None or self.probability is None or self.bare <= self.probability + 0.01:
            return None
        return self.bare


def _curves(
    about: Reader, kept: Mapping[float, float], removed: Mapping[float, float]
) -> dict[str, Curve]:
    curves = {name: _curve(about.part("curves"), name, name) for name in about.part("curves")}
    if "softmax" in curves:
        curves["softmax"] = curves["softmax"].through(kept)
    if DELETION in curves:
        curves[DELETION] = curves[DELETION].through(removed)
        if (second := curves.get("second-opinion")) is not None:
            settings = {**second.settings, "off": True}
            curves["second-opinion"] = replace(second, settings=settings)
    return curves


def _curve(record: Reader, key: str, name: str) -> Curve:
    return Curve.from_dict(record.record[key], name).without_gaps()


def _method(name: str, row: Reader) -> Method:
    numbers = {key: v for key in COMPARED if (v := row.number_if_any(key)) is not None}
    curve, loss, second = (
        None if row.record.get(key) is None else _curve(row, key, name)
        for key in ("curve", "loss_curve", "second_opinion_curve")
    )
    return Method(name, numbers, curve and curve.through(_by_share(row, "kept")), loss, second)


def _probability(value: Any) -> float | None:
    if value is None:
        return None
    number = as_number(value, "probability")
    if not -1e-6 <= number <= 1 + 1e-6:
        raise InvalidInput(f"Expected a probability from 0 to 1 (got {number:g}).")
    return number


def _by_share(about: Reader, name: str) -> dict[float, float]:
    """Values by share, rising."""
    record = about.part(name)
    return dict(sorted((_share(key), record.number(key)) for key in record))


def _share(key: str) -> float:
    fine = re.fullmatch(r"\d{0,3}\.?\d{0,12}", key) and key.strip(".")
    if not fine or float(key) > 1:
        raise InvalidInput(f"Expected shares such as '0.05' in kept (got {key[:40]!r}).")
    return float(key)


def _prediction(pair: Any) -> tuple[str, float]:
    if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InvalidInput(f"Expected predictions as [name, probability] (got {pair!r:.60}).")
    return pair[0], _probability(pair[1]) or 0.0
