"""Train, select, retrain: each once, the same again, and honest words about what is certain."""

import csv
import gzip
import threading
from argparse import Namespace

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="tables are read with pyarrow")

from greedypig.core.errors import InvalidInput
from greedypig.network.distributed import ALONE, Group
from greedypig.results.table_notes import student
from greedypig.tables import CRITEO, Effort, open_table
from reproduction import criteo, experiment

ROWS = 400


@pytest.fixture
def table(tmp_path):
    """Four columns: one tells the label, one is its copy, one helps a little, one is noise."""
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, 4))
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    y = (2 * x[:, 0] + x[:, 2] + 0.5 * random.standard_normal(ROWS) > 0).astype(int)
    lines = ["a,copy,b,noise,label"]
    lines += [",".join([*(f"{v:.6f}" for v in row), str(t)]) for row, t in zip(x, y, strict=True)]
    place = tmp_path / "small.csv"
    place.write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture
def quick(monkeypatch):
    settings = experiment.read_settings("criteo")
    small = {**settings, "ranked": 4, "budget": 40, "batch_size": 64, "finetune": 2}
    monkeypatch.setattr(experiment, "read_settings", lambda name: small)
    monkeypatch.setattr(criteo, "EFFORT", Effort(epochs=1))


OPTIONS = ("label", "rows", "loyalty", "baseline")


def run(table, out, methods=("ig", "greedy-5", "random"), group=ALONE, **more):
    """The reproduction with these options, on one table."""
    given = dict.fromkeys(OPTIONS) | {"mask_finetune": False, "start": "zero"}
    given |= {"seed": 0, "resume": True}
    given |= {"k": [1, 2], "models": 2, "selections": 1, "tables": [str(table)], "out": out}
    args = Namespace(**given | {"methods": list(methods)} | more)
    result = experiment.Experiment("criteo", args, group=group)
    criteo.reproduce(result)
    return result


def lines_of(result, start="small"):
    rows = [row for row in result.table.rows if row["data"].startswith(start)]
    return [(row["method"], row["baseline"]) for row in rows]


@pytest.mark.slow
def test_the_result_has_every_method_and_the_paper_s_lines(table, tmp_path, quick):
    methods = ["ig", "greedy-1", "greedy-5", "permutation", "random"]
    result = run(table, tmp_path / "out", methods)
    assert not result.failed
    ours = [r for r in result.table.rows if r["data"].startswith("small")]
    assert [r["method"] for r in ours] == methods
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
    with (tmp_path / "out" / "criteo-runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert len(runs) == 2 * 5 * 2
    losses = [float(r["loss"]) for r in runs if (r["method"], r["k"]) == ("ig", "2")]
    assert ours[0]["k2"] == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.slow
def test_a_set_is_retrained_once_and_nothing_is_done_twice(table, tmp_path, monkeypatch, quick):
    done, plain = [], criteo.retrain_on

    def counted(columns, train, valid, **more):
        done.append((tuple(columns), train.split_seed, more["seed"]))
        return plain(columns, train, valid, **more)

    monkeypatch.setattr(criteo, "retrain_on", counted)
    first = run(table, tmp_path / "out")
    assert len(set(done)) == len(done)
    before = len(done)
    again = run(table, tmp_path / "out")
    assert len(done) == before
    assert again.table.rows == first.table.rows
    # Every network's sets have a retraining seed of their own, and all methods share it.
    assert len({(split, seed) for names, split, seed in done if len(names) < 4}) == 2
    # Other columns are retrained; networks and selections stay.
    run(table, tmp_path / "out", k=[1, 2, 3])
    assert all(len(names) == 3 for names, _, _ in done[before:])


@pytest.mark.slow
def test_two_processes_do_the_work_of_one(table, tmp_path, quick):
    alone = run(table, tmp_path / "out")
    barrier = threading.Barrier(2, timeout=120)

    class Beside(Group):
        """Two ranks as threads."""

        def barrier(self):
            barrier.wait()

    results = {}

    def rank(number):
        results[number] = run(table, tmp_path / "shared", group=Beside(number, 2))

    threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results[0].table.rows) == list(alone.table.rows)
    assert results[1].files == []


@pytest.mark.slow
def test_variants_add_their_own_lines(table, tmp_path, quick):
    lines = [(method, "zero") for method in ("ig", "greedy-5")] + [("random", "")]
    result = run(table, tmp_path / "out", models=1, baseline=["zero", "conditional"])
    conditional = [(method, "conditional") for method in ("ig", "greedy-5")]
    assert lines_of(result) == lines + conditional
    with (tmp_path / "out" / "criteo-differences.csv").open() as file:
        pairs = [(r["variant"], int(r["k"])) for r in csv.DictReader(file)]
    assert pairs == [("zero", 1), ("zero", 2), ("conditional", 1), ("conditional", 2)]
    result = run(table, tmp_path / "out", models=1, mask_finetune=True)
    tuned = [(method, "zero, mask-fine-tuned") for method in ("ig", "greedy-5")]
    assert lines_of(result) == lines + tuned


@pytest.mark.slow
def test_generated_rows_have_a_truth_and_sources(tmp_path, quick):
    methods = ("truth", "random", "ig")
    result = run("generated", tmp_path / "out", methods, rows=600, k=[5], models=1)
    rows = {r["method"]: r for r in result.table.rows if r["data"].startswith("generated")}
    assert rows["truth"]["sources"] == 18
    assert rows["random"]["sources"] < 18
    with (tmp_path / "out" / "criteo-differences.csv").open() as file:
        (difference,) = csv.DictReader(file)
    assert (difference["one"], difference["other"]) == ("ig", "truth")
    assert float(difference["other_copies"]) == 0
    assert float(difference["one_signal"]) <= float(difference["other_signal"])


def test_criteo_s_own_layout_is_known(tmp_path):
    place = tmp_path / "train.tsv.gz"
    numbers, hashes = [str(i) for i in range(13)], [f"{i:08x}" for i in range(26)]
    with gzip.open(place, "wt") as file:
        for i in range(40):
            file.write("\t".join([str(i % 2), *numbers[: i % 13], *[""] * (13 - i % 13), *hashes]))
            file.write("\n")
    table = open_table(place)
    assert tuple(table.kinds) == CRITEO


@pytest.mark.parametrize(
    ("more", "message"),
    [({"k": [4]}, "below the 4 columns"), ({"label": "outcome"}, "'outcome'")],
)
def test_k_must_leave_a_column_out_and_the_label_be_there(table, tmp_path, more, message):
    with pytest.raises(InvalidInput, match=message):
        run(table, tmp_path / "out", **more)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--k", "5,many"), "whole number"),
        (("--k", "0"), "whole number"),
        (("--baseline", "zero,median"), "zero, mean, conditional"),
        (("--baseline", "conditional", "--mask-finetune"), "zero or mean"),
        (("--rows", "0"), "at least 1"),
        (("--loyalty", "2", "--tables", "generated"), "loyalty from 0 to 1"),
        (("--methods", "greedy"), "Did you mean 'greedy-"),
        (("--tables", "nowhere.csv"), "Expected tables at nowhere.csv"),
    ],
)
def test_wrong_words_get_one_sentence(call, words, message):
    code, out, err = call("reproduce", "criteo", *words)
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_table_of_one_s_own_is_measured(answer, place):
    rows = [f"{i % 7},{(i * i) % 5},{int(i % 7 > 3)}" for i in range(200)]
    (place / "own.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    words = ("--tables", "own.csv", "--label", "y", "--k", "1", "--models", "1", "--budget", "40")
    record = answer("reproduce", "criteo", *words, "--methods", "ig,greedy-5", "--out", "out")
    ours = [r for r in record["rows"] if r["data"] == "own, 200 rows"]
    assert [r["method"] for r in ours] == ["ig", "greedy-5"]
    assert all(r["k1"] < 0.5 for r in ours)  # `a` tells the label; `b` alone leaves 0.68.
    page = (place / "out" / "criteo.md").read_text()
    assert "own.csv" in page
    assert "the same columns" in page


def test_three_networks_are_three_values_however_many_selections():
    values = {(m, s): m + 10.0 * (s - 1) for m in range(3) for s in range(3)}
    mean, error, count, over = criteo.estimate(values)
    assert (mean, count, over) == (1.0, 3, "networks")
    assert error == pytest.approx(1 / 3**0.5)


def test_two_networks_are_judged_by_all_selections():
    mean, error, count, over = criteo.estimate({(0, 0): 1.0, (0, 1): 3, (1, 0): 5, (1, 1): 7})
    assert (mean, count, over) == (4.0, 4, "selections")
    assert error == pytest.approx((20 / 3) ** 0.5 / 2)
    assert criteo.estimate({})[0] is None


@pytest.mark.parametrize(
    ("mean", "error", "count", "verdict"),
    [
        (-0.02, 0.005, 4, "Greedy PIG (T = 5) ahead"),
        (0.02, 0.005, 4, "IG ahead"),
        (-0.02, 0.005, 3, "not certain"),  # 4.0 errors, of which three values need 4.3.
        (-0.02, 0.009, 30, "Greedy PIG (T = 5) ahead"),
        (-0.02, 0.01, 30, "not certain"),
        (-0.02, None, 1, "not certain"),
    ],
)
def test_a_difference_is_one_outside_student_s_interval(mean, error, count, verdict):
    interval = None if error is None else student(count - 1) * error
    assert criteo.verdict("greedy-5", "ig", mean, interval) == verdict
    record = {
        "one": "greedy-5",
        "other": "ig",
        "variant": "zero",
        "k": 5,
        "mean": mean,
        "error": error,
        "count": count,
        "over": "networks",
        "verdict": verdict,
    }
    (sentence,) = criteo.in_words("a table", [record])
    assert f"mean ± standard error of {count} networks" in sentence
    number = f"{mean:+.4f}" + ("" if error is None else f" ± {error:.4f}")
    assert f"k = 5: {number}, {verdict}" in sentence
