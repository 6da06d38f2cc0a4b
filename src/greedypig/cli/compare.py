"""`greedypig compare photo.jpg`: several methods on the same photos, by the same curves."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import Any

from torch import Tensor

import greedypig as gp

from ..core.errors import MissingPackage
from ..core.layout import Layout
from ..core.methods import GreedyPIG, InRounds, as_method, with_knobs
from ..core.scorers import cost_of
from ..images.api import POINTS, SHARES
from ..results.wording import count
from ..tensors.methods import within
from ..tensors.pictures import Superpixels
from . import compare_output, options, outputs
from .compare_output import Comparison
from .explain import PhotoFiles, PhotoTask, Question, small_photo, warn_of_options
from .explain_output import small_photos
from .failures import DONE, FAILED, Failures, Stopped, UsageError
from .methods import Search
from .resumable import Progress, Session
from .terminal import Bar, Terminal

HELP = "several methods on the same photos: curves, AUC, gradients, seconds"
DESCRIPTION = """\
Explain photos by several methods and compare them. SIC AUC: the area under the softmax information
curve, the probability with only the best features (higher is better). LIC AUC: the area under the
loss information curve, the distance from the whole photo's prediction (lower is better). With
several photos both are of the median curve. Writes a table (Markdown and CSV), a figure, a page and
every result into a folder."""
EXAMPLES = """\
  greedypig compare photo.jpg
  greedypig compare holiday/ --judge mobilenet-v2 --out results
  greedypig compare photo.jpg --methods steady-pig,greedy-pig,ig --budget 100"""
PAPER, REGIONS = "greedy-pig (paper)", "greedy-pig (regions)"
ALIASES = {"paper": PAPER, "regions": REGIONS}
NAMES = (
    "steady-pig", "greedy-pig", PAPER, "sequential-gradient", "ig", "smooth-ig", "blur-ig",
    "guided-ig", "gradient", REGIONS, "random",
)  # fmt: skip
WORDS = tuple({full: short for short, full in ALIASES.items()}.get(name, name) for name in NAMES)
"""The methods as they are typed."""
USUAL = tuple(name for name in NAMES if name not in (PAPER, "gradient"))
MOST_REGION_ROUNDS = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig compare`."""
    options.add_photos(parser)
    options.add_model(parser)
    method = options.group(parser, "method")
    method.add_argument(
        "--methods",
        metavar="A,B,…",
        help=f"the methods to run: {', '.join(WORDS)}; paper is Greedy PIG in the paper's setting "
        "(100 rounds of 20 gradients), regions is Greedy PIG on superpixels (default: all but "
        "paper and gradient)",
    )
    method.add_argument(
        "--paper",
        action="store_true",
        help="also the paper's setting, 2,000 gradients per photo: slow",
    )
    method.add_argument(
        "--budget",
        type=options.whole,
        metavar="N",
        help="about N gradients for every method (default: its own number), by more or fewer "
        "rounds and steps; the paper's setting never takes more than its own. The results name "
        "the rounds and steps",
    )
    options.add_features(method)
    method.add_argument(
        "--ranking",
        choices=("absolute", "signed"),
        default="absolute",
        help="how one-shot methods rank: by absolute score, as in the paper, or by signed score; "
        "greedy methods rank by selection (default: %(default)s)",
    )
    options.add_hardware(parser)
    output = options.group(parser, "output")
    output.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder of the results (default: photo-comparison, or comparison for several photos)",
    )
    options.add_resume(output)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run every method on every photo, print the table, write the files."""
    if args.objective == "counterfactual":
        raise UsageError(
            "Expected an objective of what is present (got --objective counterfactual): methods "
            "are compared by the prediction with only the best features, and a counterfactual is "
            "about the prediction without them. Try greedypig explain --objective counterfactual."
        )
    names = chosen(args.methods, args.paper)
    features = options.features(args.features)
    warn_of_options(args, terminal)
    photos = PhotoFiles.find(args.photos)
    failures = Failures(terminal.fail, several=len(photos.files) + len(photos.broken) > 1)
    for path, reason in photos.broken:
        failures.add(path, reason)
    table, files = Comparison({}, args.ranking), list[Path]()
    if photos.files:
        folder = _folder(args.out, photos.files)
        runs = _runs(photos, names, folder, args.resume)
        for each in runs:
            each.session.announced(terminal)
        outputs.refuse_foreign([each.session.result for each in runs])
        outputs.refuse_foreign({each.session.result.parent / "comparison.html" for each in runs})
        compare_output.refuse_foreign(folder)
        question = Question.of(args, features)
        with terminal.bar("") as bar:
            results = _run_all(question, runs, args, terminal, bar, failures)
        failures.check()
        table = Comparison(results, args.ranking)
        if results:
            folders = {each.path: each.session.result.parent for each in runs}
            files = compare_output.write(table, folder, folders, failures.all)
            compare_output.show(table, terminal, files, args.budget)
    if failures.all:
        terminal.note(f"{len(failures.all)} could not be compared: {failures.names()}")
    terminal.result(compare_output.record(table, args, files, failures.all))
    return FAILED if failures.all else DONE


@dataclass(frozen=True)
class MethodRun:
    """One method on one photo."""

    path: Path
    name: str
    method: str
    session: Session


def _runs(photos: PhotoFiles, names: Sequence[str], folder: Path, resume: bool) -> list[MethodRun]:
    runs = []
    stems = outputs.stems(fspath(folder), photos.files)
    for path, stem in zip(photos.files, stems, strict=True):
        if stem.exists():  # Else it is made once there is something to put into it.
            outputs.folder(stem)
        for name in names:
            progress = Progress(POINTS + len(SHARES))
            session = Session(stem / f"{slug(name)}.gpig", resume, progress)
            runs.append(MethodRun(path, photos.names[path], name, session))
    return runs


def _run_all(
    question: Question,
    runs: Sequence[MethodRun],
    args: argparse.Namespace,
    terminal: Terminal,
    bar: Bar,
    failures: Failures,
) -> dict[str, dict[Path, gp.Attribution]]:
    """Results by method and photo; a photo that fails with one method is left out of all."""
    command = terminal.command_line()
    results: dict[str, dict[Path, gp.Attribution]] = {}
    broken: set[Path] = set()
    small: dict[str, str] = {}
    for i, run in enumerate(runs):
        if run.path in broken:
            continue
        progress = run.session.progress
        bar.label = f"{run.name}: {run.method}"
        terminal.subject = f"{run.name}, {run.method}"
        share = lambda i=i, progress=progress: i + progress.share()  # noqa: E731
        bar.follow(share, len(runs), progress.phase)
        try:
            photo = question.read(run.path)
            task = task_of(run.method, question, args.budget, photo.x)
            a = run.session.answer(task, run.name, command)
        except KeyboardInterrupt:
            run.session.keep()
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
            if (sizes := small_photo(photo)) is not None:
                small[run.name] = sizes
    terminal.subject = ""
    if small:
        terminal.note(small_photos(small))
    left = {
        name: {path: a for path, a in of.items() if path not in broken}
        for name, of in results.items()
    }
    return {name: of for name, of in left.items() if of}


def task_of(name: str, question: Question, budget: int | None, x: Tensor) -> PhotoTask:
    """The task of a method on a photo."""
    features = gp.superpixels() if name == REGIONS else question.features
    method = method_of(name, features, budget, x)
    return PhotoTask(question, Search(method), x, features)


def method_of(name: str, features: Any, budget: int | None, x: Tensor) -> Any:
    """The method called `name` for a photo; with a budget it takes about that many gradients.

    There are no more rounds than features. Where that would leave gradients over, rounds have more
    steps.
    """
    if name == PAPER:
        method: Any = GreedyPIG(rounds=100, steps=20, schedule="equal")
    else:
        method = as_method("greedy-pig" if name == REGIONS else name)
    if budget is None:
        return method
    method = within(method, budget, stretch=name != PAPER)
    most = MOST_REGION_ROUNDS
    if not isinstance(features, Superpixels):
        blocks = callable(features)
        most = features(Layout.of(x)).units if blocks else x.numel()
    return _at_most(most, method, budget)


def _at_most(most: int, method: Any, budget: int) -> Any:
    """The method with at most so many rounds."""
    if not isinstance(method, InRounds) or (method.rounds or 0) <= most:
        return method
    method, cost = replace(method, rounds=most), cost_of(method.scorer)
    return method if cost == 1 else with_knobs(method, steps=max(cost, budget // most))


def chosen(text: str | None, paper: bool) -> tuple[str, ...]:
    """The methods that --methods names, in its order; else the usual ones."""
    if text is None:
        names = list(USUAL)
    else:
        names = [_known(word.strip()) for word in text.split(",") if word.strip()]
    if not names:
        raise UsageError(f"Expected --methods as names with commas: {', '.join(WORDS)} (got none).")
    if paper and PAPER not in names:
        names.insert(names.index("greedy-pig") + 1 if "greedy-pig" in names else 0, PAPER)
    return tuple(dict.fromkeys(names))


def slug(name: str) -> str:
    """The method's name as a file's name."""
    return name.replace(" (", "-").replace(")", "")


def _known(word: str) -> str:
    name = ALIASES.get(word, word)
    if name in NAMES:
        return name
    by_slug = {slug(known): known for known in NAMES}
    if word in by_slug:
        return by_slug[word]
    near = difflib.get_close_matches(word, [*NAMES, *ALIASES], 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"Expected --methods among {', '.join(WORDS)} (got {word!r}).{hint}")


def _folder(out: str | None, files: Sequence[Path]) -> Path:
    if out is None:
        out = f"{files[0].stem}-comparison" if len(files) == 1 else "comparison"
    elif Path(out).suffix.lower() in outputs.ENDINGS:
        raise UsageError(f"Expected a folder as --out (got {out}).")
    return outputs.folder(Path(out))
