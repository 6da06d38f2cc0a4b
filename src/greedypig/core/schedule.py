"""How many features each round takes: equal shares, or geometrically growing shares.

Early picks decide the curve and deserve small rounds; a geometric schedule spends the same
number of rounds but starts fine and ends coarse.
"""

from __future__ import annotations

from itertools import pairwise


def equal(k: int, rounds: int) -> tuple[int, ...]:
    """k split into `rounds` parts that differ by at most one, in a fixed, even pattern."""
    edges = [k * r // rounds for r in range(rounds + 1)]
    return tuple(b - a for a, b in pairwise(edges))


def geometric(k: int, rounds: int, ratio: float) -> tuple[int, ...]:
    """k split into `rounds` parts that grow geometrically, the last ≈ ratio × the first.

    Every part is at least 1; the rest of k is shared by the cumulative geometric weights, so
    the parts always sum to k.
    """
    growth = ratio ** (1 / max(1, rounds - 1))
    weights = [growth**r for r in range(rounds)]
    total = sum(weights)
    spare, running, edges = k - rounds, 0.0, [0]
    for weight in weights:
        running += weight
        edges.append(round(spare * running / total))
    edges[-1] = spare
    # Rounding can make a part smaller than the one before it; in order they only grow (or fall).
    return tuple(sorted((1 + b - a for a, b in pairwise(edges)), reverse=ratio < 1))
