"""The table of `greedypig compare`: on the terminal, in files, on a page and as --json."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from statistics import median
from typing import Any

import greedypig as gp

from .. import metrics, plots, report
from ..results.curve import aligned
from ..results.files import write_whole
from ..results.photo_notes import COMPARED
from ..results.wording import chance, count, kept_settings, setting
from . import outputs
from .terminal import BOLD, Terminal, duration

AREAS = {"softmax": "sic_auc", "loss": "lic_auc", "second-opinion": "second_opinion_auc"}
"""From a kind of curve to the column of its area."""
NOTED = {"softmax": "curve", "loss": "loss_curve", "second-opinion": "second_opinion_curve"}
"""From a kind of curve to its key in the notes of a comparison."""
BEST = {"sic_auc": max, "lic_auc": min, "second_opinion_auc": max}
CSV_MARK = b"method,sic_auc,"
ENDINGS = ("md", "csv", "png", "gpig", "html")


@dataclass(frozen=True)
class Row:
    """One method over all photos: areas under median curves, medians of the rest."""

    numbers: Mapping[str, float]
    """Any of COMPARED."""
    curves: Mapping[str, metrics.Curve]
    kept: Mapping[str, float]
    """The probability at the printed shares, as measured."""
    setting: str
    """The rounds and steps, or noisy copies and theirs, as they were run."""

    @staticmethod
    def of(results: Sequence[gp.Attribution]) -> Row:
        """The row of a method's results."""
        curves = {kind: curve for kind in NOTED if (curve := _median(results, kind)) is not None}
        numbers: dict[str, float] = {AREAS[kind]: curve.auc for kind, curve in curves.items()}
        numbers["excess"] = median(_excess(a) for a in results)
        numbers["gradients"] = median(a.gradients_used for a in results)
        numbers["seconds"] = median(a.seconds for a in results)
        shares = results[0].about["kept"]
        kept = {share: median(a.about["kept"][share] for a in results) for share in shares}
        text = setting(kept_settings(results[0])) if results[0].gradients_used else ""
        return Row(numbers, curves, kept, text)

    def plain_curves(self) -> dict[str, dict[str, Any]]:
        """The curves by their kinds, as plain data."""
        return {
            kind: {"fractions": curve.fractions.tolist(), "values": curve.values.tolist()}
            for kind, curve in self.curves.items()
        }

    def cells(self, columns: Sequence[str]) -> list[str]:
        """The numbers of these columns as texts."""
        return [
            COMPARED[c][1].format(self.numbers[c]) if c in self.numbers else "–" for c in columns
        ]


def _median(results: Sequence[gp.Attribution], kind: str) -> metrics.Curve | None:
    noted = [a.about["curves"].get(kind) for a in results]
    if not all(noted):
        return None
    curves = [metrics.Curve(c["fractions"], c["values"], kind, c["values"][-1]) for c in noted]
    return metrics.median_curve(aligned(curves))


def _excess(a: gp.Attribution) -> float:
    best: float = max(a.about["curves"]["softmax"]["values"])
    return max(0.0, best - float(a.about["probability"]))


class Comparison:
    """Results by method and photo; every method has the same photos."""

    def __init__(self, results: Mapping[str, Mapping[Path, gp.Attribution]]) -> None:
        self.results = results
        self.photos = next(iter(results.values()), {})
        """The photos, each with its first result."""
        self.rows = {name: Row.of(list(photos.values())) for name, photos in results.items()}
        numbers = {column for row in self.rows.values() for column in row.numbers}
        self.columns = [column for column in COMPARED if column in numbers]

    def alone(self, path: Path) -> Comparison:
        """The comparison on one of the photos."""
        return Comparison({name: {path: photos[path]} for name, photos in self.results.items()})

    def noted(self) -> gp.Attribution:
        """The first method's result, with the numbers and curves of all in its notes."""
        first, *others = self.photos.values()
        notes: dict[str, Any] = {"comparison": {}}
        for name, row in self.rows.items():
            curves = {NOTED[kind]: curve for kind, curve in row.plain_curves().items()}
            if "second-opinion" in row.curves:
                curves[NOTED["second-opinion"]]["judge"] = first.about["judge"]
            notes["comparison"][name] = {**row.numbers, "kept": dict(row.kept), **curves}
        if others:
            notes["source"] = count(len(self.photos), "photo")
            notes["probability"] = median(a.about["probability"] for a in self.photos.values())
        return first.with_notes(notes)


def show(
    comparison: Comparison, terminal: Terminal, files: Sequence[Path], budget: int | None
) -> None:
    """Print the table, the best numbers in bold."""
    rows, photos, columns = comparison.rows, comparison.photos.values(), comparison.columns
    about = next(iter(photos)).about
    head = f"{count(len(photos), 'photo')}; AUC of median curves, the rest medians"
    if len(photos) == 1:
        head = f"{about['source']}: {about['class']}, probability {chance(about['probability'])}"
    terminal.say(terminal.style(terminal.wrapped(head), BOLD))
    if about["judge"]:
        whole = median(a.about["curves"]["second-opinion"]["values"][-1] for a in photos)
        text = f"second opinion by {about['judge']}: {chance(whole)} for the whole photo"
        terminal.say(terminal.wrapped(text))
    best = {c: BEST[c](row.numbers[c] for row in rows.values()) for c in columns if c in BEST}
    table = []
    for name, row in rows.items():
        cells = dict(zip(columns, row.cells(columns), strict=True))
        for column, number in best.items():
            if row.numbers[column] == number:
                cells[column] = terminal.style(cells[column], BOLD)
        table.append([name, *cells.values()])
    terminal.table(["", *(COMPARED[c][0] for c in columns)], table)
    terminal.say()
    if budget is not None:
        used = [f"{name} {row.setting}" for name, row in rows.items() if row.setting]
        terminal.say(terminal.wrapped(f"Within {count(budget, 'gradient')}: {'; '.join(used)}"))
    seconds = sum(a.seconds for of in comparison.results.values() for a in of.values())
    where, names = outputs.shown(files[0].parent), ", ".join(file.name for file in files)
    text = f"{duration(seconds)} of runs. Wrote {where}: {names}, and every result"
    terminal.say(terminal.wrapped(text))


def refuse_foreign(folder: Path) -> None:
    """Refuse to overwrite files of others, before any work is done."""
    outputs.refuse_foreign(folder / f"comparison.{ending}" for ending in ENDINGS if ending != "csv")
    outputs.refuse_foreign([folder / "comparison.csv"], CSV_MARK)


def write(
    comparison: Comparison, folder: Path, folders: Mapping[Path, Path], failed: Mapping[str, str]
) -> list[Path]:
    """The table as Markdown and CSV, the figure, and the page.

    Of several photos the page lists them, and each has its own in its folder of `folders`.
    """
    table, numbers, figure, result, page = (folder / f"comparison.{e}" for e in ENDINGS)
    a, single = comparison.noted(), len(comparison.photos) == 1
    write_whole(table, _markdown(comparison, a, failed))
    write_whole(numbers, _csv(comparison))
    files = [table, numbers]
    if importlib.util.find_spec("matplotlib") is not None:
        firsts = {name: next(iter(of.values())) for name, of in comparison.results.items()}
        outputs.save_figure(plots.comparison(firsts if single else a), figure)
        files.append(figure)
    if single:
        a.save(result)
        report.write(a, page)
        return [*files, result, page]
    pages = {}
    for path in comparison.photos:
        photo, own = comparison.alone(path).noted(), folders[path] / "comparison.html"
        report.write(photo, own)
        pages[own.relative_to(folder).as_posix()] = photo
    report.write_index(pages, page, failed=list(failed.items()), comparison=a)
    return [*files, page]


def _markdown(comparison: Comparison, a: gp.Attribution, failed: Mapping[str, str]) -> str:
    columns, photos, about = comparison.columns, comparison.photos, a.about
    judge = f"; second opinion by {about['judge']}" if about["judge"] else ""
    lines = [
        "# greedypig compare",
        "",
        f"{count(len(photos), 'photo')}, {about['model']}, {about['baseline']} baseline, "
        f"objective {about['objective']}{judge}.",
        "SIC: the class's probability with only the best features present. LIC: the distance from "
        "the whole photo's prediction, in nats. Both are areas under the median curve over the "
        "share kept.",
        "One-shot methods are ranked by absolute score, greedy methods by selection.",
        "Above full: how much higher the probability of a part is than that of the whole photo "
        "(median).",
        "",
        "| method | " + " | ".join(COMPARED[c][0] for c in columns) + " | setting |",
        "|---|" + "---:|" * len(columns) + "---|",
    ]
    for name, row in comparison.rows.items():
        lines.append(f"| {' | '.join([name, *row.cells(columns), row.setting or '–'])} |")
    lines.append("")
    for each in photos.values():
        noted = each.about
        lines.append(f"- {noted['source']}: {noted['class']}, {noted['probability']:.3f}")
    if failed:
        lines += ["", "Left out because they could not be compared:", ""]
        lines += [f"- {name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def _csv(comparison: Comparison) -> str:
    columns, text = comparison.columns, io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["method", *columns, "setting"])
    for name, row in comparison.rows.items():
        writer.writerow([name, *(row.numbers.get(c, "") for c in columns), row.setting])
    return text.getvalue()


def record(
    comparison: Comparison, args: argparse.Namespace, files: Sequence[Path]
) -> dict[str, Any]:
    """The object of --json; `order` lists the methods, best SIC first."""
    rows = comparison.rows
    everything = [a for of in comparison.results.values() for a in of.values()]
    options = ("model", "judge", "objective", "baseline", "features", "budget", "seed")
    noted = ("class", "target", "probability")
    return {
        "methods": {
            name: {**row.numbers, "setting": row.setting, "curves": row.plain_curves()}
            for name, row in rows.items()
        },
        "order": sorted(rows, key=lambda name: -rows[name].numbers["sic_auc"]),
        "photos": [
            {"photo": fspath(path), **{key: a.about[key] for key in noted}}
            for path, a in comparison.photos.items()
        ],
        "gradients": sum(a.gradients_used for a in everything),
        "seconds": sum(a.seconds for a in everything),
        "settings": {name: getattr(args, name) for name in options},
        "files": [fspath(file) for file in files],
    }
