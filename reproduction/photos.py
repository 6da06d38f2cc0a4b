"""What the reproductions on photos have in common: networks, and photos with their predictions.

Photos are drawn by the seed and predicted once. As in the paper the class that is explained is the
predicted one, c* = argmax_j f_j(x). The class that the photo's path names is noted beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from greedypig.core.attribution import Attribution
from greedypig.core.errors import InvalidInput
from greedypig.images import find_photos, label_of, model_from, open_photo
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.models import ImageModel
from greedypig.network.fingerprint import fingerprint
from greedypig.results.wording import kept_settings, setting
from greedypig.tensors.api import explain

from .job import Batch, Job, Record, digest
from .settings import Contender

Item = TypeVar("Item")
NONE = "none"
IMAGENET = 1000
"""Number of ImageNet's classes."""


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


class PhotoJob(Job):
    """A reproduction on photos."""

    def prepare(self) -> None:
        request, known = self.request, self.more["objectives"]
        if request.objective not in (None, *known):
            raise InvalidInput(
                f"Expected an objective of {self.name}: {', '.join(known)} "
                f"(got {request.objective!r})."
            )
        self.objectives = known if request.objective is None else [request.objective]
        self.model_name = request.model or self.more["model"]
        self.model = self._network(self.model_name)
        self.judge_name = request.judge or self.more.get("judge", NONE)
        self.judge = self._judge()
        self.contenders = self.settings.chosen(request.methods, request.budget)
        networks = [fingerprint(each) for each in (self.model, self.judge) if each is not None]
        self.depends = digest(networks, sorted(self.more.items()), self.objectives, request.seed)
        """Digest of what every result depends on, besides its photo and method."""
        self._predict()

    def _network(self, name: str) -> ImageModel:
        network: ImageModel = model_from(name).to(self.request.device)
        return network

    def _judge(self) -> ImageModel | None:
        """The network of the second opinion; the settings' one only where it fits the model."""
        asked = self.request.judge is not None
        if asked and self.judge_name == self.model_name:
            raise InvalidInput(
                "Expected another network than the explained one for a second opinion "
                f"(got {self.judge_name} for both)."
            )
        if self.judge_name in (NONE, self.model_name):
            return None
        judge = self._network(self.judge_name)
        fits = tuple(judge.classes) == tuple(self.model.classes)
        return judge if asked or fits else None

    def input_of(self, photo: Photo) -> Tensor:
        """A photo as the explained network's input."""
        return self.model.preprocess(open_photo(photo.path))

    def explained(
        self, x: Tensor, target: int, contender: Contender, objective: str, **more: Any
    ) -> Attribution:
        """The explanation of an input by a method."""
        return explain(
            self.model,
            x,
            target=target,
            objective=objective,
            method=contender.method(objective),
            baseline=self.more["baseline"],
            seed=self.request.seed,
            **more,
        )

    def complete(self, items: Iterable[Item]) -> list[Item]:
        """The items (photos or grids) that every method explained."""
        return [i for i in items if all((i, c) in self.outcomes for c in self.contenders)]

    def extra_photos(self) -> list[Path]:
        """Photos to draw from besides those of `make assets`."""
        return []

    def _predict(self) -> None:
        """Draw the photos and predict each."""
        paths = drawn(self._paths(), self.request.limit, self.request.seed)
        digests = {path: sha256(path.read_bytes()).hexdigest()[:12] for path in paths}
        places = {
            p: self.place("photos", f"{p.stem[:60]}-{digests[p]}", self.depends) for p in paths
        }
        self.work(
            [
                Batch.of_one(places[p], p, f"predicting {p.name}", self._prediction, str(p))
                for p in paths
            ]
        )
        labels = len(self.model.classes) == IMAGENET
        self.photos = [
            Photo(path, digests[path], label_of(path) if labels else None, **self.outcomes[path])
            for path in paths
            if path in self.outcomes
        ]
        if not self.photos:
            raise InvalidInput(
                f"Expected photos that can be read (got none among {len(paths)} files). "
                f"The first: {next(iter(self.failed.values()))}"
            )

    def _paths(self) -> list[Path]:
        folder = assets_folder() / "photos"
        if self.request.photos is not None:
            self.source = "photos of one's own"
            return find_photos(self.request.photos)
        if not folder.is_dir():
            raise InvalidInput(
                f"Expected photos in {folder} (got none there). Try make assets, or --photos DIR."
            )
        more = self.extra_photos()
        names = "".join(f" and scikit-image's {path.name}" for path in more)
        self.source = f"the photos of `make assets`{names}"
        return find_photos([folder, *more])

    def _prediction(self, path: Path) -> Record:
        """The predictions of both networks for a photo."""
        image = open_photo(path)
        with torch.no_grad():
            x = self.model.preprocess(image)
            own = torch.softmax(self.model(x.unsqueeze(0))[0].double(), 0)
            target = int(own.argmax())
            record: Record = {"target": target, "probability": float(own[target])}
            if self.judge is not None:
                x = self.judge.preprocess(image)
                other = torch.softmax(self.judge(x.unsqueeze(0))[0].double(), 0)
                record["judge_target"] = int(other.argmax())
                record["judge_probability"] = float(other[target])
        return record

    def about(self) -> Record:
        judge = None if self.judge is None else self.judge_name
        return {"model": self.model_name, "judge": judge, "photos": len(self.photos)}

    @property
    def wrong(self) -> list[str]:
        """Names of the photos whose label the network does not predict."""
        return [photo.path.name for photo in self.photos if photo.wrong]


def cost(a: Attribution) -> Record:
    """What an explanation cost, and its setting in words."""
    words = setting(kept_settings(a))
    return {"gradients": a.gradients_used, "seconds": round(a.seconds, 3), "setting": words}


def drawn(paths: Sequence[Path], limit: int | None, seed: int) -> list[Path]:
    """The first `limit` paths in an order drawn by the seed: a larger limit only adds photos."""
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(seed)).tolist()
    return [paths[i] for i in order[:limit]]
