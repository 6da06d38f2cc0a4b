"""How many units each round picks: equal shares, geometrically growing shares, or a given list.

Early picks decide the curve and deserve small rounds; a geometric schedule spends the same
number of rounds but starts fine and ends coarse.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

from .errors import InvalidInput, InvalidType

GEOMETRIC_RATIO = 50.0
"""Size of the last geometric round over the first, where the caller names no ratio."""


def equal(k: int, rounds: int) -> tuple[int, ...]:
    """k split into `rounds` parts that differ by at most one, in a fixed, even pattern."""
    edges = [k * r // rounds for r in range(rounds + 1)]
    return tuple(b - a for a, b in pairwise(edges))


def geometric(k: int, rounds: int, ratio: float = GEOMETRIC_RATIO) -> tuple[int, ...]:
    """k split into `rounds` parts that grow geometrically, the last ≈ ratio × the first.

    Every part is at least 1; the rest of k is shared by the cumulative geometric weights, so
    the parts always sum to k.
    """
    if not 0 < ratio < float("inf"):
        raise InvalidInput(f"Expected ratio to be a positive number (got {ratio!r}).")
    if rounds == 1:
        return (k,)
    growth = ratio ** (1 / (rounds - 1))
    weights = [growth**r for r in range(rounds)]
    total = sum(weights)
    spare, running, edges = k - rounds, 0.0, [0]
    for weight in weights:
        running += weight
        edges.append(round(spare * running / total))
    edges[-1] = spare
    # Rounding can make a part smaller than the one before it; in order they only grow (or fall).
    return tuple(sorted((1 + b - a for a, b in pairwise(edges)), reverse=ratio < 1))


def plan_picks(
    units: int,
    *,
    cover: int | None = None,
    rounds: int | None = None,
    per_round: int | None = None,
    k: int | None = None,
    schedule: str | Sequence[int] | None = None,
    ratio: float | None = None,
    default_rounds: int = 10,
) -> tuple[int, ...]:
    """The number of picks of every round, from whichever of the knobs the caller gave.

    per_round alone picks that many until k (default: every unit) are selected; rounds alone
    splits k over them by the schedule; both are Algorithm 1's R and z.

    cover: how few units can hold everything (`Features.cover`), where units overlap. Rounds that
        are to select everything share that number, and the last one takes what is left: shares of
        all overlapping units would have held everything after a few rounds.
    """
    rounds, per_round, k, ratio = whole(rounds), whole(per_round), whole(k), real(ratio)
    for name, number in (("rounds", rounds), ("per_round", per_round), ("k", k)):
        if number is not None:
            check_count(name, number, units)
    if schedule is not None and not isinstance(schedule, str):
        if rounds is not None or per_round is not None or k is not None:
            raise InvalidInput(
                "Expected either an explicit schedule or rounds, per_round and k (got both)."
            )
        return _explicit(schedule, units)
    if ratio is not None and schedule != "geometric":
        raise InvalidInput(f"Expected ratio only with schedule='geometric' (got {schedule!r}).")
    if per_round is not None:
        if schedule not in (None, "equal"):
            raise InvalidInput(
                f"Expected schedule='equal' with per_round (got {schedule!r}). "
                "Try rounds instead of per_round."
            )
        wanted = units if k is None else k
        if rounds is not None:
            wanted = min(wanted, rounds * per_round)
        full, rest = divmod(wanted, per_round)
        return (per_round,) * full + ((rest,) if rest else ())
    wanted = units if k is None else k
    count = min(wanted, default_rounds) if rounds is None else rounds
    if count > wanted:
        raise InvalidInput(f"Expected rounds ≤ the {wanted} units to select (got rounds={count}).")
    shared = wanted if k is not None or cover is None else max(cover, count)
    *picks, last = _shares(shared, count, schedule, ratio)
    return (*picks, last + wanted - shared)


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


def check_switch(name: str, value: object) -> None:
    """True or False, and not a text that would count as True."""
    if not isinstance(value, bool):
        raise InvalidType(f"Expected {name} to be True or False (got {value!r}).")


def check_count(name: str, number: int, units: int | None = None) -> None:
    """A whole number, at least 1 and at most the number of units."""
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or number < 1 or (units is not None and number > units):
        bound = "≥ 1" if units is None else f"from 1 to {units}, the number of units"
        raise InvalidInput(f"Expected {name} to be a whole number {bound} (got {number!r}).")


def _shares(k: int, rounds: int, schedule: str | None, ratio: float | None) -> tuple[int, ...]:
    if schedule in (None, "equal"):
        return equal(k, rounds)
    if schedule == "geometric":
        return geometric(k, rounds, GEOMETRIC_RATIO if ratio is None else ratio)
    raise InvalidInput(
        f"Expected schedule to be 'equal', 'geometric' or a list of counts (got {schedule!r})."
    )


def _explicit(schedule: Sequence[int], units: int) -> tuple[int, ...]:
    try:
        picks = tuple(map(whole, schedule))
    except TypeError:
        raise InvalidType(
            f"Expected schedule to be 'equal', 'geometric' or a list of counts (got {schedule!r})."
        ) from None
    if not picks:
        raise InvalidInput("Expected a schedule with at least one round (got an empty list).")
    for r, count in enumerate(picks):
        check_count(f"schedule[{r}]", count, units)
    if sum(picks) > units:
        raise InvalidInput(
            f"Expected a schedule that picks at most {units} units (got {sum(picks)} in all)."
        )
    return picks
