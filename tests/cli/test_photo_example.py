"""examples/photo.py says that it does what `greedypig explain` does: it tells the same numbers."""

import runpy
import sys
from functools import partial

import pytest

import greedypig as gp
from conftest import HERE, TINY


@pytest.mark.slow
def test_the_example_tells_what_the_command_tells(answer, place, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    record = answer("explain", "photo.png", *TINY, "--out", "o")
    monkeypatch.setattr(gp, "explain_photo", partial(gp.explain_photo, model=TINY[1]))
    monkeypatch.setattr(sys, "argv", ["photo.py", "photo.png"])
    runpy.run_path(str(HERE.parent.parent / "examples" / "photo.py"), run_name="__main__")
    told = capsys.readouterr().out
    assert told.startswith(f"{record['class']}, probability {record['probability']:.3f}: ")
    for suffix in ("gpig", "html", "png"):
        assert (place / "out" / f"photo.{suffix}").is_file()
    noted = gp.load(place / "out" / "photo.gpig").about
    assert noted.source == "photo.png"
    assert list(noted.kept.values()) == pytest.approx(list(record["kept"].values()))
    assert noted.curves["softmax"].auc == pytest.approx(record["curve"]["auc"])
