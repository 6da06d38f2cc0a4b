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
from typing import TYPE_CHECKING

from greedypig.results.wording import count

from . import lemma_problems
from .job import Batch, Job, Record
from .lemma_problems import Selector
from .output import Files, Table, mean_and_error
from .sheets import label_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"copies": "copies in the top", "worth": "worth of the top"}
COPY = "′"
"""The end of a copy's name."""
COPIED_COLOUR, OTHER_COLOUR = "#E69F00", "#EDEFF3"
FIGURE_TITLE = (
    "Top lists when the best column (orange) is there several times; ′ marks a copy. First network "
    "of each scene; worth: mean ± standard error."
)


class Lemmas(Job):
    """Top lists of every scene and number of copies."""

    FILES = ("lemmas.md", "lemmas.png", "lemmas.csv", "lemmas-lists.csv", "lemmas-identities.csv")

    def prepare(self) -> None:
        self.contenders = self.settings.chosen(self.request.methods)
        self.data = lemma_problems.diabetes()
        self.copies: Sequence[int] = self.more["copies"]
        self.checks = lemma_problems.redundancy(self.more["planted"])
        self.checks += lemma_problems.regression(self.data)

    def batches(self) -> Iterator[Batch]:
        for scene in self.more["scenes"]:
            for seed in self._seeds(scene):
                methods = [(c.name, c.knobs) for c in self.contenders]
                depends = self.more, methods, self.request.seed
                place = self.place(scene, f"network-{seed}", *depends)
                label = f"{scene}, network {seed}"
                yield Batch.of_one(place, (scene, seed), label, self.measure)

    def _seeds(self, scene: str) -> range:
        return range(1 if scene == "planted" else self.more["networks"])

    def measure(self, item: tuple[str, int]) -> Record:
        """Every method's top list for every number of copies, and what it is worth."""
        scene, seed = item
        names, best = self._columns(scene)
        lists = []
        for t in self.copies:
            select = self._selector(scene, seed, t)
            origin = [*range(len(names)), *[best] * t]
            for contender in self.contenders:
                k = None if contender.name == "ig" else self.more["top"]
                order = select(contender.method(), k).order.tolist()[: self.more["top"]]
                columns = [origin[i] for i in order]
                top = [names[origin[i]] + COPY * (i >= len(names)) for i in order]
                lists.append(
                    {
                        "t": t,
                        "method": contender.name,
                        "copies": columns.count(best),
                        "worth": self._worth(scene, columns),
                        "top": top,
                    }
                )
        return {"lists": lists}

    def _columns(self, scene: str) -> tuple[Sequence[str], int]:
        """The names of the columns, and which one is copied."""
        if scene == "planted":
            return [f"column {i + 1}" for i in range(len(self.more["planted"]))], 0
        return self.data.names, self.data.best

    def _selector(self, scene: str, seed: int, t: int) -> Selector:
        columns = len(self._columns(scene)[0]) + t
        if scene == "planted":
            return lemma_problems.by_core(lemma_problems.planted(self.more["planted"]), columns)
        network = lemma_problems.train(
            self.data.with_copies(0 if scene == "either" else t),
            self.data.y,
            hidden=self.more["hidden"],
            batches=self.more["training"],
            masked=scene == "masked",
            seed=1000 * self.request.seed + seed,
        )
        if scene == "either":
            return lemma_problems.by_core(lemma_problems.either(self.data, network), columns)
        baseline = "conditional" if scene == "expected" else "zero"
        return lemma_problems.trained(self.data, network, t, baseline)

    def _worth(self, scene: str, columns: Sequence[int]) -> float:
        """R², or in the planted scene the share of what all columns are worth."""
        if scene != "planted":
            return self.data.worth(columns)
        worth = self.more["planted"]
        return float(sum(worth[i] for i in set(columns)) / sum(worth))

    def lists(self, scene: str) -> Iterator[Record]:
        """The lists of every network of a scene so far."""
        for network in self._seeds(scene):
            for each in self.outcomes.get((scene, network), {"lists": []})["lists"]:
                yield {"scene": scene, "network": network, **each}

    def mean(self, scene: str, method: str, key: str, t: int) -> tuple[float | None, float | None]:
        """Mean and standard error over the networks of "copies" or "worth"."""
        lists = [each for each in self.lists(scene) if (each["t"], each["method"]) == (t, method)]
        return mean_and_error([each[key] for each in lists])

    def table(self) -> Table:
        rows = []
        for scene, words in self.more["scenes"].items():
            for contender in self.contenders:
                for key, measure in MEASURES.items():
                    row: Record = {
                        "scene": words.split(":")[0],
                        "title": contender.title,
                        "method": contender.name,
                        "measure": f"{measure} {self.more['top']}",
                    }
                    for t in self.copies:
                        row[f"t{t}"], row[f"t{t}_error"] = self.mean(scene, contender.name, key, t)
                    rows.append(row)
        columns = {"scene": "scene", "title": "method", "measure": "mean over networks"}
        columns |= {f"t{t}": count(t, "copy", "copies") for t in self.copies}
        return Table(columns, rows, {f"t{t}": "{:.2f}" for t in self.copies})

    def remarks(self) -> list[str]:
        data = self.data
        remarks = [
            f"Scikit-learn's diabetes table, {len(data.y)} rows, {len(data.names)} columns; "
            f"{data.names[data.best]} is copied, which is worth most alone. Means over "
            f"{self.more['networks']} networks, ± standard error. Worth is the R² of least squares "
            f"on the columns in the list (all columns: {data.worth(range(len(data.names))):.3f}); "
            "in the planted scene it is the share of what all columns are worth."
        ]
        return remarks + [
            f"{check.lemma}: {check.statement} {check.number:.3g} ({check.comparison})."
            for check in self.checks
        ]

    def write(self, files: Files, table: Table) -> None:
        files.csv("lemmas.csv", table.rows, first="scene", without=("title",))
        lists = [each for scene in self.more["scenes"] for each in self.lists(scene)]
        rows = [{**each, "top": " ".join(each["top"])} for each in lists]
        files.csv("lemmas-lists.csv", rows, first="scene")
        files.csv("lemmas-identities.csv", map(asdict, self.checks), first="lemma")
        files.figure("lemmas.png", self._figure)

    def _figure(self) -> Figure:
        """A row for each scene: top lists of two methods, and what the lists are worth."""
        scenes = self.more["scenes"]
        shown = [c for c in self.contenders if c.name != "greedy"]
        figure = new_figure(12, 0.6 + 2.55 * len(scenes), FIGURE_TITLE)
        axes = figure.subplots(len(scenes), len(shown) + 1, squeeze=False)
        for line, scene in zip(axes, scenes, strict=True):
            for ax, contender in zip(line, shown, strict=False):
                self._draw_lists(ax, scene, contender.name)
                ax.set_title(contender.title, loc="left", fontsize=10)
            line[0].set_title(f"{scenes[scene]}\n{shown[0].title}", loc="left", fontsize=10)
            self._draw_worth(line[-1], scene)
        for ax in axes[2:, -1]:  # One scale for R², so that noise looks like noise.
            ax.sharey(axes[1][-1])
        axes[0][-1].legend(fontsize=8, frameon=False)
        return figure

    def _draw_lists(self, ax: Axes, scene: str, method: str) -> None:
        """One column for each number of copies, one cell for each place, copies in colour."""
        from matplotlib.transforms import Bbox

        names, best = self._columns(scene)
        tops = {
            each["t"]: each["top"]
            for each in self.lists(scene)
            if (each["network"], each["method"]) == (0, method)
        }
        places = list(zip(*tops.values(), strict=True))
        colours = [
            [COPIED_COLOUR if n.rstrip(COPY) == names[best] else OTHER_COLOUR for n in place]
            for place in places
        ]
        heads = [count(t, "copy", "copies") for t in tops]
        ax.set_axis_off()
        whole = Bbox.from_bounds(0, 0, 1, 1)
        ax.table(places, colours, "center", colLabels=heads, bbox=whole)

    def _draw_worth(self, ax: Axes, scene: str) -> None:
        places = range(len(self.copies))
        for contender, dash in zip(self.contenders, ("-", "--", ":"), strict=False):
            means = [self.mean(scene, contender.name, "worth", t) for t in self.copies]
            worth, errors = ([value or 0.0 for value in each] for each in zip(*means, strict=True))
            ax.errorbar(places, worth, errors, None, dash, capsize=2, label=contender.title)
        ax.set_xticks(places, [str(t) for t in self.copies])
        quantity = "share of all" if scene == "planted" else "R²"
        label_axes(ax, f"what the list is worth ({quantity})", "copies", "")
