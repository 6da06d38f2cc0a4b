"""Options that several commands share, and what their words mean.

Words are turned into the arguments of `greedypig.explain` here; what is wrong with one is said
before any network is loaded, as far as that can be known.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import greedypig as gp

from ..core.errors import InvalidInput
from ..core.features import Features
from ..core.layout import Layout
from ..images.class_names import find_class
from ..images.networks import ImageModel
from ..images.networks.pretrained import NAMES as MODELS
from ..tensors import baselines, methods, targets
from .failures import UsageError

DEFAULT_MODEL = "efficientnet-lite0"
VIEWS = methods.STEADY.cost()
ROUNDS_OF_VIEWS = methods.default_rounds(methods.STEADY)
FEATURES = "elements, pixels, grid:16, windows:8, superpixels[:100]"


def add_photos(parser: argparse.ArgumentParser) -> None:
    """The photos and folders."""
    parser.add_argument(
        "photos",
        nargs="+",
        metavar="PHOTO",
        help="a photo, a folder of photos (with those below it), or a quoted pattern; "
        "a name that begins with a dash goes behind --",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which network, which class, and how absent parts look."""
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="NAME",
        help=f"{', '.join(MODELS)}, or package.module:factory for your own (default: %(default)s)",
    )
    group.add_argument(
        "--weights", metavar="FILE", help="weights of a built-in model (.pth, .safetensors)"
    )
    group.add_argument(
        "--outputs",
        choices=("logits", "probabilities"),
        help="what a model of your own gives (default: what its attribute outputs says, or logits)",
    )
    group.add_argument(
        "--class",
        dest="class_",
        metavar="CLASS",
        help="explain this class: index, name or WordNet id (default: the predicted one)",
    )
    group.add_argument(
        "--objective",
        default="softmax",
        metavar="NAME",
        help=f"what to climb: {', '.join(targets.NAMES)}; margin:CLASS names the rival. softmax "
        "asks what makes the network sure, log-likelihood what gives the photo's own answer, "
        "counterfactual what would change it (default: %(default)s)",
    )
    group.add_argument(
        "--baseline",
        default="gray",
        metavar="NAME",
        help=f"what an absent part looks like: {', '.join(baselines.NAMES)} or a number; "
        "several with commas are averaged (default: %(default)s)",
    )
    group.add_argument(
        "--judge",
        metavar="MODEL",
        help="a second opinion: another network, named as for --model, that sees the same parts",
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where it runs."""
    group = parser.add_argument_group("the machine")
    group.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    group.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default: cpu)")
    group.add_argument(
        "--batch-size",
        type=whole,
        metavar="N",
        help="pictures evaluated at once (default: what the memory allows)",
    )


def add_effort(parser: argparse.ArgumentParser) -> None:
    """The method and how much it may cost."""
    group = parser.add_argument_group("the search")
    group.add_argument(
        "--method",
        default="greedy-pig",
        metavar="NAME",
        help=f"{', '.join(methods.NAMES)} (default: %(default)s)",
    )
    add_features(group)
    group.add_argument(
        "--rounds",
        type=whole,
        metavar="N",
        help=f"rounds of greedy methods (default: {methods.ROUNDS}; {ROUNDS_OF_VIEWS} where a "
        f"round is made of views, see --steps; {methods.ROUNDS_OF_ONE} where it is one gradient)",
    )
    group.add_argument(
        "--per-round",
        type=whole,
        metavar="N",
        help="units a round takes, in place of --schedule: --features windows:8 --per-round 1 "
        "--k 50 takes one patch a round, fifty in all",
    )
    group.add_argument(
        "--steps",
        type=whole,
        metavar="N",
        help="gradients a round, or of one-shot methods in all. Default of greedy-pig for a "
        f"photo: {VIEWS} views with --objective softmax, as steady-pig takes, one gradient "
        f"with log-likelihood; else {methods.STEPS} midpoints. --steps N asks it for N "
        "midpoints, as in Algorithm 1; N views are --method steady-pig --steps N. (ig and each "
        "copy of smooth-ig: 50, blur-ig 100, guided-ig 200)",
    )
    group.add_argument(
        "--schedule",
        metavar="S",
        help="picks per round: geometric (few at first), equal, or numbers with commas "
        f"(default: {methods.SCHEDULE})",
    )
    group.add_argument(
        "--k", type=whole, metavar="N", help="stop once N units (see --features) are selected"
    )
    group.add_argument("--budget", type=whole, metavar="N", help="stop after N gradients")
    group.add_argument("--seconds", type=float, metavar="S", help="stop after S seconds")
    group.add_argument(
        "--reach",
        type=float,
        metavar="SHARE",
        help="stop at this share of the whole photo's value of the objective, such as 0.95; where "
        "that is below 0 (log-likelihood, log-probability) above 1, such as 1.05",
    )


def add_features(group: argparse._ArgumentGroup) -> None:
    """What is picked as one."""
    group.add_argument(
        "--features",
        default="elements",
        metavar="UNITS",
        help=f"what is picked as one: {FEATURES}; that is single numbers, all colours of a place, "
        "squares, overlapping squares, regions along edges (default: %(default)s)",
    )


def add_resume(group: argparse._ArgumentGroup) -> None:
    """Going on after Ctrl-C."""
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on where the same command was stopped; what is done is kept",
    )


def search_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `gp.explain` that `add_effort` and `add_machine` ask for."""
    given = {
        "method": args.method,
        "features": features(args.features),
        "rounds": args.rounds,
        "per_round": args.per_round,
        "steps": args.steps,
        "schedule": _schedule(args.schedule),
        "k": args.k,
        "budget": args.budget,
        "seconds": args.seconds,
        "reach": args.reach,
        "seed": args.seed,
        "batch_size": args.batch_size,
    }
    known = {name: value for name, value in given.items() if value is not None}
    _, greedy = methods.resolve(args.method)
    for name in ("rounds", "per_round", "schedule", "k"):
        if greedy is None and name in known:
            raise UsageError(
                f"Expected {_option(name)} with a greedy method only (got --method {args.method}, "
                "which scores everything at once). Try --method greedy-pig."
            )
    if args.schedule is not None and isinstance(known["schedule"], list):
        for name in ("rounds", "per_round", "k"):
            if name in known:
                raise UsageError(
                    f"Expected --schedule with numbers alone (got {_option(name)} beside it)."
                )
    if "per_round" in known and known.get("schedule") == "geometric":
        raise UsageError(
            "Expected --per-round, as many in every round, or --schedule geometric (got both)."
        )
    return known


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Squares:
    """Squares of `size` × `size` pixels, side by side ("grid") or overlapping ("windows").

    A size that a picture has no room for is refused in the words of the option: a grid would be
    one square that holds everything, and there is nothing to choose.
    """

    kind: str
    size: int

    def __call__(self, layout: Layout) -> Features:
        """The squares of a picture."""
        *_, height, width = layout.shapes[0]
        grid = self.kind == "grid"
        if self.size > (max(height, width) if grid else min(height, width)):
            raise InvalidInput(
                f"Expected --features {self.kind}:N with squares no larger than the {width}×"
                f"{height} pixels that the network sees (got {self.kind}:{self.size})."
            )
        made: Features = (gp.grid if grid else gp.windows)(self.size)(layout)
        return made


def features(text: str) -> Any:
    """features= of `gp.explain` for a word such as grid:16."""
    kind, colon, number = text.partition(":")
    if kind in ("elements", "pixels") and not colon:
        return kind
    if kind == "superpixels" and not colon:
        return gp.superpixels()
    if number.isdecimal() and int(number) > 0:
        if kind in ("grid", "windows"):
            return Squares(kind, int(number))
        if kind == "superpixels":
            return gp.superpixels(int(number))
    raise UsageError(f"Expected --features as one of {FEATURES} (got {text!r}).")


def objective(text: str, model: ImageModel) -> Any:
    """objective= of `gp.explain`; margin:CLASS names its rival."""
    name, colon, rival = text.partition(":")
    if name == "margin" and colon:
        return gp.margin(against=find_class(rival, model.classes))
    targets.Target(text)  # Says which names there are.
    return text


def baseline(text: str) -> Any:
    """baseline= of `gp.explain`: a name, a number, or a list of these."""
    parts = [_baseline(part.strip()) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else parts


def device(text: str) -> torch.device:
    """The device called `text`, if this machine has it."""
    try:
        found = torch.device(text)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        known = [name for name, there in (("cuda", torch.cuda.is_available()),
                                          ("mps", torch.backends.mps.is_available()))
                 if there]  # fmt: skip
        raise UsageError(
            f"Expected a device of this machine: {', '.join(['cpu', *known])} (got {text!r})."
        ) from error
    if found.type == "meta":
        raise UsageError("Expected a device that computes (got 'meta').")
    return found


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


def _schedule(text: str | None) -> str | Sequence[int] | None:
    if text is None or text in ("geometric", "equal"):
        return text
    parts = text.split(",")
    if all(part.strip().isdecimal() for part in parts):
        return [int(part) for part in parts]
    raise UsageError(
        f"Expected --schedule as geometric, equal or numbers with commas (got {text!r})."
    )


def whole(text: str) -> int:
    """The type of options that count something."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number
