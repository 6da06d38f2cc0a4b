"""Small photos for small networks, and the environment in which a program finds both."""

import os
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="needs the extra images")
from PIL import Image

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "tests" / "cli"
"""The folder of tiny_models.py."""
TINY = ("--model", "tiny_models:build")


def make_photo(path, colour=(230, 60, 40)):
    """A plain patch on black, so that a few pixels decide."""
    image = Image.new("RGB", (8, 8), (20, 20, 20))
    image.paste(colour, (2, 2, 6, 6))
    image.save(path)
    return path


def environment(**more):
    """For a process that finds the package, the reproductions and tiny_models."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(MODELS)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **more}
