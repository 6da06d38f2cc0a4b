"""Train, select, retrain: the work behind a comparison of selections on one table.

Stages, each kept and shared among processes: networks on all columns; a ranking of the columns for
every network, selection seed, method and baseline; fresh networks on the top k of the rankings. The
seed of a retraining is that of its network and selection: methods are compared with the same fresh
weights and the same order of rows, and the noise of retraining is part of the error over networks.
A set of columns is retrained once for each network and selection, whichever method selected it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from greedypig import mask_finetune, select_features
from greedypig.core.errors import InvalidInput
from greedypig.core.methods import InRounds
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.results.files import write_whole
from greedypig.tables import (
    CRITEO,
    Batches,
    Effort,
    Reading,
    Schema,
    Table,
    new_network,
    open_table,
    survey,
)
from greedypig.tables.retraining import retrain_on

from .job import Batch, Job, Record
from .settings import Contender
from .synthetic import CriteoShaped

EFFORT = Effort()
WITHOUT_NETWORK = ("random", "truth")
"""Methods whose order does not depend on a network."""
TUNED = ", mask-fine-tuned"
"""The end of a variant that uses networks fine-tuned with columns masked at random."""
Line = tuple[Contender, str]
"""A method and its variant: what an absent column looks like, and perhaps TUNED. The variant of a
method that uses no network is empty."""


@dataclass(frozen=True)
class Selection:
    """One ranking of the columns of a table, by a network and a seed."""

    table: str
    line: Line
    model: int
    seed: int


@dataclass(frozen=True)
class Retraining:
    """A fresh network on some columns; network 0, 1, … on all columns if there is no selection."""

    table: str
    columns: tuple[str, ...]
    """In the table's order: a set."""
    model: int
    selection: int | None = None


class Experiment:
    """All the work on one table."""

    def __init__(self, job: Job, name: str, variants: Sequence[str], budget: int) -> None:
        """name: "generated", a table of `make assets`, or the path of a table."""
        request, known = job.request, {**job.more["table"], **job.more.get(name, {})}
        self.job, self.variants, self.budget = job, variants, budget
        self.models: int = request.models or known["models"]
        self.truth: CriteoShaped | None = None
        path, self.name = Path(name), Path(name).name.split(".")[0]
        label, title = request.label or known.get("label", "label"), known.get("title", self.name)
        if name == "generated":
            loyalty = known["loyalty"] if request.loyalty is None else request.loyalty
            rows = request.rows or known["rows"]
            self.truth = CriteoShaped(rows, seed=request.seed, loyalty=loyalty)
            path, title = (
                self._generated(self.truth),
                f"{title} (copies {loyalty:g} like their source)",
            )
        elif "file" in known:
            path, label = assets_folder() / "tables" / known["file"], known["label"]
        table = open_table(path)
        self.table = table.without([c for c in known.get("drop", ()) if c in table.kinds])
        self.survey = survey(self.table, label, reading_of(self.table))
        self.title = f"{title}, {self.survey.total:,} rows"
        self.names = self.survey.schema.names
        self.ks = [k for k in sorted(request.k or job.more["ks"]) if k < len(self.names)]
        if not self.ks:
            raise InvalidInput(
                f"Expected k below the {len(self.names)} columns of {self.title} "
                f"(got {request.k or job.more['ks']})."
            )
        self.lines: list[Line] = []
        for variant in variants:
            for contender in job.contenders:
                if contender.name not in WITHOUT_NETWORK:
                    self.lines.append((contender, variant))
                elif variant == variants[0] and (contender.name != "truth" or self.truth):
                    self.lines.append((contender, ""))
        self.selections = [
            Selection(self.name, line, model, seed)
            for model in range(self.models)
            for seed in range(request.selections or known["selections"])
            for line in self.lines
        ]
        self.valid_share, self.splits = known["valid"], known.get("splits", self.models)
        files = [(f.path.name, f.path.stat().st_size) for f in table.files]
        self._key = files, label, self.names, self.valid_share, request.start, EFFORT
        """What every training depends on."""

    def _generated(self, truth: CriteoShaped) -> Path:
        """The generated rows as a file, written once."""
        request = self.job.request
        name = f"generated-{truth.rows}-{truth.seed}-{truth.loyalty:g}.parquet"
        path = request.out / "rows" / self.job.name / name
        if request.group.first and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            request.progress("generating rows", 0, 1)
            truth.write(path)
        request.group.barrier()
        return path

    def stages(self) -> Iterator[list[Batch]]:
        """The work, stage by stage."""
        networks = [Retraining(self.name, tuple(self.names), m) for m in range(self.models)]
        yield [self._batch(self.place(network), network, self._train) for network in networks]
        yield [self._batch(self._ranking_place(s), s, self._select) for s in self.selections]
        sets = {self.retraining(s, k) for k in self.ks for s in self.selections if self.order(s)}
        ordered = sorted(sets, key=repr)  # The same in every process.
        yield [self._batch(self.place(each), each, self._train) for each in ordered]

    def _batch(self, path: Path, item: Any, run: Callable[[Any], Record]) -> Batch:
        return Batch.of_one(path, item, f"{self.name}: {path.name.split('.')[0]}", run)

    # What was measured.

    def of_line(self, line: Line) -> list[Selection]:
        """The selections of a method and variant."""
        return [s for s in self.selections if s.line == line]

    def order(self, selection: Selection) -> list[str]:
        """The columns, best first; none where that was not measured."""
        return list(self.job.outcomes.get(selection, {"order": []})["order"])

    def retraining(self, selection: Selection, k: int) -> Retraining:
        """The retraining on the top k of a selection."""
        top = self.order(selection)[:k]
        columns = tuple(name for name in self.names if name in top)
        return Retraining(self.name, columns, selection.model, selection.seed)

    def losses(self, line: Line, k: int) -> dict[tuple[int, int], float]:
        """The losses after retraining on the top k, by network and selection seed."""
        records = {
            (s.model, s.seed): self.job.outcomes.get(self.retraining(s, k))
            for s in self.of_line(line)
        }
        return {key: record["loss"] for key, record in records.items() if record is not None}

    def losses_all(self) -> list[float]:
        """The losses of the networks on all columns."""
        networks = [Retraining(self.name, tuple(self.names), m) for m in range(self.models)]
        return [self.job.outcomes[n]["loss"] for n in networks if n in self.job.outcomes]

    # Trainings.

    def rows(self, part: Literal["train", "valid"], model: int) -> Batches:
        """The training or validation rows of a network."""
        split = model % self.splits
        return Batches(
            self.table,
            self.survey,
            batch_size=self.job.more["batch_size"],
            part=part,
            share=self.valid_share,
            split_seed=split,
            seed=split,
        )

    def _seed(self, model: int, selection: int | None = None) -> int:
        seed = 1000 * self.job.request.seed + model
        return seed if selection is None else 1_000_000 + 1000 * seed + selection

    def place(self, r: Retraining) -> Path:
        """The file of a training's loss, beside the weights of a network on all columns."""
        name = f"network-{r.model}"
        if r.selection is not None:
            name = f"retrained-{len(r.columns)}-{r.model}-{r.selection}"
        depends = r.columns, *self._key, r.model % self.splits, self._seed(r.model, r.selection)
        return self.job.place(self.name, name, *depends)

    def _fresh(self, schema: Schema, seed: int) -> nn.Module:
        at_rate = self.job.request.start == "rate"
        return new_network(schema, seed=seed, at_rate=at_rate, indicators=False)

    def _train(self, r: Retraining) -> Record:
        done = retrain_on(
            r.columns,
            self.rows("train", r.model),
            self.rows("valid", r.model),
            seed=self._seed(r.model, r.selection),
            effort=EFFORT,
            fresh=self._fresh,
            device=self.job.request.device,
        )
        if r.selection is None:
            weights = self.place(r).with_suffix(".safetensors")
            weights.parent.mkdir(parents=True, exist_ok=True)
            tensors = {k: v.contiguous().cpu() for k, v in done.model.state_dict().items()}
            write_whole(weights, to_bytes(tensors))  # Before the record, which promises them.
        return {"loss": done.scores.loss, "seconds": round(done.seconds, 2)}

    # Rankings.

    def _weights(self, model: int) -> Path:
        network = Retraining(self.name, tuple(self.names), model)
        return self.place(network).with_suffix(".safetensors")

    def _ranking_place(self, s: Selection) -> Path:
        contender, variant = s.line
        network, ranked = self._weights(s.model).name, self.job.more["ranked"]
        depends = network, contender.knobs, variant, self.budget, ranked
        return self.job.place(self.name, f"order-{contender.name}-{s.model}-{s.seed}", *depends)

    def _select(self, s: Selection) -> Record:
        contender, variant = s.line
        if contender.name == "truth" and self.truth is not None:
            return {"order": self.truth.by_weight()}
        if contender.name == "random":
            # The same orders for every network, so that pairs differ in nothing else.
            generator = torch.Generator().manual_seed(self._seed(s.seed))
            order = torch.randperm(len(self.names), generator=generator)
            return {"order": [self.names[i] for i in order.tolist()]}
        train = self.rows("train", s.model)
        # Permutation importance is known to tables alone, by its name.
        method = contender.name if contender.name == "permutation" else contender.method()
        network, baseline = self._network(s.model), variant.removesuffix(TUNED)
        common: dict[str, Any] = {"loss": train.schema.loss, "baseline": baseline}
        if baseline != variant:
            steps, seed = self.job.more["finetune"], self._seed(s.model)
            network = mask_finetune(network, train, steps=steps, seed=seed, **common)
        most = min(self.job.more["ranked"], len(self.names))
        a = select_features(
            network,
            train,
            method=method,
            k=most if isinstance(method, InRounds) else None,
            budget=self.budget,
            names=self.names,
            seed=100 * self._seed(s.model) + s.seed,
            **common,
        )
        batches = a.about.get("gradient_batches")
        return {"order": [self.names[i] for i in a.order.tolist()], "batches": batches}

    def _network(self, model: int) -> nn.Module:
        network = self._fresh(self.survey.schema, 0)
        network.load_state_dict(load_file(self._weights(model)))
        return network.to(self.job.request.device).eval().requires_grad_(False)


def reading_of(table: Table) -> Reading:
    """How columns with Criteo's names are read: counts by their logarithm, hashes as categories."""
    counts = tuple(c for c in CRITEO[1:14] if c in table.kinds)
    hashes = tuple(c for c in CRITEO[14:] if c in table.kinds)
    if len(counts) + len(hashes) < len(table.kinds) - 1:
        return Reading()
    return Reading(categorical=hashes, numeric=counts, log=counts)
