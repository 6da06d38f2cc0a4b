"""The job behind `greedypig select`, stage by stage, each kept in a folder as soon as it is done.

survey → train → (fine-tune) → select by every method → retrain. With several processes the first
one surveys and trains, while the others wait; all share the gradients of a selection and the
trainings of the proof. They see each other's work in the folder.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from os import fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

import greedypig as gp

from ..core.errors import InvalidInput
from ..images import from_spec
from ..results.files import write_whole
from ..tables import (
    Batches,
    Label,
    Proof,
    Schema,
    Shelf,
    Survey,
    Table,
    Trial,
    constant_answer,
    count_rows,
    evaluate,
    new_network,
    retrain,
    survey,
    train_network,
)
from ..tables.distributed import Group
from ..tables.retraining import trials_of
from .failures import UsageError
from .progress import Meter
from .select_model import adapted, batches_for
from .select_notes import Found, Seen, answer
from .select_options import ANEW, Plan
from .terminal import Bar

VALID_BATCH = 4096
WORK, SURVEY = "work", "survey.json"
ALSO_IN_SURVEY = (r"The values of .* are constant", r".* (equal|decide) the label[. ]")
"""Warnings of a selection that the survey gives from all rows; the second if it found leaks."""
CLOCK = ".seconds"
"""File of the seconds that all sittings took."""


class Selecting:
    """One job."""

    def __init__(
        self, table: Table, valid: Table | None, plan: Plan, folder: Path, *,
        device: torch.device, group: Group, command: str, warned: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.table, self.valid_table, self.plan = table, valid, plan
        self.folder, self.work = folder, folder / WORK
        self.device, self.group, self.command = device, group, command
        self.stage = "looking at the files"
        self.warned = list(warned)
        self._told_by_survey: tuple[str, ...] = ()
        self._meter = Meter()

    def open(self, resume: bool) -> None:
        """Take up the folder's work, or clear it."""
        identity = self.plan.identity() | {"files": _files(self.table, self.valid_table)}
        known = self.work / "job.json"
        if self.group.first:
            if not resume and self.work.exists():
                shutil.rmtree(self.work)
            self.work.mkdir(parents=True, exist_ok=True)
            if resume and known.exists():
                self._check(json.loads(known.read_text()), identity)
            else:
                write_whole(known, json.dumps(identity))
            self._meter.take_up(self.work / CLOCK)
        self.group.barrier()

    @staticmethod
    def _check(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        other = [name for name in now if before.get(name) != now[name]]
        if other:
            raise UsageError(
                "Expected the tables and options of the stopped run (got another "
                f"{', '.join(other)}). Try those, or {ANEW}."
            )

    @property
    def evidence(self) -> Path:
        """The first file that is worth going on from."""
        return self.work / SURVEY

    def run(self, bar: Bar) -> Found:
        """All stages."""
        self._meter.bar = bar
        found = self._surveyed()
        self.warned += found.warnings
        self._told_by_survey = ALSO_IN_SURVEY[: 2 if found.leaks else 1]
        self.plan = self.plan.settled(found.schema, found.left_out)
        train, valid = self._batches(found)
        self._reckon(train)
        model, network = self._model(found.schema, train, valid)
        scores = evaluate(model, batches_for(model, valid))
        results = {
            m: self._select(m, model, train, valid) for m in self.plan.methods if m != "random"
        }  # fmt: skip
        orders = {m: [self._names(a)] for m, a in results.items()}
        if "random" in self.plan.methods:
            orders["random"] = [self._random(found.schema, s) for s in range(self.plan.seeds)]
        orders = {m: orders[m] for m in self.plan.methods}
        proof = self._retrain(orders, train, valid)
        self.stage = "judging a constant answer"
        constant = constant_answer(train, valid) if self.group.first else None  # Who tells it.
        self._gather(results)
        seen = Seen(found.schema, train, valid, network, scores.loss, constant,
                    found.left_out, list(dict.fromkeys(self.warned)))  # fmt: skip
        return answer(
            self.plan, seen, results, orders, proof, source=Path(self.table.source).name,
            command=self.command, seconds=self._meter.seconds(),
        )  # fmt: skip

    def _surveyed(self) -> Survey:
        self.stage = "looking at the columns"
        kept = self.work / SURVEY
        if self.group.first and not kept.exists():
            with self._meter.stage("looking at the columns", "survey") as at:
                made = survey(self.table, self.plan.label, self.plan.reading,
                              lambda done, of: at(done / of))  # fmt: skip
            write_whole(kept, made.to_json())
            write_whole(self.folder / "schema.json", made.schema.to_json())
        self.group.barrier()
        return Survey.from_json(kept.read_text())

    def _batches(self, found: Survey) -> tuple[Batches, Batches]:
        plan = self.plan
        model_schema = self._own_schema(found.schema)
        common: dict[str, Any] = {"share": plan.held_out(found.total), "split_seed": plan.seed,
                                  "seed": plan.seed, "schema": model_schema}  # fmt: skip
        if self.valid_table is None:
            train = Batches(self.table, found, part="train", batch_size=plan.batch_size, **common)
            valid = Batches(self.table, found, part="valid", batch_size=VALID_BATCH,
                            shuffle=False, **common)  # fmt: skip
            return train, valid
        train = Batches(self.table, found, batch_size=plan.batch_size, **common)
        held = count_rows(self.valid_table, model_schema)
        self.warned += held.warnings
        valid = Batches(self.valid_table, held, batch_size=VALID_BATCH, shuffle=False, **common)
        return train, valid

    def _own_schema(self, schema: Schema) -> Schema:
        """The schema that the user's model brings, if it brings one."""
        if self.plan.model is None:
            return schema
        self._own = from_spec.build(self.plan.model, schema)
        given = getattr(self._own, "schema", None)
        if isinstance(given, str | Path):
            given = Schema.from_json(Path(given).read_text())
        if not isinstance(given, Schema):
            return schema
        schema.only(given.names)  # Says which column is missing here.
        return replace(given, label=_own_label(given.label, schema.label))

    def _model(self, schema: Schema, train: Batches, valid: Batches) -> tuple[nn.Module, str]:
        """The network to be explained, and what it is called."""
        if self.plan.model is not None:
            own = self._own.to(self.device).eval()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", UserWarning)
                model, name = adapted(own, train, self.plan.outputs), self.plan.model
            self._repeat(said)
        else:
            model, name = self._trained(schema, train, valid), "TabularMLP"
        if self.plan.finetune is None:
            return model, name
        steps = self.plan.finetune
        tuned = self._once(
            "tuned", "fine-tuning with random masks",
            lambda at: gp.mask_finetune(
                model, batches_for(model, train), steps=steps, loss=train.schema.loss,
                baseline=self.plan.baseline, seed=self.plan.seed,
                progress=lambda i, _: at(i / steps)),
            model,
        )  # fmt: skip
        return tuned, f"{name}, fine-tuned with masks"

    def _trained(self, schema: Schema, train: Batches, valid: Batches) -> nn.Module:
        fresh = new_network(schema, seed=self.plan.seed).to(self.device)

        def make(at: Callable[[float], object]) -> nn.Module:
            done = train_network(
                fresh, train, valid, effort=self.plan.effort, seed=self.plan.seed,
                progress=lambda epochs: at(epochs / self._meter.epochs),
            )  # fmt: skip
            self._meter.learn_epochs(done.rows / train.rows)
            return done.model

        return self._once("network", "training the network", make, fresh)

    def _once(
        self, name: str, stage: str, make: Callable[[Callable[[float], object]], nn.Module],
        like: nn.Module,
    ) -> nn.Module:  # fmt: skip
        """A network made by the first process, and read from its file by all."""
        self.stage = stage
        file = self.work / f"{name}.safetensors"
        if self.group.first and not file.exists():
            with self._meter.stage(stage, name) as at:
                made = make(at)
            _save(made, file)
        self.group.barrier()
        read = _copy(like)
        read.load_state_dict(load_file(file), strict=True)
        return read.to(self.device).eval().requires_grad_(False)

    def _repeat(self, said: Sequence[warnings.WarningMessage]) -> None:
        """Warn again of what was recorded, and keep it for the result."""
        for one in said:
            warnings.warn(one.message, one.category, stacklevel=2)
            if issubclass(one.category, UserWarning):
                self.warned.append(" ".join(str(one.message).split()))

    def _gather(self, results: Mapping[str, gp.Attribution]) -> None:
        """Keep what the selections warned of, but for what the survey has said of all rows."""
        for a in results.values():
            for words in a.about.get("warnings", ()):
                if not any(re.match(told, words) for told in self._told_by_survey):
                    self.warned.append(words)

    def _select(
        self, method: str, model: nn.Module, train: Batches, valid: Batches
    ) -> gp.Attribution:
        """One method's ranking; a round that is done is kept."""
        self.stage = f"selecting by {method}"
        result, partial = self.work / f"{method}.gpig", self.work / f"{method}.partial.gpig"
        self.group.barrier()
        saved = next((f for f in (result, partial) if f.exists()), None)
        plan = self.plan
        if saved is not None:
            plan.refuse_other(gp.load(saved).settings, plan.gradient_batches(train))
        rounds = max(plan.ks) if method in ("greedy-pig", "sequential-gradient", "greedy") else 1
        with self._meter.stage(self.stage, method) as at, warnings.catch_warnings():
            for told in self._told_by_survey:
                warnings.filterwarnings("ignore", message=told)
            try:
                a = gp.select_features(
                    model, batches_for(model, train), valid=batches_for(model, valid),
                    loss=train.schema.loss, method=method,
                    k=max(plan.ks), steps=plan.steps if method == "greedy-pig" else None,
                    budget=plan.gradient_batches(train), baseline=plan.baseline,
                    names=train.schema.names, seed=plan.seed, group=self.group, resume=saved,
                    checkpoint=partial,
                    progress=lambda events: at(len(events.problem.rounds) / rounds),
                )  # fmt: skip
            except InvalidInput as error:
                hint = "" if saved is None else f" Try the options of the stopped run, or {ANEW}."
                raise UsageError(f"{error}{hint}") from error
        if self.group.first and saved != result:
            a.save(result)
            partial.unlink(missing_ok=True)
        return a

    def _names(self, a: gp.Attribution) -> list[str]:
        return a.top(a.features.units)

    def _random(self, schema: Schema, seed: int) -> list[str]:
        drawn = np.random.default_rng([self.plan.seed, seed, 7]).permutation(len(schema.names))
        return [schema.names[i] for i in drawn.tolist()]

    def _retrain(
        self, orders: Mapping[str, list[list[str]]], train: Batches, valid: Batches
    ) -> Proof:
        self.stage = "retraining"
        shelf = Shelf(self.work / "retrained")
        names = train.schema.names
        trials = trials_of(names, orders, self.plan.ks, self.plan.seeds)
        mine = self.group.share([t for t in trials if t not in shelf])
        places = {trial: i for i, trial in enumerate(mine)}
        with self._meter.stage("retraining", "retrain") as at:

            def watch(trial: Trial, epochs: float) -> None:
                inside = min(0.95, epochs / self._meter.epochs)
                i = places[trial]
                self._meter.label(f"retraining {i + 1}/{len(mine)}, {len(trial.columns)} columns")
                at((i + inside) / max(len(mine), 1))

            return retrain(orders, train, valid, ks=self.plan.ks, seeds=self.plan.seeds,
                           effort=self.plan.effort, shelf=shelf, group=self.group,
                           device=self.device, watch=watch)  # fmt: skip

    def _reckon(self, train: Batches) -> None:
        """What each stage costs, in rows that a network of all columns learns from."""
        plan, rows = self.plan, train.rows
        self._meter.guess(rows)
        sets = len(plan.ks) * len(plan.methods) * plan.seeds + plan.seeds
        gradients = plan.gradient_batches(train) * train.batch_size * 0.6
        costs = {"network": self._meter.epochs * rows,
                 "retrain": sets * self._meter.epochs * rows * 0.8}  # fmt: skip
        if plan.model is not None:
            del costs["network"]
        costs |= {m: gradients for m in plan.methods if m != "random"}
        if plan.finetune is not None:
            costs["tuned"] = 2.0 * plan.finetune * train.batch_size
        self._meter.plan(costs)


def _own_label(given: Label, here: Label) -> Label:
    """The label as the model knows it: the order of its classes, the scale of its number.

    The table's own where it is another column.
    """
    if given.name != here.name:
        return here
    if given.task != here.task and {given.task, here.task} != {"binary", "classes"}:
        raise UsageError(
            f"Expected the label {here.name!r} as in the model's schema, {given.in_words()} (got "
            f"{here.in_words()}). Try --task."
        )
    if new := [value for value in here.values if value not in given.values]:
        raise UsageError(
            f"Expected the classes of the model's schema in {here.name!r} (got {new[0][:40]!r} "
            "besides). Try rows without it, or a model that knows it."
        )
    shares = dict(zip(here.values, here.shares, strict=True)) if here.shares else {}
    return replace(given, shares=tuple(shares.get(value, 0.0) for value in given.values))


def _files(table: Table, valid: Table | None) -> str:
    """A digest of the files' names, sizes and decimal signs: others are none to go on with."""
    held = [(fspath(f.path), f.path.stat().st_size) for t in (table, valid) if t for f in t.files]
    commas = any(getattr(f, "decimal", ".") == "," for f in table.files)
    text = json.dumps([held, list(table.kinds), *(["decimal ,"] if commas else [])])
    return sha256(text.encode()).hexdigest()[:16]


def _save(model: nn.Module, file: Path) -> None:
    write_whole(file, to_bytes({k: v.contiguous().cpu() for k, v in model.state_dict().items()}))


def _copy(model: nn.Module) -> nn.Module:
    from copy import deepcopy

    return deepcopy(model).cpu()
