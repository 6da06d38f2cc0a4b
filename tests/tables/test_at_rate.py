"""Networks that start at the label's rate, and columns that are there without saying anything."""

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig.models import TabularMLP

pytest.importorskip("pyarrow", reason="needs the extra tables")
from greedypig.tables import Batches, new_network, open_table, survey


def written(folder, **columns):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), folder / "t.parquet")
    return open_table(folder / "t.parquet")


@pytest.mark.parametrize("shares", [(0.97, 0.03), (0.2, 0.5, 0.3)])
def test_a_fresh_network_of_silent_columns_answers_with_the_shares(tmp_path, shares):
    random = np.random.default_rng(0)
    label = np.repeat(np.arange(len(shares)), [round(400 * s) for s in shares])
    table = written(tmp_path, y=label, a=random.normal(size=len(label)))
    schema = survey(table, "y").schema
    assert schema.label.shares == pytest.approx(shares)
    answer = new_network(schema, seed=3)(torch.zeros(1, 1), None)[0]
    chances = answer.softmax(0) if len(shares) > 2 else answer.sigmoid()
    assert chances.tolist() == pytest.approx(shares if len(shares) > 2 else shares[1:], abs=1e-6)
    plain = new_network(schema, seed=3, at_rate=False)(torch.zeros(1, 1), None)[0]
    assert not plain.any()
    assert type(schema).from_json(schema.to_json()) == schema


def test_shares_must_fit_the_outputs():
    with pytest.raises(gp.InvalidInput, match="shares of 3 classes"):
        TabularMLP(2, outputs=3).start_at([0.5, 0.5])


@pytest.mark.slow
def test_a_constant_category_has_no_score_whatever_its_embedding(tmp_path):
    random = np.random.default_rng(0)
    a = random.normal(size=600)
    y = (a + 0.3 * random.normal(size=600) > 1.5).astype(int)
    table = written(tmp_path, y=y, a=a, b=random.normal(size=600), same=["DE"] * 600)
    with pytest.warns(UserWarning, match="'same' are constant"):
        found = survey(table, "y")
    network = new_network(found.schema, seed=0)
    with torch.no_grad():
        network.table.weight.normal_(0, 3, generator=torch.Generator().manual_seed(0))
    batches = Batches(table, found, part="train", batch_size=64)
    for method in ("greedy-pig", "ig"):
        with pytest.warns(UserWarning, match="constant"):
            chosen = gp.select_features(network, batches, names=found.schema.names, method=method)
        place = found.schema.names.index("same")
        assert float(chosen.scores[place]) == 0
        assert float(chosen.scores[found.schema.names.index("a")]) != 0
