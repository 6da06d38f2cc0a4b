"""The paper's example pictures: what is kept of a tabby and a tench, by method, objective, blocks.

Of the photos at hand those of the wanted classes are taken, else of the nearest ones; the table
says which. The numbers are the network's answers to the kept parts alone.
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
from greedypig.plots import Cell, gallery
from greedypig.results.wording import kept_settings, setting
from greedypig.tensors.api import explain
from greedypig.tensors.pictures import windows

from . import cache
from .cache import Shelf
from .outputs import Written
from .photos import Networks, Sample, Seen, default_photos, survey
from .request import Request, Result, Table
from .resumable import Batch, Task, carry_out
from .settings import Contender, Settings, quick_look

FILES = ("figures.md", "figures.csv", "tabby.png", "tench.png", "blocks.png")
OBJECTIVES = {"softmax": "softmax", "log-likelihood": "cross-entropy"}
"""Our names of the objectives and the paper's."""
HEADS = {
    "figure": "figure", "photo": "photo", "title": "method", "objective": "objective",
    "units": "units", "setting": "setting", "gradients": "gradients",
    "paper": "probability kept, paper", "probability": "probability kept, ours",
    "loss": "KL from the whole photo ↓",
}  # fmt: skip


@dataclass(frozen=True)
class Shot:
    """One picture to make: a photo explained in one way."""

    figure: str
    seen: Seen
    contender: Contender
    objective: str
    block: int | None = None


def run(request: Request) -> Result:
    """The figures and the table of their numbers."""
    job = Job.of(request, Settings.of("figures"))
    carry_out([job.batch(shot) for shot in job.shots()], request)
    result = job.result()
    return job.written(result) if request.group.first else result


@dataclass(frozen=True, eq=False)
class Job:
    """One run: the network, the photos of the figures, the methods."""

    request: Request
    settings: Settings
    networks: Networks
    sample: Sample
    chosen: dict[str, tuple[Seen, str]]
    """From a figure to its photo and how near that comes to the paper's."""
    contenders: tuple[Contender, ...]
    shelf: Shelf

    @staticmethod
    def of(request: Request, settings: Settings) -> Job:
        """Check the request, load the network, find the photos."""
        if request.objective not in (None, *OBJECTIVES):
            raise InvalidInput(
                f"Expected an objective of figures: {', '.join(OBJECTIVES)} "
                f"(got {request.objective!r})."
            )
        networks = Networks.of(request, settings, judged=False)
        contenders = settings.chosen(request.methods, request.budget, networks.shape)
        shelf = Shelf(request.out / "rows" / settings.name)
        wider = _with_a_cat(request)
        sample = survey(wider, networks, shelf)
        if wider is not request:
            source = "the photos of `make assets` and scikit-image's chelsea.png"
            sample = replace(sample, source=source)
        chosen = {
            name: nearest(sample.seen, networks.model.classes, **settings.more[name])
            for name in ("tabby", "tench")
        }
        return Job(request, settings, networks, sample, chosen, contenders, shelf)

    def shots(self) -> Iterator[Shot]:
        """Every picture of the three figures."""
        wanted = [o for o in OBJECTIVES if self.request.objective in (None, o)]
        tabby, tench = self.chosen["tabby"][0], self.chosen["tench"][0]
        for contender in self.contenders:
            if "softmax" in wanted:
                yield Shot("tabby", tabby, contender, "softmax")
        for contender in self.contenders:
            if isinstance(contender.method(), InRounds):
                for objective in wanted:
                    yield Shot("tench", tench, contender, objective)
        for size in self.settings.more["blocks"]["sizes"]:
            for contender in self.contenders:
                if contender.name in ("ig", "paper"):
                    for objective in wanted:
                        yield Shot("blocks", tench, self._of_blocks(contender, size), objective,
                                   size)  # fmt: skip

    def _of_blocks(self, contender: Contender, size: int) -> Contender:
        """The contender on b × b windows: one a round until k elements are covered, or one shot."""
        knobs, budget = self.settings.more["blocks"], self.request.budget
        if contender.name == "ig":
            steps = min(knobs["ig_steps"], budget or knobs["ig_steps"])
            return replace(contender, knobs={"method": "ig", "steps": steps}, budget=None)
        # Windows overlap, so some more of them are needed than k has room for.
        rounds = ceil(1.25 * self.settings.more["k"] / (3 * size * size))
        steps = knobs["steps"]
        if budget is not None and rounds * steps > budget:
            steps = max(1, min(steps, budget // rounds))
            rounds = max(1, min(rounds, budget // steps))
        method = {"method": "greedy-pig", "per_round": 1, "rounds": rounds, "steps": steps}
        return replace(contender, knobs=method, budget=None)

    def batch(self, shot: Shot) -> Batch:
        """The work of one picture."""
        name = ".".join(filter(None, [shot.figure, shot.contender.name, shot.objective,
                                      str(shot.block or "")]))  # fmt: skip
        return Batch(f"{name}: {shot.seen.path.name}", (Task(self.place(shot), shot),),
                     partial(map, self.taken))  # fmt: skip

    def place(self, shot: Shot) -> Path:
        """Where the picture's record lies."""
        return self.shelf.place(
            shot.seen.key, f"{shot.contender.name}.{shot.objective}.{shot.block or 'elements'}",
            self.networks.fingerprint, shot.contender.meaning(shot.objective),
            self.settings.more["baseline"], self.settings.more["k"], self.request.seed,
        )  # fmt: skip

    def taken(self, shot: Shot) -> dict[str, Any]:
        """Explain the photo and measure the network's answer to the kept part."""
        model, request, baseline = self.networks.model, self.request, self.settings.more["baseline"]
        x = self.networks.read(shot.seen.path)
        method, features = shot.contender.method(shot.objective), "elements"
        if shot.block is not None:
            features = windows(min(shot.block, *x.shape[-2:]))
        a = explain(model, x, target=shot.seen.target, baseline=baseline, seed=request.seed,
                    objective=shot.objective, batch_size=request.batch_size, method=method,
                    features=features)  # fmt: skip
        one_shot = not isinstance(method, InRounds)
        rule = "signed" if shot.block is not None and one_shot else None
        needed, ranking = counts_needed(a, Layout.of(x), rule)
        k = self._k(x)
        share = k / x.numel()
        curves = information_curves(model, x, a, target=shot.seen.target, baseline=baseline,
                                    ranking=rule, points=[share, 1.0],
                                    batch_size=request.batch_size)  # fmt: skip
        importance = (1 - (needed.double() - 1) / max(x.numel() - 1, 1)).view_as(x).mean(0)
        return {
            "method": shot.contender.name, "objective": shot.objective, "ranking": ranking,
            "gradients": a.gradients_used, "seconds": round(a.seconds, 3),
            "settings": kept_settings(a), "kept": int((needed <= k).sum()),
            "probability": float(curves["softmax"].values[0]),
            "loss": float(curves["loss"].values[0]), "shape": list(x.shape),
            "mask": _packed(np.packbits((needed <= k).cpu().numpy())),
            "importance": _packed((importance * 255).round().to(torch.uint8).cpu().numpy()),
        }  # fmt: skip

    def _k(self, x: Tensor) -> int:
        more = self.settings.more
        return int(min(more["k"], round(more["k_share"] * x.numel())))

    def found(self) -> Iterator[tuple[Shot, dict[str, Any]]]:
        """What was made, with its record."""
        for shot in self.shots():
            record = cache.read(self.place(shot))
            if record is not None and "error" not in record:
                yield shot, record

    def result(self) -> Result:
        """The table of the pictures' numbers."""
        rows: list[dict[str, Any]] = []
        for shot, record in self.found():
            rows.append({
                "figure": shot.figure, "photo": shot.seen.path.name, "title": shot.contender.title,
                "method": shot.contender.name, "objective": OBJECTIVES[shot.objective],
                "units": "elements" if shot.block is None else f"{shot.block} × {shot.block}",
                "setting": setting(record["settings"]), "gradients": record["gradients"],
                "seconds": record["seconds"], "kept": record["kept"],
                "paper": shot.contender.paper.get(shot.figure),
                "probability": record["probability"], "loss": record["loss"],
            })  # fmt: skip
        failed = list(self.sample.broken)
        for shot in self.shots():
            record = cache.read(self.place(shot)) or {}
            if "error" in record:
                failed.append((f"{shot.figure}, {shot.contender.name}", record["error"]))
        if not rows:
            raise InvalidInput(
                "Expected at least one picture (got none). The first: "
                f"{failed[-1][1] if failed else 'none was asked for.'}"
            )
        formats = {"gradients": "{:,.0f}", "paper": "{:.4g}", "probability": "{:.4g}"}
        about = {"photos": {name: str(s.path.name) for name, (s, _) in self.chosen.items()},
                 "model": self.networks.name, "seed": self.request.seed,
                 "budget": self.request.budget}  # fmt: skip
        remarks = self._remarks(rows)
        return Result(self.settings.name, self.settings.title, Table(HEADS, rows, formats),
                      remarks, failed, about=about,
                      spoken=[*remarks[:2], *quick_look(self.contenders)])  # fmt: skip

    def _remarks(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        names = self.networks.model.classes
        remarks = []
        for figure, (seen, how) in self.chosen.items():
            remarks.append(
                f"{figure}: {seen.path.name}, {how}; {self.networks.name} sees "
                f"{names[seen.target]} {seen.probability:.3f}, which is explained. Photos: "
                f"{self.sample.source}."
            )
        remarks.append(
            f"Kept are the top {max(row['kept'] for row in rows):,} elements, the rest is "
            f"{self.settings.more['baseline']}."
        )
        if any("× 1 midpoint" in row["setting"] for row in rows):
            remarks.append(
                "With one midpoint a round both objectives pick alike where the network is sure of "
                "the photo: ∇p = p · ∇log p, and its cross-entropy is about log p."
            )
        return remarks + self.settings.closing(quick_look(self.contenders))

    def written(self, result: Result) -> Result:
        """The files of the result."""
        out = Written(self.request, result)
        columns = [*HEADS, "method", "kept", "seconds"]
        rows = [{k: row[k] for k in columns if k != "title"} for row in result.table.rows]
        out.csv("figures.csv", rows, first="figure")
        for figure in ("tabby", "tench", "blocks"):
            shots = [(s, r) for s, r in self.found() if s.figure == figure]
            if shots:
                out.figure(f"{figure}.png", partial(self._drawn, figure, shots))
        return out.page("figures.md")

    def _drawn(self, figure: str, shots: Sequence[tuple[Shot, dict[str, Any]]]) -> Any:
        seen = shots[0][0].seen
        x = self.networks.read(seen.path)
        name = self.networks.model.classes[seen.target]
        whole = Cell(f"{seen.path.name}\n{name} {seen.probability:.3f}", self._pixels(x))
        cells = [Cell(_caption(shot, record, name), self._kept(x, record))
                 for shot, record in shots]  # fmt: skip
        rows: list[list[Cell | None]]
        if figure == "blocks":
            sizes = list(dict.fromkeys(shot.block for shot, _ in shots))
            rows = [[whole, *(c for c, (s, _) in zip(cells, shots, strict=True) if s.block == b)]
                    for b in sizes]  # fmt: skip
        elif figure == "tabby":
            maps = [Cell(_heading(shot), _importance(record)) for shot, record in shots]
            rows = [[whole, *cells], [None, *maps]]
        else:
            rows = [[whole, *cells]]
        kept = f"{shots[0][1]['kept']:,}"
        about = {"tabby": f"top {kept} features by method; below, importance",
                 "tench": f"top {kept} features by objective",
                 "blocks": f"blocks, up to {kept} features"}  # fmt: skip
        return gallery(rows, heading=about[figure], note=self.networks.name)

    def _kept(self, x: Tensor, record: dict[str, Any]) -> NDArray[np.uint8]:
        bits = np.unpackbits(_unpacked(record["mask"]))[: x.numel()].astype(bool)
        mask = torch.from_numpy(bits).view_as(x).to(x.device)
        gray = self.networks.model.baseline(self.settings.more["baseline"]).to(x)
        return self._pixels(torch.where(mask, x, gray.expand_as(x)))

    def _pixels(self, x: Tensor) -> NDArray[np.uint8]:
        shown = self.networks.model.to_pixels(x).clamp(0, 1).mul(255).round().to(torch.uint8)
        found: NDArray[np.uint8] = shown.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy()
        return found


def nearest(
    seen: Sequence[Seen], classes: Sequence[str], *, wanted: str, nearest: Sequence[str]
) -> tuple[Seen, str]:
    """The surest photo of the wanted class, else of the first near one there is; and which."""
    for i, name in enumerate([wanted, *nearest]):
        try:
            index = find_class(name, classes)
        except InvalidInput:  # A network with classes of its own.
            continue
        of = [s for s in seen if s.target == index and not s.wrong]
        if of:
            how = name if i == 0 else f"{name}, the nearest there is to {wanted}"
            return max(of, key=lambda s: s.probability), how
    surest = max(seen, key=lambda s: s.probability)
    return surest, f"the surest photo, as none of {wanted} or near it is there"


def _with_a_cat(request: Request) -> Request:
    """scikit-image comes with a photo of a cat, which `make assets` does not."""
    spec = importlib.util.find_spec("skimage")
    if request.photos is not None or spec is None or spec.origin is None:
        return request
    cat = Path(spec.origin).parent / "data" / "chelsea.png"
    if not cat.is_file() or not default_photos().is_dir():
        return request
    return replace(request, photos=[str(default_photos()), str(cat)])


def _heading(shot: Shot) -> str:
    """A picture's method, short enough for its width."""
    return shot.contender.title.replace("Integrated Gradients", "IG")


def _caption(shot: Shot, record: dict[str, Any], name: str) -> str:
    block = "" if shot.block is None else f", {shot.block} × {shot.block}"
    return f"{_heading(shot)}\n{OBJECTIVES[shot.objective]}{block}: {record['probability']:.3g}"


def _importance(record: dict[str, Any]) -> NDArray[np.float64]:
    levels = _unpacked(record["importance"]).reshape(record["shape"][1:])
    return levels.astype(np.float64) / 255


def _packed(data: NDArray[Any]) -> str:
    return b64encode(compress(data.tobytes())).decode()


def _unpacked(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(decompress(b64decode(text)), np.uint8)
