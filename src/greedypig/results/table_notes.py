"""Notes of a selection of columns: losses after retraining, rankings, and their consequences.

`greedypig select` retrains and writes the `Selection`; figures and pages are drawn from it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, inf, sqrt
from statistics import NormalDist, fmean, stdev
from typing import Any, ClassVar

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.facts import Facts
from .wording import Caution, count, signed

FEW_ROWS, HARDLY_ANY = 1000, 200
"""With fewer validation rows a difference of losses, or the whole table, is called unreliable."""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95 % quantiles for 1, 2, … degrees of freedom."""
R2 = "R² of these losses: 1 − loss / variance of the label, both on the validation rows."
METRICS = {"binary": "log-loss", "classes": "log-loss", "number": "squared error"}


@dataclass(frozen=True)
class Summary:
    """A loss or an accuracy after retraining, over seeds."""

    mean: float
    standard_error: float | None = None
    """Standard error of the mean; None for one seed."""

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """The summary of one number for each seed."""
        n = len(values)
        return Summary(fmean(values), None if n < 2 else stdev(values) / sqrt(n))


Losses = Mapping[str, Mapping[int, Summary]]
"""Method → k → loss."""


@dataclass(frozen=True)
class Constant:
    """The same prediction for every row: the class rates of the training rows, or their mean."""

    loss: float
    """On the validation rows."""
    accuracy: float | None = None
    variance: float | None = None
    """Variance of the label on the validation rows; None for classes."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selected columns, and the losses of new networks trained on them."""

    train_rows: int
    valid_rows: int
    seeds: int
    ks: tuple[int, ...]
    losses: Losses
    loss_all: Summary
    label: str = ""
    metric: str = ""
    """What the loss is: "log-loss" or "squared error"."""
    accuracies: Losses = field(default_factory=dict)
    """The same as shares of correct predictions; empty for a number."""
    accuracy_all: Summary | None = None
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Method → its columns, best first."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Column → what it holds, in words."""
    network: str = ""
    network_loss: float | None = None
    """Loss of the explained network on the validation rows."""
    task: str = ""
    """What is predicted, in words: classes and their shares, or a number."""
    constant: Constant | None = None
    """The prediction without any column; None where it was not measured."""
    warnings: tuple[str, ...] = ()
    """Warnings about columns: leaks, row numbers, missing values, and so on."""
    left_out: tuple[str, ...] = ()
    """Columns that number the rows: they were not ranked."""

    def __post_init__(self) -> None:
        if not self.ks or not self.losses or not all(self.losses.values()):
            raise InvalidInput("Expected losses of at least one method and k (got none).")


@dataclass(frozen=True)
class HeldOut:
    """The columns of the explained network on rows that it has not learned from."""

    columns: int | None = None
    """After so many columns the loss does not improve; None where it does."""
    values: tuple[float | None, ...] = ()
    """G of the first 0, 1, … columns and, last, of all."""
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class TableFacts(Facts):
    """Facts about the columns of a table."""

    kind: ClassVar = "table"
    picture_axes: ClassVar = ()
    gradient_batches: int = 0
    """Batches at one point of a path each that the search has paid."""
    gradient_rows: int = 0
    """Their rows."""
    held_out: HeldOut | None = None
    """The check on `valid=` rows."""
    selection: Selection | None = None
    """Losses after retraining, written by `greedypig select`."""

    @property
    def view(self) -> str:
        """A selection that was retrained has pages of its own."""
        return self.kind if self.selection is None else "selection"

    def feature_word(self, features: str) -> str:
        """The name of one feature."""
        return "column" if features == "elements" else super().feature_word(features)


@dataclass(frozen=True, kw_only=True)
class ColumnNotes(Selection):
    """The notes of a selection."""

    columns: int
    """How many columns were ranked."""
    without_gain: int | None = None
    """After so many columns the explained network's loss on the validation rows does not improve;
    None where it does, or is not known."""

    @classmethod
    def of(cls, a: Attribution) -> ColumnNotes:
        """The notes of a result of `greedypig select`."""
        facts: Any = a.about
        last = None if facts.held_out is None else facts.held_out.columns
        return cls(**vars(facts.selection), columns=a.features.count, without_gain=last)

    @property
    def first(self) -> str:
        """The method whose selection this is."""
        return next(iter(self.losses))

    def by_name(self) -> dict[str, Mapping[int, Summary]]:
        """Name → k → loss: the methods, a constant prediction if that is known, all columns."""
        rows = dict(self.losses)
        if self.constant is not None:
            rows["constant prediction"] = dict.fromkeys(self.ks, Summary(self.constant.loss))
        return rows | {"all columns": dict.fromkeys(self.ks, self.loss_all)}

    @property
    def useful(self) -> int | None:
        """After so many columns of the first method the loss does not improve, neither that of the
        explained network nor that of the retrained ones; None where that is not known."""
        if self.without_gain is None:
            return None
        losses = self.losses[self.first]
        sets = [*sorted(losses.items()), (len(self.kinds), self.loss_all)]
        poor = -1
        for i, (k, loss) in enumerate(sets):
            if any(loss.mean - other.mean > self._noise(loss, other) for _, other in sets[i + 1 :]):
                poor = k
        if poor < self.without_gain:
            return self.without_gain
        return next((k for k in sorted(losses) if k > poor), None)

    def _noise(self, loss: Summary, other: Summary) -> float:
        """Half the 95 % confidence interval of a difference of losses, over seeds; infinite where
        there is no error estimate."""
        if loss.standard_error is None or other.standard_error is None or self.seeds < 2:
            return inf
        return student(self.seeds - 1) * hypot(loss.standard_error, other.standard_error)

    def gained(self) -> str:
        """A sentence that says after which column nothing is gained; empty where not known."""
        if self.useful is None:
            return ""
        if self.useful == 0:
            return "No column lowers the validation loss by more than its standard error."
        last = self.orders.get(self.first, ())[self.useful - 1 : self.useful]
        which = f" (the last one is {last[0]!r})" if last else ""
        return (
            f"Nothing is gained after {count(self.useful, 'column')}{which}: further columns lower "
            "the validation loss by less than one standard error."
        )

    def answer_k(self) -> int:
        """The fewest retrained columns of the first method after which nothing is gained; where
        that is not known, with at most 1.01 of the loss of all columns; else the most."""
        losses, useful = self.losses[self.first], self.useful
        if useful is not None:
            near = (k for k in sorted(losses) if k >= useful)
        else:
            near = (k for k, loss in losses.items() if loss.mean <= 1.01 * self.loss_all.mean)
        return next(near, max(losses))

    def figure(self, value: float) -> str:
        """A loss for people: log-losses have one scale, squared errors that of the label."""
        return f"{value:.4f}" if self.metric == METRICS["binary"] else f"{value:.5g}"

    def shown(self, loss: Summary) -> str:
        """A loss with its error for people."""
        error = loss.standard_error
        return self.figure(loss.mean) + ("" if error is None else f" ± {self.figure(error)}")

    def r_squared(self, loss: float) -> float | None:
        """1 − loss / variance of the label, both on the validation rows; None for classes."""
        variance = None if self.constant is None else self.constant.variance
        return 1 - loss / variance if variance else None

    def r_squared_rows(self) -> list[list[str]]:
        """R² by method and k, in the rows of `by_name`; none for classes."""
        if self.r_squared(0) is None:
            return []
        return [
            [name, *(signed(self.r_squared(by[k].mean)) for k in self.ks)]
            for name, by in self.by_name().items()
        ]

    @property
    def unit(self) -> str:
        """The unit of the losses after retraining, where they have one: " (…)"."""
        return f" (in squared units of {self.label})" if self.metric == METRICS["number"] else ""

    @property
    def unit_of_g(self) -> str:
        """The same of G, which is measured on the label as networks predict it."""
        number = self.metric == METRICS["number"]
        return " (of the standardised label, whose variance is 1)" if number else ""

    def constant_is_near(self) -> bool:
        """Is the loss of a constant prediction close enough to be drawn on the same scale?"""
        drawn = [*self._losses(), self.loss_all.mean]
        low, high = min(drawn), max(drawn)
        constant = None if self.constant is None else self.constant.loss
        return constant is not None and low - (high - low) <= constant <= high + (high - low)

    def rows(self, *, errors: bool = True) -> list[list[str]]:
        """The losses after retraining, with their standard errors if they are wanted."""

        def cell(loss: Summary) -> str:
            return self.shown(loss) if errors else self.figure(loss.mean)

        losses = self.by_name().items()
        cells = [[name, *(cell(by_k[k]) for k in self.ks)] for name, by_k in losses]
        return [["k", *map(str, self.ks)], *cells]

    def answer(self) -> str:
        """The result in one sentence."""
        k, whole = self.answer_k(), self.figure(self.loss_all.mean)
        loss = self.figure(self.losses[self.first][k].mean)
        part = f"{k} of {self.columns} columns"
        return f"{part} give a validation {self.metric} of {loss}; all columns {whole}."

    def cautions(self) -> list[Caution]:
        """Reasons to doubt the result."""
        return [Caution(line) for line in (*self.doubts(), *self.warnings)]

    def doubts(self) -> list[str]:
        """Warnings that come before any number: a constant prediction is as good as every set of
        columns, or as the explained network; there are hardly any validation rows."""
        cautions = []
        if self.constant is not None:
            constant = f"a constant prediction ({self.metric} {self.figure(self.constant.loss)})"
            best, network = min([*self._losses(), self.loss_all.mean]), self.network_loss
            if best >= self.constant.loss:
                cautions.append(
                    f"The columns do not help: the best of these networks ({self.figure(best)}) is "
                    f"no better than {constant}."
                )
            elif network is not None and network >= self.constant.loss:
                cautions.append(
                    f"The explained network ({self.figure(network)}) is no better than {constant}: "
                    "its selection says little about the columns."
                )
        if self.valid_rows < HARDLY_ANY:
            cautions.append(
                f"Only {self.valid_rows} validation rows: differences between methods are not "
                "reliable."
            )
        return cautions

    def _losses(self) -> list[float]:
        return [loss.mean for by in self.losses.values() for loss in by.values()]

    def verdict(self, method: str, other: str, k: int) -> str:
        """How two methods compare at k, in words.

        The error is that over the seeds of retraining alone: one network chose the columns, and the
        same rows validate both. With a few hundred rows differences arise by chance.
        """
        ours, theirs = self.losses[method][k], self.losses[other][k]
        if self.figure(ours.mean) == self.figure(theirs.mean):
            return f"{method} and {other} have the same loss"
        gap, noise = theirs.mean - ours.mean, self._noise(ours, theirs)
        place = "ahead of" if gap > 0 else "behind"
        words = f"{method} {place} {other} by {self.figure(abs(gap))}"
        if noise == inf:
            return f"{words} (one seed, no error estimate)"
        if abs(gap) <= noise:
            return f"{words}, within the noise (± {self.figure(noise)} with {self.seeds} seeds)"
        few = f" (only {self.valid_rows} validation rows: not reliable)"
        return words + few * (self.valid_rows < FEW_ROWS)


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond the table by Cornish and Fisher."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
