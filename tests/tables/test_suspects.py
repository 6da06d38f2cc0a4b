"""Columns that give the label away, copies and numbers written oddly: named where they are, and
nowhere else."""

import warnings

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

from greedypig.tables import Reading, Survey, open_table, survey
from greedypig.tables.column_checks import LEAKS, written_number

N = 600
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=N)
Y = (X + RANDOM.normal(size=N) > 0).astype(int)
PRICE = np.exp(3 * X + RANDOM.normal(size=N))
WORDS = np.array(["low", "mid", "high"])[np.digitize(X + RANDOM.normal(size=N), [-0.5, 0.5])]


def told(tmp_path, label, **columns):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": X, **columns}), path, row_group_size=100)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = survey(open_table(path), label)
    assert Survey.from_json(found.to_json()) == found
    leaks = tuple(name for w in found.warnings if w.kind in LEAKS for name in w.columns)
    return leaks, " ".join(str(w.message) for w in seen)


def surveyed(tmp_path, columns, reading=None):
    """The survey of a table, and what it warned of."""
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=100)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = survey(open_table(path), "y", reading)
    return found, [str(w.message) for w in seen]


@pytest.mark.parametrize(
    ("label", "leak", "said"),
    [
        (PRICE, PRICE, "equal the label 'y'"),
        (PRICE, np.log(PRICE), "give the order of 'y'"),
        (PRICE, -PRICE, "give the order of 'y'"),
        (WORDS, WORDS, "equal the label 'y'"),
        (WORDS, np.where(WORDS == "low", 1, np.where(WORDS == "mid", 0, 2)), "tell the classes"),
        (WORDS, np.char.upper(WORDS), "tell the classes"),
        (Y, Y + 0.9 * RANDOM.random(N), "tell the classes"),
        (Y, 1 - Y, "tell the classes"),
        (Y, [None if y else float(i % 7) for i, y in enumerate(Y)], "tell the classes"),
        (Y, [None if y else f"text {i}" for i, y in enumerate(Y)], "tell the classes"),
    ],
)
def test_a_column_that_gives_the_label_away_is_named(tmp_path, label, leak, said):
    names, words = told(tmp_path, "y", leak=leak, y=label)
    assert names == ("leak",)
    assert f"'leak' {said}" in words.replace("alone ", "")


@pytest.mark.parametrize("label", [PRICE, WORDS, Y], ids=["number", "classes", "binary"])
def test_columns_that_only_help_are_not(tmp_path, label):
    columns = {
        "close": X + 0.3 * RANDOM.normal(size=N),
        "some": [f"c{i % 9}" for i in range(N)],
        "id": np.arange(N),
        "gaps": [None if i % 3 else 1.0 for i in range(N)],
    }
    names, words = told(tmp_path, "y", z=RANDOM.normal(size=N), y=label, **columns)
    assert names == ()
    assert "the same in all rows" not in words


def test_classes_that_share_a_value_are_not_told_apart(tmp_path):
    four = np.arange(N) % 4
    assert told(tmp_path, "y", half=four % 2, y=four)[0] == ()


def test_few_rows_of_a_class_prove_nothing(tmp_path):
    rare = np.arange(N) < 10
    assert told(tmp_path, "y", mark=rare.astype(float) + 1, y=rare.astype(int))[0] == ()


def test_copies_are_named_whatever_their_type(tmp_path):
    whole = np.arange(N) % 50
    zero = np.where(whole == 0, -0.0, whole)
    _, words = told(
        tmp_path,
        "y",
        a=whole.astype(np.int32),
        b=zero.astype(np.float64),
        c=whole + (X > 3),
        s=[f"s{i % 5}" for i in range(N)],
        t=pa.array([f"s{i % 5}" for i in range(N)]).dictionary_encode(),
        y=Y,
        same=[1] * N,
        too=[1] * N,
    )
    assert "'a', 'b' are the same in all rows" in words
    assert "'s', 't' are the same in all rows" in words
    assert words.count("in all rows") == 2


def test_a_column_in_other_features_is_a_copy(tmp_path):
    gaps = [None if i % 9 == 0 else float(x) for i, x in enumerate(X)]
    outlier = np.append(RANDOM.normal(size=(2, N - 1)), [[1e6], [1e6]], axis=1)
    _, words = told(
        tmp_path,
        "y",
        grams=1000 * X,
        less=-0.1 * X + 7,
        near=X + 0.05 * RANDOM.normal(size=N),
        gaps=gaps,
        gaps_too=[None if v is None else 2 * v for v in gaps],
        outlier=outlier[0],
        outlier_too=outlier[1],
        y=Y,
    )
    assert "'x', 'grams', 'less' are the same up to scale" in words
    assert "'gaps', 'gaps_too' are the same up to scale" in words
    assert words.count("up to scale") == 2


def test_values_in_another_order_are_no_copies(tmp_path):
    assert "in all rows" not in told(tmp_path, "y", a=X[::-1], y=Y)[1]


@pytest.mark.parametrize(
    ("texts", "example"),
    [
        (["3,25", "-1,5", "0,1"], "3,25"),
        (["3.1%", "-2 %", "5%"], "3.1%"),
        (["1,234.50", "-12.00", "7"], "1,234.50"),
        (["$5", "$7.50", "$1,000"], "$5"),
        (["a", "b,c", "d"], ""),
        (["1.5", "2", "x"], ""),
        (["2024-01-05"] * 3, ""),
        (["(1,2)", "(2,3)", "(4,5)"], ""),
        ([], ""),
    ],
)
def test_numbers_as_people_write_them_are_seen(texts, example):
    assert written_number(texts) == example


def test_decimal_commas_are_warned_of(tmp_path):
    lines = "\n".join(f"{x:.4f};{x:.3e};{y}".replace(".", ",") for x, y in zip(X, Y, strict=True))
    (tmp_path / "t.csv").write_text(f"a;b;y\n{lines}\n")
    with pytest.warns(UserWarning, match="look like numbers"):
        found = survey(open_table(tmp_path / "t.csv"), "y")
    texts = {w.columns: w.text for w in found.warnings if w.kind == "text number"}
    assert set(texts) == {("a",), ("b",)}
    assert "a" in [c.name for c in found.schema.categories]


COUNTED = [
    np.arange(N),
    5000 - 3 * np.arange(N),
    np.arange(N) + np.arange(N) // 50,  # Rows were left out.
    RANDOM.permutation(N),
    7 + RANDOM.permutation(N),
    [str(i) for i in range(N)],
    [f"row {i}" for i in RANDOM.permutation(N)],
]


@pytest.mark.parametrize("values", COUNTED)
def test_columns_that_number_the_rows_are_left_out_and_can_be_kept(tmp_path, values):
    columns = {"code": values, "x": X, "y": Y}
    found, said = surveyed(tmp_path, columns)
    assert found.schema.names == ["x"]
    assert found.left_out == ("code",)
    assert said == [w.text for w in found.warnings]
    assert "number the rows: 'code' (" in said[0]
    for reading in (Reading(keep=("code",)), Reading(keep=None), Reading(categorical=("code",))):
        kept, _ = surveyed(tmp_path, columns, reading)
        assert sorted(kept.schema.names) == ["code", "x"]
        assert kept.left_out == ()
    assert Survey.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "values",
    [
        np.repeat(np.arange(N // 2), 2),
        np.arange(N) / 7,
        np.where(np.arange(N) == 300, np.nan, np.arange(N)),
        np.append(RANDOM.permutation(N - 1), 5),  # One number twice, one missing: no permutation.
        RANDOM.permutation(10 * N)[:N],
        [f"row {i // 2}" for i in range(N)],
        [None if i % 9 == 0 else f"row {i}" for i in range(N)],  # Gaps may tell something.
    ],
)
def test_other_columns_are_not_taken_for_numbers_of_the_rows(tmp_path, values):
    found, _ = surveyed(tmp_path, {"code": values, "x": X, "y": Y})
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("id", True),
        ("row_id", True),
        ("PassengerId", True),
        ("customer ID", True),
        ("index", True),
        ("paid", False),
        ("width", False),
        ("price", False),
    ],
)
def test_different_whole_numbers_number_the_rows_where_the_name_says_so(tmp_path, name, left):
    found, _ = surveyed(tmp_path, {name: RANDOM.permutation(10 * N)[:N], "x": X, "y": Y})
    assert found.left_out == ((name,) if left else ())


def test_the_index_of_pandas_is_left_out_of_a_small_table(tmp_path):
    columns = {"": np.arange(20), "x": X[:20], "y": np.arange(20) % 2}
    found, said = surveyed(tmp_path, columns)
    assert found.left_out == ("Unnamed: 0",)
    assert len(said) == 1


def test_a_table_of_row_numbers_alone_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'code' alone"):
        surveyed(tmp_path, {"code": np.arange(N), "y": Y})


def test_names_with_braces_are_names(tmp_path):
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"{x}": X, "{0}": Y, "{y}": Y}), path)
    with pytest.warns(UserWarning, match=r"'\{0\}' equal the label '\{y\}'"):
        survey(open_table(path), "{y}")
