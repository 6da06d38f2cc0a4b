"""The paper's Criteo table: train on all columns, select, retrain on the top k, compare the losses.

Measured on generated rows of Criteo's shape, whose truth is known, on real tables of `make assets`,
and on any table given by its path, also Criteo's own files. All methods have the same budget of
gradient batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from greedypig.core.errors import InvalidInput
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.plots.canvas import COLOURS, DASHES, INK, SOFT, new_figure, plain, shorten, title
from greedypig.results.wording import count

from .comparisons import Estimate, differences, in_words, losses, ranked_methods, selections_of
from .datasets import open_dataset
from .job import Batch, Job, Record
from .output import Files, Table, mean_and_error
from .retraining import WITHOUT_NETWORK, Experiment, Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = 5
"""Gradient batches of a round of Greedy PIG (T = 5), at least."""
DEPTH = 20
"""Places of the list in which sources are counted, where they are known."""
LINES = ("ig", "greedy-5", "greedy-1", "permutation", "truth", "random")
"""Methods in the order of their colours."""


class Retraining(Job):
    """Losses after retraining, table by table."""

    FILES = ("criteo.md", "criteo.png", "criteo.csv", "criteo-runs.csv", "criteo-differences.csv")

    def prepare(self) -> None:
        request, more = self.request, self.more
        self.contenders = self.settings.chosen(request.methods)
        self.ks = tuple(request.k or more["ks"])
        baselines = request.baseline or more["baselines"]
        tuned = (False, True) if request.mask_finetune else (False,)
        variants = tuple(Variant(baseline, t) for t in tuned for baseline in baselines)
        budget = max(request.budget or more["budget"], STEPS * more["ranked"])
        self.experiments = []
        for name in self._tables():
            dataset = open_dataset(name, self)
            ks = tuple(k for k in self.ks if k < len(dataset.names))
            if not ks:
                raise InvalidInput(
                    f"Expected k below the {len(dataset.names)} columns of {dataset.title} "
                    f"(got {', '.join(map(str, self.ks))})."
                )
            known = tuple(c for c in self.contenders if c.name != "truth" or dataset.truth)
            self.experiments.append(Experiment(self, dataset, known, variants, ks, budget))

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
        columns = {"data": "data", "title": "method", "baseline": "absent is",
                   "batches": "batches"}  # fmt: skip
        columns |= {f"k{k}": f"k = {k}" for k in sorted(self.ks)} | {"all": "all columns"}
        if any(row.get("sources") is not None for row in rows):
            columns["sources"] = f"sources in the top {DEPTH}"
        formats = dict.fromkeys([*(f"k{k}" for k in self.ks), "all"], "{:.4f}")
        return Table(columns, rows, formats | {"batches": "{:,.0f}", "sources": "{:.1f}"}, 4)

    def _paper(self) -> Iterator[Record]:
        for c in self.settings.contenders:
            if c.paper:
                yield {"data": self.settings.paper["data"], "title": c.title,
                       "method": f"{c.name}, paper",
                       **{f"k{k}": c.paper.get(str(k)) for k in self.ks}}  # fmt: skip

    def about(self) -> Record:
        return {"ks": list(self.ks), "tables": [e.dataset.title for e in self.experiments],
                "differences": list(self._differences())}  # fmt: skip

    def _differences(self) -> Iterator[Record]:
        for experiment in self.experiments:
            yield from (difference.record for difference in differences(experiment))

    def remarks(self) -> list[str]:
        remarks = []
        for experiment in self.experiments:
            dataset, train = experiment.dataset, experiment.dataset.rows("train", 0)
            repeats = dataset.repeats
            remarks.append(
                f"{dataset.title}, {len(dataset.names)} columns: "
                f"{count(repeats.models, 'network')}, {count(repeats.selections, 'selection')} by "
                f"each, {count(repeats.retrainings, 'retraining')} of every selected set; "
                f"{train.rows:,} training rows; {experiment.budget:,} gradient batches of "
                f"{train.batch_size}."
            )
            remarks += in_words(dataset.title, list(differences(experiment)))
            remarks += ranked_methods(experiment, list(_rows(experiment)))
        return remarks

    def write(self, files: Files, table: Table) -> None:
        files.csv("criteo.csv", table.rows, first="data", without=("title",))
        files.csv("criteo-runs.csv", (r for e in self.experiments for r in _runs(e)), first="data")
        files.csv("criteo-differences.csv", self._differences(), first="table")
        files.figure("criteo.png", self._figure)

    def _figure(self) -> Figure:
        """Losses over the number of columns kept, one panel for each table, two in a row."""
        across = min(2, len(self.experiments))
        down = -(-len(self.experiments) // across)
        figure = new_figure(5.8 * across, 0.5 + 4.1 * down)
        axes = figure.subplots(down, across, squeeze=False).flatten().tolist()
        for ax in axes[len(self.experiments) :]:
            ax.set_axis_off()
        for ax, experiment in zip(axes, self.experiments, strict=False):
            _draw(ax, experiment)
        return figure


def _rows(experiment: Experiment) -> Iterator[Record]:
    """A line for every method and variant."""
    dataset = experiment.dataset
    whole = [experiment.loss_all(m) for m in range(dataset.repeats.models)]
    mean, error = mean_and_error([loss for loss in whole if loss is not None])
    lines = [(c, v) for v in experiment.variants for c in experiment.contenders
             if v in experiment.variants_of(c)]  # fmt: skip
    for contender, variant in lines:
        bare = contender.name in WITHOUT_NETWORK
        selections = selections_of(experiment, contender.name, variant)
        row: Record = {
            "data": dataset.title, "title": contender.title, "method": contender.name,
            "baseline": "" if bare else variant.words,
            "batches": None if bare else max(map(experiment.batches_used, selections), default=0),
            "all": mean, "all_error": error,
        }  # fmt: skip
        for k in experiment.ks:
            estimate = Estimate.of(losses(experiment, selections, k))
            row[f"k{k}"], row[f"k{k}_error"] = estimate.mean, estimate.error
        if (truth := dataset.truth) is not None:
            orders = [order for s in selections if (order := experiment.order(s)) is not None]
            row["sources"], _ = mean_and_error([float(truth.sources(o[:DEPTH])) for o in orders])
        yield row


def _runs(experiment: Experiment) -> Iterator[Record]:
    """Every selection and k."""
    for s in experiment.selections():
        order = experiment.order(s) or []
        for k in experiment.ks:
            yield {
                "data": experiment.dataset.name, "method": s.contender.name,
                "baseline": s.variant.words, "network": s.model, "selection": s.seed, "k": k,
                "loss": experiment.loss(s, k), "columns": " ".join(order[:k]),
            }  # fmt: skip


def _draw(ax: Axes, experiment: Experiment) -> None:
    """Mean losses with their errors; the loss with all columns is a dashed line."""
    ks, rows = sorted(experiment.ks), list(_rows(experiment))
    for i, row in enumerate(rows):
        known = [(at, k) for at, k in enumerate(ks) if row[f"k{k}"] is not None]
        several = len(experiment.variants) > 1 and row["baseline"]
        shift = 0.09 * (i - (len(rows) - 1) / 2)  # Error bars do not cover each other.
        ax.errorbar([at + shift for at, _ in known], [row[f"k{k}"] for _, k in known],
                    yerr=[row[f"k{k}_error"] or 0.0 for _, k in known],
                    color=COLOURS[LINES.index(row["method"])], linestyle=DASHES[i % len(DASHES)],
                    marker="o", markersize=4, capsize=2.5, linewidth=1.4,
                    label=shorten(row["title"] + (f", {row['baseline']}" if several else ""),
                                  44))  # fmt: skip
    whole = rows[0]["all"] if rows else None
    if whole is not None:
        ax.axhline(whole, color=SOFT, linewidth=1, linestyle=(0, (2, 2)),
                   label=f"all columns: {whole:.4f}")  # fmt: skip
    ax.set_xticks(range(len(ks)), [str(k) for k in ks])
    ax.set_xlim(-0.5, len(ks) - 0.5)
    ax.set_xlabel("columns kept", fontsize=9, color=INK)
    ax.set_ylabel("validation loss after retraining", fontsize=9, color=INK)
    plain(ax)
    title(ax, shorten(experiment.dataset.title, 70))
    ax.legend(fontsize=8, frameon=False)
