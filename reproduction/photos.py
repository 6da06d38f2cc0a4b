"""The photos of a reproduction: drawn by the seed, looked at once, the unreadable ones listed.

As in the paper the class that is explained is the one the network predicts, c* = argmax_j f_j(x);
what the photo's path says it is (`greedypig.images.label_of`) is noted beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

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
from .cache import Shelf
from .request import Request
from .settings import Settings

NONE = "none"


@dataclass(frozen=True, eq=False)
class Networks:
    """The network that is explained, and the one that gives a second opinion."""

    model: ImageModel
    name: str
    judge: ImageModel | None = None
    judge_name: str | None = None
    why_no_judge: str = ""
    """Where a judge was meant to be and is not."""

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
        wanted = request.judge or _other(name, settings)
        try:
            judge = model_from(wanted).to(request.device)
        except WeightsNotFoundError as error:
            if request.judge is None:
                return Networks(model, name, why_no_judge=f"no weights of {wanted} are there")
            raise InvalidInput(_no_assets(f"the weights of {wanted}")) from error
        if request.judge is not None:
            check_judge(name, model, wanted, judge)
        elif tuple(judge.classes) != tuple(model.classes):
            return Networks(model, name, why_no_judge=f"{wanted} knows other classes")
        return Networks(model, name, judge, wanted)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the explained network's input."""
        from PIL import Image

        return tuple(self.model.preprocess(Image.new("RGB", (256, 256))).shape)

    @cached_property
    def fingerprint(self) -> str:
        """Of the explained network's numbers."""
        return fingerprint(self.model)

    @cached_property
    def judge_fingerprint(self) -> str:
        """Of the judge's numbers."""
        return "" if self.judge is None else fingerprint(self.judge)

    def read(self, path: Path) -> Tensor:
        """A photo as the explained network's input."""
        return self.model.preprocess(open_photo(path))

    def look(self, path: Path) -> dict[str, Any]:
        """What both networks say to a photo."""
        x = self.read(path).unsqueeze(0)
        with torch.no_grad():
            said = torch.softmax(self.model(x)[0].double(), 0).cpu()
            target = int(said.argmax())
            found = {"target": target, "probability": float(said[target])}
            if self.judge is not None:
                way = translation(self.model, self.judge)
                theirs = self.judge(x if way is None else way(x))[0]
                said = torch.softmax(theirs.double(), 0).cpu()
                found |= {"judge_target": int(said.argmax()),
                          "judge_probability": float(said[target])}  # fmt: skip
        return found


@dataclass(frozen=True)
class Seen:
    """A photo, and what the networks say to it."""

    path: Path
    digest: str
    """Of the file's bytes."""
    label: int | None
    """The class that the path tells, where the network knows ImageNet's classes."""
    target: int
    """The class the network predicts, which is explained."""
    probability: float
    judge_target: int | None = None
    judge_probability: float | None = None
    """The judge's probability of `target`."""

    @property
    def key(self) -> str:
        """A name for files: the photo's own and its digest, so that namesakes stay apart."""
        return f"{self.path.stem[:60]}-{self.digest}"

    @property
    def wrong(self) -> bool:
        """Does the network predict another class than the label?"""
        return self.label is not None and self.label != self.target

    @property
    def agreed(self) -> bool:
        """Does the judge see the same class?"""
        return self.judge_target == self.target


@dataclass(frozen=True)
class Sample:
    """The photos of a run."""

    seen: tuple[Seen, ...]
    broken: tuple[tuple[str, str], ...]
    """Files that could not be read, each with the reason."""
    source: str
    """Where they come from, for the reader of a table."""

    @property
    def wrong(self) -> tuple[Seen, ...]:
        """Those whose label the network does not predict."""
        return tuple(s for s in self.seen if s.wrong)


def survey(request: Request, networks: Networks, shelf: Shelf) -> Sample:
    """Draw the photos and look at each; with several processes each looks at its share."""
    paths, source = _paths(request)
    own_classes = tuple(networks.model.classes) != class_names()
    marked = [(path, _digest(path)) for path in paths]
    places = [
        shelf.place("photos", f"{path.stem[:60]}-{mark}", networks.fingerprint,
                    networks.judge_fingerprint)
        for path, mark in marked
    ]  # fmt: skip
    share = request.group.share(list(zip(paths, places, strict=True)))
    for i, (path, place) in enumerate(share):
        request.progress(f"looking at {path.name}", i, len(share))
        found = cache.read(place) if request.resume else None
        if found is None or "error" in found:
            cache.write(place, _looked(networks, path))
    request.group.barrier()
    seen, broken = [], []
    for (path, mark), place in zip(marked, places, strict=True):
        found = cache.read(place) or {"error": f"Expected a result for {path} (got none)."}
        if "error" in found:
            broken.append((str(path), str(found["error"])))
        else:
            label = None if own_classes else label_of(path)
            seen.append(Seen(path, mark, label, **found))
    if not seen:
        first = f" The first: {broken[0][1]}" if broken else ""
        raise InvalidInput(
            f"Expected photos that can be read (got none among {len(paths)} files).{first}"
        )
    return Sample(tuple(seen), tuple(broken), source)


def default_photos() -> Path:
    """Where `make assets` puts photos."""
    return assets_folder() / "photos"


def drawn(paths: Sequence[Path], limit: int | None, seed: int) -> list[Path]:
    """The first `limit` of the paths in an order made by the seed: more only add to fewer."""
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(seed)).tolist()
    return [paths[i] for i in order[:limit]]


def _paths(request: Request) -> tuple[list[Path], str]:
    if request.photos is None:
        place = default_photos()
        if not place.is_dir():
            raise InvalidInput(_no_assets("photos"))
        found, source = find_photos(place), "the photos of `make assets`"
    else:
        found, source = find_photos(request.photos), "photos of one's own"
    return drawn(found, request.limit, request.seed), source


def _looked(networks: Networks, path: Path) -> dict[str, Any]:
    try:
        return networks.look(path)
    except MissingPackage:
        raise
    except GreedyPigError as error:
        return {"error": str(error)}


def _digest(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()[:12]
    except OSError:  # It is told when the photo is opened.
        return "unreadable"


def _other(name: str, settings: Settings) -> str:
    """The settings' judge; where that is the explained network itself, their network."""
    judge = settings.judge or settings.model
    return judge if judge != name else settings.model


def _no_assets(what: str) -> str:
    return (
        f"Expected {what} in {assets_folder()} (got none there). Try make assets, "
        "or --photos DIR and --weights FILE for your own."
    )
