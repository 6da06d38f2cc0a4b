"""How many features each round takes: equal shares, geometrically growing shares, or a list.

Early picks decide the curve and deserve small rounds; a geometric schedule spends the same
number of rounds but starts fine and ends coarse.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from .errors import InvalidInput, InvalidType
from .numbers import check_count, real, whole


def equal(k: int, rounds: int) -> tuple[int, ...]:
    """k split into `rounds` parts that differ by at most one, in a fixed, even pattern."""
    edges = [k * r // rounds for r in range(rounds + 1)]
    return tuple(b - a for a, b in pairwise(edges))


def geometric(k: int, rounds: int, ratio: float) -> tuple[int, ...]:
    """k split into `rounds` parts that grow geometrically, the last ≈ ratio × the first.

    Every part is at least 1; the rest of k is shared by the cumulative geometric weights, so
    the parts always sum to k.
    """
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
    count: int,
    *,
    cover: int | None = None,
    rounds: int | None = None,
    per_round: int | None = None,
    k: int | None = None,
    schedule: str | Sequence[int] = "geometric",
    ratio: float = 50.0,
    default_rounds: int = 20,
) -> tuple[int, ...]:
    """How many of `count` features every round takes, until k (default: all) are selected.

    There are never more rounds than features to select. per_round, Algorithm 1's z, takes equal
    rounds of that many, with rounds = R only R of them. A list is taken as it is.

    cover: how few features can hold everything, where features overlap. Rounds that are to select
        everything share that number, and the last one takes what is left: shares of all
        overlapping features would have held everything after a few rounds.
    """
    rounds, per_round, k, ratio = whole(rounds), whole(per_round), whole(k), real(ratio)
    for name, number, most in (("rounds", rounds, None), ("per_round", per_round, count),
                               ("k", k, count)):  # fmt: skip
        if number is not None:
            check_count(name, number, most)
    if not isinstance(ratio, int | float) or not 0 < ratio < inf:
        raise InvalidInput(f"Expected ratio to be a positive number (got {ratio!r}).")
    if not isinstance(schedule, str):
        if k is not None or per_round is not None:
            raise InvalidInput("Expected a list of picks without k or per_round (got both).")
        return _explicit(schedule, count)
    if schedule not in ("equal", "geometric"):
        raise InvalidInput(
            f"Expected schedule to be 'equal', 'geometric' or a list of counts (got {schedule!r})."
        )
    wanted = count if k is None else k
    if per_round is not None:
        wanted = wanted if rounds is None else min(wanted, rounds * per_round)
        full, rest = divmod(wanted, per_round)
        return (per_round,) * full + ((rest,) if rest else ())
    rounds = min(rounds or default_rounds, wanted)
    shared = wanted if k is not None or cover is None else max(cover, rounds)
    *picks, last = (
        equal(shared, rounds) if schedule == "equal" else geometric(shared, rounds, ratio)
    )
    return (*picks, last + wanted - shared)


def _explicit(schedule: Sequence[int], count: int) -> tuple[int, ...]:
    try:
        picks = tuple(map(whole, schedule))
    except TypeError:
        raise InvalidType(
            f"Expected schedule to be 'equal', 'geometric' or a list of counts (got {schedule!r})."
        ) from None
    if not picks:
        raise InvalidInput("Expected a schedule with at least one round (got an empty list).")
    for r, number in enumerate(picks):
        check_count(f"schedule[{r}]", number, count)
    if sum(picks) > count:
        raise InvalidInput(
            f"Expected a schedule that picks at most {count} features (got {sum(picks)} in all)."
        )
    return picks
