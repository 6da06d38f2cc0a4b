"""One pass finds how columns are encoded; numbers are checked against NumPy, texts by hand."""

import warnings

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.tables import Reading, Schema, count_rows, open_table, survey
from greedypig.tables.schema import CUT, text_hash
from greedypig.tables.schema_inference import Counts, Moments


def made(tmp_path, columns, rows_per_group=7, name="t.parquet"):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path, row_group_size=rows_per_group)
    return open_table(path)


def label(n):
    return [i % 2 for i in range(n)]


def quiet(table, of="y", reading=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return survey(table, of, reading)


def test_moments_of_parts_are_those_of_the_whole():
    x = np.random.default_rng(0).lognormal(size=500)
    found = Moments()
    for part in np.split(x, [3, 3, 50, 400]):
        found.add(part)
    z = (x - x.mean()) / x.std()
    assert found.mean == pytest.approx(x.mean())
    assert found.deviation == pytest.approx(x.std())
    assert found.skewness == pytest.approx((z**3).mean())


def test_numbers_are_standardised_and_missing_ones_are_the_mean(tmp_path):
    x = [1.0, 2.0, None, 4.0, float("nan"), float("inf")] * 5
    table = made(tmp_path, {"x": x, "y": label(30)})
    with pytest.warns(UserWarning, match=r"5 values of 'x' are infinite"):
        found = survey(table, "y")
    (number,) = found.schema.numbers
    assert number.missing == pytest.approx(0.5)
    seen = np.array([1, 2, 4.0])
    expected = (seen - seen.mean()) / seen.std()
    got = found.schema.encode(table.read(0, ["x", "y"])).numeric[:, 0]
    np.testing.assert_allclose(got[[0, 1, 3]], expected, rtol=1e-6)
    assert got[[2, 4, 5]].tolist() == [0, 0, 0]


def test_filled_numbers_are_counted_by_column_the_most_first(tmp_path):
    columns = {
        "x": [1.0, None, 3.0, None] * 5,
        "z": [1.0, 2.0, 3.0, None] * 5,
        "c": ["a", None, "b", "a"] * 5,
        "whole": [1.0, 2.0] * 10,
    }
    with pytest.warns(UserWarning, match="filled") as warned:
        survey(made(tmp_path, {**columns, "y": label(20)}), "y")
    (text,) = [str(w.message) for w in warned]
    assert "10 of 'x' (50 %), 5 of 'z' (25 %)." in text
    assert "'c'" not in text  # A missing category is one of its own.


def test_counts_are_taken_by_their_logarithm_and_outliers_are_cut(tmp_path):
    x = [float(i % 3) for i in range(2999)] + [1e9]
    table = made(tmp_path, {"x": x, "y": label(3000)}, 1000)
    found = quiet(table)
    assert found.schema.numbers[0].log
    encoded = found.schema.encode(table.read(2, ["x", "y"])).numeric
    assert encoded.max() == CUT
    logs = np.log1p(np.array(x))
    assert found.schema.numbers[0].mean == pytest.approx(logs.mean())


def test_known_rare_unseen_and_missing_categories(tmp_path):
    values = ["b"] * 12 + ["a"] * 15 + ["rare"] + [None] * 2
    table = made(tmp_path, {"c": values, "y": label(30)})
    found = quiet(table)
    (column,) = found.schema.categories
    assert column.values == ("a", "b")  # Most frequent first; "rare" was seen once.
    assert column.size == 3 + 16
    new = pa.table({"c": ["a", "b", None, "rare", "unseen", ""], "y": [0, 1, 0, 1, 0, 1]})
    ids = found.schema.encode(new).categorical[:, 0]
    assert ids[:3].tolist() == [1, 2, 0]
    assert all(3 <= i < 19 for i in ids[3:])
    assert ids.tolist() == found.schema.encode(new).categorical[:, 0].tolist()


def test_hashes_depend_on_the_text_alone():
    texts = ["", "a", "b", "ab", "ba", "é", "a" * 100, *map(str, range(1000))]
    whole = text_hash(pa.array(texts))
    assert len(set(whole.tolist())) == len(texts)
    assert (whole >= 0).all()
    parts = [text_hash(pa.array(texts)[i : i + 3]) for i in range(0, len(texts), 3)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    spread = np.bincount(whole % 16, minlength=16)
    assert spread.min() > 30  # 1,007 texts over 16 buckets: 63 each.


def test_frequent_texts_survive_where_memory_is_bounded():
    counts = Counts(10)
    for part in range(200):
        texts = (
            ["often"] * 5 + ["now and then"] * (part % 2) + [f"once {part} {i}" for i in range(9)]
        )
        counts.add(pa.array(texts).dictionary_encode())
    assert counts.common()[0] == ("often", 1000)
    assert counts.common()[1][0] == "now and then"
    assert len(counts.common()) <= 40


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        ([0, 1], "binary", ("0", "1")),
        ([0.0, 1.0], "binary", ("0", "1")),
        ([False, True], "binary", ("0", "1")),
        (["yes", "no"], "binary", ("no", "yes")),
        ([3, 1, 2], "classes", ("1", "2", "3")),
        (["x", "y", "z"], "classes", ("x", "y", "z")),
        ([10, 9], "binary", ("9", "10")),
        ([0.5, 1.25, 3.0], "number", ()),
    ],
)
def test_the_task_is_found_from_the_label(tmp_path, values, task, classes):
    y = (values * 30)[:30]
    found = quiet(made(tmp_path, {"x": np.arange(30.0), "y": y}))
    assert (found.schema.label.task, found.schema.label.values) == (task, classes)


def test_texts_where_numbers_were_count_as_missing_or_make_categories(tmp_path):
    few = [str(i) for i in range(99)] + ["n/k"]
    many = [str(i % 7) for i in range(70)] + ["none such"] * 30
    table = made(tmp_path, {"few": few, "many": many, "y": label(100)}, 20)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = survey(table, "y")
    assert [c.name for c in found.schema.numbers] == ["few"]
    assert [c.name for c in found.schema.categories] == ["many"]
    text = " ".join(str(w.message) for w in said)
    assert "1 values of 'few' are no numbers, such as 'n/k'" in text
    assert "'many' is taken as categories: 30 values of 'many' are no numbers" in text
    assert found.schema.numbers[0].mean == pytest.approx(49)


def test_useless_columns_are_named_and_kept(tmp_path):
    table = made(
        tmp_path,
        {
            "same": [3.0] * 20,
            "word": ["w"] * 20,
            "nothing": pa.nulls(20, pa.float64()),
            "y": label(20),
        },
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = survey(table, "y")
    text = " ".join(str(w.message) for w in said)
    assert "'same', 'word', 'nothing' are constant or all missing" in text
    assert np.abs(found.schema.encode(table.read(0, table.kinds)).numeric).max() < 1e-20


def test_rows_without_a_label_are_left_out_and_counted(tmp_path):
    y = [0, 1, None, 1, 0, None, 1]
    table = made(tmp_path, {"x": np.arange(7.0), "y": y}, 4)
    with pytest.warns(UserWarning, match="2 of 7 rows are left out"):
        found = survey(table, "y")
    assert found.rows == (3, 2)
    assert found.schema.numbers[0].mean == pytest.approx(np.mean([0, 1, 3, 4, 6]))
    assert found.schema.encode(table.read(1, ["x", "y"])).label.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("y", "said"),
    [([None] * 4, "only missing ones"), ([1] * 4, "'1' throughout"), ([], "none at all")],
)
def test_a_label_that_tells_nothing_is_refused(tmp_path, y, said):
    table = made(tmp_path, {"x": pa.array(np.arange(float(len(y)))), "y": pa.array(y, pa.int64())})
    with pytest.raises(gp.InvalidInput, match=said):
        quiet(table)


def test_a_wrong_label_suggests_the_right_one(tmp_path):
    with pytest.raises(gp.InvalidInput, match=r"'clicke'.*Did you mean 'clicked'"):
        quiet(made(tmp_path, {"x": [1.0, 2], "clicked": [0, 1]}), "clicke")


def test_dates_and_other_kinds_are_left_out_and_codes_can_be_taken_as_categories(tmp_path):
    when = pa.array(range(30), pa.timestamp("s"))
    columns = {"code": [1, 2] * 15, "when": when, "list": [[1]] * 30, "y": label(30)}
    table = made(tmp_path, columns)
    with pytest.warns(UserWarning, match="dates or other kinds of values: 'when', 'list'"):
        found = survey(table, "y", Reading(categorical=("code",)))
    assert found.schema.names == ["code"]
    assert [c.values for c in found.schema.categories] == [("1", "2")]
    with pytest.raises(gp.InvalidInput, match="numbers or text in the label 'when'"):
        survey(table, "when")
    with pytest.raises(gp.InvalidInput, match="besides the label"):
        survey(table.without(["code"]), "y")


def test_a_class_that_training_lacks_is_left_out_of_the_validation(tmp_path):
    known = quiet(made(tmp_path, {"x": np.arange(30.0), "y": ["a", "b"] * 15})).schema
    other = made(tmp_path, {"x": np.arange(4.0), "y": ["a", "c", "b", "c"]}, name="v.parquet")
    with pytest.warns(UserWarning, match="2 rows of .* are left out"):
        assert count_rows(other, known).rows == (2,)
    none = made(tmp_path, {"x": np.arange(2.0), "y": ["c", "c"]}, name="n.parquet")
    with pytest.raises(gp.InvalidInput, match="one of the rows to learn from"):
        count_rows(none, known)


def test_a_schema_survives_its_file_and_refuses_others(tmp_path):
    values = ["a"] * 15 + ["b"] * 15
    found = quiet(made(tmp_path, {"c": values, "x": np.arange(30.0), "y": label(30)}))
    assert Schema.from_json(found.schema.to_json()) == found.schema
    assert type(found).from_json(found.to_json()) == found
    with pytest.raises(gp.InvalidFile):
        Schema.from_json('{"numbers": 3}')
    with pytest.raises(gp.InvalidInput, match=r"'d'"):
        found.schema.only(["x", "d"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["no", "no", "no", "yes"] * 5, "2 classes: no (75 %), yes (25 %)"),
        ([0] * 39 + [1], "2 classes: 0 (98 %), 1 (2.5 %)"),
        ([0, 1, 2, 2], "3 classes: 2 (50 %), 0 (25 %), 1 (25 %)"),
        ([0.5, 1.5, 2.5, 3.25], "a number to predict"),
    ],
)
def test_the_task_is_told_in_words(tmp_path, values, words):
    table = made(tmp_path, {"x": list(range(len(values))), "y": values})
    schema = quiet(table).schema
    assert schema.label.in_words() == words
    assert Schema.from_json(schema.to_json()) == schema


def test_numbers_that_would_overflow_count_as_missing(tmp_path):
    x = [1.0, 2.0, 1.797e308, 4.0, -1e300, 3.0] * 5
    table = made(tmp_path, {"x": x, "y": label(30)})
    with pytest.warns(UserWarning, match=r"10 values of 'x' are infinite, or beyond 1e\+90"):
        found = survey(table, "y")
    (number,) = found.schema.numbers
    assert number.mean == pytest.approx(2.5)
    assert number.missing == pytest.approx(1 / 3)
    got = found.schema.encode(table.read(0, ["x", "y"])).numeric[:, 0]
    assert got[[2, 4]].tolist() == [0, 0]


def test_text_that_reads_as_numbers_is_no_other_way_of_writing(tmp_path):
    pq.write_table(pa.table({"x": list(range(20)), "y": label(20)}), tmp_path / "p0.parquet")
    lines = "".join(f"{i * 7 % 20},{i % 2}\n" for i in range(20))
    (tmp_path / "p1.csv").write_text("x,y\n" + lines)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = survey(open_table(tmp_path), "y")
    assert not [w for w in caught if "of numbers in" in str(w.message)]
    assert [n.name for n in found.schema.numbers] == ["x"]


def test_the_nameless_index_of_pandas_is_no_column(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas writes such a column")
    frame = pandas.DataFrame({"x": range(20), "y": label(20)}).sample(frac=1, random_state=0)
    frame.to_parquet(tmp_path / "t.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "t.parquet").names
    table = open_table(tmp_path / "t.parquet")
    assert list(table.kinds) == ["x", "y"]
    assert quiet(table).schema.names == ["x"]


def test_columns_that_further_rows_lack_are_named(tmp_path):
    schema = quiet(made(tmp_path, {"x": range(20), "z": range(20), "y": label(20)})).schema
    lacking = made(tmp_path, {"x": range(20), "y": label(20)}, name="v.parquet")
    with pytest.raises(gp.InvalidInput, match=r"v.parquet too \(got none called 'z'\)"):
        count_rows(lacking, schema)
    strange = made(tmp_path, {"x": range(20), "z": range(20), "y": ["no"] * 20}, name="w.parquet")
    with pytest.raises(gp.InvalidInput, match=r"2 classes: 0 .* \(got none in 20 rows\)"):
        count_rows(strange, schema)
