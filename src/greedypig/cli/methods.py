"""The words of the command line that say how to explain, as a method object and a `Stop`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..core.errors import BudgetTooSmall, InvalidInput
from ..core.layout import Layout
from ..core.methods import (
    GreedyPIG,
    InRounds,
    SequentialGradient,
    as_method,
    scorer_of,
    with_knobs,
)
from ..core.run import Run
from ..core.scorers import cost_of
from ..core.stopping import Stop
from ..tensors.methods import choose, within
from .failures import UsageError
from .options import whole

NAMES = (
    "greedy-pig", "steady-pig", "sequential-gradient", "ig", "gradient", "smooth-ig", "blur-ig",
    "guided-ig", "random",
)  # fmt: skip
"""The methods for photos."""
KNOBS = ("rounds", "per_round", "schedule", "ratio", "steps")
GREEDY = ("rounds", "per_round", "schedule", "ratio")
"""Knobs of greedy methods alone."""


def add_method(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options of the method, and of when to stop."""
    group = parser.add_argument_group("method")
    group.add_argument(
        "--method",
        metavar="NAME",
        help=f"{', '.join(NAMES)} (default: steady-pig for photos of 128 pixels or more with "
        "--objective softmax, sequential-gradient with log-likelihood, else greedy-pig)",
    )
    add_rounds(group)
    group.add_argument("--k", type=whole, metavar="N", help="select N features (default: all)")
    group.add_argument(
        "--budget",
        type=whole,
        metavar="N",
        help="at most N gradients: fewer rounds, then fewer steps. With --rounds, --steps, "
        "--per-round or numbers in --schedule the method stays as it is and stops early",
    )
    group.add_argument("--seconds", type=float, metavar="S", help="stop after S seconds")
    group.add_argument(
        "--reach",
        type=float,
        metavar="SHARE",
        help="stop when the objective reaches this share of its value for the whole photo, such "
        "as 0.95; above 1 where that value is negative (log-likelihood), such as 1.05",
    )
    group.add_argument(
        "--gain", action="store_true", help="stop when no feature has a positive score"
    )
    return group


def add_rounds(group: argparse._ArgumentGroup, *, per_round: bool = True) -> None:
    """The options of a greedy method's rounds."""
    group.add_argument(
        "--rounds",
        type=whole,
        metavar="N",
        help="rounds of greedy methods (default: 20; steady-pig and edges 33; 100 where a round is "
        "one gradient)",
    )
    group.add_argument(
        "--steps",
        type=whole,
        metavar="N",
        help="gradients per round, or of a one-shot method (default: 5; steady-pig and edges 3; "
        "ig and each copy of smooth-ig 50, blur-ig 100, guided-ig 200)",
    )
    group.add_argument(
        "--schedule",
        metavar="S",
        help="features per round: geometric (few at first), equal, or numbers with commas "
        "(default: geometric)",
    )
    group.add_argument(
        "--ratio",
        type=float,
        metavar="X",
        help="features of the last geometric round over those of the first (default: 50; "
        "steady-pig 100, edges 20)",
    )
    if per_round:
        group.add_argument(
            "--per-round",
            type=whole,
            metavar="N",
            help="features per round, instead of --schedule: --features windows:8 --per-round 1 "
            "--k 50 takes one patch per round, 50 in all",
        )


@dataclass(frozen=True)
class Search:
    """The method options of one command, checked as far as possible without a photo."""

    name: str | None
    """None where the method is chosen by what is explained."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    k: int | None = None
    budget: int | None = None
    stop: Stop = field(default_factory=Stop)
    reach: float | None = None

    @staticmethod
    def of(args: argparse.Namespace) -> Search:
        """Read the options; whatever is wrong with them is a `UsageError`."""
        if args.reach is not None and not args.reach > 0:
            raise UsageError(f"Expected --reach above 0 (got {args.reach:g}).")
        knobs = knobs_of(args)
        try:
            if args.method is not None:
                _check_greedy(args.method, knobs)
                with_knobs(args.method, **knobs)
            stop = Stop(gradients=args.budget, seconds=args.seconds, gain=args.gain)
        except InvalidInput as error:
            raise UsageError(str(error)) from error
        return Search(args.method, knobs, args.k, args.budget, stop, args.reach)

    def method(self, layout: Layout, objective: str, baselines: int = 1) -> Any:
        """The method for an input of this layout."""
        method = choose(layout, objective) if self.name is None else as_method(self.name)
        if self.name is None and "steps" in self.knobs and isinstance(method, SequentialGradient):
            method = GreedyPIG()
        method = set_knobs(method, self.knobs)
        planned = {"rounds", "steps", "per_round"} & set(self.knobs)
        if self.budget is None or planned or not isinstance(self.knobs.get("schedule", ""), str):
            return method
        return within(method, max(1, self.budget // baselines))

    def with_reach(self, run: Run) -> None:
        """Let a run stop at the share that --reach names of its value for everything."""
        if self.reach is not None:
            everything = torch.ones_like(run.objective.end[0]).unsqueeze(1)
            full = float(run.objective.values(everything)[0, 0])
            run.stop = replace(run.stop, value=self.reach * full)

    def refused(self, error: BudgetTooSmall, method: Any, baselines: int) -> UsageError:
        """A budget smaller than a round, with the options that leave room for one."""
        ways = [f"--budget {error.needed}"]
        with suppress(InvalidInput):  # The method has no steps.
            least = cost_of(scorer_of(with_knobs(method, steps=1))) * baselines
            if 0 < least <= error.budget:
                ways.append(f"--steps {error.budget // least}")
        return UsageError(
            f"Expected a --budget of at least one round's {error.needed} gradients "
            f"(got {error.budget}). Try {', or '.join(ways)}."
        )


def knobs_of(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given, checked against each other."""
    values = {name: getattr(args, name, None) for name in KNOBS}
    values["schedule"] = _schedule(values["schedule"])
    knobs = {name: value for name, value in values.items() if value is not None}
    if isinstance(knobs.get("schedule"), list):
        for name in ("rounds", "per_round", "k"):
            if getattr(args, name, None) is not None:
                raise UsageError(
                    f"Expected --schedule with numbers alone (got {_option(name)} beside it)."
                )
    if "per_round" in knobs and knobs.get("schedule") == "geometric":
        raise UsageError(
            "Expected --per-round, the same number in every round, or --schedule geometric (got "
            "both)."
        )
    if not 0 < knobs.get("ratio", 1) < float("inf"):
        raise UsageError(f"Expected --ratio above 0 (got {knobs['ratio']:g}).")
    return knobs


def set_knobs(method: Any, knobs: Mapping[str, Any]) -> Any:
    """The method with these knobs; its own number of rounds does not limit rounds that were named
    in another way."""
    named = "per_round" in knobs or isinstance(knobs.get("schedule"), list)
    if isinstance(method, InRounds) and named and "rounds" not in knobs:
        method = replace(method, rounds=None)
    return with_knobs(method, **knobs)


def _check_greedy(name: str, knobs: Mapping[str, Any]) -> None:
    if isinstance(as_method(name), InRounds):
        return
    for knob in GREEDY:
        if knob in knobs:
            raise UsageError(
                f"Expected {_option(knob)} with a greedy method only (got --method {name}, which "
                "scores all features at once). Try --method greedy-pig."
            )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _schedule(text: str | None) -> str | Sequence[int] | None:
    if text is None or text in ("geometric", "equal"):
        return text
    parts = text.split(",")
    if all(part.strip().isdecimal() for part in parts):
        return [int(part) for part in parts]
    raise UsageError(
        f"Expected --schedule as geometric, equal or numbers with commas (got {text!r})."
    )
