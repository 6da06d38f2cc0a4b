"""What a selection of columns notes on its result, checked: losses after retraining, rankings.

`greedypig select` writes them under "selection"; figures and pages are drawn from them alone. A
file may come from a stranger, so everything is checked here before anybody draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from .statistics import student

KEY = "selection"
FEW_ROWS, HARDLY_ANY = 1000, 200
"""Rows below which a difference of losses is the rows' doing as easily as the columns', and
below which that is said of the whole table."""
METRICS = {"binary": "log-loss", "classes": "log-loss", "number": "squared error"}


@dataclass(frozen=True)
class Loss:
    """A loss after retraining, over seeds."""

    mean: float
    error: float | None
    """Standard error; None for one seed."""


@dataclass(frozen=True)
class Constant:
    """The same answer for every row: the training rows' rates of the classes, or their mean."""

    loss: float
    """On the validation rows."""
    accuracy: float | None
    variance: float | None
    """Of a number on the validation rows; None for classes."""


@dataclass(frozen=True)
class ColumnNotes:
    """The notes of a selection."""

    label: str
    metric: str
    """What the loss is: "log-loss" or "squared error"."""
    train_rows: int
    valid_rows: int
    seeds: int
    ks: tuple[int, ...]
    losses: Mapping[str, Mapping[int, Loss]]
    """Method → k → loss."""
    accuracies: Mapping[str, Mapping[int, Loss]]
    """The same in shares of right answers; empty for a number."""
    loss_all: Loss
    accuracy_all: Loss | None
    orders: Mapping[str, tuple[str, ...]]
    """Method → its columns, best first."""
    kinds: Mapping[str, str]
    """Column → what it holds, in words."""
    network: str
    network_loss: float | None
    """Of the network that was explained, on the validation rows."""
    task: str = ""
    """What is predicted, in words: classes and their shares, or a number."""
    constant: Constant | None = None
    """What the columns have to beat; None in files from before it was measured."""
    warnings: tuple[str, ...] = ()
    """What was warned of: columns that leak, number the rows or are odd, gaps, and so on."""
    left_out: tuple[str, ...] = ()
    """Columns that number the rows, and were not ranked."""
    enough: int | None = None
    """On the validation rows the model that was asked gains nothing after so many columns; None
    where it does, or where that was not measured."""

    @staticmethod
    def of(a: Attribution) -> ColumnNotes | None:
        """Read and check a result's notes; None where it is no selection that was retrained."""
        if KEY not in a.about:
            return None
        about = _mapping(a.about[KEY], "selection")
        ks = tuple(_count(k, "ks") for k in _list(about.get("ks"), "ks"))
        orders = {
            str(name): tuple(_text(c, "orders") for c in _list(of, "orders"))
            for name, of in _mapping(about.get("orders"), "orders").items()
        }
        network_loss = about.get("network_loss")
        accuracy = about.get("accuracy_all")
        return ColumnNotes(
            label=_text(about.get("label"), "label"),
            metric=_text(about.get("metric"), "metric"),
            train_rows=_count(about.get("train_rows"), "train_rows"),
            valid_rows=_count(about.get("valid_rows"), "valid_rows"),
            seeds=_count(about.get("seeds"), "seeds"),
            ks=ks,
            losses=_losses(about.get("losses"), ks),
            accuracies=_losses(about.get("accuracies") or {}, ks),
            loss_all=_loss(about.get("loss_all")),
            accuracy_all=None if accuracy is None else _loss(accuracy),
            orders=orders,
            kinds={
                str(k): _text(v, "kinds") for k, v in _mapping(about.get("kinds"), "kinds").items()
            },
            network=_text(about.get("network"), "network"),
            network_loss=None if network_loss is None else _number(network_loss),
            task=_text(about.get("task", ""), "task"),
            constant=_constant(about.get("constant")),
            warnings=tuple(
                _text(w, "warnings") for w in _list(about.get("warnings", ()), "warnings")
            ),
            left_out=tuple(
                _text(n, "left_out") for n in _list(about.get("left_out", ()), "left_out")
            ),
            enough=_enough(a),
        )

    @property
    def useful(self) -> int | None:
        """After so many columns of the first method nothing is gained, as far as both the model
        that was asked and the retrained networks can tell; None where that is not known."""
        if self.enough is None:
            return None
        losses = next(iter(self.losses.values()), {})
        sets = [*((k, losses[k]) for k in self.ks if k in losses), (len(self.kinds), self.loss_all)]
        poor = [k for i, (k, loss) in enumerate(sets)
                if any(self._better(other, loss) for _, other in sets[i + 1 :])]  # fmt: skip
        if not poor or max(poor) < self.enough:
            return self.enough
        return next((k for k, _ in sets[:-1] if k > max(poor)), None)

    def _better(self, loss: Loss, other: Loss) -> bool:
        """Is a loss lower than another by more than the seeds' noise?"""
        if loss.error is None or other.error is None or self.seeds < 2:
            return False
        noise: float = student(self.seeds - 1) * (loss.error**2 + other.error**2) ** 0.5
        return other.mean - loss.mean > noise

    def gained(self) -> str:
        """A sentence that says after which column nothing is gained; empty where not known."""
        useful = self.useful
        if useful is None:
            return ""
        if useful == 0:
            return "No column lowers the validation loss by more than its standard error."
        last = next(iter(self.orders.values()))[useful - 1]
        first = f"the first {useful} columns" if useful > 1 else "the first column"
        return (
            f"Nothing is gained after {first}, up to {last!r}: more columns lower the validation "
            "loss by less than one standard error."
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
        """Can a constant answer be drawn beside the losses without pressing them flat?"""
        drawn = [*self._losses(), self.loss_all.mean]
        low, high = min(drawn), max(drawn)
        constant = None if self.constant is None else self.constant.loss
        return constant is not None and low - (high - low) <= constant <= high + (high - low)

    def cautions(self) -> list[str]:
        """Sentences that a reader needs before any number."""
        few = (
            f"{self.valid_rows} rows to judge on tell little: with others the order of the methods "
            "may be another, whatever the seeds say."
        )
        return [s for s in (self.no_help(), few if self.valid_rows < HARDLY_ANY else "") if s]

    def no_help(self) -> str:
        """A sentence where a constant answer is as good as the network that was asked, or as every
        set of columns."""
        if self.constant is None:
            return ""
        best = min([*self._losses(), self.loss_all.mean])
        if best < self.constant.loss:
            asked = self.network_loss
            if asked is None or asked < self.constant.loss:
                return ""
            return (
                f"The network that was asked is no better than always the same answer "
                f"({self.metric} {self.figure(asked)} against {self.figure(self.constant.loss)}): "
                "what it uses tells little of what the columns hold."
            )
        return (
            f"The columns do not help: always the same answer gives {self.metric} "
            f"{self.figure(self.constant.loss)}, the best of these networks {self.figure(best)}."
        )

    def _losses(self) -> list[float]:
        return [loss.mean for by in self.losses.values() for loss in by.values()]

    def verdict(self, method: str, other: str, k: int) -> str:
        """How two methods compare at k, in words: what seeds and rows allow to say.

        The error holds the seeds of the retraining alone: one network chose the columns, and the
        same rows judge both. A few hundred rows tell two sets apart by chance.
        """
        ours, theirs = self.losses[method][k], self.losses[other][k]
        gap = theirs.mean - ours.mean
        plain = self.metric == METRICS["binary"]
        if abs(gap) < (5e-5 if plain else 5e-6 * abs(ours.mean)) or gap == 0:  # As many digits.
            return f"{method} and {other} end alike"
        first = f"{method} {'ahead of' if gap > 0 else 'behind'} {other} by "
        first += self.figure(abs(gap))
        if ours.error is None or theirs.error is None or self.seeds < 2:
            return f"{first} (one seed: no telling)"
        noise = student(self.seeds - 1) * (ours.error**2 + theirs.error**2) ** 0.5
        if abs(gap) <= noise:
            return f"{first}, within the noise (± {self.figure(noise)} with {self.seeds} seeds)"
        if self.valid_rows < FEW_ROWS:
            return f"{first} (on {self.valid_rows} rows, which tell little)"
        return first


def _losses(given: Any, ks: Sequence[int]) -> dict[str, dict[int, Loss]]:
    return {
        str(method): {
            k: _loss(of[str(k)]) for of in [_mapping(by, "losses")] for k in ks if str(k) in of
        }
        for method, by in _mapping(given, "losses").items()
    }


def _loss(given: Any) -> Loss:
    record = _mapping(given, "a loss")
    error = record.get("standard_error")
    return Loss(_number(record.get("mean")), None if error is None else _number(error))


def _constant(given: Any) -> Constant | None:
    if given is None:
        return None
    record = _mapping(given, "constant")
    accuracy, variance = (
        None if record.get(name) is None else _number(record[name])
        for name in ("accuracy", "variance")
    )
    return Constant(_number(record.get("loss")), accuracy, variance)


def _enough(a: Attribution) -> int | None:
    """What `select_features` measured on held-out rows."""
    columns = _mapping(a.about.get("held_out", {}), "held_out").get("columns")
    if columns is None:
        return None
    if type(columns) is not int or not 0 <= columns <= a.features.units:
        raise InvalidInput(
            f"Expected held_out columns in the notes from 0 to {a.features.units} "
            f"(got {columns!r:.60})."
        )
    return columns


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidInput(f"Expected finite numbers in the notes (got {value!r:.60}).")
    return float(value)


def _count(value: Any, what: str) -> int:
    if type(value) is not int or value < 1:
        raise InvalidInput(f"Expected {what} in the notes as whole numbers (got {value!r:.60}).")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"Expected {what} in the notes as text (got {value!r:.60}).")
    return value


def _list(value: Any, what: str) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"Expected {what} in the notes as a list (got {value!r:.60}).")
    return value


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"Expected {what} in the notes as a mapping (got {value!r:.60}).")
    return value
