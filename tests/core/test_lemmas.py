"""The paper's lemmas and the classic hard cases, on closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import greedypig as gp
from problems import (
    copies,
    floats,
    history,
    indicator,
    linear_regression,
    normal,
    quadratic,
    round_at,
    saturating,
    xor,
)

# Redundant features (Lemma 4.4): g(w) = h(max of the copies, the rest).


@pytest.mark.parametrize("rule", ["midpoint", "left", "right", "gauss_legendre"])
def test_integrated_gradients_score_all_copies_alike(rule):
    # On the diagonal all copies tie, and torch shares the slope of a maximum among ties:
    # each of c copies of a feature of worth v scores v / c.
    g = copies([12, 3, 2], [3, 1, 1])
    a = gp.maximize(g.objective(), gp.IG(steps=8, rule=rule))
    assert a.scores.tolist() == pytest.approx([4, 4, 4, 3, 2], abs=1e-12)
    # So its three best are one feature three times: G = 12, where 12 + 3 + 2 was to be had.
    assert g.value(a.order[:3].tolist()) == 12
    assert g.best(3) == 17


@pytest.mark.parametrize("rule", ["midpoint", "left", "gauss_legendre"])
def test_greedy_pig_takes_one_copy_and_then_the_next_real_feature(rule):
    # Once a copy is at 1 the others, at t < 1, no longer move the maximum: they score 0.
    g = copies([12, 3, 2], [3, 1, 1])
    rounds = history(gp.rounds(g.objective(), gp.GreedyPIG(per_round=1, steps=8, rule=rule)))
    assert [r.chosen.item() for r in rounds] == [0, 3, 4, 1, 2]
    assert [r.scores.item() for r in rounds] == pytest.approx([4, 3, 2, 0, 0], abs=1e-12)
    assert [r.value for r in rounds] == pytest.approx([12, 15, 17, 17, 17], abs=1e-12)


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=5, unique=True),
    st.integers(1, 4),
)
def test_greedy_pig_is_optimal_on_copies_and_integrated_gradients_is_not(worth, each):
    # Every feature comes `each` times. IG ranks copies of the worthiest first, so its first k
    # hold ⌈k/each⌉ features; Greedy PIG's first k hold k, the best there is, for k ≤ features.
    worth = sorted(worth, reverse=True)
    g = copies(worth, [each] * len(worth))
    greedy = gp.maximize(g.objective(), gp.GreedyPIG(per_round=1, steps=4))
    one_shot = gp.maximize(g.objective(), gp.IG(steps=4))
    for k in range(1, len(worth) + 1):
        assert g.quality(greedy.order, k) == pytest.approx(1, abs=1e-12)
        kept = sum(worth[: math.ceil(k / each)])
        assert g.value(one_shot.order[:k].tolist()) == pytest.approx(kept, abs=1e-12)


# Linear regression (the appendix's lemma, in its correct form).


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 9))
def test_integrated_gradients_of_linear_regression(seed, n, m):
    # g(w) = −‖A(x⊙w) − b‖², x = A⁺b, so AᵀAx = Aᵀb and ∇g(t·1) = 2(1 − t)·x ⊙ Aᵀb, whence
    # ∫ ∇g(t·1) dt = x ⊙ Aᵀb = ½·∇g(0). (The paper prints x ⊙ ∇g(0): one x and a factor too many.)
    a, b = normal(seed, m, n), normal(seed + 1, m)
    g = linear_regression(a, b)
    x = torch.linalg.pinv(a) @ b
    expected = x * (a.T @ b)
    scale = float(expected.abs().max()) + 1
    for rule, steps in (("midpoint", 1), ("midpoint", 4), ("trapezoid", 2), ("gauss_legendre", 1)):
        got = gp.maximize(g.objective(), gp.IG(steps=steps, rule=rule)).scores
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9 * scale)
    half = 0.5 * gp.maximize(g.objective(), gp.Gradient(at=0.0)).scores
    torch.testing.assert_close(half, expected, rtol=0, atol=1e-9 * scale)


def test_orthogonal_regression_is_solved_exactly():
    # AᵀA = diag(d): G(S) = −‖b‖² + Σ_S d_i·x_i² is modular, with score d_i·x_i² for everyone.
    d = floats([4, 1, 9, 2])
    a, b = torch.diag(d.sqrt()), floats([1, -3, 0.5, 2])
    x = b / d.sqrt()
    g = linear_regression(a, b)
    found = gp.maximize(g.objective(), gp.GreedyPIG(per_round=1, steps=2))
    torch.testing.assert_close(found.scores, d * x**2, rtol=0, atol=1e-12)
    for k in range(1, 5):
        assert g.value(found.order[:k].tolist()) == pytest.approx(g.best(k), abs=1e-12)


def test_correlated_regression_can_have_negative_scores():
    # Two nearly equal columns with opposite coefficients: x ⊙ Aᵀb is negative for one of them,
    # "attribution scores that are negative" even in linear regression.
    a = floats([[1.0, 0.9], [0.0, 0.5]])
    x = floats([2.0, -1.0])
    g = linear_regression(a, a @ x)
    # AᵀA = [[1, .9], [.9, 1.06]], AᵀAx = (1.1, 0.74): scores 2·1.1 and −1·0.74.
    got = gp.maximize(g.objective(), gp.IG(steps=1)).scores
    assert got.tolist() == pytest.approx([2.2, -0.74], abs=1e-12)


# PIG against marginal gain (Lemma 4.3).


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_pig_is_within_half_the_off_diagonal_row_sums_of_the_marginal_gain(seed, n):
    # g = cᵀw + ½wᵀHw: ∫ ∂_i g(t·1) dt = c_i + ½Σ_j H_ij; G({i}) − G(∅) = c_i + ½H_ii.
    # Their difference is ½·Σ_{j≠i} H_ij: within the lemma's ½·max_i |Σ_{j≠i} H_ij|, and equal to
    # it for the i of the maximum, so the constant ½ cannot be improved.
    c, h = normal(seed, n), normal(seed + 1, n, n)
    h = (h + h.T) / 2
    g = quadratic(c, h)
    pig = gp.maximize(g.objective(), gp.IG(steps=2)).scores
    gains = floats([g.value([i]) - g.value([]) for i in range(n)])
    off_diagonal = h.sum(1) - h.diag()
    torch.testing.assert_close(pig - gains, off_diagonal / 2, rtol=0, atol=1e-12)
    bound = float(off_diagonal.abs().max()) / 2
    assert float((pig - gains).abs().max()) == pytest.approx(bound, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(2, 7), st.data())
def test_the_bound_holds_in_every_round_for_what_is_left(seed, n, data):
    # The residual G'(T) = G(S ∪ T) has the Hessian of the unselected rows and columns.
    c, h = normal(seed, n), normal(seed + 1, n, n)
    h = (h + h.T) / 2
    g = quadratic(c, h)
    taken = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1))
    left = [i for i in range(n) if i not in taken]
    objective = g.objective()
    now = round_at(objective, indicator(n, sorted(taken)).unsqueeze(0))
    scores = gp.IG(2)(objective, now)[0]
    assert scores[sorted(taken)].tolist() == [0.0] * len(taken)
    base = g.value(sorted(taken))
    for i in left:
        half = 0.5 * sum(float(h[i, j]) for j in left if j != i)
        gain = g.value([*taken, i]) - base
        assert float(scores[i]) - gain == pytest.approx(half, abs=1e-12)


def test_uncorrelated_variables_score_their_marginal_gain():
    # Σ_i c_i·w_i + d_i·w_i²: H is diagonal, so PIG, marginal gain and c_i + d_i are one.
    c, d = normal(1, 5), normal(2, 5)
    g = quadratic(c, torch.diag(2 * d))
    pig = gp.maximize(g.objective(), gp.IG(steps=1)).scores
    torch.testing.assert_close(pig, c + d, rtol=0, atol=1e-12)
    greedy = gp.maximize(g.objective(), gp.MarginalGains())
    assert greedy.order.tolist() == gp.maximize(g.objective(), gp.IG()).order.tolist()
    torch.testing.assert_close(greedy.scores, c + d, rtol=0, atol=1e-12)


# XOR: g = w₀ + w₁ − 2w₀w₁ + bonus·w₂.


def test_integrated_gradients_cannot_see_xor():
    # ∂₀g(t·1) = 1 − 2t integrates to 0, and so it must by symmetry: G(1) − G(∅) = bonus.
    a = gp.maximize(xor(0.5).objective(), gp.IG(steps=4))
    assert a.scores.tolist() == pytest.approx([0, 0, 0.5], abs=1e-12)


def test_greedy_pig_breaks_the_symmetry_of_xor_once_one_side_is_in():
    # ∅: scores 0, 0, ½ → 2. Then 0, 0 → 0 (lowest index). Then ∂₁g = 1 − 2·1 = −1.
    rounds = history(gp.rounds(xor(0.5).objective(), gp.GreedyPIG(per_round=1, steps=4)))
    assert [r.chosen.item() for r in rounds] == [2, 0, 1]
    assert [r.scores.item() for r in rounds] == pytest.approx([0.5, 0, -1], abs=1e-12)
    assert [r.value for r in rounds] == pytest.approx([0.5, 1.5, 0.5], abs=1e-12)


def test_methods_that_look_at_the_start_solve_xor_and_stop():
    # At ∅ the gradient is (1, 1, ½) and so are the marginal gains: 0, then 2, then −1 is refused.
    g = xor(0.5)
    for a in (
        gp.maximize(g.objective(), gp.SequentialGradient(per_round=1), stop=gp.Stop(gain=True)),
        gp.maximize(g.objective(), gp.MarginalGains(), stop=gp.Stop(gain=True)),
    ):
        assert a.order.tolist() == [0, 2, 1]
        assert a.selected == 2
        assert a.stop is gp.StopReason.NO_GAIN
        assert float(a.values[-1]) == pytest.approx(g.best(2), abs=1e-12)


# Saturation: g = 1 − exp(−Σ c_i·w_i).


def test_the_gradient_at_a_saturated_input_is_blind_and_the_integral_is_not():
    # ∂_i g(1) = c_i·e^{−C}; ∫ ∂_i g(t·1) dt = c_i·(1 − e^{−C}) / C with C = Σ c.
    c = floats([30.0, 10.0, 20.0])
    g = saturating(c)
    at_input = gp.maximize(g.objective(), gp.Gradient(at=1.0)).scores
    assert float(at_input.max()) < 1e-24
    integrated = gp.maximize(g.objective(), gp.IG(steps=64, rule="gauss_legendre")).scores
    torch.testing.assert_close(integrated, c * (1 - math.exp(-60)) / 60, rtol=1e-10, atol=0)


@given(st.lists(st.floats(0.1, 3), min_size=1, max_size=7))
def test_greedy_pig_on_a_saturating_function_by_formula(rates):
    # With C_S = Σ_S c: score_i = c_i·e^{−C_S}·(1 − e^{−C_rest}) / C_rest; the order is that of c.
    g = saturating(rates)
    rounds = history(
        gp.rounds(g.objective(), gp.GreedyPIG(per_round=1, steps=24, rule="gauss_legendre"))
    )
    inside, left = 0.0, sum(rates)
    for r in rounds:
        c = rates[r.chosen.item()]
        expected = c * math.exp(-inside) * (1 - math.exp(-left)) / left
        assert r.scores.item() == pytest.approx(expected, rel=1e-9)
        inside, left = inside + c, left - c
        assert r.value == pytest.approx(g.best(r.index + 1), rel=1e-9)
