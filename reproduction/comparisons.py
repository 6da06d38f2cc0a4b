"""Which method is ahead on a table, at which k, and why: methods compared network by network.

A pair of losses has the network, the selection seed and the retraining seeds in common, so its
difference is due to the columns. Selections by the same network are not independent of each other:
they are averaged first, and the error is over networks. With fewer than three networks it is over
all selections, which underestimates it; the text says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from greedypig.results.table_notes import student

from .output import mean_and_error
from .retraining import WITHOUT_NETWORK, Experiment, Selection, Variant

PAIRS = (("greedy-5", "ig"), ("greedy-1", "ig"), ("greedy-5", "truth"), ("ig", "truth"))
SHORT = {
    "ig": "IG", "greedy-1": "Greedy PIG (T = 1)", "greedy-5": "Greedy PIG (T = 5)",
    "truth": "the true order",
}  # fmt: skip
ENOUGH = 3
"""Networks from which on the error is over networks."""
MOST = 6
"""Columns that are named for each of two methods."""

Key = tuple[int, int]
"""(network, selection seed)."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error over `count` networks or selections."""

    mean: float | None
    error: float | None
    count: int
    over: str
    """ "networks" or "selections"."""

    @staticmethod
    def of(values: Mapping[Key, float | None]) -> Estimate:
        """From one value for every network and selection; None is not measured.

        A network counts once all of its selections are measured.
        """
        by_network: dict[int, list[float | None]] = {}
        for (network, _), value in values.items():
            by_network.setdefault(network, []).append(value)
        complete = [[v for v in each if v is not None] for each in by_network.values()
                    if None not in each]  # fmt: skip
        means = [fmean(each) for each in complete]
        selections = [value for each in complete for value in each]
        if len(means) >= ENOUGH or len(means) == len(selections):
            return Estimate(*mean_and_error(means), len(means), "networks")
        return Estimate(*mean_and_error(selections), len(selections), "selections")

    @property
    def interval(self) -> float | None:
        """Half of the 95 % interval by Student's t."""
        return None if self.error is None else student(self.count - 1) * self.error

    @property
    def is_certain(self) -> bool:
        """Does the 95 % interval exclude 0?"""
        return self.interval is not None and abs(self.mean or 0.0) > self.interval


@dataclass(frozen=True)
class Side:
    """The columns of one of two methods."""

    only: tuple[str, ...]
    """Columns that the other method did not select, the most frequent first."""
    copies: float | None = None
    """Places spent on copies of a selected source; None where the truth is not known."""
    signal: float | None = None
    """Share of the true logit's variance whose sources are among the columns."""

    @staticmethod
    def of(experiment: Experiment, pairs: Sequence[tuple[list[str], list[str]]]) -> Side:
        """From pairs of the method's columns and the other's."""
        names = Counter(name for own, other in pairs for name in own if name not in other)
        only = tuple(name for name, _ in names.most_common(MOST))
        truth = experiment.dataset.truth
        if truth is None or not pairs:
            return Side(only)
        return Side(only, fmean(truth.copies(own) for own, _ in pairs),
                    fmean(truth.signal(own) for own, _ in pairs))  # fmt: skip

    def __str__(self) -> str:
        return ", ".join(self.only) + (" …" if len(self.only) == MOST else "")


@dataclass(frozen=True)
class Difference:
    """One method's loss less another's: below 0 the first is ahead."""

    table: str
    one: str
    other: str
    variant: str
    k: int
    estimate: Estimate
    own: Side = Side(())
    others: Side = Side(())

    @property
    def verdict(self) -> str:
        """The method that is ahead, if that is certain."""
        mean = self.estimate.mean
        if mean is None:
            return "not measured"
        if mean == 0 and not self.own.only:
            return "the same columns"
        if not self.estimate.is_certain:
            return "not certain"
        return f"{SHORT[self.one if mean < 0 else self.other]} ahead"

    @property
    def record(self) -> dict[str, Any]:
        """The difference in files."""
        e = self.estimate
        return {
            "table": self.table, "one": self.one, "other": self.other, "variant": self.variant,
            "k": self.k, "mean": e.mean, "error": e.error, "count": e.count, "over": e.over,
            "student": student(e.count - 1) if e.count > 1 else None, "half_of_95": e.interval,
            "verdict": self.verdict, "one_only": " ".join(self.own.only),
            "other_only": " ".join(self.others.only), "one_copies": self.own.copies,
            "other_copies": self.others.copies, "one_signal": self.own.signal,
            "other_signal": self.others.signal,
        }  # fmt: skip

    def __str__(self) -> str:
        error = "" if self.estimate.error is None else f" ± {self.estimate.error:.4f}"
        return f"k = {self.k}: {self.estimate.mean:+.4f}{error}, {self.verdict}"

    @property
    def reason(self) -> str:
        """The columns in which Greedy PIG and IG differ, and what they are worth."""
        if not (self.own.only or self.others.only):
            return ""
        text = f"k = {self.k}: Greedy PIG alone has {self.own}, IG alone {self.others}"
        if self.own.signal is None or self.others.signal is None:
            return text
        return (f"{text} (places spent on copies: {self.own.copies:.1f} and "
                f"{self.others.copies:.1f}; share of the true signal: {self.own.signal:.3f} and "
                f"{self.others.signal:.3f})")  # fmt: skip


def losses(experiment: Experiment, selections: Sequence[Selection], k: int) -> dict[Key, Any]:
    """After retraining on the top k, for every network and selection seed."""
    return {(s.model, s.seed): experiment.loss(s, k) for s in selections}


def selections_of(experiment: Experiment, name: str, variant: Variant) -> list[Selection]:
    """A method's selections; a method without a network has those of the first variant."""
    variant = experiment.variants[0] if name in WITHOUT_NETWORK else variant
    return [s for s in experiment.selections() if (s.contender.name, s.variant) == (name, variant)]


def differences(experiment: Experiment) -> Iterator[Difference]:
    """Every pair of methods, for every variant and k."""
    for variant in experiment.variants:
        for one, other in PAIRS:
            mine, yours = (selections_of(experiment, name, variant) for name in (one, other))
            for k in sorted(experiment.ks) if mine and yours else ():
                a, b = (losses(experiment, each, k) for each in (mine, yours))
                estimate = Estimate.of({key: None if a[key] is None or b[key] is None
                                        else a[key] - b[key] for key in a})  # fmt: skip
                if estimate.mean is None:
                    continue
                orders = [(experiment.order(s), experiment.order(t))
                          for s, t in zip(mine, yours, strict=True)]  # fmt: skip
                pairs = [(s[:k], t[:k]) for s, t in orders if s is not None and t is not None]
                yield Difference(
                    experiment.dataset.name, one, other, variant.words, k, estimate,
                    Side.of(experiment, pairs), Side.of(experiment, [(t, s) for s, t in pairs]),
                )  # fmt: skip


def in_words(title: str, differences: Sequence[Difference]) -> Iterator[str]:
    """The differences on a table, a sentence for every pair of methods and variant."""
    for one, other, variant in dict.fromkeys((d.one, d.other, d.variant) for d in differences):
        each = [d for d in differences if (d.one, d.other, d.variant) == (one, other, variant)]
        over = " and ".join(dict.fromkeys(f"{d.estimate.count} {d.estimate.over}" for d in each))
        yield (f"{SHORT[one]} less {SHORT[other]} on {title} (absent is {variant}; mean ± standard "
               f"error of {over}): {'; '.join(map(str, each))}.")  # fmt: skip
        reasons = [d.reason for d in each if d.reason]
        if (one, other) == PAIRS[0] and reasons:
            yield f"Why ({variant}): {'; '.join(reasons)}."


def ranked_methods(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """At every k the methods that use a network, the least mean loss first."""
    parts = []
    for k in sorted(experiment.ks):
        known = [r for r in rows if r["method"] in ("ig", "greedy-1", "greedy-5")
                 and r.get(f"k{k}") is not None]  # fmt: skip
        if len(known) > 1:
            ranked = sorted(known, key=lambda r: float(r[f"k{k}"]))
            words = [f"{SHORT[r['method']]}, {r['baseline']} ({r[f'k{k}']:.4f})" for r in ranked]
            parts.append(f"k = {k}: {', '.join(words)}")
    if not parts:
        return []
    return [f"Least mean loss first on {experiment.dataset.title}: {'; '.join(parts)}."]
