"""Every method, once: its name, where its class is, the kinds of input it serves, and its knobs.

Command lines, error messages and the docs read this table. Nothing here imports torch; a method's
class is imported when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

ROWS, PHOTOS, EDGES, NODES, COLUMNS, TEXTS = "rows", "photos", "edges", "nodes", "columns", "texts"
"""Kinds of input: tensors of any shape, photos, the edges of a graph, those around a node, the
columns of a table, texts."""
EVERY = frozenset({ROWS, PHOTOS, EDGES, NODES, COLUMNS, TEXTS})
TENSORS = frozenset({ROWS, PHOTOS})


@dataclass(frozen=True)
class MethodEntry:
    """A method as it is known by name."""

    name: str
    home: str
    """The module and the class: "greedypig.core.methods:GreedyPIG"."""
    kinds: frozenset[str]
    knobs: tuple[str, ...] = ()
    """The fields of the class, in order."""

    @property
    def title(self) -> str:
        """The class's name."""
        return self.home.partition(":")[2]

    @property
    def factory(self) -> Any:
        """The class."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(module), name)


METHODS: dict[str, MethodEntry] = {}
"""By name."""


def register(name: str, home: str, kinds: frozenset[str], knobs: str = "") -> None:
    """Make a method known by its name; `home` is "module:Class"."""
    METHODS[name] = MethodEntry(name, home, kinds, tuple(knobs.split()))


ROUNDS = "rounds per_round schedule ratio"
_CORE = "greedypig.core"
register("greedy-pig", f"{_CORE}.methods:GreedyPIG", EVERY, f"{ROUNDS} steps rule complete")
register("two-sided-pig", f"{_CORE}.methods:TwoSidedPIG", EVERY, f"{ROUNDS} steps rule necessity")
register("sequential-gradient", f"{_CORE}.methods:SequentialGradient", EVERY, ROUNDS)
register(
    "steady-pig",
    "greedypig.tensors.steady:SteadyPIG",
    frozenset({PHOTOS}),
    f"{ROUNDS} views noise crop ramp place",
)
register("ig", f"{_CORE}.scorers:IG", EVERY, "steps rule complete")
register("gradient", f"{_CORE}.scorers:Gradient", EVERY, "at")
register("smooth-ig", f"{_CORE}.scorers:SmoothIG", TENSORS, "scorer samples noise")
register(
    "blur-ig", "greedypig.tensors.pictures:BlurIG", frozenset({PHOTOS}), "steps sigma grad_step"
)
register("guided-ig", f"{_CORE}.scorers:GuidedIG", TENSORS, "steps fraction max_dist")
register("random", f"{_CORE}.scorers:Random", EVERY)
register("marginal-gains", f"{_CORE}.scorers:MarginalGains", EVERY)
register("leave-one-out", f"{_CORE}.scorers:LeaveOneOut", EVERY)
register("permutation", "greedypig.tables.objective:Permutation", frozenset({COLUMNS}))
register(
    "context-cite", "greedypig.text.rivals:ContextCite", frozenset({TEXTS}), "ablations penalty"
)
register("attention", "greedypig.text.rivals:Attention", frozenset({TEXTS}))
register("gradient-input", "greedypig.text.rivals:GradientInput", frozenset({TEXTS}))
register("captum-layer-ig", "greedypig.text.rivals:CaptumLayerIG", frozenset({TEXTS}), "steps")
register("captum-ablation", "greedypig.text.rivals:CaptumAblation", frozenset({TEXTS}))
register("captum-shapley", "greedypig.text.rivals:CaptumShapley", frozenset({TEXTS}), "orders")
