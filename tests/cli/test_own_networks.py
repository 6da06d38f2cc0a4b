"""`greedypig explain --model package.module:factory`: what such a network gives and is shown."""

import pytest
import torch
from PIL import Image

from greedypig.images import model_from

QUICK = ("--rounds", "3", "--steps", "3", "--no-html")


def test_a_judge_sees_what_the_network_sees(answer):
    """Its mean colours do not change where every pixel becomes four."""
    record = answer("explain", "photo.png", "--model", "tiny_models:build", "--judge",
                    "tiny_models:shifted", "--features", "pixels", *QUICK)  # fmt: skip
    own, second = (record["curves"][name]["values"] for name in ("softmax", "second-opinion"))
    assert second == pytest.approx(own, abs=0.02)
    assert second[-1] == pytest.approx(record["probability"], abs=1e-4)


@pytest.mark.parametrize("command", [("explain",), ("compare", "--methods", "ig,random")])
def test_a_network_is_not_its_own_judge(call, place, command):
    twice = ("--model", "tiny_models:build", "--judge", "tiny_models:build")
    code, out, err = call(*command, "photo.png", *twice)
    assert (code, out) == (2, "")
    assert "Expected another network than the explained one for a second opinion" in err
    assert not (place / "photo.gpig").exists()


def test_what_cannot_be_shown_to_the_judge_is_told_before_the_search(call, place):
    for model, judge in (("build", "crooked"), ("crooked", "build")):
        code, _, err = call("explain", "photo.png", "--model", f"tiny_models:{model}", "--judge",
                            f"tiny_models:{judge}")  # fmt: skip
        assert code == 2
        assert "preprocess of tiny_models:crooked" in err
        assert "from_pixels(pixels)" in err
    assert not (place / "photo.gpig").exists()


def test_probabilities_are_told_by_an_option(call, answer):
    by_logits = answer("explain", "photo.png", "--model", "tiny_models:build", *QUICK)
    sure = ("explain", "photo.png", "--model", "tiny_models:sure", *QUICK)
    code, _, err = call(*sure)
    assert code == 0
    assert err.count("warning") == 1
    assert "--outputs probabilities" in err
    code, _, err = call(*sure, "--outputs", "probabilities")
    assert (code, err) == (0, "")
    record = answer(*sure, "--outputs", "probabilities", "--judge", "tiny_models:build")
    assert record["probability"] == pytest.approx(by_logits["probability"], abs=1e-6)
    assert record["order"] == by_logits["order"]
    assert record["curves"]["second-opinion"]["values"] == pytest.approx(
        record["curve"]["values"], abs=1e-5
    )


@pytest.mark.usefixtures("quick_figures")
def test_compare_takes_the_option_too(answer):
    words = ("compare", "photo.png", "--methods", "ig,random")
    sure = answer(*words, "--model", "tiny_models:sure", "--outputs", "probabilities")
    plain = answer(*words, "--model", "tiny_models:build", "--out", "plain")
    for name, row in plain["methods"].items():
        assert sure["methods"][name]["sic_auc"] == pytest.approx(row["sic_auc"], abs=1e-6)


def test_one_logit_is_yes_or_no(answer, call):
    model = model_from("tiny_models:single")
    x = model.preprocess(Image.open("photo.png"))[None]
    record = answer("explain", "photo.png", "--model", "tiny_models:single", *QUICK)
    assert record["class"] == "yes"
    assert record["probability"] == pytest.approx(float(torch.sigmoid(model.net(x))), abs=1e-6)
    record = answer("explain", "photo.png", "--model", "tiny_models:single", "--class", "no",
                    *QUICK)  # fmt: skip
    assert record["target"] == 0


def test_classes_without_names_are_called_classes(call):
    _, out, _ = call("explain", "photo.png", "--model", "tiny_models:nameless", *QUICK)
    assert out.startswith("photo.png: class 1, probability 0.")
