"""`python -m reproduction` on tables: what is asked for is measured, or a sentence says why."""

import pytest

pytest_plugins = ("small_photos",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--k", "5,many"), "whole numbers"),
        (("--k", "0"), "whole numbers"),
        (("--baseline", "zero,median"), "zero, mean, conditional"),
        (("--rows", "0"), "at least 1"),
        (("--loyalty", "2", "--tables", "generated"), "loyalty from 0 to 1"),
        (("--methods", "greedy"), "Did you mean 'greedy-"),
        (("--tables", "nowhere.csv"), "Expected tables at nowhere.csv"),
    ],
)
def test_wrong_words_get_one_sentence(call, words, said):
    pytest.importorskip("pyarrow", reason="tables are read with pyarrow")
    code, out, err = call("criteo", *words)
    assert code == 2
    assert out == ""
    assert said in err


@pytest.mark.slow
def test_a_table_of_one_s_own_is_measured(answer, place):
    pytest.importorskip("pyarrow", reason="tables are read with pyarrow")
    rows = [f"{i % 7},{(i * i) % 5},{int(i % 7 > 3)}" for i in range(200)]
    (place / "own.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    record = answer(
        "criteo", "--tables", "own.csv", "--k", "1", "--models", "1", "--methods",
        "ig,greedy-5", "--budget", "40", "--out", "out",
    )  # fmt: skip
    ours = [r for r in record["rows"] if r["data"] == "own, 200 rows"]
    assert [r["method"] for r in ours] == ["ig", "greedy-5"]
    assert all(r["k1"] < 0.5 for r in ours)  # `a` tells the label; `b` alone leaves 0.68.
    assert "own.csv" in (place / "out" / "criteo.md").read_text()
    assert record["settings"]["differences"][0]["verdict"] == "the same columns"
