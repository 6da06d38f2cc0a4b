"""Numbers in words, the same in the terminal, in figures and on pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.attribution import Attribution
from ..core.enough import ENOUGH

KNOBS = ("method", "rounds", "steps", "views", "samples", "inner_steps", "rule", "schedule")
"""Settings that say how a result was made."""


class Caution(NamedTuple):
    """A reason to doubt a result, and how to check it."""

    line: str
    advice: str = ""


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 photo, 2 photos."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share as a short text: 10 %, 0.5 %, 0.013 %."""
    return f"{100 * share:.3g} %" if share < 0.9995 else f"{100 * share:.4g} %"


def of_the_rise() -> str:
    """The share of the rise of G that is enough."""
    return f"{percent(ENOUGH)} of the rise"


def short_percent(share: float) -> str:
    """A share within a sentence, in two digits: 10 %, 4 %, 0.53 %; of nearly all as `percent`."""
    short = float(f"{share:.2g}")
    return percent(share if short == 1 else short)


def chance(p: float) -> str:
    """A probability in a sentence: three decimals, and 0.000 or 1.000 only of what is just that."""
    return chance_cell(p).replace("<", "less than ").replace(">", "more than ")


def chance_cell(p: float) -> str:
    """The same where room is short."""
    text = f"{p:.3f}"
    if text == "0.000" and p > 0:
        return "<0.001"
    return ">0.999" if text == "1.000" and p < 1 else text


def signed(value: float | None) -> str:
    """A number in three decimals with a proper minus; a dash where there is none."""
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def shown(value: float, digits: int = 4) -> str:
    """A number in so many digits, as it would be typed: 52, 0.5312, −1.2e+05."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−")


def higher(
    part: str,
    value: str,
    whole: str,
    full: str,
    *,
    quantity: str = "probability",
    verb: str = "give",
) -> str:
    """13 % of the features give a higher probability (0.994) than the whole photo (0.951)"""
    return f"{part} {verb} a higher {quantity} ({value}) than {whole} ({full})"


def setting(settings: Mapping[str, Any]) -> str:
    """A method's knobs, as `kept_settings` gives them, in a few words."""
    rounds, cost = settings.get("rounds", 1), _cost(settings)
    if rounds == 1:
        return cost or "no steps"
    parts = [f"{rounds} rounds" + f" × {cost}" * bool(cost), settings.get("schedule")]
    return ", ".join(part for part in parts if part)


def _cost(settings: Mapping[str, Any]) -> str:
    """The gradients of one round, in words."""
    samples, views, steps = (settings.get(knob) for knob in ("samples", "views", "steps"))
    if samples:
        return f"{count(samples, 'sample')} × {count(settings['inner_steps'], 'step')}"
    if views:
        return count(views, "view")
    if settings.get("rounds", 1) == 1:
        return count(steps, "step") if steps else ""
    if steps and settings.get("rule") == "midpoint":
        return count(steps, "midpoint")
    return str(steps or "1" * (settings.get("method") == "sequential-gradient"))


def kept_settings(a: Attribution) -> dict[str, Any]:
    """The settings of a result that say how it was made, as plain data."""
    own = dict(a.settings)
    own |= {k: v for k, v in own.get("one_shot", {}).items() if k != "method"}  # Greedy's.
    if isinstance(own.get("scorer"), Mapping):  # A scorer around another, such as SmoothIG.
        own["inner_steps"] = own["scorer"].get("steps", 1)
    return {k: own[k] for k in KNOBS if isinstance(own.get(k), str | int | float)}
