"""What `greedypig explain` prints beside the numbers, and counterfactuals."""

import pytest
import torch
from PIL import Image

import greedypig as gp
from conftest import TINY, make_photo
from greedypig.images import model_from, open_photo


def test_a_counterfactual_tells_what_is_left_without_its_features(call, answer, place):
    words = ("explain", "photo.png", *TINY, "--objective", "counterfactual", "--rounds", "4",
             "--judge", "tiny_models:other")  # fmt: skip
    record = answer(*words)
    a, model = gp.load("photo.gpig"), model_from("tiny_models:build")
    x = model.preprocess(open_photo("photo.png"))
    assert record["kept"] == {}
    for share, probability in record["removed"].items():
        left = torch.where(a.mask(round(float(share) * x.numel())), model.baseline("gray"), x)
        by_hand = torch.softmax(model(left.unsqueeze(0))[0], 0)[record["target"]]
        assert probability == pytest.approx(float(by_hand), abs=1e-5)
    assert record["curve"]["values"][0] == pytest.approx(record["probability"], abs=1e-6)
    assert record["curve"]["values"][-1] == pytest.approx(record["nothing"], abs=1e-6)
    page = (place / "photo.html").read_text()
    assert "switched off" in page
    assert "share of the features switched off" in page
    assert "with only the best features" not in page
    out = call(*words)[1]
    assert "without the best  10 %" in out
    assert "only the best" not in out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        # 10 % of 192 numbers are 19.
        (("--k", "6"), "selected 6 of 192 "),
        (("--budget", "9", "--steps", "9"), "; the others are ranked by their last score"),
        (("--method", "ig"), None),
        ((), None),
    ],
)  # fmt: skip
def test_features_that_were_never_selected_are_told_from_those_that_were(call, words, part):
    out = " ".join(call("explain", "photo.png", *TINY, "--no-html", *words)[1].split())
    if part is None:
        assert "last score" not in out
    else:
        assert part in out


@pytest.fixture
def poppy(place):
    """Green, but with a red spot, which alone makes "red" likelier than the photo does."""
    image = Image.new("RGB", (8, 8), (30, 200, 40))
    image.paste((250, 20, 20), (0, 0, 3, 3))
    image.save(place / "poppy.png")
    return "poppy.png"


def test_advice_to_match_the_photo_s_answer_is_for_that_answer_alone(call, answer, poppy):
    words = ("explain", poppy, *TINY, "--no-html", "--class", "red")
    record = answer(*words)
    assert record["predictions"][0][0] == "green"
    assert record["excess"] is not None
    advice, other = "--objective log-likelihood", "Check with a second network (--judge)."
    out = " ".join(call(*words)[1].split())
    assert f"▲ {100 * record['excess']['share']:.2g} % of the features give a higher" in out
    assert advice not in out
    assert other in out
    # Of several photos one has "red" for its own answer, and there the advice is of use.
    assert advice in " ".join(call("explain", poppy, "photo.png", *words[2:])[1].split())


def test_a_probability_that_rounds_to_nothing_is_less_than_what_is_shown(call, answer, place):
    Image.new("RGB", (8, 8), "black").save(place / "night.png")
    words = ("night.png", "--model", "tiny_models:sharp", "--class", "red", "--no-html")
    record = answer("explain", *words)
    assert 0 < record["probability"] < 0.0005
    _, out, _ = call("explain", *words)
    assert out.startswith("night.png: red, probability less than 0.001")
    assert "0.000" not in out
    row = call("explain", "photo.png", *words)[1].splitlines()[3]
    assert row.split()[:4] == ["night.png", "▲", "red", "<0.001"]


@pytest.mark.slow
def test_the_judge_s_view_of_the_whole_photo_is_told(call, answer, place):
    judged = ("photo.png", *TINY, "--judge", "tiny_models:other")
    whole = answer("explain", *judged)["curves"]["second-opinion"]["values"][-1]
    out = " ".join(call("explain", *judged)[1].split())
    own = gp.load("photo.gpig").about.probability
    assert f"whole photo: {own:.3f} and {whole:.3f}" in out
    out = call("compare", *judged, "--methods", "ig", "--budget", "5")[1]
    assert f"second opinion by tiny_models:other: {whole:.3f} for the whole photo" in out


@pytest.mark.parametrize(("features", "word"), [("pixels", "64 pixels"), ("grid:2", "16 squares")])
def test_features_are_called_by_their_name(call, place, features, word):
    out = call("explain", "photo.png", *TINY, "--features", features, "--rounds", "2")[1]
    assert f"of {word}, whole" in out
    assert "group" not in out
    assert f"as many whole {word.split()[1]} as fit" in (place / "photo.html").read_text()


@pytest.mark.slow
def test_the_page_of_several_photos_has_the_table_and_both_curves(call, place):
    make_photo(place / "b.png", (220, 90, 90))
    (place / "text.png").write_text("hello")
    call("compare", "photo.png", "b.png", "text.png", *TINY, "--methods", "ig,random", "--out", "o",
         "--budget", "5")  # fmt: skip
    page = (place / "o/comparison.html").read_text()
    for piece in ("Methods over 2 photos", 'id="curve-methods"', 'id="curve-methods-loss"',
                  "LIC AUC", "text.png", 'href="./b/comparison.html"'):  # fmt: skip
        assert piece in page
