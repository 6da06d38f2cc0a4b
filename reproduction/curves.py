"""Information curves over many photos: Figure 2 of the paper (sic) and the appendix's ResNet50.

For every photo and method the class is explained once per objective: the softmax objective for the
SIC and the second opinion, the log-likelihood objective for the LIC, as in the paper (Section 5.1,
"Top-class attribution" and "Loss attribution"). A method's number is the area under the median of
its curves, median over photos at each share kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from greedypig.metrics.curves import information_curves_many
from greedypig.results.curve import Curve, aligned, median_curve
from greedypig.results.wording import count, kept_settings, listed, setting
from greedypig.tensors.api import explain_many

from .job import Batch, Record, Task, in_turn
from .output import Files, Table
from .photos import Photo, PhotoJob
from .settings import Contender
from .sheets import Panel, curve_sheet

SECOND = "second_opinion"
COLUMNS = {"sic": ("softmax", "softmax"), "lic": ("log-likelihood", "loss"),
           SECOND: ("softmax", SECOND)}  # fmt: skip
"""From a column of the table to its objective and its kind of curve."""
RESAMPLES = 400
HEADS = {
    "title": "method", "setting": "setting", "cost": "gradients",
    "paper_sic": "SIC AUC ↑, paper", "sic": "SIC AUC ↑, ours",
    "paper_lic": "LIC AUC ↓, paper", "lic": "LIC AUC ↓, ours",
    SECOND: "second opinion ↑, ours",
}  # fmt: skip
PANELS = {
    "sic": ("Softmax information curve ↑", "probability of the class"),
    "lic": ("Loss information curve ↓", "KL divergence from the whole photo's answer (nats)"),
    SECOND: ("Second opinion ↑", "probability of the class, by the judge"),
}


class Curves(PhotoJob):
    """Curves of every method on every photo, and their medians."""

    FILES = ("{}.md", "{}.png", "{}.csv", "{}-photos.csv", "{}-curves.csv")

    JUDGED = True

    @property
    def columns(self) -> Iterator[tuple[str, str, str]]:
        """(column, objective, kind of curve) of what is measured."""
        for column, (objective, kind) in COLUMNS.items():
            judged = column != SECOND or self.networks.judge is not None
            if objective in self.objectives and judged:
                yield column, objective, kind

    def batches(self) -> Iterator[Batch]:
        for contender, photos in in_turn(self.sample.photos, self.contenders):
            for objective in self.objectives:
                tasks = tuple(
                    Task(self.path(photo, contender, objective), photo, str(photo.path))
                    for photo in photos
                )
                names = listed([photo.path.name for photo in photos], most=3)
                yield Batch(f"{contender.name}, {objective}: {names}", tasks,
                            partial(self.measure, contender, objective))  # fmt: skip

    def path(self, photo: Photo, contender: Contender, objective: str) -> Path:
        """The file of a photo's curves."""
        judge = self.networks.judge_fingerprint if objective == "softmax" else ""
        return self.place(
            photo.key, f"{contender.name}.{objective}", self.networks.fingerprint, judge,
            contender.meaning(objective), contender.rankings, self.more["baseline"],
            self.more["points"], self.request.seed,
        )  # fmt: skip

    def measure(
        self, contender: Contender, objective: str, photos: Sequence[Photo]
    ) -> Iterator[Record]:
        """The curves of some photos, explained side by side."""
        model, request = self.networks.model, self.request
        xs = [self.networks.read(photo.path) for photo in photos]
        common: dict[str, Any] = {
            "target": [photo.target for photo in photos], "baseline": self.more["baseline"],
            "batch_size": request.batch_size,
        }  # fmt: skip
        attributions = list(explain_many(model, xs, objective=objective, seed=request.seed,
                                         method=contender.method(objective), **common))  # fmt: skip
        judge = self.networks.judge if objective == "softmax" else None
        curves: dict[str, list[dict[str, Curve]]] = {}
        for ranking in contender.rankings:
            options = common | {"ranking": ranking, "points": self.more["points"]}
            own = list(information_curves_many(model, xs, attributions, **options))
            if judge is not None:
                second = information_curves_many(model, xs, attributions, judge=judge, **options)
                own = [{**mine, SECOND: other["softmax"]}
                       for mine, other in zip(own, second, strict=True)]  # fmt: skip
            curves[ranking or ""] = own
        for i, (photo, a) in enumerate(zip(photos, attributions, strict=True)):
            first = next(iter(curves.values()))[i]["softmax"]
            yield {
                "photo": photo.path.name, "method": contender.name, "objective": objective,
                "target": photo.target, "gradients": a.gradients_used,
                "seconds": round(a.seconds, 3), "settings": kept_settings(a),
                "ranking": first.settings["ranking"], "fractions": _rounded(first.fractions),
                "curves": {
                    ranking: {kind: {"values": _rounded(c.values), "full": c.full}
                              for kind, c in each[i].items()}
                    for ranking, each in curves.items()
                },
            }  # fmt: skip

    @cached_property
    def records(self) -> dict[Photo, dict[tuple[str, str], Record]]:
        """From a photo that every method explained to its records by (method, objective)."""
        complete = {}
        for photo in self.sample.photos:
            records = {
                (c.name, objective): self.read(self.path(photo, c, objective))
                for c in self.contenders
                for objective in self.objectives
            }
            if all(records.values()):
                complete[photo] = {key: record or {} for key, record in records.items()}
        return complete

    @property
    def agreed(self) -> list[Photo]:
        """Photos whose class the judge predicts too."""
        return [photo for photo in self.records if photo.agreed]

    def curves(self, contender: Contender, ranking: str | None) -> dict[str, list[Curve]]:
        """From a column to the curves of the photos."""
        curves = {}
        for column, objective, kind in self.columns:
            photos = self.agreed if column == SECOND else list(self.records)
            records = [self.records[photo][contender.name, objective] for photo in photos]
            if records:
                curves[column] = aligned([_curve(r, ranking, kind) for r in records])
        return curves

    def table(self) -> Table:
        rows = []
        if self.records:
            rows = [self._row(c, ranking) for c in self.contenders for ranking in c.rankings]
        columns = {
            key: head
            for key, head in HEADS.items()
            if key in ("title", "setting") or any(row.get(key) is not None for row in rows)
        }
        formats = {"cost": "{:,.0f}", "paper_sic": "{:.4f}", "paper_lic": "{:.4f}"}
        return Table(columns, rows, formats)

    def _row(self, contender: Contender, ranking: str | None) -> Record:
        by = {column: [self.records[photo][contender.name, objective] for photo in self.records]
              for column, objective, _ in self.columns if column != SECOND}  # fmt: skip
        records = [record for each in by.values() for record in each]
        cost = {column: median(r["gradients"] for r in each) for column, each in by.items()}
        row: Record = {
            "method": contender.name, "ranking": ranking or records[0]["ranking"],
            "title": _title(contender, ranking),
            "setting": _each({column: setting(each[0]["settings"]) for column, each in by.items()}),
            "cost": _each(cost), "gradients": median(r["gradients"] for r in records),
        } | {f"gradients_{column}": number for column, number in cost.items()}  # fmt: skip
        curves = self.curves(contender, ranking)
        for column, _, _ in self.columns:
            each = curves.get(column)
            row[column] = None if each is None else median_curve(each).auc
            row[f"{column}_error"] = None if each is None else _error(each)
            first = ranking == contender.rankings[0]
            row[f"paper_{column}"] = contender.paper.get(column) if first else None
        row["seconds"] = median(r["seconds"] for r in records)
        row["photos"] = len(self.records)
        return row

    def about(self) -> Record:
        return {
            "photos": len(self.records), "photos_agreed": len(self.agreed),
            "photos_wrong": len(self.sample.wrong), "photos_paper": self.settings.paper["photos"],
            "model": self.networks.name, "judge": self.networks.judge_name,
        }  # fmt: skip

    def remarks(self) -> list[str]:
        networks = self.networks
        remarks = [
            f"{count(len(self.records), 'photo')} ({self.sample.source}; the paper: "
            f"{self.settings.paper['photos']:,} of ImageNet), {networks.name}, "
            f"{self.more['baseline']} baseline, {self.more['points']} points; the area under the "
            "median curve. Gradients are per photo and objective."
        ]
        if networks.judge_name:
            remarks.append(
                f"Second opinion: the same masks shown to {networks.judge_name}, over the "
                f"{count(len(self.agreed), 'photo')} for which it predicts the same class; not in "
                "the paper."
            )
        elif networks.why_no_judge:
            remarks.append(f"No second opinion: {networks.why_no_judge}.")
        if self.sample.wrong:
            names = listed([photo.path.name for photo in self.sample.wrong])
            remarks.append(
                f"The label is not the predicted class: {names}. As in the paper these photos "
                "count, and the predicted class is explained."
            )
        return remarks

    def closing(self) -> list[str]:
        errors = "± is the standard error of the area, by resampling the photos."
        return [errors, *super().closing()]

    def write(self, files: Files, table: Table) -> None:
        files.csv(f"{self.name}.csv", table.rows, without=("title", "cost"))
        files.csv(f"{self.name}-photos.csv", self._per_photo())
        medians = {
            (contender, ranking): {
                column: median_curve(each)
                for column, each in self.curves(contender, ranking).items()
            }
            for contender in self.contenders
            for ranking in contender.rankings
        }
        files.csv(f"{self.name}-curves.csv", _points(medians))
        lines: dict[str, dict[str, Curve]] = {}
        for (contender, ranking), curves in medians.items():
            for column, curve in curves.items():
                lines.setdefault(column, {})[_title(contender, ranking)] = curve
        panels = [Panel(*PANELS[column], curves) for column, curves in lines.items()]
        title = f"{self.networks.name}, medians over {count(len(self.records), 'photo')}"
        files.figure(f"{self.name}.png", lambda: curve_sheet(panels, title=title))

    def _per_photo(self) -> Iterator[Record]:
        names = self.networks.model.classes
        for photo, records in self.records.items():
            for c in self.contenders:
                for ranking in c.rankings:
                    row: Record = {
                        "method": c.name, "photo": photo.path.name,
                        "ranking": ranking or records[c.name, self.objectives[0]]["ranking"],
                        "label": None if photo.label is None else names[photo.label],
                        "class": names[photo.target], "probability": photo.probability,
                        "judge_agrees": None if photo.judge_target is None else int(photo.agreed),
                        "judge_probability": photo.judge_probability,
                    }  # fmt: skip
                    for column, objective, kind in self.columns:
                        record = records[c.name, objective]
                        row[column] = _curve(record, ranking, kind).auc
                        row |= {key: record[key] for key in ("gradients", "seconds")}
                    yield row


def _title(contender: Contender, ranking: str | None) -> str:
    """A line's name: the same runs may be ranked in two ways."""
    return contender.title + (", by absolute score" if ranking == "absolute" else "")


def _each(by: Mapping[str, Any]) -> Any:
    """The value, where it is the same for all columns; else a text with the value of each."""
    if len(set(by.values())) == 1:
        return next(iter(by.values()))
    words = {c: value if isinstance(value, str) else f"{value:,.0f}" for c, value in by.items()}
    return "; ".join(f"{column.upper()}: {text}" for column, text in words.items())


def _curve(record: Record, ranking: str | None, kind: str) -> Curve:
    curve = record["curves"][ranking or ""][kind]
    name = "loss" if kind == "loss" else "softmax"
    return Curve(record["fractions"], curve["values"], name, curve["full"])


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{v:.7g}") for v in values.tolist()]


def _error(curves: Sequence[Curve]) -> float | None:
    """Standard error of the median curve's area, by resampling the photos."""
    if len(curves) < 2:
        return None
    values = torch.stack([c.values for c in curves])
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    areas = [torch.trapezoid(values[d].quantile(0.5, 0), curves[0].fractions) for d in draws]
    return float(torch.stack(areas).std())


def _points(medians: Mapping[Any, Mapping[str, Curve]]) -> Iterator[Record]:
    for (contender, ranking), curves in medians.items():
        name = contender.name + ("" if ranking in (None, "order") else f"-{ranking}")
        first = next(iter(curves.values()))
        for i, fraction in enumerate(first.fractions.tolist()):
            yield {"method": name, "fraction": fraction,
                   **{column: float(c.values[i]) for column, c in curves.items()}}  # fmt: skip
