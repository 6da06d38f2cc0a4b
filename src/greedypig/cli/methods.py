"""The words of the command line that say how to explain, as a method object and a budget."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.layout import Layout
from ..core.methods import GreedyPIG, SequentialGradient, as_method, with_knobs
from ..core.stopping import Stop
from ..tensors.methods import choose, within
from .failures import wrong_command
from .options import whole

NAMES = (
    *("greedy-pig", "steady-pig", "sequential-gradient", "ig", "gradient", "smooth-ig", "blur-ig"),
    *("guided-ig", "random"),
)
"""The methods for photos."""


def add_method(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options of the method, and of when to stop."""
    group = parser.add_argument_group("method")
    words = (
        f"{', '.join(NAMES)} (default: steady-pig for photos of 128 pixels or more with "
        "--objective softmax, sequential-gradient with log-likelihood, else greedy-pig)"
    )
    group.add_argument("--method", metavar="NAME", choices=NAMES, help=words)
    add_rounds(
        group,
        "20; steady-pig 33; 100 where a round is one gradient",
        "5; steady-pig 3; in all, of ig and of each copy of smooth-ig 50, blur-ig 100, "
        "guided-ig 200",
    )
    group.add_argument("--k", type=whole, metavar="N", help="select N features (default: all)")
    words = (
        "at most N gradients: fewer rounds, then fewer steps. With --rounds or --steps the method "
        "stays as it is and stops early"
    )
    group.add_argument("--budget", type=whole, metavar="N", help=words)
    group.add_argument("--seconds", type=float, metavar="S", help="stop after S seconds")
    return group


def add_rounds(group: argparse._ArgumentGroup, rounds: str, steps: str) -> None:
    """The options of a greedy method's rounds; rounds, steps: their defaults in words."""
    words = f"rounds of greedy methods (default: {rounds})"
    group.add_argument("--rounds", type=whole, metavar="N", help=words)
    words = f"gradients per round (default: {steps})"
    group.add_argument("--steps", type=whole, metavar="N", help=words)
    words = "features per round: geometric (the default) takes few at first, equal as many in each"
    group.add_argument("--schedule", choices=("geometric", "equal"), help=words)


@dataclass(frozen=True)
class Search:
    """How to explain: the method, its knobs, and when to stop."""

    method: Any = None
    """A name or an object; None where it is chosen by what is explained."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    k: int | None = None
    stop: Stop = field(default_factory=Stop)

    @staticmethod
    def of(args: argparse.Namespace) -> Search:
        """Read the options; whatever is wrong with them is a `UsageError`."""
        knobs = knobs_of(args)
        with wrong_command():
            if args.method is not None:
                with_knobs(as_method(args.method), **knobs)
            stop = Stop(gradients=args.budget, seconds=args.seconds)
        return Search(args.method, knobs, args.k, stop)

    def method_for(self, layout: Layout, objective: str, baselines: int = 1) -> Any:
        """The method for an input of this layout; a budget plans rounds that are not named."""
        method = choose(layout, objective) if self.method is None else as_method(self.method)
        if self.method is None and "steps" in self.knobs and isinstance(method, SequentialGradient):
            method = GreedyPIG()
        method = with_knobs(method, **self.knobs)
        if self.stop.gradients is None or {"rounds", "steps"} & set(self.knobs):
            return method
        return within(method, max(1, self.stop.gradients // baselines))


def knobs_of(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given."""
    knobs = {"rounds": args.rounds, "steps": args.steps, "schedule": args.schedule}
    return {name: value for name, value in knobs.items() if value is not None}
