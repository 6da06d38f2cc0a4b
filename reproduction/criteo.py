"""The paper's Criteo table: train on all columns, select, retrain on the top k, compare the losses.

Measured on generated rows of Criteo's shape, whose truth is known, on real tables of `make assets`,
and on any table given by its path, also Criteo's own files. All methods have the same budget of
gradient batches.

The work on a table has three stages: networks on all columns; a ranking of the columns for every
network, selection seed, method and baseline; fresh networks on the top k of the rankings. The seed
of a retraining is that of its network and selection: methods are compared with the same fresh
weights and the same order of rows, and the noise of retraining is part of the error over networks.
A set of columns is retrained once for each network and selection, whichever method selected it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from greedypig import mask_finetune, select_features
from greedypig.core.errors import InvalidInput
from greedypig.core.methods import InRounds
from greedypig.network.assets_folder import assets_folder
from greedypig.results.files import write_whole
from greedypig.results.table_notes import student
from greedypig.results.wording import count
from greedypig.tables import (
    CRITEO,
    Batches,
    Effort,
    Schema,
    criteo_reading,
    new_network,
    open_table,
    survey,
)
from greedypig.tables.retraining import retrain_on

from .experiment import Experiment, Method, Record, Table, Task, mean_and_error
from .synthetic import CriteoShaped

PICTURES = ()
EFFORT = Effort()
STEPS = 5
"""Gradient batches of a round of Greedy PIG (T = 5), at least."""
DEPTH = 20
"""Places of the list in which sources are counted, where they are known."""
WITHOUT_NETWORK = ("random", "truth")
"""Methods whose order does not depend on a network."""
TUNED = ", mask-fine-tuned"
"""The end of a variant that uses networks fine-tuned with columns masked at random."""
PAIRS = (("greedy-5", "ig"), ("greedy-1", "ig"), ("greedy-5", "truth"), ("ig", "truth"))
SHORT = {
    "ig": "IG",
    "greedy-1": "Greedy PIG (T = 1)",
    "greedy-5": "Greedy PIG (T = 5)",
    "truth": "the true order",
}
ENOUGH = 3
"""Networks from which on the error is over networks."""
Line = tuple[Method, str]
"""A method and its variant: what an absent column looks like, and perhaps TUNED. The variant of a
method that uses no network is empty."""


def reproduce(experiment: Experiment) -> None:
    """Losses after retraining, table by table."""
    args, settings, methods = experiment.args, experiment.settings, experiment.methods()
    variants = list(args.baseline or settings["baselines"])
    if args.mask_finetune:
        if "conditional" in variants:
            raise InvalidInput("Expected --baseline zero or mean with --mask-finetune.")
        variants += [variant + TUNED for variant in variants]
    budget = max(experiment.budget or settings["budget"], STEPS * settings["ranked"])
    studies = [Study(experiment, n, methods, variants, budget) for n in tables_of(experiment)]
    for study in studies:
        study.measure()
    ks = sorted({k for study in studies for k in study.ks})
    rows = [*paper_rows(experiment, ks), *(row for study in studies for row in table_rows(study))]
    columns = {
        "data": "data",
        "title": "method",
        "baseline": "absent is",
        "batches": "batches",
        **{f"k{k}": f"k = {k}" for k in ks},
        "all": "all columns",
    }
    if any("sources" in row for row in rows):
        columns["sources"] = f"sources in the top {DEPTH}"
    formats = dict.fromkeys([*(f"k{k}" for k in ks), "all"], "{:.4f}")
    table = Table(columns, rows, formats | {"batches": "{:,.0f}", "sources": "{:.1f}"}, 4)
    pairs = {study: list(differences(study)) for study in studies}
    experiment.csv("criteo.csv", rows, "data", without=("title",))
    experiment.csv("criteo-runs.csv", (row for study in studies for row in run_rows(study)))
    experiment.csv("criteo-differences.csv", (row for each in pairs.values() for row in each))
    remarks = []
    for study, each in pairs.items():
        selections = len(study.selections) // len(study.lines)
        remarks.append(
            f"{study.title}, {len(study.names)} columns: {count(study.models, 'network')}, "
            f"{count(selections, 'selection')} in all, each retrained; "
            f"{study.rows('train', 0).rows:,} training rows; {budget:,} gradient batches of "
            f"{settings['batch_size']}."
        )
        remarks += in_words(study.title, each)
    experiment.page(table, remarks)


def tables_of(experiment: Experiment) -> list[str]:
    """The tables asked for; else the settings', without those that are not there."""
    if experiment.args.tables:
        return list(experiment.args.tables)
    files = {name: experiment.settings[name].get("file") for name in experiment.settings["tables"]}
    folder = assets_folder() / "tables"
    return [name for name, file in files.items() if file is None or (folder / file).is_file()]


# The work.


@dataclass(frozen=True)
class Selection:
    """One ranking of the columns, by a network and a seed."""

    line: Line
    model: int
    seed: int


@dataclass(frozen=True)
class Training:
    """A fresh network on some columns; network 0, 1, … on all columns if there is no selection."""

    columns: tuple[str, ...]
    """In the table's order: a set."""
    model: int
    selection: int | None = None


class Study:
    """All the work on one table."""

    def __init__(
        self,
        experiment: Experiment,
        name: str,
        methods: Sequence[Method],
        variants: Sequence[str],
        budget: int,
    ) -> None:
        """name: "generated", a table of `make assets`, or the path of a table."""
        args, settings = experiment.args, experiment.settings
        known = {**settings["table"], **settings.get(name, {})}
        self.experiment, self.variants, self.budget = experiment, variants, budget
        self.models: int = args.models or known["models"]
        self.truth: CriteoShaped | None = None
        path, self.name = Path(name), Path(name).name.split(".")[0]
        label, title = args.label or known.get("label", "label"), known.get("title", self.name)
        if name == "generated":
            loyalty = known["loyalty"] if args.loyalty is None else args.loyalty
            rows = args.rows or known["rows"]
            self.truth = CriteoShaped(rows, seed=experiment.seed, loyalty=loyalty)
            path = self._generated(self.truth)
            title = f"{title} (copies {loyalty:g} like their source)"
        elif "file" in known:
            path, label = assets_folder() / "tables" / known["file"], known["label"]
        table = open_table(path)
        self.table = table.without([c for c in known.get("drop", ()) if c in table.kinds])
        reading = criteo_reading() if set(CRITEO) <= set(self.table.kinds) else None
        self.survey = survey(self.table, label, reading)
        self.title = f"{title}, {self.survey.total:,} rows"
        self.names = self.survey.schema.names
        asked = args.k or settings["ks"]
        self.ks = [k for k in sorted(asked) if k < len(self.names)]
        if not self.ks:
            raise InvalidInput(
                f"Expected k below the {len(self.names)} columns of {self.title} (got {asked})."
            )
        self.lines: list[Line] = []
        for variant in variants:
            for method in methods:
                if method.name not in WITHOUT_NETWORK:
                    self.lines.append((method, variant))
                elif variant == variants[0] and (method.name != "truth" or self.truth):
                    self.lines.append((method, ""))
        self.selections = [
            Selection(line, model, seed)
            for model in range(self.models)
            for seed in range(args.selections or known["selections"])
            for line in self.lines
        ]
        self.valid_share, self.splits = known["valid"], known.get("splits", self.models)
        files = [(f.path.name, f.path.stat().st_size) for f in table.files]
        self._key = files, label, self.names, self.valid_share, args.start, EFFORT
        """What every training depends on."""
        self.rankings: Mapping[Selection, Record] = {}
        self.trainings: dict[Training, Record] = {}

    def _generated(self, truth: CriteoShaped) -> Path:
        """The generated rows as a file, written once."""
        experiment = self.experiment
        name = f"generated-{truth.rows}-{truth.seed}-{truth.loyalty:g}.parquet"
        path = experiment.out / "rows" / experiment.name / name
        if experiment.group.first and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            experiment.progress("generating rows", 0, 1)
            truth.write(path)
        experiment.group.barrier()
        return path

    def measure(self) -> None:
        """Train on all columns, rank the columns, retrain on the top k."""
        self._trained([Training(tuple(self.names), model) for model in range(self.models)])
        self.rankings = self.experiment.measure(self._ranking(s) for s in self.selections)
        sets = {self.training(s, k) for k in self.ks for s in self.rankings}
        self._trained(sorted(sets, key=repr))  # The same order in every process.

    def _trained(self, trainings: Sequence[Training]) -> None:
        tasks = [Task(t, self.place(t), self._label(self.place(t)), self._train) for t in trainings]
        self.trainings |= self.experiment.measure(tasks)

    def _label(self, path: Path) -> str:
        return f"{self.name}: {path.name.split('.')[0]}"

    # Results.

    def of_line(self, line: Line) -> list[Selection]:
        """The selections of a method and variant."""
        return [s for s in self.selections if s.line == line]

    def order(self, selection: Selection) -> list[str]:
        """The columns, best first; none where that was not measured."""
        return list(self.rankings.get(selection, {"order": []})["order"])

    def training(self, selection: Selection, k: int) -> Training:
        """The retraining on the top k of a selection."""
        top = self.order(selection)[:k]
        columns = tuple(name for name in self.names if name in top)
        return Training(columns, selection.model, selection.seed)

    def losses(self, line: Line, k: int) -> dict[tuple[int, int], float]:
        """The losses after retraining on the top k, by network and selection seed."""
        each = {(s.model, s.seed): self.training(s, k) for s in self.of_line(line)}
        return {at: self.trainings[t]["loss"] for at, t in each.items() if t in self.trainings}

    def losses_all(self) -> list[float]:
        """The losses of the networks on all columns."""
        return [record["loss"] for t, record in self.trainings.items() if t.selection is None]

    # Trainings.

    def rows(self, part: Literal["train", "valid"], model: int) -> Batches:
        """The training or validation rows of a network."""
        split = model % self.splits
        return Batches(
            self.table,
            self.survey,
            batch_size=self.experiment.settings["batch_size"],
            part=part,
            share=self.valid_share,
            split_seed=split,
            seed=split,
        )

    def _seed(self, model: int, selection: int | None = None) -> int:
        seed = 1000 * self.experiment.seed + model
        return seed if selection is None else 1_000_000 + 1000 * seed + selection

    def place(self, t: Training) -> Path:
        """The file of a training's loss, beside the weights of a network on all columns."""
        name = f"network-{t.model}"
        if t.selection is not None:
            name = f"retrained-{len(t.columns)}-{t.model}-{t.selection}"
        depends = t.columns, *self._key, t.model % self.splits, self._seed(t.model, t.selection)
        return self.experiment.place(self.name, name, *depends)

    def _weights(self, model: int) -> Path:
        return self.place(Training(tuple(self.names), model)).with_suffix(".safetensors")

    def _fresh(self, schema: Schema, seed: int) -> nn.Module:
        at_rate = self.experiment.args.start == "rate"
        return new_network(schema, seed=seed, at_rate=at_rate, indicators=False)

    def _train(self, t: Training) -> Record:
        done = retrain_on(
            t.columns,
            self.rows("train", t.model),
            self.rows("valid", t.model),
            seed=self._seed(t.model, t.selection),
            effort=EFFORT,
            fresh=self._fresh,
            device=self.experiment.device,
        )
        if t.selection is None:
            weights = self._weights(t.model)
            weights.parent.mkdir(parents=True, exist_ok=True)
            tensors = {k: v.contiguous().cpu() for k, v in done.model.state_dict().items()}
            write_whole(weights, to_bytes(tensors))  # Before the record, which promises them.
        return {"loss": done.scores.loss, "seconds": round(done.seconds, 2)}

    # Rankings.

    def _ranking(self, s: Selection) -> Task:
        method, variant = s.line
        name = f"order-{method.name}-{s.model}-{s.seed}"
        ranked = self.experiment.settings["ranked"]
        depends = self._weights(s.model).name, method.knobs, variant, self.budget, ranked
        place = self.experiment.place(self.name, name, *depends)
        return Task(s, place, self._label(place), self._select)

    def _select(self, s: Selection) -> Record:
        method, variant = s.line
        if method.name == "truth" and self.truth is not None:
            return {"order": self.truth.by_weight()}
        if method.name == "random":
            # The same orders for every network, so that pairs differ in nothing else.
            generator = torch.Generator().manual_seed(self._seed(s.seed))
            order = torch.randperm(len(self.names), generator=generator)
            return {"order": [self.names[i] for i in order.tolist()]}
        train, settings = self.rows("train", s.model), self.experiment.settings
        # Permutation importance is known to tables alone, by its name.
        run = method.name if method.name == "permutation" else method.run()
        network = self._fresh(self.survey.schema, 0)
        network.load_state_dict(load_file(self._weights(s.model)))
        network = network.to(self.experiment.device).eval().requires_grad_(False)
        common: dict[str, Any] = {
            "loss": train.schema.loss,
            "baseline": variant.removesuffix(TUNED),
        }
        if variant.endswith(TUNED):
            seed = self._seed(s.model)
            network = mask_finetune(network, train, steps=settings["finetune"], seed=seed, **common)
        most = min(settings["ranked"], len(self.names))
        a = select_features(
            network,
            train,
            method=run,
            k=most if isinstance(run, InRounds) else None,
            budget=self.budget,
            names=self.names,
            seed=100 * self._seed(s.model) + s.seed,
            **common,
        )
        batches = getattr(a.about, "gradient_batches", None)
        return {"order": [self.names[i] for i in a.order.tolist()], "batches": batches}


# The table.


def paper_rows(experiment: Experiment, ks: Sequence[int]) -> Iterator[Record]:
    """The paper's lines."""
    for method in experiment.settings["methods"]:
        if method.paper:
            yield {
                "data": experiment.settings["paper"]["data"],
                "title": method.title,
                "method": f"{method.name}, paper",
                **{f"k{k}": method.paper.get(str(k)) for k in ks},
            }


def table_rows(study: Study) -> Iterator[Record]:
    """A line for every method and variant."""
    mean, error = mean_and_error(study.losses_all())
    for line in study.lines:
        records = [study.rankings.get(s, {}) for s in study.of_line(line)]
        row: Record = {
            "data": study.title,
            "title": line[0].title,
            "method": line[0].name,
            "baseline": line[1],
            "batches": max((r["batches"] for r in records if "batches" in r), default=None),
            "all": mean,
            "all_error": error,
        }
        for k in study.ks:
            row[f"k{k}"], row[f"k{k}_error"], _, _ = estimate(study.losses(line, k))
        if (truth := study.truth) is not None:
            tops = [study.order(s)[:DEPTH] for s in study.of_line(line)]
            row["sources"], _ = mean_and_error([float(truth.sources(top)) for top in tops])
        yield row


def run_rows(study: Study) -> Iterator[Record]:
    """Every selection and k."""
    for s in study.selections:
        for k in study.ks:
            yield {
                "data": study.name,
                "method": s.line[0].name,
                "baseline": s.line[1],
                "network": s.model,
                "selection": s.seed,
                "k": k,
                "loss": study.losses(s.line, k).get((s.model, s.seed)),
                "columns": " ".join(study.order(s)[:k]),
            }


# Which method is ahead. A pair of losses has the network, the selection seed and the retraining
# seed in common, so its difference is due to the columns.


def estimate(
    losses: Mapping[tuple[int, int], float],
) -> tuple[float | None, float | None, int, str]:
    """Mean and standard error of a value for every (network, selection seed), over how many what.

    Selections by the same network are not independent of each other: they are averaged first, and
    the error is over networks. With fewer than three networks it is over all selections, which
    underestimates it.
    """
    by_network: dict[int, list[float]] = {}
    for (network, _), loss in losses.items():
        by_network.setdefault(network, []).append(loss)
    if len(by_network) >= ENOUGH or len(by_network) == len(losses):
        values, over = [fmean(each) for each in by_network.values()], "networks"
    else:
        values, over = list(losses.values()), "selections"
    return *mean_and_error(values), len(values), over


def verdict(one: str, other: str, mean: float | None, interval: float | None) -> str:
    """Which of two methods is ahead, by the mean of the first's loss less the second's."""
    if mean is None or interval is None or abs(mean) <= interval:
        return "not certain"
    return f"{SHORT[one if mean < 0 else other]} ahead"


def differences(study: Study) -> Iterator[Record]:
    """One method's loss less another's, for every pair, variant and k."""
    lines = {(method.name, variant): (method, variant) for method, variant in study.lines}
    for variant in study.variants:
        for one, other in PAIRS:
            mine = lines.get((one, variant))
            yours = lines.get((other, "" if other == "truth" else variant))
            if mine is not None and yours is not None:
                for k in study.ks:
                    yield difference(study, mine, yours, k)


def difference(study: Study, mine: Line, yours: Line, k: int) -> Record:
    """One method's loss less another's at k, and what is in the lists where the truth is known."""
    a, b = study.losses(mine, k), study.losses(yours, k)
    mean, error, number, over = estimate({key: a[key] - b[key] for key in a if key in b})
    interval = None if error is None else student(number - 1) * error
    tops = [
        (study.order(s)[:k], study.order(t)[:k])
        for s, t in zip(study.of_line(mine), study.of_line(yours), strict=True)
    ]
    same = all(set(one) == set(other) for one, other in tops)
    one, other = mine[0].name, yours[0].name
    record = {
        "table": study.name,
        "one": one,
        "other": other,
        "variant": mine[1],
        "k": k,
        "mean": mean,
        "error": error,
        "count": number,
        "over": over,
        "half_of_95": interval,
        "verdict": "the same columns" if same else verdict(one, other, mean, interval),
    }
    if (truth := study.truth) is not None:
        for side, each in zip(("one", "other"), zip(*tops, strict=True), strict=True):
            record[f"{side}_copies"] = fmean(truth.copies(top) for top in each)
            record[f"{side}_signal"] = fmean(truth.signal(top) for top in each)
    return record


def in_words(title: str, records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The differences on a table, a sentence for every pair of methods and variant."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for r in records:
        groups.setdefault((r["one"], r["other"], r["variant"]), []).append(r)
    for (one, other, variant), each in groups.items():
        over = " and ".join(dict.fromkeys(f"{r['count']} {r['over']}" for r in each))
        parts = []
        for r in each:
            error = "" if r["error"] is None else f" ± {r['error']:.4f}"
            parts.append(f"k = {r['k']}: {r['mean']:+.4f}{error}, {r['verdict']}")
        yield (
            f"{SHORT[one]} less {SHORT[other]} on {title} (absent is {variant}; mean ± standard "
            f"error of {over}): {'; '.join(parts)}."
        )
