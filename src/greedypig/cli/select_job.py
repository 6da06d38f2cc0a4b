"""The job of `greedypig select`: train (or take) a network, rank its columns, retrain on them.

The job is a list of stages, and each has a file in the work folder: where it is there it is loaded,
else it is computed and written whole. So a stopped job goes on, and processes share their results.
"""

from __future__ import annotations

import json
import shlex
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from inspect import signature
from os import fspath
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

import greedypig as gp

from .. import tables
from ..core.errors import NAMED, quoted
from ..network.fingerprint import fingerprint
from ..network.from_spec import build
from ..results.files import remove_stale_parts, write_whole
from ..tables import (
    Batches,
    Constant,
    Label,
    Reading,
    Retrained,
    Schema,
    Survey,
    Table,
    Training,
    evaluate,
)
from ..tables.column_checks import LEAKS
from ..tables.distributed import Group
from ..tables.losses import as_logits
from ..tables.methods import FOR_COLUMNS
from ..tables.training import answer_to
from ..types import MethodLike
from .failures import UsageError
from .outputs import refuse_foreign, shown
from .terminal import Bar

ONE_SHOT = gp.IG(steps=39)
"""Integrated gradients with the paper's number of steps."""
USUAL_KS, FEW_KS, FEW = (5, 10, 20, 30), (1, 2, 3, 5, 7, 10), 20
"""How many columns are kept by default, of many columns and of at most FEW."""
EMBEDDING, MOST_NUMBERS = 8, 2048
"""Numbers of a category, and of a row, up to which baseline "conditional" is the default."""
HELD_OUT, MOST_HELD_OUT, HELD_OUT_ROWS = 0.1, 0.3, 1000
"""A tenth of the rows validates; of a small table more, up to this share or this many rows."""
EACH = 40
"""Batches of each gradient of greedy-pig."""
VALID_BATCH = 4096
ANEW = "no --resume to begin anew, with another --out to keep what is here"
WORK, LONG = "work", 10
"""The folder of the stages' files; epochs of a training, for the progress bar alone."""


@dataclass(frozen=True)
class Plan:
    """The options of a job."""

    label: str
    reading: Reading
    ks: tuple[int, ...]
    """How many columns to keep, ascending; empty until the columns are known."""
    seeds: int
    seed: int
    methods: tuple[str, ...]
    model: str | None
    epochs: int | None
    baseline: str = ""
    """Empty until the columns are known."""

    def identity(self) -> dict[str, Any]:
        """The options that a resumed job must share: more seeds, methods and smaller k add work."""
        options = asdict(self) | asdict(self.reading) | {"k": max(self.ks, default=None)}
        for name in ("reading", "seeds", "methods", "ks", "baseline"):
            del options[name]
        record: dict[str, Any] = json.loads(json.dumps(options))
        return record

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
            more = f", or --categorical {option_value(left_out)} to rank row numbers too"
            raise UsageError(
                f"Expected --k of at most {columns}, the number of columns that can be ranked "
                f"(got {max(ks)}). Try --k {columns}{more if left_out else ''}."
            )
        width = len(schema.numbers) + EMBEDDING * len(schema.categories)
        imputed = self.model is None and width <= MOST_NUMBERS
        return replace(self, ks=ks, baseline="conditional" if imputed else "zero")

    def gradient_batches(self, method: str, train: Batches) -> int:
        """Gradient batches of a method: the same for all, unless a method needs more."""
        columns, k = len(train.schema.names), max(self.ks)
        # Methods that try every column by itself need a batch for each try.
        least = {
            "ig": ONE_SHOT.steps,
            "permutation": columns + 1,
            "marginal-gains": sum(1 + columns - r for r in range(k)),
        }
        return max(min(EACH, len(train)) * FOR_COLUMNS.steps * k, least.get(method, 0))


class SelectJob:
    """The stages of a job, on one process or on all of a group; then what they found."""

    survey: Survey
    schema: Schema
    """That of the survey, or the one that the user's model brings."""
    train: Batches
    valid: Batches
    model: nn.Module
    """The network that is explained."""
    network_loss: float
    constant: Constant
    """The loss of a constant prediction."""
    results: Mapping[str, gp.Attribution]
    """Method → its result, the reported one first."""
    orders: Mapping[str, list[list[str]]]
    """Method → its ranking of the columns for each seed, or one for all."""
    retrained: Retrained

    def __init__(
        self,
        opened: Sequence[Table],
        plan: Plan,
        folder: Path,
        bar: Bar,
        *,
        device: torch.device,
        group: Group,
    ) -> None:
        """opened: the table, and that of the validation rows if there is one."""
        self.tables, self.plan, self.folder, self.work = opened, plan, folder, folder / WORK
        self.bar, self.device, self.group = bar, device, group
        self.effort = tables.Effort(epochs=plan.epochs)
        self.stage = "opening the files"
        self.share = 0.0
        """What is done of the stage."""
        bar.follow(lambda: self.share, 1)
        self.warnings: list[str] = []
        self.seconds = 0.0

    def run(self, resume: bool) -> None:
        """Do all stages."""
        began = monotonic()
        self._open(resume)
        self._survey()
        self.plan = plan = self.plan.settled(self.survey.schema, self.survey.left_out)
        if plan.model is None:
            self.schema = self.survey.schema
            self.train, self.valid = self._batches()
            self.model = self._trained()
        else:
            self._take_model(build(plan.model, self.survey.schema))
        self._evaluate()
        self.results = {m: self._ranked(m) for m in plan.methods if m != "random"}
        self.orders = {m: self._orders(m) for m in plan.methods}
        self._retrain()
        for a in self.results.values():
            self.warnings += a.about.warnings
        self.warnings = list(dict.fromkeys(self.warnings))
        self.seconds = monotonic() - began

    def _begin(self, stage: str) -> None:
        self.stage = self.bar.label = stage
        self.share = 0.0

    def advance(self, stage: str, share: float) -> None:
        """A stage is so far: the bar shows it."""
        self.share = min(share, 1.0)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        warnings.warn(text, stacklevel=3)

    def _open(self, resume: bool) -> None:
        """Go on with the folder's work, or clear it."""
        files = [
            (fspath(f.path), f.path.stat().st_size) for table in self.tables for f in table.files
        ]
        digest = sha256(json.dumps([files, list(self.tables[0].kinds)]).encode()).hexdigest()[:16]
        identity = self.plan.identity() | {"tables": digest}
        identity["version of greedypig"] = gp.__version__
        file = self.work / "job.json"
        if self.group.first:
            remove_stale_parts(file)
            if not file.exists() and self.work.exists() and any(self.work.iterdir()):
                raise UsageError(
                    f"Expected {shown(self.work)} to be free, or a folder of greedypig (got "
                    "another, which is left alone). Try --out FOLDER."
                )
            refuse_foreign([file])
            if not resume and self.work.exists():
                shutil.rmtree(self.work)
            self.work.mkdir(parents=True, exist_ok=True)
            before = _json(file) if file.exists() else identity
            for name, value in identity.items():
                if before.get(name) != value:
                    raise UsageError(
                        f"Expected the {name} of the stopped run, {before.get(name)!r} "
                        f"(got {value!r}). Try that to go on, or {ANEW}."
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
        self.advance(name, 1)
        return file

    def _survey(self) -> None:
        """What the columns hold; text and Arrow files are converted on the way."""

        def convert() -> None:
            for table in self.tables:
                table.convert(self.work / "tables")

        def compute() -> str:
            convert()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                survey = tables.survey(self.tables[0], self.plan.label, self.plan.reading)
            write_whole(self.folder / "schema.json", survey.schema.to_json())
            return survey.to_json()

        file = self._once("surveying the columns", "survey.json", compute)
        convert()  # Finds what the first process has converted.
        self.survey = Survey.from_json(file.read_text())
        for warning in self.survey.warnings:
            self._warn(with_option(warning))

    def _batches(self) -> tuple[Batches, Batches]:
        """Training and validation rows; without a table of its own, validation is a share."""
        seed = self.plan.seed
        common: dict[str, Any] = {"seed": seed, "split_seed": seed, "schema": self.schema}
        final: dict[str, Any] = {"batch_size": VALID_BATCH, "shuffle": False}
        table, *further = self.tables
        if further:
            survey = tables.count_rows(further[0], self.schema)
            self.warnings += [warning.text for warning in survey.warnings]
            train = Batches(table, self.survey, **common)
            return train, Batches(further[0], survey, **common, **final)
        common["share"] = min(MOST_HELD_OUT, max(HELD_OUT, HELD_OUT_ROWS / self.survey.total))
        train = Batches(table, self.survey, part="train", **common)
        return train, Batches(table, self.survey, part="valid", **common, **final)

    def _trained(self) -> nn.Module:
        """The default network, trained by the first process."""
        network, name = tables.new_network(self.schema, seed=self.plan.seed), "network.safetensors"

        def compute() -> bytes:
            trained = tables.train_network(
                network.to(self.device),
                self.train,
                self.valid,
                effort=self.effort,
                seed=self.plan.seed,
                progress=lambda epochs: self.advance(name, epochs / LONG),
            )
            weights = trained.model.state_dict()
            return to_bytes({key: value.contiguous().cpu() for key, value in weights.items()})

        file = self._once("training the network", name, compute)
        network.load_state_dict(load_file(file), strict=True)
        return network.to(self.device).eval().requires_grad_(False)

    def _take_model(self, model: nn.Module) -> None:
        """Take the user's model, and refuse another one than that of the stopped run."""
        self.schema = own_schema(model, self.survey.schema)
        self.train, self.valid = self._batches()
        self.model = model.to(self.device, torch.float32).eval()
        identity = fingerprint(self.model)
        file = self._once("checking the model", "model.txt", lambda: identity)
        if file.read_text() != identity:
            raise UsageError(f"Expected the model of the stopped run (got another). Try {ANEW}.")
        if note := adapt(self.model, self.valid):
            self._warn(note)

    def _evaluate(self) -> None:
        """Validation losses of the explained network and of a constant prediction."""

        def compute() -> str:
            loss = tables.evaluate(self.model, batches_for(self.model, self.valid)).loss
            return json.dumps([loss, asdict(tables.constant_answer(self.train, self.valid))])

        file = self._once("evaluating the network", "losses.json", compute)
        self.network_loss, constant = _json(file)
        self.constant = Constant(**constant)

    def _ranked(self, method: str) -> gp.Attribution:
        """One method's result, by all processes together; every round is saved."""
        self._begin(f"selecting by {method}")
        file, partial = self.work / f"{method}.gpig", self.work / f"{method}.partial.gpig"
        self.group.barrier()
        if file.exists():
            self.advance(method, 1)
            return gp.load(file)
        methods: dict[str, MethodLike] = {"greedy-pig": FOR_COLUMNS, "ig": ONE_SHOT}
        a = gp.select_features(
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
            progress=lambda done, total: self.advance(method, done / max(1, total or 1)),
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
            self.bar.label = f"retraining on {len(training.columns)} columns"
            self.advance("retraining", share)

        self.retrained = tables.retrain(
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


def _json(file: Path) -> Any:
    """What a stage has written."""
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"Expected {shown(file)} as greedypig wrote it (got: {error}). Try {ANEW}."
        ) from error


def with_option(warning: tables.ColumnWarning) -> str:
    """A warning about columns with the option that helps."""
    names = option_value(warning.columns[1:] if warning.kind == "copy" else warning.columns)
    if warning.kind == "row number":
        return f"{warning.text} To rank them anyway, try --categorical {names}."
    return (
        f"{warning.text} Try --drop {names}." if warning.kind in ("copy", *LEAKS) else warning.text
    )


def own_schema(model: nn.Module, schema: Schema) -> Schema:
    """The schema that the model brings, if it brings one, for the label of this table."""
    own = getattr(model, "schema", None)
    if isinstance(own, str | Path):
        try:
            own = Schema.from_json(Path(own).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"Expected the model's schema in {own} (got: {error}).") from error
    if not isinstance(own, Schema):
        return schema
    schema.only(own.names)  # Says which column is missing here.
    return replace(own, label=_own_label(own.label, schema.label))


def _own_label(own: Label, label: Label) -> Label:
    """The label as the model knows it: the order of its classes, the scale of its number.

    The table's own where it is another column.
    """
    if own.name != label.name:
        return label
    unknown = [value for value in label.values if value not in own.values]
    if unknown or (own.task == "number") != (label.task == "number"):
        got = repr(unknown[0][:40]) if own.values and unknown else label.in_words()
        raise UsageError(
            f"Expected the label {label.name!r} as in the model's schema, {own.in_words()} (got "
            f"{got}). Try rows without it, or --task."
        )
    shares = dict(zip(label.values, label.shares, strict=True)) if label.shares else {}
    return replace(own, shares=tuple(shares.get(value, 0.0) for value in own.values))


def batches_for(model: nn.Module, batches: Batches) -> Batches:
    """Batches as the model takes them: numbers alone where there are no others."""
    parameters = signature(model.forward)
    categories = [category.name for category in batches.schema.categories]
    if not categories:
        return batches if "gates" in parameters.parameters else batches.numbers_alone()
    try:
        parameters.bind("numeric", "categorical")
    except TypeError:
        raise UsageError(
            "Expected a model that takes the numbers and the categories of a row, "
            "forward(numeric, categorical) (got one input, and categories in "
            f"{quoted(categories)}). Try --drop {option_value(categories)} to rank the numbers "
            "alone."
        ) from None
    return batches


def adapt(model: nn.Module, batches: Batches) -> str:
    """Make the model return what networks trained here do, by a hook; returns a note or "".

    Those return one logit for a binary label, a logit for each of several classes, or the
    standardised number. Other models return two logits, probabilities (their attribute `outputs`
    says so), or the label's own units.
    """
    label, rows = batches.schema.label, batches_for(model, batches)
    with torch.no_grad():
        example = answer_to(model, rows[0][0])
    if not isinstance(example, Tensor):
        raise UsageError(f"Expected the model to return a tensor (got {type(example).__name__}).")
    if label.task == "number":
        return _standardise(model, rows)
    probabilities = getattr(model, "outputs", "") == "probabilities"
    two = label.task == "binary" and example.dim() == 2 and example.shape[1] == 2

    def convert(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        if probabilities:
            out = as_logits(out, "a model without the attribute outputs = 'probabilities'")
        # One logit with the same probabilities.
        return out[:, 1] - out[:, 0] if two else out

    if two or probabilities:
        model.register_forward_hook(convert)
    return ""


def _standardise(model: nn.Module, rows: Batches) -> str:
    """Standardise the outputs if they fit the label's own units better; returns a note or ""."""
    label, loss = rows.schema.label, evaluate(model, rows).loss
    hook = model.register_forward_hook(lambda *call: (call[-1] - label.mean) / label.deviation)
    if evaluate(model, rows).loss >= loss:
        hook.remove()
        return ""
    return (
        f"The model's outputs are taken as {label.name!r} in its own units: they fit it better "
        "than the standardised label, which the networks trained here predict."
    )


def option_value(names: Sequence[str]) -> str:
    """Names as --drop takes them: with commas between, those that hold one in quotes."""
    return shlex.quote(",".join(f'"{n}"' if "," in n else n for n in names[:NAMED]))
