"""The job of `greedypig select`: train (or take) a network, rank its columns, retrain on them.

Every stage is kept in a work folder, so that a stopped job goes on, and shared by the processes of
a group.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from os import fspath
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

import greedypig as gp

from ..core.errors import InvalidInput, quoted
from ..core.methods import as_method
from ..images.from_spec import build
from ..results.files import write_whole
from ..tables import (
    Batches,
    ColumnWarning,
    Constant,
    Effort,
    Label,
    Reading,
    Retrained,
    Schema,
    Survey,
    Table,
    Training,
    TrainingCache,
    constant_answer,
    count_rows,
    evaluate,
    new_network,
    retrain,
    survey,
    train_network,
)
from ..tables import api as select
from ..tables.distributed import Group
from ..tables.retraining import own_trainings, trainings_of
from ..tensors.methods import FOR_COLUMNS
from .failures import UsageError
from .select_model import Outputs, adapted, batches_for, option_value
from .terminal import Bar

METHODS = ("greedy-pig", "sequential-gradient", "ig", "permutation", "marginal-gains", "random")
USUAL_METHODS = ("greedy-pig", "ig", "random")
ONE_SHOT = gp.IG(steps=39)
"""Integrated gradients with the paper's number of steps."""
TRAINING = "Glorot, small steps, missing indicators, patience"
"""Networks that earlier versions trained otherwise are not gone on with."""
ANEW = "no --resume to begin anew, with another --out to keep what is here"
EMBEDDING, MOST_NUMBERS = 8, 2048
"""Numbers of a category, and of a row, up to which baseline "conditional" is the default."""
HELD, MOST_HELD, HELD_ROWS = 0.1, 0.3, 1000
USUAL_KS, FEW_KS, FEW = (5, 10, 20, 30), (1, 2, 3, 5, 7, 10), 20
"""How many columns are kept by default, of many columns and of at most FEW."""
EACH = 40
"""Batches of each gradient of greedy-pig, where no budget is given."""
VALID_BATCH = 4096
WORK, SURVEY, TABLES = "work", "survey.json", "tables"
ALSO_IN_SURVEY = (r"The values of .* are constant", r".* (equal|decide) the label[. ]")
"""Warnings of a selection that the survey gives from all rows; the second if it found leaks."""
CLOCK = ".seconds"
"""File of the seconds that a job took, the parts of a resumed one together."""
GUESSED_EPOCHS, OF_FEW_ROWS, FEW_ROWS = 4, 15, 10_000
"""Epochs of a training, before any has ended; and of one on fewer than FEW_ROWS rows."""
KEPT_EVERY = 5.0
"""Seconds between two writings of the clock."""


def with_option(warning: ColumnWarning) -> str:
    """A warning about columns with the option that helps."""
    names = warning.columns
    if warning.kind == "row number":
        return f"{warning.text} To rank them anyway, try --keep {option_value(names)}."
    if warning.kind == "copy":
        return f"{warning.text} Try --drop {option_value(names[1:])}."
    if warning.kind in ("equals label", "decides label"):
        return f"{warning.text} Try --drop {option_value(names)}."
    if warning.kind == "text number" and re.search(r"'[-+]?\d*,\d+'", warning.text):
        return f"{warning.text} Try --decimal , if a comma is the decimal sign."
    return warning.text


@dataclass(frozen=True)
class Plan:
    """The options of a job."""

    label: str
    reading: Reading
    ks: tuple[int, ...]
    """Empty until the columns are known, where nobody says: see `settled`."""
    seeds: int
    seed: int
    methods: tuple[str, ...]
    steps: int | None
    budget: int | None
    baseline: str | None
    """None until the columns are known: see `settled`."""
    finetune: int | None
    model: str | None
    outputs: Outputs
    """What the user's model returns."""
    valid_share: float | None
    epochs: int | None
    rate: float
    batch_size: int | None

    @property
    def effort(self) -> Effort:
        """How long every training takes."""
        return Effort(epochs=self.epochs, rate=self.rate)

    def held_out(self, rows: int) -> float:
        """Share of the rows to judge on: a tenth, of a small table more."""
        return self.valid_share or min(MOST_HELD, max(HELD, HELD_ROWS / rows))

    def settled(self, schema: Schema, left_out: Sequence[str] = ()) -> Plan:
        """The plan with the ks and the baseline for these columns.

        For our own network the question is which columns suffice, so copies should not be
        selected; for a model of the user's it is which columns the model reads. A regression on
        very many numbers would be slow.
        """
        columns = len(schema.numbers) + len(schema.categories)
        usual = USUAL_KS if columns > FEW else FEW_KS
        ks = self.ks or tuple(k for k in usual if k < columns) or (1,)
        if max(ks) > columns:
            raise UsageError(
                f"Expected --k of at most {columns}, the number of columns without "
                f"{quoted(list(left_out))}, which number the rows (got {max(ks)}). Try --keep "
                f"{option_value(left_out)} to rank those too."
            )
        if self.baseline is not None:
            return replace(self, ks=ks)
        width = len(schema.numbers) + EMBEDDING * len(schema.categories)
        own = self.model is None and self.finetune is None
        baseline = "conditional" if own and width <= MOST_NUMBERS else "zero"
        return replace(self, ks=ks, baseline=baseline)

    def identity(self) -> dict[str, Any]:
        """The options that a resumed job must have: all but those that only add work."""
        fixed = asdict(self)
        for name in ("seeds", "methods", "steps", "budget", "baseline", "ks"):
            if name == "baseline" and self.finetune:
                continue  # The fine-tuned network has learned what an absent column looks like.
            del fixed[name]  # A selection checks its settings; trainings are by columns and seed.
        known: dict[str, Any] = json.loads(json.dumps(fixed))
        return known | {"way of training": TRAINING}

    def refuse_other(self, before: Mapping[str, Any], budget: int) -> None:
        """Refuse to go on with a ranking that was made with other settings, and say with which.

        The rounds of a ranking share its budget: another k or budget is another ranking.
        """
        last = before.get("k")
        if isinstance(last, int) and last != max(self.ks):
            ks = ",".join(map(str, [*(k for k in self.ks if k < last), last]))
            raise UsageError(
                f"Expected {last} as the largest --k, as in the stopped run, whose rounds shared "
                f"the gradient batches (got {max(self.ks)}). Try --k {ks} to go on, or {ANEW}."
            )
        steps = self.steps or FOR_COLUMNS.steps
        now = {"budget": budget, "baseline": self.baseline}
        now |= {"steps": steps} if before.get("method") == "greedy-pig" else {}
        for name, value in now.items():
            if name in before and before[name] != value:
                raise UsageError(
                    f"Expected --{name} {before[name]}, as in the stopped run (got {value}). "
                    f"Try that to go on, or {ANEW}."
                )

    def method(self, name: str) -> Any:
        """The method of this name, with its knobs."""
        if name == "greedy-pig":
            return FOR_COLUMNS if self.steps is None else replace(FOR_COLUMNS, steps=self.steps)
        return ONE_SHOT if name == "ig" else as_method(name)

    def gradient_batches(self, train: Batches) -> int:
        """Gradient batches of every method."""
        if self.budget is not None:
            return self.budget
        steps = self.steps or FOR_COLUMNS.steps
        columns, k = len(train.schema.names), max(self.ks)
        # Methods that try every column by itself need a batch for each try.
        gains = sum(1 + columns - r for r in range(k))
        least = {"permutation": columns + 1, "marginal-gains": gains}
        each = min(EACH, len(train)) * steps * k
        return max(each, ONE_SHOT.steps, *(least.get(method, 0) for method in self.methods))


@dataclass(frozen=True, eq=False)
class Selection:
    """Everything that a job has found."""

    plan: Plan
    schema: Schema
    train: Batches
    valid: Batches
    network: str
    network_loss: float
    constant: Constant | None
    """The loss of a constant prediction; None on processes that do not report."""
    results: Mapping[str, gp.Attribution]
    """Method → its result, the reported one first."""
    orders: Mapping[str, list[list[str]]]
    """Method → its ranking of the columns for each seed, or one for all."""
    retrained: Retrained
    left_out: Sequence[str]
    """Columns that number the rows."""
    warnings: Sequence[str]
    seconds: float


class SelectJob:
    """The stages of a job, each kept in the work folder, so that a stopped job goes on."""

    def __init__(
        self, table: Table, valid: Table | None, plan: Plan, folder: Path, *,
        device: torch.device, group: Group, warnings: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.table, self.valid_table, self.plan = table, valid, plan
        self.folder, self.work = folder, folder / WORK
        self.device, self.group = device, group
        self.stage = "opening the files"
        self.warnings = list(warnings)
        self._from_survey: tuple[str, ...] = ()
        self._meter = Meter()

    def open(self, resume: bool) -> None:
        """Go on with the folder's work, or clear it."""
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

    def run(self, bar: Bar) -> Selection:
        """All stages."""
        self._meter.bar = bar
        survey = self._surveyed()
        self.warnings += [with_option(w) for w in survey.warnings]
        self._from_survey = ALSO_IN_SURVEY[: 2 if survey.leaks else 1]
        self.plan = self.plan.settled(survey.schema, survey.left_out)
        train, valid = self._batches(survey)
        self._estimate(train)
        model, network = self._model(survey.schema, train, valid)
        scores = evaluate(model, batches_for(model, valid))
        results = {
            m: self._select(m, model, train, valid) for m in self.plan.methods if m != "random"
        }  # fmt: skip
        orders = {m: [a.top(a.features.units)] for m, a in results.items()}
        if "random" in self.plan.methods:
            orders["random"] = [self._random(survey.schema, s) for s in range(self.plan.seeds)]
        orders = {m: orders[m] for m in self.plan.methods}
        retrained = self._retrain(orders, train, valid)
        self.stage = "computing the loss of a constant prediction"
        constant = constant_answer(train, valid) if self.group.first else None
        self._gather(results)
        return Selection(
            plan=self.plan, schema=survey.schema, train=train, valid=valid, network=network,
            network_loss=scores.loss, constant=constant, results=results, orders=orders,
            retrained=retrained, left_out=survey.left_out,
            warnings=tuple(dict.fromkeys(self.warnings)), seconds=self._meter.seconds(),
        )  # fmt: skip

    def _surveyed(self) -> Survey:
        self.stage = "surveying the columns"
        file = self.work / SURVEY
        tables = [t for t in (self.table, self.valid_table) if t is not None]
        if self.group.first:
            with self._meter.stage(self.stage, "survey") as at:
                for table in tables:
                    table.convert(self.work / TABLES)
                if not file.exists():
                    self._survey(file, lambda done, of: at(done / of))
        self.group.barrier()
        for table in tables:  # Finds what the first process has converted.
            table.convert(self.work / TABLES)
        return Survey.from_json(file.read_text())

    def _survey(self, file: Path, progress: Callable[[int, int], object]) -> None:
        """Survey the table, and warn in the command's words."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            columns = survey(self.table, self.plan.label, self.plan.reading, progress)
        for warning in columns.warnings:
            warnings.warn(with_option(warning), stacklevel=2)
        write_whole(self.folder / "schema.json", columns.schema.to_json())
        write_whole(file, columns.to_json())

    def _batches(self, columns: Survey) -> tuple[Batches, Batches]:
        plan = self.plan
        schema = self._own_schema(columns.schema)
        common: dict[str, Any] = {"share": plan.held_out(columns.total), "split_seed": plan.seed,
                                  "seed": plan.seed, "schema": schema}  # fmt: skip
        if self.valid_table is None:
            train = Batches(self.table, columns, part="train", batch_size=plan.batch_size, **common)
            valid = Batches(self.table, columns, part="valid", batch_size=VALID_BATCH,
                            shuffle=False, **common)  # fmt: skip
            return train, valid
        train = Batches(self.table, columns, batch_size=plan.batch_size, **common)
        further = count_rows(self.valid_table, schema)
        self.warnings += [w.text for w in further.warnings]
        valid = Batches(self.valid_table, further, batch_size=VALID_BATCH, shuffle=False, **common)
        return train, valid

    def _own_schema(self, schema: Schema) -> Schema:
        """The schema that the user's model brings, if it brings one."""
        if self.plan.model is None:
            return schema
        self._own = build(self.plan.model, schema)
        given = getattr(self._own, "schema", None)
        if isinstance(given, str | Path):
            given = Schema.from_json(Path(given).read_text())
        if not isinstance(given, Schema):
            return schema
        schema.only(given.names)  # Says which column is missing here.
        return replace(given, label=_own_label(given.label, schema.label))

    def _model(self, schema: Schema, train: Batches, valid: Batches) -> tuple[nn.Module, str]:
        """The network to be explained, and its name."""
        if self.plan.model is not None:
            own = self._own.to(self.device).eval()
            model, name = adapted(own, train, self.plan.outputs), self.plan.model
            if note := str(getattr(model, "note", "")):
                self.warnings.append(note)
                warnings.warn(note, stacklevel=2)
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
                _save(make(at), file)
        self.group.barrier()
        read = deepcopy(like).cpu()
        read.load_state_dict(load_file(file), strict=True)
        return read.to(self.device).eval().requires_grad_(False)

    def _gather(self, results: Mapping[str, gp.Attribution]) -> None:
        """Keep the selections' warnings, but for those that the survey gives for all rows."""
        for a in results.values():
            for text in a.about.get("warnings", ()):
                if not any(re.match(known, text) for known in self._from_survey):
                    self.warnings.append(text)

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
        with self._meter.stage(self.stage, method) as at, warnings.catch_warnings():
            for known in self._from_survey:
                warnings.filterwarnings("ignore", message=known)
            try:
                run = select.Selection(
                    model, batches_for(model, train), loss=train.schema.loss,
                    method=plan.method(method), k=max(plan.ks),
                    budget=plan.gradient_batches(train), baseline=plan.baseline,
                    names=train.schema.names, seed=plan.seed, group=self.group, resume=saved,
                )  # fmt: skip
                for state in run:
                    if self.group.first:
                        run.result(measure=False).save(partial)
                    at(len(state.picks) / len(run.run.schedule))
                a = run.result(valid=batches_for(model, valid))
            except InvalidInput as error:
                hint = "" if saved is None else f" Try the options of the stopped run, or {ANEW}."
                raise UsageError(f"{error}{hint}") from error
        if self.group.first and saved != result:
            a.save(result)
            partial.unlink(missing_ok=True)
        return a

    def _random(self, schema: Schema, seed: int) -> list[str]:
        drawn = np.random.default_rng([self.plan.seed, seed, 7]).permutation(len(schema.names))
        return [schema.names[i] for i in drawn.tolist()]

    def _retrain(
        self, orders: Mapping[str, list[list[str]]], train: Batches, valid: Batches
    ) -> Retrained:
        self.stage = "retraining"
        cache, plan = TrainingCache(self.work / "retrained"), self.plan
        trainings = trainings_of(train.schema.names, orders, plan.ks, plan.seeds)
        own = own_trainings(trainings, cache, self.group)
        places = {training: i for i, training in enumerate(own)}
        with self._meter.stage(self.stage, "retrain") as at:

            def watch(training: Training, epochs: float) -> None:
                inside, i = min(0.95, epochs / self._meter.epochs), places[training]
                columns = len(training.columns)
                self._meter.label(f"retraining {i + 1}/{len(own)}, {columns} columns")
                at((i + inside) / max(len(own), 1))

            return retrain(orders, train, valid, ks=plan.ks, seeds=plan.seeds, effort=plan.effort,
                           cache=cache, group=self.group, device=self.device, watch=watch,
                           )  # fmt: skip

    def _estimate(self, train: Batches) -> None:
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


class Meter:
    """How far the whole job is, over stages of different costs: what its bar shows."""

    def __init__(self) -> None:
        self.bar: Bar | None = None
        self.epochs = float(GUESSED_EPOCHS)
        self._costs: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._began = monotonic()
        self._before = 0.0
        self._clock: Path | None = None
        self._kept = float("-inf")

    def plan(self, costs: Mapping[str, float]) -> None:
        """What stages will cost."""
        self._costs = dict(costs)
        self._follow()

    def guess(self, rows: int) -> None:
        """How long trainings on so many rows will be, before any has ended."""
        self.epochs = float(GUESSED_EPOCHS if rows >= FEW_ROWS else OF_FEW_ROWS)

    def learn_epochs(self, epochs: float) -> None:
        """A first training tells how long the others will be."""
        before, self.epochs = self.epochs, max(1.0, epochs)
        if "retrain" in self._costs:
            self._costs["retrain"] *= self.epochs / before
            self._follow()

    def label(self, text: str) -> None:
        """Say what is being done."""
        if self.bar is not None:
            self.bar.label = text

    def seconds(self) -> float:
        """Seconds in all, the parts of a resumed job together."""
        return self._before + monotonic() - self._began

    def take_up(self, clock: Path) -> None:
        """Count on from the seconds in this file, and keep them there."""
        self._clock = clock
        try:
            self._before = max(0.0, float(clock.read_text()))
        except (OSError, ValueError):
            self._before = 0.0

    def note_time(self) -> None:
        """Keep the seconds now, at the end of a stage or of a stopped one."""
        self._kept = float("-inf")
        self._keep()

    def _keep(self) -> None:
        """Seldom enough to cost nothing; a killed run loses no more than KEPT_EVERY."""
        if self._clock is not None and monotonic() - self._kept >= KEPT_EVERY:
            self._kept = monotonic()
            with suppress(OSError):  # A full disk is reported by what matters more.
                write_whole(self._clock, f"{self.seconds():.3f}")

    def stage(self, label: str, name: str) -> _Stage:
        """A stage, as a context that gives a function to tell its share done."""
        self.label(label)
        return _Stage(self, name)

    def tell(self, name: str, share: float) -> None:
        """A stage is so far."""
        self._done[name] = min(max(share, 0.0), 1.0)
        self._keep()

    def _follow(self) -> None:
        if self.bar is not None:
            self.bar.follow(
                lambda: sum(cost * self._done.get(n, 0.0) for n, cost in self._costs.items()),
                sum(self._costs.values()),
            )


class _Stage:
    def __init__(self, meter: Meter, name: str) -> None:
        self.meter, self.name = meter, name

    def __enter__(self) -> Callable[[float], object]:
        return lambda share: self.meter.tell(self.name, min(share, 0.97))

    def __exit__(self, *_: object) -> None:
        self.meter.tell(self.name, 1.0)
        self.meter.note_time()
