"""`greedypig explain photo.jpg`: which parts of a photo a network used, checked by its curve."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping
from os import fspath
from pathlib import Path
from typing import Any

import greedypig as gp

from .. import plots, report
from ..core.errors import InvalidInput, InvalidType, MissingPackage
from ..results.photo_notes import Notes
from ..results.picture import unranked
from . import options, outputs
from .explain_output import Summary
from .failures import DONE, FAILED, Stopped, UsageError
from .photo_job import Found, Question, find, tell_idle_class
from .resumable import Sitting
from .terminal import Bar, Terminal

HELP = "which parts of a photo a network used, and how sure it is with only those"
DESCRIPTION = """\
Explain what an ImageNet network (or your own) sees in photos. For every photo it prints
the class, its probability, and the probability with only the best 1, 5 and 10 % of the photo's
numbers present (a number is one colour of one pixel), and writes photo.gpig (the result) and
photo.html (a page to explore it) into the current directory or --out. With the defaults a photo
costs about 100 gradients."""
EXAMPLES = """\
  greedypig explain photo.jpg
  greedypig explain holiday/ --out results --judge mobilenet-v2
  greedypig explain photo.jpg --class tabby --objective margin:lynx --features pixels
  greedypig explain photo.jpg --model my_models:build --json > answer.json"""
DRAW: dict[str, Callable[[gp.Attribution], Any]] = {
    "kept": plots.kept, "without": plots.without, "heatmap": plots.heatmap,
    "overlay": plots.overlay, "order": plots.order_map, "curve": plots.curve,
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain`."""
    options.add_photos(parser)
    options.add_model(parser)
    options.add_effort(parser)
    group = parser.add_argument_group("the results")
    group.add_argument(
        "--out",
        metavar="PATH",
        help="a folder for the results; for one photo also a file, x.gpig or x.html",
    )
    group.add_argument("--no-html", action="store_true", help="write no pages")
    group.add_argument(
        "--pictures",
        action="store_true",
        help="also write PNG files: kept (of a counterfactual: without), heatmap, overlay, order, "
        "curve",
    )
    options.add_resume(group)
    options.add_machine(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Explain every photo; those that fail are told and do not end the others."""
    try:
        search = options.search_arguments(args)
    except (InvalidInput, InvalidType) as error:
        raise UsageError(str(error)) from error
    if args.pictures and importlib.util.find_spec("matplotlib") is None:
        raise MissingPackage(
            "Expected the package matplotlib for --pictures (it is not installed). "
            'Try pip install "greedypig[plots]".'
        )
    if args.reach is not None and args.reach < 1 and args.objective == "log-likelihood":
        terminal.warn(
            f"--reach {args.reach:g} is never met: a log-likelihood is below 0, so a share below 1 "
            f"is more than the whole photo gives. Try --reach {2 - args.reach:g}."
        )
    tell_idle_class(args, terminal)
    found = find(args.photos)
    stems = outputs.stems(args.out, found.files)
    jobs = [Job(path, found.names[path], stem, args)
            for path, stem in zip(found.files, stems, strict=True)]  # fmt: skip
    for job in jobs:
        job.sitting.watched_by(terminal)
    index = _index(jobs, args)
    outputs.refuse_foreign([file for job in jobs for file in job.files()] + index)
    summary = Summary(terminal, found, args, search["features"])
    for path, reason in found.broken:
        summary.broken(path, reason)
    if jobs:
        question = Question.of(args)
        with terminal.bar("") as bar:
            _explain_all(question, search, jobs, summary, bar)
        summary.failures.check()
        if index and summary.done:
            pages = {f.name: a for f, a in summary.pages}
            report.write_index(pages, index[0], failed=summary.failures.all)
            summary.files(index)
    summary.close()
    terminal.result(_json(found, summary))
    return FAILED if summary.failures.all else DONE


class Job:
    """One photo and the files that its answer goes to."""

    def __init__(self, path: Path, name: str, stem: Path, args: argparse.Namespace) -> None:
        self.path, self.name = path, name
        # Not with_suffix: a stem may hold dots of its own.
        self.sitting = Sitting(stem.with_name(stem.name + ".gpig"), args.resume)
        self.page = None if args.no_html else stem.with_name(stem.name + ".html")
        other = "kept" if args.objective == "counterfactual" else "without"
        names = [name for name in DRAW if name != other] if args.pictures else []
        self.pictures = {name: stem.with_name(f"{stem.name}-{name}.png") for name in names}

    def files(self) -> list[Path]:
        """Everything that will be written."""
        page = [] if self.page is None else [self.page]
        return [self.sitting.result, *page, *self.pictures.values()]

    def draw(self, a: gp.Attribution) -> list[Path]:
        """The page and the pictures of the answer; all files that there are now.

        Without an order there is nothing to picture, and the page says so.
        """
        if self.page is not None:
            report.write(a, self.page)
        if unranked(a) is not None:
            return [file for file in self.files() if file not in self.pictures.values()]
        for name, file in self.pictures.items():
            outputs.save_figure(DRAW[name](a).figure, file)
        return self.files()


def _explain_all(
    question: Question, search: Mapping[str, Any], jobs: list[Job], summary: Summary, bar: Bar
) -> None:
    command = summary.terminal.command_line()
    for i, job in enumerate(jobs):
        watch = job.sitting.watch
        bar.label = (f"{i + 1}/{len(jobs)} " if len(jobs) > 1 else "") + job.name
        summary.terminal.subject = job.name if len(jobs) > 1 else ""
        share = lambda i=i, watch=watch: i + watch.share()  # noqa: E731
        bar.follow(share, len(jobs), watch.phase)
        began = time.monotonic()
        try:
            opened = question.read(job.path)
            a = job.sitting.answer(question, search, opened.x, job.name, command)
            files = job.draw(a)
        except KeyboardInterrupt:
            job.sitting.keep()
            raise Stopped(summary.stopped(job.name)) from None
        except (UsageError, OSError, MissingPackage):
            raise
        except Exception as error:
            summary.broken(fspath(job.path), error)
        else:
            seconds = time.monotonic() - began
            summary.add(job.path, a, files, seconds, job.sitting.before, opened)
    summary.terminal.subject = ""


def _index(jobs: list[Job], args: argparse.Namespace) -> list[Path]:
    """The page that leads to the others, if there are several."""
    if args.no_html or len(jobs) < 2:
        return []
    return [jobs[0].sitting.result.parent / "index.html"]


def _json(found: Found, summary: Summary) -> dict[str, Any]:
    records = [
        {
            "photo": fspath(path),
            "class": a.about["class"],
            "target": a.about["target"],
            "probability": a.about["probability"],
            "predictions": a.about["predictions"],
            "kept": a.about["kept"],
            "removed": a.about["removed"],
            "nothing": a.about["nothing"],
            "excess": _excess_record(a),
            "fall": None if (fall := Notes.of(a).fall()) is None else fall._asdict(),
            "order": a.order.tolist() if unranked(a) is None else [],
            "note": unranked(a),
            "selected": a.selected,
            "curve": next(iter(a.about["curves"].values()), None),
            "curves": a.about["curves"],
            "gradients": a.gradients_used,
            "seconds": a.seconds,
            "stop": a.stop.name.lower(),
            "settings": dict(a.settings) | {"model": a.about["model"]},
            "files": [fspath(file) for file in files],
        }
        for path, a, files in summary.done
    ]
    failed = [{"photo": path, "reason": reason} for path, reason in summary.failures.all]
    if found.single and records:
        return records[0]
    return {"results": records, "failed": failed, "files": _all_files(summary)}


def _excess_record(a: gp.Attribution) -> dict[str, float] | None:
    found = Notes.of(a).excess()
    return None if found is None else {"share": found[0], "probability": found[1]}


def _all_files(summary: Summary) -> list[str]:
    each = [file for _, _, files in summary.done for file in files]
    return [fspath(file) for file in each + summary.extra]
