"""Who is ahead: the error over what is independent, and Student's t for the few."""

import pytest

pytest.importorskip("pyarrow", reason="tables are read with pyarrow")

from reproduction.comparisons import Estimate, in_words


def test_three_networks_are_three_values_however_many_selections():
    values = {(m, s): m + 10.0 * (s - 1) for m in range(3) for s in range(3)}
    estimate = Estimate.of(values)
    assert (estimate.mean, estimate.count, estimate.over) == (1.0, 3, "networks")
    assert estimate.error == pytest.approx(1 / 3**0.5)
    assert estimate.interval == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_two_networks_are_judged_by_all_selections():
    estimate = Estimate.of({(0, 0): 1.0, (0, 1): 3.0, (1, 0): 5.0, (1, 1): 7.0})
    assert (estimate.mean, estimate.count, estimate.over) == (4.0, 4, "selections")
    assert estimate.error == pytest.approx((20 / 3) ** 0.5 / 2)
    assert Estimate.of({}).mean is None


@pytest.mark.parametrize(
    ("mean", "error", "count", "verdict"),
    [
        (-0.02, 0.005, 4, "Greedy PIG (T = 5) ahead"),
        (0.02, 0.005, 4, "IG ahead"),
        (-0.02, 0.005, 3, "not certain"),  # 4.0 errors, of which three values need 4.3.
        (-0.02, 0.009, 30, "Greedy PIG (T = 5) ahead"),
        (-0.02, 0.01, 30, "not certain"),
        (-0.02, None, 1, "not certain"),
    ],
)
def test_a_difference_is_one_outside_student_s_interval(mean, error, count, verdict):
    estimate = Estimate(mean, error, count, "networks")
    assert estimate.verdict("greedy-5", "ig") == verdict
    record = {
        "one": "greedy-5",
        "other": "ig",
        "variant": "zero",
        "k": 5,
        "mean": mean,
        "error": error,
        "count": count,
        "over": "networks",
        "verdict": verdict,
    }
    (sentence,) = in_words("a table", [record])
    assert f"mean ± standard error of {count} networks" in sentence
    number = f"{mean:+.4f}" + ("" if error is None else f" ± {error:.4f}")
    assert f"k = 5: {number}, {verdict}" in sentence
