"""Does a selection hold? Fresh networks trained on the selected columns, validated on other rows.

A `Training` is one fresh network: these columns, this seed. Trainings are independent of each
other, so the processes of a group share them, and each result is written to a cache at once: a run
that was stopped goes on, and methods that select the same columns share a training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.errors import InvalidInput
from ..results.files import write_whole
from ..results.table_notes import Summary
from .distributed import ALONE, Group
from .row_batches import Batches
from .schema import Schema
from .training import Effort, Progress, Scores, Trained, new_network, train_network

Watch = Callable[["Training", float], object]
"""Called with a training under way, and the share of this process's trainings that is done."""
Orders = Mapping[str, Sequence[Sequence[str]]]
"""Method → its ranking of the columns for each seed; one ranking serves all seeds."""


@dataclass(frozen=True)
class Training:
    """One fresh network."""

    columns: tuple[str, ...]
    """In the table's order: a set, not a ranking."""
    seed: int

    @staticmethod
    def of(names: Sequence[str], rankings: Sequence[Sequence[str]], k: int, seed: int) -> Training:
        """The training on the top k columns of this seed's ranking. names: of all columns."""
        top = set(rankings[seed % len(rankings)][:k])
        return Training(tuple(name for name in names if name in top), seed)

    @property
    def key(self) -> str:
        """A short name of its own."""
        text = json.dumps([self.columns, self.seed])
        return f"{len(self.columns)}-{self.seed}-{sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Retrained:
    """Losses after retraining."""

    losses: Mapping[str, Mapping[int, Summary]]
    """Method → k → loss."""
    accuracies: Mapping[str, Mapping[int, Summary]]
    """The same for classes; empty for a number."""
    loss_all: Summary
    """With all columns."""
    accuracy_all: Summary | None


class TrainingCache:
    """Results of trainings, each in a small file of a folder; in memory where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._scores: dict[Training, Scores] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, training: Training) -> Scores | None:
        """The result of a training; None if it was not done, or its file is damaged."""
        if training not in self._scores and self.folder is not None:
            try:
                record = json.loads((self.folder / f"{training.key}.json").read_text())
                self._scores[training] = Scores(**record["scores"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return self._scores.get(training)

    def put(self, training: Training, scores: Scores) -> None:
        """Keep a result."""
        self._scores[training] = scores
        if self.folder is not None:
            record = {**asdict(training), "scores": asdict(scores)}
            write_whole(self.folder / f"{training.key}.json", json.dumps(record))


def retrain_on(
    columns: Iterable[str],
    train: Batches,
    valid: Batches,
    *,
    seed: int,
    effort: Effort | None = None,
    fresh: Callable[[Schema, int], nn.Module] | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Trained:
    """Train a fresh network on these columns.

    fresh: (schema, seed) → network with fresh weights; None makes the default network.
    """
    subset = train.only(columns)
    schema = subset.schema
    network = new_network(schema, seed=seed) if fresh is None else fresh(schema, seed)
    valid = valid.only(schema.names)
    network = network.to(device)
    return train_network(network, subset, valid, effort=effort, seed=seed, progress=progress)


def trainings_of(
    names: Sequence[str], orders: Orders, ks: Iterable[int], seeds: int
) -> list[Training]:
    """Every training that is needed, each once; all columns first."""
    trainings = [Training(tuple(names), seed) for seed in range(seeds)]
    for k in ks:
        for rankings in orders.values():
            trainings += [Training.of(names, rankings, k, seed) for seed in range(seeds)]
    return list(dict.fromkeys(trainings))


def retrain(
    orders: Orders,
    train: Batches,
    valid: Batches,
    *,
    ks: Sequence[int],
    seeds: int = 3,
    effort: Effort | None = None,
    cache: TrainingCache | None = None,
    group: Group = ALONE,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Retrained:
    """Train a fresh network on the top k columns of every ranking, for each k and seed.

    group: the processes share the trainings through the cache, whose folder all of them must see.
    """
    if group.size > 1 and cache is None:
        raise InvalidInput("Expected a cache for several processes (got none).")
    names, results, effort = train.schema.names, cache or TrainingCache(None), effort or Effort()
    trainings = trainings_of(names, orders, ks, seeds)
    own = group.share([t for t in trainings if results.get(t) is None])
    group.barrier()  # A training that ends while others still look would shift their shares.
    for number, training in enumerate(own):

        def progress(epochs: float, number: int = number, training: Training = training) -> None:
            if watch is not None:
                done = min(0.95, epochs / effort.longest(train))
                watch(training, (number + done) / len(own))

        more: dict[str, Any] = {"effort": effort, "device": device, "progress": progress}
        trained = retrain_on(training.columns, train, valid, seed=training.seed, **more)
        results.put(training, trained.scores)
    group.barrier()

    def over_seeds(attribute: str, rankings: Sequence[Sequence[str]], k: int) -> Summary:
        scores = [results.get(Training.of(names, rankings, k, seed)) for seed in range(seeds)]
        if None in scores:
            raise InvalidInput(
                f"Expected the result of a training on {k} columns in {results.folder} (got none). "
                "Try a folder that all processes see."
            )
        return Summary.of([getattr(one, attribute) for one in scores])

    def of(attribute: str) -> dict[str, dict[int, Summary]]:
        return {m: {k: over_seeds(attribute, r, k) for k in ks} for m, r in orders.items()}

    has_classes = train.schema.label.task != "number"
    return Retrained(
        losses=of("loss"),
        accuracies=of("accuracy") if has_classes else {},
        loss_all=over_seeds("loss", [names], len(names)),
        accuracy_all=over_seeds("accuracy", [names], len(names)) if has_classes else None,
    )
