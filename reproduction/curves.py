"""Information curves over many photos: Figure 2 of the paper (sic) and the appendix's ResNet50.

For every photo and method the class is explained once per objective: the softmax objective for the
SIC and the second opinion, the log-likelihood objective for the LIC, as in the paper (Section 5.1,
"Top-class attribution" and "Loss attribution"). A method's number is the area under the median of
its curves, median over photos at each share kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from greedypig.core.attribution import Attribution
from greedypig.metrics import (
    Curve,
    information_curves,
    median_curve,
    softmax_information_curve,
)
from greedypig.results.wording import count, listed

from .job import Batch, Record
from .output import Files, Table
from .photos import Photo, PhotoJob, cost
from .settings import Contender
from .sheets import curve_sheet

SECOND = "second_opinion"
OBJECTIVE_OF = {"sic": "softmax", "lic": "log-likelihood", SECOND: "softmax"}
"""From a column of the table to the objective of its explanations."""
RESAMPLES = 400
HEADS = {
    "title": "method",
    "setting": "setting",
    "cost": "gradients",
    "paper_sic": "SIC AUC ↑, paper",
    "sic": "SIC AUC ↑, ours",
    "paper_lic": "LIC AUC ↓, paper",
    "lic": "LIC AUC ↓, ours",
    SECOND: "second opinion ↑, ours",
}
PANELS = {
    "sic": ("Softmax information curve ↑", "probability of the class"),
    "lic": ("Loss information curve ↓", "KL divergence from the whole photo's answer (nats)"),
    SECOND: ("Second opinion ↑", "probability of the class, by the judge"),
}
Line = tuple[Contender, str | None]
"""A line of the table: a method and how it is ranked."""


class Curves(PhotoJob):
    """Curves of every method on every photo, and their medians."""

    FILES = ("{}.md", "{}.png", "{}.csv", "{}-photos.csv", "{}-curves.csv")

    def prepare(self) -> None:
        super().prepare()
        self.columns = [c for c, objective in OBJECTIVE_OF.items() if objective in self.objectives]
        if self.judge is None and SECOND in self.columns:
            self.columns.remove(SECOND)
        # The same runs may be ranked in two ways.
        self.lines: list[Line] = [(c, ranking) for c in self.contenders for ranking in c.rankings]

    def batches(self) -> Iterator[Batch]:
        for photo in self.photos:  # A run that is stopped leaves whole comparisons on some photos.
            for contender in self.contenders:
                methods = [contender.method(objective) for objective in self.objectives]
                place = self.place(photo.key, contender.name, self.depends, methods)
                label = f"{contender.name}: {photo.path.name}"
                item, name = (photo, contender), str(photo.path)
                yield Batch.of_one(place, item, label, self.measure, name)

    def measure(self, item: tuple[Photo, Contender]) -> Record:
        """Explain a photo for each objective, and measure the curves."""
        photo, contender = item
        x = self.input_of(photo)
        record: Record = {}
        for objective in self.objectives:
            a = self.explained(x, photo.target, contender, objective)
            record[objective] = {**cost(a), "curves": {}}
            for ranking in contender.rankings:
                curves = self._curves(x, photo, a, ranking)
                record[objective]["ranking"] = curves["sic"].settings["ranking"]
                record[objective]["curves"][str(ranking)] = {
                    column: curves[column].to_dict() | {"settings": {}}
                    for column in self.columns
                    if OBJECTIVE_OF[column] == objective
                }
        return record

    def _curves(
        self, x: Tensor, photo: Photo, a: Attribution, ranking: str | None
    ) -> dict[str, Curve]:
        options: dict[str, Any] = {
            "target": photo.target,
            "baseline": self.more["baseline"],
            "ranking": ranking,
            "points": self.more["points"],
        }
        own = information_curves(self.model, x, a, **options)
        curves = {"sic": own["softmax"], "lic": own["loss"]}
        if SECOND in self.columns:
            options["judge"] = self.judge
            curves[SECOND] = softmax_information_curve(self.model, x, a, **options)
        return curves

    @property
    def agreed(self) -> list[Photo]:
        """Photos whose class the judge predicts too."""
        return [photo for photo in self.shown if photo.agreed]

    def curve(self, photo: Photo, line: Line, column: str) -> Curve:
        """One curve of a photo."""
        contender, ranking = line
        record = self.outcomes[photo, contender][OBJECTIVE_OF[column]]
        return Curve.from_dict(record["curves"][str(ranking)][column])

    def curves(self, line: Line) -> dict[str, list[Curve]]:
        """From a column to the curves of the photos."""
        photos = {c: self.agreed if c == SECOND else self.shown for c in self.columns}
        return {
            column: [self.curve(photo, line, column) for photo in each]
            for column, each in photos.items()
            if each
        }

    def table(self) -> Table:
        self.shown = self.complete(self.photos)
        rows = [self._row(line) for line in self.lines] if self.shown else []
        columns = {
            key: head
            for key, head in HEADS.items()
            if key in ("title", "setting") or any(row.get(key) is not None for row in rows)
        }
        formats = {"cost": "{:,.0f}", "paper_sic": "{:.4f}", "paper_lic": "{:.4f}"}
        return Table(columns, rows, formats)

    def _row(self, line: Line) -> Record:
        contender, ranking = line
        records = [self.outcomes[photo, contender] for photo in self.shown]
        names = {c: OBJECTIVE_OF[c] for c in self.columns if c != SECOND}
        costs = {c: median(r[name]["gradients"] for r in records) for c, name in names.items()}
        row: Record = {
            "method": contender.name,
            "ranking": ranking or records[0][self.objectives[0]]["ranking"],
            "title": _title(line),
            "setting": _each({c: records[0][name]["setting"] for c, name in names.items()}),
            "cost": _each(costs),
            "gradients": median(costs.values()),
            **{f"gradients_{column}": number for column, number in costs.items()},
        }
        for column, curves in self.curves(line).items():
            row[column] = median_curve(curves).auc
            row[f"{column}_error"] = standard_error(curves)
            first = ranking == contender.rankings[0]
            row[f"paper_{column}"] = contender.paper.get(column) if first else None
        row["seconds"] = median(each["seconds"] for r in records for each in r.values())
        row["photos"] = len(self.shown)
        return row

    def remarks(self) -> list[str]:
        remarks = [
            f"{count(len(self.shown), 'photo')} ({self.source}; the paper: "
            f"{self.settings.paper['photos']:,} of ImageNet), {self.model_name}, "
            f"{self.more['baseline']} baseline, {self.more['points']} points; the area under the "
            "median curve. Gradients are per photo and objective. ± is the standard error of the "
            "area, by resampling the photos."
        ]
        if self.judge is not None:
            remarks.append(
                f"Second opinion: the same masks shown to {self.judge_name}, over the "
                f"{count(len(self.agreed), 'photo')} for which it predicts the same class; not in "
                "the paper."
            )
        if self.wrong:
            remarks.append(
                f"The label is not the predicted class: {listed(self.wrong)}. As in the paper "
                "these photos count, and the predicted class is explained."
            )
        return remarks

    def write(self, files: Files, table: Table) -> None:
        files.csv(f"{self.name}.csv", table.rows, without=("title", "cost"))
        files.csv(f"{self.name}-photos.csv", self._per_photo())
        points: list[Record] = []
        panels: dict[str, dict[str, Curve]] = {}
        for line in self.lines:
            medians = {column: median_curve(each) for column, each in self.curves(line).items()}
            for column, curve in medians.items():
                panels.setdefault(column, {})[_title(line)] = curve
            name = line[0].name + ("-absolute" if line[1] == "absolute" else "")
            fractions = next(iter(medians.values())).fractions.tolist()
            for i, fraction in enumerate(fractions):
                values = {column: float(curve.values[i]) for column, curve in medians.items()}
                points.append({"method": name, "fraction": fraction, **values})
        files.csv(f"{self.name}-curves.csv", points)
        title = f"{self.model_name}, medians over {count(len(self.shown), 'photo')}"
        sheet = [(*PANELS[column], curves) for column, curves in panels.items()]
        files.figure(f"{self.name}.png", lambda: curve_sheet(sheet, title))

    def _per_photo(self) -> Iterator[Record]:
        names = self.model.classes
        for photo in self.shown:
            for line in self.lines:
                records = list(self.outcomes[photo, line[0]].values())
                yield {
                    "method": line[0].name,
                    "ranking": line[1] or records[0]["ranking"],
                    "photo": photo.path.name,
                    "label": None if photo.label is None else names[photo.label],
                    "class": names[photo.target],
                    "probability": photo.probability,
                    "judge_agrees": None if photo.judge_target is None else int(photo.agreed),
                    "judge_probability": photo.judge_probability,
                    "gradients": median(r["gradients"] for r in records),
                    "seconds": median(r["seconds"] for r in records),
                    **{column: self.curve(photo, line, column).auc for column in self.columns},
                }


def _title(line: Line) -> str:
    contender, ranking = line
    return contender.title + (", by absolute score" if ranking == "absolute" else "")


def _each(by: Mapping[str, Any]) -> Any:
    """The value, where it is the same for all columns; else a text with the value of each."""
    if len(set(by.values())) == 1:
        return next(iter(by.values()))
    words = {c: value if isinstance(value, str) else f"{value:,.0f}" for c, value in by.items()}
    return "; ".join(f"{column.upper()}: {text}" for column, text in words.items())


def standard_error(curves: Sequence[Curve]) -> float | None:
    """Standard error of the median curve's area, by resampling the photos."""
    if len(curves) < 2:
        return None
    values = torch.stack([c.values for c in curves])
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    areas = [torch.trapezoid(values[d].quantile(0.5, 0), curves[0].fractions) for d in draws]
    return float(torch.stack(areas).std())
