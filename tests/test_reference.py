"""`make docs`: every public name is on a page."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest

import greedypig as gp

SCRIPT = Path(__file__).parents[1] / "docs/reference.py"


@pytest.mark.slow
def test_every_public_name_is_on_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pdoc")
    for name in ("FeatureSelector", "from_captum"):  # What the script puts there goes again.
        monkeypatch.setattr(gp, name, getattr(gp, name), raising=False)
    script = runpy.run_path(str(SCRIPT))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # pdoc's own, of what it cannot find.
        script["write"](tmp_path)
    page = (tmp_path / "greedypig.html").read_text()
    parts = {"metrics", "models", "plots", "report"}
    found = set(re.findall(r'<section id="(\w+)"', page))
    assert set(gp.__all__) - parts <= found
    assert all((tmp_path / "greedypig" / f"{part}.html").is_file() for part in parts)
    assert "<li><strong>target</strong>: the class to explain" in page
