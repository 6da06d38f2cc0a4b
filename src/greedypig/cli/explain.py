"""`greedypig explain photo.jpg`: the features of a photo that a network uses, checked by a curve.

A `Question` is what does not depend on the photo: the networks, the class, the baseline. `compare`
asks it too.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

from torch import Tensor

import greedypig as gp

from .. import plots, report
from ..core.errors import (
    BudgetTooSmall,
    GreedyPigError,
    InvalidInput,
    MissingPackage,
)
from ..core.layout import Layout
from ..images.api import POINTS, SHARES, PhotoNotes, ordered
from ..images.class_names import find_class
from ..images.from_spec import OwnModel, model_from
from ..images.networks import ImageModel
from ..images.photos import find_photos, open_photo
from ..metrics.judges import check_judge, translation
from ..results.picture import unranked
from ..tensors.api import Job, check_not_flat
from . import methods, options, outputs
from .explain_output import Summary, records
from .failures import DONE, FAILED, Stopped, UsageError
from .methods import Search
from .resumable import Progress, Session
from .terminal import Bar, Terminal

HELP = "which features of a photo a network uses, and its probability with only those"
DESCRIPTION = """\
Explain what an ImageNet network (or your own) uses in photos. For every photo it prints the class,
its probability, and the probability with only the best 1, 5 and 10 % of the features present (by
default a feature is one colour of one pixel). It writes photo.gpig (the result) and photo.html (a
page to explore it) into the current directory or --out. The defaults take about 100 gradients per
photo."""
EXAMPLES = """\
  greedypig explain photo.jpg
  greedypig explain holiday/ --out results --judge mobilenet-v2
  greedypig explain photo.jpg --class tabby --objective margin:lynx --features pixels
  greedypig explain photo.jpg --model my_models:build --json > answer.json"""
DRAW: dict[str, Callable[[gp.Attribution], Any]] = {
    "kept": plots.kept, "without": plots.without, "heatmap": plots.heatmap,
    "overlay": plots.overlay, "order": plots.order_map, "curve": plots.curve,
}  # fmt: skip
OF_ALL_CLASSES = ("log-likelihood", "counterfactual")
"""Objectives that are the same for every class."""
ENLARGED = 4
"""Photos this many times smaller than the network's input are named in a note."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain`."""
    options.add_photos(parser)
    options.add_model(parser)
    options.add_features(methods.add_method(parser))
    options.add_hardware(parser)
    output = options.group(parser, "output")
    output.add_argument(
        "--out",
        metavar="PATH",
        help="a folder for the results; for one photo also a file, x.gpig or x.html",
    )
    output.add_argument("--no-html", action="store_true", help="write no pages")
    output.add_argument(
        "--pictures",
        action="store_true",
        help="also write PNG files: kept (for a counterfactual: without), heatmap, overlay, order, "
        "curve",
    )
    options.add_resume(output)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Explain every photo; one that fails is reported and does not end the others."""
    search = Search.of(args)
    if args.pictures and importlib.util.find_spec("matplotlib") is None:
        raise MissingPackage(
            "Expected the package matplotlib for --pictures (it is not installed). "
            'Try pip install "greedypig[plots]".'
        )
    features = options.features(args.features)
    warn_of_options(args, terminal)
    photos = PhotoFiles.find(args.photos)
    stems = outputs.stems(args.out, photos.files)
    jobs = [PhotoOutput(path, photos.names[path], stem, args)
            for path, stem in zip(photos.files, stems, strict=True)]  # fmt: skip
    for job in jobs:
        job.session.announced(terminal)
    index = _index(jobs, args)
    outputs.refuse_foreign([file for job in jobs for file in job.files()] + index)
    summary = Summary(terminal, photos.names, args, search, single=photos.single)
    for path, reason in photos.broken:
        summary.failures.add(path, reason)
    if jobs:
        question = Question.of(args, features)
        with terminal.bar("") as bar:
            _explain_all(question, search, jobs, summary, bar)
        summary.failures.check()
        if index and summary.done:
            pages = {f.name: a for f, a in summary.pages}
            report.write_index(pages, index[0], failed=summary.failures.all)
            summary.extra += index
    summary.close()
    terminal.result(records(summary, single=photos.single))
    return FAILED if summary.failures.all else DONE


def warn_of_options(args: argparse.Namespace, terminal: Terminal) -> None:
    """Warn of options without an effect."""
    reach = getattr(args, "reach", None)
    if reach is not None and reach < 1 and args.objective == "log-likelihood":
        terminal.warn(
            f"--reach {reach:g} is never met: a log-likelihood is below 0, so a share below 1 is "
            f"more than the whole photo gives. Try --reach {2 - reach:g}."
        )
    if args.class_ is not None and args.objective in OF_ALL_CLASSES:
        terminal.warn(
            f"--class {args.class_} does not change the explanation: --objective {args.objective} "
            "is about the probabilities of all classes. The class only says whose probability the "
            "curve shows. Try --objective softmax to explain the class."
        )


@dataclass(frozen=True)
class PhotoFiles:
    """The photos that a command line names."""

    files: tuple[Path, ...]
    broken: tuple[tuple[str, str], ...]
    """Paths without a photo, each with the reason."""
    single: bool
    """Was one path given that is no folder or pattern? Then --json prints one object."""
    names: Mapping[Path, str]
    """What the files are called: in a folder that was given, by their path in it."""

    @staticmethod
    def find(paths: Sequence[str]) -> PhotoFiles:
        """The files behind the paths; a path without a photo does not end the others."""
        files: dict[Path, str] = {}
        broken = []
        for path in paths:
            try:
                for file in find_photos([path]):
                    inside = Path(path).is_dir()
                    files.setdefault(file, fspath(file.relative_to(path)) if inside else file.name)
            except InvalidInput as error:
                broken.append((path, str(error)))
        single = len(paths) == 1 and (not files or list(files) == [Path(paths[0])])
        times = Counter(files.values())
        names = {file: name if times[name] == 1 else fspath(file) for file, name in files.items()}
        return PhotoFiles(tuple(files), tuple(broken), single, names)


@dataclass(frozen=True)
class Photo:
    """A photo as the network sees it."""

    x: Tensor
    width: int
    height: int
    """Of the file's picture, in pixels."""

    @property
    def enlarged(self) -> bool:
        """Is the photo much smaller than the network's input?"""
        return min(self.width, self.height) * ENLARGED < min(self.x.shape[-2:])


@dataclass(frozen=True)
class Question:
    """What is asked about every photo."""

    model: ImageModel
    target: int | None
    objective: Any
    baseline: Any
    features: Any
    batch_size: Any
    seed: int
    ranking: str
    """Of one-shot methods: by "absolute" score, as the paper's curves, or "signed"."""
    notes: PhotoNotes

    @staticmethod
    def of(args: argparse.Namespace, features: Any) -> Question:
        """Read the options and load the networks; whatever is wrong is a wrong command."""
        device = options.device(args.device)
        try:
            baseline = options.baseline(args.baseline)
            model = _load(args.model, weights=args.weights, outputs=args.outputs).to(device)
            same = args.outputs if args.judge == args.model else None
            judge = None if args.judge is None else _load(args.judge, outputs=same).to(device)
            if judge is not None:
                check_judge(args.model, model, args.judge, judge)
            _try_pictures(model, judge)
            target = None if args.class_ is None else find_class(args.class_, model.classes)
            objective = options.objective(args.objective, model)
        except UsageError:
            raise
        except GreedyPigError as error:
            raise UsageError(str(error)) from error
        ranking, batch_size = getattr(args, "ranking", "signed"), args.batch_size or "auto"
        notes = PhotoNotes(model, args.model, args.objective, baseline, args.baseline, judge,
                           args.judge, batch_size, ranking)  # fmt: skip
        return Question(
            model, target, objective, baseline, features, batch_size, args.seed, ranking, notes
        )

    def read(self, path: Path) -> Photo:
        """A photo as the network's input."""
        photo = open_photo(path)
        return Photo(self.model.preprocess(photo), *photo.size)


@dataclass(frozen=True)
class PhotoTask:
    """One photo explained by one method; a `Task` of a session."""

    question: Question
    search: Search
    x: Tensor
    features: Any = None
    """What one feature is, where it is not what --features names."""

    def explain(self, progress: Progress, resume: gp.Attribution | None) -> gp.Attribution:
        """The explanation alone, in the order that its curves and pictures show."""
        ask, features = self.question, self.features or self.question.features
        lines = len(ask.baseline) if isinstance(ask.baseline, list) else 1
        name = ask.notes.objective.partition(":")[0]
        method = self.search.method(Layout.of(self.x), name, lines)
        job = Job(
            ask.model, objective=ask.objective, baseline=ask.baseline, features=features,
            method=method, k=self.search.k, stop=self.search.stop, seed=ask.seed,
            batch_size=ask.batch_size, class_given=ask.target is not None,
        )  # fmt: skip
        job.by_name = True  # The views of steady-pig are fitted to the network.
        try:
            run = job.run([job.example(self.x, ask.target)], [self.x], resume=resume)
        except BudgetTooSmall as error:
            raise self.search.refused(error, method, lines) from None
        self.search.with_reach(run)
        progress(run)
        for _ in run:
            progress(run)
        check_not_flat(run)
        return ordered(run.results()[0], features, ask.ranking)

    def with_notes(self, a: gp.Attribution, source: str, command: str) -> gp.Attribution:
        """The result with its curves, its predictions and the pictures it is drawn on."""
        return self.question.notes.add(a, self.x, source, command)

    def is_complete(self, saved: gp.Attribution) -> bool:
        """Does a saved result have the curves that are asked for now?"""
        return self.question.notes.are_in(saved)


def _load(spec: str, **options: Any) -> ImageModel:
    """The network of that name; its warnings name the command line's options."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = model_from(spec, **options)
    for each in caught:
        text = str(each.message).replace('outputs="probabilities"', "--outputs probabilities")
        warnings.warn(text, each.category, stacklevel=2)
    return model


def _try_pictures(model: ImageModel, judge: ImageModel | None) -> None:
    """Raise before the search if an input cannot be shown, on the page or to the judge."""
    from PIL import Image

    if isinstance(model, OwnModel):
        # Loading the model has warned of it, with the model's name.
        warnings.filterwarnings("ignore", message="The model's output looks like probabilities")
    x = model.preprocess(Image.new("RGB", (256, 256), "gray"))[None]
    model.to_pixels(x)
    translate = None if judge is None else translation(model, judge)
    if translate is not None:
        translate(x)


class PhotoOutput:
    """One photo and the files that its result goes to."""

    def __init__(self, path: Path, name: str, stem: Path, args: argparse.Namespace) -> None:
        self.path, self.name = path, name
        # Not with_suffix: a stem may hold dots of its own.
        result = stem.with_name(stem.name + ".gpig")
        self.session = Session(result, args.resume, Progress(POINTS + len(SHARES)))
        self.page = None if args.no_html else stem.with_name(stem.name + ".html")
        other = "kept" if args.objective == "counterfactual" else "without"
        names = [name for name in DRAW if name != other] if args.pictures else []
        self.pictures = {name: stem.with_name(f"{stem.name}-{name}.png") for name in names}

    def files(self) -> list[Path]:
        """Everything that will be written."""
        page = [] if self.page is None else [self.page]
        return [self.session.result, *page, *self.pictures.values()]

    def draw(self, a: gp.Attribution) -> list[Path]:
        """Write the page and the pictures of the result; all files that there are now.

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
    question: Question, search: Search, jobs: list[PhotoOutput], summary: Summary, bar: Bar
) -> None:
    command = summary.terminal.command_line()
    for i, job in enumerate(jobs):
        progress = job.session.progress
        bar.label = (f"{i + 1}/{len(jobs)} " if len(jobs) > 1 else "") + job.name
        summary.terminal.subject = job.name if len(jobs) > 1 else ""
        share = lambda i=i, progress=progress: i + progress.share()  # noqa: E731
        bar.follow(share, len(jobs), progress.phase)
        began = time.monotonic()
        try:
            photo = question.read(job.path)
            task = PhotoTask(question, search, photo.x)
            a = job.session.answer(task, job.name, command)
            files = job.draw(a)
        except KeyboardInterrupt:
            job.session.keep()
            raise Stopped(summary.stopped(job.name)) from None
        except (UsageError, OSError, MissingPackage):
            raise
        except Exception as error:
            summary.failures.add(fspath(job.path), error)
        else:
            seconds = time.monotonic() - began
            summary.add(job.path, a, files, seconds, job.session.before, small_photo(photo))
    summary.terminal.subject = ""


def small_photo(photo: Photo) -> str | None:
    """The sizes of a photo that was enlarged a lot; None for another."""
    if not photo.enlarged:
        return None
    height, width = photo.x.shape[-2:]
    return f"{photo.width}×{photo.height} enlarged to {width}×{height}"


def _index(jobs: list[PhotoOutput], args: argparse.Namespace) -> list[Path]:
    """The page that leads to the others, if there are several."""
    if args.no_html or len(jobs) < 2:
        return []
    return [jobs[0].session.result.parent / "index.html"]
