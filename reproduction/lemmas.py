"""The paper's lemmas where they can be seen: copies of the best column, and linear regression.

The best column of a table is there 1 + t times. IG gives all copies the same score and spends
places of its top list on them; Greedy PIG takes one, and the others are worth nothing any more.
Scenes: a planted G, where all is exact; a trained network that reads whichever copy is there;
networks that were trained with the copies, which the lemma does not speak of, also with absent
columns put at what the others let one expect of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import cache, lemma_problems
from .cache import Shelf
from .lemma_checks import Identity, identities
from .lemma_problems import Data, Knobs, Selector
from .outputs import Written
from .overlap_figure import Listing, Scene, listing_sheet
from .request import Request, Result, Table
from .resumable import Batch, Task, carry_out
from .settings import Contender, Settings
from .tables import mean_and_error

FILES = ("lemmas.md", "lemmas.png", "lemmas.csv", "lemmas-lists.csv", "lemmas-identities.csv")
HEADS = {
    "scene": "scene", "title": "method", "measure": "mean over networks",
}  # fmt: skip
COPIES, WORTH = "copies in the top", "worth of the top"
COPY = "′"
"""Behind a copy's name."""


def run(request: Request) -> Result:
    """The lists of every scene and the lemmas' identities."""
    job = Job.of(request, Settings.of("lemmas"))
    carry_out([job.batch(*what) for what in job.pairs()], request)
    result = job.result()
    return job.written(result) if request.group.first else result


@dataclass(frozen=True, eq=False)
class Job:
    """One run."""

    request: Request
    settings: Settings
    contenders: tuple[Contender, ...]
    data: Data
    knobs: Knobs
    shelf: Shelf

    @staticmethod
    def of(request: Request, settings: Settings) -> Job:
        """Check the request, read the table."""
        more = settings.more
        knobs = Knobs(more["top"], more["steps"], more["greedy_steps"])
        shelf = Shelf(request.out / "rows" / settings.name)
        problem = lemma_problems.diabetes()
        return Job(request, settings, settings.chosen(request.methods), problem, knobs, shelf)

    def pairs(self) -> Iterator[tuple[str, int]]:
        """(scene, network)."""
        for scene in self.settings.more["scenes"]:
            for seed in range(1 if scene == "planted" else self.settings.more["networks"]):
                yield scene, seed

    def batch(self, scene: str, seed: int) -> Batch:
        """The lists of one network."""
        task = Task(self.place(scene, seed), (scene, seed))
        return Batch(f"{scene}, network {seed}", (task,), partial(map, self.found))

    def place(self, scene: str, seed: int) -> Path:
        """Where they are kept."""
        knobs = {k: v for k, v in self.settings.more.items() if k != "scenes"}
        names = [(c.name, sorted(c.search.items())) for c in self.contenders]
        return self.shelf.place(scene, f"network-{seed}", knobs, names, self.request.seed)

    def found(self, what: tuple[str, int]) -> dict[str, Any]:
        """Every method's top list for every number of copies, and what it is worth."""
        scene, seed = what
        more = self.settings.more
        names, best = self._columns(scene)
        lists = []
        for t in more["copies"]:
            select = self._selector(scene, seed, t)
            origin = [*range(len(names)), *[best] * t]
            for contender in self.contenders:
                order = select(contender.search["method"]).order.tolist()[: self.knobs.top]
                kept = [origin[i] for i in order]
                lists.append({
                    "t": t, "method": contender.name, "copies": kept.count(best),
                    "worth": self._worth(scene, kept),
                    "top": [names[origin[i]] + (COPY if i >= len(names) else "") for i in order],
                })  # fmt: skip
        return {"lists": lists}

    def _columns(self, scene: str) -> tuple[Sequence[str], int]:
        """Names, and which column is copied: IG's first without copies."""
        if scene == "planted":
            return [f"column {i + 1}" for i in range(len(self.settings.more["planted"]))], 0
        return self.data.names, self.data.names.index(self._best())

    def _best(self) -> str:
        """The column that alone is worth most."""
        data = self.data
        return max(data.names, key=lambda name: data.worth([data.names.index(name)]))

    def _selector(self, scene: str, seed: int, t: int) -> Selector:
        more = self.settings.more
        if scene == "planted":
            return lemma_problems.planted(more["planted"], t, self.knobs)
        best = self.data.names.index(self._best())
        seen = 0 if scene == "either" else t
        network = lemma_problems.learned(
            lemma_problems.with_copies(self.data, best, seen), self.data.y, hidden=more["hidden"],
            batches=more["training"], masked=scene == "masked",
            seed=1000 * self.request.seed + seed,
        )  # fmt: skip
        if scene == "either":
            return lemma_problems.either(self.data, network, best, t, self.knobs)
        baseline = "conditional" if scene == "expected" else "zero"
        return lemma_problems.trained(self.data, network, best, t, self.knobs, baseline)

    def _worth(self, scene: str, kept: Sequence[int]) -> float:
        """R², or in the planted scene the share of all that could be had."""
        if scene != "planted":
            return self.data.worth(kept)
        worth = self.settings.more["planted"]
        return float(sum(worth[i] for i in set(kept)) / sum(worth))

    def records(self, scene: str) -> list[list[dict[str, Any]]]:
        """The lists of every network of a scene that were found."""
        all_of = [cache.read(self.place(s, seed)) for s, seed in self.pairs() if s == scene]
        return [r["lists"] for r in all_of if r is not None and "error" not in r]

    def result(self) -> Result:
        """A line for every scene, method and measure."""
        more = self.settings.more
        rows = []
        for scene, words in more["scenes"].items():
            for contender in self.contenders:
                for key, measure in (("copies", COPIES), ("worth", WORTH)):
                    row: dict[str, Any] = {
                        "scene": words.split(":")[0], "title": contender.title,
                        "method": contender.name, "measure": f"{measure} {self.knobs.top}",
                    }  # fmt: skip
                    for t in more["copies"]:
                        values = [one[key] for lists in self.records(scene) for one in lists
                                  if one["t"] == t and one["method"] == contender.name]  # fmt: skip
                        row[f"t{t}"], row[f"t{t}_error"] = mean_and_error(values)
                    rows.append(row)
        heads = HEADS | {f"t{t}": _more(t) for t in more["copies"]}
        failed = [
            (f"{scene}, network {seed}", record["error"])
            for scene, seed in self.pairs()
            if "error" in (record := cache.read(self.place(scene, seed)) or {})
        ]
        errors = {f"t{t}": f"t{t}_error" for t in more["copies"]}
        about = {"seed": self.request.seed, "networks": more["networks"], "table": "diabetes",
                 "identities": [i.__dict__ for i in self._identities()]}  # fmt: skip
        return Result(self.settings.name, self.settings.title,
                      Table(heads, rows, {f"t{t}": "{:.2f}" for t in more["copies"]}, errors),
                      self._remarks(", ± standard error"), failed, about=about,
                      spoken=self._remarks()[:2])  # fmt: skip

    def _identities(self) -> list[Identity]:
        return identities(self.data, self.settings.more["planted"], self.knobs)

    def _remarks(self, errors: str = "") -> list[str]:
        more, best = self.settings.more, self._best()
        remarks = [
            f"Scikit-learn's diabetes table, {len(self.data.y)} rows, {len(self.data.names)} "
            f"columns; {best} is copied, which alone is worth most. Means over "
            f"{more['networks']} networks{errors}. Worth is the R² of least squares on "
            f"the columns in the list (all columns: "
            f"{self.data.worth(range(len(self.data.names))):.3f}); in the planted scene the share "
            "of what all columns are worth.",
            f"IG takes {self.knobs.steps} steps, Greedy PIG {self.knobs.greedy_steps} steps and "
            "one column a round.",
        ]
        remarks += [f"{i.lemma}: {i.words} {i.found:.3g} ({i.against})."
                    for i in self._identities()]  # fmt: skip
        return remarks + list(self.settings.differs)

    def written(self, result: Result) -> Result:
        """The files."""
        out = Written(self.request, result)
        out.csv("lemmas.csv", [{k: v for k, v in row.items() if k != "title"}
                               for row in result.table.rows], first="scene")  # fmt: skip
        flat = [{"scene": scene, "network": i, **one, "top": " ".join(one["top"])}
                for scene in self.settings.more["scenes"]
                for i, lists in enumerate(self.records(scene)) for one in lists]  # fmt: skip
        out.csv("lemmas-lists.csv", flat, first="scene")
        out.csv("lemmas-identities.csv", [i.__dict__ for i in self._identities()], first="lemma")
        out.figure("lemmas.png", self._drawn)
        return out.page("lemmas.md")

    def _drawn(self) -> Any:
        scenes = []
        for scene, words in self.settings.more["scenes"].items():
            records = self.records(scene)
            if not records:
                continue
            names, best = self._columns(scene)
            lists = [Listing(c.title, {one["t"]: one["top"] for one in records[0]
                                       if one["method"] == c.name})
                     for c in self.contenders if c.name != "greedy"]  # fmt: skip
            worth = {
                c.title: {
                    t: mean_and_error([one["worth"] for lists in records for one in lists
                              if one["t"] == t and one["method"] == c.name])
                    for t in self.settings.more["copies"]
                } for c in self.contenders
            }  # fmt: skip
            scenes.append(Scene(words, names[best], lists, worth,
                                "share of all" if scene == "planted" else "R²"))  # fmt: skip
        return listing_sheet(scenes)


def _more(t: int) -> str:
    return "no copy" if t == 0 else f"{t} {'copy' if t == 1 else 'copies'}"
