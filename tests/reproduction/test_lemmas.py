"""Copies of the best column: what the lemmas say, held against closed forms."""

import csv

import pytest
import torch

import greedypig as gp
from reproduction import experiment, lemmas
from reproduction.lemmas import Data, any_copy, by_core, planted, redundancy, regression

SETTINGS = experiment.read_settings("lemmas")
WORTH = SETTINGS["planted"]
METHODS = {method.name: method.run() for method in SETTINGS["methods"]}


def small():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    x[:, 3] = 0.8 * x[:, 0] + 0.6 * x[:, 3]
    y = 2 * x[:, 0] + x[:, 1] + 0.1 * torch.randn(60, generator=generator)
    return Data(x, y - y.mean(), ("a", "b", "c", "d"))


def test_the_largest_gate_of_a_column_counts_and_equals_share_its_gradient():
    w = torch.tensor([[0.2, 0.5, 0.1, 0.9, 0.3], [0.4, 0.4, 0.4, 0.4, 0.4]], requires_grad=True)
    merged = any_copy(w, best=1, n=3)
    torch.testing.assert_close(merged, torch.tensor([[0.2, 0.9, 0.1], [0.4, 0.4, 0.4]]))
    (gradient,) = torch.autograd.grad(merged[:, 1].sum(), w)
    third = 1 / 3
    expected = torch.tensor([[0, 0, 0, 1, 0.0], [0, third, 0, third, third]])
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("t", [0, 1, 2, 4, 8, 16])
def test_ig_selects_every_copy_and_greedy_pig_one_until_there_are_too_many(t):
    select = by_core(planted(WORTH), len(WORTH) + t)
    copies = {0, *range(len(WORTH), len(WORTH) + t)}
    counts = {
        name: len(copies & set(select(method, None if name == "ig" else 5).order[:5].tolist()))
        for name, method in METHODS.items()
    }
    # m copies have a m-th of the score each: 10 / 17 is less than the least of the others.
    many = t == 16
    assert counts == {"ig": 0 if many else min(1 + t, 5), "greedy-pig": int(not many), "greedy": 1}


def test_every_name_is_its_own_method():
    assert {
        "ig": gp.IG(39),
        "greedy-pig": gp.GreedyPIG(per_round=1, steps=5),
        "greedy": gp.MarginalGains(),
    } == METHODS


def test_copies_have_equal_scores_and_none_once_one_is_selected():
    equal, after = redundancy(WORTH)
    assert equal["number"] < 1e-12
    assert after["number"] == 0


def test_ig_of_linear_regression_is_x_times_a_transposed_b():
    closed, gap = regression(small())
    assert closed["number"] < 1e-10
    # The lemma's bound is attained where g is quadratic.
    bound = float(gap["comparison"].split("is ")[1].split(",")[0])
    assert gap["number"] == pytest.approx(bound, rel=5e-3)
    assert gap["number"] > 1


def test_worth_counts_a_column_once_and_is_that_of_least_squares():
    data = small()
    x, y = data.x[:, 0].double(), data.y.double()
    correlation = (x @ y) ** 2 / ((x @ x) * (y @ y))
    assert data.worth([0, 0, 0]) == pytest.approx(float(correlation))
    assert data.worth([0, 1]) > 0.99
    assert torch.equal(data.with_copies(2)[:, 4], data.x[:, 0])


@pytest.mark.slow
def test_the_whole_reproduction_is_written_and_not_measured_twice(answer, place, monkeypatch):
    pytest.importorskip("sklearn", reason="the diabetes table is scikit-learn's")
    small = {**SETTINGS, "networks": 1, "copies": [0, 2], "hidden": [8]}
    monkeypatch.setattr(experiment, "read_settings", lambda name: small)
    record = answer("reproduce", "lemmas", "--out", "out")
    assert not record["failed"]
    rows = {(r["scene"], r["method"], r["measure"]): r for r in record["rows"]}
    assert rows["planted", "ig", "copies in the top 5"]["t2"] == 3
    assert rows["planted", "greedy-pig", "copies in the top 5"]["t2"] == 1
    for row in record["rows"]:
        assert row["t0"] > 0
        assert row["t2"] >= 0
    text = (place / "out" / "lemmas.md").read_text()
    assert "bmi is copied" in text
    assert "x ⊙ Aᵀb" in text
    with (place / "out" / "lemmas-lists.csv").open() as file:
        lists = list(csv.DictReader(file))
    assert len(lists) == (1 + 4) * 2 * 3
    assert all(len(line["top"].split()) >= 5 for line in lists)
    monkeypatch.setattr(lemmas, "train", None)
    assert answer("reproduce", "lemmas", "--out", "out")["rows"] == record["rows"]
