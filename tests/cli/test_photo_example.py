"""examples/photo.py says that it does what `greedypig explain` does: it tells the same numbers."""

import runpy
import sys

import pytest

import greedypig as gp
from conftest import HERE, TINY
from greedypig.images import model_from


@pytest.mark.slow
def test_the_example_tells_what_the_command_tells(call, answer, place, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    record = answer("explain", "photo.png", *TINY, "--out", "o")
    model = model_from(TINY[1])
    model.name = "tiny"  # As the built-in networks have one.
    monkeypatch.setattr(gp.models, "load", lambda _: model)
    monkeypatch.setattr(sys, "argv", ["photo.py", "photo.png"])
    runpy.run_path(str(HERE.parent.parent / "examples" / "photo.py"), run_name="__main__")
    told = capsys.readouterr().out
    assert told.startswith(f"photo.png: {record['class']}, probability {record['probability']:.3f}")
    for share, sure in record["kept"].items():
        assert f"best {100 * float(share):3g} % of the features: {sure:.3f}\n" in told
    assert f"area under the curve {record['curve']['auc']:.3f}, " in told
    excess = record["excess"]
    part = f"{100 * excess['share']:.2g} % of the features give"
    assert part in told
    assert f"({excess['probability']:.3f})" in told
    assert part in " ".join(call("explain", "photo.png", *TINY, "--out", "o")[1].split())
