"""Train, select, retrain: the work behind a comparison of selections on one table.

Three stages, each resumable and shared among processes: networks on all columns; a ranking of the
columns for every network, selection seed, method and baseline; fresh networks on the top k of the
rankings. The seed of a retraining is that of its network and selection. So methods are compared
with the same fresh weights and the same order of rows (who chose the same columns has the same
loss), and the noise of the retraining is in the error over networks. A set of columns is retrained
once for each network, selection and `--retrainings`, whoever chose it.
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
from greedypig.results.files import write_whole
from greedypig.tables.api import select_features
from greedypig.tables.finetune import mask_finetune
from greedypig.tables.schema import Schema
from greedypig.tables.stream import seed_from
from greedypig.tables.training import Effort, new_network, train_network

from . import cache
from .cache import Shelf
from .datasets import Ground
from .request import Request
from .resumable import Batch, Task, carry_out
from .settings import Contender

EFFORT = Effort()
LONG = ("glorot", EFFORT.epochs, EFFORT.rate, EFFORT.patience, EFFORT.check)
"""What results of training depend on; networks of earlier versions began otherwise."""
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


@dataclass(frozen=True)
class Retraining:
    """A fresh network on some columns: in whose place, and for the how manieth time."""

    columns: tuple[str, ...]
    """Sorted: the order in which they were chosen does not matter."""
    model: int
    selection: int
    again: int

    @staticmethod
    def of(choice: Choice, columns: Sequence[str], again: int) -> Retraining:
        """The retraining of what a choice chose."""
        return Retraining(tuple(sorted(columns)), choice.model, choice.seed, again)


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
        found = cache.read(self._chosen_at(choice))
        return None if found is None or "error" in found else list(found["order"])

    def loss(self, choice: Choice, k: int) -> float | None:
        """After retraining on the top k, mean over the retraining seeds."""
        order = self.order(choice)
        if order is None:
            return None
        found = [self._loss(Retraining.of(choice, order[:k], i))
                 for i in range(self.ground.plan.retrainings)]  # fmt: skip
        there = [loss for loss in found if loss is not None]
        return sum(there) / len(there) if len(there) == len(found) else None

    def loss_all(self, model: int) -> float | None:
        """Of a network on all columns."""
        return (cache.read(self._model_at(model)) or {}).get("loss")

    def spent(self, choice: Choice) -> int | None:
        """Gradient batches of a selection."""
        return (cache.read(self._chosen_at(choice)) or {}).get("batches")

    def problems(self) -> list[tuple[str, str]]:
        """What failed, with the reason."""
        places = [("network", self._model_at(m)) for m in range(self.ground.plan.models)]
        places += [(f"selection by {c.contender.name}", self._chosen_at(c)) for c in self.choices()]
        places += [("retraining", task.place) for b in self._retrainings() for task in b.tasks]
        bad = []
        for what, place in places:
            reason = (cache.read(place) or {}).get("error")
            if reason is not None:
                bad.append((f"{self.ground.name}: {what}", reason))
        return bad

    # Networks on all columns.

    def _model_at(self, model: int) -> Path:
        split = self.ground.split_of(model)
        return self.shelf.place(self.ground.name, f"network-{model}", self._key, split, LONG,
                                self.request.seed)  # fmt: skip

    def _training(self, model: int) -> Batch:
        task = Task(self._model_at(model), model)
        return Batch(f"{self.ground.name}: network {model} on all columns", (task,),
                     partial(map, self._trained))  # fmt: skip

    def _trained(self, model: int) -> dict[str, Any]:
        split = self.ground.split_of(model)
        train, valid = self.ground.train(split), self.ground.valid(split)
        fresh = self._fresh(train.schema, self._seed(model))
        done = train_network(fresh, train, valid, effort=EFFORT, seed=self._seed(model))
        _save(done.model, self._model_at(model))
        return {"loss": done.scores.loss, "accuracy": done.scores.accuracy,
                "valid_rows": done.scores.rows, "rows": done.rows,
                "seconds": round(done.seconds, 2)}  # fmt: skip

    def _fresh(self, schema: Schema, seed: int) -> nn.Module:
        at_rate = self.request.tables.start == "rate"
        network = new_network(schema, seed=seed, at_rate=at_rate, indicators=False)
        return network.to(self.request.device)

    @property
    def _key(self) -> Any:
        """The ground, and how its networks start unless that is as the paper's do."""
        start = self.request.tables.start
        return self.ground.key if start == "zero" else (self.ground.key, start)

    def _seed(self, model: int) -> int:
        return 1000 * self.request.seed + model

    def _network(self, model: int, variant: Variant) -> nn.Module:
        place = self._tuned_at(variant, model) if variant.tuned else self._model_at(model)
        network = new_network(self.ground.survey.schema, indicators=False)
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
            # The same orders for every network: what is paired differs in nothing else.
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

    def _loss(self, of: Retraining) -> float | None:
        return (cache.read(self._retrained_at(of)) or {}).get("loss")

    def _retrained_at(self, of: Retraining) -> Path:
        # Earlier versions gave all networks the same retraining seed, in files called top-…: what
        # is called otherwise is never taken for one of them.
        name = f"retrained-{len(of.columns)}-{of.model}-{of.selection}-{of.again}"
        return self.shelf.place(
            self.ground.name, name, of.columns, self._key, self.ground.split_of(of.model),
            LONG, self._retraining_seed(of),
        )  # fmt: skip

    def _retraining_seed(self, of: Retraining) -> int:
        return seed_from(self._seed(of.model), of.selection, of.again)

    def _retrainings(self) -> Iterator[Batch]:
        """Every set of columns once for each network and selection; k by k, as asked for."""
        seen = set()
        for k in self.ks:
            for choice in self.choices():
                order = self.order(choice)
                if order is None:
                    continue
                for again in range(self.ground.plan.retrainings):
                    what = Retraining.of(choice, order[:k], again)
                    if what not in seen:
                        seen.add(what)
                        task = Task(self._retrained_at(what), what)
                        yield Batch(f"{self.ground.name}: retraining on {k} columns", (task,),
                                    partial(map, self._retrained))  # fmt: skip

    def _retrained(self, what: Retraining) -> dict[str, Any]:
        split, seed = self.ground.split_of(what.model), self._retraining_seed(what)
        train = self.ground.train(split).only(what.columns)
        valid = self.ground.valid(split).only(what.columns)
        fresh = self._fresh(train.schema, seed)
        done = train_network(fresh, train, valid, effort=EFFORT, seed=seed)
        return {"columns": list(what.columns), "loss": done.scores.loss,
                "accuracy": done.scores.accuracy, "rows": done.rows,
                "seconds": round(done.seconds, 2)}  # fmt: skip


def _weights(place: Path) -> Path:
    return place.with_suffix(".safetensors")


def _save(model: nn.Module, place: Path) -> None:
    """Weights beside a record, written before it: a record that is there has its weights."""
    place.parent.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.contiguous().cpu() for k, v in model.state_dict().items()}
    write_whole(_weights(place), to_bytes(tensors))


def _load(place: Path) -> dict[str, torch.Tensor]:
    if not _weights(place).is_file():
        raise InvalidInput(
            f"Expected the weights {_weights(place)} (they are not there). Try --no-resume."
        )
    return load_file(_weights(place))
