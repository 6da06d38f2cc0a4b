"""`greedypig select`: the right columns first, proved by retraining; files and wrong commands."""

import csv
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

import greedypig as gp
from agreement import agree_in_numbers
from conftest import environment
from greedypig.cli import select_job
from greedypig.results import storage
from greedypig.tables import open_table, survey

QUICK = ("--seeds", "1", "--epochs", "1")
OWN = ("--model", "tiny_tables:build")
NAMES = "abcde"


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


def stop_in(monkeypatch, what, at):
    """Ctrl-C when `what` of the job's meter is told a share for the at-th time."""
    from greedypig.cli.select_job import Meter

    left = [at]
    plain = Meter.tell

    def tell(self, name, share):
        plain(self, name, share)
        if name == what and share < 1:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

    monkeypatch.setattr(Meter, "tell", tell)


@pytest.mark.slow
def test_a_network_is_trained_and_the_columns_that_matter_come_first(answer, table):
    found = answer("select", "t.parquet", "--label", "y", "--k", "1,2,5", "--seeds", "2",
                   "--epochs", "4", "--batch-size", "32")  # fmt: skip
    assert found["order"][:2] == ["a", "b"]
    assert sorted(found["order"]) == list(NAMES)
    assert list(found["losses"]) == ["greedy-pig", "ig", "random"]
    for by_k in found["losses"].values():
        assert list(by_k) == ["1", "2", "5"]
        assert all(v["mean"] > 0 and v["standard_error"] >= 0 for v in by_k.values())
        assert by_k["5"]["mean"] == pytest.approx(found["loss_all"])
    greedy = [v["mean"] for v in found["losses"]["greedy-pig"].values()]
    assert greedy[0] > greedy[1] > greedy[2] - 0.05
    assert found["losses"]["random"]["1"]["mean"] > greedy[0]
    assert found["settings"]["label"] == "y"
    assert found["gradients"] == 5 * 5
    assert found["rows"]["train"] + found["rows"]["valid"] == 600
    names = [f.rpartition("/")[2] for f in found["files"]]
    assert names == [f"selection.{e}" for e in ("gpig", "md", "csv", "png", "html")]
    assert all((table / f).stat().st_size > 100 for f in found["files"])


@pytest.mark.slow
def test_the_files_tell_the_same_numbers_and_the_page_is_drawn_again(call, answer, table):
    found = answer("select", "t.parquet", "--label", "y", *OWN, "--k", "2", *QUICK, "--out", "o")
    loss = found["losses"]["greedy-pig"]["2"]["mean"]
    with open("o/selection.csv") as file:
        lines = list(csv.DictReader(file))
    mine = next(line for line in lines if line["method"] == "greedy-pig")
    assert float(mine["loss"]) == loss
    assert json.loads(mine["columns"]) == ["a", "b"]
    assert lines[-1]["method"] == "all columns"
    assert f"| greedy-pig | {loss:.4f} |" in (table / "o/selection.md").read_text()
    page = (table / "o/selection.html").read_bytes()
    assert f"{loss:.4f}".encode() in page
    assert call("report", "o/selection.gpig", "--out", "again.html")[0] == 0
    assert (table / "again.html").read_bytes() == page
    a = gp.load("o/selection.gpig")
    assert a.top(5) == list(NAMES)
    assert a.about["selection"]["losses"]["greedy-pig"]["2"]["mean"] == loss


@pytest.mark.slow
def test_people_get_a_table(call, table):
    code, out, err = call("select", "t.parquet", "--label", "y", *OWN, "--k", "1,3", *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("t.parquet: 5 columns, ")
    label = r"validation rows; label y: 2 classes: [01] \(\d\d %\), [01] \(\d\d %\)"
    assert re.search(label, " ".join(lines[:3]))
    assert "best first: a, b, c" in out
    assert any(line.split()[:3] == ["k", "1", "3"] for line in lines)
    assert {line.split()[0] for line in lines if line} >= {"greedy-pig", "ig", "random", "all"}
    assert "one seed" in out
    assert "t-selection" in out
    assert max(map(len, lines)) <= 80
    assert call("select", "t.parquet", "--label", "y", *OWN, "--k", "1", *QUICK, "-q")[:2] == (
        0,
        "",
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["build", "dense"])
def test_a_model_of_one_s_own_is_ranked_by_its_weights(answer, table, model):
    found = answer("select", "t.parquet", "--label", "y", "--model", f"tiny_tables:{model}", "--k",
                   "4", *QUICK, "--methods", "greedy-pig,ig")  # fmt: skip
    assert found["order"] == list(NAMES)
    assert found["orders"]["ig"][:2] == ["a", "b"]
    assert found["settings"]["model"] == f"tiny_tables:{model}"
    assert not (table / "t-selection/work/network.safetensors").exists()


def two(n, task, seed=0, shift=0.0, classes=("low", "high")):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((2, n)) + shift
    y = 2 * a + b if task == "number" else np.where(a < 0, *classes)
    return pa.table({"a": a, "b": b, "y": y})


@pytest.mark.slow
def test_a_model_s_own_schema_holds_for_the_label_too(answer, place):
    """Its number's scale, and the order of its classes, whatever this table's are."""
    for task, classes in (("number", ()), ("classes", ("low", "high"))):
        first = two(400, task)
        if classes:
            first = pa.concat_tables([first, two(20, task, 1, 3.0, ("huge", "huge"))])
        pq.write_table(first, place / "first.parquet")
        found = survey(open_table("first.parquet"), "y")
        (place / "first.json").write_text(found.schema.to_json())
        pq.write_table(two(300, task, 2, shift=1.5), place / "t.parquet")
        found = answer("select", "t.parquet", "--label", "y", "--model", "tiny_tables:trained",
                       "--k", "1", *QUICK, "--out", task)  # fmt: skip
        assert found["settings"]["network_loss"] < (1e-8 if task == "number" else 0.2)


def test_a_class_that_a_model_does_not_know_is_named(call, place):
    pq.write_table(two(100, "classes"), place / "first.parquet")
    found = survey(open_table("first.parquet"), "y")
    (place / "first.json").write_text(found.schema.to_json())
    pq.write_table(two(100, "classes", 1, classes=("low", "new")), place / "t.parquet")
    code, _, err = call("select", "t.parquet", "--label", "y", "--model", "tiny_tables:trained",
                        "--k", "1", *QUICK)  # fmt: skip
    assert code == 2
    assert "classes of the model's schema in 'y' (got 'new' besides)" in " ".join(err.split())


@pytest.mark.slow
@pytest.mark.parametrize(("task", "metric"), [("number", "squared error"), ("classes", "log-loss")])
def test_numbers_and_classes_are_predicted_too(answer, place, task, metric):
    pq.write_table(rows(task=task), place / "t.parquet")
    pq.write_table(rows(200, 1, task), place / "v.parquet")
    found = answer("select", "t.parquet", "--label", "y", "--valid", "v.parquet", "--k", "2",
                   "--seeds", "1", "--epochs", "3", "--batch-size", "32")  # fmt: skip
    assert found["metric"] == metric
    assert found["order"][0] == "a"
    assert found["rows"] == {"train": 600, "valid": 200}
    assert (found["accuracy_all"] is None) == (task == "number")
    y = {n: rows(*of, task)["y"].to_numpy() for n, of in (("train", (600, 0)), ("valid", (200, 1)))}
    if task == "number":
        variance = y["valid"].var()
        constant = ((y["valid"] - y["train"].mean()) ** 2).mean()
        for name, by in found["losses"].items():
            r2 = 1 - by["2"]["mean"] / variance
            assert found["r2"][name]["2"] == pytest.approx(r2)
        assert found["r2_all"] == pytest.approx(1 - found["loss_all"] / variance)
    else:
        rates = np.bincount(y["train"]) / 600
        constant = -np.log(rates[y["valid"]]).mean()
        assert found["accuracy_constant"] == (y["valid"] == rates.argmax()).mean()
        assert (found["r2"], found["r2_all"]) == ({}, None)
    assert found["loss_constant"] == pytest.approx(constant)
    text = (place / "t-selection/selection.md").read_text()
    digits = ".5g" if task == "number" else ".4f"
    assert f"| constant prediction | {constant:{digits}} |" in text
    assert ("R² of these losses" in text) == (task == "number")
    with open(place / "t-selection/selection.csv") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert float(lines["constant prediction"]["loss"]) == pytest.approx(constant)
    assert (lines["all columns"]["r2"] == "") == (task != "number")


@pytest.mark.slow
def test_columns_that_do_not_help_are_told(call, place):
    random = np.random.default_rng(3)
    table = pa.table({n: random.standard_normal(400) for n in "ab"} | {
        "y": random.integers(0, 2, 400)})  # fmt: skip
    pq.write_table(table, place / "t.parquet")
    code, out, _ = call("select", "t.parquet", "--label", "y", "--k", "1", "--seeds", "1",
                        "--epochs", "1", "--rate", "0.1", "--batch-size", "16")  # fmt: skip
    assert code == 0
    said = " ".join(out.split())
    assert "The columns do not help: a constant prediction gives log-loss 0.69" in said
    assert "constant prediction" in said


@pytest.mark.slow
def test_copies_are_no_news_with_the_conditional_baseline(answer, call, place):
    random = np.random.default_rng(0)
    a, b, c = random.standard_normal((3, 2000))
    copies = {f"a{i}": a + 0.01 * random.standard_normal(2000) for i in range(3)}
    y = 3 * a + b + 0.2 * c
    pq.write_table(pa.table(copies | {"b": b, "c": c, "y": y}), place / "t.parquet")
    words = ["select", "t.parquet", "--label", "y", "--k", "2", "--seeds", "1", "--methods",
             "greedy-pig"]  # fmt: skip
    found = answer(*words)
    assert found["settings"]["baseline"] == "conditional"  # The default.
    assert found["settings"]["batch_size"] == pytest.approx(2000 * 0.7 / 16, rel=0.05)
    assert found["settings"]["valid_share"] == 0.3
    assert found["settings"]["epochs"] >= 20
    assert "b" in found["order"][:2]
    assert found["order"][:2] != ["b", "c"]
    code, _, err = call(*words, "--baseline", "conditional", "--mask-finetune")
    assert code == 2
    assert "--baseline zero or mean with --mask-finetune" in " ".join(err.split())


@pytest.mark.parametrize(
    ("model", "finetune", "categories", "numbers", "baseline"),
    [
        (None, None, 26, 13, "conditional"),
        ("my:model", None, 26, 13, "zero"),
        (None, 200, 26, 13, "zero"),
        (None, None, 300, 10, "zero"),
        (None, None, 0, 1500, "conditional"),
    ],
)
def test_the_usual_baseline_asks_what_suffices_of_our_own_network(
    model, finetune, categories, numbers, baseline
):
    from types import SimpleNamespace

    from greedypig.cli.select_job import Plan
    from greedypig.tables import Reading

    plan = Plan("y", Reading(), (5,), 1, 0, ("ig",), None, None, None, finetune, model, "logits",
                None, None, 1e-3, None)  # fmt: skip
    schema = SimpleNamespace(numbers=range(numbers), categories=range(categories))
    assert plan.settled(schema).baseline == baseline


@pytest.mark.parametrize(
    ("columns", "ks"),
    [(1, (1,)), (3, (1, 2)), (10, (1, 2, 3, 5, 7)), (11, (1, 2, 3, 5, 7, 10)),
     (20, (1, 2, 3, 5, 7, 10)), (21, (5, 10, 20)), (31, (5, 10, 20, 30))],
)  # fmt: skip
def test_a_table_of_few_columns_is_retrained_on_one_two_and_three(columns, ks):
    from types import SimpleNamespace

    from greedypig.cli.select_job import Plan
    from greedypig.tables import Reading

    plan = Plan("y", Reading(), (), 1, 0, ("ig",), None, None, None, None, None, "logits",
                None, None, 1e-3, None)  # fmt: skip
    schema = SimpleNamespace(numbers=range(columns - 1), categories=range(1))
    assert plan.settled(schema).ks == ks


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
    return "select", "m.parquet", "--label", "y", "--k", "1,3", "--seeds", "2"


@pytest.mark.slow
def test_warnings_stand_in_every_file_also_after_a_resume(answer, call, place):
    words = messy(place)
    found = answer(*words)
    left, filled = found["warnings"]
    assert "number the rows: 'row' (is 0 to 599, each once)" in left
    assert "--keep row" in left
    assert "missing indicator" in filled
    assert found["left_out"] == ["row"]
    assert "row" not in found["order"]
    again = answer(*words, "--resume")
    assert again["warnings"] == found["warnings"]
    folder = place / "m-selection"
    a = gp.load(folder / "selection.gpig")
    assert a.about["selection"]["warnings"] == found["warnings"]
    for name in ("selection.md", "selection.html"):
        text = (folder / name).read_text().replace("&#x27;", "'")
        assert left in text
        assert filled in text
    with (folder / "selection.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [json.loads(line["warnings"]) for line in lines if line["warnings"]] == [[left, filled]]
    assert lines[-1]["method"] == "all columns"


@pytest.mark.slow
def test_a_row_number_is_ranked_on_request(answer, call, place):
    words = messy(place)
    kept = answer(*words, "--keep", "row", *QUICK)
    assert "row" in kept["order"]
    assert kept["left_out"] == []
    assert not [w for w in kept["warnings"] if "'row'" in w]
    code, _, err = call("select", "m.parquet", "--label", "y", "--k", "8", "--out", "n")
    assert code == 2
    assert "--k of at most 7" in err.replace("\n", " ")
    assert "--keep row" in err.replace("\n", " ")
    code, _, err = call(*words, "--keep", "rwo")
    assert code == 2
    assert "'rwo'" in err


def test_a_model_of_one_s_own_gets_all_its_columns(answer, place):
    table = rows().set_column(4, "e", pa.array(range(600)))
    pq.write_table(table, place / "t.parquet")
    found = answer("select", "t.parquet", "--label", "y", *OWN, "--k", "2", *QUICK)
    assert sorted(found["order"]) == list(NAMES)
    assert found["left_out"] == []


@pytest.mark.slow
def test_where_nothing_more_is_gained_is_said_everywhere(answer, call, place):
    # The model's weights are the label's: 3, 2, 1, 0.5, and 0 of e.
    pq.write_table(rows(task="number"), place / "t.parquet")
    words = ("select", "t.parquet", "--label", "y", *OWN, "--k", "1,5", *QUICK)
    found = answer(*words)
    assert found["useful"] == 4
    assert found["order"] == list(NAMES)
    _, out, _ = call(*words, "--resume")
    text = " ".join(out.split())
    assert "best first: a, b, c, d nothing gained by: e" in text
    sentence = "Nothing is gained after the first 4 columns, up to 'd'"
    assert sentence in text
    folder = place / "t-selection"
    marked = (folder / "selection.md").read_text()
    assert sentence in marked
    assert "- greedy-pig: a, b, c, d; nothing gained by: e\n" in marked
    page = (folder / "selection.html").read_text()
    assert sentence in page.replace("&#x27;", "'")
    assert page.count("no gain</small>") == 1


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
    found = answer("select", "days", "--label", "y", "--drop", "id", "--k", "2", "--seeds", "1",
                   "--epochs", "4", "--batch-size", "32", "--mask-finetune", "3")  # fmt: skip
    assert set(found["order"][:2]) == {"a", "b"}
    assert "id" not in found["order"]
    assert "fine-tuned" in found["settings"]["model"]
    schema = json.loads((place / "days-selection/schema.json").read_text())
    assert [c["name"] for c in schema["categories"]] == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--drop", "size, cm", "--drop", "id"), ("--drop", '"size, cm",id'),
     ("--drop", "id", "--drop", '"size, cm"')],
)  # fmt: skip
def test_names_with_commas_can_be_said(answer, place, words):
    table = rows(200).append_column("size, cm", pa.array(range(200)))
    table = table.append_column("id", pa.array(range(200))).append_column(
        "a kind, b", pa.array([1, 2] * 100)
    )
    pq.write_table(table, place / "t.parquet")
    answer("select", "t.parquet", "--label", "y", *words, "--categorical", "a kind, b", "--k", "1",
           *QUICK)  # fmt: skip
    schema = json.loads((place / "t-selection/schema.json").read_text())
    assert [c["name"] for c in schema["numbers"]] == list(NAMES)
    assert [c["name"] for c in schema["categories"]] == ["a kind, b"]


@pytest.mark.slow
def test_a_table_in_folders_is_judged_on_a_folder_of_its_own(answer, place):
    for day in range(3):
        (place / f"days/day={day}").mkdir(parents=True)
        pq.write_table(rows(200, day), place / f"days/day={day}/p.parquet")
    found = answer("select", "days/day=[01]", "--valid", "days/day=2", "--label", "y", "--k", "2",
                   *QUICK, "--batch-size", "32")  # fmt: skip
    assert sorted(found["order"]) == sorted([*NAMES, "day"])
    assert found["rows"] == {"train": 400, "valid": 200}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--label", "z"), "'z'"),
        ((), "--label, the column to predict, of a, b, c, d, e, y"),
        (("--label", "y", "--k", "6"), "at most 5, the number of columns"),
        (("--label", "y", "--k", "two"), "whole numbers ≥ 1 with commas"),
        (("--label", "y", "--drop", "w"), "'w'"),
        (("--label", "y", "--methods", "magic"), "'magic'"),
        (("--label", "y", "--methods", "random"), "ranks first"),
        (("--label", "y", "--valid", "none.parquet"), "none.parquet"),
        (("--label", "y", "--valid-share", "1"), "--valid-share between 0 and 1"),
        (("--label", "y", "--budget", "3"), "at least"),
        (("--label", "y", "--model", "tiny_tables:nothing"), "torch.nn.Module"),
        (("--label", "y", "--task", "regression", "--separator", "tabs"), "one sign"),
        (("--label", "y", "--device", "abacus"), "a device of this machine"),
    ],
)
def test_a_wrong_command_is_said_in_one_sentence(call, table, words, said):
    code, out, err = call("select", "t.parquet", *words, *QUICK)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


def test_damaged_and_foreign_files(call, table):
    whole = (table / "t.parquet").read_bytes()
    (table / "half.parquet").write_bytes(whole[:-50])
    code, _, err = call("select", "half.parquet", "--label", "y")
    assert code == 2
    assert "half.parquet (got one that is cut off or damaged" in " ".join(err.split())
    (table / "o").mkdir()
    (table / "o/selection.csv").write_text("mine")
    code, _, err = call("select", "t.parquet", "--label", "y", *OWN, *QUICK, "--out", "o")
    assert code == 2
    assert "left alone" in " ".join(err.split())
    assert (table / "o/selection.csv").read_text() == "mine"


@pytest.mark.slow
def test_a_leaked_label_is_warned_of(call, place):
    table = rows()
    pq.write_table(table.append_column("leak", table["y"]), place / "t.parquet")
    _, out, err = call("select", "t.parquet", "--label", "y", "--k", "1", *QUICK, "--batch-size",
                       "32")  # fmt: skip
    told = " ".join(err.split())
    assert "'leak' equal the label 'y'" in told
    assert told.count("label") == 2  # In one warning: "If that is the label in another form …".
    assert "--drop leak" in told
    assert "best first: leak" in out


ARGS = ("select", "t.parquet", "--label", "y", *OWN, "--k", "2,4", *QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "at"), [("greedy-pig", 3), ("ig", 1), ("retrain", 3)])
def test_a_stopped_run_goes_on_to_the_same_answer(call, answer, table, monkeypatch, stage, at):
    whole = answer(*ARGS, "--out", "whole")
    with monkeypatch.context() as m:
        stop_in(m, stage, at)
        code, out, err = call(*ARGS)
    assert (code, out) == (1, "")
    assert "Stopped while" in err
    assert "--resume" in err
    if stage == "greedy-pig":
        assert len(gp.load("t-selection/work/greedy-pig.partial.gpig").picks) == 3
    clock = table / "t-selection" / "work" / ".seconds"
    assert 0 < float(clock.read_text()) < 600
    clock.write_text("1000.0")  # As if the first sitting had taken so long.
    again = answer(*ARGS, "--resume")
    assert 1000 < again["seconds"] < 1600
    assert whole["seconds"] < 600
    for key in ("order", "losses", "loss_all", "gradients", "path"):
        assert again[key] == whole[key]


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_more_is_added(answer, table, monkeypatch):
    first = answer(*ARGS)
    trained = []
    plain = select_job.retrain

    def watched(*args, watch, **more):
        return plain(*args, watch=lambda t, s: trained.append(t), **more)

    monkeypatch.setattr(select_job, "retrain", watched)
    assert answer(*ARGS, "--resume")["losses"] == first["losses"]
    assert trained == []
    more = answer(*[w if w != "1" else "2" for w in ARGS[:-2]], "--epochs", "1", "--resume")
    assert {t.seed for t in trained} == {1}
    assert more["losses"]["ig"]["2"]["standard_error"] is not None


@pytest.mark.slow
def test_other_settings_are_not_mixed(call, answer, table):
    answer(*ARGS)
    code, _, err = call(*ARGS, "--resume", "--rate", "0.01")
    assert code == 2
    assert "another rate" in err
    answer(*ARGS, "--mask-finetune", "5", "--out", "tuned")
    code, _, err = call(*ARGS, "--mask-finetune", "5", "--out", "tuned", "--resume",
                        "--baseline", "mean")  # fmt: skip
    assert code == 2
    assert "another baseline" in err
    before = gp.load("t-selection/work/greedy-pig.gpig").settings
    for words, expected, got in (
        (("--budget", "500"), f"--budget {before['budget']}", "500"),
        (("--steps", "3", "--budget", str(before["budget"])), "--steps 5", "3"),
        (("--baseline", "mean"), "--baseline zero", "mean"),
    ):
        code, _, err = call(*ARGS, "--resume", *words)
        assert code == 2
        said = " ".join(err.split())
        assert f"Expected {expected}, as in the stopped run (got {got})" in said
        assert "no --resume to begin anew, with another --out to keep what is here" in said
    assert call(*ARGS, "--rate", "0.01")[0] == 0  # Anew.


@pytest.mark.slow
@pytest.mark.parametrize(("ks", "instead"), [("1,3,5", "1,3,4"), ("1", "1,4"), ("5", "4")])
def test_another_k_is_refused_with_the_k_that_goes_on(call, answer, table, ks, instead):
    words = [*ARGS]
    at = words.index("--k") + 1
    assert words[at] == "2,4"
    answer(*words)
    words[at] = ks
    code, _, err = call(*words, "--resume")
    assert code == 2
    said = " ".join(err.split())
    assert "Expected 4 as the largest --k, as in the stopped run, whose rounds shared" in said
    assert f"Try --k {instead} to go on, or no --resume" in said
    words[at] = instead
    assert set(answer(*words, "--resume")["losses"]["ig"]) == set(instead.split(","))


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint(call, answer, table, monkeypatch):
    whole = answer(*ARGS, "--out", "whole")
    left = [3]
    plain = storage.write_whole

    def full(*args):
        left[0] -= 1
        if left[0] < 0:
            raise gp.DiskFull("Expected space on the disk (got: No space left on device).")
        plain(*args)

    with monkeypatch.context() as m:
        m.setattr(storage, "write_whole", full)
        code, _, err = call(*ARGS)
    assert code == 1
    assert "No space left on device). Kept: t-selection/work. Go on with:" in err
    assert len(gp.load("t-selection/work/greedy-pig.partial.gpig").picks) == 3
    assert answer(*ARGS, "--resume")["order"] == whole["order"]


def torchrun(*words, cwd, restarts=0):
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "--max-restarts", str(restarts), "--standalone", "-m", "greedypig", *words],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="torchrun on POSIX")
def test_two_processes_give_the_answer_of_one_also_after_a_kill(answer, table):
    words = [*ARGS[:4], "--model", "tiny_tables:lost", *ARGS[6:], "--out", "out", "--json"]
    alone = answer(*words[:-1])
    shutil.rmtree(table / "out")
    done = torchrun(*words, cwd=table, restarts=1)
    assert done.returncode == 0, done.stderr
    assert (table / "killed").exists()
    together = json.loads(done.stdout.splitlines()[-1])
    for key in ("order", "losses", "loss_all", "orders", "gradients"):
        agree_in_numbers(together[key], alone[key])
    assert np.allclose(together["path"], alone["path"], rtol=1e-9)
