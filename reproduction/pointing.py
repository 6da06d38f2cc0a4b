"""Figure 3 of the paper: the pointing game on 2 × 2 grids of the most confident photos.

A photo whose label the network does not predict takes no part: where it lies in a grid, the class
that is asked for would not be there to be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from greedypig.core.errors import InvalidInput
from greedypig.metrics.pointing import Grids, PointingGame, make_grids, pointing_score
from greedypig.plots import Score, score_sheet
from greedypig.results.wording import count, kept_settings, listed, setting
from greedypig.tensors.api import explain_many

from . import cache
from .cache import Shelf
from .outputs import Written
from .photos import Networks, Sample, Seen, survey
from .request import Request, Result, Table
from .resumable import Batch, Task, carry_out
from .settings import Contender, Settings, digest, quick_look

FILES = ("pointing.md", "pointing.png", "pointing.csv", "pointing-photos.csv")
HEADS = {
    "title": "method", "setting": "setting", "gradients": "gradients",
    "paper": "pointing ↑, paper", "pointing": "pointing ↑, ours",
    "majority": "more than half ↑, ours", "share": "share in the right cell",
}  # fmt: skip


def run(request: Request) -> Result:
    """The table and its figure."""
    job = Job.of(request, Settings.of("pointing"))
    carry_out(list(job.batches()), request)
    result = job.result()
    return job.written(result) if request.group.first else result


@dataclass(frozen=True, eq=False)
class Job:
    """One run: the network, the grids, and the methods that play."""

    request: Request
    settings: Settings
    networks: Networks
    sample: Sample
    photos: tuple[Seen, ...]
    """Those in the grids, as `grids.sources` counts them."""
    grids: Grids
    k: int
    contenders: tuple[Contender, ...]
    shelf: Shelf

    @staticmethod
    def of(request: Request, settings: Settings) -> Job:
        """Look at the photos and make the grids, the same in every process."""
        if request.objective not in (None, settings.more["objective"]):
            raise InvalidInput(
                f"Expected the objective {settings.more['objective']} for pointing "
                f"(got {request.objective!r})."
            )
        networks = Networks.of(request, settings, judged=False)
        contenders = settings.chosen(request.methods, request.budget, networks.shape)
        shelf = Shelf(request.out / "rows" / settings.name)
        sample = survey(request, networks, shelf)
        cells = settings.more["side"] ** 2
        right = [seen for seen in sample.seen if not seen.wrong]
        grids_made = min(settings.more["grids"], len(right) // cells)
        if grids_made < 1:
            raise InvalidInput(
                f"Expected at least {cells} photos that the network gets right for a grid "
                f"(got {len(right)}). Try a larger --limit."
            )
        photos = most_confident(right, grids_made, cells)
        pictures = torch.stack([networks.read(seen.path) for seen in photos])
        grids = make_grids(
            networks.model, pictures, [seen.target for seen in photos], grids=grids_made,
            side=settings.more["side"], seed=request.seed, batch_size=request.batch_size,
        )  # fmt: skip
        k = min(settings.more["k"], round(settings.more["k_share"] * pictures[0].numel()))
        return Job(request, settings, networks, sample, photos, grids, k, contenders, shelf)

    def batches(self) -> Iterator[Batch]:
        """A grid with all its classes by one method is one piece of work."""
        for i in range(len(self.grids)):
            for contender in self.contenders:
                task = Task(self.place(i, contender), i)
                label = f"{contender.name}: grid {i + 1} of {len(self.grids)}"
                yield Batch(label, (task,), partial(self.measured, contender))

    def place(self, grid: int, contender: Contender) -> Path:
        """Where the result of a grid lies."""
        shown = digest(*(self.photos[i].digest for i in self.grids.sources[grid].tolist()))
        return self.shelf.place(
            f"grid-{shown}", contender.name, self.networks.fingerprint,
            contender.meaning(self.settings.more["objective"]),
            contender.rankings, self.settings.more["baseline"], self.k, self.request.seed,
        )  # fmt: skip

    def measured(self, contender: Contender, grids: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Explain every class of a grid and see where the top elements lie."""
        request, made = self.request, self.grids
        objective = self.settings.more["objective"]
        for i in grids:
            one = Grids(made.pictures[i : i + 1], made.classes[i : i + 1], made.sources[i : i + 1],
                        made.confidences[i : i + 1], made.cells)  # fmt: skip
            targets = made.classes[i].tolist()
            found = list(
                explain_many(
                    self.networks.model, (made.pictures[i] for _ in targets), target=targets,
                    baseline=self.settings.more["baseline"],
                    objective=objective, seed=request.seed, batch_size=request.batch_size,
                    method=contender.method(objective),
                )
            )  # fmt: skip
            shares = {
                str(ranking or ""): pointing_score(one, found, k=self.k, ranking=ranking)
                for ranking in contender.rankings
            }
            yield {
                "method": contender.name,
                "gradients": median(a.gradients_used for a in found),
                "seconds": round(sum(a.seconds for a in found) / len(found), 3),
                "settings": kept_settings(found[0]),
                "shares": {name: game.shares[0].tolist() for name, game in shares.items()},
            }

    def games(self) -> Iterator[tuple[Contender, str | None, PointingGame, list[dict[str, Any]]]]:
        """Every method's game over the grids that all methods played."""
        places = [
            [self.place(i, contender) for contender in self.contenders]
            for i in range(len(self.grids))
        ]
        read = [[cache.read(place) for place in row] for row in places]
        whole = [row for row in read if all(r is not None and "error" not in r for r in row)]
        if not whole:
            said = [r["error"] for row in read for r in row if r is not None and "error" in r]
            raise InvalidInput(
                f"Expected grids that every method explains (got none of {len(self.grids)}). "
                f"The first: {said[0] if said else 'it was not measured.'}"
            )
        for j, contender in enumerate(self.contenders):
            records = [row[j] or {} for row in whole]
            for ranking in contender.rankings:
                shares = torch.tensor([r["shares"][ranking or ""] for r in records])
                yield contender, ranking, PointingGame(shares.double(), self.k), records

    def result(self) -> Result:
        """The table."""
        rows = []
        for contender, ranking, game, records in self.games():
            usual = ranking == contender.rankings[0]
            row = {
                "method": contender.name, "ranking": ranking or "",
                "title": contender.title if usual else f"{contender.title}, by {ranking} score",
                "setting": setting(records[0]["settings"]),
                "gradients": median(r["gradients"] for r in records),
                "paper": contender.paper.get("pointing") if usual else None,
                "pointing": game.score,
                "error": game.standard_error if len(game.shares) > 1 else None,
                "majority": game.majority, "share": float(game.right.mean()),
                "seconds": median(r["seconds"] for r in records), "grids": len(game.shares),
            }  # fmt: skip
            rows.append(row)
        formats = {"gradients": "{:,.0f}", "paper": "{:.2f}"}
        about = {
            "grids": rows[0]["grids"], "grids_paper": self.settings.paper["grids"],
            "photos": len(self.sample.seen), "photos_wrong": len(self.sample.wrong),
            "reused": self.grids.reused, "k": self.k, "model": self.networks.name,
            "seed": self.request.seed, "budget": self.request.budget,
        }  # fmt: skip
        table = Table(HEADS, rows, formats, {"pointing": "error"})
        remarks = self._remarks(rows[0]["grids"])
        # One of the first two may be the one that a budget cut the run.
        spoken = list(dict.fromkeys([*remarks[:2], *quick_look(self.contenders)]))
        return Result(self.settings.name, self.settings.title, table, remarks, self._failed(),
                      about=about, spoken=spoken)  # fmt: skip

    def _failed(self) -> list[tuple[str, str]]:
        failed = list(self.sample.broken)
        for i in range(len(self.grids)):
            for contender in self.contenders:
                found = cache.read(self.place(i, contender)) or {}
                if "error" in found:
                    failed.append((f"grid {i + 1}, {contender.name}", found["error"]))
        return failed

    def _remarks(self, played: int) -> list[str]:
        settings, cells = self.settings, self.grids.classes.shape[1]
        remarks = [
            f"{count(played, 'grid')} of {self.grids.side} × {self.grids.side} photos, "
            f"{played * cells} (grid, class) pairs, dealt from the {len(self.photos):,} most "
            f"confident of {count(len(self.sample.seen), 'photo')} ({self.sample.source}; the "
            f"paper: {settings.paper['grids']} grids from {settings.paper['photos']:,} of "
            f"ImageNet), least confidence {float(self.grids.confidences.min()):.3f}; "
            f"{self.networks.name}, top {self.k:,} elements.",
        ]
        if self.grids.reused:
            cells_show = count(self.grids.reused, "cell shows", "cells show")
            remarks.append(f"{cells_show} a photo that another cell shows too.")
        wrong = self.sample.wrong
        if wrong:
            names = listed([seen.path.name for seen in wrong])
            remarks.append(f"Left out, as the network predicts another class: {names}.")
        if self.networks.name != settings.model:
            remarks.append(
                f"The network is {self.networks.name} here, {settings.model} in the paper."
            )
        return remarks + settings.closing(quick_look(self.contenders))

    def written(self, result: Result) -> Result:
        """The files of the result."""
        out = Written(self.request, result)
        rows = [{k: v for k, v in row.items() if k != "title"} for row in result.table.rows]
        out.csv("pointing.csv", rows)
        out.csv("pointing-photos.csv", list(self._pairs()))
        scores = {
            str(row["title"]): Score(row["pointing"], row["error"], row["paper"])
            for row in result.table.rows
        }
        title = f"{self.networks.name}, {count(result.about['grids'], 'grid')}, top {self.k:,}"
        chance = 1 / self.grids.classes.shape[1]
        out.figure(
            "pointing.png",
            lambda: score_sheet(scores, quantity="share of (grid, class) pairs that point right",
                                chance=chance, title=title),
        )  # fmt: skip
        return out.page("pointing.md")

    def _pairs(self) -> Iterator[dict[str, Any]]:
        """Every (grid, class) pair of every method."""
        names = self.networks.model.classes
        for contender in self.contenders:
            for i, sources in enumerate(self.grids.sources.tolist()):
                record = cache.read(self.place(i, contender)) or {}
                for ranking, shares in record.get("shares", {}).items():
                    for cell, source in enumerate(sources):
                        yield {
                            "method": contender.name, "ranking": ranking, "grid": i + 1,
                            "cell": cell + 1, "photo": self.photos[source].path.name,
                            "class": names[self.photos[source].target],
                            "confidence": self.photos[source].probability,
                            "share": shares[cell][cell],
                            "hit": int(shares[cell][cell] > max(
                                s for j, s in enumerate(shares[cell]) if j != cell)),
                        }  # fmt: skip


def most_confident(seen: Sequence[Seen], grids: int, cells: int) -> tuple[Seen, ...]:
    """Up to grids · cells photos by falling confidence, of a class no more than there are grids."""
    taken: list[Seen] = []
    of_class: dict[int, int] = {}
    for one in sorted(seen, key=lambda s: (-s.probability, s.key)):
        if of_class.get(one.target, 0) < grids and len(taken) < grids * cells:
            of_class[one.target] = of_class.get(one.target, 0) + 1
            taken.append(one)
    return tuple(taken)
