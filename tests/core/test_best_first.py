"""top_z against a plain sort by (−score, index)."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from greedypig.core.select import top_z
from problems import generator


def by_sorting(scores: list[float], blocked: list[bool], z: int) -> list[int]:
    free = [i for i, b in enumerate(blocked) if not b]
    return sorted(free, key=lambda i: (-scores[i], i))[:z]


@st.composite
def cases(draw):
    # Few distinct scores make many ties.
    size = draw(st.integers(1, 30))
    scores = draw(
        st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1.0, 1.0, 2.5]), min_size=size, max_size=size)
    )
    blocked = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    z = draw(st.integers(0, blocked.count(False)))
    return scores, blocked, z


@given(cases())
def test_ties_go_to_the_lowest_index(case):
    scores, blocked, z = case
    got, best = top_z(torch.tensor(scores), torch.tensor(blocked), z)
    assert got.tolist() == by_sorting(scores, blocked, z)
    mask = torch.tensor(blocked).to(torch.tensor(scores))
    assert torch.equal(top_z(torch.tensor(scores) * (1 - mask), mask, z)[0], got)
    assert best.tolist() == torch.tensor(scores)[got].tolist()


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=40),
    st.data(),
)
def test_agrees_with_a_plain_sort(scores, data):
    z = data.draw(st.integers(1, len(scores)))
    got, best = top_z(torch.tensor(scores), torch.zeros(len(scores), dtype=torch.bool), z)
    assert got.tolist() == by_sorting(scores, [False] * len(scores), z)
    assert best.tolist() == torch.tensor(scores)[got].tolist()


@st.composite
def large_cases(draw):
    size = draw(st.sampled_from([4097, 5000, 9001]))
    rng = generator(draw(st.integers(0, 2**30)))
    levels = draw(st.sampled_from([1, 2, 7, 1000, 10**9]))
    # `levels` distinct scores: from all tied to none tied.
    scores = torch.randint(-levels, levels, (size,), generator=rng).double()
    blocked = torch.rand(size, generator=rng) < draw(st.sampled_from([0.0, 0.3, 0.7]))
    z = draw(st.sampled_from([1, 2, 10, 500, size // 4 - 1, size // 4]))
    return scores, blocked, min(z, int((~blocked).sum()))


@given(large_cases())
def test_many_units_are_ranked_as_few_are(case):
    # Beyond 4096 units only what reaches the z-th score is sorted; the answer must not show it.
    scores, blocked, z = case
    got, best = top_z(scores, blocked, z)
    assert got.tolist() == by_sorting(scores.tolist(), blocked.tolist(), z)
    assert torch.equal(best, scores[got])


def test_all_tied_beyond_the_partial_size_gives_the_first_indices():
    got, _ = top_z(torch.zeros(10_000), torch.zeros(10_000, dtype=torch.bool), 5)
    assert got.tolist() == [0, 1, 2, 3, 4]


def test_scores_are_left_as_they_were():
    scores = torch.tensor([1.0, 2.0, 3.0])
    top_z(scores, torch.tensor([False, False, True]), 2)
    assert scores.tolist() == [1, 2, 3]
