"""Who is ahead: the error over what is independent, Student's t for the few, and reasons."""

import pytest

pytest.importorskip("pyarrow", reason="tables are read with pyarrow")

from greedypig.results.table_notes import student
from reproduction.comparisons import Difference, Estimate, Side, in_words
from reproduction.synthetic import CriteoShaped


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042),
     (1_000_000, 1.960)],
)  # fmt: skip
def test_student_s_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, abs=6e-4)


def test_three_networks_are_three_values_however_many_selections():
    values = {(m, s): m + 10.0 * (s - 1) for m in range(3) for s in range(3)}
    found = Estimate.of(values)
    assert (found.mean, found.count, found.over) == (1.0, 3, "networks")
    assert found.error == pytest.approx(1 / 3**0.5)


def test_two_networks_are_judged_by_all_selections():
    found = Estimate.of({(0, 0): 1.0, (0, 1): 3.0, (1, 0): 5.0, (1, 1): 7.0})
    assert (found.mean, found.count, found.over) == (4.0, 4, "selections")
    assert found.error == pytest.approx((20 / 3) ** 0.5 / 2)


def test_a_network_counts_once_all_of_its_selections_are_measured():
    values = {(0, 0): 1.0, (0, 1): None, (1, 0): 2.0, (1, 1): 4.0}
    assert Estimate.of(values).mean == 3.0
    assert Estimate.of({(0, 0): None}).mean is None


@pytest.mark.parametrize(
    ("mean", "error", "count", "verdict"),
    [(-0.02, 0.005, 4, "Greedy PIG (T = 5) ahead"), (0.02, 0.005, 4, "IG ahead"),
     (-0.02, 0.005, 3, "not certain"),  # 4.0 errors, of which three values need 4.3.
     (-0.02, 0.009, 30, "Greedy PIG (T = 5) ahead"), (-0.02, 0.01, 30, "not certain"),
     (-0.02, None, 1, "not certain"), (0.0, 0.0, 3, "the same columns")],
)  # fmt: skip
def test_a_difference_is_one_outside_student_s_interval(mean, error, count, verdict):
    found = Estimate(mean, error, count, "networks")
    assert Difference("t", "greedy-5", "ig", "zero", 5, found).verdict == verdict


def test_the_reason_names_the_columns_and_what_they_are_worth():
    found = Estimate(0.01, 0.001, 3, "networks")
    sides = Side(("a", "b"), 0.0, 0.5), Side(("c",), 1.0, 0.625)
    first, why = in_words("a table", [Difference("t", "greedy-5", "ig", "zero", 5, found, *sides)])
    assert "mean ± standard error of 3 networks" in first
    assert "k = 5: +0.0100 ± 0.0010, IG ahead" in first
    assert "Greedy PIG alone has a, b, IG alone c" in why
    assert "copies: 0.0 and 1.0; share of the true signal: 0.500 and 0.625" in why


def test_a_copy_brings_the_signal_of_its_source_once():
    made = CriteoShaped(100)
    copy = next(t for t in made.truth if t.role == "copy")
    noise = next(t for t in made.truth if t.role == "noise")
    alone = made.signal([copy.source])
    assert made.signal([copy.source, copy.name, noise.name]) == pytest.approx(alone)
    assert made.copies([copy.source, copy.name, noise.name]) == 1
    assert made.copies([copy.name]) == 0
    assert made.signal(made.names) == pytest.approx(1)
    assert alone == pytest.approx(copy.weight**2 / sum(
        t.weight**2 for t in made.truth if t.role == "informative"))  # fmt: skip
