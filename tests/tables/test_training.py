"""Training finds what is there to be found, depends on its seed alone, and leaves no trace."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

from greedypig.tables import (
    Batches,
    Effort,
    Summary,
    Training,
    constant_answer,
    count_rows,
    evaluate,
    new_network,
    open_table,
    retrain,
    survey,
    train_network,
    training,
)
from greedypig.tables.retraining import trainings_of

SHORT = Effort(epochs=3, rate=3e-3)


def rows(tmp_path, task="binary", n=1200):
    random = np.random.default_rng(0)
    x = random.standard_normal((n, 3))
    score = x[:, 0] + 2 * x[:, 1]
    y = {
        "binary": (score > 0).astype(int),
        "classes": np.digitize(score, [-1, 1]),
        "number": 5 * score + 100,
    }[task]
    columns = {"weak": x[:, 0], "strong": x[:, 1], "noise": x[:, 2], "y": y}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=300)
    table = open_table(tmp_path / "t.parquet")
    found = survey(table, "y")
    train = Batches(table, found, part="train", share=0.25, batch_size=64)
    return train, Batches(table, found, part="valid", share=0.25, batch_size=512, shuffle=False)


@pytest.mark.parametrize(("task", "below"), [("binary", 0.25), ("classes", 0.5), ("number", 30)])
def test_a_network_learns_and_is_judged_in_the_label_s_units(tmp_path, task, below):
    train, valid = rows(tmp_path, task)
    done = train_network(new_network(train.schema), train, valid, effort=SHORT)
    assert done.scores.loss < below  # Variance of the number label: 125.
    assert (done.scores.accuracy is None) == (task == "number")
    assert evaluate(done.model, valid) == done.scores
    assert not done.model.training
    assert not any(p.requires_grad or p.grad is not None for p in done.model.parameters())


@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_a_constant_answer_is_the_training_rows_rate_judged_on_the_others(tmp_path, task):
    train, valid = rows(tmp_path, task)
    found = constant_answer(train, valid)
    learned, judged = _whole(train)[1].double(), _whole(valid)[1].double()
    if task == "number":
        scale = train.schema.label.deviation**2
        expected = scale * float(((judged - learned.mean()) ** 2).mean())
        assert found.accuracy is None
        assert found.variance == pytest.approx(scale * float(judged.var(correction=0)))
    else:
        rates = torch.bincount(learned.long()) / len(learned)
        expected = -float(rates.double().log()[judged.long()].mean())
        assert found.variance is None
        assert found.accuracy == float((judged == rates.argmax()).double().mean())
    assert found.loss == pytest.approx(expected)


def test_a_class_that_no_training_row_has_costs_a_finite_loss(tmp_path):
    table = pa.table({"x": np.arange(40.0), "y": [0, 1] * 20})
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table.set_column(1, "y", pa.array([0, 1] * 19 + [2, 2])), tmp_path / "v.parquet")
    seen = open_table(tmp_path / "v.parquet")
    found = survey(seen, "y")
    first = open_table(tmp_path / "t.parquet")
    train = Batches(first, count_rows(first, found.schema), schema=found.schema)
    valid = Batches(seen, found, shuffle=False)
    assert constant_answer(train, valid).loss == pytest.approx(
        -(38 * np.log(20 / 40.5) + 2 * np.log(0.5 / 40.5)) / 40
    )


def test_losses_are_the_plain_means(tmp_path):
    train, valid = rows(tmp_path)
    model = new_network(train.schema, seed=4)
    (x, ids), y = _whole(valid)
    p = torch.sigmoid(model(x, ids).detach().squeeze(1).double())
    expected = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    scores = evaluate(model, valid)
    assert scores.loss == pytest.approx(float(expected), rel=1e-5)
    assert scores.accuracy == pytest.approx(float(((p > 0.5) == y.bool()).double().mean()))
    assert scores.rows == valid.rows


def _whole(batches):
    parts = list(batches)
    x = torch.cat([p[0][0] for p in parts])
    ids = torch.cat([p[0][1] for p in parts])
    return (x, ids), torch.cat([p[1] for p in parts])


def test_the_seed_decides_everything_and_nothing_else_is_touched(tmp_path):
    train, valid = rows(tmp_path)
    start = new_network(train.schema, seed=1)
    before = {k: v.clone() for k, v in start.state_dict().items()}
    state = torch.get_rng_state()
    one = Effort(epochs=1)
    first = train_network(start, train, valid, effort=one, seed=5)
    torch.manual_seed(99)
    again = train_network(start, train, valid, effort=one, seed=5)
    other = train_network(start, train, valid, effort=one, seed=6)
    torch.set_rng_state(state)
    assert all(
        torch.equal(v, again.model.state_dict()[k]) for k, v in first.model.state_dict().items()
    )
    assert first.scores == again.scores != other.scores
    assert all(torch.equal(v, start.state_dict()[k]) for k, v in before.items())
    torch.manual_seed(0)
    expected = torch.get_rng_state()
    train_network(start, train, valid, effort=one)
    assert torch.equal(torch.get_rng_state(), expected)


def test_training_stops_and_keeps_the_best(tmp_path):
    """With a rate that destroys, the first check is the best and patience ends it."""
    train, valid = rows(tmp_path)
    losses = []
    plain = training.evaluate

    def watched(model, batches):
        losses.append(plain(model, batches).loss)
        return plain(model, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "evaluate", watched)
        done = train_network(
            new_network(train.schema), train, valid, effort=Effort(epochs=50, rate=0.2, patience=2)
        )
    assert done.checks == len(losses) < 50
    assert done.scores.loss == min(losses)
    assert losses.index(min(losses)) == len(losses) - 3
    assert done.rows == pytest.approx(done.checks * train.rows, rel=0.1)


@pytest.mark.slow
def test_the_right_columns_retrain_best_and_all_are_the_measure(tmp_path):
    train, valid = rows(tmp_path)
    orders = {"right": [["strong", "weak", "noise"]], "wrong": [["noise", "weak", "strong"]]}
    seen = []
    retrained = retrain(
        orders,
        train,
        valid,
        ks=[1, 3],
        seeds=2,
        effort=SHORT,
        watch=lambda trial, share: seen.append((trial.seed, share)),
    )
    assert retrained.losses["right"][1].mean < 0.45 < 0.6 < retrained.losses["wrong"][1].mean
    assert retrained.losses["right"][3] == retrained.losses["wrong"][3] == retrained.loss_all
    assert retrained.accuracies["right"][1].mean > 0.75
    assert {seed for seed, _ in seen} == {0, 1}


def test_equal_sets_are_trained_once():
    names = ["a", "b", "c"]
    orders = {"x": [["a", "b", "c"]], "y": [["b", "a", "c"]]}
    found = trainings_of(names, orders, [1, 2, 3], 2)
    assert len(found) == len(set(found)) == 2 * 4  # {abc}, {a}, {b}, {ab}.
    assert found[0].columns == ("a", "b", "c")


def test_every_seed_may_have_a_ranking_of_its_own():
    found = trainings_of(["a", "b"], {"random": [["a", "b"], ["b", "a"]]}, [1], 2)
    assert Training(("a",), 0) in found
    assert Training(("b",), 1) in found
    assert Training(("a",), 1) not in found


def test_a_standard_error_is_that_of_the_mean():
    assert Summary.of((1.0, 2.0, 3.0)).standard_error == pytest.approx(1 / np.sqrt(3))
    assert Summary.of((1.0,)).standard_error is None


def test_what_is_on_the_shelf_is_not_done_again(tmp_path, monkeypatch):
    train, valid = rows(tmp_path)
    orders = {"m": [["strong", "weak", "noise"]]}
    shelf = tmp_path / "shelf"
    one = retrain(orders, train, valid, ks=[1], seeds=1, effort=Effort(epochs=1), folder=shelf)
    monkeypatch.setattr(
        "greedypig.tables.retraining.train_network", lambda *_, **__: pytest.fail("again")
    )
    again = retrain(orders, train, valid, ks=[1], seeds=1, folder=shelf)
    assert again == one
    file = next(shelf.glob("1-0-*.json"))
    assert json.loads(file.read_text())["columns"] == ["strong"]
    file.write_text("{")  # A file that is damaged is a trial to do again.
    assert Training(("strong",), 0).load(shelf) is None
