"""When a set of features is enough: the one definition that files, pages and sentences use.

G rises from G(∅) to G of everything. A set S is enough where G(S) has risen by the share ENOUGH of
that way. Where G of everything is no higher than G(∅) there is no rise, and no set is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple, TypeVar

ENOUGH, LOST = 0.95, 0.75
"""Shares of the rise. A value that has reached the first and later falls below the second has been
lost again."""
Place = TypeVar("Place", int, float)


def bar(empty: float, full: float, share: float = ENOUGH) -> float | None:
    """G at this share of the way from G(∅) to G of everything; None where G does not rise."""
    return full - (1 - share) * (full - empty) if isfinite(full) and full > empty else None


def first_enough(
    places: Sequence[Place], values: Sequence[float], full: float, share: float = ENOUGH
) -> Place | None:
    """The first place (a number or share of features) at which a line of values is enough.

    values: G at each place, the first one G(∅). None where G does not rise, or never so far.
    """
    enough = bar(values[0], full, share)
    if enough is None:
        return None
    return next((place for place, v in zip(places, values, strict=True) if v >= enough), None)


class Fall(NamedTuple):
    """G(S) was enough and was lost again as more was selected: the share of the features with the
    highest value before the fall, and the larger share with the lowest after."""

    reached_at: float
    reached: float
    lost_at: float
    lost: float


def find_fall(shares: Sequence[float], values: Sequence[float], full: float) -> Fall | None:
    """The deepest fall of a line of values after it was enough, if there is one.

    It counts where the value falls below 3/4 of the rise. values: as in `first_enough`.
    """
    measured = [(s, v) for s, v in zip(shares, values, strict=True) if isfinite(v)]
    if not measured:
        return None
    places, line = [share for share, _ in measured], [value for _, value in measured]
    start, least = first_enough(places, line, full), bar(line[0], full, LOST)
    if start is None or least is None:
        return None
    after = [(s, v) for s, v in measured if s >= start]
    lost_at, lost = min(after, key=lambda point: point[1])
    reached_at, reached = max(after[: after.index((lost_at, lost)) + 1], key=lambda p: p[1])
    return Fall(reached_at, reached, lost_at, lost) if lost < least else None
