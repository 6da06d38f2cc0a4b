"""Options that several commands share, and what their words mean.

Words are turned into the arguments of `greedypig.explain` here. A wrong word is an error before any
network is loaded, where that can be known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import greedypig as gp

from ..core import registry
from ..core.errors import did_you_mean
from .failures import UsageError

if TYPE_CHECKING:
    import torch

NETWORKS, METHODS, OBJECTIVES, BASELINES, FEATURES = (
    registry.serving(table, registry.PHOTOS)
    for table in (
        *(registry.MODELS, registry.METHODS, registry.OBJECTIVES, registry.BASELINES),
        registry.FEATURES,
    )
)
"""The names for photos."""
FEATURE_WORDS = (*FEATURES, "grid:16", "windows:8", "superpixels[:100]")
RARE = frozenset(
    (
        *("--outputs", "--baseline", "--batch-size", "--hidden", "--layers", "--epochs"),
        *("--rounds", "--steps", "--schedule", "--seconds", "--hops", "--draws", "--directed"),
        *("--no-html", "--quiet", "--debug"),
    )
)
"""Options that only --help-all shows."""


class WrongValue(UsageError):
    """An option has a wrong value; the parser says which option."""

    def __init__(self, expected: str, text: str, names: Iterable[str] = ()) -> None:
        self.end = f"{expected} (got {text!r}).{did_you_mean(text, names)}"
        super().__init__(f"Expected {self.end}")


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The group of options with this title: "input", "model", "method" or "output"."""
    for known in parser._action_groups:
        if known.title == title:
            return known
    return parser.add_argument_group(title)


def first_is_default(names: Sequence[str]) -> str:
    """Names for a line of help."""
    return ", ".join([f"{names[0]} (default)", *names[1:]])


def add_photos(parser: argparse.ArgumentParser) -> None:
    """The photos and folders."""
    words = "photos, folders of photos (with subfolders), quoted patterns"
    group(parser, "input").add_argument("photos", nargs="+", metavar="PHOTO", help=words)


def add_model(parser: argparse.ArgumentParser) -> None:
    """The network, the class, the objective, the baseline and the judge."""
    add = group(parser, "model").add_argument
    words = f"{first_is_default(NETWORKS)}, or your own as package.module:factory (runs its code)"
    add("--model", default=NETWORKS[0], metavar="NAME", help=words)
    words = "what your own model returns (default: its attribute outputs, else logits)"
    add("--outputs", choices=("logits", "probabilities"), help=words)
    words = "number, name or WordNet id (default: the predicted class)"
    add("--class", dest="class_", metavar="CLASS", help=words)
    words = first_is_default(OBJECTIVES).replace("margin", "margin[:CLASS]")
    add("--objective", type=objective, default="softmax", metavar="NAME", help=words)
    words = (
        f"what an absent feature looks like: {', '.join(BASELINES)} or a number; several "
        "with commas are averaged (default: %(default)s)"
    )
    add("--baseline", default="gray", metavar="NAME", help=words)
    words = "a second network that evaluates the selected features too"
    add("--judge", metavar="NAME", help=words)


def add_hardware(parser: argparse.ArgumentParser, *, batch_size: bool = True) -> None:
    """The device, and the seed of everything random."""
    add = group(parser, "model").add_argument
    add("--device", metavar="NAME", default="cpu", help="cpu, cuda, cuda:1, mps (default: cpu)")
    if batch_size:
        words = "inputs evaluated at once (default: as many as fit into memory)"
        add("--batch-size", type=whole, metavar="N", help=words)
    words = "seed of everything random (default: 0)"
    group(parser, "method").add_argument("--seed", type=seed, metavar="N", default=0, help=words)


def add_features(parser: argparse.ArgumentParser) -> None:
    """What one feature is."""
    words = first_is_default(FEATURE_WORDS)
    add = group(parser, "method").add_argument
    add("--features", default=FEATURES[0], metavar="NAME", help=words)


def add_method(parser: argparse.ArgumentParser) -> None:
    """The method, and when to stop."""
    add = group(parser, "method").add_argument
    words = f"{', '.join(METHODS)} (default: chosen)"
    add("--method", metavar="NAME", choices=METHODS, help=words)
    add_features(parser)
    add("--k", type=whole, metavar="N", help="select N features (default: all)")
    words = "take at most N gradients: fewer rounds, then fewer steps"
    add("--budget", type=whole, metavar="N", help=words)
    add("--seconds", type=above_zero, metavar="S", help="stop after S seconds")
    add_rounds(
        parser,
        registry.PHOTOS,
        "20; steady-pig 33; 100 where a round is one gradient",
        "5; steady-pig 3; in all, of ig and of each copy of smooth-ig 50, blur-ig 100, "
        "guided-ig 200",
    )


def add_rounds(
    parser: argparse.ArgumentParser,
    kind: str,
    rounds: str,
    steps: str,
    schedule: str = "geometric",
) -> None:
    """The options of a greedy method's rounds.

    kind: of input. rounds, steps, schedule: the defaults, in words.
    """
    add = group(parser, "method").add_argument
    words = f"rounds of greedy methods (default: {rounds})"
    add("--rounds", type=whole, metavar="N", help=words)
    words = f"gradients per round (default: {steps})"
    add("--steps", type=whole, metavar="N", help=words)
    names = registry.serving(registry.SCHEDULES, kind)
    meanings = ", ".join(f"{name} {registry.SCHEDULES[name].words}" for name in names)
    words = f"features per round: {meanings} (default: {schedule})"
    add("--schedule", choices=names, help=words)


def add_output(parser: argparse.ArgumentParser, words: str, metavar: str = "FOLDER") -> None:
    """Where the results go, and going on after Ctrl-C. words: the help of --out."""
    add = group(parser, "output").add_argument
    add("--out", metavar=metavar, help=words)
    add("--resume", action="store_true", help="go on where the same command was stopped")


def knobs_of(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given."""
    knobs = {"rounds": args.rounds, "steps": args.steps, "schedule": args.schedule}
    return {name: value for name, value in knobs.items() if value is not None}


def features(text: str) -> Any:
    """features= of `gp.explain` for a word such as grid:16."""
    kind, _, number = text.partition(":")
    makers: dict[str, Any] = {"grid": gp.grid, "windows": gp.windows, "superpixels": gp.superpixels}
    if text in FEATURES:
        return text
    if text == "superpixels":
        return gp.superpixels()
    if kind in makers and number.isdecimal() and int(number) > 0:
        return makers[kind](int(number))
    raise UsageError(
        f"Expected --features as one of {', '.join(FEATURE_WORDS)} (got {text!r})."
        f"{did_you_mean(text, FEATURE_WORDS)}"
    )


def baseline(text: str) -> Any:
    """baseline= of `gp.explain`: a name, a number, or a list of these."""
    parts = [_baseline(part.strip()) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else parts


def _baseline(text: str) -> str | float:
    if text in BASELINES:
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"Expected --baseline as a number or one of {', '.join(BASELINES)} (got {text!r})."
            f"{did_you_mean(text, BASELINES)}"
        ) from None


def device(text: str) -> torch.device:
    """The device called `text`, if this machine has it."""
    import torch

    try:
        named = torch.device(text)
        torch.empty(1, device=named).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f"Expected a device of this machine, such as cpu (got {text!r})."
        ) from error
    return named


def names_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """The type of options that list names with commas, each once and in its order."""

    def names(text: str) -> tuple[str, ...]:
        words = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
        for word in words or [""]:
            if word not in known:
                raise WrongValue(f"names with commas, among {', '.join(known)}", word, known)
        return tuple(words)

    return names


def whole(text: str) -> int:
    """The type of options that count something."""
    if not text.isdecimal() or int(text) < 1:
        raise WrongValue("a whole number of at least 1", text)
    return int(text)


def seed(text: str) -> int:
    """The type of --seed."""
    with suppress(ValueError):
        return int(text)
    raise WrongValue("a whole number", text)


def above_zero(text: str) -> float:
    """The type of options that measure something."""
    with suppress(ValueError):
        if 0 < float(text) < inf:
            return float(text)
    raise WrongValue("a number above 0", text)


def objective(text: str) -> str:
    """The type of --objective."""
    name, colon, _ = text.partition(":")
    if name not in OBJECTIVES or (colon and name != "margin"):
        raise WrongValue(f"one of {', '.join(OBJECTIVES)}, or margin:CLASS", text, OBJECTIVES)
    return text
