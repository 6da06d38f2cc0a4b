"""Greedy against exhaustive search: the guarantees theory gives, on functions that meet them."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import greedypig as gp
from problems import (
    Known,
    floats,
    history,
    modular,
    normal,
    quadratic,
    random_coverage,
    random_weakly_submodular,
    xor,
)

SEEDS = range(30)


def qualities(g: Known, order: Tensor, upto: int) -> list[float]:
    return [g.quality(order, k) for k in range(1, upto + 1)]


def mean_quality(g: Known, order: Tensor, upto: int) -> float:
    return sum(qualities(g, order, upto)) / upto


# Exhaustive search.


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 4])
def test_best_subset_finds_the_optimum(seed, k):
    for g in (random_coverage(seed, 9, 14, 3), random_weakly_submodular(seed, 8)):
        best, value = gp.best_subset(g.objective(), k)
        assert len(set(best)) == k
        assert value == pytest.approx(g.best(k), abs=1e-12)
        assert g.value(best) == pytest.approx(value, abs=1e-12)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=7), st.data())
def test_best_subset_of_a_modular_function_is_its_largest_weights(weights, data):
    k = data.draw(st.integers(1, len(weights)))
    largest = sorted(range(len(weights)), key=lambda i: (-weights[i], i))[:k]
    best, value = gp.best_subset(modular(weights).objective(), k)
    assert value == sum(weights[i] for i in largest)
    # Equal values go to the set that comes first in dictionary order.
    assert best == min(
        s for s in combinations(range(len(weights)), k) if sum(weights[i] for i in s) == value
    )


def test_best_subset_goes_beyond_one_chunk_of_subsets():
    # C(14, 5) = 2002 subsets are tried 1024 at a time; the best is the last one of all.
    g = modular(range(14))
    assert gp.best_subset(g.objective(), 5) == ((9, 10, 11, 12, 13), 55.0)


def test_best_subset_of_groups_and_windows():
    g = modular([1, 9, 2, 3, 8])
    groups = gp.Groups(torch.tensor([0, 1, 1, 0, 2]))  # worth 4, 11, 8
    assert gp.best_subset(g.objective(), 2, features=groups) == ((1, 2), 19.0)
    windows = gp.Windows((5,), 2)  # {0,1} 10, {1,2} 11, {2,3} 5, {3,4} 11
    assert gp.best_subset(g.objective(), 2, features=windows) == ((1, 3), 22.0)


def test_best_subset_of_xor_is_one_side():
    g = xor(0.5)
    assert gp.best_subset(g.objective(), 1) == ((0,), 1.0)
    assert gp.best_subset(g.objective(), 2) == ((0, 2), 1.5)
    assert gp.best_subset(g.objective(), 3) == ((0, 1, 2), 0.5)


@pytest.mark.parametrize("k", [0, -1, 4, 1.5, True])
def test_best_subset_needs_k_from_1_to_n(k):
    with pytest.raises(gp.InvalidInput, match="k"):
        gp.best_subset(modular([1, 2, 3]).objective(), k)


def test_best_subset_refuses_what_would_take_forever():
    with pytest.raises(gp.InvalidInput, match="subsets"):
        gp.best_subset(modular([1.0] * 60).objective(), 10)


def test_best_subset_says_when_a_value_is_not_finite():
    g = gp.objective(lambda w: torch.where(w[:, 0] > 0, torch.nan, w.sum(1)), 3)
    with pytest.raises(gp.NonFinite):
        gp.best_subset(g, 2)


# The discrete greedy of Nemhauser et al.


@given(st.integers(0, 10**6), st.integers(2, 8))
def test_greedy_takes_the_largest_marginal_gain_each_time(seed, n):
    h = normal(seed + 1, n, n)
    g = quadratic(normal(seed, n), h + h.T)
    taken: list[int] = []
    rounds = gp.rounds(g.objective(), gp.Greedy(gp.MarginalGains(), per_round=1))
    for r in history(rounds):
        gains = {i: g.value([*taken, i]) - g.value(taken) for i in range(n) if i not in taken}
        best = max(gains, key=gains.__getitem__)
        assert r.chosen.tolist() == [best]
        assert r.scores.item() == pytest.approx(gains[best], abs=1e-9)
        assert r.total == pytest.approx(sum(gains.values()), abs=1e-9)
        taken.append(best)
        assert r.value == pytest.approx(g.value(taken), abs=1e-9)
    assert rounds.state.gradients == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_is_within_nemhauser_s_bound_on_coverage(seed):
    # Monotone submodular, G(∅) = 0: G(greedy_k) ≥ (1 − (1 − 1/k)^k)·opt_k ≥ (1 − 1/e)·opt_k.
    g = random_coverage(seed, 12, 24, 4)
    order = gp.maximize(g.objective(), gp.MarginalGains(), k=6).order
    for k, quality in enumerate(qualities(g, order, 6), start=1):
        assert quality >= 1 - (1 - 1 / k) ** k - 1e-12
        assert quality <= 1 + 1e-12


def submodularity_ratio(g: Known, prefixes: list[list[int]], k: int) -> float:
    """γ = min over prefixes L and sets S of ≤ k others: Σ_s gain(s | L) / gain(S | L)."""
    ratio = 1.0
    for inside in prefixes:
        base = g.value(inside)
        left = [i for i in range(g.n) if i not in inside]
        single = {i: g.value([*inside, i]) - base for i in left}
        for size in range(2, k + 1):
            for s in combinations(left, size):
                joint = g.value([*inside, *s]) - base
                if joint > 0:
                    ratio = min(ratio, sum(single[i] for i in s) / joint)
    return ratio


@pytest.mark.parametrize("seed", range(6))
def test_greedy_is_within_the_bound_of_das_and_kempe_on_weakly_submodular_functions(seed):
    # Das & Kempe 2011, Theorem 3: monotone G with submodularity ratio γ over the greedy's own
    # prefixes: G(greedy_k) − G(∅) ≥ (1 − e^{−γ})·(opt_k − G(∅)); here G(∅) = 0.
    g, k = random_weakly_submodular(seed, 8), 3
    order = gp.maximize(g.objective(), gp.MarginalGains(), k=k).order.tolist()
    gamma = submodularity_ratio(g, [order[:j] for j in range(k)], k)
    assert 0 < gamma < 1, "pairs that reward each other make it less than submodular"
    assert g.quality(order, k) >= 1 - math.exp(-gamma)


# Greedy PIG against integrated gradients and the optimum.


@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_pig_is_within_its_bound_on_submodular_functions(seed):
    # For the multilinear extension of a submodular G, ∂_i g falls along the path, so a score is at
    # most the marginal gain; scores sum to G(1) − G(S) (completeness). Hence the gain of a round is
    # at least (G(1) − G(S)) / (n − |S|), and by induction G(S_k) − G(∅) ≥ k/n · (G(1) − G(∅)).
    n = 12
    g = random_coverage(seed, n, 24, 4)
    rounds = gp.rounds(g.objective(), gp.GreedyPIG(per_round=1, steps=6, rule="gauss_legendre"))
    before = 0.0
    for r in history(rounds):
        assert r.scores.item() <= r.value - before + 1e-12
        assert r.value >= (r.index + 1) / n * g.best(n) - 1e-12
        before = r.value


def test_greedy_pig_beats_integrated_gradients_on_random_coverage():
    # Thirty fixed problems, the mean quality over k = 1 … 6. Measured: 0.951 against 0.920, a
    # difference of 0.031 with a standard error of 0.005. Asked: three standard errors above 0.
    difference = []
    for seed in SEEDS:
        g = random_coverage(seed, 12, 24, 4)
        greedy = gp.maximize(
            g.objective(), gp.GreedyPIG(per_round=1, steps=6, rule="gauss_legendre")
        )
        one_shot = gp.maximize(g.objective(), gp.IG(steps=6, rule="gauss_legendre"))
        difference.append(mean_quality(g, greedy.order, 6) - mean_quality(g, one_shot.order, 6))
    mean, error = floats(difference).mean(), floats(difference).std() / len(difference) ** 0.5
    assert float(mean) >= 3 * float(error) > 0


def test_greedy_pig_beats_integrated_gradients_by_far_where_features_come_twice():
    # IG scores twins alike, so its first k hold ⌈k/2⌉ different sets and at most best(⌈k/2⌉).
    # Measured: 0.985 against 0.730, a difference of 0.255 with a standard error of 0.007.
    # Asked: 0.2, which is eight standard errors less.
    greedy_mean = one_shot_mean = 0.0
    for seed in SEEDS:
        g = random_coverage(seed, 12, 24, 4, copied=2)
        greedy = gp.maximize(
            g.objective(), gp.GreedyPIG(per_round=1, steps=6, rule="gauss_legendre")
        )
        one_shot = gp.maximize(g.objective(), gp.IG(steps=6, rule="gauss_legendre"))
        for k, quality in enumerate(qualities(g, one_shot.order, 6), start=1):
            assert quality <= g.best(math.ceil(k / 2)) / g.best(k) + 1e-12
        greedy_mean += mean_quality(g, greedy.order, 6) / len(SEEDS)
        one_shot_mean += mean_quality(g, one_shot.order, 6) / len(SEEDS)
    assert greedy_mean - one_shot_mean >= 0.2
