"""Generated tables are what their truth says, whatever part of them is made."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import greedypig as gp
from greedypig.tables import criteo_reading, open_table, survey
from reproduction.synthetic import CriteoShaped


def test_there_are_so_many_columns_of_each_kind():
    made = CriteoShaped(10)
    roles = [t.role for t in made.truth]
    assert len(roles) == 39
    assert [roles.count(r) for r in ("informative", "copy", "noise")] == [18, 11, 10]
    assert made.names[:2] + made.names[-1:] == ["I1", "I2", "C26"]
    known = {t.name: t for t in made.truth}
    for t in made.truth:
        assert known[t.source].role == ("noise" if t.role == "noise" else "informative")
        assert known[t.source].weight == t.weight


def test_the_oracle_ranks_by_weight_and_counts_sources_once():
    made = CriteoShaped(10)
    known = {t.name: t for t in made.truth}
    order = made.by_weight()
    weights = [known[n].weight for n in order[:18]]
    assert weights == sorted(weights, reverse=True)
    assert made.sources(order) == 18
    copy = next(t for t in made.truth if t.role == "copy")
    noise = next(t for t in made.truth if t.role == "noise")
    assert made.sources([copy.name, copy.source, noise.name]) == 1


def test_a_quarter_clicks_and_copies_are_near_their_source():
    made = CriteoShaped(65_536)
    columns, label = made.chunk(0)
    assert label.mean() == pytest.approx(0.26, abs=0.01)
    known = {t.name: t for t in made.truth}
    copies = [t for t in made.truth if t.role == "copy" and t.name.startswith("I")]
    for t in copies:
        a, b = np.log(columns[t.name]), np.log(columns[t.source])
        assert np.corrcoef(a, b)[0, 1] == pytest.approx(0.95, abs=0.01)
    strong = max((t for t in made.truth if t.name.startswith("I") and not t.even
                  and t.role == "informative"), key=lambda t: t.weight)  # fmt: skip
    assert np.corrcoef(np.log(columns[strong.name]), label)[0, 1] > 0.15
    for t in made.truth:
        if t.role == "noise" and t.name.startswith("I"):
            assert abs(np.corrcoef(np.log(columns[t.name]), label)[0, 1]) < 0.02
    assert known["I1"].name == "I1"


def test_any_part_is_the_same_every_time_and_a_seed_makes_another():
    long, short = CriteoShaped(5000, chunk=1000), CriteoShaped(2500, chunk=1000)
    for i in range(3):
        (a, y), (b, z) = long.chunk(i), short.chunk(i)
        rows = len(z)
        assert rows == (500 if i == 2 else 1000)
        assert all((a[n][:rows] == b[n]).all() for n in long.names)
        assert (y[:rows] == z).all()
    other = CriteoShaped(1000, seed=1, chunk=1000).chunk(0)[1]
    assert (other != long.chunk(0)[1]).any()


def test_no_model_can_beat_the_least_loss():
    found = CriteoShaped(65_536).least_loss()
    prior = -(0.26 * np.log(0.26) + 0.74 * np.log(0.74))
    assert 0.40 < found < prior - 0.1


def test_what_is_written_is_what_was_made(tmp_path):
    made = CriteoShaped(2500, chunk=1000)
    one = made.write(tmp_path / "one.parquet")
    many = made.write(tmp_path / "many", rows_per_file=1000)
    assert [p.name for p in one + many] == [
        "one.parquet",
        *(f"part-0000{i}.parquet" for i in range(3)),
    ]
    for where in (one[0], tmp_path / "many"):
        table = open_table(where)
        found = survey(table, "label", criteo_reading())
        assert found.rows == (1000, 1000, 500)
        read = table.read(2, ["I3", "C7", "label"])
        columns, label = made.chunk(2)
        assert read["label"].to_pylist() == label.tolist()
        np.testing.assert_allclose(read["I3"].to_numpy(), columns["I3"], rtol=1e-6)
        texts = read["C7"].to_pylist()
        assert len(set(zip(texts, columns["C7"].tolist(), strict=True))) == len(set(texts))
        assert all(len(t) == 8 for t in texts)


def test_nothing_is_refused():
    with pytest.raises(gp.InvalidInput, match="at least one row"):
        CriteoShaped(0)
