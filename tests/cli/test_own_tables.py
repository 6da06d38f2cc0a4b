"""`greedypig select --model`: models that answer in other ways than the networks trained here."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.tables import job, open_table, survey

ASK = ("--label", "y", "--k", "1,3", "--seeds", "1", "--epochs", "1", "--methods", "greedy-pig")


def written(place, y, **more):
    x = np.random.default_rng(0).standard_normal((5, 600))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)  # As models get them.
    columns = dict(zip("abcde", x, strict=True))
    path = place / "t.parquet"
    pq.write_table(pa.table({**columns, **more, "y": y(np.array([3, 2, 1, 0.5, 0]) @ x)}), path)
    return path


def binary(score):
    drawn = np.random.default_rng(1).random(len(score))
    return (drawn < 1 / (1 + np.exp(-score))).astype(int)


def number(score):
    return 50 + 10 * score


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["build", "two", "double", "double_gated", "probabilities", "two_probabilities"]
)
def test_two_logits_probabilities_and_float64_rank_as_one_logit_does(answer, place, model):
    written(place, binary)
    record = answer("select", "t.parquet", *ASK, "--model", f"tiny_tables:{model}")
    plain = answer("select", "t.parquet", *ASK, "--model", "tiny_tables:dense", "--out", "plain")
    assert record["order"] == plain["order"] == list("abcde")
    assert record["settings"]["model"] == f"tiny_tables:{model}"
    assert record["network_loss"] == pytest.approx(plain["network_loss"], rel=1e-4)
    assert not (place / "t-selection/work/network.safetensors").exists()


@pytest.mark.slow
def test_a_number_may_be_answered_in_its_own_units(answer, place):
    written(place, number)
    record = answer("select", "t.parquet", *ASK, "--model", "tiny_tables:own_units")
    assert record["order"][:3] == ["a", "b", "c"]
    assert any("'y' in its own units" in text for text in record["warnings"])


def two(n, task, seed=0, shift=0.0, classes=("low", "high")):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((2, n)) + shift
    y = 2 * a + b if task == "number" else np.where(a < 0, *classes)
    return pa.table({"a": a, "b": b, "y": y})


@pytest.mark.slow
@pytest.mark.parametrize(("task", "most"), [("number", 1e-8), ("classes", 0.2)])
def test_a_model_s_own_schema_holds_for_the_label_too(answer, call, place, task, most):
    """Its number's scale, and the order of its classes, whatever this table's are."""
    first = two(400, task)
    if task == "classes":
        first = pa.concat_tables([first, two(20, task, 1, 3.0, ("huge", "huge"))])
    pq.write_table(first, place / "first.parquet")
    (place / "first.json").write_text(survey(open_table("first.parquet"), "y").schema.to_json())
    command = ("select", "t.parquet", *ASK, "--k", "1", "--model", "tiny_tables:trained")
    pq.write_table(two(300, task, 2, shift=1.5), place / "t.parquet")
    assert answer(*command)["network_loss"] < most
    pq.write_table(two(100, "classes", 1, classes=("low", "new")), place / "t.parquet")
    code, _, err = call(*command)
    assert code == 2
    assert "the label 'y' as in the model's schema" in " ".join(err.split())
    assert ("'new'" if task == "classes" else "2 classes") in err


@pytest.mark.slow
def test_a_model_of_one_input_is_refused_by_the_names_of_the_categories(call, place):
    written(place, binary, town=np.tile(["x", "y", "z"], 200))
    command = ("select", "t.parquet", *ASK, "--model", "tiny_tables:dense")
    code, _, err = call(*command)
    assert code == 2
    assert "got one input, and categories in 'town'" in err
    assert "--drop town" in err
    assert call(*command, "--drop", "town")[0] == 0


def test_probabilities_are_told_by_the_model_s_attribute(call, place):
    written(place, binary)
    code, _, err = call("select", "t.parquet", *ASK, "--model", "tiny_tables:no_probabilities")
    assert code == 2
    assert "Expected probabilities from 0 to 1" in err
    _, _, err = call("select", "t.parquet", *ASK, "--model", "tiny_tables:unstated")
    assert "looks like probabilities" in err


def test_a_model_of_one_s_own_gets_all_its_columns(answer, place):
    table = pq.read_table(written(place, binary)).set_column(4, "e", pa.array(range(600)))
    pq.write_table(table, place / "t.parquet")
    record = answer("select", "t.parquet", *ASK, "--model", "tiny_tables:build")
    assert sorted(record["order"]) == list("abcde")
    assert record["left_out"] == []


@pytest.mark.slow
def test_validating_on_the_training_rows_is_warned_of(call, place):
    written(place, binary)
    _, _, err = call("select", "t.parquet", *ASK, "--valid", "./t.parquet")
    assert "t.parquet is among the training rows and the validation rows" in err


@pytest.mark.slow
def test_a_one_shot_method_alone_has_a_figure_and_few_rows_are_named(call, place):
    written(place, binary)
    pq.write_table(pq.read_table("t.parquet").slice(0, 60), "small.parquet")
    code, out, _ = call("select", "small.parquet", *ASK, "--methods", "ig,random", "--out", "out")
    assert code == 0
    assert (place / "out" / "selection.png").stat().st_size > 10_000
    assert "Only 17 validation rows" in " ".join(out.split())
    assert "Only 17 validation rows" in (place / "out" / "selection.html").read_text()


def test_a_full_disk_says_what_is_kept_and_how_to_go_on(call, place, monkeypatch):
    written(place, binary)
    plain = job.write_whole

    def full(file, content):
        if file.name == "network.safetensors":
            raise gp.DiskFull("Expected space on the disk (got: No space left on device).")
        plain(file, content)

    monkeypatch.setattr(job, "write_whole", full)
    code, _, err = call("select", "t.parquet", *ASK, "--out", "out")
    assert code == 1
    assert "No space left on device). Go on with:" in err
    assert "--resume" in err
