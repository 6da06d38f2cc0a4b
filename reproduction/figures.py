"""The paper's example pictures: what is kept of a tabby and a tench, by method, objective, blocks.

The photos are those of the wanted classes, else of the nearest classes there are; the table says
which. The numbers are the network's outputs for the kept part alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from greedypig import windows
from greedypig.core.errors import InvalidInput
from greedypig.core.layout import Layout
from greedypig.core.methods import InRounds
from greedypig.images import find_class
from greedypig.metrics import information_curves
from greedypig.metrics.ranking import counts_needed

from .job import Batch, Record
from .output import Files, Table
from .photos import Photo, PhotoJob, cost
from .settings import Contender
from .sheets import Cell, gallery

PAPER_NAMES = {"softmax": "softmax", "log-likelihood": "cross-entropy"}
"""Our names of the objectives and the paper's."""
HEADS = {
    "figure": "figure",
    "photo": "photo",
    "title": "method",
    "objective": "objective",
    "features": "features",
    "setting": "setting",
    "gradients": "gradients",
    "paper": "probability kept, paper",
    "probability": "probability kept, ours",
    "loss": "KL from the whole photo ↓",
}
HEADINGS = {
    "tabby": "top {:,} values by method",
    "tench": "top {:,} values by objective",
    "blocks": "blocks, up to {:,} values",
}


@dataclass(frozen=True)
class Picture:
    """One picture of a figure: a photo explained in one way."""

    figure: str
    photo: Photo
    contender: Contender
    objective: str
    block: int | None = None

    @property
    def features(self) -> str:
        """The features, in words."""
        return "elements" if self.block is None else f"{self.block} × {self.block}"

    def caption(self, record: Record) -> str:
        """Method, objective, probability of the kept part."""
        method = self.contender.title.replace("Integrated Gradients", "IG")
        objective = PAPER_NAMES[self.objective]
        return f"{method}\n{objective}, {self.features}: {record['probability']:.3g}"


class Figures(PhotoJob):
    """The pictures of three figures."""

    FILES = ("figures.md", "figures.csv", "tabby.png", "tench.png", "blocks.png")

    def prepare(self) -> None:
        super().prepare()
        self.chosen = {
            name: nearest(self.photos, self.model.classes, **self.more[name])
            for name in ("tabby", "tench")
        }
        """From a figure to its photo and how near its class is to the paper's."""

    def extra_photos(self) -> list[Path]:
        """The photo of a cat in scikit-image, as `make assets` brings none."""
        spec = importlib.util.find_spec("skimage")
        if spec is None or spec.origin is None:
            return []
        cat = Path(spec.origin).parent / "data" / "chelsea.png"
        return [cat] if cat.is_file() else []

    def pictures(self) -> Iterator[Picture]:
        """Every picture of the three figures."""
        tabby, tench = self.chosen["tabby"][0], self.chosen["tench"][0]
        if "softmax" in self.objectives:
            yield from (Picture("tabby", tabby, c, "softmax") for c in self.contenders)
        for objective in self.objectives:
            for contender in self.contenders:
                if isinstance(contender.method(), InRounds):
                    yield Picture("tench", tench, contender, objective)
        for size in self.more["blocks"]["sizes"]:
            for contender in self.contenders:
                if contender.name in ("ig", "paper"):
                    of_blocks = self._of_blocks(contender, size)
                    for objective in self.objectives:
                        yield Picture("blocks", tench, of_blocks, objective, size)

    def _of_blocks(self, contender: Contender, size: int) -> Contender:
        """The contender on b × b windows: one a round until k values are covered, or one shot."""
        knobs, budget = dict(self.more["blocks"][contender.name]), self.request.budget
        if contender.name == "paper":
            # Windows overlap, so more of them are needed than fit into k values side by side.
            rounds = ceil(1.25 * self.more["k"] / (3 * size * size))
            if budget is not None:
                rounds = min(rounds, budget)
                knobs["steps"] = min(knobs["steps"], budget // rounds)
            return replace(contender, knobs=knobs | {"rounds": rounds}, budget=None)
        return replace(contender, knobs=knobs, budget=budget)

    def batches(self) -> Iterator[Batch]:
        for picture in self.pictures():
            name = f"{picture.contender.name}.{picture.objective}.{picture.block or 'elements'}"
            method = picture.contender.method(picture.objective)
            place = self.place(picture.photo.key, name, self.depends, method)
            yield Batch.of_one(place, picture, f"{picture.figure}, {name}", self.measure)

    def measure(self, picture: Picture) -> Record:
        """Explain the photo and measure the network's output for the kept part."""
        x, target = self.input_of(picture.photo), picture.photo.target
        features: Any = "elements"
        if picture.block is not None:
            features = windows(min(picture.block, *x.shape[-2:]))
        method, objective = picture.contender, picture.objective
        a = self.explained(x, target, method, objective, features=features)
        one_shot = picture.contender.name == "ig"
        ranking = "signed" if picture.block is not None and one_shot else None
        k = int(min(self.more["k"], round(self.more["k_share"] * x.numel())))
        mask = counts_needed(a, Layout.of(x), ranking)[0] <= k
        curves = information_curves(
            self.model,
            x,
            a,
            target=target,
            baseline=self.more["baseline"],
            ranking=ranking,
            points=[k / x.numel(), 1.0],
        )
        return {
            **cost(a),
            "kept": int(mask.sum()),
            "probability": float(curves["softmax"].values[0]),
            "loss": float(curves["loss"].values[0]),
            "mask": np.packbits(mask.cpu().numpy()).tobytes().hex(),
        }

    def measured(self) -> list[tuple[Picture, Record]]:
        """The pictures so far, with their numbers."""
        return [(p, self.outcomes[p]) for p in self.pictures() if p in self.outcomes]

    def table(self) -> Table:
        rows = [
            {
                "figure": picture.figure,
                "photo": picture.photo.path.name,
                "title": picture.contender.title,
                "method": picture.contender.name,
                "objective": PAPER_NAMES[picture.objective],
                "features": picture.features,
                "paper": picture.contender.paper.get(picture.figure),
                **{key: value for key, value in record.items() if key != "mask"},
            }
            for picture, record in self.measured()
        ]
        formats = {"gradients": "{:,.0f}", "paper": "{:.4g}", "probability": "{:.4g}"}
        return Table(HEADS, rows, formats)

    def remarks(self) -> list[str]:
        names, most = self.model.classes, max(r["kept"] for _, r in self.measured())
        figures = [
            f"{figure}: {photo.path.name}, {how}; {self.model_name} predicts "
            f"{names[photo.target]} {photo.probability:.3f}, which is explained."
            for figure, (photo, how) in self.chosen.items()
        ]
        rest = f"The top {most:,} values are kept; the rest is {self.more['baseline']}."
        return [*figures, f"{rest} Photos: {self.source}."]

    def write(self, files: Files, table: Table) -> None:
        files.csv("figures.csv", table.rows, first="figure", without=("title",))
        for figure in HEADINGS:
            pairs = [pair for pair in self.measured() if pair[0].figure == figure]
            if pairs:
                rows, title = self._cells(pairs), HEADINGS[figure].format(pairs[0][1]["kept"])
                files.figure(f"{figure}.png", partial(gallery, rows, title))

    def _cells(self, pairs: Sequence[tuple[Picture, Record]]) -> list[list[Cell]]:
        """The photo and what is kept of it, a row for each size of blocks."""
        photo = pairs[0][0].photo
        x = self.input_of(photo)
        gray = self.model.baseline(self.more["baseline"]).to(x).expand_as(x)
        name = self.model.classes[photo.target]
        whole = (f"{photo.path.name}\n{name} {photo.probability:.3f}", self._pixels(x))
        rows: dict[int | None, list[Cell]] = {}
        for picture, record in pairs:
            bits = np.unpackbits(np.frombuffer(bytes.fromhex(record["mask"]), np.uint8))
            mask = torch.from_numpy(bits[: x.numel()].astype(bool)).view_as(x).to(x.device)
            cell = (picture.caption(record), self._pixels(torch.where(mask, x, gray)))
            rows.setdefault(picture.block, [whole]).append(cell)
        return list(rows.values())

    def _pixels(self, x: Tensor) -> NDArray[np.uint8]:
        levels = self.model.to_pixels(x).clamp(0, 1).mul(255).round().to(torch.uint8)
        pixels: NDArray[np.uint8] = levels.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy()
        return pixels


def nearest(
    photos: Sequence[Photo], classes: Sequence[str], *, wanted: str, nearest: Sequence[str]
) -> tuple[Photo, str]:
    """The most confident photo of the wanted class, else of the first near class; and which."""
    for name in (wanted, *nearest):
        try:
            index = find_class(name, classes)
        except InvalidInput:  # A network with other classes.
            continue
        of_class = [photo for photo in photos if photo.target == index and not photo.wrong]
        if of_class:
            how = name if name == wanted else f"{name}, the nearest class to {wanted}"
            return max(of_class, key=lambda photo: photo.probability), how
    best = max(photos, key=lambda photo: photo.probability)
    return best, f"the most confident photo, as there is none of {wanted} or a near class"
