"""Which columns of a table are enough: rank those of a network, and retrain on the first ones.

    a = SelectJob("train.parquet", "clicked", ks=(5, 10)).run()
    a.to_html("selection.html")

The job is a list of stages, and each has a file in the work folder: where it is there it is loaded,
else it is computed and written whole. So a stopped job goes on, and processes share their results.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from ..core.attribution import Attribution
from ..core.errors import (
    NAMED,
    Advice,
    Argument,
    GreedyPigWarning,
    InvalidFile,
    InvalidInput,
)
from ..core.progress import Progress
from ..core.registry import COLUMNS, METHODS, serving
from ..network.distributed import ALONE, Group
from ..network.fingerprint import fingerprint, versions
from ..network.from_spec import build
from ..network.names import model_name
from ..results.files import is_ours, remove_stale_parts, write_whole
from ..results.storage import load
from ..results.table_notes import METRICS, Constant, Selection, TableFacts
from ..types import MethodLike, PathOrText, ProgressLike
from .api import select_features
from .column_checks import LEAKS, ColumnWarning
from .files import CRITEO, Table, open_table
from .given_model import adapt, batches_for, schema_of
from .methods import FOR_COLUMNS
from .plan import ONE_SHOT, Plan
from .retraining import Retrained, Training, retrain
from .row_batches import Batches
from .schema import Schema, Task
from .schema_inference import Reading, Survey, count_rows, criteo_reading, survey
from .training import Effort, constant_answer, evaluate, new_network, train_network

HELD_OUT, MOST_HELD_OUT, HELD_OUT_ROWS = 0.1, 0.3, 1000
"""A tenth of the rows validates; of a small table more, up to this share or this many rows."""
VALID_BATCH = 4096
WORK, LONG = "work", 10
"""The folder of the stages' files; epochs of a training, for the progress alone."""
IN_CRITEO = {"label", "I1", "I13", "C1", "C26"}
"""Columns by which Criteo's tables are recognised."""
ANEW: tuple[str | Argument, ...] = (
    *(Argument("resume", False), " to begin anew, with another "),
    *(Argument("folder"), " to keep what is here."),
)


class SelectJob:
    """The stages of a job, on one process or on all of a group; then what they found.

    table: a file, a folder or a pattern, several of them, or a table that is open.
    label: the column to predict; None takes that of Criteo's tables.
    valid: validation rows; None holds out a part of the table's.
    drop: columns to leave out. categorical: numbers to take as categories.
    task: "classes" or "number"; None finds it from the label's values.
    model: a trained model, or "package.module:factory", whose factory may take the table's
        `Schema`; None trains a network. It is copied, never changed.
    ks: how many columns to keep; by default 5, 10, 20, 30, of few columns 1, 2, 3, 5, 7, 10.
    methods: to compare; the first one is reported.
    seeds: trainings of each set of columns. epochs: of a training, at most.
    folder: where the stages keep their work, for a run that goes on; None takes a temporary one.
    group: the processes that share the work; all of them must see the folder.
    """

    survey: Survey
    schema: Schema
    """That of the survey, or the one that the caller's model brings."""
    train: Batches
    valid: Batches
    model: nn.Module
    """The network that is explained."""
    network_loss: float
    constant: Constant
    """The loss of a constant prediction."""
    results: Mapping[str, Attribution]
    """Method → its result, the reported one first."""
    orders: Mapping[str, list[list[str]]]
    """Method → its ranking of the columns for each seed, or one for all."""
    retrained: Retrained

    def __init__(
        self,
        table: PathOrText | Sequence[PathOrText] | Table,
        label: str | None = None,
        *,
        valid: PathOrText | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        task: Task | None = None,
        model: nn.Module | str | None = None,
        ks: Sequence[int] = (),
        methods: Sequence[str] = serving(METHODS, COLUMNS, compared=True),
        seeds: int = 3,
        epochs: int | None = None,
        seed: int = 0,
        folder: PathOrText | None = None,
        device: torch.device | str = "cpu",
        group: Group = ALONE,
    ) -> None:
        if not isinstance(table, Table):
            table = open_table(*([table] if isinstance(table, str | PathLike) else table))
        is_criteo = set(table.kinds) >= IN_CRITEO
        label = CRITEO[0] if label is None and is_criteo else label
        if label is None:
            columns = ", ".join(list(table.kinds)[:12]) + ", …" * (len(table.kinds) > 12)
            raise InvalidInput(
                *("Expected ", Argument("label")),
                f", the column to predict, of {columns} (got none).",
            )
        table.check(label)
        table = table.without([name for name in drop if name != label])
        if len(table.kinds) == 1:
            raise InvalidInput(
                f"Expected columns besides the label {label!r} in {table.source} (got none). "
                "Try a table that has the columns to choose from."
            )
        keep = () if model is None else None  # A model takes all the columns that it knows.
        reading = Reading(tuple(categorical), keep=keep, task=task)
        if is_criteo and not (categorical or drop):
            reading = criteo_reading(task=task, keep=keep)
        name = model if isinstance(model, str | None) else model_name(model)
        kept = tuple(sorted(set(ks)))
        self._asked = Plan(label, reading, kept, seeds, seed, tuple(methods), name, epochs)
        self._asked.check(len(table.kinds) - 1)
        self.plan = self._asked
        self.tables = [table]
        if valid is not None:
            self.tables.append(open_table(valid, keep=table.kinds))
            self._check_apart(*self.tables)
        self._given, self.device, self.group = model, torch.device(device), group
        if folder is None:
            if group.size > 1:
                raise InvalidInput(
                    "Expected ", Argument("folder"), " for several processes (got none)."
                )
            self._temporary = TemporaryDirectory(prefix="greedypig-")
        self.folder = Path(self._temporary.name if folder is None else folder)
        self.work = self.folder / WORK
        self.effort = Effort(epochs=epochs)
        self.stage, self.detail, self.share = "opening the files", "", 0.0
        """What is under way, a word more about it, and what is done of it."""
        self.warnings: list[GreedyPigWarning] = []
        self.seconds = 0.0

    def _check_apart(self, table: Table, valid: Table) -> None:
        """Warn of files that are in both tables."""
        training = {file.path.resolve() for file in table.files}
        for path in (file.path for file in valid.files if file.path.resolve() in training):
            warning = GreedyPigWarning(
                f"{path} is among the training rows and the validation rows: losses will be too "
                "low.",
                advice=("Try ", Argument("valid"), " with rows of its own, or none."),
            )
            warnings.warn(warning, stacklevel=3)

    def run(self, *, resume: bool = True, progress: ProgressLike = None) -> Attribution:
        """Do all stages; returns the first method's result, whose page shows everything.

        resume: go on with the work in the folder, if it is that of this job; False begins anew.
        progress: True for a line on standard error, or a function (done, total) of stages.
        """
        began = monotonic()
        self._report, self._begun = Progress(progress if self.group.first else None, "stages"), 0
        self._stages = 4 + len(set(self._asked.methods) - {"random"})
        self.warnings = []
        try:
            self._open(resume)
            self._run()
        finally:
            self._report.end()
        self.seconds = monotonic() - began
        return self._with_notes(next(iter(self.results.values())))

    def _run(self) -> None:
        """Do the stages."""
        given = self._given
        self._survey()
        self.plan = plan = self._asked.settled(self.survey.schema, self.survey.left_out)
        if given is None:
            self.schema = self.survey.schema
            self.train, self.valid = self._batches()
            self.model = self._trained()
        else:
            if isinstance(given, str):
                given = build(given, self.survey.schema)
            self._take_model(given)
        self._evaluate()
        self.results = {m: self._ranked(m) for m in plan.methods if m != "random"}
        self.orders = {m: self._orders(m) for m in plan.methods}
        self._retrain()
        for a in self.results.values():
            self.warnings += map(GreedyPigWarning, a.about.warnings)
        self.warnings = list({str(warning): warning for warning in self.warnings}.values())

    def _begin(self, stage: str) -> None:
        self.stage, self.detail, self.share = stage, "", 0.0
        self._begun += 1
        self._report(self._begun - 1, self._stages)

    def advance(self, share: float) -> None:
        """So much of the stage is done."""
        self.share = min(share, 1.0)
        self._report(self._begun - 1 + self.share, self._stages)

    def _warn(self, warning: GreedyPigWarning) -> None:
        self.warnings.append(warning)
        warnings.warn(warning, stacklevel=5)

    def _open(self, resume: bool) -> None:
        """Go on with the folder's work, or clear it."""
        files = [
            (fspath(f.path), f.path.stat().st_size) for table in self.tables for f in table.files
        ]
        digest = sha256(json.dumps([files, list(self.tables[0].kinds)]).encode()).hexdigest()[:16]
        identity = self._asked.identity() | {"tables": digest}
        identity["version of greedypig"] = versions()["greedypig"]
        file = self.work / "job.json"
        if self.group.first:
            remove_stale_parts(file)
            if not is_ours(file) and self.work.exists() and any(self.work.iterdir()):
                raise InvalidInput(
                    f"Expected {self.work} to be free, or a folder of greedypig (got another, "
                    "which is left alone).",
                    advice=Argument("folder", "FOLDER"),
                )
            if not resume and self.work.exists():
                shutil.rmtree(self.work)
            self.work.mkdir(parents=True, exist_ok=True)
            before = _json(file) if file.exists() else identity
            for name, value in identity.items():
                if before.get(name) != value:
                    raise InvalidInput(
                        f"Expected the {name} of the stopped run, {before.get(name)!r} "
                        f"(got {value!r}).",
                        advice=("Try that to go on, or ", *ANEW),
                    )
            write_whole(file, json.dumps(identity))
        self.group.barrier()

    def _once(self, stage: str, name: str, compute: Callable[[], str | bytes]) -> Path:
        """The file of a stage, computed by the first process if it is not there."""
        self._begin(stage)
        file = self.work / name
        if self.group.first and not file.exists():
            write_whole(file, compute())
        self.group.barrier()
        self.advance(1)
        return file

    def _survey(self) -> None:
        """What the columns hold; text and Arrow files are converted on the way."""

        def converted() -> list[Table]:
            return [table.converted(self.work / "tables") for table in self.tables]

        def compute() -> str:
            table = converted()[0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found = survey(table, self.plan.label, self.plan.reading)
            write_whole(self.folder / "schema.json", found.schema.to_json())
            return found.to_json()

        file = self._once("surveying the columns", "survey.json", compute)
        self.tables = converted()  # Finds what the first process has converted.
        self.survey = Survey.from_json(file.read_text())
        for warning in self.survey.warnings:
            self._warn(_advised(warning))

    def _batches(self) -> tuple[Batches, Batches]:
        """Training and validation rows; without a table of its own, validation is a share."""
        seed = self.plan.seed
        common: dict[str, Any] = {"seed": seed, "split_seed": seed, "schema": self.schema}
        final: dict[str, Any] = {"batch_size": VALID_BATCH, "shuffle": False}
        table, *further = self.tables
        if further:
            counted = count_rows(further[0], self.schema)
            self.warnings += [GreedyPigWarning(warning.text) for warning in counted.warnings]
            train = Batches(table, self.survey, **common)
            return train, Batches(further[0], counted, **common, **final)
        common["share"] = min(MOST_HELD_OUT, max(HELD_OUT, HELD_OUT_ROWS / self.survey.total))
        train = Batches(table, self.survey, part="train", **common)
        return train, Batches(table, self.survey, part="valid", **common, **final)

    def _trained(self) -> nn.Module:
        """The default network, trained by the first process."""
        network, name = new_network(self.schema, seed=self.plan.seed), "network.safetensors"

        def compute() -> bytes:
            trained = train_network(
                network.to(self.device),
                self.train,
                self.valid,
                effort=self.effort,
                seed=self.plan.seed,
                progress=lambda epochs: self.advance(epochs / LONG),
            )
            weights = trained.model.state_dict()
            return to_bytes({key: value.contiguous().cpu() for key, value in weights.items()})

        file = self._once("training the network", name, compute)
        network.load_state_dict(load_file(file), strict=True)
        return network.to(self.device).eval().requires_grad_(False)

    def _take_model(self, model: nn.Module) -> None:
        """Take the user's model, and refuse another one than that of the stopped run."""
        self.schema = schema_of(model, self.survey.schema)
        self.train, self.valid = self._batches()
        self.model = deepcopy(model).to(self.device, torch.float32).eval()
        identity = fingerprint(self.model)
        file = self._once("checking the model", "model.txt", lambda: identity)
        if file.read_text() != identity:
            raise InvalidInput(
                "Expected the model of the stopped run (got another).", advice=("Try ", *ANEW)
            )
        if note := adapt(self.model, self.valid):
            self._warn(GreedyPigWarning(note))

    def _evaluate(self) -> None:
        """Validation losses of the explained network and of a constant prediction."""

        def compute() -> str:
            loss = evaluate(self.model, batches_for(self.model, self.valid)).loss
            return json.dumps([loss, asdict(constant_answer(self.train, self.valid))])

        file = self._once("evaluating the network", "losses.json", compute)
        self.network_loss, constant = _json(file)
        self.constant = Constant(**constant)

    def _ranked(self, method: str) -> Attribution:
        """One method's result, by all processes together; every round is saved."""
        self._begin(f"selecting by {method}")
        file, partial = self.work / f"{method}.gpig", self.work / f"{method}.partial.gpig"
        self.group.barrier()
        if file.exists():
            self.advance(1)
            return load(file)
        methods: dict[str, MethodLike] = {"greedy-pig": FOR_COLUMNS, "ig": ONE_SHOT}
        a = select_features(
            self.model,
            batches_for(self.model, self.train),
            valid=batches_for(self.model, self.valid),
            loss=self.schema.loss,
            method=methods.get(method, method),
            k=max(self.plan.ks),
            budget=self.plan.gradient_batches(method, self.train),
            baseline=self.plan.baseline,
            names=self.schema.names,
            seed=self.plan.seed,
            group=self.group,
            checkpoint=partial,
            progress=lambda done, total: self.advance(done / max(1, total or 1)),
        )
        if self.group.first:
            a.save(file)
            partial.unlink(missing_ok=True)
        return a

    def _orders(self, method: str) -> list[list[str]]:
        """The ranking of a method; of random columns one for each seed."""
        names = self.schema.names
        if method != "random":
            return [self.results[method].top(len(names))]
        seeds = [[self.plan.seed, i, 7] for i in range(self.plan.seeds)]
        drawn = [np.random.default_rng(seed).permutation(len(names)) for seed in seeds]
        return [[names[i] for i in order] for order in drawn]

    def _retrain(self) -> None:
        """Losses of fresh networks; each has a file of its own."""
        self._begin("retraining")

        def watch(training: Training, share: float) -> None:
            self.detail = f" on {len(training.columns)} columns"
            self.advance(share)

        self.retrained = retrain(
            self.orders,
            self.train,
            self.valid,
            ks=self.plan.ks,
            seeds=self.plan.seeds,
            effort=self.effort,
            folder=self.work / "retrained",
            group=self.group,
            device=self.device,
            watch=watch,
        )
        self.advance(1)

    def _with_notes(self, a: Attribution) -> Attribution:
        """The result with everything about the job that its page shows."""
        assert isinstance(a.about, TableFacts)
        label, given = self.schema.label, self.plan.model
        network = "TabularMLP" if given is None else given
        selection = Selection(
            label=label.name,
            metric=METRICS[label.task],
            task=self.survey.schema.label.in_words(),
            train_rows=self.train.rows,
            valid_rows=self.valid.rows,
            seeds=self.plan.seeds,
            ks=self.plan.ks,
            **vars(self.retrained),
            orders={method: tuple(rankings[0]) for method, rankings in self.orders.items()},
            kinds=self.schema.kinds,
            network=network,
            network_loss=self.network_loss,
            constant=self.constant,
            left_out=self.survey.left_out,
            warnings=tuple(map(str, self.warnings)),
        )
        facts = replace(
            a.about,
            source=Path(self.tables[0].source).name,
            model=network,
            baseline=self.plan.baseline,
            objective=self.schema.loss,
            selection=selection,
        )
        return a.with_notes(facts)


def _json(file: Path) -> Any:
    """What a stage has written."""
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise InvalidFile(
            f"Expected {file} as greedypig wrote it (got: {error}).", advice=("Try ", *ANEW)
        ) from error


def _advised(warning: ColumnWarning) -> GreedyPigWarning:
    """A warning about columns with the argument that helps."""
    advice: Advice = ""
    if warning.kind == "row number":
        columns = Argument("categorical", warning.columns[:NAMED])
        advice = ("To rank them anyway, try ", columns, ".")
    elif warning.kind in ("copy", *LEAKS):
        copies = warning.columns[1:] if warning.kind == "copy" else warning.columns
        advice = Argument("drop", copies[:NAMED])
    return GreedyPigWarning(warning.text, advice=advice)
