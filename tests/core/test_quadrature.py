"""Rules on [0, 1]: exact where theory says so, and of the order theory says elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

import greedypig as gp
from greedypig.core.quadrature import RULES, completed, rule

STEPS = [1, 2, 3, 4, 7, 20, 50, 333]


def integral(f, quadrature: gp.Rule) -> float:
    return math.fsum(w * f(t) for t, w in zip(quadrature.nodes, quadrature.weights, strict=True))


def usable(name: str, steps: int) -> bool:
    return steps >= 2 or name != "trapezoid"


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("steps", STEPS)
def test_weights_sum_to_one_and_nodes_lie_in_the_unit_interval(name, steps):
    if not usable(name, steps):
        pytest.skip("the trapezoid needs both ends")
    made = rule(name, steps)
    assert len(made) == len(made.nodes) == len(made.weights) == steps
    assert math.fsum(made.weights) == pytest.approx(1, abs=1e-14)
    assert all(w > 0 for w in made.weights)
    assert all(0 <= t <= 1 for t in made.nodes)
    assert list(made.nodes) == sorted(set(made.nodes))


@pytest.mark.parametrize("name", RULES)
def test_constants_are_integrated_exactly(name):
    # A trapezoid whose weights sum to 1 − 1/n would give 7 · (1 − 1/5) here.
    assert integral(lambda t: 7.0, rule(name, 5)) == pytest.approx(7, abs=1e-13)


def test_nodes_are_where_their_names_say():
    assert rule("left", 4).nodes == (0, 0.25, 0.5, 0.75)
    assert rule("right", 4).nodes == (0.25, 0.5, 0.75, 1)
    assert rule("midpoint", 4).nodes == (0.125, 0.375, 0.625, 0.875)
    assert rule("trapezoid", 5).nodes == (0, 0.25, 0.5, 0.75, 1)
    assert rule("trapezoid", 5).weights == (0.125, 0.25, 0.25, 0.25, 0.125)


@pytest.mark.parametrize(
    ("name", "order", "limit"),
    [
        # h = 1/T. Euler–Maclaurin, ∫ = rule + limit · h^order + o(h^order), for f = exp:
        # left  ∓ ½·h·(f(1) − f(0)); midpoint + 1/24·h²·(f'(1) − f'(0)); trapezoid − 1/12·h²·(…).
        ("left", 1, 1 / 2),
        ("right", 1, -1 / 2),
        ("midpoint", 2, 1 / 24),
        ("trapezoid", 2, -1 / 12),
    ],
)
def test_error_shrinks_at_the_rule_s_order_with_its_known_constant(name, order, limit):
    exact = math.e - 1

    def scaled_error(cells: int) -> float:
        steps = cells + 1 if name == "trapezoid" else cells
        return (exact - integral(math.exp, rule(name, steps))) * cells**order

    expected = limit * (math.e - 1)
    coarse, fine = scaled_error(50), scaled_error(100)
    # The next term of the expansion is one order (left, right) or two orders (others) smaller.
    assert fine == pytest.approx(expected, rel=0.02)
    assert abs(fine - expected) < 0.6 * abs(coarse - expected)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
def test_gauss_legendre_is_exact_to_degree_2t_minus_1_and_not_beyond(steps):
    made = rule("gauss_legendre", steps)
    for degree in range(2 * steps):
        assert integral(lambda t, d=degree: t**d, made) == pytest.approx(
            1 / (degree + 1), abs=1e-14
        )
    if steps > 5:
        return  # The first error is below float64's resolution.
    # The error for t^{2T} on [0,1] is (T!)⁴ / ((2T+1)·((2T)!)²): the leading error constant.
    degree, f = 2 * steps, math.factorial
    expected = f(steps) ** 4 / ((2 * steps + 1) * f(2 * steps) ** 2)
    error = 1 / (degree + 1) - integral(lambda t: t**degree, made)
    assert error == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_gauss_radau_begins_at_0_and_is_exact_to_degree_2t_minus_2_and_not_beyond(steps):
    made = rule("gauss-radau", steps)
    assert made.nodes[0] == 0.0
    for degree in range(2 * steps - 1):
        assert integral(lambda t, d=degree: t**d, made) == pytest.approx(
            1 / (degree + 1), abs=1e-13
        )
    if steps <= 5:
        assert abs(integral(lambda t: t ** (2 * steps - 1), made) - 1 / (2 * steps)) > 1e-8


def test_gauss_radau_by_hand():
    assert rule("gauss-radau", 1) == rule("left", 1)
    two, three = rule("gauss-radau", 2), rule("gauss-radau", 3)
    assert two.nodes == pytest.approx((0, 2 / 3), abs=1e-15)
    assert two.weights == pytest.approx((1 / 4, 3 / 4), abs=1e-15)
    root = math.sqrt(6)
    assert three.nodes == pytest.approx((0, (6 - root) / 10, (6 + root) / 10), abs=1e-15)
    weights = (1 / 9, (16 + root) / 36, (16 - root) / 36)
    assert three.weights == pytest.approx(weights, abs=1e-15)


class TestCompleted:
    """Weights that make Σ_k weights_k · slopes_k the rise, changed by the least squares."""

    weights, slopes = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([[5.0, 2.0, 1.0]])

    def test_the_sum_is_the_rise(self):
        own = completed(self.weights, self.slopes, torch.tensor([2.5]))
        assert float((own * self.slopes).sum()) == pytest.approx(2.5)

    def test_weights_whose_sum_is_right_stay_as_they_are(self):
        own = completed(self.weights, self.slopes, torch.tensor([2.1]))
        assert torch.allclose(own[0], self.weights)

    def test_no_other_change_is_smaller(self):
        """Changes along every direction that keeps the sum are larger in their squares."""
        own = completed(self.weights, self.slopes, torch.tensor([2.5]))[0]
        change = own / self.weights - 1
        parts = self.weights * self.slopes[0]
        for other in torch.randn(20, 3, generator=torch.Generator().manual_seed(0)):
            aside = other - parts * (other @ parts) / (parts @ parts)
            assert (change + 0.01 * aside).square().sum() >= change.square().sum()

    @pytest.mark.parametrize("rise", [100.0, -100.0])
    def test_no_weight_turns_negative_or_more_than_doubles(self, rise):
        own = completed(self.weights, self.slopes, torch.tensor([rise]))[0]
        assert bool((own >= 0).all())
        assert bool((own <= 2 * self.weights + 1e-6).all())

    def test_flat_paths_keep_their_weights(self):
        own = completed(self.weights, torch.zeros(1, 3), torch.tensor([1.0]))
        assert torch.equal(own[0], self.weights)

    @pytest.mark.parametrize("size", [1e-21, 1e-38, 1e-42, 1e30])
    def test_slopes_of_any_size_give_finite_weights(self, size):
        for rise in (0.0, 1.0, size):
            own = completed(self.weights, self.slopes * size, torch.tensor([rise]))
            assert bool(torch.isfinite(own).all())

    def test_problems_side_by_side_have_weights_of_their_own(self):
        slopes, rise = torch.cat([self.slopes, 2 * self.slopes]), torch.tensor([2.5, 4.2])
        own = completed(self.weights, slopes, rise)
        assert (own * slopes).sum(1).tolist() == pytest.approx([2.5, 4.2])
        assert torch.allclose(own[1], self.weights)


def test_either_spelling_of_gauss_legendre_is_the_same_rule():
    assert rule("gauss-legendre", 7) == rule("gauss_legendre", 7)


@pytest.mark.parametrize("steps", [0, -1, 2.5, "4", None])
def test_steps_that_are_no_count_are_refused(steps):
    with pytest.raises(gp.InvalidInput, match="steps"):
        rule("midpoint", steps)


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ((), ()),
        ((0.5,), (0.5, 0.5)),
        ((0.5, 1.5), (0.5, 0.5)),
        ((-0.1,), (1.0,)),
        ((0.2, 0.8), (0.5, 0.4)),
        ((math.nan,), (1.0,)),
        ((0.5,), (math.nan,)),
        ((0.2, 0.8), (math.inf, -math.inf)),
    ],
)
def test_a_rule_of_one_s_own_must_be_a_rule(nodes, weights):
    with pytest.raises(gp.InvalidInput):
        gp.Rule(nodes, weights)
