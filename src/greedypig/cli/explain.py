"""`greedypig explain photo.jpg`: which parts of a photo a network used, checked by its curve."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import fspath
from pathlib import Path
from typing import Any

import torch

import greedypig as gp

from .. import plots, report
from ..core.errors import InvalidFile, InvalidInput, InvalidType, MissingPackage
from . import options, outputs
from .asking import Found, Question, Watch, excess, find
from .failures import DONE, FAILED, Stopped, UsageError, sentence
from .summary import Summary
from .terminal import Bar, Terminal

HELP = "which parts of a photo a network used, and how sure it is with only those"
DESCRIPTION = """\
Explain what an ImageNet network (or your own) sees in photos. For every photo it prints
the class, its probability, and the probability with only the best 1, 5 and 10 % of the photo's
numbers present, and writes photo.gpig (the result) and photo.html (a page to explore it) into the
current directory or --out."""
EXAMPLES = """\
  greedypig explain photo.jpg
  greedypig explain holiday/ --out results --judge mobilenet-v2
  greedypig explain photo.jpg --class tabby --objective log-likelihood --features pixels
  greedypig explain photo.jpg --model my_models:build --json > answer.json"""
PICTURES = ("kept", "heatmap", "overlay", "order", "curve")


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain`."""
    options.add_photos(parser)
    options.add_model(parser)
    options.add_effort(parser)
    group = parser.add_argument_group("the results")
    group.add_argument("--out", metavar="PATH",
                       help="a folder for the results; for one photo also a file, x.gpig or x.html")  # fmt: skip
    group.add_argument("--no-html", action="store_true", help="write no pages")
    group.add_argument("--pictures", action="store_true",
                       help=f"also write PNG files: {', '.join(PICTURES)}")  # fmt: skip
    group.add_argument("--resume", action="store_true",
                       help="go on where the same command was stopped; what is done is kept")  # fmt: skip
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
    found = find(args.photos)
    stems = outputs.stems(args.out, found.files)
    jobs = [Job(path, stem, args) for path, stem in zip(found.files, stems, strict=True)]
    index = _index(jobs, args)
    outputs.refuse_foreign([file for job in jobs for file in job.files()] + index)
    summary = Summary(terminal, found, [job.path.name for job in jobs])
    for path, reason in found.broken:
        summary.broken(path, reason)
    if jobs:
        question = Question.of(args)
        with terminal.bar("") as bar:
            _explain_all(question, search, jobs, summary, bar)
        if index and summary.done:
            report.write_index({f.name: a for f, a in summary.pages}, index[0])
            summary.files(index)
    summary.close()
    terminal.result(_json(found, summary))
    return FAILED if summary.failed else DONE


@dataclass
class Job:
    """One photo and the files that its answer goes to."""

    path: Path
    stem: Path
    args: argparse.Namespace
    watch: Watch = field(default_factory=Watch)

    @property
    def result(self) -> Path:
        """The result's file."""
        return self._with(".gpig")

    @property
    def page(self) -> Path:
        """The page's file."""
        return self._with(".html")

    @property
    def partial(self) -> Path:
        """What was done, if the run was stopped."""
        return self._with(outputs.PARTIAL)

    def pictures(self) -> dict[str, Path]:
        """The pictures' files by what they show."""
        if not self.args.pictures:
            return {}
        return {name: self._with(f"-{name}.png") for name in PICTURES}

    def files(self) -> list[Path]:
        """Everything that will be written."""
        page = [] if self.args.no_html else [self.page]
        return [self.result, *page, *self.pictures().values()]

    def saved(self) -> gp.Attribution | None:
        """What an earlier sitting left."""
        for file in (self.partial, self.result):
            if self.args.resume and file.exists():
                try:
                    return gp.load(file)
                except InvalidFile as error:
                    raise UsageError(
                        f"{error} Try without --resume, which begins anew."
                    ) from error
        return None

    def _with(self, ending: str) -> Path:
        # Not with_suffix: a stem may hold dots of its own.
        return self.stem.with_name(self.stem.name + ending)


def _explain_all(
    question: Question, search: Mapping[str, Any], jobs: list[Job], summary: Summary, bar: Bar
) -> None:
    for i, job in enumerate(jobs):
        place = f"{i + 1}/{len(jobs)} " if len(jobs) > 1 else ""
        bar.label = place + job.path.name
        bar.follow(lambda i=i, job=job: i + job.watch.share(), len(jobs))  # type: ignore[misc]
        began = time.monotonic()
        try:
            a = _answer(question, search, job, summary.terminal)
        except KeyboardInterrupt:
            _keep(job, summary)
            raise Stopped from None
        except (UsageError, OSError):
            raise
        except Exception as error:
            if isinstance(error, MissingPackage):
                raise
            summary.broken(fspath(job.path), sentence(error))
            continue
        files = _write(job, a)
        summary.add(job.path, a, files, time.monotonic() - began, excess(a.about))


def _answer(
    question: Question, search: Mapping[str, Any], job: Job, terminal: Terminal
) -> gp.Attribution:
    saved = job.saved()
    x = question.read(job.path)
    try:
        a = question.explain(x, search, job.watch, saved)
    except (InvalidInput, InvalidType) as error:
        hint = "" if saved is None else " Try the options of the stopped run, or no --resume."
        raise UsageError(f"{error}{hint}") from error
    if saved is not None and _is_whole(saved, a, question):
        return saved
    return question.with_notes(a, x, job.path.name, shlex.join(terminal.command))


def _is_whole(saved: gp.Attribution, a: gp.Attribution, question: Question) -> bool:
    """Is there nothing to add to the saved result?"""
    same = torch.equal(saved.order, a.order) and saved.gradients_used == a.gradients_used
    told = saved.about.get("curves") and saved.about.get("judge") == question.judge_name
    return bool(same and told and saved.stop is not gp.StopReason.RUNNING)


def _keep(job: Job, summary: Summary) -> None:
    """Ctrl-C: keep the rounds done and say how to go on."""
    kept = job.watch.so_far()
    if kept is not None:
        kept.save(job.partial)
    summary.stopped(job.path.name, job.partial if kept is not None else None)


def _write(job: Job, a: gp.Attribution) -> list[Path]:
    a.save(job.result)
    job.partial.unlink(missing_ok=True)
    if not job.args.no_html:
        report.write(a, job.page)
    for name, file in job.pictures().items():
        draw = {"kept": plots.kept, "heatmap": plots.heatmap, "overlay": plots.overlay,
                "order": plots.order_map, "curve": plots.curve}[name]  # fmt: skip
        save_figure(draw(a).figure, file)
    return job.files()


def save_figure(figure: Any, file: Path) -> None:
    """A figure as PNG that tells who made it."""
    figure.savefig(file, dpi=150, metadata={"Software": f"greedypig {gp.__version__}"})


def _index(jobs: list[Job], args: argparse.Namespace) -> list[Path]:
    """The page that leads to the others, if there are several."""
    if args.no_html or len(jobs) < 2:
        return []
    return [jobs[0].stem.parent / "index.html"]


def _json(found: Found, summary: Summary) -> dict[str, Any]:
    records = [
        {
            "photo": fspath(path),
            "class": a.about["class"],
            "target": a.about["target"],
            "probability": a.about["probability"],
            "predictions": a.about["predictions"],
            "kept": a.about["kept"],
            "excess": _excess_record(a),
            "order": a.order.tolist(),
            "selected": a.selected,
            "curve": a.about["curves"]["softmax"],
            "curves": a.about["curves"],
            "gradients": a.gradients_used,
            "seconds": a.seconds,
            "stop": a.stop.name.lower(),
            "settings": dict(a.settings) | {"model": a.about["model"]},
            "files": [fspath(file) for file in files],
        }
        for path, a, files in summary.done
    ]
    failed = [{"photo": path, "reason": reason} for path, reason in summary.failed]
    if found.single and records:
        return records[0]
    return {"results": records, "failed": failed, "files": _all_files(summary)}


def _excess_record(a: gp.Attribution) -> dict[str, float] | None:
    found = excess(a.about)
    return None if found is None else {"share": found[0], "probability": found[1]}


def _all_files(summary: Summary) -> list[str]:
    return [fspath(file) for _, _, files in summary.done for file in files]
