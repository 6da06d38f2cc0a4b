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
    assert told.startswith(f"photo.png: {record['class']}, probability {record['probability']:.3f}")
    for share, sure in record["kept"].items():
        assert f"best {100 * float(share):3g} % of the features: {sure:.3f}\n" in told
    assert f"area under the curve {record['curve']['auc']:.3f}, " in told
    for suffix in ("gpig", "html", "png"):
        assert (place / "out" / f"photo.{suffix}").is_file()
