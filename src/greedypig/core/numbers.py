"""Numbers as callers give them: NumPy's and torch's own become Python's, and are checked once."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

from .errors import Argument, InvalidInput, InvalidType


def whole(number: Any) -> Any:
    """An integer of any make (NumPy's, a 0-dim tensor's) as Python's own; all else as it is."""
    if isinstance(number, bool | int | float | str | None):
        return number
    try:
        return operator.index(number)
    except TypeError:
        return number


def real(number: Any) -> Any:
    """A real number of any make (NumPy's) as Python's own; all else as it is."""
    other = isinstance(number, Real) and not isinstance(number, bool | int | float)
    return float(number) if other else number


def check_count(name: str, number: Any, most: int | None = None) -> int:
    """The number as Python's own; a whole one, at least 1 and at most the number of features."""
    number = whole(number)
    if type(number) is not int or number < 1 or (most is not None and number > most):
        bound = "≥ 1" if most is None else f"from 1 to {most}, the number of features"
        end = f" to be a whole number {bound} (got {number!r})."
        raise InvalidInput("Expected ", Argument(name), end)
    return int(number)


def check_between(name: str, number: Any, low: float, high: float) -> None:
    """Require a number from low to high."""
    if type(number) not in (int, float) or not low <= number <= high:
        end = f" from {low:g} to {high:g} (got {number!r})."
        raise InvalidInput("Expected ", Argument(name), end)


def check_switch(name: str, value: object) -> None:
    """Require True or False; a text would count as True."""
    if not isinstance(value, bool):
        raise InvalidType("Expected ", Argument(name), f" to be True or False (got {value!r}).")


def check_knobs(method: Any, *counts: str, **ranges: tuple[float, float]) -> None:
    """Check a frozen method's knobs, whole numbers ≥ 1 and numbers from low to high, and make
    them Python's own."""
    for name in counts:
        object.__setattr__(method, name, check_count(name, getattr(method, name)))
    for name, (low, high) in ranges.items():
        object.__setattr__(method, name, real(getattr(method, name)))
        check_between(name, getattr(method, name), low, high)


def check_seed(seed: Any) -> tuple[int, int]:
    """A seed and the place of an example, 0 where none is given, as Python's own."""
    pair = tuple(map(whole, seed)) if isinstance(seed, tuple | list) else (whole(seed), 0)
    if len(pair) != 2 or not all(type(number) is int for number in pair) or pair[1] < 0:
        raise InvalidInput(
            "Expected seed to be a whole number, or (seed, place) for one example of several "
            f"(got {seed!r}).",
            argument="seed",
        )
    return pair[0], pair[1]
