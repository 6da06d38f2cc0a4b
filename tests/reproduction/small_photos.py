"""Fixtures: small photos in a folder, and `python -m reproduction` called as a function."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="needs the extra images")
from PIL import Image

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "cli"
"""The folder of tiny_models.py."""
COLOURS = {"red": (230, 40, 30), "green": (30, 220, 40), "blue": (40, 30, 240),
           "dark": (10, 12, 8), "rose": (200, 90, 60), "sea": (20, 90, 200)}  # fmt: skip


def save_photo(path, colour):
    """A plain patch on black, so that a few pixels decide."""
    image = Image.new("RGB", (8, 8), (20, 20, 20))
    image.paste(colour, (2, 2, 6, 6))
    image.save(path)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty current directory in which tiny_models is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(MODELS))
    monkeypatch.delenv("GREEDYPIG_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def photos(place):
    """Six photos."""
    (place / "photos").mkdir()
    for i, colour in enumerate(COLOURS.values()):
        save_photo(place / "photos" / f"{i}.png", colour)
    return place / "photos"


@pytest.fixture
def labelled(place):
    """Three photos whose names tell a class; the network predicts another one for the second."""
    folder = place / "photos" / "n01484850"  # Class 2.
    folder.mkdir(parents=True)
    save_photo(place / "photos" / "imagenet_00_0.png", COLOURS["red"])
    save_photo(place / "photos" / "imagenet_01_7.png", COLOURS["green"])
    save_photo(folder / "sea.png", COLOURS["blue"])


@pytest.fixture
def plain(place):
    """Four plain pictures, of four classes: one grid."""
    (place / "photos").mkdir()
    colours = [COLOURS[name] for name in ("red", "green", "blue")]
    for i, colour in enumerate([*colours, (180, 180, 30)]):
        Image.new("RGB", (16, 16), colour).save(place / "photos" / f"{i}.png")
    return place / "photos"


@pytest.fixture
def call(place, capsys):
    """Run in this process: (exit code, standard output, standard error)."""
    from reproduction.__main__ import main

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def answer(call):
    """Run with --json and read the one object."""

    def run(*words, code=0):
        exit_code, out, err = call(*words, "--json")
        assert exit_code == code, err
        return json.loads(out)

    return run


@pytest.fixture
def environment():
    """For a process that finds the package, the reproductions and tiny_models."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(MODELS)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
