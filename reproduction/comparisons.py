"""Who is ahead on a table, at which k, and why: methods compared network by network.

A pair of losses has the network, the selection seed and the retraining seeds in common, so its
difference is the columns' doing. Selections by the same network are not independent of each other:
they are averaged first, and the error is over networks. With fewer than three networks it is over
all selections, which is less than the truth, and said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from greedypig.results.statistics import student

from .datasets import Ground
from .retraining import WITHOUT_NETWORK, Choice, Trials, Variant
from .tables import mean_and_error

PAIRS = (("greedy-5", "ig"), ("greedy-1", "ig"), ("greedy-5", "truth"), ("ig", "truth"))
SHORT = {
    "ig": "IG", "greedy-1": "Greedy PIG (T = 1)", "greedy-5": "Greedy PIG (T = 5)",
    "truth": "the true order",
}  # fmt: skip
ENOUGH = 3
"""Networks from which on the error is over networks."""
MOST = 6
"""Columns that are named for each side of a difference."""

Key = tuple[int, int]
"""(network, selection seed)."""


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and over how many of what."""

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
        whole: dict[int, list[float]] = {}
        for network in dict.fromkeys(m for m, _ in values):
            found = [v for (m, _), v in values.items() if m == network]
            there = [v for v in found if v is not None]
            if len(there) == len(found):
                whole[network] = there
        by_network = [fmean(v) for v in whole.values()]
        every = [v for found in whole.values() for v in found]
        if len(by_network) >= ENOUGH or len(by_network) == len(every):
            return Estimate(*mean_and_error(by_network), len(by_network), "networks")
        return Estimate(*mean_and_error(every), len(every), "selections")

    @property
    def sure(self) -> bool:
        """Does the 95 % interval leave 0 out?"""
        if self.mean is None or self.error is None:
            return False
        return abs(self.mean) > student(self.count - 1) * self.error


@dataclass(frozen=True)
class Side:
    """What one of two methods chose."""

    only: tuple[str, ...]
    """Columns that the other did not choose, the most frequent first."""
    copies: float | None = None
    """Places spent on a source that is there already; None where the truth is not known."""
    signal: float | None = None
    """Share of the true logit's variance whose sources are among the columns."""


@dataclass(frozen=True)
class Difference:
    """One method's loss less another's: below 0 the one is ahead."""

    table: str
    one: str
    other: str
    variant: str
    k: int
    found: Estimate
    ours: Side = Side(())
    theirs: Side = Side(())

    @property
    def verdict(self) -> str:
        """Who is ahead, as far as that can be told."""
        if self.found.mean is None:
            return "not measured"
        if self.found.mean == 0 and not self.ours.only:
            return "the same columns"
        if not self.found.sure:
            return "cannot tell"
        return f"{SHORT[self.one if self.found.mean < 0 else self.other]} ahead"

    @property
    def record(self) -> dict[str, Any]:
        """For files."""
        found = self.found
        t = student(found.count - 1) if found.count > 1 else None
        half = None if t is None or found.error is None else t * found.error
        return {
            "table": self.table, "one": self.one, "other": self.other, "variant": self.variant,
            "k": self.k, "mean": found.mean, "error": found.error, "count": found.count,
            "over": found.over, "student": t, "half_of_95": half, "verdict": self.verdict,
            "one_only": " ".join(self.ours.only), "other_only": " ".join(self.theirs.only),
            "one_copies": self.ours.copies, "other_copies": self.theirs.copies,
            "one_signal": self.ours.signal, "other_signal": self.theirs.signal,
        }  # fmt: skip


def losses(trials: Trials, choices: Sequence[Choice], k: int) -> dict[Key, float | None]:
    """After retraining on the top k, for every network and selection."""
    return {(c.model, c.seed): trials.loss(c, k) for c in choices}


def made_by(trials: Trials, name: str, variant: Variant) -> list[Choice]:
    """A method's choices; who asks no network has those of the first variant."""
    variant = trials.variants[0] if name in WITHOUT_NETWORK else variant
    return [c for c in trials.choices() if (c.contender.name, c.variant) == (name, variant)]


def differences(trials: Trials) -> Iterator[Difference]:
    """Every pair of methods, for every variant and k."""
    for variant in trials.variants:
        for one, other in PAIRS:
            mine, yours = made_by(trials, one, variant), made_by(trials, other, variant)
            if not mine or not yours:
                continue
            for k in sorted(trials.ks):
                a, b = losses(trials, mine, k), losses(trials, yours, k)
                found = Estimate.of({key: _less(a[key], b[key]) for key in a})
                if found.mean is not None:
                    yield Difference(trials.ground.name, one, other, variant.words, k, found,
                                     *_sides(trials, mine, yours, k))  # fmt: skip


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _sides(
    trials: Trials, mine: Sequence[Choice], yours: Sequence[Choice], k: int
) -> tuple[Side, Side]:
    """What either chose that the other did not, by the same network and selection seed."""
    orders = [(trials.order(a), trials.order(b)) for a, b in zip(mine, yours, strict=True)]
    pairs = [(a[:k], b[:k]) for a, b in orders if a is not None and b is not None]
    mirrored = [(b, a) for a, b in pairs]
    return _side(trials.ground, pairs), _side(trials.ground, mirrored)


def _side(ground: Ground, pairs: Sequence[tuple[list[str], list[str]]]) -> Side:
    seen = Counter(name for own, other in pairs for name in own if name not in other)
    only = tuple(name for name, _ in seen.most_common(MOST))
    if ground.truth is None or not pairs:
        return Side(only)
    truth = ground.truth
    return Side(only, fmean(truth.copies(own) for own, _ in pairs),
                fmean(truth.signal(own) for own, _ in pairs))  # fmt: skip


def told(ground: Ground, found: Sequence[Difference]) -> Iterator[str]:
    """The differences of a table in a sentence for every pair of methods and variant."""
    for pair in dict.fromkeys((d.one, d.other, d.variant) for d in found):
        of = [d for d in found if (d.one, d.other, d.variant) == pair]
        over = " and ".join(dict.fromkeys(f"{d.found.count} {d.found.over}" for d in of))
        yield (f"{SHORT[pair[0]]} less {SHORT[pair[1]]} on {ground.title} (absent is {pair[2]}; "
               f"mean ± standard error of {over}): {'; '.join(map(_in_words, of))}.")  # fmt: skip
        if pair[:2] == ("greedy-5", "ig"):
            yield from _why(of)


def _in_words(d: Difference) -> str:
    error = "" if d.found.error is None else f" ± {d.found.error:.4f}"
    return f"k = {d.k}: {d.found.mean:+.4f}{error}, {d.verdict}"


def _why(found: Sequence[Difference]) -> Iterator[str]:
    """Where Greedy PIG and IG differ: in which columns, and what those are worth."""
    parts = []
    for d in found:
        if d.ours.only or d.theirs.only:
            known = d.ours.signal is not None
            parts.append(f"k = {d.k}: Greedy PIG alone has {_chosen(d.ours)}, IG alone "
                         f"{_chosen(d.theirs)}" + (_worth(d) if known else ""))  # fmt: skip
    if parts:
        yield f"Why ({found[0].variant}): {'; '.join(parts)}."


def _chosen(side: Side) -> str:
    return ", ".join(side.only) + (" …" if len(side.only) == MOST else "")


def _worth(d: Difference) -> str:
    ours, theirs = d.ours, d.theirs
    if ours.signal is None or theirs.signal is None:
        return ""
    return (f" (places spent on copies: {ours.copies:.1f} and {theirs.copies:.1f}; share of the "
            f"true signal: {ours.signal:.3f} and {theirs.signal:.3f})")  # fmt: skip


def lead(trials: Trials, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """At every k the methods that asked a network, the least mean loss first."""
    parts = []
    for k in sorted(trials.ks):
        known = [r for r in rows if r["method"] in ("ig", "greedy-1", "greedy-5")
                 and r.get(f"k{k}") is not None]  # fmt: skip
        if len(known) > 1:
            ranked = sorted(known, key=lambda r: float(r[f"k{k}"]))
            words = [f"{SHORT[r['method']]}, {r['baseline']} ({r[f'k{k}']:.4f})" for r in ranked]
            parts.append(f"k = {k}: {', '.join(words)}")
    if not parts:
        return None
    return f"Least mean loss first on {trials.ground.title}: {'; '.join(parts)}."
