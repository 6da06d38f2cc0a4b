"""Folders whose photos differ: what does not fit one of them does not end the others."""

import pytest
import torch
from PIL import Image

from conftest import TINY, make_photo
from greedypig.results.curve import Curve, aligned, median_curve

NATURAL = ("--model", "tiny_models:natural")


@pytest.fixture
def sizes(place):
    """A folder with photos of 8 × 8, 1 × 1 and 12 × 10 pixels."""
    folder = place / "sizes"
    folder.mkdir()
    make_photo(folder / "a.png")
    Image.new("RGB", (1, 1), (200, 30, 30)).save(folder / "b.png")
    Image.new("RGB", (12, 10), (40, 200, 30)).save(folder / "c.png")
    return folder


@pytest.mark.parametrize("setting", [("--features", "windows:3"), ("--k", "5")])
def test_a_setting_that_one_photo_does_not_fit_leaves_the_others(call, answers, sizes, setting):
    words = ("explain", "sizes", *NATURAL, *setting, "--rounds", "2", "--out", "o")
    code, out, err = call(*words)
    assert code == 1
    assert "a.png" in out
    assert "c.png" in out
    assert "error: sizes/b.png: Expected" in err
    index = (sizes.parent / "o" / "index.html").read_text()
    assert 'href="./a.html"' in index
    assert "sizes/b.png" in index
    records = answers(*words, code=1)
    assert [r.get("class") for r in records] == ["red", None, "green"]
    assert [r["photo"] for r in records if "error" in r] == ["sizes/b.png"]


def test_a_rival_that_is_one_photo_s_own_class(call, place):
    make_photo(place / "green.png", (30, 200, 40))
    make_photo(place / "blue.png", (30, 40, 200))
    words = ("explain", "photo.png", "green.png", "blue.png", *TINY, "--no-html",
             "--objective", "margin:green", "--rounds", "1")  # fmt: skip
    code, out, err = call(*words)
    assert code == 1
    assert "blue.png" in out
    assert err.startswith("error: green.png: ")


def test_a_setting_that_no_photo_fits_is_a_wrong_command(call, place):
    make_photo(place / "b.png")
    for command in (["explain"], ["compare", "--methods", "ig,random"]):
        code, out, err = call(*command, "photo.png", "b.png", *TINY, "--features", "windows:9")
        assert (code, out) == (2, "")
        assert [line.split(":")[1] for line in err.splitlines()[:2]] == [" photo.png", " b.png"]
    assert not (place / "comparison" / "b").exists()


def test_a_wrong_setting_beside_a_broken_photo_names_both(call, place):
    (place / "text.png").write_text("hello")
    code, _, err = call("explain", "photo.png", "text.png", *TINY, "--features", "windows:9")
    assert code == 1
    assert "error: photo.png: Expected windows" in err
    assert "text.png" in err


@pytest.mark.slow
def test_photos_of_different_sizes_are_compared(answer, sizes):
    record = answer("compare", "sizes", *NATURAL, "--methods", "greedy-pig,ig,random",
                    "--budget", "10", "--out", "o")  # fmt: skip
    assert len(record["photos"]) == 3
    shares = record["methods"]["ig"]["curves"]["softmax"]["fractions"]
    assert shares == pytest.approx([i / 99 for i in range(100)])


@pytest.mark.slow
def test_a_photo_that_a_method_does_not_fit_leaves_the_comparison(answer, sizes):
    record = answer("compare", "sizes", *NATURAL, "--methods", "ig,random", "--budget", "4",
                    "--features", "windows:3", "--out", "o", code=1)  # fmt: skip
    assert [p["photo"] for p in record["photos"]] == ["sizes/a.png", "sizes/c.png"]
    assert [f["photo"] for f in record["failed"]] == ["sizes/b.png"]
    assert sorted(p.name for p in (sizes.parent / "o").iterdir() if p.is_dir()) == ["a", "c"]


def test_curves_of_different_sizes_meet_at_the_shares_asked_for():
    # y = x measured with 3 and with 7 elements at halves: 2/3 and 4/7 are both "a half".
    curves = [Curve([0, 2 / 3, 1], [0, 0.5, 1], "softmax", 1.0),
              Curve([0, 4 / 7, 1], [0, 0.25, 1], "softmax", 1.0),
              Curve([0, 1], [0, 1], "softmax", 1.0)]  # fmt: skip
    met = aligned(curves)
    assert all(torch.equal(c.fractions, torch.tensor([0, 0.5, 1]).double()) for c in met)
    assert median_curve(met).values.tolist() == [0, 0.5, 1]
    assert aligned(curves[:1]) == curves[:1]
