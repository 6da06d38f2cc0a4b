"""`greedypig compare photo.jpg`: every method on the same photos, judged by the same curves."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from os import fspath
from pathlib import Path
from typing import Any

import greedypig as gp

from ..core.errors import MissingPackage
from ..results.wording import count
from . import compare_methods, compare_output, options, outputs
from .compare_output import Standings
from .explain_output import small_photos
from .failures import DONE, FAILED, Failures, Stopped, UsageError
from .photo_job import Found, Opened, Question, find, tell_idle_class
from .resumable import Sitting
from .terminal import Bar, Terminal

HELP = "every method side by side on the same photos: curves, AUC, gradients, seconds"
DESCRIPTION = """\
Explain photos by several methods and compare them: the area under the softmax information curve
(SIC: how sure the network is with only the best numbers; higher is better) and the loss information
curve (LIC: how far its whole answer is off with them; lower is better), of the median curve where
there are several photos; gradients and seconds per photo. Writes a table (Markdown and CSV), a
figure, a page and every result into a folder."""
EXAMPLES = """\
  greedypig compare photo.jpg
  greedypig compare holiday/ --judge mobilenet-v2 --out results
  greedypig compare photo.jpg --methods greedy-pig,ig,random --budget 100"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig compare`."""
    options.add_photos(parser)
    options.add_model(parser)
    group = parser.add_argument_group("the contest")
    group.add_argument(
        "--methods",
        metavar="A,B,…",
        help=f"which to run: {', '.join(compare_methods.WORDS)}; paper is Greedy PIG in the "
        "paper's setting (100 rounds of 20), regions Greedy PIG on superpixels (default: all but "
        "paper and gradient)",
    )
    group.add_argument(
        "--paper",
        action="store_true",
        help="also the paper's setting, 2,000 gradients a photo: slow",
    )
    group.add_argument(
        "--budget",
        type=options.whole,
        metavar="N",
        help="give every method about N gradients (default: its usual number): Greedy PIG keeps "
        "its steps a round and takes more or fewer rounds, one-shot methods more or fewer steps; "
        "the paper's setting is cut in proportion and never grows. The results name the rounds "
        "and steps used",
    )
    options.add_features(group)
    group.add_argument(
        "--ranking",
        choices=("absolute", "signed"),
        default="absolute",
        help="how methods that score everything at once rank: by absolute score, as in the "
        "paper, or by signed score; greedy ones go by selection (default: %(default)s)",
    )
    group = parser.add_argument_group("the results")
    group.add_argument(
        "--out",
        metavar="FOLDER",
        help="where they go (default: photo-comparison, or comparison for several photos)",
    )
    options.add_resume(group)
    options.add_machine(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run every method on every photo, tell the table, write the files."""
    if args.objective == "counterfactual":
        raise UsageError(
            "Expected an objective of what is present (got --objective counterfactual): methods "
            "are compared by what the best numbers tell alone, and a counterfactual's are those "
            "that are missed. Try greedypig explain --objective counterfactual, which shows what "
            "is left without them."
        )
    names = compare_methods.chosen(args.methods, args.paper)
    features = options.features(args.features)
    tell_idle_class(args, terminal)
    found = find(args.photos)
    failures = Failures(terminal.fail, several=len(found.files) + len(found.broken) > 1)
    for path, reason in found.broken:
        failures.add(path, reason)
    table, files = Standings({}, args.ranking), list[Path]()
    if found.files:
        folder = _folder(args.out, found.files)
        runs = _runs(found, names, folder, args.resume)
        for run in runs:
            run.sitting.watched_by(terminal)
        outputs.refuse_foreign([run.sitting.result for run in runs])
        outputs.refuse_foreign({run.sitting.result.parent / "comparison.html" for run in runs})
        compare_output.refuse_foreign(folder)
        question = Question.of(args)
        with terminal.bar("") as bar:
            results = _hold(question, features, runs, args, terminal, bar, failures)
        failures.check()
        table = Standings(results, args.ranking)
        if results:
            folders = {run.path: run.sitting.result.parent for run in runs}
            files = compare_output.write(table, folder, folders, failures.all)
            compare_output.tell(table, terminal, files, args.budget)
    if failures.all:
        terminal.note(f"{len(failures.all)} could not be compared: {failures.names()}")
    terminal.result(compare_output.record(table, args, files, failures.all))
    return FAILED if failures.all else DONE


class Run:
    """One method on one photo."""

    def __init__(self, path: Path, name: str, method: str, result: Path, resume: bool) -> None:
        self.path, self.name, self.method = path, name, method
        self.sitting = Sitting(result, resume)


def _runs(found: Found, names: Sequence[str], folder: Path, resume: bool) -> list[Run]:
    made = []
    for path, stem in zip(found.files, outputs.stems(fspath(folder), found.files), strict=True):
        if stem.exists():  # Else it is made once there is something to put into it.
            outputs.folder(stem)
        made += [Run(path, found.names[path], n, stem / f"{compare_methods.slug(n)}.gpig", resume)
                 for n in names]  # fmt: skip
    return made


def _hold(
    question: Question,
    features: Any,
    runs: Sequence[Run],
    args: argparse.Namespace,
    terminal: Terminal,
    bar: Bar,
    failures: Failures,
) -> dict[str, dict[Path, gp.Attribution]]:
    """Results by method and photo; a photo that fails with one method leaves, with the reason."""
    command = terminal.command_line()
    common = {"seed": args.seed, "batch_size": args.batch_size or "auto"}
    results: dict[str, dict[Path, gp.Attribution]] = {}
    broken: set[Path] = set()
    small: dict[str, Opened] = {}
    for i, run in enumerate(runs):
        if run.path in broken:
            continue
        watch = run.sitting.watch
        bar.label = f"{run.name}: {run.method}"
        terminal.subject = f"{run.name}, {run.method}"
        share = lambda i=i, watch=watch: i + watch.share()  # noqa: E731
        bar.follow(share, len(runs), watch.phase)
        try:
            opened = question.read(run.path)
            search = compare_methods.arguments(
                run.method, features, args.budget, args.objective, opened.x
            )
            search |= common
            a = run.sitting.answer(question, search, opened.x, run.name, command)
        except KeyboardInterrupt:
            run.sitting.keep()
            failures.release()
            raise Stopped(
                f"Stopped at {run.name}, {run.method}, after {i} of {count(len(runs), 'run')}."
            ) from None
        except (UsageError, OSError, MissingPackage):
            raise
        except Exception as error:
            broken.add(run.path)
            failures.add(fspath(run.path), error)
        else:
            failures.release()
            results.setdefault(run.method, {})[run.path] = a
            if opened.enlarged:
                small[run.name] = opened
    terminal.subject = ""
    if small:
        terminal.note(small_photos(small))
    left = {
        name: {path: a for path, a in of.items() if path not in broken}
        for name, of in results.items()
    }
    return {name: of for name, of in left.items() if of}


def _folder(out: str | None, files: Sequence[Path]) -> Path:
    if out is None:
        out = f"{files[0].stem}-comparison" if len(files) == 1 else "comparison"
    elif Path(out).suffix.lower() in outputs.ENDINGS:
        raise UsageError(f"Expected a folder as --out (got {out}).")
    return outputs.folder(Path(out))
