"""The proof of a selection: fresh networks trained on the columns chosen, judged on held-out rows.

A `Trial` is one training: these columns, this seed. Trials are independent of each other, so the
processes of a group share them, and each result is written to a shelf of its own at once: a run
that was stopped goes on, and methods that chose the same columns share a trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import torch

from ..core.errors import InvalidInput
from ..results.files import write_whole
from .distributed import ALONE, Group
from .row_batches import Batches
from .training import Effort, Scores, new_network, train_network

Watch = Callable[["Trial", float], object]
"""Called with a trial under way and the epochs of it that are done."""


@dataclass(frozen=True)
class Trial:
    """One training."""

    columns: tuple[str, ...]
    """In the table's order: a set, not a ranking."""
    seed: int

    @property
    def key(self) -> str:
        """A short name of its own."""
        text = json.dumps([self.columns, self.seed])
        return f"{len(self.columns)}-{self.seed}-{sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Summary:
    """Trials of several seeds as one number."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.values)

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None for a single seed."""
        n = len(self.values)
        return None if n < 2 else stdev(self.values) / sqrt(n)


@dataclass(frozen=True)
class Proof:
    """Losses after retraining."""

    losses: Mapping[str, Mapping[int, Summary]]
    """Method → k → loss."""
    accuracies: Mapping[str, Mapping[int, Summary]]
    """The same for classes; empty for a number."""
    loss_all: Summary
    """With all columns."""
    accuracy_all: Summary | None


Orders = Mapping[str, Sequence[Sequence[str]]]
"""Method → its ranking of the columns for each seed; one ranking serves all seeds."""


def trials_of(names: Sequence[str], orders: Orders, ks: Iterable[int], seeds: int) -> list[Trial]:
    """Every training that a proof needs, each once; all columns first."""
    found = {Trial(tuple(names), seed): None for seed in range(seeds)}
    for k in ks:
        for rankings in orders.values():
            for seed in range(seeds):
                found[_trial(names, rankings, k, seed)] = None
    return list(found)


def retrain(
    orders: Orders,
    train: Batches,
    valid: Batches,
    *,
    ks: Sequence[int],
    seeds: int = 3,
    effort: Effort | None = None,
    shelf: Shelf | None = None,
    group: Group = ALONE,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Proof:
    """Train a fresh network on the top k columns of every ranking, for each k and seed.

    group: the processes share the trials through the shelf, which all of them must see.
    """
    names = train.schema.names
    trials = trials_of(names, orders, ks, seeds)
    if group.size > 1 and shelf is None:
        raise InvalidInput("Expected a shelf for several processes (got none).")
    shelf = shelf or Shelf(None)
    mine = group.share([t for t in trials if t not in shelf])
    group.barrier()  # A trial that is done while others still look would shift their shares.
    for trial in mine:
        subset = train.only(trial.columns)
        done = train_network(
            new_network(subset.schema, seed=trial.seed).to(device), subset,
            valid.only(trial.columns), effort=effort, seed=trial.seed,
            progress=None if watch is None else partial(watch, trial),
        )  # fmt: skip
        shelf.put(trial, done.scores)
    group.barrier()
    return _proof(names, orders, ks, seeds, shelf)


class Shelf:
    """Results of trials, each in a small file of a folder; in memory where there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._held: dict[str, Scores] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, trial: Trial) -> bool:
        return self.get(trial) is not None

    def get(self, trial: Trial) -> Scores | None:
        """What a trial gave; None if it was not done, or its file is damaged."""
        if trial.key not in self._held and self.folder is not None:
            try:
                text = (self.folder / f"{trial.key}.json").read_text()
                record = json.loads(text)
                if tuple(record["columns"]) != trial.columns:
                    return None
                self._held[trial.key] = Scores(**record["scores"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return self._held.get(trial.key)

    def put(self, trial: Trial, scores: Scores) -> None:
        """Keep a result."""
        self._held[trial.key] = scores
        if self.folder is not None:
            record = {"columns": trial.columns, "seed": trial.seed, "scores": asdict(scores)}
            write_whole(self.folder / f"{trial.key}.json", json.dumps(record))


def _trial(names: Sequence[str], rankings: Sequence[Sequence[str]], k: int, seed: int) -> Trial:
    order = rankings[seed % len(rankings)]
    wanted = set(order[:k])
    return Trial(tuple(name for name in names if name in wanted), seed)


def _proof(
    names: Sequence[str], orders: Orders, ks: Sequence[int], seeds: int, shelf: Shelf
) -> Proof:
    def scores(trial: Trial) -> Scores:
        found = shelf.get(trial)
        if found is None:
            raise InvalidInput(
                f"Expected the result of a trial on {len(trial.columns)} columns in "
                f"{shelf.folder} (got none). Try a folder that all processes see."
            )
        return found

    every = [scores(Trial(tuple(names), seed)) for seed in range(seeds)]
    each = {
        method: {k: [scores(_trial(names, r, k, s)) for s in range(seeds)] for k in ks}
        for method, r in orders.items()
    }
    rates = [s.accuracy for s in every if s.accuracy is not None]
    return Proof(
        losses={m: {k: Summary(tuple(s.loss for s in of)) for k, of in by.items()}
                for m, by in each.items()},
        accuracies={m: {k: Summary(tuple(s.accuracy or 0.0 for s in of)) for k, of in by.items()}
                    for m, by in each.items()} if rates else {},
        loss_all=Summary(tuple(s.loss for s in every)),
        accuracy_all=Summary(tuple(rates)) if rates else None,
    )  # fmt: skip
