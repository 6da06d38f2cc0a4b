"""Algorithm 1 against fifteen plain lines of it, and the methods that are its special cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import greedypig as gp
from greedypig.core.objective import Objective
from greedypig.core.quadrature import rule
from problems import (
    Net,
    coverage,
    floats,
    history,
    modular,
    net,
    normal,
    quadratic,
    random_coverage,
    round_at,
)


def algorithm_1(g: Net, schedule: Sequence[int], made: gp.Rule):
    """Lines 3–10 of Algorithm 1, with the gradient written down and plain Python sorting."""
    n, s = g.n, torch.zeros(g.n, dtype=torch.float64)
    a, order, values, totals = torch.zeros_like(s), [], [float(g.g(s[None]))], []
    for z in schedule:
        a_hat = torch.zeros_like(s)
        for t, weight in zip(made.nodes, made.weights, strict=True):
            a_hat += weight * g.gradient(s + t * (1 - s)) * (1 - s)
        left = [i for i in range(n) if s[i] == 0]
        chosen = sorted(left, key=lambda i: (-float(a_hat[i]), i))[:z]
        a[chosen] += a_hat[chosen]
        s[chosen] = 1
        order += chosen
        values.append(float(g.g(s[None])))
        totals.append(float(a_hat.sum()))
    rest = sorted((i for i in range(n) if s[i] == 0), key=lambda i: (-float(a_hat[i]), i))
    return order + rest, a, values, totals


@st.composite
def runs(draw):
    n = draw(st.integers(1, 9))
    g = net(draw(st.integers(0, 10**6)), n)
    name = draw(st.sampled_from(["midpoint", "left", "right", "trapezoid", "gauss_legendre"]))
    steps = draw(st.integers(2, 9))
    schedule = [draw(st.integers(1, n))]
    while sum(schedule) < n and draw(st.booleans()):
        schedule.append(draw(st.integers(1, n - sum(schedule))))
    return g, name, steps, schedule


@pytest.mark.slow
@given(runs(), st.integers(1, 12))
def test_the_loop_is_algorithm_1(run, batch_size):
    g, name, steps, schedule = run
    order, a, expected_values, totals = algorithm_1(g, schedule, rule(name, steps))
    got = gp.maximize(
        g.objective(batch_size=batch_size), gp.GreedyPIG(schedule=schedule, steps=steps, rule=name)
    )
    assert got.order.tolist() == order
    assert got.selected == sum(schedule)
    assert got.picks == tuple(schedule)
    assert got.gradients_used == steps * len(schedule)
    torch.testing.assert_close(got.scores, a, rtol=0, atol=1e-12)
    torch.testing.assert_close(got.values, floats(expected_values), rtol=0, atol=1e-12)
    assert got.totals == pytest.approx(totals, abs=1e-12)
    assert got.full_value == pytest.approx(float(g.g(torch.ones(1, g.n).double())), abs=1e-12)


@given(runs())
def test_rounds_tell_the_same_story_as_the_result(run):
    g, name, steps, schedule = run
    rounds = gp.rounds(g.objective(), gp.GreedyPIG(schedule=schedule, steps=steps, rule=name))
    seen = history(rounds)
    a = rounds.results()[0]
    assert [r.index for r in seen] == list(range(len(schedule)))
    assert torch.cat([r.chosen for r in seen]).tolist() == a.order[: a.selected].tolist()
    assert torch.equal(torch.cat([r.scores for r in seen]), a.feature_scores[a.order[: a.selected]])
    assert [r.value for r in seen] == a.values[1:].tolist()
    assert [r.total for r in seen] == list(a.totals)
    assert rounds.state.gradients == steps * len(schedule)


@given(runs())
def test_one_round_equals_integrated_gradients(run):
    g, name, steps, _ = run
    made = rule(name, steps)
    # scores_i = Σ_k weights_k · ∂_i g(nodes_k · 1).
    expected = sum(
        w * g.gradient(torch.full((g.n,), t, dtype=torch.float64))
        for t, w in zip(made.nodes, made.weights, strict=True)
    )
    one = gp.maximize(g.objective(), gp.GreedyPIG(rounds=1, steps=steps, rule=name))
    shot = gp.maximize(g.objective(), gp.IG(steps=steps, rule=name))
    for a in (one, shot):
        torch.testing.assert_close(a.scores, expected, rtol=0, atol=1e-12)
        assert a.order.tolist() == torch.sort(expected, descending=True).indices.tolist()
        assert (a.selected, a.picks, a.gradients_used) == (g.n, (g.n,), steps)
    objective = g.objective()
    called = gp.IG(steps, name)(objective, round_at(objective))
    assert torch.equal(called[0], shot.scores)


@given(runs())
def test_one_left_step_equals_sequential_gradient(run):
    g, _, _, schedule = run
    one = gp.maximize(g.objective(), gp.GreedyPIG(schedule=schedule, steps=1, rule="left"))
    sequential = gp.maximize(g.objective(), gp.SequentialGradient(schedule=schedule))
    order, a, values, _ = algorithm_1(g, schedule, gp.Rule((0.0,), (1.0,)))
    for got in (one, sequential):
        assert got.order.tolist() == order
        torch.testing.assert_close(got.scores, a, rtol=0, atol=1e-12)
        torch.testing.assert_close(got.values, floats(values), rtol=0, atol=1e-12)
        assert got.gradients_used == len(schedule)


@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=10),
    st.sampled_from(["left", "right", "midpoint", "trapezoid", "gauss_legendre"]),
    st.data(),
)
def test_modular_functions_are_ranked_exactly_by_any_number_of_rounds(weights, name, data):
    # ∇g = weights everywhere, so every rule is exact and a = weights; ties go to the lowest index.
    n = len(weights)
    expected = sorted(range(n), key=lambda i: (-weights[i], i))
    knobs = data.draw(
        st.one_of(
            st.fixed_dictionaries({"rounds": st.integers(1, n)}),
            st.fixed_dictionaries({"per_round": st.integers(1, n)}),
            st.fixed_dictionaries({"rounds": st.integers(1, n), "schedule": st.just("geometric")}),
        )
    )
    # Weights are small whole numbers and steps a power of two (or one cell): no rounding at all.
    steps = 1 if name == "gauss_legendre" else 2
    a = gp.maximize(modular(weights).objective(), gp.GreedyPIG(steps=steps, rule=name, **knobs))
    assert a.order.tolist() == expected
    assert a.scores.tolist() == [float(w) for w in weights]
    sums = [sum(weights[i] for i in expected[:k]) for k in range(n + 1)]
    assert a.values.tolist() == [sums[k] for k in torch.tensor([0, *a.picks]).cumsum(0)]


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 4), st.data())
def test_every_round_is_complete_for_polynomials_by_gauss_legendre(seed, n, steps, data):
    # g of degree d along any line needs ∇g of degree d − 1 ≤ 2·steps − 1: exact to rounding.
    degree = data.draw(st.integers(1, 2 * steps))
    direction = normal(seed, n)
    c = normal(seed + 1, degree + 1)

    def g(w: Tensor) -> Tensor:
        u = w @ direction / n
        return sum(c[d] * u**d for d in range(degree + 1))

    rounds = gp.rounds(
        gp.objective(g, n, dtype=torch.float64),
        gp.GreedyPIG(per_round=1, steps=steps, rule="gauss_legendre"),
    )
    seen = history(rounds)
    a = rounds.results()[0]
    full, before = a.full_value, a.values.tolist()
    for r in seen:
        assert r.total == pytest.approx(full - before[r.index], abs=1e-11)


@pytest.mark.parametrize("name", ["midpoint", "trapezoid", "gauss_legendre", "left", "right"])
def test_every_round_is_complete_up_to_the_rule_s_error(name):
    # With h(t) = d/dt g(1_S + t·1_S̄) the error of any of these rules is at most sup|h'| / (2T),
    # T cells: left and right reach it, the others are better.
    g, steps = net(5, 6), 400
    rounds = gp.rounds(g.objective(), gp.GreedyPIG(per_round=1, steps=steps, rule=name))
    before, s = float(g.g(torch.zeros(1, 6, dtype=torch.float64))), torch.zeros(6).double()
    full = float(g.g(torch.ones(1, 6, dtype=torch.float64)))
    for r in history(rounds):
        line = [g.gradient(s + t / 500 * (1 - s)) @ (1 - s) for t in range(501)]
        steepest = max(abs(float(b - a)) * 500 for a, b in pairwise(line))
        assert abs(r.total - (full - before)) <= steepest / (2 * (steps - 1)) + 1e-12
        before = r.value
        s[r.chosen] = 1
    assert bool(s.all())


def shapley(value, n: int) -> list[float]:
    """The mean marginal gain over all n! orders of arrival."""
    total = [0.0] * n
    for order in permutations(range(n)):
        for at, i in enumerate(order):
            total[i] += value(order[: at + 1]) - value(order[:at])
    return [t / math.factorial(n) for t in total]


@pytest.mark.parametrize("seed", range(3))
def test_integrated_gradients_of_a_multilinear_extension_are_shapley_values(seed):
    # Owen 1972: φ_i = ∫ ∂_i g(t·1) dt for the multilinear g; degree n − 1 along the diagonal.
    g = random_coverage(seed, n=6, items=8, size=3)
    a = gp.maximize(g.objective(), gp.IG(steps=3, rule="gauss_legendre"))
    assert a.scores.tolist() == pytest.approx(shapley(g.value, 6), abs=1e-12)


def test_each_round_of_a_multilinear_extension_is_the_shapley_value_of_what_is_left():
    # G'(T) = G(S ∪ T): "it will recurse on the residual set function".
    g = coverage([{0, 1}, {1, 2}, {2, 3}, {0, 3, 4}, {4}], [1, 2, 4, 8, 3])
    rounds = gp.rounds(g.objective(), gp.GreedyPIG(per_round=1, steps=3, rule="gauss_legendre"))
    taken: list[int] = []
    for r in history(rounds):
        left = [i for i in range(5) if i not in taken]
        worth = shapley(lambda t, left=left: g.value([*taken, *(left[i] for i in t)]), len(left))
        best = max(range(len(left)), key=lambda i: (worth[i], -i))
        assert r.chosen.tolist() == [left[best]]
        assert r.scores.item() == pytest.approx(worth[best], abs=1e-12)
        taken.append(left[best])
    assert len(taken) == 5


def test_top_z_goes_by_signed_score_not_by_size():
    a = gp.maximize(modular([-5, 1, 3]).objective(), gp.GreedyPIG(per_round=1))
    assert a.order.tolist() == [2, 1, 0]


def test_scores_of_different_rounds_need_not_fall_but_importance_does():
    # g = 2·w₀ + w₁ + 4·w₁·w₂ − …: picking 1 unlocks 2. At ∅ IG scores 2, 1 + 2, 2; then after 1:
    # ∂₂ = 4, so round 2's score 4 exceeds round 1's 3.
    hessian = torch.zeros(3, 3, dtype=torch.float64)
    hessian[1, 2] = hessian[2, 1] = 4
    a = gp.maximize(quadratic(floats([2, 1, 0]), hessian).objective(), gp.GreedyPIG(per_round=1))
    assert a.order.tolist() == [1, 2, 0]
    assert a.scores.tolist() == pytest.approx([2, 3, 4], abs=1e-12)
    assert a.importance.tolist() == [0, 1, 0.5]


def test_what_is_never_taken_scores_0():
    a = gp.maximize(modular([4, 1, 3, 2]).objective(), gp.GreedyPIG(per_round=1), k=2)
    assert a.scores.tolist() == pytest.approx([4, 0, 3, 0], abs=1e-12)
    assert a.order.tolist() == [0, 2, 3, 1]
    assert a.mask(2).tolist() == [True, False, True, False]


def test_gradient_scorer_at_1_is_the_gradient_at_the_full_input():
    g = net(8, 5)
    a = gp.maximize(g.objective(), gp.Gradient(at=1.0))
    torch.testing.assert_close(a.scores, g.gradient(torch.ones(5).double()), rtol=0, atol=1e-12)


def test_a_rule_of_one_s_own_is_followed():
    g = net(9, 4)
    ones = torch.ones(4, dtype=torch.float64)
    expected = 0.25 * g.gradient(0.1 * ones) + 0.75 * g.gradient(0.7 * ones)
    a = gp.maximize(g.objective(), gp.IG(rule=gp.Rule((0.1, 0.7), (0.25, 0.75))))
    torch.testing.assert_close(a.scores, expected, rtol=0, atol=1e-12)
    assert a.gradients_used == 2


class TestCompleteSums:
    """complete=True: the nodes' weights are changed so that the scores sum to the rise of G."""

    def steep(self, place=0.1, width=0.02):
        """g rises by 3 within a short part of the path, and by Σ m_i · i / 4 along all of it."""
        slope = torch.arange(4.0) / 4
        return gp.objective(
            lambda m: 3 * torch.sigmoid((m.mean(1) - place) / width) + (m * slope).sum(1), 4
        )

    def scores(self, objective, scorer):
        return scorer(objective, round_at(objective))[0]

    def rise(self, objective):
        ends = objective.values(torch.tensor([[[0.0] * 4, [1.0] * 4]]))[0]
        return float(ends[1] - ends[0])

    def test_few_nodes_on_a_steep_path_sum_to_the_rise(self):
        objective = self.steep()
        plain = self.scores(objective, gp.IG(6, "cubic"))
        complete = self.scores(objective, gp.IG(6, "cubic", complete=True))
        assert abs(float(plain.sum()) / self.rise(objective) - 1) > 0.1
        assert float(complete.sum()) == pytest.approx(self.rise(objective), rel=1e-5)

    def test_each_score_comes_nearer_to_the_integral(self):
        objective = self.steep()
        true = self.scores(objective, gp.IG(400, "cubic"))
        errors = [
            float((self.scores(objective, gp.IG(6, "cubic", complete=c)) - true).abs().sum())
            for c in (False, True)
        ]
        assert errors[1] < errors[0] / 2

    def test_a_sum_that_is_right_changes_nothing(self):
        flat = gp.objective(lambda m: (m * torch.arange(4.0)).sum(1), 4)
        complete = self.scores(flat, gp.IG(4, "cubic", complete=True))
        assert torch.allclose(complete, torch.arange(4.0), atol=1e-6)

    def test_a_rise_that_all_nodes_miss_stays_visible_in_the_sum(self):
        missed = self.steep(0.013, 0.0005)
        scores = self.scores(missed, gp.IG(3, "midpoint", complete=True))
        assert float(scores.sum()) < 0.7 * self.rise(missed)

    def test_every_round_of_greedy_pig_sums_to_what_is_left(self):
        objective = self.steep()
        method = gp.GreedyPIG(per_round=1, steps=6, rule="cubic", complete=True)
        a = gp.maximize(objective, method)
        left = [a.full_value - float(value) for value in a.values[:-1]]
        assert list(a.totals) == pytest.approx(left, rel=1e-4, abs=1e-5)
        assert a.gradients_used == 4 * 6

    def test_a_switch_is_true_or_false(self):
        with pytest.raises(gp.InvalidType, match="complete"):
            gp.GreedyPIG(complete=0.05)


class TestMeasuredRounds:
    """A round takes the next best as long as each raises G by half of its score."""

    def test_a_sum_is_selected_in_one_round(self):
        weights = torch.tensor([3.0, 1.0, 2.0, 0.5])
        a = gp.maximize(
            gp.objective(lambda m: m @ weights, 4),
            gp.GreedyPIG(rounds=3, schedule="measured"),
            stop=gp.Stop(value=6.4),
        )
        assert a.picks == (4,)
        assert a.order.tolist() == [0, 2, 1, 3]

    def test_a_copy_ends_the_round_and_falls_back(self):
        objective = gp.objective(lambda m: 3 * m[:, :2].amax(1) + m[:, 2], 3)
        a = gp.maximize(objective, gp.GreedyPIG(rounds=3, schedule="measured"))
        assert a.order.tolist() == [0, 2, 1]
        assert a.picks[0] == 1  # Feature 1 scored 1.5 and would add nothing.

    def test_the_last_round_takes_the_rest_or_what_k_leaves(self):
        objective = gp.objective(lambda m: 3 * m[:, :4].amax(1) + m[:, 4:].sum(1) / 10, 8)
        method = gp.GreedyPIG(rounds=2, schedule="measured")
        assert gp.maximize(objective, method).selected == 8
        a = gp.maximize(objective, method, k=5)
        assert a.selected == 5
        assert a.stop.name == "K"

    def test_it_stops_within_a_round_where_the_value_is_reached(self):
        objective = gp.objective(lambda m: m.sum(1), 6)
        method = gp.GreedyPIG(rounds=3, schedule="measured")
        a = gp.maximize(objective, method, stop=gp.Stop(value=2.5))
        assert a.selected == 3
        assert a.stop.name == "VALUE"
        assert float(a.values[-1]) == 3.0

    def test_a_resumed_run_ends_as_one_that_was_not_stopped(self, tmp_path):
        objective = gp.objective(lambda m: 3 * m[:, :4].amax(1) + m[:, 4:].sum(1) / 10, 8)
        method = gp.GreedyPIG(rounds=4, schedule="measured")
        run = gp.rounds(objective, method)
        next(run)
        run.results(measure=False)[0].save(tmp_path / "run.gpig")
        whole = gp.maximize(objective, method)
        resumed = gp.maximize(objective, method, checkpoint=tmp_path / "run.gpig")
        assert whole.picks == resumed.picks
        assert torch.equal(whole.order, resumed.order)

    def test_many_examples_run_one_after_the_other(self):
        rows, method = torch.rand(70, 3), gp.GreedyPIG(schedule="measured")
        model = torch.nn.Linear(3, 2)
        several = list(gp.explain_many(model, rows, method=method))
        for row, a in zip(rows, several, strict=True):
            assert torch.equal(gp.explain(model, row, method=method).order, a.order)

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(gp.InvalidInput, match="per_round"):
            gp.GreedyPIG(schedule="measured", per_round=2)
        two = Objective(lambda points, _: points.sum(1), torch.zeros(1, 2, 3), torch.ones(1, 2, 3))
        with pytest.raises(gp.InvalidInput, match="one problem"):
            gp.maximize(two, gp.GreedyPIG(schedule="measured"))
        with pytest.raises(gp.InvalidInput, match="overlap"):
            gp.explain(
                torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2)),
                torch.rand(1, 8, 8),
                features=gp.windows(2),
                method=gp.GreedyPIG(schedule="measured"),
            )
