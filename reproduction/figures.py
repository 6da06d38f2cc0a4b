"""The paper's example pictures: what is kept of a tabby and a tench, by method, objective, blocks.

The photos are those of the wanted classes, else of the nearest classes there are; the table says
which. The numbers are the network's outputs for the kept part alone.
"""

from __future__ import annotations

import importlib.util
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from greedypig.core.errors import InvalidInput
from greedypig.core.layout import Layout
from greedypig.core.methods import InRounds
from greedypig.images.class_names import find_class
from greedypig.metrics.curves import information_curves
from greedypig.metrics.ranking import counts_needed
from greedypig.results.wording import kept_settings, setting
from greedypig.tensors.api import explain
from greedypig.tensors.pictures import windows

from .job import Batch, Record
from .output import Files, Table
from .photos import Photo, PhotoJob
from .settings import Contender
from .sheets import Cell, gallery

PAPER_NAMES = {"softmax": "softmax", "log-likelihood": "cross-entropy"}
"""Our names of the objectives and the paper's."""
HEADS = {
    "figure": "figure", "photo": "photo", "title": "method", "objective": "objective",
    "units": "units", "setting": "setting", "gradients": "gradients",
    "paper": "probability kept, paper", "probability": "probability kept, ours",
    "loss": "KL from the whole photo ↓",
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """One picture of a figure: a photo explained in one way."""

    figure: str
    photo: Photo
    contender: Contender
    objective: str
    block: int | None = None

    @property
    def units(self) -> str:
        """The features, in words."""
        return "elements" if self.block is None else f"{self.block} × {self.block}"

    @property
    def heading(self) -> str:
        """The method, short enough for the picture's width."""
        return self.contender.title.replace("Integrated Gradients", "IG")

    def caption(self, record: Record) -> str:
        """Method, objective, probability of the kept part."""
        block = "" if self.block is None else f", {self.units}"
        return (f"{self.heading}\n{PAPER_NAMES[self.objective]}{block}: "
                f"{record['probability']:.3g}")  # fmt: skip


class Figures(PhotoJob):
    """The pictures of three figures."""

    FILES = ("figures.md", "figures.csv", "tabby.png", "tench.png", "blocks.png")

    def prepare(self) -> None:
        super().prepare()
        self.chosen = {
            name: nearest(self.sample.photos, self.networks.model.classes, **self.more[name])
            for name in ("tabby", "tench")
        }
        """From a figure to its photo and how near its class is to the paper's."""

    def more_photos(self) -> list[Path]:
        """The photo of a cat in scikit-image, as `make assets` brings none."""
        spec = importlib.util.find_spec("skimage")
        if spec is None or spec.origin is None:
            return []
        cat = Path(spec.origin).parent / "data" / "chelsea.png"
        return [cat] if cat.is_file() else []

    def pictures(self) -> Iterator[Picture]:
        """Every picture of the three figures."""
        wanted = self.objectives
        tabby, tench = self.chosen["tabby"][0], self.chosen["tench"][0]
        if "softmax" in wanted:
            yield from (Picture("tabby", tabby, c, "softmax") for c in self.contenders)
        for contender in self.contenders:
            if isinstance(contender.method(), InRounds):
                yield from (Picture("tench", tench, contender, o) for o in wanted)
        for size in self.more["blocks"]["sizes"]:
            for contender in self.contenders:
                if contender.name in ("ig", "paper"):
                    of_blocks = self._of_blocks(contender, size)
                    yield from (Picture("blocks", tench, of_blocks, o, size) for o in wanted)

    def _of_blocks(self, contender: Contender, size: int) -> Contender:
        """The contender on b × b windows: one a round until k values are covered, or one shot."""
        knobs, budget = self.more["blocks"], self.request.budget
        if contender.name == "ig":
            steps = min(knobs["ig_steps"], budget or knobs["ig_steps"])
            return replace(contender, knobs={"method": "ig", "steps": steps}, budget=None)
        # Windows overlap, so more of them are needed than fit into k values side by side.
        rounds, steps = ceil(1.25 * self.more["k"] / (3 * size * size)), knobs["steps"]
        if budget is not None and rounds * steps > budget:
            steps = max(1, min(steps, budget // rounds))
            rounds = max(1, min(rounds, budget // steps))
        method = {"method": "greedy-pig", "per_round": 1, "rounds": rounds, "steps": steps}
        return replace(contender, knobs=method, budget=None)

    def batches(self) -> Iterator[Batch]:
        for picture in self.pictures():
            words = (picture.figure, picture.contender.name, picture.objective, picture.units)
            yield Batch.of_one(self.path(picture), picture, ", ".join(words), self.measure)

    def path(self, picture: Picture) -> Path:
        """The file of a picture's numbers."""
        name = f"{picture.contender.name}.{picture.objective}.{picture.block or 'elements'}"
        return self.place(
            picture.photo.key, name, self.networks.fingerprint,
            picture.contender.meaning(picture.objective), self.more["baseline"], self.more["k"],
            self.request.seed,
        )  # fmt: skip

    def measure(self, picture: Picture) -> Record:
        """Explain the photo and measure the network's output for the kept part."""
        model = self.networks.model
        x = self.networks.read(picture.photo.path)
        method = picture.contender.method(picture.objective)
        features: Any = "elements"
        if picture.block is not None:
            features = windows(min(picture.block, *x.shape[-2:]))
        common: dict[str, Any] = {
            "target": picture.photo.target, "baseline": self.more["baseline"],
            "batch_size": self.request.batch_size,
        }  # fmt: skip
        a = explain(model, x, objective=picture.objective, method=method, features=features,
                    seed=self.request.seed, **common)  # fmt: skip
        one_shot = not isinstance(method, InRounds)
        rule = "signed" if picture.block is not None and one_shot else None
        needed, ranking = counts_needed(a, Layout.of(x), rule)
        k = int(min(self.more["k"], round(self.more["k_share"] * x.numel())))
        curves = information_curves(model, x, a, ranking=rule, points=[k / x.numel(), 1.0],
                                    **common)  # fmt: skip
        importance = (1 - (needed.double() - 1) / max(x.numel() - 1, 1)).view_as(x).mean(0)
        return {
            "method": picture.contender.name, "objective": picture.objective, "ranking": ranking,
            "gradients": a.gradients_used, "seconds": round(a.seconds, 3),
            "settings": kept_settings(a), "kept": int((needed <= k).sum()),
            "probability": float(curves["softmax"].values[0]),
            "loss": float(curves["loss"].values[0]), "shape": list(x.shape),
            "mask": _packed(np.packbits((needed <= k).cpu().numpy())),
            "importance": _packed((importance * 255).round().to(torch.uint8).cpu().numpy()),
        }  # fmt: skip

    def measured(self) -> list[tuple[Picture, Record]]:
        """The pictures so far, with their numbers."""
        pairs = [(picture, self.read(self.path(picture))) for picture in self.pictures()]
        return [(picture, record) for picture, record in pairs if record is not None]

    def table(self) -> Table:
        rows = [
            {
                "figure": picture.figure, "photo": picture.photo.path.name,
                "title": picture.contender.title, "method": picture.contender.name,
                "objective": PAPER_NAMES[picture.objective], "units": picture.units,
                "setting": setting(record["settings"]),
                "paper": picture.contender.paper.get(picture.figure),
                **{key: record[key] for key in ("gradients", "seconds", "kept", "probability",
                                                "loss")},
            }
            for picture, record in self.measured()
        ]  # fmt: skip
        formats = {"gradients": "{:,.0f}", "paper": "{:.4g}", "probability": "{:.4g}"}
        return Table(HEADS, rows, formats)

    def about(self) -> Record:
        photos = {name: photo.path.name for name, (photo, _) in self.chosen.items()}
        return {"photos": photos, "model": self.networks.name}

    def remarks(self) -> list[str]:
        names, records = self.networks.model.classes, [record for _, record in self.measured()]
        remarks = [
            f"{figure}: {photo.path.name}, {how}; {self.networks.name} predicts "
            f"{names[photo.target]} {photo.probability:.3f}, which is explained. Photos: "
            f"{self.sample.source}."
            for figure, (photo, how) in self.chosen.items()
        ]
        remarks.append(f"Kept are the top {max(r['kept'] for r in records):,} values; the rest is "
                       f"{self.more['baseline']}.")  # fmt: skip
        if any("× 1 midpoint" in setting(r["settings"]) for r in records):
            remarks.append(
                "With one midpoint a round both objectives select alike where the network is sure "
                "of the photo: ∇p = p · ∇log p, and its cross-entropy is about log p."
            )
        return remarks

    def write(self, files: Files, table: Table) -> None:
        files.csv("figures.csv", table.rows, first="figure", without=("title",))
        for figure in ("tabby", "tench", "blocks"):
            pairs = [pair for pair in self.measured() if pair[0].figure == figure]
            if pairs:
                files.figure(f"{figure}.png", partial(self._figure, figure, pairs))

    def _figure(self, figure: str, pairs: Sequence[tuple[Picture, Record]]) -> Any:
        photo = pairs[0][0].photo
        x = self.networks.read(photo.path)
        name = self.networks.model.classes[photo.target]
        whole = Cell(f"{photo.path.name}\n{name} {photo.probability:.3f}", self._pixels(x))
        cells = [Cell(p.caption(r), self._masked(x, r)) for p, r in pairs]
        rows: list[list[Cell | None]] = [[whole, *cells]]
        if figure == "blocks":
            sizes = dict.fromkeys(p.block for p, _ in pairs)
            rows = [[whole, *(c for c, (p, _) in zip(cells, pairs, strict=True) if p.block == b)]
                    for b in sizes]  # fmt: skip
        elif figure == "tabby":
            rows.append([None, *(Cell(p.heading, _importance(r)) for p, r in pairs)])
        kept = f"{pairs[0][1]['kept']:,}"
        heading = {"tabby": f"top {kept} values by method; below, importance",
                   "tench": f"top {kept} values by objective",
                   "blocks": f"blocks, up to {kept} values"}  # fmt: skip
        return gallery(rows, heading=heading[figure], note=self.networks.name)

    def _masked(self, x: Tensor, record: Record) -> NDArray[np.uint8]:
        bits = np.unpackbits(_unpacked(record["mask"]))[: x.numel()].astype(bool)
        mask = torch.from_numpy(bits).view_as(x).to(x.device)
        gray = self.networks.model.baseline(self.more["baseline"]).to(x)
        return self._pixels(torch.where(mask, x, gray.expand_as(x)))

    def _pixels(self, x: Tensor) -> NDArray[np.uint8]:
        levels = self.networks.model.to_pixels(x).clamp(0, 1).mul(255).round().to(torch.uint8)
        pixels: NDArray[np.uint8] = levels.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy()
        return pixels


def nearest(
    photos: Sequence[Photo], classes: Sequence[str], *, wanted: str, nearest: Sequence[str]
) -> tuple[Photo, str]:
    """The most confident photo of the wanted class, else of the first near class; and which."""
    for i, name in enumerate([wanted, *nearest]):
        try:
            index = find_class(name, classes)
        except InvalidInput:  # A network with other classes.
            continue
        of_class = [photo for photo in photos if photo.target == index and not photo.wrong]
        if of_class:
            how = name if i == 0 else f"{name}, the nearest class to {wanted}"
            return max(of_class, key=lambda photo: photo.probability), how
    best = max(photos, key=lambda photo: photo.probability)
    return best, f"the most confident photo, as there is none of {wanted} or a near class"


def _importance(record: Record) -> NDArray[np.float64]:
    levels = _unpacked(record["importance"]).reshape(record["shape"][1:])
    return levels.astype(np.float64) / 255


def _packed(data: NDArray[Any]) -> str:
    return b64encode(compress(data.tobytes())).decode()


def _unpacked(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(decompress(b64decode(text)), np.uint8)
