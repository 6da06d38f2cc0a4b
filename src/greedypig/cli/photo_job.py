"""From a photo to an answer: the explanation, its curves, and the notes that its page needs.

A `Question` is what does not depend on the photo: the network, the class, the baseline, the judge.
"""

from __future__ import annotations

import argparse
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import greedypig as gp

from .. import metrics
from ..core.attribution import is_one_shot
from ..core.errors import BudgetTooSmall, GreedyPigError, InvalidInput
from ..core.layout import Layout
from ..core.scorers import PlannedScorer
from ..images.class_names import find_class
from ..images.from_spec import OwnModel, model_from
from ..images.networks import ImageModel
from ..images.photos import find_photos, open_photo
from ..metrics.ranking import unit_order
from ..metrics.judges import check_judge, translation
from ..results.picture import unranked
from ..tensors import baselines, methods
from . import options
from .failures import UsageError
from .terminal import Terminal

SHARES = (0.01, 0.05, 0.1)
"""Shares of the photo at which the probability is told."""
POINTS = 100
PREDICTIONS = 5
WHOLE_ANSWER = ("log-likelihood", "counterfactual")
"""Objectives that are the same for every class."""
ENLARGED = 4
"""Photos this many times smaller than the network's input are told of."""
_GRADIENT = 2.5
"""A gradient costs about as much as this many forward passes; for the bar alone."""


@dataclass(frozen=True)
class Found:
    """The photos that a command line means."""

    files: tuple[Path, ...]
    broken: tuple[tuple[str, str], ...]
    """What was named and is not there, each with the reason."""
    single: bool
    """One path was given and it is no folder or pattern: the answer is one object."""
    names: Mapping[Path, str]
    """What the files are called: in a folder that was given, by their path in it."""


def find(paths: Sequence[str]) -> Found:
    """The files behind the paths; one that leads nowhere does not end the others."""
    files: dict[Path, str] = {}
    broken = []
    for path in paths:
        try:
            for file in find_photos([path]):
                within = Path(path).is_dir()
                files.setdefault(file, fspath(file.relative_to(path)) if within else file.name)
        except InvalidInput as error:
            broken.append((path, str(error)))
    single = len(paths) == 1 and (not files or list(files) == [Path(paths[0])])
    alike = Counter(files.values())
    names = {file: name if alike[name] == 1 else fspath(file) for file, name in files.items()}
    return Found(tuple(files), tuple(broken), single, names)


@dataclass(frozen=True)
class Opened:
    """A photo as the network sees it."""

    x: Tensor
    width: int
    height: int
    """Of the file's picture, in pixels."""

    @property
    def enlarged(self) -> bool:
        """Is it so much smaller than the input that this shows little but the enlargement?"""
        return min(self.width, self.height) * ENLARGED < min(self.x.shape[-2:])


@dataclass(frozen=True)
class Question:
    """What is asked about every photo."""

    model: ImageModel
    name: str
    judge: ImageModel | None
    judge_name: str | None
    target: int | None
    objective: Any
    objective_name: str
    baseline: Any
    baseline_name: str
    batch_size: Any
    ranking: str
    """Of one-shot methods: by "absolute" score, as the paper's curves, or "signed"."""
    removing: bool
    """Is it measured how the answer moves without the features, rather than with them alone?"""

    @staticmethod
    def of(args: argparse.Namespace) -> Question:
        """Read the options and load the networks; whatever is wrong is a wrong command."""
        device = options.device(args.device)
        try:
            baseline = options.baseline(args.baseline)
            model = model_from(args.model, weights=args.weights, outputs=args.outputs).to(device)
            same = args.outputs if args.judge == args.model else None
            judge = None if args.judge is None else model_from(args.judge, outputs=same).to(device)
            if judge is not None:
                check_judge(args.model, model, args.judge, judge)
            _try_pictures(model, judge)
            target = None if args.class_ is None else find_class(args.class_, model.classes)
            objective = options.objective(args.objective, model)
        except UsageError:
            raise
        except GreedyPigError as error:
            raise UsageError(str(error)) from error
        return Question(model, args.model, judge, args.judge, target, objective, args.objective,
                        baseline, args.baseline, args.batch_size or "auto",
                        getattr(args, "ranking", "signed"),
                        args.objective == "counterfactual")  # fmt: skip

    def read(self, path: Path) -> Opened:
        """A photo as the network's input."""
        photo = open_photo(path)
        return Opened(self.model.preprocess(photo), *photo.size)

    def explain(
        self, x: Tensor, search: Mapping[str, Any], watch: Watch, resume: gp.Attribution | None
    ) -> gp.Attribution:
        """The explanation alone, in the order that its curves and pictures show."""
        asked = {"target": self.target, "baseline": self.baseline, "objective": self.objective}
        try:
            a = gp.explain(self.model, x, progress=watch, resume=resume, **asked, **search)
        except BudgetTooSmall as refused:
            raise _in_options(refused, search["method"], self.baseline) from None
        if a.features.kind == "groups":
            a = a.with_notes({"unit": _unit(search.get("features"))})
        return replace(a, order=unit_order(a, self.ranking)) if is_one_shot(a) else a

    def with_notes(self, a: gp.Attribution, x: Tensor, source: str, command: str) -> gp.Attribution:
        """The result with its curves, its predictions and the pictures it is drawn on."""
        target = int(a.settings["target"])
        with torch.no_grad():
            probabilities = torch.softmax(self.model(x.unsqueeze(0))[0].double(), 0).cpu()
        best = probabilities.topk(min(PREDICTIONS, len(probabilities)))
        names = self.model.classes
        curves, shares = self._curves(a, x)
        return a.with_notes(
            {
                "kind": "image",
                "source": source,
                "model": self.name,
                "class": names[target],
                "target": target,
                "probability": float(probabilities[target]),
                "predictions": [
                    [names[i], p]
                    for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ],
                "baseline": self.baseline_name,
                "objective": self.objective_name,
                "ranking": self.ranking if is_one_shot(a) else "order",
                "curves": curves,
                "kept": {} if self.removing else shares,
                "removed": shares if self.removing else {},
                "nothing": self._nothing(a, x, curves),
                "judge": self.judge_name,
                "command": command,
            },
            picture=self._pixels(x),
            baseline=self._pixels(self._absent(x)),
        )

    def told(self, saved: gp.Attribution) -> bool:
        """Does a saved result tell all that is asked for now?"""
        kind = "deletion" if self.removing else "softmax"
        there = kind in saved.about.get("curves", {}) and "nothing" in saved.about
        return there and saved.about.get("judge") == self.judge_name

    def _curves(
        self, a: gp.Attribution, x: Tensor
    ) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
        """The curves at POINTS shares, and the probability at SHARES, from the same forwards.

        Of a counterfactual with those numbers switched off, else with them alone. Without an
        order there is none.
        """
        if unranked(a) is not None:
            return {}, {}
        gaps = min(POINTS, x.numel() + 1) - 1
        grid = [i / gaps for i in range(gaps + 1)]
        points = sorted({*grid, *SHARES})
        told = self._told(a)
        if self.removing:
            own = {"deletion": metrics.deletion(self.model, x, a, points=points, **told)}
        else:
            own = metrics.information_curves(self.model, x, a, points=points, **told)
        where = [bisect_left(points, share) for share in grid]
        curves = {name: _plain(_part(curve, where)) for name, curve in own.items()}
        values = next(iter(own.values())).values
        shares = {f"{share:g}": float(values[bisect_left(points, share)]) for share in SHARES}
        if self.judge is not None:
            judged = metrics.deletion if self.removing else metrics.softmax_information_curve
            second = judged(self.model, x, a, points=grid, judge=self.judge, **told)
            curves["second-opinion"] = _plain(second) | {"judge": self.judge_name}
        return curves, shares

    def _nothing(self, a: gp.Attribution, x: Tensor, curves: Mapping[str, Any]) -> float:
        """The class's probability with nothing but the baseline."""
        for kind, end in (("softmax", 0), ("deletion", -1)):
            if kind in curves:
                return float(curves[kind]["values"][end])
        curve = metrics.softmax_information_curve(
            self.model, x, a, points=[0.0, 1.0], **self._told(a)
        )
        return float(curve.values[0])

    def _told(self, a: gp.Attribution) -> dict[str, Any]:
        return {"target": int(a.settings["target"]), "baseline": self.baseline,
                "batch_size": self.batch_size, "ranking": "order"}  # fmt: skip

    def _absent(self, x: Tensor) -> Tensor:
        """The baseline as a picture; of several, their mean."""
        flat = baselines.resolve(self.baseline, x, Layout.of(x), self.model)
        return torch.stack([b.to(x) for b in flat]).mean(0).view_as(x)

    def _pixels(self, x: Tensor) -> Tensor:
        """(h, w, 3) levels from 0 to 255 of an input."""
        shown = self.model.to_pixels(x).clamp(0, 1).mul(255).round().to(torch.uint8)
        return shown.expand(3, -1, -1).permute(1, 2, 0).cpu()


def _try_pictures(model: ImageModel, judge: ImageModel | None) -> None:
    """What cannot be shown, on the page or to the judge, is told before the search."""
    from PIL import Image

    if isinstance(model, OwnModel):
        # Has told so, by its name, when it was loaded.
        warnings.filterwarnings("ignore", message="The model's output looks like probabilities")
    x = model.preprocess(Image.new("RGB", (256, 256), "gray"))[None]
    model.to_pixels(x)
    translate = None if judge is None else translation(model, judge)
    if translate is not None:
        translate(x)


def _in_options(refused: BudgetTooSmall, method: Any, baseline: Any) -> BudgetTooSmall:
    """The same refusal, with the options that leave room for a round."""
    hints = [f"--budget {refused.needed}"]
    with suppress(InvalidInput):  # It has no steps.
        scorer, _ = methods.resolve(method, steps=1)
        parts = len(baseline) if isinstance(baseline, list) else 1
        if isinstance(scorer, PlannedScorer) and refused.budget >= parts * scorer.cost():
            hints.append(f"--steps {refused.budget // (parts * scorer.cost())}")
    return BudgetTooSmall(refused.needed, refused.budget, hints)


def tell_idle_class(args: argparse.Namespace, terminal: Terminal) -> None:
    """Warn of a class beside an objective that does not look at it."""
    if args.class_ is not None and args.objective in WHOLE_ANSWER:
        terminal.warn(
            f"--class {args.class_} does not change what is looked for: --objective "
            f"{args.objective} is about the network's whole answer. The class only chooses whose "
            "probability the curve shows. Try --objective softmax for what makes the class likely."
        )


class Watch:
    """Sees the rounds as they are done: for the bar, and to keep them when the run is stopped."""

    def __init__(self, forwards: int = POINTS + len(SHARES)) -> None:
        self.rounds: gp.Rounds | None = None
        self.forwards = forwards
        self.measuring = False
        """Are the rounds over, and the curves under way?"""
        self._planned = 0

    def __call__(self, rounds: gp.Rounds) -> None:
        """Before the first round and after every one."""
        if self.rounds is None:
            self._planned = planned(rounds)
        self.rounds = rounds

    def share(self) -> float:
        """How much of the work is done; the curves are the rest."""
        if self.rounds is None or not self._planned:
            return 0.0
        done = min(self.rounds.problem.gradients_used, self._planned)
        return _GRADIENT * done / (_GRADIENT * self._planned + self.forwards)

    def phase(self) -> str:
        """What is being done besides the rounds, for the bar."""
        return "curves" if self.measuring else ""

    def so_far(self) -> gp.Attribution | None:
        """The rounds done, to go on from; None if there are none."""
        if self.rounds is None or not self.rounds.problem.rounds:
            return None
        return self.rounds.attribution()


def planned(rounds: gp.Rounds) -> int:
    """Gradients that a run will pay, as far as that is known beforehand."""
    problem = rounds.problem
    total = _round_cost(rounds) * len(problem.schedule)
    return total if problem.limits.budget is None else min(total, problem.limits.budget)


def _round_cost(rounds: gp.Rounds) -> int:
    """Gradients of one round; 0 where that is not known beforehand."""
    problem = rounds.problem
    if not isinstance(problem.scorer, PlannedScorer):
        return 0
    return problem.scorer.cost() * len(problem.objective.parts)


def _unit(features: Any) -> str:
    """What groups of numbers are called that --features made."""
    if features == "pixels":
        return "pixel"
    return "region" if getattr(features, "reads_input", False) else "square"


def _part(curve: metrics.Curve, where: Sequence[int]) -> metrics.Curve:
    index = torch.tensor(where)
    return metrics.Curve(
        curve.fractions[index], curve.values[index], curve.name, curve.full, curve.settings
    )


def _plain(curve: metrics.Curve) -> dict[str, Any]:
    return {"fractions": curve.fractions.tolist(), "values": curve.values.tolist(),
            "auc": curve.auc}  # fmt: skip
