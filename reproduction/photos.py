"""What the reproductions on photos share: networks, and photos with their predictions.

Photos are drawn by the seed and predicted once. As in the paper the class that is explained is the
predicted one, c* = argmax_j f_j(x). The class that the photo's path names is noted beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from greedypig.core.attribution import Attribution
from greedypig.core.errors import InvalidInput
from greedypig.images import find_photos, label_of, model_from, open_photo
from greedypig.models import ImageModel
from greedypig.network.assets_folder import assets_folder
from greedypig.network.fingerprint import fingerprint
from greedypig.results.wording import kept_settings, setting
from greedypig.tensors.api import explain

from .experiment import Experiment, Method, Record, Task, digest

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
    number: int = 0
    """Its place among the photos drawn; its random numbers depend on it."""

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


class Sample:
    """The networks, and the photos that were drawn, with their predictions."""

    def __init__(self, experiment: Experiment, extra: Sequence[Path] = ()) -> None:
        """extra: photos to draw from besides those of `make assets`."""
        args, settings = experiment.args, experiment.settings
        objectives = settings["objectives"]
        if args.objective not in (None, *objectives):
            raise InvalidInput(
                f"Expected an objective of {experiment.name}: {', '.join(objectives)} "
                f"(got {args.objective!r})."
            )
        self.experiment, self.settings = experiment, settings
        self.objectives = objectives if args.objective is None else [args.objective]
        self.model_name = args.model or settings["model"]
        self.model = self._network(self.model_name)
        asked = getattr(args, "judge", None)
        self.judge_name = asked or settings.get("judge", NONE)
        self.judge = self._judge(asked is not None)
        networks = [fingerprint(each) for each in (self.model, self.judge) if each is not None]
        self.key = digest(networks, experiment.key, self.objectives, experiment.seed)
        """Digest of what every result depends on, besides its photo and method."""
        self.source, paths = self._paths(extra)
        self.photos = self._predict(drawn(paths, args.limit, experiment.seed))

    @property
    def wrong(self) -> list[str]:
        """Names of the photos whose label the network does not predict."""
        return [photo.path.name for photo in self.photos if photo.wrong]

    def about(self) -> Record:
        """Facts for --json."""
        judge = None if self.judge is None else self.judge_name
        return {"model": self.model_name, "judge": judge, "photos": len(self.photos)}

    def input_of(self, photo: Photo) -> Tensor:
        """A photo as the explained network's input."""
        return self.model.preprocess(open_photo(photo.path))

    def explain(
        self,
        x: Tensor,
        target: int,
        method: Method,
        objective: str,
        features: Any = "elements",
        number: int = 0,
    ) -> tuple[Attribution, Record]:
        """The explanation of an input by a method, with its cost and setting in words.

        number: inputs of other numbers get other random numbers, as in `gp.explain_many`.
        """
        a = explain(
            self.model,
            x,
            target=target,
            objective=objective,
            method=method.run(objective),
            baseline=self.settings["baseline"],
            features=features,
            seed=(self.experiment.seed, number),
        )
        words = setting(kept_settings(a))
        cost = {"gradients": a.gradients_used, "seconds": round(a.seconds, 3), "setting": words}
        return a, cost

    def _network(self, name: str) -> ImageModel:
        network: ImageModel = model_from(name).to(self.experiment.device)
        return network

    def _judge(self, asked: bool) -> ImageModel | None:
        """The network of the second opinion; one that was not asked for only where it fits."""
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

    def _paths(self, extra: Sequence[Path]) -> tuple[str, list[Path]]:
        """Where the photos come from, in words, and all of them."""
        folder, own = assets_folder() / "photos", self.experiment.args.photos
        if own is not None:
            return "photos of one's own", find_photos(own)
        if not folder.is_dir():
            raise InvalidInput(
                f"Expected photos in {folder} (got none there). Try make assets, or --photos DIR."
            )
        names = "".join(f" and scikit-image's {path.name}" for path in extra)
        return f"the photos of `make assets`{names}", find_photos([folder, *extra])

    def _predict(self, paths: Sequence[Path]) -> list[Photo]:
        digests = {path: sha256(path.read_bytes()).hexdigest()[:12] for path in paths}
        place = self.experiment.place
        tasks = [
            Task(
                path,
                place("photos", f"{path.stem[:60]}-{digests[path]}", self.key),
                f"predicting {path.name}",
                self._prediction,
                str(path),
            )
            for path in paths
        ]
        predictions: Mapping[Path, Record] = self.experiment.measure(tasks)
        if not predictions:
            raise InvalidInput(
                f"Expected photos that can be read (got none among {len(paths)} files). "
                f"The first: {next(iter(self.experiment.failed.values()))}"
            )
        named = len(self.model.classes) == IMAGENET
        return [
            Photo(path, digests[path], label_of(path) if named else None, **prediction, number=i)
            for i, (path, prediction) in enumerate(predictions.items())
        ]

    def _prediction(self, path: Path) -> Record:
        """The predictions of both networks for a photo."""
        image = open_photo(path)
        own = probabilities(self.model, image)
        target = int(own.argmax())
        record: Record = {"target": target, "probability": float(own[target])}
        if self.judge is not None:
            other = probabilities(self.judge, image)
            record["judge_target"] = int(other.argmax())
            record["judge_probability"] = float(other[target])
        return record


def probabilities(model: ImageModel, image: Any) -> Tensor:
    """The softmax of a network's outputs for a picture."""
    with torch.no_grad():
        return torch.softmax(model(model.preprocess(image).unsqueeze(0))[0].double(), 0)


def drawn(paths: Sequence[Path], limit: int | None, seed: int) -> list[Path]:
    """The first `limit` paths in an order drawn by the seed: a larger limit only adds photos."""
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(seed)).tolist()
    return [paths[i] for i in order[:limit]]
