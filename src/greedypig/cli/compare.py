"""`greedypig compare photo.jpg`: several methods on the same photos, by the same curves."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from os import fspath
from pathlib import Path
from statistics import median
from typing import Any

import greedypig as gp

from .. import plots, report
from ..core.methods import GreedyPIG, as_method
from ..core.records import plain
from ..results.comparison import CURVES, PhotoComparison
from ..results.files import write_whole
from ..results.input_notes import SECOND, InputNotes
from ..results.wording import chance, count
from ..tensors.methods import within
from . import outputs
from .explain import (
    PhotoRun,
    Question,
    Search,
    exit_code,
    explained,
    headline,
    new_session,
    photo_names,
    reasons,
)
from .failures import UsageError
from .terminal import BOLD, Terminal, duration, styled

TITLES = {"paper": "greedy-pig (paper)", "regions": "greedy-pig (regions)"}
"""The titles of methods that are no method's own name."""
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
        comparison = PhotoComparison(
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


def show(
    comparison: PhotoComparison, terminal: Terminal, files: Sequence[Path], budget: int | None
) -> None:
    """Print the table, the best numbers in bold."""
    photos, table = [InputNotes.of(a) for a in comparison.photos.values()], comparison.table
    head = f"{count(len(photos), 'photo')}; AUC of median curves, the rest medians"
    terminal.say(headline(photos[0]) if len(photos) == 1 else head, BOLD)
    if judge := photos[0].judge:
        whole = median(float(notes.curves[SECOND].values[-1]) for notes in photos)
        terminal.say(f"second opinion by {judge}: {chance(whole)} for the whole photo")
    rows = [
        [styled(name), *map(_bold_if, cells, table.best)] for name, cells in table.cells.items()
    ]
    terminal.table(["", *table.heads], rows)
    if budget is not None:
        settings = {name: comparison.setting(name) for name in table.rows}
        used = "; ".join(f"{name} {text}" for name, text in settings.items() if text)
        terminal.say(f"Within {count(budget, 'gradient')}: {used}")
    seconds = sum(a.seconds for of in comparison.results.values() for a in of.values())
    terminal.say(f"{duration(seconds)} of runs; {outputs.wrote(files)}, and every result")


def _bold_if(cell: str, best: str | None) -> Any:
    return styled(cell, BOLD if cell == best else "")


def write(
    comparison: PhotoComparison,
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
    comparison: PhotoComparison, a: gp.Attribution, left_out: Sequence[tuple[str, str]]
) -> str:
    table, notes = comparison.table, InputNotes.of(a)
    judge = f"; second opinion by {notes.judge}" if notes.judge else ""
    lines = [
        "# greedypig compare",
        "",
        f"{count(len(comparison.photos), 'photo')}, {notes.model}, {notes.baseline} baseline, "
        f"objective {notes.objective}{judge}.",
        "SIC: the class's probability with only the best features present. LIC: the distance from "
        "the whole photo's prediction, in nats. Both are areas under the median curve over the "
        "share kept.",
        "One-shot methods are ranked by absolute score, greedy methods by selection.",
        "Above full: how much higher the probability of a part is than that of the whole photo "
        "(median).",
        "",
        outputs.markdown_table(
            ["method", *table.heads, "setting"],
            [[m, *cells, comparison.setting(m) or "–"] for m, cells in table.cells.items()],
        ),
        "",
    ]
    for photo in map(InputNotes.of, comparison.photos.values()):
        lines.append(f"- {photo.source}: {photo.label}, {photo.probability:.3f}")
    if left_out:
        lines += ["", "Left out because they could not be compared:", ""]
        lines += [f"- {name}: {reason}" for name, reason in left_out]
    return "\n".join(lines) + "\n"


def _csv(comparison: PhotoComparison) -> list[list[Any]]:
    table = comparison.table
    cells = [
        [name, *(row.get(key) for key in table.keys), comparison.setting(name)]
        for name, row in table.rows.items()
    ]
    return [["method", *table.keys, "setting"], *cells]


def record(
    comparison: PhotoComparison, args: argparse.Namespace, files: Sequence[Path]
) -> dict[str, Any]:
    """The object of --json; `order` lists the methods, best SIC first."""
    rows, everything = (
        comparison.methods,
        [a for of in comparison.results.values() for a in of.values()],
    )
    options = ("model", "judge", "objective", "baseline", "features", "budget", "seed")
    photos = {path: InputNotes.of(a) for path, a in comparison.photos.items()}
    return {
        "methods": {
            name: {
                **row.numbers,
                "setting": comparison.setting(name),
                "curves": {k: plain(c) for k, p in CURVES.items() if (c := getattr(row, p))},
            }
            for name, row in rows.items()
        },
        "order": sorted(rows, key=lambda name: -(rows[name].sic_auc or 0.0)),
        "photos": [
            {
                "photo": fspath(path),
                "class": notes.label,
                "target": notes.target,
                "probability": notes.probability,
            }
            for path, notes in photos.items()
        ],
        "gradients": sum(a.gradients_used for a in everything),
        "seconds": sum(a.seconds for a in everything),
        "settings": {name: getattr(args, name) for name in options},
        "files": [fspath(file) for file in files],
    }
