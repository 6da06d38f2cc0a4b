"""The paper's lemmas at work: copies of the best column, and linear regression.

The best column of a table is there 1 + t times. IG gives all copies the same score and fills its
top list with them; Greedy PIG selects one, and the others are worth nothing any more. Scenes: a
planted G, where all is exact; a trained network that reads whichever copy is there; networks that
were trained with the copies, which the lemma does not cover, also with absent columns imputed by
linear regression on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greedypig.plots.canvas import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    SOFT,
    new_figure,
    plain,
    shorten,
    title,
)  # fmt: skip
from greedypig.results.wording import count

from . import lemma_problems
from .job import Batch, Job, Record
from .lemma_problems import Check, Knobs, Selector
from .output import Files, Table, mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"copies": "copies in the top", "worth": "worth of the top"}
COPY = "′"
"""The end of a copy's name."""
COPIED_COLOUR, OTHER_COLOUR = "#E69F00", "#EDEFF3"


class Lemmas(Job):
    """Top lists of every scene and number of copies."""

    FILES = ("lemmas.md", "lemmas.png", "lemmas.csv", "lemmas-lists.csv", "lemmas-identities.csv")

    def prepare(self) -> None:
        self.contenders = self.settings.chosen(self.request.methods)
        self.data = lemma_problems.diabetes()
        self.knobs = Knobs(self.more["top"], self.more["steps"], self.more["greedy_steps"])
        self.copies: Sequence[int] = self.more["copies"]

    @cached_property
    def checks(self) -> list[Check]:
        """The lemmas as numbers."""
        planted = lemma_problems.redundancy(self.more["planted"], self.knobs)
        return planted + lemma_problems.regression(self.data, self.knobs)

    def batches(self) -> Iterator[Batch]:
        for scene in self.more["scenes"]:
            for seed in self._seeds(scene):
                yield Batch.of_one(self.path(scene, seed), (scene, seed),
                                   f"{scene}, network {seed}", self.measure)  # fmt: skip

    def _seeds(self, scene: str) -> range:
        return range(1 if scene == "planted" else self.more["networks"])

    def path(self, scene: str, seed: int) -> Path:
        """The file of a network's lists."""
        knobs = {key: value for key, value in self.more.items() if key != "scenes"}
        names = [c.name for c in self.contenders]
        return self.place(scene, f"network-{seed}", knobs, names, self.request.seed)

    def measure(self, item: tuple[str, int]) -> Record:
        """Every method's top list for every number of copies, and what it is worth."""
        scene, seed = item
        names, best = self._columns(scene)
        lists = []
        for t in self.copies:
            select = self._selector(scene, seed, t)
            origin = [*range(len(names)), *[best] * t]
            for contender in self.contenders:
                order = select(contender.name).order.tolist()[: self.knobs.top]
                columns = [origin[i] for i in order]
                lists.append({
                    "t": t, "method": contender.name, "copies": columns.count(best),
                    "worth": self._worth(scene, columns),
                    "top": [names[origin[i]] + (COPY if i >= len(names) else "") for i in order],
                })  # fmt: skip
        return {"lists": lists}

    def _columns(self, scene: str) -> tuple[Sequence[str], int]:
        """The names of the columns, and which one is copied."""
        if scene == "planted":
            return [f"column {i + 1}" for i in range(len(self.more["planted"]))], 0
        return self.data.names, self.data.best

    def _selector(self, scene: str, seed: int, t: int) -> Selector:
        if scene == "planted":
            return lemma_problems.planted(self.more["planted"], t, self.knobs)
        network = lemma_problems.train(
            self.data.with_copies(0 if scene == "either" else t), self.data.y,
            hidden=self.more["hidden"], batches=self.more["training"], masked=scene == "masked",
            seed=1000 * self.request.seed + seed,
        )  # fmt: skip
        if scene == "either":
            return lemma_problems.either(self.data, network, t, self.knobs)
        baseline = "conditional" if scene == "expected" else "zero"
        return lemma_problems.trained(self.data, network, t, self.knobs, baseline)

    def _worth(self, scene: str, columns: Sequence[int]) -> float:
        """R², or in the planted scene the share of what all columns are worth."""
        if scene != "planted":
            return self.data.worth(columns)
        worth = self.more["planted"]
        return float(sum(worth[i] for i in set(columns)) / sum(worth))

    def records(self, scene: str) -> list[list[Record]]:
        """The lists of every network of a scene so far."""
        records = [self.read(self.path(scene, seed)) for seed in self._seeds(scene)]
        return [record["lists"] for record in records if record is not None]

    def mean(self, scene: str, method: str, key: str, t: int) -> tuple[float | None, float | None]:
        """Mean and standard error over the networks of "copies" or "worth"."""
        return mean_and_error([one[key] for lists in self.records(scene) for one in lists
                               if (one["t"], one["method"]) == (t, method)])  # fmt: skip

    def table(self) -> Table:
        rows = []
        for scene, words in self.more["scenes"].items():
            for contender in self.contenders:
                for key, measure in MEASURES.items():
                    row: Record = {
                        "scene": words.split(":")[0], "title": contender.title,
                        "method": contender.name, "measure": f"{measure} {self.knobs.top}",
                    }  # fmt: skip
                    for t in self.copies:
                        row[f"t{t}"], row[f"t{t}_error"] = self.mean(scene, contender.name, key, t)
                    rows.append(row)
        columns = {"scene": "scene", "title": "method", "measure": "mean over networks"}
        columns |= {f"t{t}": count(t, "copy", "copies") if t else "no copy" for t in self.copies}
        return Table(columns, rows, {f"t{t}": "{:.2f}" for t in self.copies})

    def about(self) -> Record:
        return {"networks": self.more["networks"], "table": "diabetes",
                "identities": [asdict(check) for check in self.checks]}  # fmt: skip

    def remarks(self) -> list[str]:
        data = self.data
        remarks = [
            f"Scikit-learn's diabetes table, {len(data.y)} rows, {len(data.names)} columns; "
            f"{data.names[data.best]} is copied, which is worth most alone. Means over "
            f"{self.more['networks']} networks. Worth is the R² of least squares on the columns in "
            f"the list (all columns: {data.worth(range(len(data.names))):.3f}); in the planted "
            "scene it is the share of what all columns are worth.",
            f"IG takes {self.knobs.steps} steps, Greedy PIG {self.knobs.greedy_steps} steps and "
            "one column a round.",
        ]
        return remarks + [f"{check.lemma}: {check.statement} {check.number:.3g} "
                          f"({check.comparison})." for check in self.checks]  # fmt: skip

    def closing(self) -> list[str]:
        return ["± is the standard error over networks.", *super().closing()]

    def write(self, files: Files, table: Table) -> None:
        files.csv("lemmas.csv", table.rows, first="scene", without=("title",))
        lists = ({"scene": scene, "network": i, **one, "top": " ".join(one["top"])}
                 for scene in self.more["scenes"]
                 for i, each in enumerate(self.records(scene)) for one in each)  # fmt: skip
        files.csv("lemmas-lists.csv", lists, first="scene")
        files.csv("lemmas-identities.csv", map(asdict, self.checks), first="lemma")
        files.figure("lemmas.png", self._figure)

    # The figure: a row for each scene, top lists of two methods and what the lists are worth.

    def _figure(self) -> Figure:
        scenes = [scene for scene in self.more["scenes"] if self.records(scene)]
        figure = new_figure(12, 0.6 + 2.55 * len(scenes))
        axes = figure.subplots(len(scenes), 3, squeeze=False, width_ratios=[1.15, 1.15, 1])
        shown = [c for c in self.contenders if c.name != "greedy"]
        for line, scene in zip(axes, scenes, strict=True):
            for ax, contender in zip(line[:2], shown, strict=False):
                self._draw_lists(ax, scene, contender.name)
                title(ax, contender.title)
            words = shorten(self.more["scenes"][scene], 90)
            title(line[0], f"{words}\n{shown[0].title}")
            line[0].set_ylabel("place", fontsize=8.5, color=INK)
            self._draw_worth(line[2], scene)
        one_scale([line[2] for line, scene in zip(axes, scenes, strict=True)
                   if scene != "planted"])  # fmt: skip
        for ax in axes[-1]:
            ax.set_xlabel("copies of the best column", fontsize=9, color=INK)
        axes[0][2].legend(fontsize=8, frameon=False, loc="lower left")
        figure.suptitle("Top lists when the best column (orange) is there several times; ′ marks a "
                        "copy. First network of each scene; worth: mean ± standard error.",
                        fontsize=10.5, color=INK, x=0.01, ha="left")  # fmt: skip
        return figure

    def _draw_lists(self, ax: Axes, scene: str, method: str) -> None:
        """One column for each number of copies, one cell for each place, copies in colour."""
        from matplotlib.patches import Rectangle

        names, best = self._columns(scene)
        tops = [one["top"] for one in self.records(scene)[0] if one["method"] == method]
        for i, top in enumerate(tops):
            for place, name in enumerate(top):
                copied = name.rstrip(COPY) == names[best]
                ax.add_patch(
                    Rectangle(
                        (i - 0.48, place + 0.54),
                        0.96,
                        0.92,
                        linewidth=0,
                        facecolor=COPIED_COLOUR if copied else OTHER_COLOUR,
                    )
                )
                ax.text(i, place + 1, shorten(name, 12), ha="center", va="center", fontsize=7.5,
                        color=INK if copied else SOFT,
                        fontweight="bold" if copied else "normal")  # fmt: skip
        depth = max(map(len, tops))
        ax.set_xlim(-0.55, len(tops) - 0.45)
        ax.set_ylim(depth + 0.6, 0.4)
        ax.set_xticks(range(len(tops)), [str(t) for t in self.copies])
        ax.set_yticks(range(1, depth + 1))
        plain(ax)
        ax.grid(False)
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_color(FAINT)

    def _draw_worth(self, ax: Axes, scene: str) -> None:
        for i, contender in enumerate(self.contenders):
            means = [self.mean(scene, contender.name, "worth", t) for t in self.copies]
            points = [(p, v, e or 0.0) for p, (v, e) in enumerate(means) if v is not None]
            x, y, errors = zip(*points, strict=True)
            ax.errorbar(x, y, yerr=errors, color=COLOURS[i], linestyle=DASHES[i], marker="o",
                        markersize=3.5, capsize=2, linewidth=1.6,
                        label=contender.title)  # fmt: skip
        ax.set_xticks(range(len(self.copies)), [str(t) for t in self.copies])
        plain(ax)
        quantity = "share of all" if scene == "planted" else "R²"
        title(ax, f"what the list is worth ({quantity})")


def one_scale(panels: Sequence[Any]) -> None:
    """The same vertical scale for all panels, so that noise looks like noise."""
    limits = [ax.get_ylim() for ax in panels]
    for ax in panels:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
