"""Information curves over many photos: what the figures of SIC and LIC have in common.

For every photo and method the class is explained once per objective: the softmax objective for the
SIC and the second opinion, the log-likelihood objective for the LIC, as in the paper (Section 5.1,
"Top-class attribution" and "Loss attribution"). A method's number is the area under the median of
its curves, median over photos at each share kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from greedypig.core.attribution import Attribution
from greedypig.core.errors import InvalidInput
from greedypig.metrics.curves import information_curves_many
from greedypig.models import ImageModel
from greedypig.plots import Panel, curve_sheet
from greedypig.results.curve import Curve, aligned, median_curve
from greedypig.results.wording import count, kept_settings, listed, setting
from greedypig.tensors.api import explain_many

from . import cache
from .cache import Shelf
from .outputs import Written
from .photos import Networks, Sample, Seen, survey
from .request import Request, Result, Table
from .resumable import Batch, Task, carry_out, in_turn
from .settings import Contender, Settings, quick_look

JUDGES = {"softmax": ("sic", "softmax"), "log-likelihood": ("lic", "loss")}
"""From an objective to its column and its kind of curve."""
SECOND = "second_opinion"
RESAMPLES = 400
HEADS = {
    "title": "method", "setting": "setting", "cost": "gradients",
    "paper_sic": "SIC AUC ↑, paper", "sic": "SIC AUC ↑, ours",
    "paper_lic": "LIC AUC ↓, paper", "lic": "LIC AUC ↓, ours",
    SECOND: "second opinion ↑, ours",
}  # fmt: skip


def run(request: Request, settings: Settings) -> Result:
    """Explain, measure, aggregate; the first of several processes writes the files."""
    job = Job.of(request, settings)
    carry_out(list(job.batches()), request)
    found, failed = job.found()
    if not found:
        raise InvalidInput(
            f"Expected photos that every method explains (got none of {len(job.sample.seen)}). "
            f"The first: {failed[0][1]}"
        )
    result = job.result(found, failed)
    return job.written(result, found) if request.group.first else result


@dataclass(frozen=True, eq=False)
class Job:
    """One run: the networks, the photos, and what is measured on them."""

    request: Request
    settings: Settings
    networks: Networks
    sample: Sample
    contenders: tuple[Contender, ...]
    objectives: tuple[str, ...]
    shelf: Shelf

    @staticmethod
    def of(request: Request, settings: Settings) -> Job:
        """Check the request, load the networks, look at the photos."""
        objectives = tuple(settings.more["objectives"])
        if request.objective is not None:
            if request.objective not in objectives:
                raise InvalidInput(
                    f"Expected an objective of {settings.name}: {', '.join(objectives)} "
                    f"(got {request.objective!r})."
                )
            objectives = (request.objective,)
        networks = Networks.of(request, settings)
        contenders = settings.chosen(request.methods, request.budget, networks.shape)
        shelf = Shelf(request.out / "rows" / settings.name)
        sample = survey(request, networks, shelf)
        return Job(request, settings, networks, sample, contenders, objectives, shelf)

    def batches(self) -> Iterator[Batch]:
        """The work, cut so that a stopped run leaves whole comparisons."""
        for contender, seen in in_turn(self.sample.seen, self.contenders):
            for objective in self.objectives:
                tasks = tuple(Task(self.place(s, contender, objective), s) for s in seen)
                names = listed([s.path.name for s in seen], most=3)
                measure = partial(self.measured, contender, objective)
                yield Batch(f"{contender.name}, {objective}: {names}", tasks, measure)

    def place(self, seen: Seen, contender: Contender, objective: str) -> Path:
        """Where the result of a photo lies."""
        judge = self.networks.judge_fingerprint if objective == "softmax" else ""
        return self.shelf.place(
            seen.key, f"{contender.name}.{objective}", self.networks.fingerprint, judge,
            contender.meaning(objective), contender.rankings, self.settings.more["baseline"],
            self.settings.more["points"], self.request.seed,
        )  # fmt: skip

    def measured(
        self, contender: Contender, objective: str, photos: Sequence[Seen]
    ) -> Iterator[dict[str, Any]]:
        """The records of some photos, explained side by side."""
        model, request = self.networks.model, self.request
        xs = [self.networks.read(seen.path) for seen in photos]
        targets = [seen.target for seen in photos]
        common = {"baseline": self.settings.more["baseline"], "batch_size": request.batch_size}
        found = list(
            explain_many(model, xs, target=targets, objective=objective, seed=request.seed,
                         method=contender.method(objective), **common)
        )  # fmt: skip
        curves: list[dict[str, dict[str, Curve]]] = [{} for _ in photos]
        judges: list[tuple[str, ImageModel | None]] = [("own", None)]
        if objective == "softmax" and self.networks.judge is not None:
            judges.append((SECOND, self.networks.judge))
        for ranking in contender.rankings:
            for name, judge in judges:
                each = information_curves_many(
                    model, xs, found, target=targets, judge=judge, ranking=ranking,
                    points=self.settings.more["points"], **common,
                )  # fmt: skip
                for own, measured in zip(curves, each, strict=True):
                    own.setdefault(str(ranking or ""), {}).update(_named(measured, name))
        for seen, a, own in zip(photos, found, curves, strict=True):
            yield _record(seen, contender, objective, a, own)

    def found(self) -> tuple[Found, list[tuple[str, str]]]:
        """Results of the photos that every method explained; the others with the reason."""
        failed = list(self.sample.broken)
        found: Found = {}
        for seen in self.sample.seen:
            records = {
                (c.name, objective): cache.read(self.place(seen, c, objective))
                for c in self.contenders
                for objective in self.objectives
            }
            bad = next((r for r in records.values() if r is None or "error" in r), {})
            if bad == {}:
                found[seen] = {key: r for key, r in records.items() if r is not None}
            else:
                failed.append((str(seen.path), (bad or {}).get("error", "It was not measured.")))
        return found, failed

    def result(self, found: Found, failed: Sequence[tuple[str, str]]) -> Result:
        """The table of medians."""
        rows = [self._row(found, c, r) for c in self.contenders for r in c.rankings]
        columns = {
            key: head
            for key, head in HEADS.items()
            if key in ("title", "setting") or any(row.get(key) is not None for row in rows)
        }
        formats = {"cost": "{:,.0f}", "paper_sic": "{:.4f}", "paper_lic": "{:.4f}"}
        errors = {c: f"{c}_error" for c in ("sic", "lic", SECOND)}
        about = {
            "photos": len(found),
            "photos_agreed": len(_agreed(found)),
            "photos_wrong": len(self.sample.wrong),
            "model": self.networks.name,
            "judge": self.networks.judge_name,
            "seed": self.request.seed,
            "budget": self.request.budget,
            "photos_paper": self.settings.paper["photos"],
        }
        table = Table(columns, rows, formats, errors)
        return Result(self.settings.name, self.settings.title, table,
                      self._remarks(found, ", ± its standard error (photos resampled)"), failed,
                      about=about,
                      spoken=self._remarks(found)[:2] + quick_look(self.contenders))  # fmt: skip

    def curves(self, found: Found, contender: Contender, ranking: str | None) -> dict[str, Curve]:
        """The median curves of a contender: "sic", "lic", "second_opinion"."""
        made = {}
        for column, kind, objective in self._kinds():
            photos = _agreed(found) if column == SECOND else list(found)
            each = [
                _curve(found[seen][contender.name, objective], ranking, kind) for seen in photos
            ]
            if each:
                made[column] = median_curve(aligned(each))
        return made

    def _kinds(self) -> Iterator[tuple[str, str, str]]:
        """(column, kind of curve, objective) of all that is measured."""
        for objective in self.objectives:
            column, kind = JUDGES[objective]
            yield column, kind, objective
        if "softmax" in self.objectives and self.networks.judge is not None:
            yield SECOND, SECOND, "softmax"

    def _row(self, found: Found, contender: Contender, ranking: str | None) -> dict[str, Any]:
        by = {JUDGES[o][0]: [records[contender.name, o] for records in found.values()]
              for o in self.objectives}  # fmt: skip
        of = [record for records in by.values() for record in records]
        paid = {column: median(r["gradients"] for r in records) for column, records in by.items()}
        row: dict[str, Any] = {
            "method": contender.name, "ranking": ranking or of[0]["ranking"],
            "title": _title(contender, ranking),
            "setting": _each({c: setting(records[0]["settings"]) for c, records in by.items()}),
            "cost": _each(paid), "gradients": median(r["gradients"] for r in of),
        }  # fmt: skip
        row |= {f"gradients_{column}": number for column, number in paid.items()}
        usual = ranking == contender.rankings[0]
        for column, curve in self.curves(found, contender, ranking).items():
            row[column] = curve.auc
        for column, kind, objective in self._kinds():
            photos = _agreed(found) if column == SECOND else list(found)
            records = [found[seen][contender.name, objective] for seen in photos]
            row[f"{column}_error"] = _error([_curve(r, ranking, kind) for r in records])
            row[f"paper_{column}"] = contender.paper.get(column) if usual else None
        row["seconds"] = median(r["seconds"] for r in of)
        row["photos"] = len(found)
        return row

    def _remarks(self, found: Found, errors: str = "") -> list[str]:
        settings, networks = self.settings, self.networks
        remarks = [
            f"{count(len(found), 'photo')} ({self.sample.source}; the paper: "
            f"{settings.paper['photos']:,} of ImageNet), {networks.name}, "
            f"{settings.more['baseline']} baseline, {settings.more['points']} points; the area "
            f"under the median curve{errors}. Gradients are per photo and objective.",
        ]
        if networks.judge_name:
            remarks.append(
                f"Second opinion: the same masks shown to {networks.judge_name}, over the "
                f"{count(len(_agreed(found)), 'photo')} where it sees the same class; not in the "
                "paper."
            )
        elif networks.why_no_judge:
            remarks.append(f"No second opinion: {networks.why_no_judge}.")
        wrong = self.sample.wrong
        if wrong:
            names = ", ".join(seen.path.name for seen in wrong[:12])
            more = f" and {len(wrong) - 12} more" if len(wrong) > 12 else ""
            remarks.append(
                f"Labelled otherwise than predicted: {names}{more}. As in the paper they are "
                "explained by the class the network predicts, and count."
            )
        if networks.name != settings.model:
            remarks.append(f"The network is {networks.name} here, {settings.model} in the paper.")
        return remarks + settings.closing(quick_look(self.contenders))

    def written(self, result: Result, found: Found) -> Result:
        """The files of the result."""
        name, out = self.settings.name, Written(self.request, result)
        for_people = ("title", "cost")
        rows = [{k: v for k, v in row.items() if k not in for_people} for row in result.table.rows]
        out.csv(f"{name}.csv", rows)
        out.csv(f"{name}-photos.csv", list(self._per_photo(found)))
        lines: dict[str, dict[str, Curve]] = {}
        points: list[dict[str, Any]] = []
        for contender in self.contenders:
            for ranking in contender.rankings:
                medians = self.curves(found, contender, ranking)
                tag = contender.name + ("" if ranking in (None, "order") else f"-{ranking}")
                for column, curve in medians.items():
                    lines.setdefault(column, {})[_title(contender, ranking)] = curve
                points += _points(tag, medians)
        out.csv(f"{name}-curves.csv", points)
        panels = [Panel(*PANELS[column], curves) for column, curves in lines.items()]
        title = f"{self.networks.name}, medians over {count(len(found), 'photo')}"
        out.figure(f"{name}.png", lambda: curve_sheet(panels, title=title))
        return out.page(f"{name}.md")

    def _per_photo(self, found: Found) -> Iterator[dict[str, Any]]:
        names = self.networks.model.classes
        for seen, records in found.items():
            for c in self.contenders:
                for ranking in c.rankings:
                    usual = records[c.name, self.objectives[0]]["ranking"]
                    row: dict[str, Any] = {
                        "method": c.name, "ranking": ranking or usual, "photo": seen.path.name,
                        "label": None if seen.label is None else names[seen.label],
                        "class": names[seen.target], "probability": seen.probability,
                        "judge_agrees": None if seen.judge_target is None else int(seen.agreed),
                        "judge_probability": seen.judge_probability,
                    }  # fmt: skip
                    for column, kind, objective in self._kinds():
                        record = records[c.name, objective]
                        row[column] = _curve(record, ranking, kind).auc
                        row["gradients"], row["seconds"] = record["gradients"], record["seconds"]
                    yield row


Found = dict[Seen, dict[tuple[str, str], dict[str, Any]]]
"""From a photo to its records by (method, objective)."""
PANELS = {
    "sic": ("Softmax information curve ↑", "probability of the class"),
    "lic": ("Loss information curve ↓", "KL divergence from the whole photo's answer (nats)"),
    SECOND: ("Second opinion ↑", "probability of the class, by the judge"),
}


def _title(contender: Contender, ranking: str | None) -> str:
    """A line's name: the same runs may be ranked in two ways."""
    return contender.title + (", by absolute score" if ranking == "absolute" else "")


def _each(by: Mapping[str, Any]) -> Any:
    """What is the same for both curves, else a text that names each: a budget buys one objective
    other rounds than the other."""
    if len(set(by.values())) == 1:
        return next(iter(by.values()))
    words = {c: value if isinstance(value, str) else f"{value:,.0f}" for c, value in by.items()}
    return "; ".join(f"{column.upper()}: {text}" for column, text in words.items())


def _record(
    seen: Seen,
    contender: Contender,
    objective: str,
    a: Attribution,
    curves: Mapping[str, Mapping[str, Curve]],
) -> dict[str, Any]:
    first = next(iter(next(iter(curves.values())).values()))
    return {
        "photo": seen.path.name, "method": contender.name, "objective": objective,
        "target": seen.target, "gradients": a.gradients_used, "seconds": round(a.seconds, 3),
        "settings": kept_settings(a), "ranking": first.settings["ranking"],
        "fractions": _rounded(first.fractions),
        "curves": {
            ranking: {kind: {"values": _rounded(c.values), "full": c.full}
                      for kind, c in of.items()}
            for ranking, of in curves.items()
        },
    }  # fmt: skip


def _named(measured: Mapping[str, Curve], judge: str) -> dict[str, Curve]:
    """The network's own curves under their kinds, a judge's SIC as its second opinion."""
    return dict(measured) if judge == "own" else {SECOND: measured["softmax"]}


def _curve(record: Mapping[str, Any], ranking: str | None, kind: str) -> Curve:
    found = record["curves"][ranking or ""][kind]
    name = "loss" if kind == "loss" else "softmax"
    return Curve(record["fractions"], found["values"], name, found["full"])


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{v:.7g}") for v in values.tolist()]


def _agreed(found: Found) -> list[Seen]:
    return [seen for seen in found if seen.agreed]


def _error(curves: Sequence[Curve]) -> float | None:
    """Standard error of the median curve's area, by resampling the photos."""
    if len(curves) < 2:
        return None
    curves = aligned(curves)
    values = torch.stack([c.values for c in curves])
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    areas = torch.stack([
        torch.trapezoid(values[pick].quantile(0.5, 0), curves[0].fractions) for pick in picks
    ])  # fmt: skip
    return float(areas.std())


def _points(tag: str, curves: Mapping[str, Curve]) -> Iterator[dict[str, Any]]:
    first = next(iter(curves.values()), None)
    for i, fraction in enumerate([] if first is None else first.fractions.tolist()):
        yield {"method": tag, "fraction": fraction,
               **{column: float(c.values[i]) for column, c in curves.items()}}  # fmt: skip
