"""The frozen result: its views agree with each other and with the order."""

from __future__ import annotations

from dataclasses import replace
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
    rounds = draw(st.integers(1, features.count))
    objective = net(draw(st.integers(0, 999)), n).objective()
    return gp.maximize(
        objective, gp.GreedyPIG(rounds=rounds, per_round=1, steps=2), features=features
    )


@given(results())
def test_mask_ranking_and_importance_agree_with_order(a):
    count, n = a.features.count, a.features.n
    importance, ranking = a.importance, a.ranking()
    assert sorted(ranking.tolist()) == list(range(n))
    for k in range(count + 1):
        mask = a.mask(k)
        taken = torch.zeros(1, count, dtype=torch.bool)
        taken[0, a.order[:k]] = True
        assert torch.equal(mask, a.features.mask(taken)[0])
        # The first values of the ranking are those of the first features.
        assert set(ranking[: int(mask.sum())].tolist()) == set(torch.nonzero(mask)[:, 0].tolist())
    counted = [i for i in ranking.tolist() if float(a.scores[i]) != 0]
    assert all(importance[i] >= importance[j] for i, j in pairwise(counted))
    assert all(float(importance[i]) == 0 for i in range(n) if i not in counted)
    if float(a.scores[ranking[0]]) != 0:
        assert float(importance.max()) == 1
    assert float(importance.min()) >= 0


@given(results())
def test_scores_show_each_value_its_first_feature_s_score(a):
    members = a.features.mask(torch.eye(a.features.count).bool())
    for value in range(a.features.n):
        holders = [u for u in a.order.tolist() if members[u, value]]
        assert float(a.scores[value]) == float(a.feature_scores[holders[0]])


def test_importance_falls_evenly_from_1_to_0():
    a = gp.maximize(modular([1, 4, 2, 3, 0]).objective(), gp.GreedyPIG(per_round=1))
    assert a.importance.tolist() == [0.25, 1, 0.5, 0.75, 0]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_equals_share_one_importance_and_zeros_have_none(rounds):
    a = gp.maximize(
        modular([0, 3, 0, 1, 3, 0]).objective(), gp.GreedyPIG(rounds=rounds, schedule="geometric")
    )
    importance = a.importance
    assert importance[[0, 2, 5]].tolist() == [0, 0, 0]
    assert importance[1] == 1
    assert 0 < importance[3] < importance[4]
    if rounds == 1:  # Taken in one round.
        assert importance[4] == 1


def test_what_was_never_selected_has_no_importance_and_contributes_nothing():
    a = gp.maximize(modular([1, 4, 2, 3]).objective(), gp.GreedyPIG(per_round=1), k=2)
    assert a.order.tolist() == [1, 3, 2, 0]
    assert a.importance[[0, 2]].tolist() == [0, 0]
    assert a.importance[1] == 1
    assert a.contributions().tolist() == pytest.approx([0, 4, 0, 3])
    nothing = gp.maximize(modular([0, 0]).objective(), gp.GreedyPIG(per_round=1))
    assert nothing.importance.tolist() == nothing.contributions().tolist() == [0, 0]


@given(results())
def test_contributions_sum_to_the_gain_of_what_was_selected(a):
    if len(a.picks) == 1:
        assert torch.equal(a.contributions(), a.scores)
        return
    found = a.feature_contributions()
    if float(a.feature_scores.abs().min()) > 0 or a.selected < a.features.count:
        gain = float(a.values[-1] - a.values[0])
        assert float(found.sum()) == pytest.approx(gain, abs=1e-5 + 1e-4 * abs(gain))


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_contributions_of_a_modular_function_are_its_weights(rounds):
    weights = [1.0, -4.0, 2.0, 0.0, 2.0]
    a = gp.maximize(modular(weights).objective(), gp.GreedyPIG(rounds=rounds))
    assert a.contributions().tolist() == pytest.approx(weights, abs=1e-6)


def test_values_that_were_not_measured_join_the_next_that_was():
    a = gp.maximize(modular([3, 2, 1]).objective(), gp.GreedyPIG(per_round=1))
    for hidden in ([1], [1, 2], [1, 2, 3], [0, 1, 2, 3]):
        values = a.values.clone()
        values[hidden] = float("nan")
        found = replace(a, values=values).contributions()
        assert found.tolist() == pytest.approx([3, 2, 1], abs=1e-6)


def test_a_copy_that_adds_nothing_contributes_nothing():
    """g = max(a, b) as 1 − (1 − a)(1 − b): alone each is worth 1, the second has a score of 0."""
    g = gp.objective(lambda m: 1 - (1 - m[:, 0]) * (1 - m[:, 1]), 2)
    a = gp.maximize(g, gp.GreedyPIG(per_round=1, steps=20))
    assert a.contributions()[a.order].tolist() == pytest.approx([1, 0], abs=1e-6)


def test_of_two_copies_that_saturate_the_first_contributes_more():
    """g = s(2 − s) with s = (3a + b) / 4.

    First round: w_i ∫ (2 − 2t) dt = (3/4, 1/4). Second, from s = 3/4: b has 1/4 · 1/4 = 1/16. So
    a has ½ (3/4 + 3/4) = 48/64 and b ½ (1/4 + ½ (1/4 + 1/16)) = 13/64, which are to sum to 1.
    """
    w = torch.tensor([3.0, 1.0]) / 4
    a = gp.maximize(
        gp.objective(lambda m: (m @ w) * (2 - m @ w), 2), gp.GreedyPIG(per_round=1, steps=2)
    )
    assert a.contributions().tolist() == pytest.approx([48 / 61, 13 / 61], abs=1e-6)
    assert torch.allclose(a.score_sums, torch.tensor([3 / 4, 5 / 16]))


def test_a_feature_that_completes_another_contributes_more():
    """g = ab. First round: ½ each, a is taken. Second: b has 1. ½ (½ + ½) = 4/8 and ½ (½ + ¾)."""
    a = gp.maximize(
        gp.objective(lambda m: m[:, 0] * m[:, 1], 2), gp.GreedyPIG(per_round=1, steps=2)
    )
    assert a.contributions().tolist() == pytest.approx([4 / 9, 5 / 9], abs=1e-6)


def test_the_second_of_an_exclusive_or_contributes_against():
    """g = a + b − 2ab + c. First round: (0, 0, 1). Then ∂g = 1 − 2t is 0 again, at last b has −1.

    The sum over a and b is G(1) − G(∅) − 1 = 0, and a, taken with a score of 0, has 0. The lack of
    1/6, as b has ½ · (0 + ⅓ · −1), is shared by size: 6/7 for c, 1/7 for b.
    """
    g = gp.objective(lambda m: m[:, 0] + m[:, 1] - 2 * m[:, 0] * m[:, 1] + m[:, 2], 3)
    a = gp.maximize(g, gp.GreedyPIG(per_round=1, steps=2))
    assert a.order.tolist() == [2, 0, 1]
    assert a.contributions().tolist() == pytest.approx([0, -1 / 6 + 1 / 42, 1 + 1 / 7], abs=1e-6)


def test_scores_that_are_no_integrals_divide_the_gains_of_their_rounds():
    """g = ab + a by single gradients at 1_S: a has 1 and gains 1, then b has 1 and gains 1."""
    g = gp.objective(lambda m: m[:, 0] * m[:, 1] + m[:, 0], 2)
    a = gp.maximize(g, gp.SequentialGradient(per_round=1))
    assert a.first_scores is None
    assert a.score_sums is None
    assert a.contributions().tolist() == pytest.approx([1, 1], abs=1e-6)


def test_a_single_feature_has_importance_1():
    assert gp.maximize(modular([2.0]).objective(), gp.GreedyPIG()).importance.tolist() == [1]


@pytest.mark.parametrize("k", [-1, 4, 1.0, True, None])
def test_mask_needs_k_from_0_to_the_number_of_features(k):
    with pytest.raises(gp.InvalidInput, match="k"):
        gp.maximize(modular([1, 2, 3]).objective(), gp.IG()).mask(k)


def test_repr_says_what_happened():
    a = gp.maximize(modular([1, 2, 3]).objective(), gp.GreedyPIG(per_round=1, steps=2), k=2)
    text = repr(a)
    for part in (
        "greedy-pig",
        "2 of 3 features",
        "2 rounds",
        "0 → 5",
        "(all: 6)",
        "4 gradients",
        str(a.stop),
    ):
        assert part in text


def test_settings_record_every_knob():
    a = gp.maximize(
        modular([1, 2, 3]).objective(),
        gp.GreedyPIG(rounds=2, steps=7, rule="left", schedule="geometric"),
        seed=5,
    )
    for name, value in {
        "method": "greedy-pig",
        "steps": 7,
        "rule": "left",
        "rounds": 2,
        "schedule": "geometric",
        "seed": 5,
    }.items():
        assert a.settings[name] == value
    assert a.method == "greedy-pig"


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
    a = gp.maximize(objective, gp.GreedyPIG(rounds=3), stop=gp.Stop(value=0.1))
    assert a.selected == 0
    with pytest.warns(UserWarning, match="nothing is ranked"):
        assert a.top(2) == [0, 1]


def test_a_negative_number_of_top_features_is_refused():
    a = gp.maximize(gp.objective(lambda masks: masks.sum(1), 3), gp.IG())
    assert a.top(0) == []
    with pytest.raises(gp.InvalidInput, match="-1"):
        a.top(-1)
