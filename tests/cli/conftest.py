"""A folder with a photo, and the command line called as a program."""

import subprocess
import sys

import pytest

from greedypig.cli import outputs
from greedypig.graphs import generate, save_graph
from small_photos import MODELS as HERE
from small_photos import TINY, environment, make_photo

__all__ = ["HERE", "TINY", "environment", "make_photo", "program"]


@pytest.fixture
def place(place):
    """A current directory with photo.png, in which tiny_models is found."""
    make_photo(place / "photo.png")
    return place


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


def program(*words, cwd, **more):
    """Run as a program of its own."""
    return subprocess.run(
        [sys.executable, "-m", "greedypig", *map(str, words)], cwd=cwd, env=environment(**more),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
