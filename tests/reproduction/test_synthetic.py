"""Generated tables are what their truth says, whatever part of them is made."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import greedypig as gp
from greedypig.tables import criteo_reading, open_table, survey
from reproduction.synthetic import CriteoShaped


def test_there_are_so_many_columns_of_each_kind():
    table = CriteoShaped(10)
    roles = [t.role for t in table.truth]
    assert len(roles) == 39
    assert [roles.count(r) for r in ("informative", "copy", "noise")] == [18, 11, 10]
    assert table.names[:2] + table.names[-1:] == ["I1", "I2", "C26"]
    known = {t.name: t for t in table.truth}
    for t in table.truth:
        assert known[t.source].role == ("noise" if t.role == "noise" else "informative")
        assert known[t.source].weight == t.weight


def test_the_oracle_ranks_by_weight_and_a_copy_brings_the_signal_of_its_source_once():
    table = CriteoShaped(10)
    known = {t.name: t for t in table.truth}
    order = table.by_weight()
    weights = [known[n].weight for n in order[:18]]
    assert weights == sorted(weights, reverse=True)
    assert table.sources(order) == 18
    copy = next(t for t in table.truth if t.role == "copy")
    noise = next(t for t in table.truth if t.role == "noise")
    names = [copy.source, copy.name, noise.name]
    alone = copy.weight**2 / sum(w**2 for w in weights)
    assert table.sources(names) == 1
    assert table.copies(names) == 1
    assert table.copies([copy.name]) == 0
    assert table.signal(names) == pytest.approx(alone)
    assert table.signal(table.names) == pytest.approx(1)


def test_a_quarter_clicks_and_copies_are_near_their_source():
    table = CriteoShaped(65_536)
    columns, label = table.chunk(0)
    assert label.mean() == pytest.approx(0.26, abs=0.01)
    numbers = [t for t in table.truth if t.name.startswith("I")]
    for t in numbers:
        if t.role == "copy":
            a, b = np.log(columns[t.name]), np.log(columns[t.source])
            assert np.corrcoef(a, b)[0, 1] == pytest.approx(0.95, abs=0.01)
        if t.role == "noise":
            assert abs(np.corrcoef(np.log(columns[t.name]), label)[0, 1]) < 0.02
    odd = [t for t in numbers if t.role == "informative" and not t.even]
    strong = max(odd, key=lambda t: t.weight)
    assert np.corrcoef(np.log(columns[strong.name]), label)[0, 1] > 0.15


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


def test_the_file_holds_the_chunks(tmp_path):
    generated = CriteoShaped(2500, chunk=1000)
    generated.write(tmp_path / "one.parquet")
    table = open_table(tmp_path / "one.parquet")
    assert survey(table, "label", criteo_reading()).rows == (1000, 1000, 500)
    part = table.read(2, ["I3", "C7", "label"])
    columns, label = generated.chunk(2)
    assert part["label"].to_pylist() == label.tolist()
    np.testing.assert_allclose(part["I3"].to_numpy(), columns["I3"], rtol=1e-6)
    texts = part["C7"].to_pylist()
    assert len(set(zip(texts, columns["C7"].tolist(), strict=True))) == len(set(texts))
    assert all(len(t) == 8 for t in texts)


def test_nothing_is_refused():
    with pytest.raises(gp.InvalidInput, match="at least one row"):
        CriteoShaped(0)
    with pytest.raises(gp.InvalidInput, match="loyalty from 0 to 1"):
        CriteoShaped(9, loyalty=2)
