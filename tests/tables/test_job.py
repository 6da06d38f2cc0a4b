"""`SelectJob`: the job of `greedypig select` from Python."""

import gc
import html
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.cli.main import main
from greedypig.network.distributed import Group
from greedypig.network.fingerprint import fingerprint
from greedypig.tables import Batches, Reading, SelectJob, evaluate, job, open_table, survey
from greedypig.tables.given_model import adapt, batches_for
from greedypig.tables.plan import Plan

NAMES, WEIGHTS = "abcde", (3, 2, 1, 0.5, 0)
PAGE = "t-selection/selection.html"
QUICK = {"ks": (2, 4), "seeds": 1, "epochs": 1}


class Linear(nn.Module):
    """Σ weight · column, in another unit."""

    def __init__(self, unit=lambda z: z):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(WEIGHTS, dtype=torch.float32))
        self.unit = unit

    def forward(self, x):
        return self.unit((x @ self.weight).unsqueeze(1))


def columns(rows=600):
    x = np.random.default_rng(0).standard_normal((5, rows))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)  # As models get them.
    return x, np.array(WEIGHTS) @ x


@pytest.fixture
def table(tmp_path):
    """600 rows, of which the columns matter in the order of the alphabet."""
    x, score = columns()
    y = np.random.default_rng(1).random(600) < 1 / (1 + np.exp(-score))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**dict(zip(NAMES, x, strict=True)), "y": y.astype(int)}), path)
    return path


@pytest.mark.slow
def test_the_page_is_that_of_the_command(table, monkeypatch):
    pytest.importorskip("rich", reason="needs the extra cli")
    monkeypatch.chdir(table.parent)
    text = pq.read_table(table).to_pandas().assign(leak=lambda t: t.y)
    text.to_csv("t.csv", index=False)
    words = ["select", "t.csv", "--label", "y", "--k", "2,4", "--seeds", "1", "--epochs", "1"]
    assert main([*words, "--json"]) == 0
    command = gp.load("t-selection/selection.gpig")
    with pytest.warns(UserWarning, match=r"leave it out. Try drop=\('leak',\)."):
        a = SelectJob("t.csv", "y", **QUICK).run()
    assert a.top(6) == command.top(6)
    assert a.values.tolist() == command.values.tolist()
    replace(a.with_notes({"command": command.about.command}), seconds=command.seconds).to_html("m")
    mine, page = (html.unescape(Path(name).read_text()) for name in ("m", PAGE))
    assert mine.count("Try drop=('leak',).") == page.count("Try --drop leak.") == 1
    assert mine.replace("drop=('leak',)", "--drop leak") == page


@pytest.mark.slow
def test_work_that_is_done_is_not_done_again_and_more_is_added(table, tmp_path, monkeypatch):
    trained, plain = [], job.retrain

    def watched(*args, watch, **more):
        return plain(*args, watch=lambda training, _: trained.append(training), **more)

    def losses(**options):
        one = SelectJob(table, "y", model=Linear(), folder=tmp_path / "f", **QUICK | options)
        return one.run().about.selection.losses

    first = losses()
    monkeypatch.setattr(job, "retrain", watched)
    assert losses() == first
    assert trained == []
    more = losses(seeds=2)
    assert {t.seed for t in trained} == {1}
    assert more["ig"][2].standard_error is not None
    assert set(losses(ks=(1, 4))["ig"]) == {1, 4}


@pytest.mark.slow
def test_progress_counts_the_stages_and_a_stopped_job_goes_on(table, tmp_path):
    whole = SelectJob(table, "y", model=Linear(), **QUICK).run()
    stopped = SelectJob(table, "y", model=Linear(), folder=tmp_path / "f", **QUICK)

    def stop(done, total):
        assert total == 6  # Columns, model, losses, two methods, retraining.
        if done > 3.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.run(progress=stop)
    assert stopped.stage == "selecting by greedy-pig"
    seen = []
    a = stopped.run(progress=lambda done, total: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 6
    assert a.order.tolist() == whole.order.tolist()
    assert a.about.selection == whole.about.selection


@pytest.mark.slow
def test_the_caller_s_model_and_table_stay_as_they_are(table, tmp_path):
    model = Linear().double().train()
    text = tmp_path / "t.csv"
    pq.read_table(table).to_pandas().to_csv(text, index=False)
    opened, before = open_table(text), fingerprint(model)
    a = SelectJob(opened, "y", model=model, **QUICK).run()
    gc.collect()  # The job's temporary folder goes.
    assert opened.read(0, ["a"]).num_rows == 600
    assert fingerprint(model) == before
    assert model.training
    assert a.about.model == "Linear"
    assert a.top(3) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"label": None}, "Expected label, the column to predict, of a, b, c, d, e, y"),
        ({"ks": (6,)}, "Expected ks of at most 5, .* Try ks=\\(5,\\)"),
        ({"ks": (0,)}, "Expected ks to be a whole number ≥ 1"),
        ({"seeds": 0}, "Expected seeds to be"),
        ({"methods": ("magic",)}, "Expected methods among greedy-pig, "),
        ({"methods": ("random", "ig")}, "Expected methods of which the first one ranks columns"),
        ({"drop": ("w",)}, "'w'"),
        ({"group": Group(0, 2)}, "Expected folder for several processes"),
    ],
)
def test_a_wrong_argument_is_named(table, options, part):
    with pytest.raises(gp.InvalidInput, match=part):
        SelectJob(table, **{"label": "y"} | options)


def test_the_work_of_another_job_is_left_alone(table, tmp_path):
    options = {"folder": tmp_path / "f", "model": Linear(), "methods": ("ig",)} | QUICK
    SelectJob(table, "y", **options).run()
    before = sorted((tmp_path / "f").rglob("*"))
    with pytest.raises(gp.InvalidInput, match=r"epochs of the stopped run, 1 \(got 2\)") as caught:
        SelectJob(table, "y", **options | {"epochs": 2}).run()
    assert "resume=False to begin anew, with another folder to keep" in str(caught.value)
    assert sorted((tmp_path / "f").rglob("*")) == before


def test_which_units_are_taken_is_found_from_the_rows(tmp_path):
    x, score = columns()
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**dict(zip(NAMES, x, strict=True)), "y": 50 + 10 * score}), path)
    table = open_table(path)
    batches = Batches(table, survey(table, "y"))
    label = batches.schema.label
    raw = Linear(lambda z: 50 + 10 * z)
    standard = Linear(lambda z: (50 + 10 * z - label.mean) / label.deviation)
    for model, note in ((raw, "'y' in its own units"), (standard, "")):
        assert note in adapt(model, batches)
        assert evaluate(model, batches_for(model, batches)).loss < 1e-6


def plan(ks=(), model=None):
    return Plan("y", Reading(), ks, 1, 0, ("ig",), model, None)


@pytest.mark.parametrize(
    ("model", "categories", "numbers", "baseline"),
    [
        (None, 26, 13, "conditional"),
        ("my:model", 26, 13, "zero"),
        (None, 300, 10, "zero"),
        (None, 0, 1500, "conditional"),
    ],
)
def test_the_usual_baseline_asks_what_suffices_of_our_own_network(
    model, categories, numbers, baseline
):
    schema = SimpleNamespace(numbers=range(numbers), categories=range(categories))
    assert plan((5,), model).settled(schema).baseline == baseline


@pytest.mark.parametrize(
    ("columns", "ks"),
    [
        (1, (1,)),
        (3, (1, 2)),
        (11, (1, 2, 3, 5, 7, 10)),
        (20, (1, 2, 3, 5, 7, 10)),
        (21, (5, 10, 20)),
        (31, (5, 10, 20, 30)),
    ],
)
def test_a_table_of_few_columns_is_retrained_on_one_two_and_three(columns, ks):
    schema = SimpleNamespace(numbers=range(columns - 1), categories=range(1))
    assert plan().settled(schema).ks == ks
