"""A folder with a photo, and the command line called as a function or as a program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="needs the extra images")
from PIL import Image

from greedypig.cli import outputs
from greedypig.cli.main import main
from greedypig.graphs import generate, save_graph
from reproduction.__main__ import main as reproduce

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TINY = ("--model", "tiny_models:build")


def make_photo(path, colour=(230, 60, 40)):
    """A plain patch on black, so that a few pixels decide."""
    image = Image.new("RGB", (8, 8), (20, 20, 20))
    image.paste(colour, (2, 2, 6, 6))
    image.save(path)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty current directory with photo.png, in which tiny_models is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.delenv("GREEDYPIG_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    make_photo(tmp_path / "photo.png")
    return tmp_path


@pytest.fixture
def call(place, capsys):
    """Run the command line in this process: (exit code, standard output, standard error)."""

    def run(*words):
        words = [str(word) for word in words]
        code = reproduce(words[1:]) if words[:1] == ["reproduce"] else main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def answer(call):
    """Run with --json and read the one object."""

    def run(*words, code=0):
        got, out, err = call(*words, "--json")
        assert got == code, err
        return json.loads(out)

    return run


@pytest.fixture
def quick_figures(monkeypatch, request):
    """Drawing takes longer than all the rest: tests of the files alone look at the figure."""
    if "files" not in request.node.name:
        fake = lambda figure, file: file.write_bytes(b"greedypig")  # noqa: E731
        monkeypatch.setattr(outputs, "save_figure", fake)


@pytest.fixture
def graph(place):
    """A small graph, in graph.npz."""
    made = generate(60, 150, 6, 3, signal=2.0, labels_per_class=6, seed=3)
    save_graph(made, place / "graph.npz")
    return made


def environment(**more):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(HERE)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **more}


def program(*words, cwd, **more):
    """Run as a program of its own."""
    return subprocess.run(
        [sys.executable, "-m", "greedypig", *map(str, words)], cwd=cwd, env=environment(**more),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
