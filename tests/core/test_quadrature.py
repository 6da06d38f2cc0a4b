"""Rules on [0, 1]: exact where theory says so, and of the order theory says elsewhere."""

from __future__ import annotations

import math

import pytest

import greedypig as gp
from greedypig.core.quadrature import PATHS, RULES, between_midpoints, midpoints, rule

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


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_midpoints_and_the_points_between_make_the_finer_rule(name, steps):
    """t⁶ on the path t(u): both rules average to trapezoids of 2 · steps intervals in u."""
    path, speed = PATHS[name]
    cells = 2 * steps
    ends = [k / cells for k in range(cells + 1)]
    heights = [speed(u) * path(u) ** 6 for u in ends]
    expected = (sum(heights) - (heights[0] + heights[-1]) / 2) / cells

    def unscaled(made, places):
        weight = sum(w * speed(u) for u, w in places)  # What scaled the weights to 1.
        return integral(lambda t: t**6, made) * weight / steps

    middles = [((k + 0.5) / steps, 1.0) for k in range(steps)]
    between = [(k / steps, 0.5 if k in (0, steps) else 1.0) for k in range(steps + 1)]
    if sum(w * speed(u) for u, w in between) == 0:
        pytest.skip("One interval of the smooth step has no inner end.")
    parts = [unscaled(midpoints(name, steps), middles)]
    parts.append(unscaled(between_midpoints(name, steps), between))
    assert sum(parts) / 2 == pytest.approx(expected, abs=1e-12)


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
