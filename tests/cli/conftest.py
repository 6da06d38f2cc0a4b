"""A folder with a photo, and the command line called as a program."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields

import pytest
from torch import Tensor

import greedypig as gp
from greedypig.cli import outputs
from greedypig.graphs import generate, save_graph
from small_photos import MODELS as HERE
from small_photos import TINY, environment, make_photo

__all__ = ["HERE", "TINY", "environment", "make_photo", "program"]
TEXT = "The cat sat on the mat . The dog ran under the red house . Maria was not in the film ."
DOCUMENTS = {"cat.txt": "The cat is red .", "dog.md": "The dog is blue .", "film.txt": "A film ."}
MESSAGE = re.compile(r"error: Stopped\b.*?(Go on|Start again) with:\n  (.*)\n$", re.DOTALL)


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


@pytest.fixture
def saved(place):
    """Folders of a classifier and of a language model that chats, and a folder of documents."""
    logging = pytest.importorskip("transformers").utils.logging
    from text.tiny import model, tokenizer

    logging.disable_progress_bar()
    for name, kind in {"classifier": "bert", "speaker": "llama"}.items():
        model(kind).save_pretrained(place / name)
        words = tokenizer(classifier=kind == "bert", chat=kind == "llama")
        words.save_pretrained(place / name)
    logging.enable_progress_bar()
    (place / "docs").mkdir()
    for name, text in DOCUMENTS.items():
        (place / "docs" / name).write_text(text + "\n")
    (place / "review.txt").write_text(TEXT)
    return place


def way_on(err):
    """The words of the command that a stopped one gives."""
    message = MESSAGE.search(err)
    assert message is not None, err
    how, command = message.groups()
    words = shlex.split(command)
    if words[:3] == ["python", "-m", "reproduction"]:
        words[:3] = ["greedypig", "reproduce"]  # As `call` names it.
    assert words[0] == "greedypig"
    assert (how == "Go on") == (words[2] == "--resume"), err
    return words[1:]


def results(folder):
    """What the result files of a folder hold, but for the clock and the command."""
    return {
        file.relative_to(folder).as_posix(): _contents(gp.load(file))
        for file in sorted(folder.rglob("*.gpig"))
    }


def _contents(a):
    plain = {field.name: getattr(a, field.name) for field in fields(a)}
    plain |= {"features": a.features.state(), "seconds": None, "layout": repr(a.layout)}
    plain["about"] = a.about.record() | {"command": None}
    text = json.dumps(plain, default=lambda x: x.tolist() if isinstance(x, Tensor) else str(x))
    return re.sub(r'"seconds": [\d.e-]+', "", text)


def program(*words, cwd, **more):
    """Run as a program of its own."""
    return subprocess.run(
        [sys.executable, "-m", "greedypig", *map(str, words)], cwd=cwd, env=environment(**more),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
