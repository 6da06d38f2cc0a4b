"""The paper's Criteo table: train on all columns, select, retrain on the top k, compare the losses.

Measured on generated rows of Criteo's shape, whose truth is known, on real tables of `make assets`,
and on any table given by its path, Criteo's own files among them. All methods have the same budget
of gradient batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from greedypig.core.errors import InvalidInput
from greedypig.images.networks.assets_folder import assets_folder

from .cache import Shelf
from .comparisons import Difference, Estimate, differences, lead, losses, told
from .datasets import open_ground
from .loss_figure import Chart, Line, loss_sheet
from .outputs import Written
from .request import Request, Result, Table
from .retraining import WITHOUT_NETWORK, Trials, Variant
from .settings import Contender, Settings
from .tables import mean_and_error

FILES = ("criteo.md", "criteo.png", "criteo.csv", "criteo-runs.csv", "criteo-differences.csv")
STEPS = 5
"""Points of the path of our contender."""
DEPTH = 20
"""Places of the list whose sources are counted, where they are known."""


def run(request: Request) -> Result:
    """Every table in turn; the first of several processes writes the files."""
    job = Job.of(request, Settings.of("criteo"))
    for trials in job.tables:
        trials.run()
    result = job.result()
    return job.written(result) if request.group.first else result


@dataclass(frozen=True, eq=False)
class Job:
    """One run: the tables and what is compared on each."""

    request: Request
    settings: Settings
    ks: tuple[int, ...]
    tables: tuple[Trials, ...]

    @staticmethod
    def of(request: Request, settings: Settings) -> Job:
        """Check the request, open the tables."""
        asked, more = request.tables, settings.more
        ks = tuple(asked.k or more["ks"])
        if min(ks) < 1:
            raise InvalidInput(f"Expected k ≥ 1 (got {min(ks)}).")
        contenders = settings.chosen(request.methods)
        baselines = asked.baselines or more["baselines"]
        tuned = (False, True) if asked.mask_finetune else (False,)
        variants = tuple(Variant(baseline, t) for t in tuned for baseline in baselines)
        shelf = Shelf(request.out / "rows" / settings.name)
        # Greedy PIG needs a batch for each of its points.
        budget = max(request.budget or more["budget"], STEPS * more["ranked"])
        tables = []
        for name in _tables(request, settings):
            ground = open_ground(name, request, settings, shelf)
            fitting = tuple(k for k in ks if k < len(ground.names))
            if not fitting:
                raise InvalidInput(
                    f"Expected k below the {len(ground.names)} columns of {ground.title} "
                    f"(got {', '.join(map(str, ks))})."
                )
            known = tuple(c for c in contenders if c.search["method"] != "truth" or ground.truth)
            tables.append(Trials(
                request, ground, known, variants, fitting, budget,
                more["ranked"], more["finetune"], shelf,
            ))  # fmt: skip
        return Job(request, settings, ks, tuple(tables))

    def result(self) -> Result:
        """The table: the paper's lines, then ours, table by table."""
        rows = list(self._paper()) + [row for trials in self.tables for row in _rows(trials)]
        columns = {"data": "data", "title": "method", "baseline": "absent is",
                   "batches": "batches"}  # fmt: skip
        columns |= {f"k{k}": f"k = {k}" for k in sorted(self.ks)} | {"all": "all columns"}
        if any(row.get("sources") is not None for row in rows):
            columns["sources"] = f"sources in the top {DEPTH}"
        numbers = [*(f"k{k}" for k in self.ks), "all"]
        formats = dict.fromkeys(numbers, "{:.4f}") | {"batches": "{:,.0f}", "sources": "{:.1f}"}
        errors = {column: f"{column}_error" for column in numbers}
        failed = [problem for trials in self.tables for problem in trials.problems()]
        about = {
            "seed": self.request.seed, "ks": list(self.ks),
            "tables": [t.ground.title for t in self.tables],
            "differences": [d.record for d in self.differences()],
        }  # fmt: skip
        return Result(self.settings.name, self.settings.title,
                      Table(columns, rows, formats, errors, dict.fromkeys(numbers, 4)),
                      self._remarks(), failed, about=about)  # fmt: skip

    def _paper(self) -> Iterator[dict[str, Any]]:
        for contender in self.settings.contenders:
            if contender.paper:
                yield {"data": self.settings.paper["data"], "title": contender.title,
                       "method": f"{contender.name}, paper",
                       **{f"k{k}": contender.paper.get(str(k)) for k in self.ks}}  # fmt: skip

    def differences(self) -> list[Difference]:
        """Every pair of methods on every table, for every variant and k."""
        return [d for trials in self.tables for d in differences(trials)]

    def _remarks(self) -> list[str]:
        remarks = []
        for trials in self.tables:
            plan, ground = trials.ground.plan, trials.ground
            train = ground.train(0)
            remarks.append(
                f"{ground.title}, {len(ground.names)} columns: {_times(plan.models, 'network')}, "
                f"{_times(plan.selections, 'selection')} by each, "
                f"{_times(plan.retrainings, 'retraining')} of every chosen set; {train.rows:,} "
                f"rows to learn from; {trials.budget:,} gradient batches of {train.batch_size}."
            )
            remarks += told(ground, list(differences(trials)))
            if (first := lead(trials, list(_rows(trials)))) is not None:
                remarks.append(first)
        return remarks + list(self.settings.differs)

    def written(self, result: Result) -> Result:
        """The files of the result."""
        out = Written(self.request, result)
        drop = ("title",)
        out.csv("criteo.csv", [{k: v for k, v in row.items() if k not in drop}
                               for row in result.table.rows], first="data")  # fmt: skip
        out.csv("criteo-runs.csv", [r for t in self.tables for r in _runs(t)], first="data")
        out.csv("criteo-differences.csv", [d.record for d in self.differences()], first="table")
        out.figure("criteo.png", lambda: loss_sheet([_chart(t) for t in self.tables]))
        return out.page("criteo.md")


def _tables(request: Request, settings: Settings) -> list[str]:
    """Those asked for; else the settings', without those that `make assets` has not brought."""
    if request.tables.tables:
        return list(request.tables.tables)
    there = []
    for name in settings.more["tables"]:
        file = settings.more[name].get("file")
        if file is None or (assets_folder() / "tables" / file).is_file():
            there.append(name)
    return there


def _rows(trials: Trials) -> Iterator[dict[str, Any]]:
    """A line for every method and variant."""
    ground = trials.ground
    every = [loss for m in range(ground.plan.models) if (loss := trials.loss_all(m)) is not None]
    mean, error = mean_and_error(every)
    for contender, variant in _lines(trials):
        bare = contender.search["method"] in WITHOUT_NETWORK
        of = [c for c in trials.choices() if (c.contender, c.variant) == (contender, variant)]
        row: dict[str, Any] = {
            "data": ground.title, "title": contender.title, "method": contender.name,
            "baseline": "" if bare else variant.words,
            "batches": None if bare else max((trials.spent(c) or 0 for c in of), default=0),
            "all": mean, "all_error": error,
        }  # fmt: skip
        for k in trials.ks:
            found = Estimate.of(losses(trials, of, k))
            row[f"k{k}"], row[f"k{k}_error"] = found.mean, found.error
        if (truth := ground.truth) is not None:
            tops = [order[:DEPTH] for c in of if (order := trials.order(c)) is not None]
            row["sources"], _ = mean_and_error([float(truth.sources(top)) for top in tops])
        yield row


def _lines(trials: Trials) -> Iterator[tuple[Contender, Variant]]:
    seen = []
    for choice in trials.choices():
        pair = (choice.contender, choice.variant)
        if pair not in seen:
            seen.append(pair)
    yield from sorted(seen, key=lambda p: (trials.variants.index(p[1]),
                                           trials.contenders.index(p[0])))  # fmt: skip


def _runs(trials: Trials) -> Iterator[dict[str, Any]]:
    """Every selection and k."""
    for c in trials.choices():
        order = trials.order(c)
        for k in trials.ks:
            yield {
                "data": trials.ground.name, "method": c.contender.name,
                "baseline": c.variant.words, "network": c.model, "selection": c.seed, "k": k,
                "loss": trials.loss(c, k), "columns": " ".join((order or [])[:k]),
            }  # fmt: skip


def _chart(trials: Trials) -> Chart:
    """The lines of a table's figure: means and errors over k."""
    lines, whole = [], None
    many = len(trials.variants) > 1
    for row in _rows(trials):
        whole = row["all"]
        name = row["title"] + (f", {row['baseline']}" if many and row["baseline"] else "")
        points = {k: (row[f"k{k}"], row[f"k{k}_error"]) for k in sorted(trials.ks)
                  if row[f"k{k}"] is not None}  # fmt: skip
        if points:
            lines.append(Line(name, row["method"], points))
    return Chart(trials.ground.title, lines, whole)


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
