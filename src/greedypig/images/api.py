"""`gp.explain_photo`: from a photo's file to a result with its curves, names and pictures.

`PhotoNotes` measures what a page shows beside the explanation itself: the probability with only the
best features present, and what a second network says.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from ..metrics.judges import check_judge
from ..metrics.ranking import feature_order
from ..results.picture import unranked
from ..tensors import baselines
from ..tensors.api import Job, check_not_flat
from ..tensors.run import check_checkpoint
from ..tensors.targets import margin
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
    objective: str = "softmax",
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
    objective: as in `explain`; "margin:CLASS" names the other class.
    baseline, features, method, k, stop, seed, batch_size, resume, checkpoint: as in `explain`. The
        views of steady-pig are left out for a network that they do not fit.
    ranking: the order of one-shot methods, by "absolute" or "signed" score.
    progress: a function that is called with the run before its first round and after every one.

    Examples:
        >>> a = gp.explain_photo("coffee.png")
        >>> a.about["class"], round(a.about["probability"], 2)
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
    title = ",".join(map(str, baseline)) if isinstance(baseline, list) else str(baseline)
    networks = (network, name, objective, baseline, title, second, judge_name)
    notes = PhotoNotes(*networks, batch_size, ranking)
    if isinstance(resume, Attribution) and notes.are_in(resume, a):
        return resume
    return notes.add(a, photo, Path(source).name or "photo")


def photo_objective(text: Any, model: ImageModel) -> Any:
    """objective= of `explain`, where margin:CLASS names the other class."""
    name, colon, rival = str(text).partition(":")
    if name == "margin" and colon:
        return margin(against=find_class(rival, model.classes))
    return text


def ordered(a: Attribution, features: Any, ranking: str) -> Attribution:
    """The result in the order that its curves show, with a name for its groups.

    ranking: of one-shot methods, by "absolute" or "signed" score.
    """
    if a.features.kind == "groups":
        regions = getattr(features, "reads_input", False)
        name = "pixel" if features == "pixels" else "region" if regions else "square"
        a = a.with_notes({"feature": name})
    return replace(a, order=feature_order(a, ranking)) if is_one_shot(a) else a


def _network(model: str | ImageModel) -> tuple[ImageModel, str]:
    if isinstance(model, str):
        return model_from(model), model
    return model, str(getattr(model, "name", None) or type(model).__name__)


@dataclass(frozen=True, eq=False)
class PhotoNotes:
    """What is measured and noted beside the explanation of a photo."""

    model: ImageModel
    name: str
    objective: str
    baseline: Any
    baseline_name: str
    judge: ImageModel | None = None
    judge_name: str | None = None
    batch_size: Any = "auto"
    ranking: str = "signed"
    """The order of one-shot methods: by "absolute" or "signed" score."""

    @property
    def removing(self) -> bool:
        """Is the prediction measured without the features, rather than with them alone?"""
        return self.objective == "counterfactual"

    def add(self, a: Attribution, x: Tensor, source: str) -> Attribution:
        """The result with its curves and what else is known of the photo."""
        target = int(a.settings["target"])
        curves, shares = self.curves(a, x)
        absent = baselines.resolve(self.baseline, x, Layout.of(x), self.model)
        with torch.no_grad():
            rows = [self.model(b.to(x).view_as(x).unsqueeze(0))[0] for b in absent]
        nothing = [float(torch.softmax(row.double(), 0)[target]) for row in rows]
        return a.with_notes(
            {
                "source": source,
                "model": self.name,
                "baseline": self.baseline_name,
                "objective": self.objective,
                "ranking": self.ranking if is_one_shot(a) else "order",
                "curves": curves,
                "kept": {} if self.removing else shares,
                "removed": shares if self.removing else {},
                "nothing": fmean(nothing),
                "judge": self.judge_name,
                "command": "",
            }
        )

    def are_in(self, saved: Attribution, a: Attribution) -> bool:
        """Is the saved result the finished `a`, and does it have these notes already?"""
        same = torch.equal(saved.order, a.order) and saved.gradients_used == a.gradients_used
        kind = "deletion" if self.removing else "softmax"
        noted = kind in saved.about.get("curves", {}) and "nothing" in saved.about
        finished = saved.stop is not StopReason.RUNNING
        return same and finished and noted and saved.about.get("judge") == self.judge_name

    def curves(
        self, a: Attribution, x: Tensor
    ) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
        """The curves at POINTS shares, and the probability at SHARES, from the same forwards.

        Of a counterfactual with those features switched off, else with them alone. Without an
        order there is none.
        """
        if unranked(a) is not None:
            return {}, {}
        gaps = min(POINTS, x.numel() + 1) - 1
        grid = [i / gaps for i in range(gaps + 1)]
        points = sorted({*grid, *SHARES})
        options: dict[str, Any] = {
            "target": int(a.settings["target"]),
            "baseline": self.baseline,
            "batch_size": self.batch_size,
            "ranking": "order",
        }
        if self.removing:
            own = {"deletion": metrics.deletion(self.model, x, a, points=points, **options)}
        else:
            own = metrics.information_curves(self.model, x, a, points=points, **options)
        where = [bisect_left(points, share) for share in grid]
        curves = {name: _plain(curve, where) for name, curve in own.items()}
        values = next(iter(own.values())).values
        shares = {f"{share:g}": float(values[bisect_left(points, share)]) for share in SHARES}
        if self.judge is not None:
            measure = metrics.deletion if self.removing else metrics.softmax_information_curve
            second = measure(self.model, x, a, points=grid, judge=self.judge, **options)
            every = range(len(second.values))
            curves["second-opinion"] = _plain(second, every) | {"judge": self.judge_name}
        return curves, shares


def _plain(curve: metrics.Curve, where: Sequence[int]) -> dict[str, Any]:
    """A curve at some of its points, as plain data."""
    index = torch.tensor(list(where))
    part = replace(curve, fractions=curve.fractions[index], values=curve.values[index])
    record = part.to_dict()
    return {key: record[key] for key in ("fractions", "values", "auc")}


__all__ = ["POINTS", "SHARES", "explain_photo", "photo_objective"]
