"""The paper's example pictures: what is kept of a tabby and a tench, by method, objective, blocks.

The photos are those of the wanted classes, else of the nearest classes there are; the table says
which. The numbers are the network's outputs for the kept part alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from greedypig import windows
from greedypig.core.errors import InvalidInput
from greedypig.core.layout import Layout
from greedypig.core.methods import InRounds
from greedypig.images import find_class
from greedypig.metrics import information_curves
from greedypig.metrics.ranking import counts_needed
from greedypig.plots import canvas
from greedypig.tensors.notes import levels

from .experiment import Experiment, Method, Record, Table, Task
from .photos import Photo, Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ("tabby.png", "tench.png", "blocks.png")
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
    method: Method
    objective: str
    block: int | None = None

    @property
    def features(self) -> str:
        """The features, in words."""
        return "elements" if self.block is None else f"{self.block} × {self.block}"


def reproduce(experiment: Experiment) -> None:
    """Draw the pictures of three figures, and write the network's output for each."""
    methods, settings = experiment.methods(experiment.budget), experiment.settings
    sample = Sample(experiment, extra=cat())
    classes = sample.model.classes
    tabby, tench = (
        nearest(sample.photos, classes, **settings[name]) for name in ("tabby", "tench")
    )
    tasks = []
    for picture in pictures(sample, methods, tabby[0], tench[0]):
        name = f"{picture.method.name}.{picture.objective}.{picture.block or 'elements'}"
        run = picture.method.run(picture.objective)
        place = experiment.place(picture.photo.key, name, sample.key, run)
        label = f"{picture.figure}, {name}"
        tasks.append(Task(picture, place, label, partial(measure, sample)))
    records: Mapping[Picture, Record] = experiment.measure(tasks)
    experiment.expect(records)
    rows = [row_of(picture, record) for picture, record in records.items()]
    formats = {"gradients": "{:,.0f}", "paper": "{:.4g}", "probability": "{:.4g}"}
    experiment.csv("figures.csv", rows, "figure", without=("title",))
    for figure in HEADINGS:
        part = {p: record for p, record in records.items() if p.figure == figure}
        if part:
            experiment.figure(f"{figure}.png", partial(draw, sample, figure, part))
    remarks = [
        f"{figure}: {photo.path.name}, {how}; {sample.model_name} predicts "
        f"{classes[photo.target]} {photo.probability:.3f}, which is explained."
        for figure, (photo, how) in {"tabby": tabby, "tench": tench}.items()
    ]
    most = max(record["kept"] for record in records.values())
    rest = f"The top {most:,} values are kept; the rest is {settings['baseline']}."
    remarks.append(f"{rest} Photos: {sample.source}.")
    experiment.page(Table(HEADS, rows, formats), remarks, **sample.about())


def cat() -> list[Path]:
    """The photo of a cat in scikit-image, as `make assets` brings none."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        return []
    path = Path(spec.origin).parent / "data" / "chelsea.png"
    return [path] if path.is_file() else []


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


def pictures(
    sample: Sample, methods: Sequence[Method], tabby: Photo, tench: Photo
) -> Iterator[Picture]:
    """Every picture of the three figures."""
    if "softmax" in sample.objectives:
        yield from (Picture("tabby", tabby, method, "softmax") for method in methods)
    for objective in sample.objectives:
        for method in methods:
            if isinstance(method.run(), InRounds):
                yield Picture("tench", tench, method, objective)
    for size in sample.settings["blocks"]["sizes"]:
        for method in methods:
            if method.name in ("ig", "paper"):
                blocks = of_blocks(sample, method, size)
                for objective in sample.objectives:
                    yield Picture("blocks", tench, blocks, objective, size)


def of_blocks(sample: Sample, method: Method, size: int) -> Method:
    """The method on b × b windows: one a round until k values are covered, or one shot."""
    knobs, budget = dict(sample.settings["blocks"][method.name]), sample.experiment.budget
    if method.name == "paper":
        # Windows overlap, so more of them are needed than fit into k values side by side.
        rounds = ceil(1.25 * sample.settings["k"] / (3 * size * size))
        if budget is not None:
            rounds = min(rounds, budget)
            knobs["steps"] = min(knobs["steps"], budget // rounds)
        return replace(method, knobs=knobs | {"rounds": rounds}, budget=None)
    return replace(method, knobs=knobs, budget=budget)


def measure(sample: Sample, picture: Picture) -> Record:
    """Explain the photo and measure the network's output for the kept part."""
    x, target, settings = sample.input_of(picture.photo), picture.photo.target, sample.settings
    features: Any = "elements"
    if picture.block is not None:
        features = windows(min(picture.block, *x.shape[-2:]))
    a, cost = sample.explain(x, target, picture.method, picture.objective, features)
    ranking = "signed" if picture.block is not None and picture.method.name == "ig" else None
    k = int(min(settings["k"], round(settings["k_share"] * x.numel())))
    mask = counts_needed(a, Layout.of(x), ranking)[0] <= k
    curves = information_curves(
        sample.model,
        x,
        a,
        target=target,
        baseline=settings["baseline"],
        ranking=ranking,
        points=[k / x.numel(), 1.0],
    )
    return {
        **cost,
        "kept": int(mask.sum()),
        "probability": float(curves["softmax"].values[0]),
        "loss": float(curves["loss"].values[0]),
        "mask": np.packbits(mask.cpu().numpy()).tobytes().hex(),
    }


def row_of(picture: Picture, record: Record) -> Record:
    """A picture's line of the table."""
    return {
        "figure": picture.figure,
        "photo": picture.photo.path.name,
        "title": picture.method.title,
        "method": picture.method.name,
        "objective": PAPER_NAMES[picture.objective],
        "features": picture.features,
        "paper": picture.method.paper.get(picture.figure),
        **{key: value for key, value in record.items() if key != "mask"},
    }


def draw(sample: Sample, name: str, records: Mapping[Picture, Record]) -> Figure:
    """The photo and what is kept of it, a row for each size of blocks."""
    photo = next(iter(records)).photo
    x = sample.input_of(photo)
    gray = sample.model.baseline(sample.settings["baseline"]).to(x).expand_as(x)
    rows: dict[int | None, list[tuple[str, Tensor]]] = {}
    for picture, record in records.items():
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(record["mask"]), np.uint8))
        mask = torch.from_numpy(bits[: x.numel()].astype(bool)).view_as(x).to(x.device)
        whole = f"{photo.path.name}\n{sample.model.classes[photo.target]} {photo.probability:.3f}"
        method = picture.method.title.replace("Integrated Gradients", "IG")
        setting = f"{PAPER_NAMES[picture.objective]}, {picture.features}"
        caption = f"{method}\n{setting}: {record['probability']:.3g}"
        row = rows.setdefault(picture.block, [(whole, x)])
        row.append((caption, torch.where(mask, x, gray)))
    across = max(map(len, rows.values()))
    title = HEADINGS[name].format(next(iter(records.values()))["kept"])
    figure = canvas.new_figure(2.75 * across, 0.6 + 3.3 * len(rows))
    canvas.heading(figure, title, 11)
    axes = figure.subplots(len(rows), across, squeeze=False)
    for line, cells in zip(axes, rows.values(), strict=True):
        for ax in line:
            ax.set_axis_off()
        for ax, (caption, shown) in zip(line, cells, strict=False):
            pixels = levels(sample.model.to_pixels(shown), tuple(shown.shape)).numpy()
            ax.imshow(pixels, interpolation_stage="rgba")
            canvas.title(ax, caption)
    return figure
