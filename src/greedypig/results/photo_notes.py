"""The notes that a result carries: names, predictions, curves, a comparison of methods.

Notes are written by `Attribution.with_notes` and are all optional. They are read and checked here
before they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..core.attribution import Attribution
from ..core.enough import Fall, find_fall
from .curve import DELETION, Curve
from .reader import read

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
Shares = Mapping[float, float]
"""A measured value by the share of the features."""


@dataclass(frozen=True)
class Method:
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


@dataclass(frozen=True)
class Notes:
    """The notes of a result, checked; None or empty where there are none."""

    KEYS: ClassVar = {"label": "class"}
    kind: str | None = None
    source: str | None = None
    model: str | None = None
    label: str | None = None
    """The explained class, else "output 7" (0 for a single output that is no class)."""
    probability: float | None = None
    predictions: tuple[tuple[str, float], ...] = ()
    baseline: str | None = None
    objective: str | None = None
    command: str | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """"softmax" is drawn through the points of `kept` too, "deletion" through `removed`."""
    kept: Shares = field(default_factory=dict)
    """Probability with only this share kept, as measured."""
    removed: Shares = field(default_factory=dict)
    """Probability with this share removed, as measured, for counterfactuals."""
    comparison: Mapping[str, Method] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """Warnings of the run."""

    @staticmethod
    def of(a: Attribution) -> Notes:
        """Read and check a result's notes."""
        notes = read(Notes, a.about, "the notes")
        target = a.about.get("target", a.settings.get("target"))
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
            label=notes.label or (f"output {target}" if type(target) is int else None),
            objective=notes.objective or (objective if isinstance(objective, str) else None),
            curves=curves,
            comparison={name: _method(name, row) for name, row in notes.comparison.items()},
        )

    @property
    def methods(self) -> tuple[Method, ...]:
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


def compared_curves(methods: Sequence[Method]) -> list[tuple[str, str, dict[str, Curve]]]:
    """(kind, caption, curves by method) of a comparison: "curve", "loss" and "second"."""
    curves = {
        kind: {m.name: line for m in methods if (line := getattr(m, kind)) is not None}
        for kind in ("curve", "loss", "second")
    }
    off = any(line.off for line in curves["curve"].values())
    judges = [line.judge for line in curves["second"].values() if line.judge]
    captions = {
        "curve": "probability with the best features switched off ↓"
        if off
        else "SIC: probability with only the best features ↑",
        "loss": "LIC: distance from the prediction (KL, nats) ↓",
        "second": f"second opinion by {judges[0] if judges else 'another network'} "
        f"{'↓' if off else '↑'}",
    }
    return [(kind, captions[kind], lines) for kind, lines in curves.items() if lines]


def _method(name: str, row: Method) -> Method:
    def drawn(line: Curve | None, measured: Shares) -> Curve | None:
        return None if line is None else replace(line.without_gaps().through(measured), name=name)

    return replace(
        row,
        name=name,
        curve=drawn(row.curve, row.kept),
        loss=drawn(row.loss, {}),
        second=drawn(row.second, {}),
    )
