"""Every name, once: methods, objectives, baselines, features, schedules, rules and models, with the
kinds of input that each serves.

Command lines, error messages and the docs read these tables. Nothing here imports torch; what a
name stands for is imported when it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any, TypeAlias

Kinds: TypeAlias = frozenset[str]
ROWS, PHOTOS, EDGES, NODES, COLUMNS, TEXTS = "rows", "photos", "edges", "nodes", "columns", "texts"
"""Kinds of input: tensors of any shape, photos, the edges of a graph, those around a node, the
columns of a table, texts."""
EVERY: Kinds = frozenset({ROWS, PHOTOS, EDGES, NODES, COLUMNS, TEXTS})
TENSORS: Kinds = frozenset({ROWS, PHOTOS})
PHOTO, EDGE, COLUMN, TEXT = (frozenset({kind}) for kind in (PHOTOS, EDGES, COLUMNS, TEXTS))


@dataclass(frozen=True)
class Entry:
    """What is known by a name."""

    name: str
    kinds: Kinds
    """The kinds of input that it serves."""
    home: str = ""
    """The module and the class or function: "greedypig.core.methods:GreedyPIG"."""
    knobs: tuple[str, ...] = ()
    """The fields of a method's class, in order."""
    compared: Kinds = frozenset()
    """The kinds whose comparisons run the method where none are named."""
    words: str = ""
    """What it is, for helps."""

    @property
    def title(self) -> str:
        """The name of the class or function."""
        return self.home.partition(":")[2]

    @property
    def factory(self) -> Any:
        """The class or function."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(module), name)


Table: TypeAlias = dict[str, Entry]
"""Entries by name, in the order of lists."""


def serving(table: Table, kind: str, *, compared: bool = False) -> tuple[str, ...]:
    """The names that serve a kind of input; compared: of the methods that its comparisons run."""
    entries = table.values()
    return tuple(e.name for e in entries if kind in (e.compared if compared else e.kinds))


def _table(*parts: Iterator[Entry]) -> Table:
    return {entry.name: entry for entry in chain(*parts)}


def _plain(kinds: Kinds, text: str, words: str = "") -> Iterator[Entry]:
    """Names, with spaces between."""
    return (Entry(name, kinds, words=words) for name in text.split())


def _at(
    home: str, name: str, kinds: Kinds, knobs: str = "", compared: Kinds = frozenset()
) -> Iterator[Entry]:
    """A name with the class or function that it stands for."""
    yield Entry(name, kinds, f"greedypig.{home}", tuple(knobs.split()), compared)


_ROUNDS = "rounds per_round schedule ratio"
METHODS = _table(
    # A comparison shows the result of its first method: of photos it is their default.
    _at(
        *("images.steady:SteadyPIG", "steady-pig", PHOTO),
        *(f"{_ROUNDS} views noise crop ramp place", PHOTO),
    ),
    _at("core.methods:GreedyPIG", "greedy-pig", EVERY, f"{_ROUNDS} steps rule complete", EVERY),
    _at("core.methods:TwoSidedPIG", "two-sided-pig", EVERY, f"{_ROUNDS} steps rule necessity"),
    _at("core.methods:SequentialGradient", "sequential-gradient", EVERY, _ROUNDS, PHOTO | TEXT),
    _at("core.scorers:IG", "ig", EVERY, "steps rule complete", EVERY),
    _at("core.scorers:Gradient", "gradient", EVERY, "at"),
    _at("core.scorers:SmoothIG", "smooth-ig", TENSORS, "scorer samples noise", PHOTO),
    _at("images.blur:BlurIG", "blur-ig", PHOTO, "steps sigma grad_step", PHOTO),
    _at("core.scorers:GuidedIG", "guided-ig", TENSORS, "steps fraction max_dist", PHOTO),
    _at("core.scorers:LeaveOneOut", "leave-one-out", EVERY, "", TEXT),
    _at("text.comparison_methods:Attention", "attention", TEXT, "", TEXT),
    _at("text.comparison_methods:ContextCite", "context-cite", TEXT, "ablations penalty", TEXT),
    _at("tables.objective:Permutation", "permutation", COLUMN),
    _at("core.scorers:MarginalGains", "marginal-gains", EVERY),
    _at("graphs.edges:DegreeSampler", "degree", EDGE, "", EDGE),
    _at("core.scorers:Random", "random", EVERY, "", EVERY),
)
"""Methods: `method=`."""


def register(name: str, home: str, kinds: Kinds, knobs: str = "") -> None:
    """Make one more method known by its name; `home` is "module:Class"."""
    METHODS[name] = Entry(name, kinds, home, tuple(knobs.split()))


OBJECTIVES = _table(
    _plain(EVERY - COLUMN, "softmax log-likelihood log-probability"),
    _plain(TENSORS | TEXT, "logit margin counterfactual increase decrease"),
    _plain(EDGE, "label-loss"),
)
"""What is maximised: `objective=`."""

BASELINES = _table(
    _plain(TENSORS | COLUMN, "zero mean"),
    _plain(TENSORS, "gray black white blur"),
    _plain(COLUMN, "conditional"),
    _plain(TEXT, "masked deleted embedding"),
    _plain(TEXT, "mask-embedding pad-embedding zero-embedding mean-embedding"),
)
"""What an absent feature is: `baseline=`, and `absent=` of a text."""

FEATURES = _table(
    _at("tensors.features:elements", "elements", TENSORS),
    _at("images.features:pixels", "pixels", TENSORS),
    _at("tensors.features:tokens", "tokens", frozenset({ROWS, TEXTS})),
    _plain(TEXT, "words sentences paragraphs documents messages"),
)
"""What one feature is: `features=`."""

SCHEDULES = _table(
    _plain(EVERY, "geometric", "takes few at first"),
    _plain(EVERY, "equal", "as many in each"),
    # Any input takes it, but every feature that is tried costs a value, and texts have few.
    _plain(TEXT, "measured", "as many as raise the output by half of their score"),
)
"""How many features each round takes: `schedule=`."""

RULES = _table(
    _at("core.quadrature:midpoint", "midpoint", EVERY),
    _at("core.quadrature:cubic", "cubic", EVERY),
    _at("core.quadrature:smoothstep", "smoothstep", EVERY),
    _at("core.quadrature:left", "left", EVERY),
    _at("core.quadrature:right", "right", EVERY),
    _at("core.quadrature:trapezoid", "trapezoid", EVERY),
    _at("core.quadrature:gauss_legendre", "gauss-legendre", EVERY),
    _at("core.quadrature:gauss_radau", "gauss-radau", EVERY),
)
"""Quadrature rules: `rule=`."""

MODELS = _table(
    _at("images.networks.mobile_networks:EfficientNetLite0", "efficientnet-lite0", PHOTO),
    _at("images.networks.mobile_networks:MobileNetV2", "mobilenet-v2", PHOTO),
    _at("images.networks.resnet:ResNet50", "resnet50", PHOTO),
    # A language model, and a classifier of film reviews ("negative", "positive").
    _plain(TEXT, "smollm2-135m-instruct minilm-imdb"),
)
"""Pretrained models, which come with an extra or by `make assets`."""
