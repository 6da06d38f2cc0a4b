"""How many picks each round makes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greedypig as gp
from greedypig.core.schedule import equal, geometric

counts = st.integers(1, 400).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k)))
TEN = gp.Elements(10)
LINE = gp.Windows((40,), 4)
"""37 windows, of which 10 hold everything."""


def picks(features: gp.Features = TEN, k: int | None = None, **knobs) -> tuple[int, ...]:
    return gp.GreedyPIG(**knobs).picks(features, k)


@given(counts, st.floats(0.01, 1000))
def test_parts_sum_to_k_and_none_is_empty(case, ratio):
    k, rounds = case
    for parts in (equal(k, rounds), geometric(k, rounds, ratio)):
        assert len(parts) == rounds
        assert sum(parts) == k
        assert min(parts) >= 1
    assert {min(equal(k, rounds)), max(equal(k, rounds))} <= {k // rounds, -(-k // rounds)}


@pytest.mark.parametrize("ratio", [1, 2, 50, 1000, 0.1])
@pytest.mark.parametrize("rounds", [2, 10, 37])
def test_geometric_last_part_is_ratio_times_the_first_for_large_k(ratio, rounds):
    parts = geometric(10**9, rounds, ratio)
    # Rounding and the 1 every part begins with move a part by at most 2 of about 10⁶.
    assert parts[-1] / parts[0] == pytest.approx(ratio, rel=1e-3)
    growth = ratio ** (1 / (rounds - 1))
    for a, b in pairwise(parts):
        assert b / a == pytest.approx(growth, rel=1e-3)


def test_geometric_by_hand():
    # k = 17, R = 3, ratio 4: growth 2, weights 1, 2, 4 of the 14 spare: 2, 4, 8; plus 1 each.
    assert geometric(17, 3, 4) == (3, 5, 9)


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"rounds": 4, "schedule": "equal"}, (2, 3, 2, 3)),
        ({"rounds": 4}, (1, 1, 3, 5)),
        ({"rounds": 1}, (10,)),
        # There are never more rounds than features to select.
        ({"rounds": 20}, (1,) * 10),
        ({"rounds": 6, "k": 5}, (1,) * 5),
        ({}, (1,) * 10),
        # Algorithm 1's R and z; R · z beyond n ends when nothing is left.
        ({"rounds": 3, "per_round": 2}, (2, 2, 2)),
        ({"rounds": 5, "per_round": 4}, (4, 4, 2)),
        ({"per_round": 4}, (4, 4, 2)),
        ({"per_round": 4, "k": 6}, (4, 2)),
        ({"per_round": 5, "k": 5}, (5,)),
        # A list is taken as it is.
        ({"schedule": [1, 2, 3]}, (1, 2, 3)),
        ({"schedule": np.array([3, 3])}, (3, 3)),
    ],
)
def test_picks_of_ten_features(knobs, expected):
    assert picks(**knobs) == expected


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        # Rounds share what covers everything; whatever is left then falls to the last round.
        ({"rounds": 4, "schedule": "equal"}, (2, 3, 2, 3 + 27)),
        ({"rounds": 1}, (37,)),
        ({"rounds": 20}, (1,) * 19 + (18,)),
        # Counts that are asked for do not depend on the cover.
        ({"rounds": 4, "k": 20, "schedule": "equal"}, (5, 5, 5, 5)),
        ({"per_round": 30}, (30, 7)),
        ({"schedule": [30, 2]}, (30, 2)),
    ],
)
def test_rounds_over_features_that_overlap(knobs, expected):
    assert picks(LINE, **knobs) == expected


@pytest.mark.parametrize(
    ("knobs", "name"),
    [({name: bad}, name) for name in ("rounds", "per_round") for bad in (0, -1, 2.0, True, "a")]
    + [({"ratio": bad}, "ratio") for bad in (0, -1, float("inf"), float("nan"), "2")]
    + [({"schedule": bad}, "schedule") for bad in ([0], [1, -1], [1.5], "cubic", [True], 7)]
    + [({"schedule": [1, 2], "per_round": 1}, "per_round"), ({"schedule": []}, "at least one")],
)
def test_methods_refuse_knobs_when_they_are_made(knobs, name):
    with pytest.raises(gp.InvalidInput, match=name):
        gp.GreedyPIG(**knobs)


@pytest.mark.parametrize(
    "knobs", [{"per_round": 11}, {"schedule": [5, 6]}, {"schedule": [1, 2], "k": 3}]
)
def test_picks_beyond_the_features_are_refused(knobs):
    with pytest.raises(gp.InvalidInput):
        picks(**knobs)
