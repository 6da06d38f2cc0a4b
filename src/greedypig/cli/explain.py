"""`greedypig explain photo.jpg`: the features of a photo that a network uses, checked by a curve.

A `Question` is what does not depend on the photo: the networks, the class, the baseline. `compare`
asks it too, and runs its methods by `explained`.
"""

from __future__ import annotations

import importlib.util
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import fspath
from pathlib import Path
from typing import Any

from torch import Tensor

import greedypig as gp

from .. import plots, report
from ..core.errors import InvalidFile, MissingPackage, listed
from ..core.layout import Layout
from ..core.methods import GreedyPIG, SequentialGradient, as_method, with_knobs
from ..core.records import plain
from ..core.stopping import Stop
from ..images.api import SHARES, photo_objective
from ..images.class_names import find_class
from ..images.from_spec import OwnModel, model_from
from ..images.networks import ImageModel
from ..images.photos import find_photos, open_photo
from ..metrics.judges import check_judge, translation
from ..results.input_notes import SECOND, InputNotes
from ..results.labels import feature_word
from ..results.picture import features_within
from ..results.wording import chance, chance_cell, count, kept_settings, setting
from ..tensors.methods import choose, within
from ..tensors.targets import Target
from . import options, outputs
from .failures import DONE, FAILED, USAGE, Stopped, Unfit, UsageError, wrong_command
from .options import knobs_of
from .outputs import shown
from .resumable import Session
from .terminal import BOLD, Bar, Terminal, duration

EXPECTED = (gp.StopReason.ALL, gp.StopReason.ROUNDS, gp.StopReason.K)
"""Reasons to stop that need no mention."""
JUDGE, LIKELIHOOD = "a second network (--judge)", "--objective log-likelihood"
UNSTABLE = "Try more --rounds, and compare what is selected first."
_TABLE = "select {} --label COLUMN"
OTHERS = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".arrow"), _TABLE),
    **dict.fromkeys((".npz", ".pt"), "compress {}"),
    **dict.fromkeys((".txt", ".md", ".json"), "explain-text {}"),
    ".gpig": "report {}",
}
"""Endings of files that other commands read, and how to call them."""
DRAW: dict[str, Any] = {
    "kept": plots.kept,
    "without": plots.without,
    "heatmap": plots.heatmap,
    "overlay": plots.overlay,
    "order": plots.order_map,
    "curve": plots.curve,
}


@dataclass(frozen=True)
class Search:
    """How to explain: the method, its knobs, and when to stop."""

    method: Any = None
    """A name or an object; None where it is chosen by what is explained."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    k: int | None = None
    stop: Stop = field(default_factory=Stop)

    @staticmethod
    def of(args: Namespace) -> Search:
        """Read the options; whatever is wrong with them is a `UsageError`."""
        knobs = knobs_of(args)
        with wrong_command():
            if args.method is not None:
                with_knobs(as_method(args.method), **knobs)
            stop = Stop(gradients=args.budget, seconds=args.seconds)
        return Search(args.method, knobs, args.k, stop)

    def method_for(self, layout: Layout, objective: str, baselines: int = 1) -> Any:
        """The method for an input of this layout; a budget plans rounds that are not named."""
        method = choose(layout, objective) if self.method is None else as_method(self.method)
        if self.method is None and "steps" in self.knobs and isinstance(method, SequentialGradient):
            method = GreedyPIG()
        method = with_knobs(method, **self.knobs)
        if self.stop.gradients is None or {"rounds", "steps"} & set(self.knobs):
            return method
        return within(method, max(1, self.stop.gradients // baselines))


def run(args: Namespace, terminal: Terminal) -> int:
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
    index = stems[0].with_name("index.html")
    if len(names) > 1 and not args.no_html:  # All photos share it.
        files = {path: own | {"index": index} for path, own in files.items()}
    outputs.refuse_foreign(file for each in files.values() for file in each.values())
    runs = [
        PhotoRun(path, name, new_session(files[path]["result"], args), search)
        for path, name in names.items()
    ]
    question = Question.of(args, terminal)
    results: dict[Path, gp.Attribution] = {}
    failed: dict[Path, Exception] = {}
    with terminal.bar("") as bar:
        for each, a in explained(question, runs, terminal, bar, failed):
            _draw(a, files[each.path])
            results[each.path] = a
    if results and "index" in files[next(iter(names))]:
        pages = {files[path]["page"].name: a for path, a in results.items()}
        report.write_index(pages, index, failed=reasons(failed, terminal))
    if len(names) == 1:
        for path, a in results.items():
            show_photo(terminal, a, list(files[path].values()))
    elif results:
        show_photos(terminal, list(results.values()), stems[0].parent if args.no_html else index)
    for path in names:
        if path in results:
            terminal.result(record(path, results[path], list(files[path].values())))
        else:
            terminal.result({"photo": fspath(path), "error": terminal.sentence(failed[path])})
    return exit_code(failed, len(names))


def _files(stem: Path, args: Namespace) -> dict[str, Path]:
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
    place: int = 0
    """The photo's place among several; its random numbers depend on it, as in `explain_many`."""

    @property
    def label(self) -> str:
        """The photo's name, and the method's."""
        return f"{self.name}, {self.method}" if self.method else self.name


def new_session(result: Path, args: Namespace) -> Session:
    """The session of a photo's result."""
    return Session(result, args.resume, searching=0.7)


def explained(
    question: Question,
    runs: Sequence[PhotoRun],
    terminal: Terminal,
    bar: Bar,
    failed: dict[Path, Exception],
) -> Iterator[tuple[PhotoRun, gp.Attribution]]:
    """Every run with its result. A photo that fails is not tried again.

    failed: is filled with the photos that failed, and why.
    """
    photos, several = {each.path for each in runs}, len(runs) > 1
    for i, each in enumerate(runs):
        if each.path in failed:
            continue
        session = each.session
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
            failed[each.path], reason = error, terminal.sentence(error)
            path = fspath(each.path)
            terminal.fail(reason if path in reason or len(photos) == 1 else f"{path}: {reason}")
        else:
            yield each, a
    terminal.subject = ""


def reasons(failed: Mapping[Path, Exception], terminal: Terminal) -> list[tuple[str, str]]:
    """The photos that failed, each with a sentence."""
    return [(fspath(path), terminal.sentence(error)) for path, error in failed.items()]


def exit_code(failed: Mapping[Path, Exception], photos: int) -> int:
    """Settings that fit none of the photos are a wrong command."""
    unfit = [error for error in failed.values() if isinstance(error, Unfit)]
    return USAGE if len(unfit) == photos else FAILED if failed else DONE


@dataclass(frozen=True)
class Question:
    """What is asked about every photo: the networks, and the options of the command."""

    model: ImageModel
    judge: ImageModel | None
    target: int | None
    args: Namespace
    ranking: str
    """The order of one-shot methods, by "absolute" or "signed" score."""

    @staticmethod
    def of(args: Namespace, terminal: Terminal, ranking: str = "signed") -> Question:
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
        try:
            return self.model.preprocess(open_photo(path))
        except InvalidFile as error:
            ending = "".join(path.suffixes[-2:]).lower()
            command = next((OTHERS[e] for e in OTHERS if ending.endswith(e)), None)
            if command is None:
                raise
            raise InvalidFile(
                f"Expected a photo in {path} (got another kind of file). "
                f"Try greedypig {command.format(shown(path))}."
            ) from error

    def explain(self, run: PhotoRun, command: str, checkpoint: Path) -> gp.Attribution:
        """One method's result for one photo, from saved rounds if there are any."""
        args, search, x = self.args, run.search, self.read(run.path)
        baseline = options.baseline(args.baseline)
        lines = len(baseline) if isinstance(baseline, list) else 1
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
            seed=(args.seed, run.place),
            batch_size=args.batch_size or "auto",
            ranking=self.ranking,
            checkpoint=checkpoint,
            progress=run.session,
        )
        return a if a.about.command else a.with_notes({"source": run.name, "command": command})


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


def show_photo(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    """The lines of a single photo."""
    notes, total = InputNotes.of(a), a.features.count
    terminal.say(headline(notes), BOLD)
    if not notes.predicted:
        best, probability = notes.predictions[0]
        terminal.say(f"(the network predicts {best}, {chance(probability)})", indent=2)
    terminal.say(_method(a), indent=2)
    terminal.table(["", "", "", ""], [["", *row] for row in notes.rows()[1:]], names=2)
    if a.selected < features_within(a, max(SHARES)):
        terminal.say(
            f"selected {a.selected:,} of {total:,} {feature_word(a, total)}; the others are "
            "ranked by their last score",
            indent=2,
        )
    if SECOND in notes.curves:
        terminal.say(_second(notes), indent=2)
    fall, excess = notes.fall_line(), notes.excess_line()
    if fall is not None:
        terminal.caution(f"{fall} {UNSTABLE}", 2)
    elif excess is not None:
        terminal.caution(f"{excess} {notes.advice(JUDGE, LIKELIHOOD)}".rstrip(), 2)
    why = "" if a.stop in EXPECTED else f" ({a.stop})"
    terminal.say(f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}{why}", indent=2)
    terminal.say(outputs.wrote(files), indent=2)


def _method(a: gp.Attribution) -> str:
    """The method that ran, with its knobs."""
    return f"method {a.settings.get('method')}: {setting(kept_settings(a))}"


def headline(notes: InputNotes) -> str:
    """The photo, its class and how probable that is."""
    return f"{notes.source}: {notes.label}, probability {_chance(notes.probability)}"


def _chance(probability: float | None) -> str:
    return "unknown" if probability is None else chance(probability)


def _second(notes: InputNotes) -> str:
    curve, own = notes.curves[SECOND], notes.deletion or notes.curve
    whole = float(curve.values[0 if notes.removed else -1])
    areas = "" if own is None else f"{own.auc:.3f} by {notes.model}, "
    return (
        f"area under the curve: {areas}{curve.auc:.3f} by the judge {curve.judge}; "
        f"whole photo: {_chance(notes.probability)} and {chance(whole)}"
    )


def show_photos(terminal: Terminal, results: Sequence[gp.Attribution], where: Path) -> None:
    """A row for each photo, and below the table what concerns all of them.

    where: the page of all results, or their folder.
    """
    terminal.say(_method(results[0]))
    notes = [InputNotes.of(a) for a in results]
    without = "−" if notes[0].removed else ""
    numbers = ["all", *(f"{without}{100 * share:g} %" for share in SHARES)]
    if notes[0].judge:
        numbers += ["AUC", "judge"]
    terminal.table(["photo", "class", *numbers], [_row(photo) for photo in notes], names=2)
    gradients, seconds = sum(a.gradients_used for a in results), sum(a.seconds for a in results)
    terminal.say(
        f"{count(len(results), 'photo')}, {count(gradients, 'gradient')}, {duration(seconds)}. "
        f"Results in {shown(where)}"
    )
    if lost := [n.source for n in notes if n.fall() is not None]:
        terminal.caution(f"{listed(lost)}: the explanation does not hold. {UNSTABLE}")
    if higher := [n for n in notes if n.excess() is not None]:
        advised = next((n for n in higher if n.advises_log_likelihood), higher[0])
        text = (
            f"{count(len(higher), 'photo')} with a part of the features that gives a higher "
            f"probability than the whole photo. {advised.advice(JUDGE, LIKELIHOOD)}"
        )
        terminal.caution(text.rstrip())


def _row(notes: InputNotes) -> list[str]:
    """The cells of one photo."""
    mark = "" if notes.excess() is None else " ▲"
    shares = (notes.probability or 0.0, *(notes.removed or notes.kept).values())
    cells = [f"{notes.source}{mark}", notes.label, *map(chance_cell, shares)]
    own = notes.deletion or notes.curve
    if notes.judge and own is not None:
        cells += [f"{own.auc:.3f}", f"{notes.curves[SECOND].auc:.3f}"]
    return cells


def record(path: Path, a: gp.Attribution, files: Sequence[Path]) -> dict[str, Any]:
    """The object of --json for one photo."""
    notes = InputNotes.of(a)
    excess, fall = notes.excess(), notes.fall()
    curves = a.about.record()["curves"]
    return {
        "photo": fspath(path),
        "class": notes.label,
        "target": notes.target,
        "probability": notes.probability,
        "predictions": plain(notes.predictions),
        "kept": plain(notes.kept),
        "removed": plain(notes.removed),
        "nothing": notes.nothing,
        "enough": notes.needed(),
        "excess": None if excess is None else {"share": excess[0], "probability": excess[1]},
        "fall": None if fall is None else fall._asdict(),
        "method": a.settings["method"],
        "order": a.order.tolist(),
        "selected": a.selected,
        "curve": next(iter(curves.values())),
        "curves": curves,
        "gradients": a.gradients_used,
        "seconds": a.seconds,
        "stop": a.stop.name.lower(),
        "settings": dict(a.settings) | {"model": notes.model},
        "files": [fspath(file) for file in files],
    }
