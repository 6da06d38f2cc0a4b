"""How many picks each round makes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greedypig as gp
from greedypig.core.schedule import equal, geometric, plan_picks

counts = st.integers(1, 400).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k)))


@given(counts)
def test_equal_parts_sum_to_k_and_differ_by_at_most_one(case):
    k, rounds = case
    parts = equal(k, rounds)
    assert len(parts) == rounds
    assert sum(parts) == k
    assert {min(parts), max(parts)} <= {k // rounds, -(-k // rounds)}


@given(counts, st.floats(0.01, 1000))
def test_geometric_parts_sum_to_k_and_none_is_empty(case, ratio):
    k, rounds = case
    parts = geometric(k, rounds, ratio)
    assert len(parts) == rounds
    assert sum(parts) == k
    assert min(parts) >= 1


@pytest.mark.parametrize("ratio", [1, 2, 50, 1000, 0.1])
@pytest.mark.parametrize("rounds", [2, 10, 37])
def test_geometric_last_part_is_ratio_times_the_first_for_large_k(ratio, rounds):
    k = 10**9
    parts = geometric(k, rounds, ratio)
    # Rounding and the 1 every part begins with move a part by at most 2 of about 10⁶.
    assert parts[-1] / parts[0] == pytest.approx(ratio, rel=1e-3)
    growth = ratio ** (1 / (rounds - 1))
    for a, b in pairwise(parts):
        assert b / a == pytest.approx(growth, rel=1e-3)


def test_geometric_with_as_many_rounds_as_units_is_one_by_one():
    assert geometric(6, 6, 50.0) == (1,) * 6


def test_geometric_by_hand():
    # k = 17, R = 3, ratio 4: growth 2, weights 1, 2, 4 of the 14 spare: 2, 4, 8; plus 1 each.
    assert geometric(17, 3, 4) == (3, 5, 9)


@pytest.mark.parametrize("ratio", [0, -1, float("inf"), float("nan")])
def test_a_ratio_that_is_no_growth_is_refused(ratio):
    with pytest.raises(gp.InvalidInput, match="ratio"):
        plan_picks(10, rounds=3, schedule="geometric", ratio=ratio)


def test_rounds_alone_share_all_units():
    assert plan_picks(10, rounds=4, schedule="equal") == (2, 3, 2, 3)
    assert plan_picks(10, rounds=4) == (1, 1, 3, 5)
    assert plan_picks(10, rounds=1) == (10,)


def test_there_are_never_more_rounds_than_units_to_select():
    assert plan_picks(5, rounds=20) == (1,) * 5
    assert plan_picks(10, rounds=6, k=5) == (1,) * 5
    assert plan_picks(10) == (1,) * 10


def test_rounds_and_per_round_are_algorithm_1_s_r_and_z():
    assert plan_picks(10, rounds=3, per_round=2) == (2, 2, 2)


def test_per_round_alone_goes_on_to_the_last_unit():
    assert plan_picks(10, per_round=4) == (4, 4, 2)
    assert plan_picks(10, per_round=4, k=6) == (4, 2)
    assert plan_picks(10, per_round=5, k=5) == (5,)


def test_r_times_z_beyond_n_ends_when_nothing_is_left():
    assert plan_picks(10, rounds=5, per_round=4) == (4, 4, 2)


def test_k_is_shared_by_rounds():
    assert plan_picks(100, k=10, rounds=5, schedule="equal") == (2, 2, 2, 2, 2)
    assert sum(plan_picks(100, k=17, rounds=5, schedule="geometric")) == 17


def test_an_explicit_schedule_is_taken_as_it_is():
    assert plan_picks(10, schedule=[1, 2, 3]) == (1, 2, 3)
    assert plan_picks(6, schedule=(3, 3)) == (3, 3)


def test_rounds_over_units_that_overlap_share_what_covers_everything():
    # 100 units of which 10 can hold everything; whatever is left then falls to the last round.
    assert plan_picks(100, cover=10, rounds=4, schedule="equal") == (2, 3, 2, 93)
    assert plan_picks(100, cover=17, rounds=3, schedule="geometric", ratio=4) == (3, 5, 92)
    assert plan_picks(100, cover=10, rounds=1) == (100,)
    assert plan_picks(100, cover=10, rounds=20) == (1,) * 19 + (81,)
    assert plan_picks(100, cover=100, rounds=4) == plan_picks(100, rounds=4)


def test_counts_that_are_asked_for_do_not_depend_on_the_cover():
    for knobs in ({"k": 40, "rounds": 4}, {"per_round": 30}, {"rounds": 2, "per_round": 30},
                  {"schedule": [50, 2]}):  # fmt: skip
        assert plan_picks(100, cover=10, **knobs) == plan_picks(100, **knobs)


@pytest.mark.parametrize("name", ["per_round", "k"])
@pytest.mark.parametrize("number", [0, -1, 11, 2.0, True, "3"])
def test_counts_must_be_from_1_to_n(name, number):
    with pytest.raises(gp.InvalidInput, match=rf"{name} .*from 1 to 10"):
        plan_picks(10, **{name: number})


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "3"])
def test_rounds_are_a_count(number):
    with pytest.raises(gp.InvalidInput, match=rf"rounds .*≥ 1 .*{number}"):
        plan_picks(10, rounds=number)


@pytest.mark.parametrize(
    "schedule", [[], [0], [1, -1], [11], [5, 6], [1.5], "cubic", [True], ["2"]]
)
def test_schedules_that_cannot_be_followed_are_refused(schedule):
    with pytest.raises(gp.InvalidInput):
        plan_picks(10, schedule=schedule)


@pytest.mark.parametrize(
    "knobs",
    [
        {"schedule": [1, 2], "per_round": 1},
        {"schedule": [1, 2], "k": 3},
    ],
)
def test_knobs_that_contradict_each_other_are_refused(knobs):
    with pytest.raises(gp.InvalidInput):
        plan_picks(10, **knobs)


@pytest.mark.parametrize("schedule", [7, 2.5, True])
def test_a_schedule_that_is_no_list_is_refused(schedule):
    with pytest.raises(gp.InvalidType, match="schedule to be 'equal', 'geometric' or a list"):
        plan_picks(12, schedule=schedule)
