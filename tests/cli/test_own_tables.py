"""`greedypig select --model`: models that answer in other ways than the networks trained here."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.cli.failures import UsageError
from greedypig.cli.select_model import adapted, batches_for
from greedypig.tables import Batches, evaluate, open_table, survey

SCORES = np.array([3, 2, 1, 0.5, 0])
ASK = ("--label", "y", "--k", "1,3", "--seeds", "1", "--epochs", "1", "--methods", "greedy-pig")


def written(place, y, **more):
    x = np.random.default_rng(0).standard_normal((5, 600))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)  # As models get them.
    columns = dict(zip("abcde", x, strict=True))
    path = place / "t.parquet"
    pq.write_table(pa.table({**columns, **more, "y": y(SCORES @ x)}), path)
    return path


def binary(score):
    drawn = np.random.default_rng(1).random(len(score))
    return (drawn < 1 / (1 + np.exp(-score))).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("two", ()), ("double", ()), ("double_gated", ()),
        ("probabilities", ("--outputs", "probabilities")),
        ("two_probabilities", ("--outputs", "probabilities")),
    ],
)  # fmt: skip
def test_two_logits_probabilities_and_float64_rank_as_one_logit_does(answer, place, model, more):
    written(place, binary)
    plain = answer("select", "t.parquet", *ASK, "--model", "tiny_tables:dense", "--out", "plain")
    found = answer("select", "t.parquet", *ASK, "--model", f"tiny_tables:{model}", *more, "--out",
                   "out")  # fmt: skip
    assert found["order"] == plain["order"]
    asked, plainly = (gp.load(f"{d}/selection.gpig").about["selection"] for d in ("out", "plain"))
    assert asked["network_loss"] == pytest.approx(plainly["network_loss"], rel=1e-4)


@pytest.mark.slow
def test_a_number_may_be_answered_in_its_own_units(answer, place):
    written(place, lambda score: 50 + 10 * score)
    found = answer("select", "t.parquet", *ASK, "--model", "tiny_tables:own_units")
    assert found["order"][:3] == ["a", "b", "c"]
    assert any("'y' in its own units" in text for text in found["warnings"])


def test_which_units_are_taken_is_told_and_standardised_ones_stay(place, monkeypatch):
    import tiny_tables
    import torch

    table = open_table(written(place, lambda score: 50 + 10 * score))
    batches = Batches(table, survey(table, "y"))
    model = adapted(tiny_tables.own_units(), batches, "logits")
    assert "'y' in its own units" in model.note
    assert evaluate(model, batches_for(model, batches)).loss < 1e-6
    label = batches.schema.label
    standard = tiny_tables.Other(lambda z: (50 + 10 * z - label.mean) / label.deviation)
    assert adapted(standard, batches, "logits") is standard
    with pytest.raises(UsageError, match="--outputs logits for a number"):
        adapted(torch.nn.Linear(5, 1), batches, "probabilities")


@pytest.mark.slow
def test_a_model_of_one_input_is_refused_by_the_names_of_the_categories(call, place):
    written(place, binary, town=np.tile(["x", "y", "z"], 200))
    code, _, err = call("select", "t.parquet", *ASK, "--model", "tiny_tables:dense")
    assert code == 2
    assert "got one input, and categories in 'town'" in err
    assert "--drop town" in err
    assert (
        call("select", "t.parquet", *ASK, "--model", "tiny_tables:dense", "--drop", "town")[0] == 0
    )


def test_outputs_are_refused_without_a_model_and_where_they_are_none(call, place):
    written(place, binary)
    code, _, err = call("select", "t.parquet", *ASK, "--outputs", "probabilities")
    assert code == 2
    assert "only with --model" in err
    code, _, err = call("select", "t.parquet", *ASK, "--model", "tiny_tables:dense", "--outputs",
                        "probabilities")  # fmt: skip
    assert code == 2
    assert "Try --outputs logits" in err


@pytest.mark.slow
def test_judging_on_the_rows_to_learn_from_is_warned_of(call, place):
    written(place, binary)
    _, _, err = call("select", "t.parquet", *ASK, "--valid", "./t.parquet")
    assert "t.parquet is among the training rows and the validation rows" in err


@pytest.mark.slow
def test_a_one_shot_method_alone_has_a_figure_and_few_rows_are_told(answer, call, place):
    written(place, binary)
    small = pq.read_table("t.parquet").slice(0, 60)
    pq.write_table(small, "small.parquet")
    code, out, _ = call("select", "small.parquet", "--label", "y", "--k", "2", "--seeds", "1",
                        "--epochs", "1", "--methods", "ig,random", "--out", "out")  # fmt: skip
    assert code == 0
    assert (place / "out" / "selection.png").stat().st_size > 10_000
    assert "Only 17 validation rows" in " ".join(out.split())
    assert "Only 17 validation rows" in (place / "out" / "selection.html").read_text()


def test_a_full_disk_says_what_is_kept_and_how_to_go_on(call, place, monkeypatch):
    from greedypig import DiskFull
    from greedypig.cli import select_job

    written(place, binary)

    def full(*_):
        raise DiskFull("Expected space on the disk for network (got: No space left on device).")

    monkeypatch.setattr(select_job, "_save", full)
    code, _, err = call("select", "t.parquet", "--label", "y", "--k", "2", "--seeds", "1",
                        "--epochs", "1", "--out", "out")  # fmt: skip
    assert code == 1
    assert "No space left on device). Kept: out/work. Go on with:" in err
    assert "--resume" in err
