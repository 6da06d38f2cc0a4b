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
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from .. import metrics
from ..core.attribution import Attribution, is_one_shot
from ..core.layout import Layout
from ..core.run import Run
from ..core.stopping import Stop, StopReason
from ..core.two_sided import one_side, title, two_sided
from ..metrics.judges import check_judge
from ..metrics.ranking import feature_order
from ..results.input_notes import ImageFacts
from ..results.picture import unranked
from ..tensors import baselines
from ..tensors.api import Job, check_not_flat
from ..tensors.run import check_checkpoint
from ..tensors.targets import Target, margin
from .class_names import find_class
from .from_spec import model_from
from .networks import ImageModel
from .photos import open_photo

if TYPE_CHECKING:
    from PIL import Image

SHARES = (0.01, 0.05, 0.1)
"""Shares of the features at which the probability is measured beside the curve's points."""
POINTS = 100


def explain_photo(
    photo: str | os.PathLike[str] | Image.Image | Tensor,
    model: str | ImageModel = "efficientnet-lite0",
    *,
    target: int | str | None = None,
    objective: Any = "softmax",
    baseline: Any = "gray",
    features: Any = "elements",
    method: Any = None,
    k: int | None = None,
    stop: Stop | None = None,
    judge: str | ImageModel | None = None,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    ranking: str = "signed",
    resume: Attribution | str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Run], object] | None = None,
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
    baseline, features, method, k, stop, seed, batch_size, resume, checkpoint: as in `explain`. The
        views of steady-pig are left out for a network that they do not fit.
    ranking: the order of one-shot methods, by "absolute" or "signed" score.
    progress: a function that is called with the run before its first round and after every one.

    Examples:
        >>> a = gp.explain_photo("coffee.png")
        >>> a.about.label, round(a.about.probability, 2)
        ('espresso', 0.95)
        >>> a.to_html("coffee.html")
    """
    check_checkpoint(checkpoint)
    network, name = _network(model)
    second, judge_name = (None, None) if judge is None else _network(judge)
    if second is not None and judge_name is not None:
        check_judge(name, network, judge_name, second)
    source = os.fspath(photo) if isinstance(photo, str | os.PathLike) else ""
    source = source or str(getattr(photo, "filename", ""))
    if not isinstance(photo, Tensor):
        image = open_photo(photo) if isinstance(photo, str | os.PathLike) else photo
        photo = network.preprocess(image)
    network.to_pixels(photo)  # Fails before the run for a network that does not know its colours.
    job = Job(
        network,
        objective=photo_objective(objective, network),
        baseline=baseline,
        features=features,
        method=method,
        k=k,
        stop=stop,
        seed=seed,
        batch_size=batch_size,
        class_given=target is not None,
    )
    job.by_name = True
    index = None if target is None else find_class(target, network.classes)
    run = job.run([job.example(photo, index)], resume=resume)
    run.finish(checkpoint, progress)
    check_not_flat(run)
    a = ordered(run.results()[0], features, ranking)
    # A counterfactual is measured without the features, anything else with them alone.
    removing = objective == "counterfactual"
    if isinstance(resume, Attribution) and _is_noted(resume, a, removing, judge_name):
        return resume
    absent = baselines.resolve(baseline, photo, Layout.of(photo), network)
    with torch.no_grad():
        rows = [network(b.to(photo).view_as(photo).unsqueeze(0))[0].double() for b in absent]
    nothing = [float(torch.softmax(row, 0)[a.settings["target"]]) for row in rows]
    curves, shares = _curves(network, photo, a, removing, second, baseline, batch_size)
    if "second-opinion" in curves:
        judged = {"judge": judge_name}
        curves["second-opinion"] = replace(curves["second-opinion"], settings=judged)
    facts = replace(
        _facts(a),
        source=Path(source).name or "photo",
        model=name,
        baseline=baseline_title(baseline),
        objective=photo_title(objective),
        ranking=ranking if is_one_shot(a) else "order",
        curves=curves,
        kept={} if removing else shares,
        removed=shares if removing else {},
        nothing=fmean(nothing),
        judge=judge_name or "",
    )
    return a.with_notes(facts)


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


def photo_title(objective: Any) -> str:
    """The name of an objective in notes; of margin:CLASS with the class."""
    name, both = one_side(objective)
    return title(name if isinstance(name, str) else Target(name).name, both)


def baseline_title(baseline: Any) -> str:
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


def _is_noted(saved: Attribution, a: Attribution, removing: bool, judge: str | None) -> bool:
    """Is the saved result the finished `a`, and does it have its notes already?"""
    same = torch.equal(saved.order, a.order) and saved.gradients_used == a.gradients_used
    facts, finished = _facts(saved), saved.stop is not StopReason.RUNNING
    noted = ("deletion" if removing else "softmax") in facts.curves and facts.nothing is not None
    return same and finished and noted and facts.judge == (judge or "")


def _curves(
    model: ImageModel,
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
