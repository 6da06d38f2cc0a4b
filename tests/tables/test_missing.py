"""A missing number is told from the mean by an indicator, which is part of its column."""

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.tables import (
    Batches,
    Effort,
    Schema,
    new_network,
    open_table,
    retrain,
    survey,
    train_network,
)

N = 900
SHORT = Effort(epochs=4, rate=3e-3)
pytestmark = pytest.mark.filterwarnings("ignore:Missing numbers", "ignore:The values of 'sign'")


def opened(tmp_path, **columns):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=200)
    table = open_table(tmp_path / "t.parquet")
    return table, survey(table, "y")


def parts(table, found):
    common = {"share": 0.25, "batch_size": 32}
    train = Batches(table, found, part="train", **common)
    return train, Batches(table, found, part="valid", shuffle=False, **common)


def gaps_that_tell(seed=0):
    """The label is 1 in 9 of 10 rows where `sign` is missing, and in 1 of 10 elsewhere. The values
    themselves are −1, 0 and 1 in equal parts: a missing one, filled with the mean, looks like 0."""
    random = np.random.default_rng(seed)
    missing = random.random(N) < 0.4
    there = (N - missing.sum()) // 3
    sign = random.permutation(np.repeat([-1.0, 0.0, 1.0], there))
    values = np.full(N, np.nan)
    places = np.flatnonzero(~missing)
    values[places[: len(sign)]] = sign
    missing = np.isnan(values)
    y = (random.random(N) < np.where(missing, 0.9, 0.1)).astype(int)
    return {"sign": values, "noise": random.normal(size=N), "y": y}


def test_exactly_0_is_missing_and_a_value_at_the_mean_is_not(tmp_path):
    x = [-1.0, 0.0, 1.0, None, float("nan"), float("inf")] * 10
    flag = [5.0, None] * 30
    table, found = opened(tmp_path, x=x, flag=flag, whole=[2.0, 4.0, 6.0] * 20, y=[0, 1, 1] * 20)
    got = found.schema.encode(table.read(0, table.kinds)).numeric
    assert (got[:6, 0] == 0).tolist() == [False, False, False, True, True, True]
    assert abs(got[1, 0]) < 1e-20
    assert (got[:2, 1] == 0).tolist() == [False, True]
    assert (got[:, 2] != 0).all()
    assert found.schema.gaps == [0, 1]
    assert Schema.from_json(found.schema.to_json()).gaps == [0, 1]
    assert "constant" not in [w.kind for w in found.warnings]
    network = new_network(found.schema)
    assert network.n_columns == len(found.schema.names) == 3
    assert network.column_of.tolist() == [0, 1, 2, 0, 1]


def test_columns_without_gaps_have_no_indicator(tmp_path):
    _, found = opened(
        tmp_path, x=[1.0, 2.0, 3.0] * 20, none=pa.nulls(60, pa.float64()), y=[0, 1, 1] * 20
    )
    assert found.schema.gaps == []


@pytest.mark.slow
def test_gaps_that_tell_the_label_are_learned_selected_and_retrained(tmp_path):
    train, valid = parts(*opened(tmp_path, **gaps_that_tell()))
    network = train_network(new_network(train.schema), train, valid, effort=SHORT)
    # The entropy of a coin of 1 to 9 is 0.325; from the values alone 0.55 is the best.
    assert network.scores.loss < 0.42
    for baseline in ("zero", "mean", "conditional"):
        a = gp.select_features(
            network.model, train, baseline=baseline, k=1, names=train.schema.names
        )
        assert a.top(1) == ["sign"]
        assert a.features.count == 2
        assert float(a.values[1]) > -0.45
    proof = retrain({"own": [["sign", "noise"]]}, train, valid, ks=[1], seeds=1, effort=SHORT)
    assert proof.losses["own"][1].mean < 0.42


def test_the_fast_way_gates_the_indicator_with_its_column(tmp_path):
    train, _ = parts(*opened(tmp_path, **gaps_that_tell()))
    network = new_network(train.schema, seed=3)

    class Asked(torch.nn.Module):
        """Gated by the model itself, not by its first layer's linearity."""

        def __init__(self):
            super().__init__()
            self.inner = network

        def forward(self, numeric, categorical, gates=None):
            return self.inner(numeric, categorical, gates)

    fast, plain = (
        gp.select_features(model, list(train), k=2, names=train.schema.names)
        for model in (network, Asked())
    )
    assert fast.order.tolist() == plain.order.tolist()
    assert fast.scores.tolist() == pytest.approx(plain.scores.tolist(), rel=1e-4, abs=1e-7)
