"""`greedypig explain photo.jpg`: the features of a photo that a network uses, checked by a curve.

A `Question` is what does not depend on the photo: the networks, the class, the baseline. `compare`
asks it too, and runs its methods by `explained`.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import fspath
from pathlib import Path
from typing import Any

from torch import Tensor

import greedypig as gp

from .. import plots, report
from ..core.errors import BudgetTooSmall, GreedyPigError, MissingPackage
from ..core.layout import Layout
from ..images.api import POINTS, SHARES, photo_objective
from ..images.class_names import find_class
from ..images.from_spec import OwnModel, model_from
from ..images.networks import ImageModel
from ..images.photos import find_photos, open_photo
from ..metrics.judges import check_judge, translation
from ..results.picture import unranked
from ..tensors.targets import Target
from . import explain_output, methods, options, outputs
from .failures import DONE, FAILED, Stopped, Unfit, UsageError, sentence, wrong_command
from .methods import Search
from .resumable import Session
from .terminal import Bar, Terminal

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
DRAW: dict[str, Any] = {
    "kept": plots.kept,
    "without": plots.without,
    "heatmap": plots.heatmap,
    "overlay": plots.overlay,
    "order": plots.order_map,
    "curve": plots.curve,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig explain`."""
    options.add_photos(parser)
    options.add_model(parser)
    options.add_features(methods.add_method(parser))
    options.add_hardware(parser)
    output = options.group(parser, "output")
    words = "a folder for the results; for one photo also a file, x.gpig or x.html"
    output.add_argument("--out", metavar="PATH", help=words)
    output.add_argument("--no-html", action="store_true", help="write no pages")
    words = "kept (for a counterfactual: without), heatmap, overlay, order, curve"
    output.add_argument("--pictures", action="store_true", help=f"also write PNG files: {words}")
    options.add_resume(output)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Explain every photo; one that fails is reported and does not end the others."""
    search = Search.of(args)
    if args.pictures and importlib.util.find_spec("matplotlib") is None:
        raise MissingPackage(
            "Expected the package matplotlib for --pictures (it is not installed). "
            'Try pip install "greedypig[plots]".'
        )
    names = photo_names(args.photos)
    stems = outputs.stems(args.out, list(names))
    files = {path: _files(stem, args) for path, stem in zip(names, stems, strict=True)}
    index = stems[0].with_name("index.html") if len(stems) > 1 and not args.no_html else None
    outputs.refuse_foreign([file for each in files.values() for file in each.values()])
    outputs.refuse_foreign([] if index is None else [index])
    runs = [
        PhotoRun(path, name, new_session(files[path]["result"], args), search)
        for path, name in names.items()
    ]
    question = Question.of(args, terminal)
    results: dict[Path, gp.Attribution] = {}
    failed: dict[str, str] = {}
    with terminal.bar("") as bar:
        for each, a in explained(question, runs, terminal, bar, failed):
            _draw(a, files[each.path])
            results[each.path] = a
    written = [file for path in results for file in files[path].values()]
    if index is not None and results:
        pages = {files[path]["page"].name: a for path, a in results.items()}
        report.write_index(pages, index, failed=list(failed.items()))
        written.append(index)
    records = [explain_output.record(p, a, list(files[p].values())) for p, a in results.items()]
    if list(results) == [Path(args.photos[0])]:
        (a,) = results.values()
        explain_output.show_photo(terminal, a, written)
        terminal.result(records[0])
    else:
        explain_output.show_photos(terminal, list(results.values()), written)
        paths = [fspath(file) for file in written]
        terminal.result({"results": records, "failed": failed_record(failed), "files": paths})
    return FAILED if failed else DONE


def _files(stem: Path, args: argparse.Namespace) -> dict[str, Path]:
    """Everything that is written for a photo: its result, its page, its pictures."""
    files = {"result": stem.with_name(f"{stem.name}.gpig")}
    if not args.no_html:
        files["page"] = stem.with_name(f"{stem.name}.html")
    if args.pictures:
        other = "kept" if args.objective == "counterfactual" else "without"
        files |= {name: stem.with_name(f"{stem.name}-{name}.png") for name in DRAW if name != other}
    return files


def _draw(a: gp.Attribution, files: dict[str, Path]) -> None:
    """Write the page and the pictures of a result."""
    for name, file in files.items():
        if name == "page":
            report.write(a, file)
        elif name in DRAW:
            outputs.save_figure(DRAW[name](a).figure, file)


def photo_names(paths: Sequence[str]) -> dict[Path, str]:
    """The files that the paths mean, with their names, or paths where a name is there twice."""
    with wrong_command():
        files = find_photos(paths)
    times = Counter(file.name for file in files)
    return {file: file.name if times[file.name] == 1 else fspath(file) for file in files}


@dataclass(frozen=True)
class PhotoRun:
    """One method on one photo."""

    path: Path
    name: str
    session: Session
    search: Search
    features: Any = None
    """What one feature is, where it is not what --features names."""
    method: str = ""
    """The method's title, where there are several."""

    @property
    def label(self) -> str:
        """The photo's name, and the method's."""
        return f"{self.name}, {self.method}" if self.method else self.name


def new_session(result: Path, args: argparse.Namespace) -> Session:
    """The session of a photo's result."""
    return Session(result, args.resume, POINTS + len(SHARES))


def explained(
    question: Question,
    runs: Sequence[PhotoRun],
    terminal: Terminal,
    bar: Bar,
    failed: dict[str, str],
) -> Iterator[tuple[PhotoRun, gp.Attribution]]:
    """Every run with its result. A photo that fails is not tried again.

    failed: is filled with the reasons of failures, by the photos' paths.
    """
    photos, unfit = {fspath(each.path) for each in runs}, 0
    several = len(runs) > 1
    for i, each in enumerate(runs):
        path, session = fspath(each.path), each.session
        if path in failed:
            continue
        bar.label = f"{i + 1}/{len(runs)} {each.label}" if several else each.label
        terminal.subject = each.label if several else ""
        share = lambda i=i, session=session: i + session.share()  # noqa: E731
        bar.follow(share, len(runs))
        try:
            done = f" after {i} of {len(runs)}" if several else ""
            how = partial(question.explain, each, terminal.command_line())
            a = session.answer(how, f"Stopped at {each.label}{done}.")
        except (UsageError, Stopped, OSError, MissingPackage):
            raise
        except Exception as error:
            failed[path] = reason = sentence(error)
            unfit += isinstance(error, Unfit)
            if unfit == len(photos) == 1:
                raise UsageError(reason) from error
            terminal.fail(reason if path in reason or len(photos) == 1 else f"{path}: {reason}")
        else:
            yield each, a
    terminal.subject = ""
    if unfit == len(photos):
        raise UsageError("These settings fit none of the photos.")


def failed_record(failed: Mapping[str, str]) -> list[dict[str, str]]:
    """The failures for --json."""
    return [{"photo": path, "reason": reason} for path, reason in failed.items()]


@dataclass(frozen=True)
class Question:
    """What is asked about every photo: the networks, and the options of the command."""

    model: ImageModel
    judge: ImageModel | None
    target: int | None
    args: argparse.Namespace
    ranking: str
    """The order of one-shot methods, by "absolute" or "signed" score."""

    @staticmethod
    def of(args: argparse.Namespace, terminal: Terminal, ranking: str = "signed") -> Question:
        """Read the options and load the networks; whatever is wrong is a wrong command."""
        if args.class_ is not None and args.objective in ("log-likelihood", "counterfactual"):
            terminal.warn(
                f"--class {args.class_} does not change the explanation: --objective "
                f"{args.objective} is about the probabilities of all classes."
            )
        with wrong_command():
            device = options.device(args.device)
            options.features(args.features)
            options.baseline(args.baseline)
            model = model_from(args.model, outputs=args.outputs).to(device)
            model.name = args.model
            judge = None
            if args.judge is not None:
                outputs = args.outputs if args.judge == args.model else None
                judge = model_from(args.judge, outputs=outputs).to(device)
                judge.name = args.judge
                check_judge(args.model, model, args.judge, judge)
            _try_pictures(model, judge)
            target = None if args.class_ is None else find_class(args.class_, model.classes)
            Target(photo_objective(args.objective, model))  # Raises for an unknown name.
        return Question(model, judge, target, args, ranking)

    def read(self, path: Path) -> Tensor:
        """A photo as the network's input."""
        return self.model.preprocess(open_photo(path))

    def explain(self, run: PhotoRun, command: str, saved: gp.Attribution | None) -> gp.Attribution:
        """One method's result for one photo, from a saved one if there is one."""
        args, search, x = self.args, run.search, self.read(run.path)
        baseline = options.baseline(args.baseline)
        lines = len(baseline) if isinstance(baseline, list) else 1
        try:
            a = gp.explain_photo(
                x,
                self.model,
                target=self.target,
                objective=args.objective,
                baseline=baseline,
                features=run.features or options.features(args.features),
                method=search.method_for(Layout.of(x), args.objective.partition(":")[0], lines),
                k=search.k,
                stop=search.stop,
                judge=self.judge,
                seed=args.seed,
                batch_size=args.batch_size or "auto",
                ranking=self.ranking,
                resume=saved,
                progress=run.session,
            )
        except BudgetTooSmall as error:
            raise UsageError(
                f"Expected a --budget of at least one round's {error.needed} gradients "
                f"(got {error.budget})."
            ) from None
        if (reason := unranked(a)) is not None:
            raise GreedyPigError(f"{reason} There is no result.")
        return a if a is saved else a.with_notes({"source": run.name, "command": command})


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
