"""The networks and photos of a reproduction: photos are drawn by the seed and predicted once.

As in the paper the class that is explained is the predicted one, c* = argmax_j f_j(x). The class
that the photo's path names (`greedypig.images.class_names.label_of`) is noted beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from greedypig.core.errors import GreedyPigError, InvalidInput, MissingPackage
from greedypig.images.class_names import label_of
from greedypig.images.from_spec import model_from
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.images.networks.imagenet import class_names
from greedypig.images.networks.pretrained import WeightsNotFoundError
from greedypig.images.photos import find_photos, open_photo
from greedypig.metrics.judges import check_judge, translation
from greedypig.models import ImageModel
from greedypig.network.fingerprint import fingerprint

from . import cache
from .job import Job
from .settings import OBJECTIVES, Request, Settings

NONE = "none"


@dataclass(frozen=True, eq=False)
class Networks:
    """The network that is explained, and the judge that gives a second opinion."""

    model: ImageModel
    name: str
    judge: ImageModel | None = None
    judge_name: str | None = None
    why_no_judge: str = ""
    """Why a judge of the settings is missing."""

    @staticmethod
    def of(request: Request, settings: Settings, *, judged: bool = True) -> Networks:
        """The networks that a request and the settings name, on the request's device."""
        name = request.model or settings.model
        try:
            model = model_from(name, weights=request.weights).to(request.device)
        except WeightsNotFoundError as error:
            raise InvalidInput(_no_assets(f"the weights of {name}")) from error
        if not judged or request.judge == NONE:
            return Networks(model, name)
        usual = settings.judge if settings.judge not in (None, name) else settings.model
        wanted = request.judge or str(usual)
        try:
            judge = model_from(wanted).to(request.device)
        except WeightsNotFoundError as error:
            if request.judge is None:
                return Networks(model, name, why_no_judge=f"the weights of {wanted} are missing")
            raise InvalidInput(_no_assets(f"the weights of {wanted}")) from error
        if request.judge is not None:
            check_judge(name, model, wanted, judge)
        elif tuple(judge.classes) != tuple(model.classes):
            return Networks(model, name, why_no_judge=f"{wanted} has other classes")
        return Networks(model, name, judge, wanted)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the explained network's input."""
        from PIL import Image

        return tuple(self.model.preprocess(Image.new("RGB", (256, 256))).shape)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the explained network."""
        return fingerprint(self.model)

    @cached_property
    def judge_fingerprint(self) -> str:
        """Fingerprint of the judge."""
        return "" if self.judge is None else fingerprint(self.judge)

    def read(self, path: Path) -> Tensor:
        """A photo as the explained network's input."""
        return self.model.preprocess(open_photo(path))

    def predict(self, path: Path) -> dict[str, Any]:
        """The predictions of both networks for a photo; {"error": …} if it cannot be read."""
        try:
            x = self.read(path).unsqueeze(0)
        except MissingPackage:
            raise
        except GreedyPigError as error:
            return {"error": str(error)}
        with torch.no_grad():
            own = torch.softmax(self.model(x)[0].double(), 0).cpu()
            target = int(own.argmax())
            record = {"target": target, "probability": float(own[target])}
            if self.judge is not None:
                translate = translation(self.model, self.judge)
                logits = self.judge(x if translate is None else translate(x))[0]
                other = torch.softmax(logits.double(), 0).cpu()
                record["judge_target"] = int(other.argmax())
                record["judge_probability"] = float(other[target])
        return record


@dataclass(frozen=True)
class Photo:
    """A photo with the predictions for it."""

    path: Path
    digest: str
    """Digest of the file's bytes."""
    label: int | None
    """The class that the path names, where the network has ImageNet's classes."""
    target: int
    """The predicted class, which is explained."""
    probability: float
    judge_target: int | None = None
    judge_probability: float | None = None
    """The judge's probability of `target`."""

    @property
    def key(self) -> str:
        """A name for files; photos of the same name differ in the digest."""
        return f"{self.path.stem[:60]}-{self.digest}"

    @property
    def wrong(self) -> bool:
        """Does the network predict another class than the label?"""
        return self.label is not None and self.label != self.target

    @property
    def agreed(self) -> bool:
        """Does the judge predict the same class?"""
        return self.judge_target == self.target


@dataclass(frozen=True)
class Sample:
    """The photos of a run."""

    photos: tuple[Photo, ...]
    broken: tuple[tuple[str, str], ...]
    """Files that could not be read, each with the reason."""
    source: str
    """Where the photos come from, for the reader of a table."""

    @property
    def wrong(self) -> tuple[Photo, ...]:
        """Photos whose label the network does not predict."""
        return tuple(photo for photo in self.photos if photo.wrong)


class PhotoJob(Job):
    """A reproduction on photos: networks, methods and a sample of photos."""

    OBJECTIVES: ClassVar[tuple[str, ...]] = OBJECTIVES
    JUDGED: ClassVar[bool] = False
    """Does a second network judge?"""

    def prepare(self) -> None:
        request = self.request
        objectives = tuple(self.more.get("objectives", self.OBJECTIVES))
        if request.objective not in (None, *objectives):
            raise InvalidInput(
                f"Expected an objective of {self.name}: {', '.join(objectives)} "
                f"(got {request.objective!r})."
            )
        self.objectives = objectives if request.objective is None else (request.objective,)
        self.networks = Networks.of(request, self.settings, judged=self.JUDGED)
        shape = self.networks.shape
        self.contenders = self.settings.chosen(request.methods, request.budget, shape)
        self.sample = predicted_sample(self, self.networks, self.more_photos())

    def more_photos(self) -> list[Path]:
        """Photos to draw from besides those of `make assets`."""
        return []

    def failures(self) -> list[tuple[str, str]]:
        return [*self.sample.broken, *super().failures()]

    def closing(self) -> list[str]:
        name, paper = self.networks.name, self.settings.model
        other = [] if name == paper else [f"The network is {name} here, {paper} in the paper."]
        return other + super().closing()


def predicted_sample(job: Job, networks: Networks, more: Sequence[Path] = ()) -> Sample:
    """Draw the photos and predict each; several processes share the work.

    more: further photos to draw from, besides those of `make assets`.
    """
    request = job.request
    paths, source = _paths(request, more)
    own_classes = tuple(networks.model.classes) != class_names()
    digests = [_digest(path) for path in paths]
    places = [
        job.place("photos", f"{path.stem[:60]}-{mark}", networks.fingerprint,
                  networks.judge_fingerprint)
        for path, mark in zip(paths, digests, strict=True)
    ]  # fmt: skip
    share = request.group.share(list(zip(paths, places, strict=True)))
    for i, (path, place) in enumerate(share):
        request.progress(f"predicting {path.name}", i, len(share))
        if not (request.resume and job.read(place)):
            cache.write(place, networks.predict(path))
    request.group.barrier()
    photos, broken = [], []
    for path, mark, place in zip(paths, digests, places, strict=True):
        record = cache.read(place) or {"error": f"Expected a result for {path} (got none)."}
        if "error" in record:
            broken.append((str(path), str(record["error"])))
        else:
            photos.append(Photo(path, mark, None if own_classes else label_of(path), **record))
    if not photos:
        first = f" The first: {broken[0][1]}" if broken else ""
        raise InvalidInput(
            f"Expected photos that can be read (got none among {len(paths)} files).{first}"
        )
    return Sample(tuple(photos), tuple(broken), source)


def default_photos() -> Path:
    """The folder of the photos of `make assets`."""
    return assets_folder() / "photos"


def drawn(paths: Sequence[Path], limit: int | None, seed: int) -> list[Path]:
    """The first `limit` paths in an order drawn by the seed: a larger limit only adds photos."""
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(seed)).tolist()
    return [paths[i] for i in order[:limit]]


def _paths(request: Request, more: Sequence[Path]) -> tuple[list[Path], str]:
    if request.photos is None:
        if not default_photos().is_dir():
            raise InvalidInput(_no_assets("photos"))
        paths = find_photos([str(p) for p in (default_photos(), *more)])
        names = "".join(f" and scikit-image's {path.name}" for path in more)
        source = f"the photos of `make assets`{names}"
    else:
        paths, source = find_photos(request.photos), "photos of one's own"
    return drawn(paths, request.limit, request.seed), source


def _digest(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()[:12]
    except OSError:  # `predict` gives the reason.
        return "unreadable"


def _no_assets(what: str) -> str:
    return (
        f"Expected {what} in {assets_folder()} (got none there). Try make assets, "
        "or --photos DIR and --weights FILE for your own."
    )
