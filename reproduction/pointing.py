"""Figure 3 of the paper: the pointing game on 2 × 2 grids of the most confident photos.

Photos whose label is not the predicted class are left out: the class that is asked for would not
be visible in their cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from greedypig.core.errors import InvalidInput, listed
from greedypig.metrics import Grids, PointingGame, make_grids, pointing_score
from greedypig.results.wording import count

from .experiment import Experiment, Method, Record, Table, Task, digest
from .photos import Photo, Sample

PICTURES = ()
CELLS = 4
HEADS = {
    "title": "method",
    "setting": "setting",
    "gradients": "gradients",
    "paper": "pointing ↑, paper",
    "pointing": "pointing ↑, ours",
    "majority": "more than half ↑, ours",
    "share": "share in the right cell",
}


def reproduce(experiment: Experiment) -> None:
    """Play the game with every method on every grid."""
    methods, settings = experiment.methods(experiment.budget), experiment.settings
    sample = Sample(experiment)
    photos = [photo for photo in sample.photos if not photo.wrong]
    grids = grids_of(sample, photos)
    k = min(settings["k"], round(settings["k_share"] * grids.pictures[0].numel()))
    tasks = []
    for grid, sources in enumerate(grids.sources.tolist()):
        folder = f"grid-{digest(*(photos[i].digest for i in sources))}"
        for method in methods:
            run = method.run(sample.objectives[0])
            place = experiment.place(folder, method.name, sample.key, run, grid)
            label = f"grid {grid + 1}, {method.name}"
            tasks.append(Task((grid, method), place, label, partial(measure, sample, grids, k)))
    records = experiment.measure(tasks)
    played = [g for g in range(len(grids)) if all((g, method) in records for method in methods)]
    experiment.expect(played)
    rows = [
        row_of(method, ranking, k, [records[grid, method] for grid in played])
        for method in methods
        for ranking in method.rankings
    ]
    table = Table(HEADS, rows, {"gradients": "{:,.0f}", "paper": "{:.2f}"})
    experiment.csv("pointing.csv", table.rows, "method", without=("title",))
    pairs = []
    for method in methods:
        for grid in played:
            shown = [photos[i] for i in grids.sources[grid].tolist()]
            for row in pair_rows(shown, records[grid, method], sample.model.classes):
                pairs.append({"method": method.name, "grid": grid + 1, **row})
    experiment.csv("pointing-photos.csv", pairs, "method", "ranking", "grid")
    paper = settings["paper"]
    remarks = [
        f"{count(len(played), 'grid')} of 2 × 2 photos, {CELLS} classes each, of the "
        f"most confident of {count(len(sample.photos), 'photo')} ({sample.source}; the paper: "
        f"{paper['grids']} grids from {paper['photos']:,} of ImageNet), least confidence "
        f"{float(grids.confidences.min()):.3f}, cells that show a photo again: {grids.reused}; "
        f"{sample.model_name}, top {k:,} values."
    ]
    if sample.wrong:
        names = listed(sample.wrong)
        remarks.append(f"Left out, as the network predicts another class: {names}.")
    experiment.page(table, remarks, **sample.about())


def grids_of(sample: Sample, photos: Sequence[Photo]) -> Grids:
    """As many grids as the settings say, or as there are photos for."""
    grids = min(sample.settings["grids"], len(photos) // CELLS)
    if grids < 1:
        raise InvalidInput(
            f"Expected at least {CELLS} photos that the network gets right for a grid "
            f"(got {len(photos)}). Try a larger --limit."
        )
    pictures = [sample.input_of(photo) for photo in photos]
    classes, seed = [photo.target for photo in photos], sample.experiment.seed
    return make_grids(sample.model, pictures, classes, grids=grids, seed=seed)


def measure(sample: Sample, grids: Grids, k: int, item: tuple[int, Method]) -> Record:
    """Explain every class of a grid; the share of the top values in every cell."""
    grid, method = item
    board = replace(grids, pictures=grids.pictures[grid : grid + 1])
    picture, objective = grids.pictures[grid], sample.objectives[0]
    runs = [
        sample.explain(picture, target, method, objective, number=CELLS * grid + cell)
        for cell, target in enumerate(grids.classes[grid].tolist())
    ]
    attributions, (cost, *_) = zip(*runs, strict=True)
    shares = {}
    for ranking in method.rankings:
        game = pointing_score(board, attributions, k=k, ranking=ranking)
        shares[str(ranking)] = game.shares[0].tolist()
    return {**cost, "shares": shares}


def row_of(method: Method, ranking: str | None, k: int, records: Sequence[Record]) -> Record:
    """A method's numbers over all grids."""
    shares = torch.tensor([record["shares"][str(ranking)] for record in records])
    game = PointingGame(shares.double(), k)
    first = ranking == method.rankings[0]
    return {
        "method": method.name,
        "ranking": ranking,
        "title": method.title + ("" if first else f", by {ranking} score"),
        "setting": records[0]["setting"],
        "gradients": median(record["gradients"] for record in records),
        "paper": method.paper.get("pointing") if first else None,
        "pointing": game.score,
        "pointing_error": game.standard_error if len(records) > 1 else None,
        "majority": game.majority,
        "share": float(game.right.mean()),
        "seconds": median(record["seconds"] for record in records),
        "grids": len(records),
    }


def pair_rows(photos: Sequence[Photo], record: Record, classes: Sequence[str]) -> Iterator[Record]:
    """The photos of a grid, each with the share of its class in its own cell."""
    for ranking, shares in record["shares"].items():
        for cell, (photo, row) in enumerate(zip(photos, shares, strict=True)):
            yield {
                "ranking": ranking,
                "cell": cell + 1,
                "photo": photo.path.name,
                "class": classes[photo.target],
                "confidence": photo.probability,
                "share": row[cell],
                "hit": int(row[cell] > max(row[:cell] + row[cell + 1 :])),
            }
