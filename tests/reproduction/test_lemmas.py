"""Copies of the best column: what the lemmas say, held against closed forms."""

import csv
from dataclasses import replace
from math import nan

import pytest
import torch

from reproduction import Request, Settings, lemma_problems, run
from reproduction import job as jobs
from reproduction.lemma_problems import (
    Data,
    Knobs,
    any_copy,
    planted,
    redundancy,
    regression,
    train,
)

KNOBS = Knobs(top=5, steps=39, greedy_steps=5)
WORTH = Settings.of("lemmas").more["planted"]


def small():
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=drawn)
    x[:, 3] = 0.8 * x[:, 0] + 0.6 * x[:, 3]
    y = 2 * x[:, 0] + x[:, 1] + 0.1 * torch.randn(60, generator=drawn)
    return Data(x, y - y.mean(), ("a", "b", "c", "d"))


def test_the_largest_gate_of_a_column_counts_and_equals_share_its_gradient():
    w = torch.tensor([[0.2, 0.5, 0.1, 0.9, 0.3], [0.4, 0.4, 0.4, 0.4, 0.4]], requires_grad=True)
    merged = any_copy(w, best=1, n=3)
    torch.testing.assert_close(merged, torch.tensor([[0.2, 0.9, 0.1], [0.4, 0.4, 0.4]]))
    (found,) = torch.autograd.grad(merged[:, 1].sum(), w)
    third = 1 / 3
    torch.testing.assert_close(
        found, torch.tensor([[0, 0, 0, 1, 0.0], [0, third, 0, third, third]])
    )


@pytest.mark.parametrize("t", [0, 1, 2, 4, 8])
def test_ig_takes_every_copy_and_greedy_pig_one(t):
    select = planted(WORTH, t, KNOBS)
    copies = {0, *range(len(WORTH), len(WORTH) + t)}

    def taken(method):
        return len(copies & set(select(method).order[:5].tolist()))

    assert taken("ig") == min(1 + t, 5)
    assert taken("greedy-pig") == taken("greedy") == 1


def test_more_copies_than_the_best_is_better_lose_it_to_both():
    """m copies have a m-th of the score each: 10 / 17 is less than the least of the others."""
    select = planted(WORTH, 16, KNOBS)
    copies = {0, *range(len(WORTH), len(WORTH) + 16)}
    assert not copies & set(select("ig").order[:5].tolist())
    assert not copies & set(select("greedy-pig").order[:5].tolist())
    assert int(select("greedy").order[0]) in copies


def test_every_name_is_its_own_method():
    named = [KNOBS.method(name) for name in ("ig", "greedy-pig", "greedy")]
    assert [method.name for method in named] == ["ig", "greedy-pig", "marginal-gains"]


def test_copies_have_equal_scores_and_none_once_one_is_taken():
    equal, then = redundancy(WORTH, KNOBS)
    assert equal.number < 1e-12
    assert then.number == 0


def test_ig_of_linear_regression_is_x_times_a_transposed_b():
    closed, gap = regression(small(), KNOBS)
    assert closed.number < 1e-10
    # The lemma's bound is attained where g is quadratic.
    bound = float(gap.comparison.split("is ")[1].split(",")[0])
    assert gap.number == pytest.approx(bound, rel=5e-3)
    assert gap.number > 1


def test_worth_counts_a_column_once_and_is_that_of_least_squares():
    data = small()
    x = data.x[:, 0].double()
    y = data.y.double()
    correlation = (x @ y) ** 2 / ((x @ x) * (y @ y))
    assert data.worth([0, 0, 0]) == pytest.approx(float(correlation))
    assert data.worth([0, 1]) > 0.99


def test_a_network_is_learned_without_touching_the_global_random_state():
    data = small()
    x = data.with_copies(2)
    assert torch.equal(x[:, 4], data.x[:, 0])
    state = torch.random.get_rng_state()
    network = train(x, data.y, hidden=(8,), batches=60, masked=False, seed=1)
    again = train(x, data.y, hidden=(8,), batches=60, masked=False, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(network(x), again(x))
    off = (network(x)[:, 0] - data.y).detach()
    assert float(off.square().mean()) < float(data.y.square().mean())


@pytest.fixture
def quick(monkeypatch):
    settings = Settings.of("lemmas")
    more = {**settings.more, "networks": 1, "copies": [0, 2], "training": 200, "hidden": [8],
            "steps": 7, "greedy_steps": 2}  # fmt: skip
    monkeypatch.setattr(jobs.Settings, "of", lambda name: replace(settings, more=more))


@pytest.mark.slow
def test_the_whole_reproduction_is_written_and_not_measured_twice(quick, tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="the diabetes table is scikit-learn's")
    result = run("lemmas", Request(tmp_path))
    assert not result.failed
    rows = {(r["scene"], r["method"], r["measure"]): r for r in result.table.rows}
    assert rows["planted", "ig", "copies in the top 5"]["t2"] == 3
    assert rows["planted", "greedy-pig", "copies in the top 5"]["t2"] == 1
    for row in result.table.rows:
        assert row["t0"] > 0
        assert row.get("t2", nan) >= 0
    text = (tmp_path / "lemmas.md").read_text()
    assert "bmi is copied" in text
    assert "x ⊙ Aᵀb" in text
    with (tmp_path / "lemmas-lists.csv").open() as file:
        lists = list(csv.DictReader(file))
    assert len(lists) == (1 + 4) * 2 * 3
    assert all(len(line["top"].split()) >= 5 for line in lists)

    def refused(*args, **more):
        raise AssertionError("measured again")

    monkeypatch.setattr(lemma_problems, "train", refused)
    again = run("lemmas", Request(tmp_path))
    assert again.table.rows == result.table.rows
