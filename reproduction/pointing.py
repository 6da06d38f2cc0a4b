"""Figure 3 of the paper: the pointing game on 2 × 2 grids of the most confident photos.

Photos whose label is not the predicted class are left out: the class that is asked for would not
be visible in their cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import torch

from greedypig.core.errors import InvalidInput
from greedypig.metrics import PointingGame, make_grids, pointing_score
from greedypig.results.wording import count, listed

from .job import Batch, Record, digest
from .output import Files, Table
from .photos import PhotoJob, cost
from .settings import Contender

HEADS = {
    "title": "method",
    "setting": "setting",
    "gradients": "gradients",
    "paper": "pointing ↑, paper",
    "pointing": "pointing ↑, ours",
    "majority": "more than half ↑, ours",
    "share": "share in the right cell",
}
PARTS = ("pictures", "classes", "sources", "confidences")
"""The fields of grids with a row for every grid."""


class Pointing(PhotoJob):
    """The game of every method on every grid."""

    FILES = ("pointing.md", "pointing.csv", "pointing-photos.csv")

    def prepare(self) -> None:
        super().prepare()
        cells = self.more["side"] ** 2
        self.right = [photo for photo in self.photos if not photo.wrong]
        grids = min(self.more["grids"], len(self.right) // cells)
        if grids < 1:
            raise InvalidInput(
                f"Expected at least {cells} photos that the network gets right for a grid "
                f"(got {len(self.right)}). Try a larger --limit."
            )
        pictures = [self.input_of(photo) for photo in self.right]
        self.grids = make_grids(
            self.model,
            pictures,
            [photo.target for photo in self.right],
            grids=grids,
            side=self.more["side"],
            seed=self.request.seed,
        )
        self.k = min(self.more["k"], round(self.more["k_share"] * pictures[0].numel()))

    def batches(self) -> Iterator[Batch]:
        for grid, sources in enumerate(self.grids.sources.tolist()):
            for contender in self.contenders:
                method = contender.method(self.objectives[0])
                photos = f"grid-{digest(*(self.right[i].digest for i in sources))}"
                place = self.place(photos, contender.name, self.depends, method)
                label = f"grid {grid + 1}, {contender.name}"
                yield Batch.of_one(place, (grid, contender), label, self.measure)

    def measure(self, item: tuple[int, Contender]) -> Record:
        """Explain every class of a grid; the share of the top values in every cell."""
        grid, contender = item
        grids, one = self.grids, slice(grid, grid + 1)
        board = replace(grids, **{part: getattr(grids, part)[one] for part in PARTS})
        attributions = [
            self.explained(grids.pictures[grid], target, contender, self.objectives[0])
            for target in grids.classes[grid].tolist()
        ]
        games = {
            str(ranking): pointing_score(board, attributions, k=self.k, ranking=ranking)
            for ranking in contender.rankings
        }
        shares = {ranking: game.shares[0].tolist() for ranking, game in games.items()}
        return {**cost(attributions[0]), "shares": shares}

    def table(self) -> Table:
        self.played = self.complete(range(len(self.grids)))
        rows = []
        for contender in self.contenders if self.played else ():
            records = [self.outcomes[grid, contender] for grid in self.played]
            for ranking in contender.rankings:
                shares = torch.tensor([r["shares"][str(ranking)] for r in records])
                game = PointingGame(shares.double(), self.k)
                first = ranking == contender.rankings[0]
                rows.append(
                    {
                        "method": contender.name,
                        "ranking": ranking,
                        "title": contender.title + ("" if first else f", by {ranking} score"),
                        "setting": records[0]["setting"],
                        "gradients": median(r["gradients"] for r in records),
                        "paper": contender.paper.get("pointing") if first else None,
                        "pointing": game.score,
                        "pointing_error": game.standard_error if len(records) > 1 else None,
                        "majority": game.majority,
                        "share": float(game.right.mean()),
                        "seconds": median(r["seconds"] for r in records),
                        "grids": len(records),
                    }
                )
        return Table(HEADS, rows, {"gradients": "{:,.0f}", "paper": "{:.2f}"})

    def remarks(self) -> list[str]:
        paper, side = self.settings.paper, self.more["side"]
        remarks = [
            f"{count(len(self.played), 'grid')} of {side} × {side} photos, {side * side} classes "
            f"each, of the most confident of {count(len(self.photos), 'photo')} ({self.source}; "
            f"the paper: {paper['grids']} grids from {paper['photos']:,} of ImageNet), least "
            f"confidence {float(self.grids.confidences.min()):.3f}, cells that show a photo again: "
            f"{self.grids.reused}; {self.model_name}, top {self.k:,} values."
        ]
        if self.wrong:
            names = listed(self.wrong)
            remarks.append(f"Left out, as the network predicts another class: {names}.")
        return remarks

    def write(self, files: Files, table: Table) -> None:
        files.csv("pointing.csv", table.rows, without=("title",))
        files.csv("pointing-photos.csv", self._pairs())

    def _pairs(self) -> Iterator[Record]:
        """Every (grid, class) pair of every method."""
        for contender in self.contenders:
            for grid in self.played:
                for ranking, shares in self.outcomes[grid, contender]["shares"].items():
                    for cell, source in enumerate(self.grids.sources[grid].tolist()):
                        photo, row = self.right[source], shares[cell]
                        yield {
                            "method": contender.name,
                            "ranking": ranking,
                            "grid": grid + 1,
                            "cell": cell + 1,
                            "photo": photo.path.name,
                            "class": self.model.classes[photo.target],
                            "confidence": photo.probability,
                            "share": row[cell],
                            "hit": int(row[cell] > max(row[:cell] + row[cell + 1 :])),
                        }
