"""`greedypig compare photo.jpg`: several methods on the same photos, by the same curves."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from os import fspath
from pathlib import Path
from statistics import median
from typing import Any

import greedypig as gp

from .. import metrics, plots, report
from ..core.methods import GreedyPIG, as_method
from ..results.curve import aligned
from ..results.files import write_whole
from ..results.photo_notes import COMPARED
from ..results.picture import compared_pictures
from ..results.wording import chance, count, kept_settings, setting
from ..tensors.methods import within
from . import outputs
from .explain import (
    PhotoRun,
    Question,
    Search,
    exit_code,
    explained,
    new_session,
    photo_names,
    reasons,
)
from .failures import UsageError
from .terminal import BOLD, Terminal, duration, styled

TITLES = {"paper": "greedy-pig (paper)", "regions": "greedy-pig (regions)"}
"""The titles of methods that are no method's own name."""
CURVES = {
    "softmax": ("sic_auc", "curve"),
    "loss": ("lic_auc", "loss_curve"),
    "second-opinion": ("second_opinion_auc", "second_opinion_curve"),
}
"""From a kind of curve to the column of its area, and to its key in a row."""
BEST = {"sic_auc": max, "lic_auc": min, "second_opinion_auc": max}
ENDINGS = ("md", "csv", "png", "gpig", "html")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run every method on every photo, print the table, write the files."""
    if args.objective == "counterfactual":
        raise UsageError(
            "Expected an objective of what is present (got --objective counterfactual): methods "
            "are compared by the prediction with only the best features, and a counterfactual is "
            "about the prediction without them. Try greedypig explain --objective counterfactual."
        )
    names = photo_names(args.photos)
    usual = f"{next(iter(names)).stem}-comparison" if len(names) == 1 else "comparison"
    folder = outputs.result_folder(args.out, usual)
    folders = dict(zip(names, outputs.stems(fspath(folder), list(names)), strict=True))
    outputs.refuse_foreign(each / "comparison.html" for each in folders.values())
    outputs.refuse_foreign(folder / f"comparison.{ending}" for ending in ENDINGS)
    runs = []
    for place, (path, name) in enumerate(names.items()):
        for method in args.methods:
            session = new_session(folders[path] / f"{_slug(method)}.gpig", args)
            search = Search(method_of(method, args.budget))
            features = gp.superpixels() if method == "regions" else None
            title = TITLES.get(method, method)
            runs.append(PhotoRun(path, name, session, search, features, title, place))
    outputs.refuse_foreign(each.session.result for each in runs)
    question = Question.of(args, terminal, ranking="absolute")
    results: dict[str, dict[Path, gp.Attribution]] = {}
    failed: dict[Path, Exception] = {}
    with terminal.bar("") as bar:
        for each, a in explained(question, runs, terminal, bar, failed):
            results.setdefault(each.method, {})[each.path] = a
    # A photo that failed with one method is left out of all.
    whole, left_out = [path for path in names if path not in failed], reasons(failed, terminal)
    errors = [{"photo": path, "error": reason} for path, reason in left_out]
    if whole:
        comparison = Comparison(
            {method: {path: photos[path] for path in whole} for method, photos in results.items()}
        )
        files = write(comparison, folder, folders, left_out)
        show(comparison, terminal, files, args.budget)
        terminal.result(record(comparison, args, files) | {"failed": errors})
    else:
        for error in errors:
            terminal.result(error)
    return exit_code(failed, len(names))


def method_of(name: str, budget: int | None) -> Any:
    """The method of that name; with a budget it takes about that many gradients."""
    if name == "paper":
        method: Any = GreedyPIG(rounds=100, steps=20, schedule="equal")
    else:
        method = as_method("greedy-pig" if name == "regions" else name)
    return method if budget is None else within(method, budget, stretch=name != "paper")


def _slug(method: str) -> str:
    """The name of a method's file."""
    return f"greedy-pig-{method}" if method in TITLES else method


class Comparison:
    """Results by method and photo; every method has the same photos."""

    def __init__(self, results: Mapping[str, Mapping[Path, gp.Attribution]]) -> None:
        self.results = results
        self.photos = next(iter(results.values()), {})
        """The photos, each with its first result."""
        self.rows = {name: _row(list(photos.values())) for name, photos in results.items()}
        """One for each method, as plain data, for the notes of a result."""
        keys = {key for row in self.rows.values() for key in row}
        self.columns = [column for column in COMPARED if column in keys]

    def alone(self, path: Path) -> Comparison:
        """The comparison on one of the photos."""
        return Comparison({name: {path: photos[path]} for name, photos in self.results.items()})

    def noted(self) -> gp.Attribution:
        """The first method's result, with the rows and, of one photo, the pictures of all."""
        first, *others = self.photos.values()
        notes: dict[str, Any] = {"comparison": self.rows}
        if others:
            notes["source"] = count(len(self.photos), "photo")
            notes["probability"] = median(a.about["probability"] for a in self.photos.values())
            return first.with_notes(notes)
        firsts = [next(iter(photos.values())) for photos in self.results.values()]
        return first.with_notes(notes, **compared_pictures(firsts))

    def cells(self, name: str) -> list[str]:
        """A method's numbers as texts."""
        row = self.rows[name]
        return [COMPARED[c][1].format(row[c]) if c in row else "–" for c in self.columns]

    def setting(self, name: str) -> str:
        """A method's rounds and steps, or noisy copies and theirs, as they were run."""
        first = next(iter(self.results[name].values()))
        return setting(kept_settings(first)) if first.gradients_used else ""


def _row(results: Sequence[gp.Attribution]) -> dict[str, Any]:
    """A method over all photos: areas under median curves, medians of the rest."""
    row: dict[str, Any] = {}
    for kind, (column, key) in CURVES.items():
        curve = _median(results, kind)
        if curve is not None:
            row[column] = curve.auc
            row[key] = {"fractions": curve.fractions.tolist(), "values": curve.values.tolist()}
    if "second_opinion_curve" in row:
        row["second_opinion_curve"]["judge"] = results[0].about["judge"]
    row["excess"] = median(_excess(a) for a in results)
    row["gradients"] = median(a.gradients_used for a in results)
    row["seconds"] = median(a.seconds for a in results)
    kept = [a.about["kept"] for a in results]
    row["kept"] = {share: median(each[share] for each in kept) for share in kept[0]}
    return row


def _median(results: Sequence[gp.Attribution], kind: str) -> metrics.Curve | None:
    noted = [a.about["curves"].get(kind) for a in results]
    if not all(noted):
        return None
    curves = [metrics.Curve(c["fractions"], c["values"], kind, c["values"][-1]) for c in noted]
    return metrics.median_curve(aligned(curves))


def _excess(a: gp.Attribution) -> float:
    best: float = max(a.about["curves"]["softmax"]["values"])
    return max(0.0, best - float(a.about["probability"]))


def show(
    comparison: Comparison, terminal: Terminal, files: Sequence[Path], budget: int | None
) -> None:
    """Print the table, the best numbers in bold."""
    rows, photos, columns = comparison.rows, comparison.photos.values(), comparison.columns
    about = next(iter(photos)).about
    head = f"{count(len(photos), 'photo')}; AUC of median curves, the rest medians"
    if len(photos) == 1:
        head = f"{about['source']}: {about['class']}, probability {chance(about['probability'])}"
    terminal.say(head, BOLD)
    if about["judge"]:
        whole = median(a.about["curves"]["second-opinion"]["values"][-1] for a in photos)
        terminal.say(f"second opinion by {about['judge']}: {chance(whole)} for the whole photo")
    best = {c: BEST[c](row[c] for row in rows.values()) for c in columns if c in BEST}
    table = []
    for name, row in rows.items():
        cells = zip(columns, comparison.cells(name), strict=True)
        bold = {c for c in best if row[c] == best[c]}
        table.append(
            [styled(name), *(styled(cell, BOLD if c in bold else "") for c, cell in cells)]
        )
    terminal.table(["", *(COMPARED[c][0] for c in columns)], table)
    if budget is not None:
        used = "; ".join(f"{name} {text}" for name in rows if (text := comparison.setting(name)))
        terminal.say(f"Within {count(budget, 'gradient')}: {used}")
    seconds = sum(a.seconds for of in comparison.results.values() for a in of.values())
    terminal.say(f"{duration(seconds)} of runs; {outputs.wrote(files)}, and every result")


def write(
    comparison: Comparison,
    folder: Path,
    folders: Mapping[Path, Path],
    left_out: Sequence[tuple[str, str]],
) -> list[Path]:
    """The table as Markdown and CSV, the figure, and the page.

    Of several photos the page lists them, and each has its own in its folder of `folders`.
    """
    table, numbers, figure, result, page = (folder / f"comparison.{e}" for e in ENDINGS)
    a, single = comparison.noted(), len(comparison.photos) == 1
    write_whole(table, _markdown(comparison, a, left_out))
    outputs.write_csv(numbers, _csv(comparison))
    firsts = {name: next(iter(of.values())) for name, of in comparison.results.items()}
    drawn = outputs.save_figure_of(firsts if single else a, plots.comparison, figure)
    files = [table, numbers, *drawn]
    if single:
        a.save(result)
        report.write(a, page)
        return [*files, result, page]
    pages = {}
    for path in comparison.photos:
        photo, own = comparison.alone(path).noted(), folders[path] / "comparison.html"
        report.write(photo, own)
        pages[own.relative_to(folder).as_posix()] = photo
    report.write_index(pages, page, failed=left_out, comparison=a)
    return [*files, page]


def _markdown(
    comparison: Comparison, a: gp.Attribution, left_out: Sequence[tuple[str, str]]
) -> str:
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
        outputs.markdown_table(
            ["method", *(COMPARED[c][0] for c in columns), "setting"],
            [[m, *comparison.cells(m), comparison.setting(m) or "–"] for m in comparison.rows],
        ),
        "",
    ]
    for each in photos.values():
        noted = each.about
        lines.append(f"- {noted['source']}: {noted['class']}, {noted['probability']:.3f}")
    if left_out:
        lines += ["", "Left out because they could not be compared:", ""]
        lines += [f"- {name}: {reason}" for name, reason in left_out]
    return "\n".join(lines) + "\n"


def _csv(comparison: Comparison) -> list[list[Any]]:
    columns, rows = comparison.columns, comparison.rows
    cells = [[m, *(row.get(c) for c in columns), comparison.setting(m)] for m, row in rows.items()]
    return [["method", *columns, "setting"], *cells]


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
            name: {column: row[column] for column in comparison.columns if column in row}
            | {"setting": comparison.setting(name)}
            | {"curves": {kind: row[key] for kind, (_, key) in CURVES.items() if key in row}}
            for name, row in rows.items()
        },
        "order": sorted(rows, key=lambda name: -rows[name]["sic_auc"]),
        "photos": [
            {"photo": fspath(path), **{key: a.about[key] for key in noted}}
            for path, a in comparison.photos.items()
        ],
        "gradients": sum(a.gradients_used for a in everything),
        "seconds": sum(a.seconds for a in everything),
        "settings": {name: getattr(args, name) for name in options},
        "files": [fspath(file) for file in files],
    }
