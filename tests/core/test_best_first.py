"""best_first against a plain sort by (−score, index)."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from greedypig.core.features import best_first
from problems import generator


def by_sorting(scores: list[float], taken: list[bool], z: int) -> list[int]:
    free = [i for i, t in enumerate(taken) if not t]
    return sorted(free, key=lambda i: (-scores[i], i))[:z]


@st.composite
def cases(draw):
    # Few distinct scores make many ties.
    size = draw(st.integers(1, 30))
    scores = draw(
        st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1.0, 1.0, 2.5]), min_size=size, max_size=size)
    )
    taken = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    z = draw(st.integers(0, taken.count(False)))
    return scores, taken, z


@given(cases())
def test_ties_go_to_the_lowest_index(case):
    scores, taken, z = case
    best = best_first(torch.tensor([scores]), torch.tensor([taken]), z)
    assert best.tolist() == [by_sorting(scores, taken, z)]


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=40),
    st.data(),
)
def test_agrees_with_a_plain_sort(scores, data):
    z = data.draw(st.integers(1, len(scores)))
    best = best_first(torch.tensor([scores]), torch.zeros(1, len(scores), dtype=torch.bool), z)
    assert best.tolist() == [by_sorting(scores, [False] * len(scores), z)]


@st.composite
def large_cases(draw):
    size = draw(st.sampled_from([4097, 5000, 9001]))
    rng = generator(draw(st.integers(0, 2**30)))
    levels = draw(st.sampled_from([1, 2, 7, 1000, 10**9]))
    # `levels` distinct scores: from all tied to none tied.
    scores = torch.randint(-levels, levels, (2, size), generator=rng).double()
    taken = torch.rand(size, generator=rng) < draw(st.sampled_from([0.0, 0.3, 0.7]))
    z = draw(st.sampled_from([1, 2, 10, 500, size // 4 - 1, size // 4]))
    return scores, taken.expand(2, -1), min(z, int((~taken).sum()))


@given(large_cases())
def test_many_features_are_ranked_as_few_are(case):
    # Beyond 4096 features only what reaches the z-th score is sorted; the order is the same.
    scores, taken, z = case
    best = best_first(scores, taken, z)
    for row, own, blocked in zip(best, scores, taken, strict=True):
        assert row.tolist() == by_sorting(own.tolist(), blocked.tolist(), z)


def test_all_tied_beyond_the_partial_size_gives_the_first_indices():
    best = best_first(torch.zeros(1, 10_000), torch.zeros(1, 10_000, dtype=torch.bool), 5)
    assert best.tolist() == [[0, 1, 2, 3, 4]]


def test_scores_are_left_as_they_were():
    scores = torch.tensor([[1.0, 2.0, 3.0]])
    best_first(scores, torch.tensor([[False, False, True]]), 2)
    assert scores.tolist() == [[1, 2, 3]]
