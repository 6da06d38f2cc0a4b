"""The notes of a selection of columns: losses after retraining, rankings, and what they say.

`greedypig select` writes them under "selection"; figures and pages are drawn from them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import ClassVar

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from .reader import read

KEY = "selection"
FEW_ROWS, HARDLY_ANY = 1000, 200
"""With fewer validation rows a difference of losses, or the whole table, is called unreliable."""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95 % quantiles for 1, 2, … degrees of freedom."""
METRICS = {"binary": "log-loss", "classes": "log-loss", "number": "squared error"}


@dataclass(frozen=True)
class Loss:
    """A loss after retraining, over seeds."""

    KEYS: ClassVar = {"error": "standard_error"}
    mean: float
    error: float | None = None
    """Standard error; None for one seed."""


Losses = Mapping[str, Mapping[int, Loss]]
"""Method → k → loss."""


@dataclass(frozen=True)
class Constant:
    """The same prediction for every row: the class rates of the training rows, or their mean."""

    loss: float
    """On the validation rows."""
    accuracy: float | None = None
    variance: float | None = None
    """Variance of the label on the validation rows; None for classes."""


@dataclass(frozen=True)
class HeldOut:
    """How the explained network does on the validation rows with its first columns."""

    columns: int | None = None
    """After so many columns its loss does not improve; None where it does, or is not known."""


@dataclass(frozen=True)
class ColumnNotes:
    """The notes of a selection."""

    train_rows: int
    valid_rows: int
    seeds: int
    ks: tuple[int, ...]
    losses: Losses
    loss_all: Loss
    label: str = ""
    metric: str = ""
    """What the loss is: "log-loss" or "squared error"."""
    accuracies: Losses = field(default_factory=dict)
    """The same as shares of correct predictions; empty for a number."""
    accuracy_all: Loss | None = None
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
    """Columns that number the rows, and were not ranked."""
    held_out: HeldOut = HeldOut()

    @staticmethod
    def of(a: Attribution) -> ColumnNotes | None:
        """Read and check a result's notes; None where it is no selection that was retrained."""
        if KEY not in a.about:
            return None
        notes = read(ColumnNotes, a.about[KEY], "the notes of the selection")
        if not notes.ks or not notes.losses or not all(notes.losses.values()):
            raise InvalidInput("Expected losses of at least one method and k (got none).")
        held_out = read(HeldOut, a.about.get("held_out") or {}, "held_out in the notes")
        if (held_out.columns or 0) > a.features.units:
            raise InvalidInput(
                f"Expected at most {a.features.units} columns in held_out (got {held_out.columns})."
            )
        return replace(notes, held_out=held_out)

    @property
    def first(self) -> str:
        """The method whose selection this is."""
        return next(iter(self.losses))

    @property
    def useful(self) -> int | None:
        """After so many columns of the first method the loss does not improve, neither that of the
        explained network nor that of the retrained ones; None where that is not known."""
        enough = self.held_out.columns
        if enough is None:
            return None
        losses = self.losses[self.first]
        sets = [*sorted(losses.items()), (len(self.kinds), self.loss_all)]
        poor = max(
            (
                k
                for i, (k, loss) in enumerate(sets)
                if any(self._better(other, loss) for _, other in sets[i + 1 :])
            ),
            default=-1,
        )
        if poor < enough:
            return enough
        return next((k for k in sorted(losses) if k > poor), None)

    def _better(self, loss: Loss, other: Loss) -> bool:
        """Is a loss lower than another by more than the noise of the seeds?"""
        if loss.error is None or other.error is None or self.seeds < 2:
            return False
        return other.mean - loss.mean > self._noise(loss.error, other.error)

    def _noise(self, error: float, other: float) -> float:
        """Half the 95 % confidence interval of a difference of losses, over seeds."""
        return float(student(self.seeds - 1) * (error**2 + other**2) ** 0.5)

    def gained(self) -> str:
        """A sentence that says after which column nothing is gained; empty where not known."""
        useful = self.useful
        if useful is None:
            return ""
        if useful == 0:
            return "No column lowers the validation loss by more than its standard error."
        first = f"the first {useful} columns" if useful > 1 else "the first column"
        last = self.orders.get(self.first, ())[useful - 1 : useful]
        return (
            f"Nothing is gained after {first}{''.join(f', up to {name!r}' for name in last)}: "
            "further columns lower the validation loss by less than one standard error."
        )

    def figure(self, value: float) -> str:
        """A loss for people: log-losses have one scale, squared errors that of the label."""
        return f"{value:.4f}" if self.metric == METRICS["binary"] else f"{value:.5g}"

    def shown(self, loss: Loss) -> str:
        """A loss with its error for people."""
        error = "" if loss.error is None else f" ± {self.figure(loss.error)}"
        return self.figure(loss.mean) + error

    def r_squared(self, loss: float) -> float | None:
        """1 − loss / variance of the label, both on the validation rows; None for classes."""
        variance = None if self.constant is None else self.constant.variance
        return 1 - loss / variance if variance else None

    def constant_is_near(self) -> bool:
        """Is the loss of a constant prediction close enough to be drawn on the same scale?"""
        drawn = [*self._losses(), self.loss_all.mean]
        low, high = min(drawn), max(drawn)
        constant = None if self.constant is None else self.constant.loss
        return constant is not None and low - (high - low) <= constant <= high + (high - low)

    def cautions(self) -> list[str]:
        """Warnings that come before any number."""
        few = (
            f"Only {self.valid_rows} validation rows: differences between methods are not reliable."
        )
        return [s for s in (self.no_help(), few if self.valid_rows < HARDLY_ANY else "") if s]

    def no_help(self) -> str:
        """A sentence where a constant prediction is as good as the explained network, or as every
        set of columns; else empty."""
        if self.constant is None:
            return ""
        best = min([*self._losses(), self.loss_all.mean])
        if best < self.constant.loss:
            network = self.network_loss
            if network is None or network < self.constant.loss:
                return ""
            against = f"{self.figure(network)} against {self.figure(self.constant.loss)}"
            return (
                "The explained network is no better than a constant prediction "
                f"({self.metric} {against}): its selection says little about the columns."
            )
        return (
            f"The columns do not help: a constant prediction gives {self.metric} "
            f"{self.figure(self.constant.loss)}, the best of these networks {self.figure(best)}."
        )

    def _losses(self) -> list[float]:
        return [loss.mean for by in self.losses.values() for loss in by.values()]

    def verdict(self, method: str, other: str, k: int) -> str:
        """How two methods compare at k, in words.

        The error is that over the seeds of retraining alone: one network chose the columns, and the
        same rows validate both. With a few hundred rows differences arise by chance.
        """
        ours, theirs = self.losses[method][k], self.losses[other][k]
        gap = theirs.mean - ours.mean
        plain = self.metric == METRICS["binary"]
        if abs(gap) < (5e-5 if plain else 5e-6 * abs(ours.mean)) or gap == 0:  # As many digits.
            return f"{method} and {other} end alike"
        first = f"{method} {'ahead of' if gap > 0 else 'behind'} {other} by "
        first += self.figure(abs(gap))
        if ours.error is None or theirs.error is None or self.seeds < 2:
            return f"{first} (one seed, no error estimate)"
        noise = self._noise(ours.error, theirs.error)
        if abs(gap) <= noise:
            return f"{first}, within the noise (± {self.figure(noise)} with {self.seeds} seeds)"
        if self.valid_rows < FEW_ROWS:
            return f"{first} (only {self.valid_rows} validation rows: not reliable)"
        return first


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond the table by Cornish and Fisher."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
