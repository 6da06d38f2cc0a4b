"""`greedypig select`: the right columns first, checked by retraining; files and wrong commands."""

import csv
import html
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq
import tiny_tables

import greedypig as gp
from agreement import agree_in_numbers
from conftest import environment
from greedypig.core import carry_out
from greedypig.results import storage
from greedypig.tables import job

QUICK = ("--seeds", "1", "--epochs", "1")
OWN = ("--model", "tiny_tables:build")
NAMES = "abcde"
SELECT = ("select", "t.parquet", "--label", "y")
SMALL = ("--seeds", "1", "--epochs", "4")
ARGS = (*SELECT, *OWN, "--k", "2,4", *QUICK)


def rows(n=600, seed=0, task="binary"):
    random = np.random.default_rng(seed)
    x = random.standard_normal((5, n))
    score = x.T @ np.array([3, 2, 1, 0.5, 0])
    if task == "number":
        y = score
    elif task == "classes":
        y = np.digitize(score, [-2, 2])
    else:
        y = (random.random(n) < 1 / (1 + np.exp(-score))).astype(int)
    return pa.table({**dict(zip(NAMES, x, strict=True)), "y": y})


@pytest.fixture
def table(place):
    """t.parquet in the current directory: the columns matter in the order of the alphabet."""
    pq.write_table(rows(), place / "t.parquet", row_group_size=100)
    return place


def words(text):
    return " ".join(text.split())


# What is record, and where it is written.


@pytest.mark.slow
def test_a_network_is_trained_and_the_columns_that_matter_come_first(answer, table):
    record = answer(*SELECT, "--k", "1,2,5", *SMALL, "--seeds", "2")
    assert record["order"][:2] == ["a", "b"]
    assert sorted(record["order"]) == list(NAMES)
    assert list(record["losses"]) == ["greedy-pig", "ig", "random"]
    for by_k in record["losses"].values():
        assert list(by_k) == ["1", "2", "5"]
        assert all(v["mean"] > 0 and v["standard_error"] >= 0 for v in by_k.values())
        assert by_k["5"]["mean"] == pytest.approx(record["loss_all"])
    greedy = [v["mean"] for v in record["losses"]["greedy-pig"].values()]
    assert greedy[0] > greedy[1] > greedy[2] - 0.05
    assert record["losses"]["random"]["1"]["mean"] > greedy[0]
    assert (record["method"], record["gradients"]) == ("greedy-pig", 5 * 5)
    assert record["settings"]["label"] == "y"
    assert record["rows"]["train"] + record["rows"]["valid"] == 600
    names = [f.rpartition("/")[2] for f in record["files"]]
    assert names == [f"selection.{e}" for e in ("gpig", "md", "csv", "png", "html")]
    assert all((table / f).stat().st_size > 100 for f in record["files"])


@pytest.mark.slow
def test_the_files_hold_the_same_numbers_and_the_page_is_drawn_again(call, answer, table):
    record = answer(*SELECT, *OWN, "--k", "2", *QUICK, "--out", "o")
    loss = record["losses"]["greedy-pig"]["2"]["mean"]
    with open("o/selection.csv") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert list(lines) == ["greedy-pig", "ig", "random", "constant prediction", "all columns"]
    assert float(lines["greedy-pig"]["loss"]) == loss
    assert json.loads(lines["greedy-pig"]["columns"]) == ["a", "b"]
    assert f"| greedy-pig | {loss:.4f} |" in words((table / "o/selection.md").read_text())
    page = (table / "o/selection.html").read_bytes()
    assert f"{loss:.4f}".encode() in page
    assert call("report", "o/selection.gpig", "--out", "again.html")[0] == 0
    assert (table / "again.html").read_bytes() == page
    a = gp.load("o/selection.gpig")
    assert a.top(5) == list(NAMES)
    assert a.about.selection.losses["greedy-pig"][2].mean == loss


@pytest.mark.slow
def test_people_get_a_table(call, table):
    code, out, err = call(*SELECT, *OWN, "--k", "1,3", *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("t.parquet: 5 columns, ")
    label = r"validation rows; label y: 2 classes: [01] \(\d\d %\), [01] \(\d\d %\)"
    assert re.search(label, " ".join(lines[:3]))
    assert "best first: a, b, c" in out
    at = next(i for i, line in enumerate(lines) if line.split() == ["k", "1", "3"])
    methods = ["greedy-pig", "ig", "random", "constant", "all"]
    assert [line.split()[0] for line in lines[at + 1 : at + 6]] == methods
    assert "one seed" in out
    assert "t-selection" in out
    assert max(map(len, lines)) <= 80
    assert call(*SELECT, *OWN, "--k", "1", *QUICK, "--quiet")[:2] == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(("task", "metric"), [("number", "squared error"), ("classes", "log-loss")])
def test_numbers_and_classes_are_predicted_too(answer, place, task, metric):
    pq.write_table(rows(task=task), place / "t.parquet")
    pq.write_table(rows(200, 1, task), place / "v.parquet")
    record = answer(*SELECT, "--valid", "v.parquet", "--k", "2", *SMALL)
    assert record["metric"] == metric
    assert record["order"][0] == "a"
    assert record["rows"] == {"train": 600, "valid": 200}
    assert (record["accuracy_all"] is None) == (task == "number")
    train, valid = rows(600, 0, task)["y"].to_numpy(), rows(200, 1, task)["y"].to_numpy()
    if task == "number":
        constant = ((valid - train.mean()) ** 2).mean()
        for name, by in record["losses"].items():
            assert record["r2"][name]["2"] == pytest.approx(1 - by["2"]["mean"] / valid.var())
    else:
        rates = np.bincount(train) / 600
        constant = -np.log(rates[valid]).mean()
        assert record["constant"]["accuracy"] == (valid == rates.argmax()).mean()
        assert record["r2"] == {}
    assert record["loss_constant"] == pytest.approx(constant)
    text = words((place / "t-selection/selection.md").read_text())
    assert f"| constant prediction | {constant:{'.5g' if task == 'number' else '.4f'}} |" in text
    assert ("R² of these losses" in text) == (task == "number")
    with open(place / "t-selection/selection.csv") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert float(lines["constant prediction"]["loss"]) == pytest.approx(constant)
    assert (lines["all columns"]["r2"] == "") == (task != "number")


@pytest.mark.slow
def test_columns_that_do_not_help_are_named(call, place):
    for file, sign in (("t.parquet", 1), ("v.parquet", -1)):
        a = np.random.default_rng(3).standard_normal(400)
        pq.write_table(pa.table({"a": a, "b": -a, "y": (sign * a > 0).astype(int)}), place / file)
    code, out, _ = call(*SELECT, "--valid", "v.parquet", "--k", "1", *SMALL)
    assert code == 0
    assert "The columns do not help" in words(out)
    assert "constant prediction (log-loss 0.69" in words(out)


@pytest.mark.slow
def test_copies_are_not_selected_with_the_conditional_baseline(answer, place):
    random = np.random.default_rng(0)
    a, b, c = random.standard_normal((3, 2000))
    copies = {f"a{i}": a + 0.01 * random.standard_normal(2000) for i in range(3)}
    y = 3 * a + b + 0.2 * c
    pq.write_table(pa.table(copies | {"b": b, "c": c, "y": y}), place / "t.parquet")
    record = answer(*SELECT, "--k", "2", "--seeds", "1", "--methods", "greedy-pig")
    assert record["settings"]["baseline"] == "conditional"  # The default.
    assert record["settings"]["batch_size"] == pytest.approx(2000 * 0.7 / 16, rel=0.05)
    assert record["settings"]["valid_share"] == 0.3
    assert record["settings"]["epochs"] >= 20
    assert "b" in record["order"][:2]
    assert record["order"][:2] != ["b", "c"]


@pytest.mark.slow
def test_where_nothing_more_is_gained_is_said_everywhere(answer, call, place):
    # The model's weights are the label's: 3, 2, 1, 0.5, and 0 of e.
    pq.write_table(rows(task="number"), place / "t.parquet")
    command = (*SELECT, *OWN, "--k", "1,5", *QUICK)
    record = answer(*command)
    assert record["useful"] == 4
    assert record["order"] == list(NAMES)
    sentence = "Nothing is gained after 4 columns (the last one is 'd')"
    assert sentence in words(call(*command, "--resume")[1])
    folder = place / "t-selection"
    assert sentence in (folder / "selection.md").read_text()
    page = (folder / "selection.html").read_text()
    assert sentence in html.unescape(page)


# Columns.


def messy(place):
    """600 rows: `row` numbers them, c has gaps, f and g are noise."""
    table = rows()
    random = np.random.default_rng(5)
    gaps = np.where(random.random(600) < 0.2, np.nan, table["c"].to_numpy())
    table = table.set_column(2, "c", pa.array(gaps))
    for name in "fg":
        table = table.append_column(name, pa.array(random.normal(size=600)))
    table = table.append_column("row", pa.array(random.permutation(600)))
    pq.write_table(table, place / "m.parquet")
    return "select", "m.parquet", "--label", "y", "--k", "1,3", *QUICK


@pytest.mark.slow
def test_warnings_are_in_every_file_also_after_a_resume(answer, place):
    command = messy(place)
    record = answer(*command)
    left, filled = record["warnings"]
    assert "number the rows: 'row' (is 0 to 599, each once)" in left
    assert "--categorical row" in left
    assert "missing indicator" in filled
    assert record["left_out"] == ["row"]
    assert "row" not in record["order"]
    assert answer(*command, "--resume")["warnings"] == record["warnings"]
    folder = place / "m-selection"
    a = gp.load(folder / "selection.gpig")
    assert list(a.about.selection.warnings) == record["warnings"]
    for name in ("selection.md", "selection.html"):
        text = html.unescape((folder / name).read_text())
        assert left in text
        assert filled in text


@pytest.mark.slow
def test_a_row_number_is_ranked_on_request(answer, call, place):
    command = messy(place)
    record = answer(*command, "--categorical", "row")
    assert "row" in record["order"]
    assert record["left_out"] == []
    assert not [w for w in record["warnings"] if "'row'" in w]
    code, _, err = call("select", "m.parquet", "--label", "y", "--k", "8", "--out", "n")
    assert code == 2
    assert "--k of at most 7" in words(err)
    assert "--categorical row" in words(err)
    code, _, err = call(*command, "--categorical", "rwo")
    assert code == 2
    assert "'rwo'" in err


@pytest.mark.slow
def test_texts_categories_and_a_folder_of_csv(answer, place):
    (place / "days").mkdir()
    for i in range(2):
        table = rows(300, i)
        sign = np.where(table["a"].to_numpy() > 0, "plus", "minus")
        table = table.set_column(0, "a", pa.array(sign)).append_column("id", pa.array(range(300)))
        lines = [",".join(table.column_names)]
        lines += [",".join(str(v) for v in row.values()) for row in table.to_pylist()]
        (place / f"days/{i}.csv").write_text("\n".join(lines))
    record = answer("select", "days", "--label", "y", "--drop", "id", "--k", "2", *SMALL)
    assert set(record["order"][:2]) == {"a", "b"}
    assert "id" not in record["order"]
    schema = json.loads((place / "days-selection/schema.json").read_text())
    assert [c["name"] for c in schema["categories"]] == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--drop", "size, cm", "--drop", "id"), ("--drop", '"size, cm",id')],
)
def test_names_with_commas_can_be_given(answer, place, options):
    table = rows(200).append_column("size, cm", pa.array(range(200)))
    table = table.append_column("id", pa.array(range(200))).append_column(
        "a kind, b", pa.array([1, 2] * 100)
    )
    pq.write_table(table, place / "t.parquet")
    answer(*SELECT, *options, "--categorical", "a kind, b", "--k", "1", *QUICK)
    schema = json.loads((place / "t-selection/schema.json").read_text())
    assert [c["name"] for c in schema["numbers"]] == list(NAMES)
    assert [c["name"] for c in schema["categories"]] == ["a kind, b"]


@pytest.mark.slow
def test_a_table_in_folders_is_validated_on_a_folder_of_its_own(answer, place):
    for day in range(3):
        (place / f"days/day={day}").mkdir(parents=True)
        pq.write_table(rows(200, day), place / f"days/day={day}/p.parquet")
    tables = ("days/day=[01]", "--valid", "days/day=2")
    record = answer("select", *tables, "--label", "y", "--k", "2", *SMALL)
    assert sorted(record["order"]) == sorted([*NAMES, "day"])
    assert record["rows"] == {"train": 400, "valid": 200}


@pytest.mark.slow
def test_a_leaked_label_is_warned_of(call, place):
    table = rows()
    pq.write_table(table.append_column("leak", table["y"]), place / "t.parquet")
    _, out, err = call(*SELECT, "--k", "1", *SMALL)
    assert words(err).count("'leak' equal the label 'y'") == 1
    assert "--drop leak" in words(err)
    assert "best first: leak" in out


# Wrong commands.


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--label", "z"), "'z'"),
        ((), "--label, the column to predict, of a, b, c, d, e, y"),
        (("--label", "y", "--k", "6"), "at most 5, the number of columns"),
        (("--label", "y", "--k", "two"), "'two'"),
        (("--label", "y", "--drop", "w"), "'w'"),
        (("--label", "y", "--methods", "magic"), "'magic'"),
        (("--label", "y", "--methods", "random"), "the first one ranks columns"),
        (("--label", "y", "--valid", "none.parquet"), "none.parquet"),
        (("--label", "y", "--model", "tiny_tables:nothing"), "torch.nn.Module"),
        (("--label", "y", "--device", "abacus"), "a device of this machine"),
    ],
)
def test_a_wrong_command_is_an_error_of_one_sentence(call, table, options, part):
    code, out, err = call("select", "t.parquet", *options, *QUICK)
    assert (code, out) == (2, "")
    assert part in words(err)


def test_damaged_and_foreign_files(call, table):
    (table / "half.parquet").write_bytes((table / "t.parquet").read_bytes()[:-50])
    code, _, err = call("select", "half.parquet", "--label", "y")
    assert code == 2
    assert "half.parquet (got one that is cut off or damaged" in words(err)
    (table / "o").mkdir()
    (table / "o/selection.csv").write_text("mine")
    code, _, err = call("select", "t.parquet", "--label", "y", *OWN, *QUICK, "--out", "o")
    assert code == 2
    assert "left alone" in words(err)
    assert (table / "o/selection.csv").read_text() == "mine"


def test_a_folder_called_work_that_is_not_ours_is_left_alone(call, table):
    mine = table / "work" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    for name, content in ((None, ""), ("job.json", "{}")):
        if name is not None:
            (table / "work" / name).write_text(content)
        code, _, err = call(*SELECT, *OWN, *QUICK, "--out", ".")
        assert code == 2
        assert "left alone). Try --out FOLDER." in words(err)
        assert mine.read_text() == "mine"


DAMAGED = {"cut off": '{"greedypig": ', "nested": '{"greedypig": ' + "[" * 100_000}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_of_a_stopped_job_is_one_sentence(call, table, content):
    (table / "t-selection" / "work").mkdir(parents=True)
    (table / "t-selection" / "work" / "job.json").write_text(DAMAGED[content])
    code, _, err = call(*ARGS, "--resume")
    assert code == 2
    assert "Expected t-selection/work/job.json as greedypig wrote it (got: " in words(err)


def test_a_table_of_the_label_alone_has_nothing_to_choose_from(call, place):
    (place / "t.csv").write_text("y\n0\n1\n")
    for more in ((), ("--k", "1")):
        code, _, err = call("select", "t.csv", "--label", "y", *more)
        assert code == 2
        assert "Expected columns besides the label 'y' in t.csv (got none). Try " in words(err)


@pytest.mark.parametrize("name", ["gone.json", "latin.json"])
def test_a_schema_of_the_model_that_cannot_be_read_is_one_sentence(call, table, monkeypatch, name):
    (table / "latin.json").write_bytes("ä".encode("latin1"))
    monkeypatch.setenv("SCHEMA", name)
    code, _, err = call(*SELECT, "--model", "tiny_tables:with_schema", *QUICK)
    assert code == 2
    assert name in words(err)
    assert words(err).startswith("error: Expected ")


# Stopping and going on.


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "at"), [("greedy-pig", 4), ("ig", 1), ("retraining", 3)])
def test_a_stopped_run_goes_on_to_the_same_answer(call, answer, table, monkeypatch, stage, at):
    whole = answer(*ARGS, "--out", "whole")
    left, plain = [at], job.SelectJob.advance

    def advance(self, share):
        plain(self, share)
        left[0] -= self.stage.endswith(stage)
        if left[0] == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(job.SelectJob, "advance", advance)
        code, out, err = call(*ARGS)
    assert (code, out) == (1, "")
    assert "Stopped while" in err
    assert "--resume" in err
    if stage == "greedy-pig":
        assert len(gp.load("t-selection/work/greedy-pig.partial.gpig").picks) == 3
    again = answer(*ARGS, "--resume")
    for key in ("order", "losses", "loss_all", "gradients", "path"):
        assert again[key] == whole[key]


@pytest.mark.slow
def test_other_settings_are_not_mixed(call, answer, table, monkeypatch):
    answer(*ARGS)
    for option, now, name, before in (
        ("--epochs", 2, "epochs", 1),
        ("--k", 5, "k", 4),
        ("--categorical", "a", "categorical", []),
    ):
        code, _, err = call(*ARGS, option, now, "--resume")
        assert code == 2
        assert f"Expected the {name} of the stopped run, {before!r} (got " in words(err)
        assert "no --resume to begin anew, with another --out to keep what is here" in words(err)
    monkeypatch.setitem(tiny_tables.WEIGHTS, "e", 0.1)
    code, _, err = call(*ARGS, "--resume")
    assert code == 2
    assert "Expected the model of the stopped run (got another)" in words(err)
    pq.write_table(rows(300), table / "t.parquet")
    code, _, err = call(*ARGS, "--resume")
    assert code == 2
    assert "the tables of the stopped run" in words(err)
    assert call(*ARGS, "--epochs", "2")[0] == 0  # Anew.


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint(call, answer, table, monkeypatch):
    whole = answer(*ARGS, "--out", "whole")
    left, plain = [3], storage.write_whole

    def full(*args):
        left[0] -= 1
        if left[0] < 0:
            raise gp.DiskFull("Expected space on the disk (got: No space left on device).")
        plain(*args)

    with monkeypatch.context() as m:
        m.setattr(storage, "write_whole", full)
        m.setattr(carry_out, "BETWEEN", 0)
        code, _, err = call(*ARGS)
    assert code == 1
    assert "No space left on device). Go on with:" in err
    assert len(gp.load("t-selection/work/greedy-pig.partial.gpig").picks) == 3
    assert answer(*ARGS, "--resume")["order"] == whole["order"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="torchrun on POSIX")
def test_two_processes_give_the_answer_of_one_also_after_a_kill(answer, table):
    command = [*ARGS, "--model", "tiny_tables:lost", "--out", "out"]
    alone = answer(*command)
    shutil.rmtree(table / "out")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "--max-restarts", "1"]
    done = subprocess.run(
        [*torchrun, "-m", "greedypig", *command, "--json"],
        cwd=table,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (table / "killed").exists()
    together = json.loads(done.stdout.splitlines()[-1])
    for key in ("order", "losses", "loss_all", "orders", "gradients"):
        agree_in_numbers(together[key], alone[key])
    assert np.allclose(together["path"], alone["path"], rtol=1e-9)
