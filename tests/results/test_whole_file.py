"""Every output is written whole or not at all, by one function, also where the disk is full."""

import ast
import errno
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig import report
from greedypig.graphs import generate, save_graph
from greedypig.graphs.training import save_model
from greedypig.models import GCN
from greedypig.results.files import remove_stale_parts, write_whole
from nets import mlp, row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
SOURCE = Path(gp.__file__).parent
ROOT = Path(__file__).parents[2]


@contextmanager
def full_disk(room=0):
    """No file can grow beyond `room` bytes: the kernel refuses to write more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def as_result(path):
    gp.explain(mlp(), row()).save(path)


def as_page(path):
    report.write(gp.explain(mlp(), row()), path)


def as_graph(path):
    save_graph(generate(30, 60, 4, 2, seed=0), path)


def as_weights(path):
    save_model(GCN(4, 2, 3, 2), path)


def as_figure(path):
    figures = pytest.importorskip("matplotlib.figure", reason="needs the extra plots")
    from greedypig.cli.outputs import save_figure

    figure = figures.Figure()
    figure.add_subplot().plot([0, 1, 0])
    save_figure(figure, path)


def as_table(path):
    pytest.importorskip("pyarrow", reason="needs the extra tables")
    from reproduction.synthetic import CriteoShaped

    CriteoShaped(rows=200, seed=0).write(path)


OUTPUTS = {"a.gpig": as_result, "a.html": as_page, "a.npz": as_graph, "a.safetensors": as_weights,
           "a.png": as_figure, "a.parquet": as_table}  # fmt: skip


@pytest.mark.parametrize("room", [0, 200], ids=["no room", "room for a part"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path, name, room):
    path = tmp_path / name
    path.write_bytes(b"old")
    with full_disk(room), pytest.raises(OSError, match=r"^Expected space .*\(got: ") as caught:
        OUTPUTS[name](path)
    assert isinstance(caught.value, gp.DiskFull)
    assert isinstance(caught.value, gp.GreedyPigError)
    assert caught.value.errno == errno.EFBIG
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk_leaves_no_empty_file_behind(tmp_path, name):
    with full_disk(), pytest.raises(gp.DiskFull):
        OUTPUTS[name](tmp_path / name)
    assert os.listdir(tmp_path) == []
    OUTPUTS[name](tmp_path / name)  # With space again, the same call writes it.
    assert os.listdir(tmp_path) == [name]


def test_a_disk_that_is_full_only_when_it_is_flushed_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f.json"
    write_whole(path, "old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(gp.DiskFull, match="No space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("error", [RuntimeError("half"), KeyboardInterrupt(), OSError("encoder")])
def test_an_error_half_way_leaves_the_old_file_and_is_not_changed(tmp_path, error):
    path = tmp_path / "file.bin"
    write_whole(path, b"old")

    def half(file):
        file.write(b"ne")
        raise error

    with pytest.raises(type(error)) as caught:
        write_whole(path, half)
    assert caught.value is error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_text_bytes_and_functions_are_written_as_they_are(tmp_path):
    path = tmp_path / "f"
    for content in ("ü\r\n", "ü\r\n".encode(), lambda file: file.write("ü\r\n".encode())):
        write_whole(path, content)
        assert path.read_bytes() == b"\xc3\xbc\r\n"


def test_an_error_is_one_sentence_that_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "no folder" / "a.gpig"
    with pytest.raises(FileNotFoundError, match=r"^Expected a folder for .*Try ") as caught:
        as_result(path)
    assert f"{path} (got none at {path.parent})" in str(caught.value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"for gone/a\.gpig \(got none at gone\)"):
        as_result("gone/a.gpig")
    (tmp_path / "folder.gpig").mkdir()
    with pytest.raises(IsADirectoryError, match=r"^Expected .*folder\.gpig \(got a folder\)"):
        as_result(tmp_path / "folder.gpig")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"^Expected a folder for .*\(got none at "):
        as_result(tmp_path / "file" / "a.gpig")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.gpig"]


WRITE = """
import sys
from greedypig.results.files import write_whole

def half(file):
    file.write(b"ne")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
    file.write(b"w")

write_whole(sys.argv[1], half)
"""


@contextmanager
def writing(path):
    """A process that is half-way through writing `path`."""
    words = [sys.executable, "-c", WRITE, os.fspath(path)]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        yield process
        process.kill()


def test_what_a_killed_process_left_is_removed_when_the_file_is_written_again(tmp_path):
    path, other = tmp_path / "a.gpig", tmp_path / "b.gpig"
    path.write_bytes(b"old")
    for target in (path, other):
        with writing(target):
            pass
    assert len(os.listdir(tmp_path)) == 3  # The old file, and two hidden ones.
    assert path.read_bytes() == b"old"
    write_whole(path, "new")
    assert path.read_bytes() == b"new"
    (left,) = set(os.listdir(tmp_path)) - {"a.gpig"}
    assert left.startswith(".b.gpig.")
    remove_stale_parts(path, other)
    assert os.listdir(tmp_path) == ["a.gpig"]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "a.gpig"
    with writing(path) as process:
        write_whole(path, "mine")
        remove_stale_parts(path)
        assert path.read_text() == "mine"
        process.communicate()
        assert process.returncode == 0
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.gpig"]


def test_hidden_files_of_others_are_left_alone(tmp_path):
    others = [".a.part", ".a.mp4.part", ".a.0123456789abcdeg.part", "a.0123456789abcdef.part"]
    for name in others:
        (tmp_path / name).touch()
    write_whole(tmp_path / "a", "text")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "a"])


def test_a_name_as_long_as_the_disk_allows_can_be_written(tmp_path):
    for name in ("ü" * 127, "a" * 255):
        write_whole(tmp_path / name, "text")
        with writing(tmp_path / name):
            pass
        remove_stale_parts(tmp_path / name)
        assert os.listdir(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_a_link_stays_a_link_and_others_may_read_the_file(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "real" / "file.txt")
    before = os.umask(0o022)
    try:
        write_whole(link, "text")
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert (tmp_path / "real" / "file.txt").read_text() == "text"
    assert (tmp_path / "real" / "file.txt").stat().st_mode & 0o777 == 0o644


def test_what_was_written_is_read_back(tmp_path):
    for name, write in OUTPUTS.items():
        write(tmp_path / name)
    assert torch.equal(
        gp.load(tmp_path / "a.gpig").order.sort().values, torch.arange(row().numel())
    )
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["edges"].shape == (2, 60)


ELSEWHERE = {"tools/assets/archives.py": {"replace"}}
"""A download that was checked is moved to its place."""
WRITERS = {"write_text", "write_bytes", "save_file", "mkstemp", "NamedTemporaryFile", "savez",
           "to_csv", "touch"}  # fmt: skip


def writes(path):
    """What a source file calls to write files on its own."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        if name in WRITERS:
            yield name
        if called in ("os.replace", "os.rename", "shutil.move"):
            yield name
        modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)]
                 if isinstance(a, ast.Constant) and isinstance(a.value, str)]  # fmt: skip
        if name == "open" and any(set(mode) & set("wax") and len(mode) < 4 for mode in modes):
            yield "open"


@pytest.mark.slow
def test_every_output_goes_through_one_function():
    beside = [*ROOT.glob("reproduction/*.py"), *ROOT.glob("tools/**/*.py")]
    found = {p.relative_to(SOURCE).as_posix(): set(writes(p)) for p in SOURCE.rglob("*.py")}
    found |= {p.relative_to(ROOT).as_posix(): set(writes(p)) for p in beside}
    own = found.pop("results/files.py")
    assert own == {"open", "replace"}
    assert {name: calls for name, calls in found.items() if calls} == ELSEWHERE
