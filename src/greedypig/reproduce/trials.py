"""Train, select, retrain: the work behind a comparison of selections on one table.

Three stages, each resumable and shared among processes: networks on all columns; a ranking of the
columns for every network, selection seed, method and baseline; fresh networks on the top k of the
rankings. A set of columns is retrained once for each split and seed, whoever chose it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..core.errors import InvalidInput
from ..finetune import mask_finetune
from ..selection import select_features
from ..tables.training import Effort, new_network, train_network
from . import shelf as files
from .engine import Batch, Task, carry_out
from .grounds import Ground
from .request import Request
from .settings import Contender
from .shelf import Shelf

EFFORT = Effort()
LONG = (EFFORT.epochs, EFFORT.rate, EFFORT.patience, EFFORT.check)
"""What results of training depend on."""
WITHOUT_NETWORK = ("random", "truth")
"""Orders that no network is asked for."""


@dataclass(frozen=True)
class Variant:
    """What an absent column looks like, and which network is asked."""

    baseline: str
    tuned: bool = False
    """The network's copy after fine-tuning with columns masked?"""

    @property
    def words(self) -> str:
        """For tables."""
        return f"{self.baseline}{', mask-fine-tuned' if self.tuned else ''}"


@dataclass(frozen=True)
class Choice:
    """One ranking: who made it."""

    contender: Contender
    variant: Variant
    model: int
    seed: int


@dataclass(frozen=True, eq=False)
class Trials:
    """All the work on one table."""

    request: Request
    ground: Ground
    contenders: tuple[Contender, ...]
    variants: tuple[Variant, ...]
    ks: tuple[int, ...]
    budget: int
    ranked: int
    finetune: int
    shelf: Shelf

    def run(self) -> None:
        """Do what is not done yet."""
        self.networks()
        self.orders()
        self.losses()

    def networks(self) -> None:
        """Networks on all columns, and their fine-tuned copies where those are asked."""
        models = range(self.ground.plan.models)
        carry_out([self._training(m) for m in models], self.request)
        tuned = [self._tuning(v, m) for v in self.variants if v.tuned for m in models]
        carry_out(tuned, self.request)

    def orders(self) -> None:
        """Every ranking."""
        carry_out([self._choosing(c) for c in self.choices()], self.request)

    def losses(self) -> None:
        """Retraining on the top k of every ranking."""
        carry_out(list(self._retrainings()), self.request)

    def choices(self) -> Iterator[Choice]:
        """Every ranking that is compared."""
        for model in range(self.ground.plan.models):
            for seed in range(self.ground.plan.selections):
                for contender in self.contenders:
                    # Who asks no network has no baseline either.
                    bare = contender.search["method"] in WITHOUT_NETWORK
                    for variant in self.variants[:1] if bare else self.variants:
                        yield Choice(contender, variant, model, seed)

    def order(self, choice: Choice) -> list[str] | None:
        """The columns, best first; None where that was not found."""
        found = files.read(self._chosen_at(choice))
        return None if found is None or "error" in found else list(found["order"])

    def loss(self, choice: Choice, k: int) -> float | None:
        """After retraining on the top k, mean over the retraining seeds."""
        order = self.order(choice)
        if order is None:
            return None
        split = self.ground.split_of(choice.model)
        found = [self._loss(split, order[:k], r) for r in range(self.ground.plan.retrainings)]
        there = [loss for loss in found if loss is not None]
        return sum(there) / len(there) if len(there) == len(found) else None

    def loss_all(self, model: int) -> float | None:
        """Of a network on all columns."""
        return (files.read(self._model_at(model)) or {}).get("loss")

    def spent(self, choice: Choice) -> int | None:
        """Gradient batches of a selection."""
        return (files.read(self._chosen_at(choice)) or {}).get("batches")

    def problems(self) -> list[tuple[str, str]]:
        """What failed, with the reason."""
        places = [("network", self._model_at(m)) for m in range(self.ground.plan.models)]
        places += [(f"selection by {c.contender.name}", self._chosen_at(c)) for c in self.choices()]
        places += [("retraining", task.place) for b in self._retrainings() for task in b.tasks]
        bad = []
        for what, place in places:
            reason = (files.read(place) or {}).get("error")
            if reason is not None:
                bad.append((f"{self.ground.name}: {what}", reason))
        return bad

    # Networks on all columns.

    def _model_at(self, model: int) -> Path:
        split = self.ground.split_of(model)
        return self.shelf.place(self.ground.name, f"network-{model}", self.ground.key, split, LONG,
                                self.request.seed)  # fmt: skip

    def _training(self, model: int) -> Batch:
        task = Task(self._model_at(model), model)
        return Batch(f"{self.ground.name}: network {model} on all columns", (task,),
                     partial(map, self._trained))  # fmt: skip

    def _trained(self, model: int) -> dict[str, Any]:
        split = self.ground.split_of(model)
        train, valid = self.ground.train(split), self.ground.valid(split)
        fresh = new_network(train.schema, seed=self._seed(model)).to(self.request.device)
        done = train_network(fresh, train, valid, effort=EFFORT, seed=self._seed(model))
        _save(done.model, self._model_at(model))
        return {"loss": done.scores.loss, "accuracy": done.scores.accuracy,
                "valid_rows": done.scores.rows, "rows": done.rows,
                "seconds": round(done.seconds, 2)}  # fmt: skip

    def _seed(self, model: int) -> int:
        return 1000 * self.request.seed + model

    def _network(self, model: int, variant: Variant) -> nn.Module:
        place = self._tuned_at(variant, model) if variant.tuned else self._model_at(model)
        network = new_network(self.ground.survey.schema)
        network.load_state_dict(_load(place))
        return network.to(self.request.device).eval().requires_grad_(False)

    def _tuned_at(self, variant: Variant, model: int) -> Path:
        return self.shelf.place(self.ground.name, f"tuned-{variant.baseline}-{model}",
                                self._model_at(model).name, self.finetune)  # fmt: skip

    def _tuning(self, variant: Variant, model: int) -> Batch:
        task = Task(self._tuned_at(variant, model), model)
        return Batch(f"{self.ground.name}: network {model}, columns masked", (task,),
                     partial(map, partial(self._tuned, variant)))  # fmt: skip

    def _tuned(self, variant: Variant, model: int) -> dict[str, Any]:
        plain = self._network(model, Variant(variant.baseline))
        train = self.ground.train(self.ground.split_of(model))
        tuned = mask_finetune(plain, train, steps=self.finetune, loss=train.schema.loss,
                              baseline=variant.baseline, seed=self._seed(model))  # fmt: skip
        _save(tuned, self._tuned_at(variant, model))
        return {"batches": self.finetune}

    # Rankings.

    def _chosen_at(self, choice: Choice) -> Path:
        network = self._model_at(choice.model).name
        if choice.variant.tuned:
            network = self._tuned_at(choice.variant, choice.model).name
        c = choice.contender
        return self.shelf.place(
            self.ground.name, f"order-{c.name}-{choice.model}-{choice.seed}", network,
            sorted(c.search.items()), choice.variant.words, self.budget, self.ranked,
        )  # fmt: skip

    def _choosing(self, choice: Choice) -> Batch:
        words = f"{choice.contender.name}, network {choice.model}, seed {choice.seed}"
        return Batch(f"{self.ground.name}: {words}", (Task(self._chosen_at(choice), choice),),
                     partial(map, self._chosen))  # fmt: skip

    def _chosen(self, choice: Choice) -> dict[str, Any]:
        names, search = self.ground.names, dict(choice.contender.search)
        if search["method"] == "truth":
            if self.ground.truth is None:
                raise InvalidInput("Expected a generated table for the true weights (got another).")
            return {"order": self.ground.truth.by_weight(), "batches": 0}
        if search["method"] == "random":
            # The same orders for every network: fewer retrainings, the same mean.
            drawn = torch.Generator().manual_seed(self._seed(choice.seed))
            order = torch.randperm(len(names), generator=drawn).tolist()
            return {"order": [names[i] for i in order], "batches": 0}
        one_shot = search["method"] in ("ig", "permutation")
        train = self.ground.train(self.ground.split_of(choice.model))
        a = select_features(
            self._network(choice.model, choice.variant), train, loss=train.schema.loss,
            k=None if one_shot else min(self.ranked, len(names)), budget=self.budget,
            baseline=choice.variant.baseline, names=names,
            seed=100 * self._seed(choice.model) + choice.seed, **search,
        )  # fmt: skip
        return {"order": [names[i] for i in a.order.tolist()], "seconds": round(a.seconds, 2),
                "batches": a.about.get("gradient_batches")}  # fmt: skip

    # Retraining.

    def _loss(self, split: int, columns: Sequence[str], seed: int) -> float | None:
        return (files.read(self._retrained_at(split, columns, seed)) or {}).get("loss")

    def _retrained_at(self, split: int, columns: Sequence[str], seed: int) -> Path:
        kept = sorted(columns)
        return self.shelf.place(self.ground.name, f"top-{len(kept)}-{split}-{seed}", kept,
                                self.ground.key, split, LONG, self._seed(seed))  # fmt: skip

    def _retrainings(self) -> Iterator[Batch]:
        """Every set of columns once for each split and seed; k by k, as asked for."""
        seen = set()
        for k in self.ks:
            for choice in self.choices():
                order = self.order(choice)
                for seed in range(self.ground.plan.retrainings if order is not None else 0):
                    split, columns = self.ground.split_of(choice.model), tuple(sorted(order[:k]))  # type: ignore[index]
                    place = self._retrained_at(split, columns, seed)
                    if place not in seen:
                        seen.add(place)
                        task = Task(place, (split, columns, seed))
                        yield Batch(f"{self.ground.name}: retraining on {k} columns", (task,),
                                    partial(map, self._retrained))  # fmt: skip

    def _retrained(self, what: tuple[int, tuple[str, ...], int]) -> dict[str, Any]:
        split, columns, seed = what
        train = self.ground.train(split).only(columns)
        valid = self.ground.valid(split).only(columns)
        fresh = new_network(train.schema, seed=self._seed(seed)).to(self.request.device)
        done = train_network(fresh, train, valid, effort=EFFORT, seed=self._seed(seed))
        return {"columns": list(columns), "loss": done.scores.loss,
                "accuracy": done.scores.accuracy, "rows": done.rows,
                "seconds": round(done.seconds, 2)}  # fmt: skip


def _weights(place: Path) -> Path:
    return place.with_suffix(".safetensors")


def _save(model: nn.Module, place: Path) -> None:
    """Weights beside a record, written before it: a record that is there has its weights."""
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(f"{place.name}.{os.getpid()}.weights")
    try:
        save_file({k: v.contiguous().cpu() for k, v in model.state_dict().items()}, new)
        os.replace(new, _weights(place))
    finally:
        new.unlink(missing_ok=True)


def _load(place: Path) -> dict[str, torch.Tensor]:
    if not _weights(place).is_file():
        raise InvalidInput(
            f"Expected the weights {_weights(place)} (they are not there). Try --no-resume."
        )
    return load_file(_weights(place))
