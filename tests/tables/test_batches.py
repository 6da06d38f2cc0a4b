"""Batches depend on the seed alone: every row once, the same list for every process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.network.distributed import Group
from greedypig.tables import Batches, Reading, open_table
from greedypig.tables import row_batches as module
from greedypig.tables import survey as look
from greedypig.tables.stream import feed

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def table(tmp_path, monkeypatch):
    """997 rows in 3 files of uneven row groups, one of them with none; x is the row's number."""
    monkeypatch.setattr(module, "POOL", 100)
    at = 0
    for i, rows in enumerate((400, 0, 597)):
        x = np.arange(at, at + rows, dtype=np.float64)
        pq.write_table(
            pa.table({"x": x, "c": [f"v{int(v) % 5}" for v in x], "y": (x % 2).astype(np.int64)}),
            tmp_path / f"{i}.parquet",
            row_group_size=60 + 7 * i,
        )
        at += rows
    return open_table(tmp_path)


def survey(table, label):
    """Every column is kept, also one that numbers the rows."""
    return look(table, label, Reading(keep=None))


def rows_of(batches, of=None):
    """The rows' numbers, from their standardised x."""
    (number,) = batches.schema.numbers
    some = batches if of is None else [batches[i] for i in of]
    return [
        np.rint(x[:, 0].double().numpy() * number.deviation + number.mean).astype(int)
        for (x, _), _ in some
    ]


def test_every_row_is_there_once_in_batches_of_about_one_size(table):
    found = Batches(table, survey(table, "y"), batch_size=32)
    parts = rows_of(found)
    assert sorted(np.concatenate(parts).tolist()) == list(range(997))
    assert len(parts) == len(found)
    assert all(24 <= len(p) <= 48 for p in parts)
    assert found.rows == 997
    (numeric, ids), labels = found[0]
    assert (numeric.dtype, ids.dtype, labels.dtype) == (torch.float32, torch.int64, torch.float32)
    assert labels.tolist() == [r % 2 for r in parts[0].tolist()]


def test_the_order_is_a_permutation_that_the_seed_decides_and_reads_each_pool_once(
    table, monkeypatch
):
    found = Batches(table, survey(table, "y"), batch_size=16, seed=3)
    order = found.order(5)
    assert sorted(order.tolist()) == list(range(len(found)))
    assert order.tolist() == Batches(table, found.survey, batch_size=16, seed=3).order(5).tolist()
    assert order.tolist() != found.order(6).tolist()
    read = []
    plain = Batches._read
    monkeypatch.setattr(Batches, "_read", lambda self, pool: read.append(pool) or plain(self, pool))
    for i in order:
        found[i]
    assert found.together > 1
    assert sorted(read) == list(range(len(found._pools)))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_processes_share_a_run_by_pools(tmp_path, monkeypatch, size):
    """Runs of 80 batches, half of eight pools: no pool is decoded by all processes."""
    monkeypatch.setattr(module, "POOL", 200)
    x = np.arange(32 * 200, dtype=np.float64)
    columns = pa.table({"x": x, "y": (x % 2).astype(np.int64)})
    pq.write_table(columns, tmp_path / "t.parquet", row_group_size=200)
    table = open_table(tmp_path / "t.parquet")
    found = survey(table, "y")
    plain, read = Batches._read, []
    monkeypatch.setattr(Batches, "_read", lambda self, pool: read.append(pool) or plain(self, pool))

    def taken(group):
        batches = Batches(table, found, batch_size=10)
        assert (len(batches._pools), batches.together) == (32, 8)
        source = feed(batches, 0, group)
        runs = [list(source.take(first, 80)) for first in range(0, len(batches), 80)]
        return [[float(x.sum()) for (x, _), *_ in run] for run in runs]

    alone = taken(Group())
    assert sorted(read) == list(range(32))
    read.clear()
    shares = [taken(Group(rank, size)) for rank in range(size)]
    for i, run in enumerate(alone):
        assert sorted(v for share in shares for v in share[i]) == pytest.approx(sorted(run))
        assert max(len(s[i]) for s in shares) - min(len(s[i]) for s in shares) <= 1
    assert len(read) <= 32 + 4 * (size - 1) * 2


def test_shares_of_processes_are_the_same_batches(table):
    whole = Batches(table, survey(table, "y"), batch_size=32, seed=1)
    order = whole.order(0)
    alone = rows_of(whole, order)
    for size in (2, 3):
        for rank in range(size):
            mine = Batches(table, whole.survey, batch_size=32, seed=1)
            for got, expected in zip(
                rows_of(mine, order[rank::size]), alone[rank::size], strict=True
            ):
                assert got.tolist() == expected.tolist()


def test_batches_of_several_pools_are_mixed(table):
    found = Batches(table, survey(table, "y"), batch_size=16)
    pools = found._plan[found.order(0), 0]
    assert len(set(pools[:16].tolist())) > 4


def test_training_and_validation_rows_part_the_table(table):
    found = survey(table, "y")
    train = np.concatenate(rows_of(Batches(table, found, part="train", share=0.3)))
    valid = np.concatenate(rows_of(Batches(table, found, part="valid", share=0.3, shuffle=False)))
    assert sorted([*train, *valid]) == list(range(997))
    assert 230 < len(valid) < 370
    other = Batches(table, found, part="valid", share=0.3, shuffle=False, split_seed=1)
    assert set(np.concatenate(rows_of(other))) != set(valid)


def test_rows_are_mixed_within_pools_and_in_order_without_shuffling(table):
    found = survey(table, "y")
    straight = np.concatenate(rows_of(Batches(table, found, shuffle=False)))
    assert straight.tolist() == list(range(997))
    mixed = np.concatenate(rows_of(Batches(table, found, batch_size=32)))
    assert (np.diff(mixed) == 1).mean() < 0.1


def test_fewer_columns_read_fewer_columns(table, monkeypatch):
    found = Batches(table, survey(table, "y"))
    asked = []
    plain = type(table).read

    def read(self, piece, names):
        asked.append(set(names))
        return plain(self, piece, names)

    monkeypatch.setattr(type(table), "read", read)
    (numeric, ids), _ = found.only(["c"])[0]
    assert (numeric.shape[1], ids.shape[1]) == (0, 1)
    assert set.union(*asked) == {"c", "y"}


def test_fewer_large_pools_are_mixed(table, monkeypatch):
    found = survey(table, "y")
    assert Batches(table, found).together == 8
    monkeypatch.setattr(module, "MEMORY", 3 * 130 * 16)
    assert Batches(table, found).together < 4
    monkeypatch.setattr(module, "MEMORY", 0)
    assert Batches(table, found).together == 1


def test_a_table_that_changed_is_noticed(table, tmp_path):
    found = survey(table, "y")
    pq.write_table(pa.table({"x": [1.0], "c": ["a"], "y": [0]}), tmp_path / "0.parquet")
    with pytest.raises(gp.InvalidInput, match="files have changed"):
        Batches(open_table(tmp_path), found)


def test_no_rows_for_a_part_is_said(tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": [0, 1]}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    with pytest.raises(gp.InvalidInput, match="for the part 'valid'"):
        len(Batches(table, survey(table, "y"), part="valid", share=1e-9))


MEASURE = """
import resource, sys
from greedypig.tables import Batches, open_table, row_batches, survey
row_batches.POOL = 1024
table = open_table(sys.argv[1])
found = Batches(table, survey(table, "y"), part="train")
assert found.together == 8
rows = sum(len(labels) for _, labels in (found[i] for i in found.order(0)))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


MEASURE_SELECT = """
import resource, sys
from functools import partial
from greedypig.cli.main import main
from greedypig.tables import row_batches, training
row_batches.POOL = 1024
training.TabularMLP = partial(training.TabularMLP, hidden=(8,))  # Time, not memory.
code = main(["select", sys.argv[1], "--label", "y", "--k", "1", "--methods", "greedy-pig",
             "--seeds", "1", "--epochs", "1",
             "--out", sys.argv[1] + "-out", "--quiet"])
assert code == 0
import json, pathlib
rows = sum(json.loads(pathlib.Path(sys.argv[1] + "-out/work/survey.json").read_text())["rows"])
print(int(0.9 * rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="measures memory as POSIX does")
@pytest.mark.parametrize("measure", [MEASURE, MEASURE_SELECT], ids=["reading", "select"])
def test_ten_times_the_data_take_the_same_memory(tmp_path, measure):
    """Both hold more rows than all lanes; ten times the data are 30 MB more even as float32.

    The whole of `greedypig select` too: looking at the columns, training, selecting, retraining.
    """

    def peak(groups):
        path, random = tmp_path / f"{groups}.parquet", np.random.default_rng(0)
        names = [f"x{i}" for i in range(40)]
        schema = pa.schema(
            [*((n, pa.float32()) for n in names), ("c", pa.string()), ("y", pa.int8())]
        )
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(groups):
                x = random.standard_normal((40, 2048), np.float32)
                writer.write_table(
                    pa.table(
                        [*x, [f"v{i}" for i in range(2048)], (x[0] > 0).astype(np.int8)],
                        schema=schema,
                    )
                )
        done = subprocess.run(
            [sys.executable, "-c", measure, str(path)],
            capture_output=True,
            text=True,
            timeout=300,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr
        read, megabytes = map(int, done.stdout.split())
        assert 0.88 * 2048 * groups < read < 0.92 * 2048 * groups
        return megabytes

    small, large = peak(10), peak(100)
    assert large < small + 15


def environment():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
