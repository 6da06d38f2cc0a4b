"""Does a selection hold? Fresh networks trained on the selected columns, validated on other rows.

A `Training` is one fresh network: these columns, this seed. Trainings are independent of each
other, so the processes of a group share them, and each result is written to a folder at once: a run
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
from ..network.distributed import ALONE, Group
from ..results.files import write_whole
from ..results.table_notes import Summary
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

    def file(self, folder: Path) -> Path:
        """Where its result is kept."""
        key = sha256(json.dumps([self.columns, self.seed]).encode()).hexdigest()[:16]
        return folder / f"{len(self.columns)}-{self.seed}-{key}.json"

    def load(self, folder: Path | None) -> Scores | None:
        """Its result in this folder; None if it was not done, or the file is damaged."""
        if folder is None:
            return None
        try:
            return Scores(**json.loads(self.file(folder).read_text())["scores"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, folder: Path, scores: Scores) -> None:
        """Keep its result."""
        record = {**asdict(self), "scores": asdict(scores)}
        write_whole(self.file(folder), json.dumps(record))


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
    folder: Path | None = None,
    group: Group = ALONE,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Retrained:
    """Train a fresh network on the top k columns of every ranking, for each k and seed.

    folder: for the result of every training; those that are there are not done again. The
        processes of a group share the trainings through it, so all of them must see it.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    elif group.size > 1:
        raise InvalidInput("Expected a folder for several processes (got none).")
    names, effort = train.schema.names, effort or Effort()
    trainings = trainings_of(names, orders, ks, seeds)
    results = {training: training.load(folder) for training in trainings}
    own = group.share([training for training in trainings if results[training] is None])
    group.barrier()  # A training that ends while others still look would shift their shares.
    for number, training in enumerate(own):

        def progress(epochs: float, number: int = number, training: Training = training) -> None:
            if watch is not None:
                done = min(0.95, epochs / effort.longest(train))
                watch(training, (number + done) / len(own))

        more: dict[str, Any] = {"effort": effort, "device": device, "progress": progress}
        trained = retrain_on(training.columns, train, valid, seed=training.seed, **more)
        results[training] = trained.scores
        if folder is not None:
            training.save(folder, trained.scores)
    group.barrier()

    def over_seeds(attribute: str, rankings: Sequence[Sequence[str]], k: int) -> Summary:
        of_seeds = [Training.of(names, rankings, k, seed) for seed in range(seeds)]
        scores = [results[training] or training.load(folder) for training in of_seeds]
        if None in scores:
            raise InvalidInput(
                f"Expected the result of a training on {k} columns in {folder} (got none). "
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
