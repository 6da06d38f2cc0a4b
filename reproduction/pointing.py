"""Figure 3 of the paper: the pointing game on 2 × 2 grids of the most confident photos.

Photos whose label is not the predicted class are left out: the class that is asked for would not
be visible in their cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch

from greedypig.core.errors import InvalidInput
from greedypig.metrics.pointing import Grids, PointingGame, make_grids, pointing_score
from greedypig.results.wording import count, kept_settings, listed, setting
from greedypig.tensors.api import explain_many

from .cache import digest
from .job import Batch, Record
from .output import Files, Table
from .photos import Photo, PhotoJob
from .settings import Contender
from .sheets import Score, score_sheet

HEADS = {
    "title": "method", "setting": "setting", "gradients": "gradients",
    "paper": "pointing ↑, paper", "pointing": "pointing ↑, ours",
    "majority": "more than half ↑, ours", "share": "share in the right cell",
}  # fmt: skip


class Pointing(PhotoJob):
    """The game of every method on every grid."""

    FILES = ("pointing.md", "pointing.png", "pointing.csv", "pointing-photos.csv")

    def prepare(self) -> None:
        super().prepare()
        request, more = self.request, self.more
        (self.objective,) = self.objectives
        cells = more["side"] ** 2
        right = [photo for photo in self.sample.photos if not photo.wrong]
        grids = min(more["grids"], len(right) // cells)
        if grids < 1:
            raise InvalidInput(
                f"Expected at least {cells} photos that the network gets right for a grid "
                f"(got {len(right)}). Try a larger --limit."
            )
        self.photos = most_confident(right, grids, cells)
        pictures = torch.stack([self.networks.read(photo.path) for photo in self.photos])
        self.grids = make_grids(
            self.networks.model, pictures, [photo.target for photo in self.photos], grids=grids,
            side=more["side"], seed=request.seed, batch_size=request.batch_size,
        )  # fmt: skip
        self.k = min(more["k"], round(more["k_share"] * pictures[0].numel()))

    def batches(self) -> Iterator[Batch]:
        for i in range(len(self.grids)):
            for contender in self.contenders:
                yield Batch.of_one(self.path(i, contender), i, f"grid {i + 1}, {contender.name}",
                                   partial(self.measure, contender))  # fmt: skip

    def path(self, grid: int, contender: Contender) -> Path:
        """The file of a grid's result."""
        photos = digest(*(self.photos[i].digest for i in self.grids.sources[grid].tolist()))
        return self.place(
            f"grid-{photos}", contender.name, self.networks.fingerprint,
            contender.meaning(self.objective), contender.rankings, self.more["baseline"], self.k,
            self.request.seed,
        )  # fmt: skip

    def measure(self, contender: Contender, i: int) -> Record:
        """Explain every class of a grid; the share of the top values in every cell."""
        grids = self.grids
        part = slice(i, i + 1)
        one = Grids(grids.pictures[part], grids.classes[part], grids.sources[part],
                    grids.confidences[part], grids.cells)  # fmt: skip
        targets = grids.classes[i].tolist()
        attributions = list(
            explain_many(
                self.networks.model, (grids.pictures[i] for _ in targets), target=targets,
                baseline=self.more["baseline"], objective=self.objective, seed=self.request.seed,
                batch_size=self.request.batch_size, method=contender.method(self.objective),
            )
        )  # fmt: skip
        games = {
            ranking or "": pointing_score(one, attributions, k=self.k, ranking=ranking)
            for ranking in contender.rankings
        }
        return {
            "method": contender.name,
            "gradients": median(a.gradients_used for a in attributions),
            "seconds": round(sum(a.seconds for a in attributions) / len(attributions), 3),
            "settings": kept_settings(attributions[0]),
            "shares": {ranking: game.shares[0].tolist() for ranking, game in games.items()},
        }

    def table(self) -> Table:
        by_grid = [[self.read(self.path(i, c)) for c in self.contenders]
                   for i in range(len(self.grids))]  # fmt: skip
        complete = [[record or {} for record in row] for row in by_grid if all(row)]
        rows = []
        for j, contender in enumerate(self.contenders if complete else ()):
            records = [row[j] for row in complete]
            for ranking in contender.rankings:
                shares = torch.tensor([r["shares"][ranking or ""] for r in records])
                game = PointingGame(shares.double(), self.k)
                first = ranking == contender.rankings[0]
                title = contender.title if first else f"{contender.title}, by {ranking} score"
                rows.append({
                    "method": contender.name, "ranking": ranking or "", "title": title,
                    "setting": setting(records[0]["settings"]),
                    "gradients": median(r["gradients"] for r in records),
                    "paper": contender.paper.get("pointing") if first else None,
                    "pointing": game.score,
                    "pointing_error": game.standard_error if len(records) > 1 else None,
                    "majority": game.majority, "share": float(game.right.mean()),
                    "seconds": median(r["seconds"] for r in records), "grids": len(records),
                })  # fmt: skip
        self.played = len(complete)
        return Table(HEADS, rows, {"gradients": "{:,.0f}", "paper": "{:.2f}"})

    def about(self) -> Record:
        return {
            "grids": self.played, "grids_paper": self.settings.paper["grids"],
            "photos": len(self.sample.photos), "photos_wrong": len(self.sample.wrong),
            "reused": self.grids.reused, "k": self.k, "model": self.networks.name,
        }  # fmt: skip

    def remarks(self) -> list[str]:
        paper, cells = self.settings.paper, self.grids.classes.shape[1]
        remarks = [
            f"{count(self.played, 'grid')} of {self.grids.side} × {self.grids.side} photos, "
            f"{self.played * cells} (grid, class) pairs, from the {len(self.photos):,} most "
            f"confident of {count(len(self.sample.photos), 'photo')} ({self.sample.source}; the "
            f"paper: {paper['grids']} grids from {paper['photos']:,} of ImageNet), least "
            f"confidence {float(self.grids.confidences.min()):.3f}; {self.networks.name}, top "
            f"{self.k:,} values.",
        ]
        if self.grids.reused:
            cells_show = count(self.grids.reused, "cell shows", "cells show")
            remarks.append(f"{cells_show} a photo that another cell shows too.")
        if self.sample.wrong:
            names = listed([photo.path.name for photo in self.sample.wrong])
            remarks.append(f"Left out, as the network predicts another class: {names}.")
        return remarks

    def write(self, files: Files, table: Table) -> None:
        files.csv("pointing.csv", table.rows, without=("title",))
        files.csv("pointing-photos.csv", self._pairs())
        scores = {str(row["title"]): Score(row["pointing"], row["pointing_error"], row["paper"])
                  for row in table.rows}  # fmt: skip
        title = f"{self.networks.name}, {count(self.played, 'grid')}, top {self.k:,}"
        quantity = "share of (grid, class) pairs that point right"
        chance = 1 / self.grids.classes.shape[1]
        files.figure("pointing.png", lambda: score_sheet(scores, quantity=quantity, chance=chance,
                                                         title=title))  # fmt: skip

    def _pairs(self) -> Iterator[Record]:
        """Every (grid, class) pair of every method."""
        names = self.networks.model.classes
        for contender in self.contenders:
            for i, sources in enumerate(self.grids.sources.tolist()):
                record = self.read(self.path(i, contender)) or {"shares": {}}
                for ranking, shares in record["shares"].items():
                    for cell, source in enumerate(sources):
                        photo, row = self.photos[source], shares[cell]
                        others = [share for j, share in enumerate(row) if j != cell]
                        yield {
                            "method": contender.name, "ranking": ranking, "grid": i + 1,
                            "cell": cell + 1, "photo": photo.path.name,
                            "class": names[photo.target], "confidence": photo.probability,
                            "share": row[cell], "hit": int(row[cell] > max(others)),
                        }  # fmt: skip


def most_confident(photos: Sequence[Photo], grids: int, cells: int) -> tuple[Photo, ...]:
    """Up to grids · cells photos by falling confidence; of one class at most one for each grid."""
    chosen: list[Photo] = []
    of_class: dict[int, int] = {}
    for photo in sorted(photos, key=lambda p: (-p.probability, p.key)):
        if of_class.get(photo.target, 0) < grids and len(chosen) < grids * cells:
            of_class[photo.target] = of_class.get(photo.target, 0) + 1
            chosen.append(photo)
    return tuple(chosen)
