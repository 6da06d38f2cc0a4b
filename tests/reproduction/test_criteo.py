"""Train, select, retrain: each once, the same again, and honest words about what can be told."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="tables are read with pyarrow")

import greedypig as gp
from greedypig.core.errors import InvalidInput
from greedypig.tables import CRITEO, open_table
from greedypig.tables.distributed import Group
from greedypig.tables.training import Effort
from reproduction import Request, Settings, job_class, retraining, run
from reproduction import job as jobs
from reproduction.datasets import reading_of

pytestmark = pytest.mark.slow

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
PAPER = {
    "ig": (0.4827, 0.4641, 0.4605, 0.4533),
    "greedy-1": (0.4728, 0.4629, 0.4551, 0.4508),
    "greedy-5": (0.4723, 0.4627, 0.4531, 0.4509),
}
ROWS = 400


@pytest.fixture
def table(tmp_path):
    """Four columns: one tells the label, one is its copy, one helps a little, one is noise."""
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, 4))
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    y = (2 * x[:, 0] + x[:, 2] + 0.5 * random.standard_normal(ROWS) > 0).astype(int)
    lines = ["a,copy,b,noise,y"]
    lines += [",".join([*(f"{v:.6f}" for v in row), str(t)]) for row, t in zip(x, y, strict=True)]
    place = tmp_path / "small.csv"
    place.write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    settings = Settings.of("criteo")
    more = {**settings.more, "ranked": 4, "budget": 40, "batch_size": 64, "finetune": 2}
    monkeypatch.setattr(jobs.Settings, "of", lambda name: replace(settings, more=more))
    monkeypatch.setattr(retraining, "EFFORT", Effort(epochs=1))


def asked(table, tmp_path, methods=("ig", "greedy-5", "random"), **more):
    wanted = {"k": [1, 2], "models": 2, "selections": 1, "tables": [str(table)]} | more
    return Request(tmp_path / "out", methods=list(methods), **wanted)


def test_settings_hold_the_paper_s_numbers():
    found = {c.name: c for c in Settings.of("criteo").contenders}
    for name, losses in PAPER.items():
        assert tuple(found[name].paper[k] for k in ("5", "10", "20", "30")) == losses
    assert found["ig"].method() == gp.IG(steps=39)
    greedy = gp.GreedyPIG(per_round=1, steps=5, schedule="equal")
    assert found["greedy-5"].method() == greedy
    assert not any(c.paper for name, c in found.items() if name not in PAPER)


def test_the_result_has_every_method_and_the_paper_s_lines(table, tmp_path):
    result = run("criteo", asked(table, tmp_path))
    assert not result.failed
    ours = [r for r in result.table.rows if r["data"].startswith("small")]
    assert [r["method"] for r in ours] == ["ig", "greedy-5", "random"]
    for row in ours:
        assert 0 < row["k1"] < 2
        assert 0 < row["k2"] < 2
        assert row["k2_error"] is not None
        assert row["batches"] is None if row["method"] == "random" else row["batches"] <= 40
    assert len([r for r in result.table.rows if "paper" in r["data"]]) == 3
    text = (tmp_path / "out" / "criteo.md").read_text()
    assert "mean ± standard error of 2 networks" in text
    assert "small, 400 rows" in text
    assert str(tmp_path) not in text
    runs = (tmp_path / "out" / "criteo-runs.csv").read_text().splitlines()
    assert len(runs) == 1 + 2 * 3 * 2


def test_a_set_is_retrained_once_and_nothing_is_done_twice(table, tmp_path, monkeypatch):
    done = []
    real = retraining.retrain_on

    def counted(columns, train, valid, **more):
        done.append((tuple(columns), train.split_seed, more["seed"]))
        return real(columns, train, valid, **more)

    monkeypatch.setattr(retraining, "retrain_on", counted)
    request = asked(table, tmp_path)
    first = run("criteo", request)
    assert len(set(done)) == len(done)
    before = len(done)
    again = run("criteo", request)
    assert len(done) == before
    assert again.table.rows == first.table.rows
    # Every network's sets have a retraining seed of their own, and all methods share it.
    again_seeds = {(split, seed) for names, split, seed in done if len(names) < 4}
    assert len(again_seeds) == 2
    # Other columns are retrained; networks and selections stay.
    run("criteo", asked(table, tmp_path, k=[1, 2, 3]))
    assert all(len(names) == 3 for names, _, _ in done[before:])


def test_two_processes_do_the_work_of_one(table, tmp_path):
    alone = run("criteo", asked(table, tmp_path))
    request = replace(asked(table, tmp_path), out=tmp_path / "shared")

    class Apart(Group):
        """Two ranks one after the other: what a barrier is for is done by the order."""

        def barrier(self):
            pass

    first, second = (job_class("criteo")("criteo", replace(request, group=Apart(rank, 2)))
                     for rank in (0, 1))  # fmt: skip
    for stage in zip(first.stages(), second.stages(), strict=True):
        for job, batches in zip((first, second), stage, strict=True):
            job.work(batches)
    assert list(first.result().table.rows) == list(alone.table.rows)


def test_mask_finetuning_adds_its_own_lines(table, tmp_path):
    result = run("criteo", asked(table, tmp_path, k=[2], mask_finetune=True, models=1))
    lines = [(r["method"], r["baseline"]) for r in result.table.rows if r["data"][:5] == "small"]
    tuned = "zero, mask-fine-tuned"
    assert lines == [("ig", "zero"), ("greedy-5", "zero"), ("random", ""), ("ig", tuned),
                     ("greedy-5", tuned)]  # fmt: skip


def test_generated_rows_have_a_truth_and_sources(tmp_path):
    request = asked("generated", tmp_path, methods=("truth", "random"), rows=600, k=[5], models=1)
    result = run("criteo", request)
    rows = {r["method"]: r for r in result.table.rows if r["data"].startswith("generated")}
    assert rows["truth"]["sources"] == 18
    assert rows["random"]["sources"] < 18


def test_earlier_retrainings_with_one_seed_for_all_are_not_taken(table, tmp_path):
    """They were called top-…; networks and selections, which mean the same, are taken."""
    run("criteo", asked(table, tmp_path, models=1))
    kept = sorted(p.name for p in (tmp_path / "out" / "rows" / "criteo" / "small").glob("*.json"))
    assert {name.split("-")[0] for name in kept} == {"network", "order", "retrained"}


def test_both_baselines_stand_beside_each_other_with_who_is_ahead(table, tmp_path):
    result = run("criteo", asked(table, tmp_path, models=1, baseline=["zero", "conditional"]))
    lines = [(r["method"], r["baseline"]) for r in result.table.rows if r["data"][:5] == "small"]
    assert lines == [("ig", "zero"), ("greedy-5", "zero"), ("random", ""), ("ig", "conditional"),
                     ("greedy-5", "conditional")]  # fmt: skip
    found = [(d["variant"], d["k"]) for d in result.about["differences"]]
    assert found == [("zero", 1), ("zero", 2), ("conditional", 1), ("conditional", 2)]
    first = next(r for r in result.remarks if r.startswith("Least mean loss first"))
    for words in (
        "k = 1",
        "k = 2",
        "IG, zero",
        "IG, conditional",
        "Greedy PIG (T = 5), conditional",
    ):
        assert words in first


def test_criteo_s_own_layout_is_known(tmp_path):
    place = tmp_path / "train.tsv.gz"
    numbers, hashes = [str(i) for i in range(13)], [f"{i:08x}" for i in range(26)]
    with gzip.open(place, "wt") as file:
        for i in range(40):
            file.write("\t".join([str(i % 2), *numbers[: i % 13], *[""] * (13 - i % 13), *hashes]))
            file.write("\n")
    table = open_table(place)
    assert tuple(table.kinds) == CRITEO
    reading = reading_of(table)
    assert reading.log == CRITEO[1:14]
    assert reading.categorical == CRITEO[14:]


def test_a_table_without_a_known_label_asks_for_one(table, tmp_path):
    table.write_text(table.read_text().replace("noise,y", "noise,outcome"))
    with pytest.raises(InvalidInput, match="Try --label"):
        run("criteo", asked(table, tmp_path))
    assert run("criteo", asked(table, tmp_path, label="outcome", k=[1], models=1)).table.rows


def test_k_must_leave_a_column_out(table, tmp_path):
    with pytest.raises(InvalidInput, match="below the 4 columns"):
        run("criteo", asked(table, tmp_path, k=[4]))


@pytest.mark.parametrize(("file", "columns", "rows"), [("criteo_12k_39.tsv.gz", 39, 12_584),
                                                 ("criteo_45k_20.csv.gz", 20, 45_840)])  # fmt: skip
def test_real_samples_open_as_criteo_s(file, columns, rows, tmp_path):
    place = SHARED / file
    if not place.is_file():
        pytest.skip(f"{file} is not among the shared data")
    job = job_class("criteo")("criteo", asked(place, tmp_path))
    dataset = job.experiments[0].dataset
    schema = dataset.survey.schema
    assert (len(dataset.names), dataset.survey.total) == (columns, rows)
    assert all(number.log for number in schema.numbers)
    assert len(schema.numbers) == 13
    assert 0.2 < schema.label.mean < 0.3
