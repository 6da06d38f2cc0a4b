"""Information curves over many photos: Figure 2 of the paper (sic) and the appendix's ResNet50.

For every photo and method the class is explained once per objective: the softmax objective for the
SIC and the second opinion, the log-likelihood objective for the LIC, as in the paper (Section 5.1,
"Top-class attribution" and "Loss attribution"). A method's number is the area under the median of
its curves, median over photos at each share kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from greedypig.core.errors import listed
from greedypig.metrics import Curve, information_curves, median_curve, softmax_information_curve
from greedypig.plots import canvas
from greedypig.plots import curve as draw_curves
from greedypig.results.wording import count

from .experiment import Experiment, Method, Record, Table, Task
from .photos import Photo, Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ("{}.png",)
RESAMPLES = 400
SECOND = "second_opinion"
OBJECTIVE_OF = {"sic": "softmax", "lic": "log-likelihood", SECOND: "softmax"}
"""From a column of the table to the objective of its explanations."""
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


def reproduce(experiment: Experiment) -> None:
    """Explain every photo by every method, and write the medians of the curves."""
    name, methods = experiment.name, experiment.methods(experiment.budget)
    sample = Sample(experiment)
    columns = [c for c, objective in OBJECTIVE_OF.items() if objective in sample.objectives]
    if sample.judge is None and SECOND in columns:
        columns.remove(SECOND)
    tasks = []
    for photo in sample.photos:  # A run that is stopped leaves whole comparisons on some photos.
        for method in methods:
            runs = [method.run(objective) for objective in sample.objectives]
            place = experiment.place(photo.key, method.name, sample.key, runs, photo.number)
            label = f"{method.name}: {photo.path.name}"
            run = partial(measure, sample, columns)
            tasks.append(Task((photo, method), place, label, run, str(photo.path)))
    records = experiment.measure(tasks)
    shown = [p for p in sample.photos if all((p, method) in records for method in methods)]
    experiment.expect(shown)
    # The same runs may be ranked in two ways.
    lines = [
        Line(method, ranking, columns, {photo: records[photo, method] for photo in shown})
        for method in methods
        for ranking in method.rankings
    ]
    table = table_of([line.row() for line in lines])
    experiment.csv(f"{name}.csv", table.rows, "method", without=("title", "cost"))
    per_photo = (row for photo in shown for row in photo_rows(sample, lines, photo))
    experiment.csv(f"{name}-photos.csv", per_photo)
    experiment.csv(f"{name}-curves.csv", (point for line in lines for point in line.points()))
    title = f"{sample.model_name}, medians over {count(len(shown), 'photo')}"
    experiment.figure(f"{name}.png", lambda: draw(lines, title))
    experiment.page(table, remarks_on(sample, shown), **sample.about())


def measure(sample: Sample, columns: Sequence[str], item: tuple[Photo, Method]) -> Record:
    """Explain a photo for each objective, and measure the curves."""
    photo, method = item
    x = sample.input_of(photo)
    record: Record = {}
    for objective in sample.objectives:
        a, cost = sample.explain(x, photo.target, method, objective, number=photo.number)
        record[objective] = {**cost, "curves": {}}
        for ranking in method.rankings:
            options: dict[str, Any] = {
                "target": photo.target,
                "baseline": sample.settings["baseline"],
                "ranking": ranking,
                "points": sample.settings["points"],
            }
            own = information_curves(sample.model, x, a, **options)
            curves = {"sic": own["softmax"], "lic": own["loss"]}
            if SECOND in columns:
                options["judge"] = sample.judge
                curves[SECOND] = softmax_information_curve(sample.model, x, a, **options)
            record[objective]["ranking"] = curves["sic"].settings["ranking"]
            record[objective]["curves"][str(ranking)] = {
                column: curves[column].to_dict() | {"settings": {}}
                for column in columns
                if OBJECTIVE_OF[column] == objective
            }
    return record


@dataclass(frozen=True)
class Line:
    """A line of the table: a method, how it is ranked, and its results on all photos."""

    method: Method
    ranking: str | None
    columns: Sequence[str]
    records: Mapping[Photo, Record]

    @property
    def title(self) -> str:
        """The method's title, with its ranking where that is the second one."""
        return self.method.title + (", by absolute score" if self.ranking == "absolute" else "")

    def curve(self, photo: Photo, column: str) -> Curve:
        """One curve of a photo."""
        curves = self.records[photo][OBJECTIVE_OF[column]]["curves"]
        return Curve.from_dict(curves[str(self.ranking)][column])

    @cached_property
    def curves(self) -> dict[str, list[Curve]]:
        """From a column to the curves of the photos; the judge's of those where it agrees."""
        photos = {
            column: [p for p in self.records if p.agreed or column != SECOND]
            for column in self.columns
        }
        return {
            column: [self.curve(photo, column) for photo in each]
            for column, each in photos.items()
            if each
        }

    @cached_property
    def medians(self) -> dict[str, Curve]:
        """From a column to the median curve."""
        return {column: median_curve(each) for column, each in self.curves.items()}

    def row(self) -> Record:
        """The line's numbers."""
        records = list(self.records.values())
        names = {c: OBJECTIVE_OF[c] for c in self.columns if c != SECOND}
        costs = {c: median(r[name]["gradients"] for r in records) for c, name in names.items()}
        one = next(iter(records[0].values()))
        row: Record = {
            "method": self.method.name,
            "ranking": self.ranking or one["ranking"],
            "title": self.title,
            "setting": each_of({c: records[0][name]["setting"] for c, name in names.items()}),
            "cost": each_of(costs),
            "gradients": median(costs.values()),
            **{f"gradients_{column}": number for column, number in costs.items()},
        }
        first = self.ranking == self.method.rankings[0]
        for column, curves in self.curves.items():
            row[column] = self.medians[column].auc
            row[f"{column}_error"] = standard_error(curves)
            row[f"paper_{column}"] = self.method.paper.get(column) if first else None
        row["seconds"] = median(each["seconds"] for r in records for each in r.values())
        row["photos"] = len(records)
        return row

    def points(self) -> Iterator[Record]:
        """The points of the median curves."""
        name = self.method.name + ("-absolute" if self.ranking == "absolute" else "")
        for i, fraction in enumerate(next(iter(self.medians.values())).fractions.tolist()):
            values = {column: float(curve.values[i]) for column, curve in self.medians.items()}
            yield {"method": name, "fraction": fraction, **values}


def photo_rows(sample: Sample, lines: Sequence[Line], photo: Photo) -> Iterator[Record]:
    """The numbers of one photo, for every line."""
    names = sample.model.classes
    for line in lines:
        records = list(line.records[photo].values())
        yield {
            "method": line.method.name,
            "ranking": line.ranking or records[0]["ranking"],
            "photo": photo.path.name,
            "label": None if photo.label is None else names[photo.label],
            "class": names[photo.target],
            "probability": photo.probability,
            "judge_agrees": None if photo.judge_target is None else int(photo.agreed),
            "judge_probability": photo.judge_probability,
            "gradients": median(r["gradients"] for r in records),
            "seconds": median(r["seconds"] for r in records),
            **{column: line.curve(photo, column).auc for column in line.columns},
        }


def table_of(rows: Sequence[Record]) -> Table:
    """The table without the columns that no line has a number for."""
    columns = {
        key: head
        for key, head in HEADS.items()
        if key in ("title", "setting") or any(row.get(key) is not None for row in rows)
    }
    return Table(columns, rows, {"cost": "{:,.0f}", "paper_sic": "{:.4f}", "paper_lic": "{:.4f}"})


def remarks_on(sample: Sample, shown: Sequence[Photo]) -> list[str]:
    """The setting in sentences."""
    settings = sample.settings
    remarks = [
        f"{count(len(shown), 'photo')} ({sample.source}; the paper: "
        f"{settings['paper']['photos']:,} of ImageNet), {sample.model_name}, "
        f"{settings['baseline']} baseline, {settings['points']} points; the area under the median "
        "curve. Gradients are per photo and objective. ± is the standard error of the area, by "
        "resampling the photos."
    ]
    if sample.judge is not None:
        agreed = sum(photo.agreed for photo in shown)
        remarks.append(
            f"Second opinion: the same masks shown to {sample.judge_name}, over the "
            f"{count(agreed, 'photo')} for which it predicts the same class; not in the paper."
        )
    if sample.wrong:
        remarks.append(
            f"The label is not the predicted class: {listed(sample.wrong)}. As in the paper these "
            "photos count, and the predicted class is explained."
        )
    return remarks


def draw(lines: Sequence[Line], title: str) -> Figure:
    """The median curves, one diagram for each column."""
    columns = list(dict.fromkeys(column for line in lines for column in line.medians))
    longest = max(len(line.title) for line in lines)
    wide = 5.1 + 0.06 * max(longest - 40, 0)  # A long legend squeezes its diagram.
    figure = canvas.new_figure(wide * len(columns), 4.5 + 0.21 * len(lines))
    canvas.heading(figure, title, 11)
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for ax, column in zip(axes, columns, strict=True):
        draw_curves({line.title: line.medians[column] for line in lines}, ax=ax)
        ax.set_ylim(bottom=0)
        heading, quantity = PANELS[column]
        canvas.title(ax, heading)
        canvas.labels(ax, ax.get_xlabel(), quantity)
    return figure


def each_of(by: Mapping[str, Any]) -> Any:
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
