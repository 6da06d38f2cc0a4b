"""The methods that `greedypig compare` puts side by side, each with the arguments it runs with."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

import greedypig as gp

from ..core.layout import Layout
from ..tensors.budgets import climbing
from .failures import UsageError

PAPER = "greedy-pig (paper)"
REGIONS = "greedy-pig (regions)"
ALIASES = {"paper": PAPER, "regions": REGIONS}
NAMES = (
    "greedy-pig", PAPER, "sequential-gradient", "ig", "smooth-ig", "blur-ig", "guided-ig",
    "gradient", REGIONS, "random",
)  # fmt: skip
WORDS = tuple({full: short for short, full in ALIASES.items()}.get(name, name) for name in NAMES)
"""The methods as they are typed."""
USUAL = tuple(name for name in NAMES if name not in (PAPER, "gradient"))
"""Without the paper's 2,000 gradients, which are slow."""
PAPER_KNOBS = (100, 20)
"""Rounds and steps."""
MOST_REGION_ROUNDS = 50


def chosen(text: str | None, paper: bool) -> tuple[str, ...]:
    """The methods that --methods names, in its order; else the usual ones."""
    if text is None:
        names = list(USUAL)
    else:
        names = [_known(word.strip()) for word in text.split(",") if word.strip()]
    if not names:
        raise UsageError(f"Expected --methods as names with commas: {', '.join(WORDS)} (got none).")
    if paper and PAPER not in names:
        names.insert(1 if names[0] == "greedy-pig" else 0, PAPER)
    return tuple(dict.fromkeys(names))


def arguments(
    name: str, features: Any, budget: int | None, objective: str, x: Tensor
) -> dict[str, Any]:
    """The arguments of `gp.explain` for a method and a picture, but for the objective, which the
    question has; with a budget it pays about that many gradients.

    How a budget is kept is told in `budgets`; the paper's setting is cut and never grows. Where
    there are fewer blocks than rounds, one round for each, and as many steps as the budget leaves
    them.
    """
    made: dict[str, Any] = {"method": name, "features": features}
    if name == PAPER:
        rounds, steps = PAPER_KNOBS
        made |= {"method": "greedy-pig", "rounds": rounds, "steps": steps, "schedule": "equal"}
    if name == REGIONS:
        made |= {"method": "greedy-pig", "features": gp.superpixels()}
    if budget is not None:
        made = climbing(objective, made, budget, shape=x.shape, stretch=True)
    if name == REGIONS:
        return made if budget is None else _at_most(MOST_REGION_ROUNDS, made, budget)
    blocks = callable(features) and not isinstance(features, gp.Superpixels)
    units = features(Layout.of(x)).units if blocks and "rounds" in made else x.numel()
    return _at_most(units, made, budget)


def _at_most(units: int, search: Mapping[str, Any], budget: int | None) -> dict[str, Any]:
    """The same with no more rounds than there are units to take."""
    if search.get("rounds") is None or search["rounds"] <= units:
        return dict(search)
    fitted = {**search, "rounds": units}
    if budget is not None and search["method"] in ("greedy-pig", "steady-pig"):
        fitted["steps"] = budget // units
    return fitted


def slug(name: str) -> str:
    """The method's name as a file's name."""
    return name.replace(" (", "-").replace(")", "")


def _known(word: str) -> str:
    name = ALIASES.get(word, word)
    if name in NAMES:
        return name
    by_slug = {slug(known): known for known in NAMES}
    if word in by_slug:
        return by_slug[word]
    words = [*NAMES, *ALIASES]
    near = difflib.get_close_matches(word, words, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"Expected --methods among {', '.join(WORDS)} (got {word!r}).{hint}")
