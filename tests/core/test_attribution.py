"""The frozen result: its views agree with each other and with the order."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import greedypig as gp
from greedypig.core.layout import Layout
from problems import modular, net


@st.composite
def results(draw):
    n = draw(st.integers(1, 8))
    features = draw(
        st.sampled_from(
            [
                gp.Elements(n),
                gp.Groups(torch.arange(n) % max(n // 2, 1)),
                gp.Windows((n,), min(2, n)),
            ]
        )
    )
    rounds = draw(st.integers(1, features.units))
    objective = net(draw(st.integers(0, 999)), n).objective()
    return gp.greedy_pig(objective, features=features, rounds=rounds, per_round=1, steps=2)


@given(results())
def test_mask_ranking_and_importance_agree_with_order(a):
    units, n = a.features.units, a.features.n
    importance, ranking = a.importance(), a.ranking()
    assert sorted(ranking.tolist()) == list(range(n))
    for k in range(units + 1):
        mask = a.mask(k)
        assert torch.equal(mask, a.features.members(a.order[:k]))
        # The first elements of the ranking are those of the first units.
        assert set(ranking[: int(mask.sum())].tolist()) == set(torch.nonzero(mask)[:, 0].tolist())
    assert all(importance[i] >= importance[j] for i, j in pairwise(ranking))
    assert float(importance.max()) == 1
    assert float(importance.min()) >= 0


@given(results())
def test_scores_show_each_element_its_first_unit_s_score(a):
    for element in range(a.features.n):
        holders = [u for u in a.order.tolist() if a.features.members(torch.tensor([u]))[element]]
        assert float(a.scores[element]) == float(a.unit_scores[holders[0]])


def test_importance_falls_evenly_from_1_to_0():
    a = gp.greedy_pig(modular([1, 4, 2, 3, 0]).objective(), per_round=1)
    assert a.importance().tolist() == [0.25, 1, 0.5, 0.75, 0]


def test_a_single_feature_has_importance_1():
    assert gp.greedy_pig(modular([2.0]).objective()).importance().tolist() == [1]


@pytest.mark.parametrize("k", [-1, 4, 1.0, True, None])
def test_mask_needs_k_from_0_to_the_number_of_units(k):
    with pytest.raises(gp.InvalidInput, match="k"):
        gp.integrated_gradients(modular([1, 2, 3]).objective()).mask(k)


def test_repr_says_what_happened():
    a = gp.greedy_pig(modular([1, 2, 3]).objective(), k=2, per_round=1, steps=2)
    text = repr(a)
    for part in ("2 of 3 units", "2 rounds", "0 → 5", "(all: 6)", "4 gradients", str(a.stop)):
        assert part in text


def test_settings_record_every_knob():
    a = gp.greedy_pig(
        modular([1, 2, 3]).objective(), rounds=2, steps=7, rule="left", schedule="geometric", seed=5
    )
    for name, value in {
        "scorer": "integrated-gradients", "steps": 7, "rule": "left", "rounds": 2,
        "schedule": "geometric", "seed": 5,
    }.items():  # fmt: skip
        assert a.settings[name] == value


@pytest.mark.parametrize(
    "tree",
    [
        torch.arange(6.0).view(2, 3),
        (torch.arange(2.0), torch.arange(4.0).view(2, 2)),
        {"a": torch.arange(3.0), "b": torch.ones(1, 2)},
    ],
    ids=["tensor", "tuple", "dict"],
)
def test_a_layout_folds_back_what_it_laid_flat(tree):
    layout = Layout.of(tree)
    flat = layout.flatten(tree)
    assert flat.shape == (layout.n,)
    back = layout.unflatten(flat)
    assert type(back) is type(tree)
    for x, y in zip(layout.tensors(tree), layout.tensors(back), strict=True):
        assert torch.equal(x, y)


def test_a_layout_is_row_major_whatever_the_memory_format():
    picture = torch.arange(24.0).view(1, 2, 3, 4)
    last = picture.to(memory_format=torch.channels_last)
    assert torch.equal(Layout.of(last).flatten(last), picture.reshape(-1))


@pytest.mark.parametrize("tree", [(), {}, 3, "x", [1, 2], {"a": [1.0]}])
def test_a_layout_is_of_tensors(tree):
    with pytest.raises((gp.InvalidInput, gp.InvalidType)):
        Layout.of(tree)


def test_the_top_of_what_was_never_ranked_is_told():
    objective = gp.objective(lambda masks: 1 + masks.sum(1), 3)
    a = gp.greedy_pig(objective, rounds=3, reach=0.1)
    assert a.selected == 0
    with pytest.warns(UserWarning, match="nothing is ranked"):
        assert a.top(2) == ["0", "1"]
