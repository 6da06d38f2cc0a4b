"""Numbers in words, the same in the terminal, in figures and on pages."""

from __future__ import annotations


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
