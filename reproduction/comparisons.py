"""Which method is ahead on a table, and at which k: methods compared network by network.

A pair of losses has the network, the selection seed and the retraining seed in common, so its
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
from .retraining import Experiment, Line

PAIRS = (("greedy-5", "ig"), ("greedy-1", "ig"), ("greedy-5", "truth"), ("ig", "truth"))
SHORT = {
    "ig": "IG",
    "greedy-1": "Greedy PIG (T = 1)",
    "greedy-5": "Greedy PIG (T = 5)",
    "truth": "the true order",
}
ENOUGH = 3
"""Networks from which on the error is over networks."""
MOST = 6
"""Columns that are named for each of two methods."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error over `count` networks or selections."""

    mean: float | None
    error: float | None
    count: int
    over: str
    """ "networks" or "selections"."""

    @staticmethod
    def of(values: Mapping[tuple[int, int], float]) -> Estimate:
        """From one value for every (network, selection seed)."""
        by_network: dict[int, list[float]] = {}
        for (network, _), value in values.items():
            by_network.setdefault(network, []).append(value)
        if len(by_network) >= ENOUGH or len(by_network) == len(values):
            means = [fmean(each) for each in by_network.values()]
            return Estimate(*mean_and_error(means), len(means), "networks")
        return Estimate(*mean_and_error(list(values.values())), len(values), "selections")

    @property
    def interval(self) -> float | None:
        """Half of the 95 % interval by Student's t."""
        return None if self.error is None else student(self.count - 1) * self.error

    def verdict(self, one: str, other: str) -> str:
        """Which of two methods is ahead, if this is the first's loss less the second's."""
        if self.mean is None or self.interval is None or abs(self.mean) <= self.interval:
            return "not certain"
        return f"{SHORT[one if self.mean < 0 else other]} ahead"


def differences(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """One method's loss less another's, for every pair, variant and k."""
    lines = {
        (contender.name, variant): (contender, variant) for contender, variant in experiment.lines
    }
    for variant in experiment.variants:
        for one, other in PAIRS:
            mine = lines.get((one, variant))
            yours = lines.get((other, "" if other == "truth" else variant))
            if mine is not None and yours is not None:
                for k in experiment.ks:
                    yield _difference(experiment, mine, yours, k)


def _difference(experiment: Experiment, mine: Line, yours: Line, k: int) -> dict[str, Any]:
    a, b = experiment.losses(mine, k), experiment.losses(yours, k)
    estimate = Estimate.of({key: a[key] - b[key] for key in a if key in b})
    tops = [
        (experiment.order(s)[:k], experiment.order(t)[:k])
        for s, t in zip(experiment.of_line(mine), experiment.of_line(yours), strict=True)
    ]
    same = all(set(one) == set(other) for one, other in tops)
    record = {
        "table": experiment.name,
        "one": mine[0].name,
        "other": yours[0].name,
        "variant": mine[1],
        "k": k,
        "mean": estimate.mean,
        "error": estimate.error,
        "count": estimate.count,
        "over": estimate.over,
        "half_of_95": estimate.interval,
        "verdict": "the same columns" if same else estimate.verdict(mine[0].name, yours[0].name),
        "one_only": _only(tops),
        "other_only": _only([(other, one) for one, other in tops]),
    }
    if (truth := experiment.truth) is not None:
        for side, each in zip(("one", "other"), zip(*tops, strict=True), strict=True):
            record[f"{side}_copies"] = fmean(truth.copies(top) for top in each)
            record[f"{side}_signal"] = fmean(truth.signal(top) for top in each)
    return record


def _only(tops: Sequence[tuple[list[str], list[str]]]) -> str:
    """Columns that only the first of each pair has, the most frequent first."""
    names = Counter(name for own, other in tops for name in own if name not in other)
    return " ".join(name for name, _ in names.most_common(MOST))


def in_words(title: str, records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The differences on a table, a sentence for every pair of methods and variant."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for r in records:
        groups.setdefault((r["one"], r["other"], r["variant"]), []).append(r)
    for (one, other, variant), each in groups.items():
        over = " and ".join(dict.fromkeys(f"{r['count']} {r['over']}" for r in each))
        parts = []
        for r in each:
            error = "" if r["error"] is None else f" ± {r['error']:.4f}"
            parts.append(f"k = {r['k']}: {r['mean']:+.4f}{error}, {r['verdict']}")
        yield (
            f"{SHORT[one]} less {SHORT[other]} on {title} (absent is {variant}; mean ± standard "
            f"error of {over}): {'; '.join(parts)}."
        )
