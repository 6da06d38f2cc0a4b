"""Train, select, retrain: the work behind a comparison of selections on one table.

Stages, each kept and shared among processes: networks on all columns; a ranking of the columns for
every network, selection seed, method and baseline; fresh networks on the top k of the rankings. The
seed of a retraining is that of its network and selection: methods are compared with the same fresh
weights and the same order of rows, and the noise of retraining is part of the error over networks.
A set of columns is retrained once for each network and selection, whichever method selected it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from greedypig.core.errors import InvalidInput
from greedypig.core.methods import InRounds
from greedypig.results.files import write_whole
from greedypig.tables.api import select_features
from greedypig.tables.finetune import mask_finetune
from greedypig.tables.retraining import retrain_on
from greedypig.tables.schema import Schema
from greedypig.tables.stream import seed_from
from greedypig.tables.training import Effort, Trained, new_network

from .datasets import Dataset
from .job import Batch, Job, Record
from .settings import Contender

EFFORT = Effort()
WITHOUT_NETWORK = ("random", "truth")
"""Methods whose order does not depend on a network."""


@dataclass(frozen=True)
class Variant:
    """What an absent column looks like, and which network is used."""

    baseline: str
    tuned: bool = False
    """Is the network fine-tuned with columns masked at random?"""

    @property
    def words(self) -> str:
        """The variant in a table."""
        return f"{self.baseline}{', mask-fine-tuned' if self.tuned else ''}"


@dataclass(frozen=True)
class Selection:
    """One ranking of the columns: its method, network and seed."""

    contender: Contender
    variant: Variant
    model: int
    seed: int


@dataclass(frozen=True)
class Retraining:
    """One retraining: columns (a set, sorted), network, selection seed, repeat."""

    columns: tuple[str, ...]
    model: int
    selection: int
    repeat: int


@dataclass(frozen=True, eq=False)
class Experiment:
    """All the work on one table."""

    job: Job
    dataset: Dataset
    contenders: tuple[Contender, ...]
    variants: tuple[Variant, ...]
    ks: tuple[int, ...]
    budget: int

    def stages(self) -> Iterator[list[Batch]]:
        """The work, stage by stage."""
        name, models = self.dataset.name, range(self.dataset.repeats.models)
        yield [Batch.of_one(self._network_path(m), m, f"{name}: network {m} on all columns",
                            self._train) for m in models]  # fmt: skip
        yield [Batch.of_one(self._tuned_path(v, m), m, f"{name}: network {m}, columns masked",
                            partial(self._tune, v))
               for v in self.variants if v.tuned for m in models]  # fmt: skip
        yield [Batch.of_one(self._ranking_path(s), s, f"{name}: {s.contender.name}, network "
                            f"{s.model}, seed {s.seed}", self._select)
               for s in self.selections()]  # fmt: skip
        yield [Batch.of_one(self._retraining_path(r), r,
                            f"{name}: retraining on {len(r.columns)} columns", self._retrain)
               for r in self._retrainings()]  # fmt: skip

    def selections(self) -> Iterator[Selection]:
        """Every ranking that is compared."""
        for model in range(self.dataset.repeats.models):
            for seed in range(self.dataset.repeats.selections):
                for contender in self.contenders:
                    for variant in self.variants_of(contender):
                        yield Selection(contender, variant, model, seed)

    def variants_of(self, contender: Contender) -> tuple[Variant, ...]:
        """A method that uses no network has no baseline either, and only one variant."""
        return self.variants[:1] if contender.name in WITHOUT_NETWORK else self.variants

    # What was measured.

    def order(self, selection: Selection) -> list[str] | None:
        """The columns, best first; None where that was not measured."""
        record = self.job.read(self._ranking_path(selection))
        return None if record is None else list(record["order"])

    def loss(self, selection: Selection, k: int) -> float | None:
        """The loss after retraining on the top k, mean over the repeats."""
        order = self.order(selection)
        if order is None:
            return None
        records = [self.job.read(self._retraining_path(r))
                   for r in self._repeated(selection, order[:k])]  # fmt: skip
        losses = [record["loss"] for record in records if record is not None]
        return sum(losses) / len(losses) if len(losses) == len(records) else None

    def loss_all(self, model: int) -> float | None:
        """The loss of a network on all columns."""
        return (self.job.read(self._network_path(model)) or {}).get("loss")

    def batches_used(self, selection: Selection) -> int:
        """Gradient batches of a selection."""
        return (self.job.read(self._ranking_path(selection)) or {}).get("batches") or 0

    # Networks.

    @property
    def _key(self) -> tuple[object, ...]:
        """What every training depends on."""
        return self.dataset.key, self.job.request.start, EFFORT

    def _network_path(self, model: int) -> Path:
        return self._place(f"network-{model}", *self._key, self.dataset.split_of(model),
                           self._seed(model))  # fmt: skip

    def _tuned_path(self, variant: Variant, model: int) -> Path:
        return self._place(f"tuned-{variant.baseline}-{model}", self._network_path(model).name,
                           self.job.more["finetune"])  # fmt: skip

    def _place(self, name: str, *depends: object) -> Path:
        return self.job.place(self.dataset.name, name, *depends)

    def _seed(self, model: int) -> int:
        return 1000 * self.job.request.seed + model

    def _train(self, model: int) -> Record:
        done = self._fit(self.dataset.names, model, self._seed(model))
        _save(done.model, self._network_path(model))
        return _summary(done)

    def _fit(self, columns: Sequence[str], model: int, seed: int) -> Trained:
        """A fresh network, trained on these columns and the rows of network `model`."""
        return retrain_on(
            columns, self.dataset.rows("train", model), self.dataset.rows("valid", model),
            seed=seed, effort=EFFORT, fresh=self._fresh, device=self.job.request.device,
        )  # fmt: skip

    def _fresh(self, schema: Schema, seed: int) -> nn.Module:
        at_rate = self.job.request.start == "rate"
        return new_network(schema, seed=seed, at_rate=at_rate, indicators=False)

    def _tune(self, variant: Variant, model: int) -> Record:
        train, steps = self.dataset.rows("train", model), self.job.more["finetune"]
        tuned = mask_finetune(self._load(model), train, steps=steps, loss=train.schema.loss,
                              baseline=variant.baseline, seed=self._seed(model))  # fmt: skip
        _save(tuned, self._tuned_path(variant, model))
        return {"batches": steps}

    def _load(self, model: int, variant: Variant | None = None) -> nn.Module:
        path = self._network_path(model)
        if variant is not None and variant.tuned:
            path = self._tuned_path(variant, model)
        network = new_network(self.dataset.survey.schema, indicators=False)
        weights = path.with_suffix(".safetensors")
        if not weights.is_file():
            raise InvalidInput(f"Expected the weights {weights} (got none). Try --no-resume.")
        network.load_state_dict(load_file(weights))
        return network.to(self.job.request.device).eval().requires_grad_(False)

    # Rankings.

    def _ranking_path(self, s: Selection) -> Path:
        network = self._network_path(s.model)
        if s.variant.tuned:
            network = self._tuned_path(s.variant, s.model)
        return self._place(
            f"order-{s.contender.name}-{s.model}-{s.seed}", network.name,
            sorted(s.contender.knobs.items()), s.variant.words, self.budget,
            self.job.more["ranked"],
        )  # fmt: skip

    def _select(self, s: Selection) -> Record:
        names = self.dataset.names
        if s.contender.name == "truth":
            if self.dataset.truth is None:
                raise InvalidInput("Expected a generated table for the true weights (got another).")
            return {"order": self.dataset.truth.by_weight(), "batches": 0}
        if s.contender.name == "random":
            # The same orders for every network, so that pairs differ in nothing else.
            generator = torch.Generator().manual_seed(self._seed(s.seed))
            order = torch.randperm(len(names), generator=generator).tolist()
            return {"order": [names[i] for i in order], "batches": 0}
        train, method = self.dataset.rows("train", s.model), s.contender.method()
        greedy = isinstance(method, InRounds)
        a = select_features(
            self._load(s.model, s.variant), train, loss=train.schema.loss, method=method,
            k=min(self.job.more["ranked"], len(names)) if greedy else None, budget=self.budget,
            baseline=s.variant.baseline, names=names, seed=100 * self._seed(s.model) + s.seed,
        )  # fmt: skip
        return {"order": [names[i] for i in a.order.tolist()], "seconds": round(a.seconds, 2),
                "batches": a.about.get("gradient_batches")}  # fmt: skip

    # Retraining.

    def _repeated(self, s: Selection, columns: Sequence[str]) -> list[Retraining]:
        return [Retraining(tuple(sorted(columns)), s.model, s.seed, i)
                for i in range(self.dataset.repeats.retrainings)]  # fmt: skip

    def _retrainings(self) -> Iterator[Retraining]:
        """Every set of columns once for each network and selection seed, k by k."""
        done = set()
        for k in self.ks:
            for selection in self.selections():
                for r in self._repeated(selection, (self.order(selection) or [])[:k]):
                    if r.columns and r not in done:
                        done.add(r)
                        yield r

    def _retraining_path(self, r: Retraining) -> Path:
        name = f"retrained-{len(r.columns)}-{r.model}-{r.selection}-{r.repeat}"
        return self._place(name, r.columns, *self._key, self.dataset.split_of(r.model),
                           self._retraining_seed(r))  # fmt: skip

    def _retraining_seed(self, r: Retraining) -> int:
        return seed_from(self._seed(r.model), r.selection, r.repeat)

    def _retrain(self, r: Retraining) -> Record:
        done = self._fit(r.columns, r.model, self._retraining_seed(r))
        return {"columns": list(r.columns), **_summary(done)}


def _summary(done: Trained) -> Record:
    return {"loss": done.scores.loss, "accuracy": done.scores.accuracy, "rows": done.rows,
            "seconds": round(done.seconds, 2)}  # fmt: skip


def _save(model: nn.Module, path: Path) -> None:
    """Weights beside a record, written before it: a record that is there has its weights."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Any] = {k: v.contiguous().cpu() for k, v in model.state_dict().items()}
    write_whole(path.with_suffix(".safetensors"), to_bytes(tensors))
