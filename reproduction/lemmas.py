"""The paper's lemmas at work: copies of the best column, and linear regression (Section 4).

The best column of a table is there 1 + t times. IG gives all copies the same score and fills its
top list with them; Greedy PIG selects one, and the others are worth nothing any more. Scenes: a
planted G, where all is exact; a trained network that reads whichever copy is there; networks that
were trained with the copies, which the lemma does not cover, also with absent columns imputed by
linear regression on the others.

A scene has n columns and t copies; its objective is g over n + t gates. In the scenes of the lemma
g(w) = h(…, max of the copies' gates, …): any copy does as well as all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.models import TabularMLP
from greedypig.plots import canvas
from greedypig.results.wording import count

from .experiment import Experiment, Method, Record, Table, Task, mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = ("lemmas.png",)
MEASURES = {"copies": "copies in the top", "worth": "worth of the top"}
COPY = "′"
"""The end of a copy's name."""
COPIED_COLOUR, OTHER_COLOUR = "#E69F00", "#EDEFF3"
FIGURE_TITLE = (
    "Top lists when the best column (orange) is there several times; ′ marks a copy. First network "
    "of each scene; worth: mean ± standard error."
)
PARTS = 8
"""Batches of one pass over a small table."""
LARGEST = 5.0
"""Standardised values are cut to this size."""
T = 4
"""Copies in the check of the redundancy lemma."""
G = Callable[[Tensor], Tensor]
Selector = Callable[[Any, int | None], gp.Attribution]
"""From a method and the number of columns to select, None for all, to the result."""


def reproduce(experiment: Experiment) -> None:
    """The top lists of every scene and number of copies, and both sides of the lemmas."""
    methods, settings, data = experiment.methods(), experiment.settings, diabetes()
    checks = [*redundancy(settings["planted"]), *regression(data)]
    tasks = []
    for scene in settings["scenes"]:
        for network in range(1 if scene == "planted" else settings["networks"]):
            knobs = [(method.name, method.knobs) for method in methods]
            depends = experiment.key, knobs, experiment.seed
            place = experiment.place(scene, f"network-{network}", *depends)
            label, run = f"{scene}, network {network}", partial(measure, experiment, methods, data)
            tasks.append(Task((scene, network), place, label, run))
    lists = [
        {"scene": scene, "network": network, **each}
        for (scene, network), record in experiment.measure(tasks).items()
        for each in record["lists"]
    ]
    experiment.expect(lists)
    columns = {"scene": "scene", "title": "method", "measure": "mean over networks"}
    columns |= {f"t{t}": count(t, "copy", "copies") for t in settings["copies"]}
    rows = list(table_rows(settings, methods, lists))
    table = Table(columns, rows, {f"t{t}": "{:.2f}" for t in settings["copies"]})
    experiment.csv("lemmas.csv", rows, "scene", without=("title",))
    experiment.csv("lemmas-lists.csv", [{**e, "top": " ".join(e["top"])} for e in lists])
    experiment.csv("lemmas-identities.csv", checks)
    experiment.figure("lemmas.png", lambda: draw(settings, methods, lists, data))
    remarks = [
        f"Scikit-learn's diabetes table, {len(data.y)} rows, {len(data.names)} columns; "
        f"{data.names[data.best]} is copied, which is worth most alone. Means over "
        f"{settings['networks']} networks, ± standard error. Worth is the R² of least squares on "
        f"the columns in the list (all columns: {data.worth(range(len(data.names))):.3f}); in the "
        "planted scene it is the share of what all columns are worth."
    ]
    remarks += ["{lemma}: {statement} {number:.3g} ({comparison}).".format(**c) for c in checks]
    experiment.page(table, remarks)


def measure(
    experiment: Experiment, methods: Sequence[Method], data: Data, item: tuple[str, int]
) -> Record:
    """Every method's top list for every number of copies, and what it is worth."""
    (scene, network), settings = item, experiment.settings
    names, best = columns_of(settings, data, scene)
    lists = []
    for t in settings["copies"]:
        select = selector(settings, data, scene, 1000 * experiment.seed + network, t)
        origin = [*range(len(names)), *[best] * t]
        for method in methods:
            k = None if method.name == "ig" else settings["top"]
            order = select(method.run(), k).order.tolist()[: settings["top"]]
            columns = [origin[i] for i in order]
            top = [names[origin[i]] + COPY * (i >= len(names)) for i in order]
            planted = settings["planted"]  # There worth is the share of what all columns are worth.
            worth = sum(planted[i] for i in set(columns)) / sum(planted)
            if scene != "planted":
                worth = data.worth(columns)
            copies = columns.count(best)
            lists.append(
                {"t": t, "method": method.name, "copies": copies, "worth": worth, "top": top}
            )
    return {"lists": lists}


def columns_of(settings: Mapping[str, Any], data: Data, scene: str) -> tuple[Sequence[str], int]:
    """The names of the columns, and which one is copied."""
    if scene == "planted":
        return [f"column {i + 1}" for i in range(len(settings["planted"]))], 0
    return data.names, data.best


def selector(settings: Mapping[str, Any], data: Data, scene: str, seed: int, t: int) -> Selector:
    """Selects among the columns of a scene and t copies."""
    if scene == "planted":
        return by_core(planted(settings["planted"]), len(settings["planted"]) + t)
    network = train(
        data.with_copies(0 if scene == "either" else t),
        data.y,
        hidden=settings["hidden"],
        batches=settings["training"],
        masked=scene == "masked",
        seed=seed,
    )
    if scene == "either":
        return by_core(either(data, network), len(data.names) + t)
    return trained(data, network, t, "conditional" if scene == "expected" else "zero")


# Problems.


@dataclass(frozen=True)
class Data:
    """A small table, standardised."""

    x: Tensor
    """(rows, columns)"""
    y: Tensor
    """(rows,)"""
    names: tuple[str, ...]

    def worth(self, columns: Sequence[int]) -> float:
        """R² of least squares on these columns: what they are worth to a fresh linear model."""
        a, y = self.x[:, sorted(set(columns))].double(), self.y.double()
        fitted = a @ torch.linalg.lstsq(a, y[:, None]).solution
        return float(1 - (fitted[:, 0] - y).square().sum() / y.square().sum())

    @cached_property
    def best(self) -> int:
        """The column that is worth most alone."""
        return max(range(len(self.names)), key=lambda i: self.worth([i]))

    def with_copies(self, t: int) -> Tensor:
        """The columns, then t copies of the best one."""
        return torch.cat([self.x, self.x[:, [self.best] * t]], 1)


def diabetes() -> Data:
    """scikit-learn's diabetes table: 442 people, 10 columns, the progress of the disease."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise gp.MissingPackage(
            "Expected the package scikit-learn for its diabetes table (it is not installed). "
            'Try pip install "greedypig[sklearn]".'
        ) from error
    table = load_diabetes()
    x, y = torch.tensor(table.data), torch.tensor(table.target)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return Data(x.float().clamp(-LARGEST, LARGEST), y.float(), tuple(map(str, table.feature_names)))


def any_copy(w: Tensor, best: int, n: int) -> Tensor:
    """(m, n + t) gates, copies of `best` at the end → (m, n): the largest of a column's gates.

    Equal gates share the gradient equally, as the lemma's symmetry requires.
    """
    most = torch.cat([w[:, best : best + 1], w[:, n:]], 1).amax(1, keepdim=True)
    return torch.cat([w[:, :best], most, w[:, best + 1 : n]], 1)


def planted(worth: Sequence[float]) -> G:
    """G(S) = Σ worth of the columns of S, the first counted once however many copies S has."""
    values = torch.tensor(worth, dtype=torch.float64)
    return lambda w: torch.mv(any_copy(w, 0, len(values)), values)


def either(data: Data, network: Any) -> G:
    """A network of the columns without copies; the copied column is there if any copy is."""

    def g(w: Tensor) -> Tensor:
        gates = any_copy(w.float(), data.best, len(data.names))
        outputs = network((data.x * gates[:, None]).flatten(0, 1))[:, 0].view(len(w), -1)
        errors: Tensor = outputs - data.y
        return -errors.double().square().mean(1)

    return g


def by_core(g: G, n: int) -> Selector:
    """Selects by maximizing g over n gates."""
    return lambda method, k: gp.maximize(gp.objective(g, n, dtype=torch.float64), method, k=k)


def trained(data: Data, network: Any, t: int, baseline: str = "zero") -> Selector:
    """Selects by a network that was trained on the table with the copies in it."""
    batches = [(data.with_copies(t), data.y)]

    def select(method: Any, k: int | None) -> gp.Attribution:
        with warnings.catch_warnings():  # Equal columns are what the scene is about.
            warnings.simplefilter("ignore")
            return gp.select_features(
                network, batches, loss="squared-error", baseline=baseline, method=method, k=k
            )

    return select


def train(
    x: Tensor, y: Tensor, *, hidden: Sequence[int], batches: int, masked: bool, seed: int
) -> Any:
    """A small network after some batches of whole rows, or of rows with columns absent."""
    fresh = TabularMLP(x.shape[1], (), hidden=hidden, seed=seed)
    parts = [(x[i::PARTS], y[i::PARTS]) for i in range(PARTS)]
    share = 0.25 if masked else 1.0
    return gp.mask_finetune(
        fresh, parts, steps=batches, loss="squared-error", seed=seed, whole_rows=share
    )


def check(lemma: str, statement: str, number: float, comparison: str) -> Record:
    """One statement of a lemma as a number, and what the number is to be compared with."""
    return {"lemma": lemma, "statement": statement, "number": number, "comparison": comparison}


def redundancy(worth: Sequence[float]) -> list[Record]:
    """Equal scores for copies; none for the others once one is selected."""
    g, n = planted(worth), len(worth)

    def g_after(w: Tensor) -> Tensor:
        selected = torch.zeros_like(w)
        selected[:, 0] = 1
        return g(torch.maximum(w, selected))

    scores = _ig(g, n + T)
    copies = torch.cat([scores[:1], scores[n:]])
    after = _ig(g_after, n + T)[n:]
    return [
        check(
            "Feature redundancy",
            f"IG's scores of {T + 1} equal columns differ by at most",
            float(copies.max() - copies.min()),
            f"each is {float(copies.mean()):.3g}, their sum what one alone had",
        ),
        check(
            "Feature redundancy",
            "once one is selected, the others' largest score is",
            float(after.abs().max()),
            "0 by the lemma",
        ),
    ]


def regression(data: Data) -> list[Record]:
    """g(w) = −‖A(x ⊙ w) − b‖² at the least-squares x, on the table's own columns."""
    a, b = data.x.double(), data.y.double()
    x = torch.linalg.lstsq(a, b[:, None]).solution[:, 0]

    def g(w: Tensor) -> Tensor:
        errors: Tensor = torch.mm(x * w, a.T) - b
        return -errors.square().sum(1)

    n = len(x)
    scores, closed_form = _ig(g, n), x * (a.T @ b)
    gains = g(torch.eye(n, dtype=a.dtype)) - g(torch.zeros(1, n, dtype=a.dtype))
    # The Hessian is −2 diag(x) AᵀA diag(x) everywhere; its mixed terms bound the gap.
    hessian = -2 * x[:, None] * (a.T @ a) * x
    bound = (hessian.sum(1) - hessian.diagonal()).abs() / 2
    return [
        check(
            "Linear regression",
            "∫∇g(t·1) dt and x ⊙ Aᵀb differ by at most",
            float((scores - closed_form).abs().max()),
            f"the largest score is {float(closed_form.max()):.3g}",
        ),
        check(
            "PIG and marginal gain",
            "a score misses the column's marginal gain by at most",
            float((scores - gains).abs().max()),
            f"the lemma's bound is {float(bound.max()):.3g}, which a quadratic g attains",
        ),
    ]


def _ig(g: G, n: int) -> Tensor:
    return by_core(g, n)(gp.IG(39), None).feature_scores.double()


# The table and the figure.


def mean_of(
    lists: Sequence[Record], scene: str, method: str, key: str, t: int
) -> tuple[float | None, float | None]:
    """Mean and standard error over the networks of "copies" or "worth"."""
    wanted = (scene, method, t)
    return mean_and_error([e[key] for e in lists if (e["scene"], e["method"], e["t"]) == wanted])


def table_rows(
    settings: Mapping[str, Any], methods: Sequence[Method], lists: Sequence[Record]
) -> Iterator[Record]:
    """A line for every scene, method and measure."""
    for scene, words in settings["scenes"].items():
        for method in methods:
            for key, measure in MEASURES.items():
                row: Record = {
                    "scene": words.split(":")[0],
                    "title": method.title,
                    "method": method.name,
                    "measure": f"{measure} {settings['top']}",
                }
                for t in settings["copies"]:
                    numbers = mean_of(lists, scene, method.name, key, t)
                    row[f"t{t}"], row[f"t{t}_error"] = numbers
                yield row


def draw(
    settings: Mapping[str, Any], methods: Sequence[Method], lists: Sequence[Record], data: Data
) -> Figure:
    """A row for each scene: top lists of two methods, and what the lists are worth."""
    scenes = settings["scenes"]
    shown = [method for method in methods if method.name != "greedy"]
    figure = canvas.new_figure(12, 0.6 + 2.55 * len(scenes))
    canvas.heading(figure, FIGURE_TITLE, 11)
    axes = figure.subplots(len(scenes), len(shown) + 1, squeeze=False)
    for line, scene in zip(axes, scenes, strict=True):
        names, best = columns_of(settings, data, scene)
        for ax, method in zip(line, shown, strict=False):
            wanted = (scene, 0, method.name)
            tops = {
                each["t"]: each["top"]
                for each in lists
                if (each["scene"], each["network"], each["method"]) == wanted
            }
            draw_lists(ax, tops, names[best])
            canvas.title(ax, method.title)
        canvas.title(line[0], f"{scenes[scene]}\n{shown[0].title}")
        for method, dash in zip(methods, ("-", "--", ":"), strict=False):
            means = [mean_of(lists, scene, method.name, "worth", t) for t in settings["copies"]]
            worth, errors = ([value or 0.0 for value in each] for each in zip(*means, strict=True))
            places = range(len(worth))
            line[-1].errorbar(places, worth, errors, None, dash, capsize=2, label=method.title)
        line[-1].set_xticks(range(len(settings["copies"])), map(str, settings["copies"]))
        quantity = "share of all" if scene == "planted" else "R²"
        canvas.title(line[-1], f"what the list is worth ({quantity})")
        canvas.labels(line[-1], "copies")
        canvas.plain(line[-1])
    for ax in axes[2:, -1]:  # One scale for R², so that noise looks like noise.
        ax.sharey(axes[1][-1])
    axes[0][-1].legend(**canvas.KEY)
    return figure


def draw_lists(ax: Axes, tops: Mapping[int, Sequence[str]], copied: str) -> None:
    """One column for each number of copies, one cell for each place, copies in colour."""
    from matplotlib.transforms import Bbox

    places = list(zip(*tops.values(), strict=True))
    colours = [
        [COPIED_COLOUR if name.rstrip(COPY) == copied else OTHER_COLOUR for name in place]
        for place in places
    ]
    heads = [count(t, "copy", "copies") for t in tops]
    ax.set_axis_off()
    whole = Bbox.from_bounds(0, 0, 1, 1)
    ax.table(places, colours, "center", colLabels=heads, bbox=whole)
