"""The table of `greedypig compare`: on the terminal, in files, on a page and as --json."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
from collections.abc import Iterator, Mapping, Sequence
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
from .terminal import BOLD, DIM, Terminal, duration

BEST = {"sic_auc": max, "lic_auc": min, "second_opinion_auc": max}
CSV_MARK = b"method,sic_auc,"
NOTED = {"softmax": "curve", "loss": "loss_curve", "second-opinion": "second_opinion_curve"}
"""From a kind of curve to its key in the notes of a comparison."""
ENDINGS = ("md", "csv", "png", "gpig", "html")


class Comparison:
    """The results by method and photo, and the numbers that follow from them."""

    def __init__(self, results: Mapping[str, Mapping[Path, gp.Attribution]], ranking: str) -> None:
        self.results = results
        self.ranking = ranking
        """Of methods that score everything at once: by "absolute" or "signed" score."""

    @property
    def photos(self) -> Mapping[Path, gp.Attribution]:
        """The photos that were compared, each with one of its results."""
        return next(iter(self.results.values()), {})

    def rows(self) -> dict[str, dict[str, float]]:
        """The numbers of every method: AUC of the median curve, medians of the rest."""
        return {name: self._row(list(of.values())) for name, of in self.results.items()}

    def curve(self, name: str, kind: str) -> metrics.Curve | None:
        """A method's median curve over the photos."""
        return _median(list(self.results[name].values()), kind)

    def kept(self, name: str) -> dict[str, float]:
        """A method's probability at the printed shares, as measured; medians over the photos."""
        photos = [a.about["kept"] for a in self.results[name].values()]
        shares = [share for share in photos[0] if all(share in each for each in photos)]
        return {share: median(each[share] for each in photos) for share in shares}

    def setting(self, name: str) -> str:
        """A method's rounds and steps, or noisy copies and theirs, as they were run."""
        knobs = kept_settings(next(iter(self.results[name].values())))
        counted = any(knobs.get(knob) for knob in ("steps", "views", "inner_steps"))
        return setting(knobs) if counted or knobs.get("rounds", 1) > 1 else ""

    def _row(self, results: list[gp.Attribution]) -> dict[str, float]:
        row = {}
        for column, kind in (("sic_auc", "softmax"), ("lic_auc", "loss"),
                             ("second_opinion_auc", "second-opinion")):  # fmt: skip
            curve = _median(results, kind)
            if curve is not None:
                row[column] = curve.auc
        row["excess"] = median(_excess(a) for a in results)
        row["gradients"] = median(a.gradients_used for a in results)
        row["seconds"] = median(a.seconds for a in results)
        return row


def show(
    comparison: Comparison, terminal: Terminal, files: list[Path], budget: int | None = None
) -> None:
    """Print the table."""
    rows, say = comparison.rows(), terminal.say
    photos = comparison.photos
    if len(photos) == 1:
        (a,) = photos.values()
        say(terminal.style(terminal.wrapped(
            f"{a.about['source']}: {a.about['class']}, probability "
            f"{chance(a.about['probability'])}"
        ), BOLD))  # fmt: skip
    else:
        head = f"{count(len(photos), 'photo')}; AUC of median curves, the rest medians"
        say(terminal.style(terminal.wrapped(head), BOLD))
    judged = [a.about["curves"].get("second-opinion") for a in photos.values()]
    if all(judged):
        whole = median(c["values"][-1] for c in judged)
        of = "the whole photo" if len(photos) == 1 else "whole photos"
        say(terminal.wrapped(f"second opinion by {judged[0]['judge']}: {chance(whole)} for {of}"))
    _show_rows(rows, terminal)
    if budget is not None:
        used = [f"{name} {knobs}" for name in rows if (knobs := comparison.setting(name))]
        say()
        say(terminal.wrapped(f"Within {count(budget, 'gradient')}: {'; '.join(used)}"))
    spent = sum(a.seconds for of in comparison.results.values() for a in of.values())
    say()
    where, names = outputs.shown(files[0].parent), ", ".join(file.name for file in files)
    text = f"{duration(spent)} of runs. Wrote {where}: {names}, and every result"
    say(terminal.wrapped(text))


def _show_rows(rows: Mapping[str, Mapping[str, float]], terminal: Terminal) -> None:
    """The numbers, the best in bold."""
    first = max(map(len, rows))
    heads, widths = _columns(rows, terminal.width - first)
    head = "".join(f"{heads[c]:>{width}}" for c, width in widths.items())
    terminal.say(terminal.style(f"{'':{first}}{head}", DIM))
    for name, row in rows.items():
        line = f"{name:{first}}"
        for c, width in widths.items():
            cell = f"{_cell(c, row.get(c)):>{width}}"
            best = c in BEST and row.get(c) == BEST[c](r[c] for r in rows.values() if c in r)
            line += terminal.style(cell, BOLD) if best else cell
        terminal.say(line)


def _columns(
    rows: Mapping[str, Mapping[str, float]], room: int
) -> tuple[dict[str, str], dict[str, int]]:
    """Heads and widths, the gap before a column included, that fit into the room.

    Where it is small, heads are short, then gaps; then what can be read off the others is left to
    the files.
    """
    long = {c: COMPARED[c][0] for c in COMPARED if any(c in row for row in rows.values())}
    short = {c: h.replace(" AUC", "").replace("second opinion", "2nd")
             .replace("above full", "above").replace("gradients", "grad.").replace("seconds", "s")
             for c, h in long.items()}  # fmt: skip
    fewest = {c: h for c, h in short.items() if c not in ("excess", "seconds")}
    for heads, gap in ((long, 2), (short, 2), (short, 1), (fewest, 1)):
        widths = {c: gap + max(len(h), *(len(_cell(c, row.get(c))) for row in rows.values()))
                  for c, h in heads.items()}  # fmt: skip
        if sum(widths.values()) <= room:
            break
    return heads, widths


def refuse_foreign(folder: Path) -> None:
    """Refuse to overwrite files of others, before any work is done."""
    outputs.refuse_foreign(folder / f"comparison.{ending}" for ending in ENDINGS if ending != "csv")
    outputs.refuse_foreign([folder / "comparison.csv"], CSV_MARK)


def write(
    comparison: Comparison,
    folder: Path,
    folders: Mapping[Path, Path],
    failed: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """The table as Markdown and CSV, the figure, and the page.

    Of several photos the page lists them, and each has its own in its folder of `folders`.
    """
    rows, one = comparison.rows(), len(comparison.photos) == 1
    table, numbers, figure, whole, page = (folder / f"comparison.{e}" for e in ENDINGS)
    a = _with_comparison(comparison, rows)
    write_whole(table, _markdown(comparison, rows, a, failed))
    write_whole(numbers, _csv(comparison, rows))
    files = [table, numbers]
    if importlib.util.find_spec("matplotlib") is not None:
        firsts = {name: next(iter(of.values())) for name, of in comparison.results.items()}
        outputs.save_figure(plots.comparison(firsts if one else a), figure)
        files.append(figure)
    if one:
        a.save(whole)
        report.write(a, page)
        return [*files, whole, page]
    pages = _photo_pages(comparison, folder, folders)
    report.write_index(pages, page, failed=failed, comparison=a)
    return [*files, page]


def _photo_pages(
    comparison: Comparison, folder: Path, folders: Mapping[Path, Path]
) -> dict[str, gp.Attribution]:
    """Every photo's own comparison as a page; the results by their paths from `folder`."""
    pages = {}
    for path in comparison.photos:
        alone = {name: {path: of[path]} for name, of in comparison.results.items()}
        photo = Comparison(alone, comparison.ranking)
        a = _with_comparison(photo, photo.rows())
        page = folders[path] / "comparison.html"
        report.write(a, page)
        pages[page.relative_to(folder).as_posix()] = a
    return pages


def _with_comparison(
    comparison: Comparison, rows: Mapping[str, Mapping[str, float]]
) -> gp.Attribution:
    """The first method's result, with the numbers and curves of all in its notes."""
    photos = comparison.photos
    first = next(iter(photos.values()))
    notes: dict[str, Any] = {"comparison": {}}
    for name, row in rows.items():
        notes["comparison"][name] = dict(row)
        notes["comparison"][name]["kept"] = comparison.kept(name)
        for kind, curve in _curves(comparison, name):
            notes["comparison"][name][NOTED[kind]] = {"fractions": curve.fractions.tolist(),
                                                      "values": curve.values.tolist()}  # fmt: skip
        if "second_opinion_auc" in row:
            notes["comparison"][name][NOTED["second-opinion"]]["judge"] = first.about["judge"]
    if len(photos) > 1:
        notes["source"] = count(len(photos), "photo")
        notes["probability"] = median(a.about["probability"] for a in photos.values())
    return first.with_notes(notes)


def _markdown(
    comparison: Comparison,
    rows: Mapping[str, Mapping[str, float]],
    a: gp.Attribution,
    failed: Sequence[tuple[str, str]],
) -> str:
    columns = [c for c in COMPARED if any(c in row for row in rows.values())]
    photos = comparison.photos
    judge, ranking = a.about.get("judge"), comparison.ranking
    lines = [
        "# greedypig compare",
        "",
        f"{count(len(photos), 'photo')}, {a.about['model']}, {a.about['baseline']} baseline, "
        f"objective {a.about['objective']}"
        + (f"; second opinion by {judge}." if judge else "."),
        "SIC: the class's probability with only the best features present. LIC: the distance from "
        "the whole photo's prediction, in nats. Both are areas under the median curve over the "
        "share kept.",
        f"One-shot methods are ranked by {ranking} score, greedy methods by selection.",
        "Above full: how much higher the probability of a part is than that of the whole photo "
        "(median).",
        "",
        "| method | " + " | ".join(COMPARED[c][0] for c in columns) + " | setting |",
        "|---|" + "---:|" * len(columns) + "---|",
    ]  # fmt: skip
    for name, row in rows.items():
        cells = [_cell(c, row.get(c)) for c in columns]
        lines.append(f"| {' | '.join([name, *cells, comparison.setting(name) or '–'])} |")
    lines += ["", *(f"- {of.about['source']}: {of.about['class']}, {of.about['probability']:.3f}"
                    for of in photos.values())]  # fmt: skip
    if failed:
        lines += ["", "Left out because they could not be compared:", ""]
        lines += [f"- {name}: {reason}" for name, reason in failed]
    return "\n".join(lines) + "\n"


def _csv(comparison: Comparison, rows: Mapping[str, Mapping[str, float]]) -> str:
    columns = [c for c in COMPARED if any(c in row for row in rows.values())]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["method", *columns, "setting"])
    writer.writerows([name, *(row.get(c, "") for c in columns), comparison.setting(name)]
                     for name, row in rows.items())  # fmt: skip
    return text.getvalue()


def record(
    comparison: Comparison,
    args: argparse.Namespace,
    files: list[Path],
    failed: list[tuple[str, str]],
) -> dict[str, Any]:
    """The object of --json; `order` lists the methods, best SIC first."""
    rows = comparison.rows()
    curves = {
        name: {kind: {"fractions": c.fractions.tolist(), "values": c.values.tolist()}
               for kind, c in _curves(comparison, name)}
        for name in rows
    }  # fmt: skip
    everything = [a for of in comparison.results.values() for a in of.values()]
    return {
        "methods": {
            name: dict(row) | {"setting": comparison.setting(name), "curves": curves[name]}
            for name, row in rows.items()
        },
        "order": sorted(rows, key=lambda name: -rows[name]["sic_auc"]),
        "photos": [
            {"photo": fspath(path), "class": a.about["class"], "target": a.about["target"],
             "probability": a.about["probability"]}
            for path, a in comparison.photos.items()
        ],
        "gradients": sum(a.gradients_used for a in everything),
        "seconds": sum(a.seconds for a in everything),
        "settings": {"model": args.model, "judge": args.judge, "objective": args.objective,
                     "baseline": args.baseline, "features": args.features, "budget": args.budget,
                     "ranking": args.ranking, "seed": args.seed},
        "failed": [{"photo": name, "reason": reason} for name, reason in failed],
        "files": [fspath(f) for f in files],
    }  # fmt: skip


def _curves(comparison: Comparison, name: str) -> Iterator[tuple[str, metrics.Curve]]:
    for kind in NOTED:
        curve = comparison.curve(name, kind)
        if curve is not None:
            yield kind, curve


def _median(results: list[gp.Attribution], kind: str) -> metrics.Curve | None:
    noted = [a.about["curves"][kind] for a in results if kind in a.about["curves"]]
    if len(noted) != len(results):
        return None
    curves = [metrics.Curve(c["fractions"], c["values"], kind, c["values"][-1]) for c in noted]
    return metrics.median_curve(aligned(curves))


def _excess(a: gp.Attribution) -> float:
    best: float = max(a.about["curves"]["softmax"]["values"])
    return max(0.0, best - float(a.about["probability"]))


def _cell(column: str, value: float | None) -> str:
    return "–" if value is None else COMPARED[column][1].format(value)
