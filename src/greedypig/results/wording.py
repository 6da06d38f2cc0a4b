"""Numbers in words, the same in the terminal, in figures and on pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.attribution import Attribution


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 photo, 2 photos."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share as a short text: 10 %, 0.5 %, 0.013 %."""
    return f"{100 * share:.3g} %" if share < 0.9995 else f"{100 * share:.4g} %"


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


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names with commas; of many the first ones and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def setting(settings: Mapping[str, Any]) -> str:
    """A method's knobs in a few words."""
    rounds, steps = settings.get("rounds", 1), settings.get("steps")
    if rounds == 1:
        samples = settings.get("samples")
        inner = settings.get("inner_steps")
        if samples and inner:
            return f"{count(samples, 'sample')} × {count(inner, 'step')}"
        return "no steps" if steps is None else count(steps, "step")
    text = f"{rounds} rounds" + ("" if steps is None else f" × {_points_of(settings, steps)}")
    return f"{text}, {settings['schedule']}" if settings.get("schedule") else text


def _points_of(settings: Mapping[str, Any], steps: int) -> str:
    """Where a round's gradients are taken: as many views are another setting than midpoints."""
    if settings.get("scorer") == "steady-gradients":
        return count(steps, "view")
    return count(steps, "midpoint") if settings.get("rule") == "midpoint" else str(steps)


def kept_settings(a: Attribution) -> dict[str, Any]:
    """What of a result's settings tells how it was made, as plain data."""
    wanted = ("scorer", "rounds", "steps", "samples", "rule", "schedule")
    made = {k: a.settings[k] for k in wanted if isinstance(a.settings.get(k), str | int | float)}
    around = a.settings.get("scorer")
    if isinstance(around, Mapping):  # A scorer around another, such as Smooth.
        made["inner_steps"] = around.get("steps")
    return made
