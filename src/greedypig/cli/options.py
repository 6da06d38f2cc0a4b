"""Options that several commands share, and what their words mean.

Words are turned into the arguments of `greedypig.explain` here. A wrong word is an error before any
network is loaded, where that can be known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import torch

import greedypig as gp

from ..images.networks.pretrained import NAMES as MODELS
from ..tensors import baselines, targets
from .failures import UsageError

FEATURES = "elements, pixels, grid:16, windows:8, superpixels[:100]"


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The group of options with this title: "model", "method", "hardware" or "output"."""
    for known in parser._action_groups:
        if known.title == title:
            return known
    return parser.add_argument_group(title)


def add_photos(parser: argparse.ArgumentParser) -> None:
    """The photos and folders."""
    words = (
        "a photo, a folder of photos (with its subfolders), or a quoted pattern; put a name that "
        "begins with a dash behind --"
    )
    parser.add_argument("photos", nargs="+", metavar="PHOTO", help=words)


def add_model(parser: argparse.ArgumentParser) -> None:
    """The network, the class, the objective and the baseline."""
    add = group(parser, "model").add_argument
    words = f"{', '.join(MODELS)}, or package.module:factory for your own (default: %(default)s)"
    add("--model", default="efficientnet-lite0", metavar="NAME", help=words)
    words = "what your own model returns (default: its attribute outputs, else logits)"
    add("--outputs", choices=("logits", "probabilities"), help=words)
    words = "the class to explain: number, name or WordNet id (default: the predicted class)"
    add("--class", dest="class_", metavar="CLASS", help=words)
    words = (
        f"what to maximise: {', '.join(targets.NAMES)}; margin:CLASS names the other class. "
        "softmax: the probability of the class; log-likelihood: the photo's own prediction; "
        "counterfactual: a change of the prediction (default: %(default)s)"
    )
    add("--objective", default="softmax", metavar="NAME", help=words)
    words = (
        f"what an absent feature looks like: {', '.join(baselines.NAMES)} or a number; several "
        "with commas are averaged (default: %(default)s)"
    )
    add("--baseline", default="gray", metavar="NAME", help=words)
    words = "a second network, named as for --model, that evaluates the selected features too"
    add("--judge", metavar="MODEL", help=words)


def add_hardware(parser: argparse.ArgumentParser, *, batch_size: bool = True) -> None:
    """The device, and the seed of everything random."""
    add = group(parser, "hardware").add_argument
    add("--seed", type=int, default=0, help="seed of everything random (default: 0)")
    add("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default: cpu)")
    if batch_size:
        words = "inputs evaluated at once (default: as many as fit into memory)"
        add("--batch-size", type=whole, metavar="N", help=words)


def add_features(method: argparse._ArgumentGroup) -> None:
    """What one feature is."""
    words = (
        f"what one feature is: {FEATURES}; that is one colour of a pixel, a pixel, a square, "
        "overlapping squares, a region along edges (default: %(default)s)"
    )
    method.add_argument("--features", default="elements", metavar="NAME", help=words)


def add_folder(parser: argparse.ArgumentParser, default: str) -> None:
    """The folder of the results, and going on after Ctrl-C. default: its name, in words."""
    output = group(parser, "output")
    words = f"folder of the results (default: {default})"
    output.add_argument("--out", metavar="FOLDER", help=words)
    add_resume(output)


def add_resume(output: argparse._ArgumentGroup) -> None:
    """Going on after Ctrl-C."""
    words = "go on where the same command was stopped"
    output.add_argument("--resume", action="store_true", help=words)


def features(text: str) -> Any:
    """features= of `gp.explain` for a word such as grid:16."""
    kind, _, number = text.partition(":")
    makers: dict[str, Any] = {"grid": gp.grid, "windows": gp.windows, "superpixels": gp.superpixels}
    if text in ("elements", "pixels"):
        return text
    if text == "superpixels":
        return gp.superpixels()
    if kind in makers and number.isdecimal() and int(number) > 0:
        return makers[kind](int(number))
    raise UsageError(f"Expected --features as one of {FEATURES} (got {text!r}).")


def baseline(text: str) -> Any:
    """baseline= of `gp.explain`: a name, a number, or a list of these."""
    parts = [_baseline(part.strip()) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else parts


def _baseline(text: str) -> str | float:
    if text in baselines.NAMES:
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"Expected --baseline as a number or one of {', '.join(baselines.NAMES)} "
            f"(got {text!r})."
        ) from None


def device(text: str) -> torch.device:
    """The device called `text`, if this machine has it."""
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
                expected = f"expected names with commas, among {', '.join(known)}"
                raise argparse.ArgumentTypeError(f"{expected}, got {word!r}")
        return tuple(words)

    return names


def whole(text: str) -> int:
    """The type of options that count something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)
