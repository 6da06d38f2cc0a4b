"""The paper's Criteo table: train on all columns, select, retrain on the top k, compare the losses.

Measured on generated rows of Criteo's shape, whose truth is known, on real tables of `make assets`,
and on any table given by its path, also Criteo's own files. All methods have the same budget of
gradient batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from greedypig.images.networks.assets_folder import assets_folder
from greedypig.results.wording import count

from .comparisons import Estimate, differences, in_words
from .job import Batch, Job, Record
from .output import Files, Table, mean_and_error
from .retraining import TUNED, Experiment

STEPS = 5
"""Gradient batches of a round of Greedy PIG (T = 5), at least."""
DEPTH = 20
"""Places of the list in which sources are counted, where they are known."""


class Retraining(Job):
    """Losses after retraining, table by table."""

    FILES = ("criteo.md", "criteo.csv", "criteo-runs.csv", "criteo-differences.csv")

    def prepare(self) -> None:
        request, more = self.request, self.more
        self.contenders = self.settings.chosen(request.methods)
        variants = list(request.baseline or more["baselines"])
        if request.mask_finetune:
            variants += [variant + TUNED for variant in variants]
        budget = max(request.budget or more["budget"], STEPS * more["ranked"])
        self.experiments = [Experiment(self, n, variants, budget) for n in self._tables()]
        self.ks = sorted({k for experiment in self.experiments for k in experiment.ks})

    def _tables(self) -> list[str]:
        """The tables asked for; else the settings', without those that are not there."""
        if self.request.tables:
            return list(self.request.tables)
        files = {name: self.more[name].get("file") for name in self.more["tables"]}
        folder = assets_folder() / "tables"
        return [name for name, file in files.items() if file is None or (folder / file).is_file()]

    def stages(self) -> Iterator[list[Batch]]:
        for experiment in self.experiments:
            yield from experiment.stages()

    def table(self) -> Table:
        rows = [*self._paper(), *(row for e in self.experiments for row in _rows(e))]
        columns = {
            "data": "data",
            "title": "method",
            "baseline": "absent is",
            "batches": "batches",
            **{f"k{k}": f"k = {k}" for k in self.ks},
            "all": "all columns",
        }
        if any("sources" in row for row in rows):
            columns["sources"] = f"sources in the top {DEPTH}"
        formats = dict.fromkeys([*(f"k{k}" for k in self.ks), "all"], "{:.4f}")
        return Table(columns, rows, formats | {"batches": "{:,.0f}", "sources": "{:.1f}"}, 4)

    def _paper(self) -> Iterator[Record]:
        for contender in self.settings.contenders:
            if contender.paper:
                yield {
                    "data": self.settings.paper["data"],
                    "title": contender.title,
                    "method": f"{contender.name}, paper",
                    **{f"k{k}": contender.paper.get(str(k)) for k in self.ks},
                }

    def remarks(self) -> list[str]:
        remarks = []
        for e in self.experiments:
            selections, rows = len(e.selections) // len(e.lines), e.rows("train", 0).rows
            remarks.append(
                f"{e.title}, {len(e.names)} columns: {count(e.models, 'network')}, "
                f"{count(selections, 'selection')} in all, each retrained; {rows:,} training rows; "
                f"{e.budget:,} gradient batches of {self.more['batch_size']}."
            )
            remarks += in_words(e.title, list(differences(e)))
        return remarks

    def write(self, files: Files, table: Table) -> None:
        files.csv("criteo.csv", table.rows, first="data", without=("title",))
        files.csv("criteo-runs.csv", (r for e in self.experiments for r in _runs(e)), first="data")
        records = (record for e in self.experiments for record in differences(e))
        files.csv("criteo-differences.csv", records, first="table")


def _rows(experiment: Experiment) -> Iterator[Record]:
    """A line for every method and variant."""
    mean, error = mean_and_error(experiment.losses_all())
    for line in experiment.lines:
        contender, variant = line
        records = [experiment.job.outcomes.get(s, {}) for s in experiment.of_line(line)]
        row: Record = {
            "data": experiment.title,
            "title": contender.title,
            "method": contender.name,
            "baseline": variant,
            "batches": max((r["batches"] for r in records if "batches" in r), default=None),
            "all": mean,
            "all_error": error,
        }
        for k in experiment.ks:
            estimate = Estimate.of(experiment.losses(line, k))
            row |= {f"k{k}": estimate.mean, f"k{k}_error": estimate.error}
        if (truth := experiment.truth) is not None:
            tops = [experiment.order(s)[:DEPTH] for s in experiment.of_line(line)]
            row["sources"], _ = mean_and_error([float(truth.sources(top)) for top in tops])
        yield row


def _runs(experiment: Experiment) -> Iterator[Record]:
    """Every selection and k."""
    for s in experiment.selections:
        contender, variant = s.line
        for k in experiment.ks:
            yield {
                "data": experiment.name,
                "method": contender.name,
                "baseline": variant,
                "network": s.model,
                "selection": s.seed,
                "k": k,
                "loss": experiment.losses(s.line, k).get((s.model, s.seed)),
                "columns": " ".join(experiment.order(s)[:k]),
            }
