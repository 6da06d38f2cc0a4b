"""`gp.explain_photo`: from a photo's file to a result with its curves, names and pictures.

A page shows more than the explanation itself, which is measured here: the probability with only the
best features present, and what a second network says.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import metrics
from ..core.arguments import advise
from ..core.attribution import Attribution, is_one_shot
from ..core.carry_out import carry_out
from ..core.errors import InvalidInput
from ..core.layout import Layout
from ..core.stopping import Stop
from ..core.two_sided import one_side, title, two_sided
from ..metrics.judges import check_judge
from ..metrics.ranking import feature_order
from ..results.input_notes import ImageFacts
from ..results.picture import unranked
from ..tensors import baselines
from ..tensors.api import Job
from ..tensors.targets import margin
from ..types import (
    Baseline,
    BatchSize,
    FeaturesLike,
    MethodLike,
    ObjectiveLike,
    PathOrText,
    ProgressLike,
    Seed,
    Target,
)
from .class_names import find_class
from .from_spec import model_from
from .networks import ImageModel
from .photos import open_photo

if TYPE_CHECKING:
    from PIL import Image

SHARES = (0.01, 0.05, 0.1)
"""Shares of the features at which the probability is measured beside the curve's points."""
POINTS = 100
ONE_SHOT_RANKINGS = ("absolute", "signed")


@advise
def explain_photo(
    photo: PathOrText | Image.Image | Tensor,
    model: str | ImageModel = "efficientnet-lite0",
    *,
    target: Target = None,
    objective: ObjectiveLike = "softmax",
    baseline: Baseline = "gray",
    features: FeaturesLike = "elements",
    method: MethodLike | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: Seed = 0,
    batch_size: BatchSize = "auto",
    judge: str | ImageModel | None = None,
    ranking: str = "signed",
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Which features of a photo does a network use? As `greedypig explain photo.jpg` does.

    The result holds its curves, the model's predictions and the photo: `gp.plots` and `gp.report`
    draw it without the model.

    photo: a file, a PIL image, or what `model.preprocess` made of one.
    model: "efficientnet-lite0", "mobilenet-v2", "resnet50", "package.module:factory" for your own,
        or a network from `gp.models.load`. judge: a second network that evaluates the same
        features, named in the same way.
    target: the class by index, name or WordNet id; None takes the predicted class.
    objective: as in `explain`, also gp.two_sided(…); "margin:CLASS" names the other class.
    baseline, features, method, k, stop, seed, batch_size, checkpoint, progress: as in `explain`.
        The views of steady-pig are left out for a network that they do not fit.
    ranking: the order of one-shot methods, by "absolute" or "signed" score.

    Examples:
        >>> a = gp.explain_photo("coffee.png")
        >>> a.about.label, round(a.about.probability, 2)
        ('espresso', 0.95)
        >>> a.to_html("coffee.html")
    """
    network, name = _network(model)
    one, both = one_side(objective)
    second, judge_name = (None, None) if judge is None else _network(judge)
    if second is not None and judge_name is not None:
        check_judge(name, network, judge_name, second)
    if second is not None and callable(one):
        raise InvalidInput(
            "Expected an objective by name beside a judge, which is asked for its own probability "
            f"of the class (got {type(one).__name__}).",
            argument="judge",
        )
    if ranking not in ONE_SHOT_RANKINGS:
        raise InvalidInput(
            f"Expected ranking to be one of {', '.join(ONE_SHOT_RANKINGS)} (got {ranking!r}).",
            argument="ranking",
        )
    source = os.fspath(photo) if isinstance(photo, str | os.PathLike) else ""
    source = source or str(getattr(photo, "filename", ""))
    if not isinstance(photo, Tensor):
        image = open_photo(photo) if isinstance(photo, str | os.PathLike) else photo
        photo = network.preprocess(image)
    network.to_pixels(photo)  # Fails before the run for a network that does not know its colours.
    job = Job(
        model=network,
        objective=photo_objective(objective, network),
        baseline=baseline,
        features=features,
        method=method,
        batch_size=batch_size,
        class_given=target is not None,
        by_name=True,
    )
    index = None if target is None else find_class(target, network.classes)
    question, chosen = job.question([job.example(photo, index)])
    (record,), check = question.records, question.finish
    record = replace(record, settings={**record.settings, "judge": judge_name, "ranking": ranking})
    # A counterfactual is measured without the features, anything else with them alone.
    removing, function = job.target.towards_baseline, job.target.function
    measured = network if function is None else Measured(network, function)
    # In the words of the caller, such as "margin:lynx".
    objective_title = title(one, both) if isinstance(one, str) else job.target.title

    def finish(problem: int, a: Attribution) -> Attribution:
        a = ordered(check(problem, a), features, ranking)
        curves, shares = _curves(measured, photo, a, removing, second, baseline, batch_size)
        if "second-opinion" in curves:
            judged = {"judge": judge_name}
            curves["second-opinion"] = replace(curves["second-opinion"], settings=judged)
        facts = replace(
            _facts(a),
            source=Path(source).name or "photo",
            model=name,
            baseline=baseline_title(baseline),
            objective=objective_title,
            ranking=ranking if is_one_shot(a) else "order",
            curves=curves,
            kept={} if removing else shares,
            removed=shares if removing else {},
            nothing=_nothing(measured, photo, a, baseline),
            judge=judge_name or "",
        )
        return a.with_notes(facts)

    question = replace(question, records=(record,), finish=finish)
    search: dict[str, Any] = {"k": k, "stop": stop, "seed": seed}
    return carry_out(question, chosen, **search, checkpoint=checkpoint, progress=progress)[0]


class Measured:
    """A network and an objective of the caller's, as one function from a batch to values (m,)."""

    outputs = "values"

    def __init__(self, network: ImageModel, objective: Callable[[Tensor], Tensor]) -> None:
        self.network, self.objective = network, objective

    def __call__(self, batch: Tensor) -> Tensor:
        """The objective of every row."""
        return self.objective(self.network(batch))

    def baseline(self, name: str) -> Tensor:
        """The network's own input of this name, such as gray."""
        return self.network.baseline(name)


def _nothing(
    model: ImageModel | Measured, photo: Tensor, a: Attribution, baseline: Baseline
) -> float:
    """The probability of the class with nothing present, or the value of the caller's objective."""
    absent = baselines.resolve(baseline, photo, Layout.of(photo), model)
    with torch.no_grad():
        rows = [model(b.to(photo).view_as(photo).unsqueeze(0))[0].double() for b in absent]
    if isinstance(model, Measured):
        return fmean(map(float, rows))
    return fmean(float(torch.softmax(row, 0)[a.settings["target"]]) for row in rows)


def _facts(a: Attribution) -> ImageFacts:
    return a.about if isinstance(a.about, ImageFacts) else ImageFacts(**vars(a.about))


def photo_objective(text: Any, model: ImageModel) -> Any:
    """objective= of `explain`, where margin:CLASS names the other class."""
    text, both = one_side(text)
    if both:
        return two_sided(photo_objective(text, model))
    name, colon, rival = str(text).partition(":")
    if name == "margin" and colon:
        return margin(against=find_class(rival, model.classes))
    return text


def baseline_title(baseline: Baseline) -> str:
    """The name of a baseline in notes: of tensors and functions what kind of thing they are."""
    described = baselines.describe(baseline)
    return ",".join(map(str, described if isinstance(described, list) else [described]))


def ordered(a: Attribution, features: Any, ranking: str) -> Attribution:
    """The result in the order that its curves show, with a name for its groups.

    ranking: of one-shot methods, by "absolute" or "signed" score.
    """
    if a.features.kind == "groups":
        regions = getattr(features, "reads_input", False)
        name = "pixel" if features == "pixels" else "region" if regions else "square"
        a = a.with_notes(replace(_facts(a), feature=name))
    return replace(a, order=feature_order(a, ranking)) if is_one_shot(a) else a


def _network(model: str | ImageModel) -> tuple[ImageModel, str]:
    if isinstance(model, str):
        return model_from(model), model
    return model, str(getattr(model, "name", None) or type(model).__name__)


def _curves(
    model: ImageModel | Measured,
    x: Tensor,
    a: Attribution,
    removing: bool,
    judge: ImageModel | None,
    baseline: Any,
    batch_size: Any,
) -> tuple[dict[str, metrics.Curve], dict[float, float]]:
    """The curves at POINTS shares, and the probability at SHARES, from the same forwards.

    removing: with those features switched off, else with them alone. Without an order there is
    none.
    """
    if unranked(a) is not None:
        return {}, {}
    gaps = min(POINTS, x.numel() + 1) - 1
    grid = [i / gaps for i in range(gaps + 1)]
    points = sorted({*grid, *SHARES})
    options: Any = {"baseline": baseline, "batch_size": batch_size, "ranking": "order"}
    if isinstance(model, Measured):
        options["outputs"] = "values"
        curve = metrics.softmax_information_curve(model, x, a, points=points, **options)
        own = {"objective": curve}
    else:
        options["target"] = int(a.settings["target"])
        if removing:
            own = {"deletion": metrics.deletion(model, x, a, points=points, **options)}
        else:
            own = metrics.information_curves(model, x, a, points=points, **options)
    where = [bisect_left(points, share) for share in grid]
    curves = {name: _part(curve, where) for name, curve in own.items()}
    values = next(iter(own.values())).values
    shares = {share: float(values[bisect_left(points, share)]) for share in SHARES}
    if judge is not None:
        measure = metrics.deletion if removing else metrics.softmax_information_curve
        second = measure(model, x, a, points=grid, judge=judge, **options)
        curves["second-opinion"] = _part(second, range(len(second.values)))
    return curves, shares


def _part(curve: metrics.Curve, where: Sequence[int]) -> metrics.Curve:
    """A curve at some of its points."""
    index = torch.tensor(list(where))
    return metrics.Curve(curve.fractions[index], curve.values[index], curve.name)


__all__ = ["POINTS", "SHARES", "explain_photo", "photo_objective"]
