"""Tables in every format are the same table; what is damaged is named; pieces are exact."""

import csv
import gc
import gzip
import io

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq

import greedypig as gp
from greedypig.core.errors import DiskFull
from greedypig.tables import files as files_module
from greedypig.tables import find_tables, open_table, survey
from greedypig.tables.arrow import arrow, as_classes, as_numbers, as_texts

ROWS = pa.table({"x": [1.5, None, -3.0, 4.0], "c": ["a", "b", None, "a, b"], "y": [0, 1, 0, 1]})


def write(path, table=ROWS):
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=2)
    elif name.endswith((".arrow", ".feather")):
        pyarrow.feather.write_feather(table, path, chunksize=2, compression="uncompressed")
    else:
        sign = "\t" if ".tsv" in name else ","
        raw = io.BytesIO()
        pyarrow.csv.write_csv(table, raw, pyarrow.csv.WriteOptions(delimiter=sign))
        path.write_bytes(gzip.compress(raw.getvalue()) if name.endswith(".gz") else raw.getvalue())
    return path


@pytest.mark.parametrize(
    "name", ["t.parquet", "t.arrow", "t.feather", "t.csv", "t.tsv", "t.csv.gz"]
)
def test_every_format_holds_the_same_rows(tmp_path, name):
    table = open_table(write(tmp_path / name))
    assert list(table.kinds) == ["x", "c", "y"]
    pieces = [table.read(i, ["x", "c"]) for i in range(len(table.pieces))]
    numbers = np.concatenate([as_numbers(p["x"])[0] for p in pieces])
    np.testing.assert_array_equal(numbers, [1.5, np.nan, -3, 4])
    assert [t for p in pieces for t in as_texts(p["c"]).to_pylist()] == ["a", "b", None, "a, b"]


def test_folders_and_patterns_are_sorted_and_leave_foreign_files_out(tmp_path):
    for name in ("b.parquet", "a.csv", "_SUCCESS.csv", ".hidden.csv", "notes.md"):
        write(tmp_path / name) if name.endswith("parquet") else (tmp_path / name).write_text("x\n1")
    assert [p.name for p in find_tables(tmp_path)] == ["a.csv", "b.parquet"]
    assert [p.name for p in find_tables(tmp_path / "*.parquet")] == ["b.parquet"]
    with pytest.raises(gp.InvalidInput, match=r"got none"):
        find_tables(tmp_path / "*.arrow")
    with pytest.raises(gp.InvalidInput, match=r"notes.md .*endings"):
        find_tables(tmp_path / "notes.md")


def test_a_killed_writer_s_file_is_named(tmp_path):
    whole = write(tmp_path / "good.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(gp.InvalidFile, match=r"half\.parquet .*cut off or damaged"):
        open_table(tmp_path)
    packed = gzip.compress(b"x,y\n" + b"1,2\n" * 50_000)
    (tmp_path / "half.csv.gz").write_bytes(packed[:-40])
    with pytest.raises(gp.InvalidFile, match=r"half\.csv\.gz .*cut off or damaged"):
        assert open_table(tmp_path / "half.csv.gz").pieces


def test_a_damaged_row_group_is_named(tmp_path):
    path = write(tmp_path / "t.parquet")
    raw = bytearray(path.read_bytes())
    raw[4:60] = bytes(56)
    path.write_bytes(raw)
    table = open_table(path)
    with pytest.raises(gp.InvalidFile, match=r"t\.parquet"):
        table.read(0, ["x", "c", "y"])


@pytest.mark.parametrize("name", ["e.csv", "e.parquet", "e.arrow"])
def test_empty_files_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(gp.InvalidFile, match=rf"{name} \(got an empty file\)\. Try writing"):
        open_table(tmp_path / name)


def test_files_of_different_columns_are_named_with_the_difference(tmp_path):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", ROWS.rename_columns(["x", "d", "y"]))
    with pytest.raises(gp.InvalidInput, match=r"b\.parquet.*'c', 'd'"):
        open_table(tmp_path)


def test_another_order_of_columns_is_the_same_table(tmp_path):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", ROWS.select(["y", "c", "x"]))
    table = open_table(tmp_path)
    assert table.read(len(table.pieces) - 1, ["x", "y"]).to_pydict() == {"x": [-3, 4], "y": [0, 1]}


def test_numbers_in_one_file_and_texts_in_another_are_texts(tmp_path):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", ROWS.set_column(0, "x", pa.array(["1", "2", "?", "4"])))
    assert open_table(tmp_path).kinds["x"] == "text"


def test_criteo_s_file_is_known_by_its_look(tmp_path):
    line = "\t".join(["1", "5", *[""] * 12, "68fd1e64", *[""] * 25])
    (tmp_path / "day_0.tsv").write_text(f"{line}\n" * 3)
    table = open_table(tmp_path / "day_0.tsv")
    assert list(table.kinds)[:2] == ["label", "I1"]
    assert list(table.kinds)[-1] == "C26"
    read = table.read(0, ["label", "I1", "I2", "C1", "C2"])
    assert (
        read.to_pylist()
        == [{"label": "1", "I1": "5", "I2": None, "C1": "68fd1e64", "C2": None}] * 3
    )


def test_a_line_of_other_length_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4,5\n")
    with pytest.raises(gp.InvalidFile, match=r"t\.csv"):
        open_table(tmp_path / "t.csv").read(0, ["a", "b"])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_a_column_without_a_name_is_called_as_pandas_calls_it(tmp_path, name):
    table = pa.table([pa.array([7, 8]), pa.array([1, 2])], names=["", "a"])
    path = tmp_path / name
    if name == "t.csv":
        path.write_text(",a\n7,1\n8,2\n")
    elif name == "t.parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    opened = open_table(path)
    assert survey(opened, "a").schema.names == ["Unnamed: 0"]
    read = opened.read(0, ["a", "Unnamed: 0"])
    assert [[int(v) for v in c] for c in read.to_pydict().values()] == [[1, 2], [7, 8]]


def test_categories_as_polars_writes_them_are_read(tmp_path):
    words = ["red", None, "blue", "red"]
    try:
        views = pa.array(words, pa.string_view())
        coded = pa.DictionaryArray.from_arrays(
            pa.array([0, None, 1, 0], pa.uint32()), pa.array(["red", "blue"], pa.string_view())
        )
    except (AttributeError, pa.ArrowException) as error:
        pytest.skip(f"this pyarrow has no views: {error}")
    table = pa.table({"c": coded, "v": views})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    read = open_table(tmp_path / "t.arrow").read(0, ["c", "v"])
    for name in ("c", "v"):
        assert as_texts(read[name]).to_pylist() == words
        assert as_classes(read[name]).to_pylist() == words
        assert as_texts(read.slice(1, 2)[name]).to_pylist() == words[1:3]


def test_the_same_name_twice_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(gp.InvalidInput, match="'a' more than once"):
        open_table(tmp_path / "t.csv")


def test_small_blocks_give_the_same_rows(tmp_path, monkeypatch):
    lines = "".join(f"{i},v{i % 7}\n" for i in range(5000))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"n,c\n" + lines.encode()))
    monkeypatch.setattr(files_module, "BLOCK", 1000)
    table = open_table(tmp_path / "t.csv.gz")
    assert len(table.pieces) > 20
    read = [table.read(i, ["n"])["n"].to_pylist() for i in range(len(table.pieces))]
    assert [int(n) for part in read for n in part] == list(range(5000))


def test_a_missing_pyarrow_names_the_extra(tmp_path, monkeypatch):
    import sys

    path = write(tmp_path / "t.parquet")
    arrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(gp.MissingPackage, match=r"greedypig\[tables\]"):
        open_table(path)


@pytest.fixture
def days(tmp_path):
    """country=…/day=…/part.*: the folders hold columns that the files do not."""
    for country, day, name in (
        ("DE", "1", "p.parquet"),
        ("a%2Cb", "2", "p.csv"),
        ("__HIVE_DEFAULT_PARTITION__", "2", "p.arrow"),
    ):
        folder = tmp_path / "days" / f"country={country}" / f"day={day}" / "year=2024"
        folder.mkdir(parents=True)
        write(folder / name)
    return tmp_path / "days"


@pytest.mark.parametrize("where", ["", "country=*", "*/*/*/*", "country=*/day=*"])
def test_folders_of_the_form_name_value_are_columns(days, where):
    table = open_table(days / where)
    assert list(table.kinds) == ["x", "c", "y", "country", "day"]  # One year tells nothing.
    read = [table.read(i, ["day", "y", "country"]) for i in range(len(table.pieces))]
    assert all(r.column_names == ["day", "y", "country"] for r in read)
    countries = [v for r in read for v in as_texts(r["country"]).to_pylist()]
    found = sorted(countries, key=str)
    assert found == ["DE"] * 4 + [None] * 4 + ["a,b"] * 4
    numbers = np.concatenate([as_numbers(r["day"])[0] for r in read])
    assert sorted(numbers.tolist()) == [1] * 4 + [2] * 8
    alone = table.read(0, ["day"])
    assert alone.num_rows == read[0].num_rows
    assert open_table(days, keep=["year"]).kinds["year"] == "text"


def test_columns_of_folders_are_encoded_like_others(days):
    table = open_table(days)
    with pytest.warns(UserWarning, match="Missing numbers"):
        found = survey(table, "y")
    assert {c.name for c in found.schema.numbers} == {"x", "day"}
    assert {c.name for c in found.schema.categories} == {"c", "country"}


def test_a_file_s_own_column_goes_before_its_folder_s_and_every_file_needs_one(tmp_path):
    for day in "12":
        (tmp_path / f"y={day}").mkdir()
        write(tmp_path / f"y={day}" / "p.parquet")
    table = open_table(tmp_path)
    assert list(table.kinds) == ["x", "c", "y"]
    assert table.read(0, ["y"])["y"].to_pylist() == [0, 1]
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=2").mkdir()
    for name in ("day=1/p.parquet", "day=2/p.parquet", "p.parquet"):
        write(tmp_path / name)
    with pytest.raises(gp.InvalidInput, match="'day'"):
        open_table(tmp_path)


def test_what_a_writer_has_not_finished_is_left_alone(tmp_path):
    for folder in ("_temporary/0", ".ipynb_checkpoints", "_day=1"):
        (tmp_path / folder).mkdir(parents=True)
        write(tmp_path / folder / "p.parquet")
    assert [p.parent.name for p in find_tables(tmp_path)] == ["_day=1"]


def test_a_newline_between_quotes_ends_no_line(tmp_path):
    cells = ["a\nb", 'say "x"', "é", "", "z,"]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
        [["c", "n"], *([c, str(i)] for i, c in enumerate(cells))]
    )
    for name, raw in (
        ("t.csv", text.getvalue().encode()),
        ("t.csv.gz", gzip.compress(text.getvalue().encode())),
    ):
        (tmp_path / name).write_bytes(raw)
        read = open_table(tmp_path / name).read(0, ["c"])
        assert as_texts(read["c"]).to_pylist() == [c or None for c in cells]


HEADS = {
    "carriage returns": b"x,c,y\r1,a,0\r2,b,1\r",
    "carriage returns without a last one": b"x,c,y\r1,a,0\r2,b,1",
    "a name of two lines": b'"x",c,"y"\n1,a,0\n2,b,1\n'.replace(b'"x"', b'"x\r\n"'),
    "empty lines before": b"\r\n\n\r\nx,c,y\r\n1,a,0\r\n\r\n2,b,1\r\n",
    "a byte order mark": b'\xef\xbb\xbf"x",c,y\n1,a,0\n2,b,1\n',
}


@pytest.mark.parametrize("head", HEADS)
def test_the_first_line_of_text_is_read_whatever_ends_it(tmp_path, head, monkeypatch):
    for size in (files_module.BLOCK, 24):
        monkeypatch.setattr(files_module, "BLOCK", size)
        for name, raw in (("t.csv", HEADS[head]), ("t.csv.gz", gzip.compress(HEADS[head]))):
            (tmp_path / name).write_bytes(raw)
            table = open_table(tmp_path / name)
            assert list(table.kinds) == ["x", "c", "y"]
            read = pa.concat_tables(table.read(i, ["x", "c"]) for i in range(len(table.pieces)))
            texts = [as_texts(column).to_pylist() for column in read.columns]
            assert texts == [["1", "2"], ["a", "b"]]


def test_names_in_quotes_hold_separators_and_lines(tmp_path):
    (tmp_path / "t.csv").write_text('"in €, gross";"cell\ncount";"a ""b"""\n1;2;3\n')
    table = open_table(tmp_path / "t.csv")
    assert list(table.kinds) == ["in €, gross", "cell count", 'a "b"']
    assert table.read(0, list(table.kinds)).to_pylist()[0] == dict(
        zip(table.kinds, "123", strict=True)
    )


NO_HEADS = {
    "empty lines": b"\n\r\n\n",
    "a byte order mark alone": b"\xef\xbb\xbf",
    "a quotation mark without end": b'"x,c,y\n1,a,0\n2,b,1\n',
    "a name without end": b"x" * 200_000 + b",c\n1,a\n",
}


@pytest.mark.parametrize("head", NO_HEADS)
def test_text_without_a_line_of_names_is_one_sentence(tmp_path, head):
    (tmp_path / "t.csv").write_bytes(NO_HEADS[head])
    with pytest.raises(gp.InvalidFile, match=r"^Expected a line of column .*t\.csv \(got .*Try "):
        open_table(tmp_path / "t.csv")


def test_a_line_of_names_alone_has_no_rows(tmp_path):
    for raw in (b"x,y", b"x,y\n"):
        (tmp_path / "t.csv").write_bytes(raw)
        table = open_table(tmp_path / "t.csv")
        assert list(table.kinds) == ["x", "y"]
        assert table.rows == 0


@pytest.mark.slow
def test_text_is_converted_once_into_the_folder_of_a_job(tmp_path):
    path = write(tmp_path / "t.csv")
    for _ in range(2):
        table = open_table(path).converted(tmp_path / "work")
        (file,) = (tmp_path / "work").iterdir()
        if _ == 0:
            written = file.stat().st_mtime_ns
        assert file.stat().st_mtime_ns == written
        assert len(table.pieces) == 1
    kept = open_table(path)
    folder = kept.pieces[0][0]._folder
    assert folder.exists()
    del kept, table
    gc.collect()
    assert not folder.exists()


def test_a_full_disk_is_no_damaged_file(tmp_path, monkeypatch):
    def full(path, content):
        raise DiskFull("no space")

    monkeypatch.setattr(files_module, "write_whole", full)
    with pytest.raises(DiskFull, match="no space"):
        assert open_table(write(tmp_path / "t.csv")).pieces
