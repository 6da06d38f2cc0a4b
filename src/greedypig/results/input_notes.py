"""Notes of a photo, a row, or any input without notes of its own: the class, curves of its
probability, a comparison of methods.

All facts are optional. `InputNotes` reads them from any result, whatever its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import torch

from ..core.attribution import Attribution
from ..core.enough import Fall, find_fall
from ..core.facts import Facts
from .curve import DELETION, Curve
from .labels import feature_labels, feature_word
from .picture import Picture, features_within, unranked
from .wording import Caution, chance, chance_cell, higher, of_the_rise, short_percent, shown

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
SECOND = "second-opinion"
CLEARLY = 0.01
"""A part of a graph whose value lies above the whole's by more than this is worth a warning."""
MUCH = 0.1
"""The same of a photo. So there is no warning where the photo's own probability is above 0.9:
nearly every explanation of such a photo gives a little more than the photo."""
ROUNDS = "G(S) after each round"
"""The name of the curve that every result has whose G was measured."""
JUDGE, LIKELIHOOD = "a second network", 'objective="log-likelihood"'
Shares = Mapping[float, float]
"""A measured value by the share of the features."""


@dataclass(frozen=True)
class MethodRow:
    """One method's row in a comparison."""

    KEYS: ClassVar = {"loss": "loss_curve", "second": "second_opinion_curve"}
    name: str = ""
    sic_auc: float | None = None
    lic_auc: float | None = None
    second_opinion_auc: float | None = None
    excess: float | None = None
    gradients: float | None = None
    seconds: float | None = None
    kept: Shares = field(default_factory=dict)
    """Values at further shares, through which the curve is drawn too."""
    curve: Curve | None = None
    """Its SIC."""
    loss: Curve | None = None
    """Its LIC."""
    second: Curve | None = None
    """Its SIC by another network."""

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of COMPARED that are known."""
        return {key: v for key in COMPARED if (v := getattr(self, key)) is not None}


@dataclass(frozen=True, kw_only=True)
class TensorFacts(Facts):
    """Facts about a tensor that a model was explained on."""

    kind: ClassVar = "tensor"
    KEYS: ClassVar = {"label": "class"}
    advises: ClassVar = True
    label: str = ""
    """The explained class, by name."""
    target: int | None = None
    """Its index."""
    probability: float | None = None
    """Of that class, for the whole input."""
    predictions: tuple[tuple[str, float], ...] = ()
    """The most probable classes with their probabilities, best first."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """"softmax", "loss", "deletion", "second-opinion", and any others."""
    kept: Shares = field(default_factory=dict)
    """Measured probability with only this share of the features kept."""
    removed: Shares = field(default_factory=dict)
    """Measured probability with this share removed, for counterfactuals."""
    comparison: Mapping[str, MethodRow] = field(default_factory=dict)
    """Methods by name."""


@dataclass(frozen=True, kw_only=True)
class ImageFacts(TensorFacts):
    """Facts about a photo. Its pixels are attachments: "picture" and "baseline"."""

    kind: ClassVar = "image"
    picture_axes: ClassVar = (2, 3)
    feature: str = ""
    """Name of a group of values: "pixel", "square" or "region"."""
    ranking: str = ""
    """The order of a one-shot method: "absolute", "signed", or "order" of other methods."""
    nothing: float | None = None
    """Probability of the baseline alone."""
    judge: str = ""
    """The network of the second opinion."""

    def feature_word(self, features: str) -> str:
        """The name of one feature."""
        return (features == "groups" and self.feature) or super().feature_word(features)


@dataclass(frozen=True, kw_only=True, eq=False)
class InputNotes(ImageFacts):
    """The notes of an input, with all that follows from the result's numbers."""

    a: Attribution

    @classmethod
    def of(cls, a: Attribution) -> InputNotes:
        """The notes of a result of any kind, as far as its facts are those of an input."""
        about: Any = a.about
        names = [part.name for part in fields(ImageFacts) if hasattr(about, part.name)]
        notes = cls(a=a, **{name: getattr(about, name) for name in names})
        target = a.settings.get("target") if notes.target is None else notes.target
        objective = a.settings.get("objective")
        measured = {"softmax": notes.kept, DELETION: notes.removed}
        curves = {
            name: replace(line.without_gaps().through(measured.get(name, {})), name=name)
            for name, line in notes.curves.items()
        }
        if DELETION in curves and SECOND in curves:
            second = curves[SECOND]
            curves[SECOND] = replace(second, settings={**second.settings, "off": True})
        return replace(
            notes,
            label=notes.label or (f"output {target}" if type(target) is int else ""),
            objective=notes.objective or (objective if isinstance(objective, str) else ""),
            curves=curves,
            comparison={name: _method(name, row) for name, row in notes.comparison.items()},
        )

    @cached_property
    def picture(self) -> Picture | None:
        """The picture of the input; None where it is none."""
        return Picture.of(self.a)

    @cached_property
    def reason(self) -> str | None:
        """Why there is no order, in a sentence; None where there is one."""
        return unranked(self.a)

    @property
    def whole(self) -> str:
        """Name of the whole input."""
        return "the input" if self.picture is None else "the photo"

    @cached_property
    def rounds(self) -> Curve | None:
        """G(S) after each round over the share of values selected; None if never measured."""
        a = self.a
        ranks = torch.sort(a.features.first_rank(a.order)).values
        ends = torch.tensor([0, *a.picks]).cumsum(0)
        counts = torch.searchsorted(ranks, ends.to(ranks)).tolist()
        points = {
            count / a.features.n: value
            for count, value in zip(counts, a.values.tolist(), strict=True)
            if isfinite(value)
        }
        if isfinite(a.full_value):
            points.setdefault(1.0, a.full_value)
        if len(points) < 2:
            return None
        return Curve.from_points(points.items(), ROUNDS, off=self.removing)

    @property
    def methods(self) -> tuple[MethodRow, ...]:
        """The rows of the comparison."""
        return tuple(self.comparison.values())

    @property
    def curve(self) -> Curve | None:
        """The probability over the share kept, by the network itself."""
        return self.curves.get("softmax")

    @property
    def deletion(self) -> Curve | None:
        """The probability over the share removed, for counterfactuals."""
        return self.curves.get(DELETION)

    @property
    def probabilities(self) -> dict[str, Curve]:
        """The curves of a probability: by the network itself, and by a second one."""
        wanted = (DELETION if self.removing else "softmax", SECOND)
        return {name: line for name, line in self.curves.items() if name in wanted}

    @property
    def removing(self) -> bool:
        """Are features removed from the input, rather than shown alone?

        They are for a counterfactual, unless its features were measured alone.
        """
        alone = self.curve is not None
        return self.deletion is not None or (self.objective == "counterfactual" and not alone)

    def probability_at(self, share: float, *, off: bool = False) -> float | None:
        """The probability with this share kept, or removed: as measured, else interpolated."""
        measured, line = (self.removed, self.deletion) if off else (self.kept, self.curve)
        if share in measured:
            return measured[share]
        return None if line is None else line.get(share)

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

        It is about the model's own prediction, so it is no advice for another class, nor for a
        value.
        """
        done = self.objective in ("log-likelihood", "increase", "decrease")
        return self.predicted and not done

    def needed(self, curve: Curve | None = None) -> float | None:
        """The smallest share that is enough: the probability with it alone, or for a counterfactual
        without it, has moved by 95 % of the way from the one end of the curve to the other.

        curve: another method's, for a comparison.
        """
        if self.deletion is not None and curve is None:
            return self.deletion.falling.enough(-float(self.deletion.values[-1]))
        curve = curve or self.curve
        return None if curve is None or self.probability is None else curve.enough(self.probability)

    def fall(self) -> Fall | None:
        """Where the probability reached that of the whole and fell again with more features."""
        if self.curve is None or self.probability is None:
            return None
        line = self.curve
        return find_fall(line.fractions.tolist(), line.values.tolist(), self.probability)

    def excess(self) -> tuple[float, float] | None:
        """(share, probability) of the smallest part that lies above the whole photo by more than
        0.1, and above the baseline: what the baseline gives is not due to any feature."""
        if self.curve is None or self.probability is None:
            return None
        bar = max(self.probability, self.bare or 0.0) + MUCH
        return next(((f, v) for f, v in self.curve.points if v > bar), None)

    def rows(self) -> list[list[str]]:
        """The probability of the baseline alone and with each share that was measured."""
        a, total = self.a, self.a.features.count
        words = "without the best" if self.removed else "only the best"
        end = "" if a.features.kind == "elements" else ", whole"
        rows = [["", "probability", "features"]]
        if self.nothing is not None:
            rows.append([f"baseline alone ({self.baseline})", chance_cell(self.nothing), ""])
        for share, value in (self.removed or self.kept).items():
            part = f"{features_within(a, share):,} of {total:,} {feature_word(a, total)}{end}"
            rows.append([f"{words} {100 * share:3g} %", chance_cell(value), part])
        return rows

    def answer(self) -> str:
        """The result in one sentence."""
        if self.reason is not None:
            return self.reason
        if self.methods and "methods" in self.a.attachments:
            return self._compared()
        return self._measured() or self._enough_rounds() or self._rise() or self._first()

    def _measured(self) -> str | None:
        """5 % of the photo is enough for espresso (95 % of the rise: 0.963, whole photo 0.951).

        A counterfactual is told by the smallest share without which the probability has fallen as
        far. None where no curve was measured.
        """
        label, full, share = self.label or "the class", self.probability, self.needed()
        line = self.deletion if self.removing else self.curve
        if full is None or line is None:
            return None
        if share is None:
            bare = f"the baseline alone {chance(float(line.values[-1 if self.removing else 0]))}"
            return (
                f"{_capital(self.whole)} makes {label} no more probable ({chance(full)}, {bare})."
            )
        if self.removing:
            part = f"{short_percent(share)} of {self.whole}"
            return f"Without {part}, {label} falls from {chance(full)} to {chance(line.at(share))}."
        return self._enough(share, line.at(share), full)

    def _enough(self, share: float, value: float, full: float) -> str:
        label, whole = self.label or "the class", self.whole
        if share >= 1:
            return f"No smaller part of {whole} is enough for {label} ({chance(full)})."
        noun = whole.removeprefix("the ")
        beside = f"{of_the_rise()}: {chance(value)}, whole {noun} {chance(full)}"
        return f"{short_percent(share)} of {whole} is enough for {label} ({beside})."

    def _enough_rounds(self) -> str | None:
        """Like `_measured`, by the probability after each round; with names, except of photos."""
        a, line = self.a, self.rounds if self.objective == "softmax" else None
        share = None if line is None else line.enough(a.full_value)
        if line is None or share is None:
            return None
        if self.picture is not None:
            return self._enough(share, line.at(share), a.full_value)
        if share >= 1:
            return None
        k, total = features_within(a, share), a.features.count
        names = ", ".join(feature_labels(a, a.order[: min(k, 3)].tolist())) + ", …" * (k > 3)
        verb, label = "is" if k == 1 else "are", self.label or "the class"
        values = f"({of_the_rise()}: {chance(line.at(share))}, all {chance(a.full_value)})"
        part = f"{k:,} of {total:,} {feature_word(a, total)} {verb} enough"
        return f"{part} for {label} {values}: {names}."

    def _rise(self) -> str | None:
        """The smallest share of a picture that is enough, where G was measured and rises."""
        a, line = self.a, self.rounds
        share = None if line is None or self.picture is None else line.enough(a.full_value)
        if line is None or share is None:
            return None
        part = f"{short_percent(share)} of the photo{' switched off' * self.removing}"
        ends = f"nothing {shown(float(a.values[0]), 3)}, everything {shown(a.full_value, 3)}"
        return f"With {part}, G is {shown(line.at(share), 3)}{self._for} ({ends})."

    def _first(self) -> str:
        a = self.a
        best = feature_labels(a, a.order[: min(3, a.features.count)].tolist())
        total = f"{a.features.count:,} {feature_word(a, a.features.count)}"
        return f"The first {len(best)} of {total}{self._for}: {', '.join(best)}."

    @property
    def _for(self) -> str:
        return f" for {self.label}" if self.label else ""

    def _compared(self) -> str:
        """Which method keeps the class with the least of the photo, and the next two."""
        full, label = self.probability, self.label or "the class"
        needed = sorted((share, m.name) for m in self.methods if (share := self.needed(m.curve)))
        if not needed or full is None:
            return f"{len(self.methods)} methods on the same photo."
        (least, first), *others = needed[:3]
        text = f"{first} keeps {label} ({chance(full)}) with {short_percent(least)} of the photo"
        parts = [text, *(f"{name} needs {short_percent(share)}" for share, name in others)]
        return f"{'; '.join(parts)}."

    def cautions(self) -> list[Caution]:
        """Reasons to doubt the result."""
        warnings = [Caution(warning) for warning in self.warnings]
        if self.removing or self.reason is not None:
            return warnings
        if lost := self.fall_line():
            check = "Try another seed or more rounds, and compare what they select first."
            return [Caution(lost, check), *warnings]
        if part := self.excess_line():
            checks = [
                "That is a fact about the model; it does not make the explanation better.",
                self._second_opinion(),
                self.advice("a second network, as a second opinion"),
            ]
            return [Caution(part, " ".join(check for check in checks if check)), *warnings]
        value = self._excess_value() if self.curve is None else None
        return [Caution(value, self.advice()), *warnings] if value else warnings

    def excess_line(self) -> str | None:
        """That a part gives a much higher probability than the whole, if one does."""
        point = self.excess()
        if point is None or self.probability is None:
            return None
        share, value = point
        part = f"{short_percent(share)} of the features"
        return f"{higher(part, chance(value), 'the whole photo', chance(self.probability))}."

    def _excess_value(self) -> str | None:
        """That some features give a higher G than all of them, if they do."""
        a = self.a
        values = a.values[a.values.isfinite()]
        if not isfinite(a.full_value) or values.numel() == 0:
            return None
        best = float(values.max())
        if best <= a.full_value + 0.01 * max(abs(a.full_value), best - float(values.min())):
            return None
        some, full = f"Some of the {feature_word(a)}", shown(a.full_value, 3)
        return f"{higher(some, shown(best, 3), 'all of them', full, quantity='G')}."

    def fall_line(self) -> str | None:
        """That the probability was reached and lost again as features are added, if it was."""
        lost = self.fall()
        if lost is None:
            return None
        return (
            f"This explanation does not hold: {short_percent(lost.reached_at)} of the features "
            f"give {chance(lost.reached)}, {short_percent(lost.lost_at)} give {chance(lost.lost)}."
        )

    def _second_opinion(self) -> str:
        """What another network says of the part with a higher probability, if one was asked."""
        second, point = self.curves.get(SECOND), self.excess()
        value = None if second is None or point is None else second.get(point[0])
        if second is None or value is None:
            return ""
        whole = second.full if second.full is not None else second.get(1.0)
        beside = "" if whole is None else f" (the whole photo: {whole:.3f})"
        judge = second.judge or "another network"
        return f"As a second opinion, {judge} gives the same features {value:.3f}{beside}."

    def advice(self, judge: str = JUDGE, likelihood: str = LIKELIHOOD) -> str:
        """What to do about a part that gives a higher probability; "" where all has been done, and
        for tables, graphs and set functions."""
        if not self.a.about.advises or not self.objective:
            return ""
        ways = []
        if self.advises_log_likelihood:
            noun = self.whole.removeprefix("the ")
            ways.append(f"use {likelihood} to match the {noun}'s own prediction")
        if SECOND not in self.curves:
            ways.append(f"check with {judge}")
        text = ", or ".join(ways)
        return f"{_capital(text)}." if text else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _method(name: str, row: MethodRow) -> MethodRow:
    def drawn(line: Curve | None, measured: Shares) -> Curve | None:
        return None if line is None else replace(line.without_gaps().through(measured), name=name)

    return replace(
        row,
        name=name,
        curve=drawn(row.curve, row.kept),
        loss=drawn(row.loss, {}),
        second=drawn(row.second, {}),
    )
