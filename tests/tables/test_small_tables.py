"""Tables of a few hundred rows are learned from as well as by the plain models of statistics."""

from statistics import fmean

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="needs the extra tables")
pytest.importorskip("sklearn", reason="needs the extra sklearn")
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error

from greedypig.tables import (
    Batches,
    Effort,
    constant_answer,
    new_network,
    open_table,
    survey,
    train_network,
)

SPLITS = 3


def opened(folder, x, y):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {f"x{i}": x[:, i] for i in range(x.shape[1])} | {"y": y}
    parquet.write_table(pa.table(columns), folder / "t.parquet")
    table = open_table(folder / "t.parquet")
    return table, survey(table, "y")


def parts(table, found, split, share=0.3):
    common = {"share": share, "split_seed": split, "seed": split}
    train = Batches(table, found, part="train", **common)
    return train, Batches(table, found, part="valid", batch_size=4096, shuffle=False, **common)


def whole(batches):
    rows = list(batches)
    return torch.cat([r[0][0] for r in rows]).numpy(), torch.cat([r[1] for r in rows]).numpy()


def of_plain_model(train, valid):
    """Mean loss of ridge regression or logistic regression on the same encoded rows."""
    (x, y), (v, w) = whole(train), whole(valid)
    label = train.schema.label
    if label.task == "number":
        return label.deviation**2 * mean_squared_error(w, Ridge(1.0).fit(x, y).predict(v))
    model = LogisticRegression(max_iter=1000).fit(x, y)
    return log_loss(w, model.predict_proba(v), labels=model.classes_)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "times"),
    [("load_diabetes", 1.1), ("load_breast_cancer", 1.1), ("load_wine", 1.1)],
)
def test_a_small_table_is_learned_as_well_as_by_a_linear_model(tmp_path, load, times):
    x, y = getattr(datasets, load)(return_X_y=True)
    table, found = opened(tmp_path, x, y)
    ours, theirs, same = [], [], []
    for split in range(SPLITS):
        train, valid = parts(table, found, split)
        done = train_network(new_network(found.schema, seed=split), train, valid, seed=split)
        ours.append(done.scores.loss)
        theirs.append(of_plain_model(train, valid))
        same.append(constant_answer(train, valid).loss)
    assert fmean(ours) < times * fmean(theirs) < 0.8 * fmean(same)


@pytest.mark.slow
def test_what_is_not_linear_is_learned_too(tmp_path):
    x, y = datasets.make_friedman1(1000, 8, noise=1.0, random_state=0)
    train, valid = parts(*opened(tmp_path, x, y), split=0)
    done = train_network(new_network(train.schema), train, valid)
    # The label's noise has variance 1: nothing can go below it but by chance.
    assert done.scores.loss < 0.5 * of_plain_model(train, valid)
    assert done.scores.loss > 0.8


@pytest.mark.parametrize(("rows", "size"), [(40, 16), (640, 28), (9000, 393), (20_000, 512)])
def test_an_epoch_of_a_small_table_is_several_steps(tmp_path, rows, size):
    table, found = opened(tmp_path, np.arange(rows)[:, None] / rows, np.arange(rows) % 2)
    train, _ = parts(table, found, split=0)
    assert train.batch_size == pytest.approx(size, rel=0.1)
    assert len(train) >= min(16, train.rows // 16)
    assert train.only(["x0"]).batch_size == train.batch_size
    assert Batches(table, found, batch_size=64).batch_size == 64


def test_small_tables_get_more_epochs_patience_and_weight_decay_unless_told(tmp_path):
    def effort(rows):
        table, found = opened(tmp_path, np.arange(rows)[:, None] / rows, np.arange(rows) % 2)
        train, own = Batches(table, found), Effort()
        return train, own.longest(train), own.waits(train), own.weight_decay(train)

    train, epochs, patience, decay = effort(150)
    assert epochs * len(train) >= 3000
    assert (patience, decay) == (20, 0.01)
    _, _, patience, decay = effort(2000)
    assert patience == 10
    assert decay == pytest.approx(3 / 2000 * 0.8)
    train, epochs, patience, decay = effort(40_000)
    assert (epochs, patience, decay) == (20 if len(train) >= 150 else 39, 2, 1e-5)
    assert Effort(epochs=3).longest(train) == 3
    assert Effort(patience=5).waits(train) == 5


@pytest.mark.slow
def test_a_rough_start_does_not_end_the_training_of_a_small_table(tmp_path):
    """A training that is cut short leaves 0.23 of the variance of Friedman's table, a whole one
    0.15."""
    x, y = datasets.make_friedman1(400, 15, noise=1.0, random_state=3)
    losses = []
    for split in range(SPLITS):
        train, valid = parts(*opened(tmp_path, x, y), split=split)
        done = train_network(new_network(train.schema, seed=split), train, valid, seed=split)
        losses.append(done.scores.loss / constant_answer(train, valid).loss)
    assert fmean(losses) < 0.19
