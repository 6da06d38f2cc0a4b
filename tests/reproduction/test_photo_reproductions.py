"""`python -m reproduction` on small pictures: the right numbers, kept, resumed, shared."""

import csv
import os
import re
import shlex
import subprocess
import sys
import warnings

import pytest
import torch

import greedypig as gp
from agreement import agree_in_numbers
from greedypig import metrics
from greedypig.images import model_from, open_photo
from reproduction import __main__ as command
from reproduction import experiment
from reproduction import photos as sample
from small_photos import TINY, Image, environment, make_photo

pytestmark = pytest.mark.slow

SMALL = (*TINY, "--photos", "photos", "--out", "out", "--budget", "8")
FOUR = ("--model", "tiny_models:four", "--photos", "photos", "--out", "out", "--budget", "8")
METHODS = ("--methods", "ig,paper,default,random")
COLOURS = {
    "red": (230, 40, 30),
    "green": (30, 220, 40),
    "blue": (40, 30, 240),
    "dark": (10, 12, 8),
    "rose": (200, 90, 60),
    "sea": (20, 90, 200),
}


@pytest.fixture
def photos(place):
    """Six photos."""
    (place / "photos").mkdir()
    for i, colour in enumerate(COLOURS.values()):
        make_photo(place / "photos" / f"{i}.png", colour)
    return place / "photos"


@pytest.fixture
def labelled(place):
    """Three photos whose names tell a class; the network predicts another one for the second."""
    folder = place / "photos" / "n01484850"  # Class 2.
    folder.mkdir(parents=True)
    make_photo(place / "photos" / "imagenet_00_0.png", COLOURS["red"])
    make_photo(place / "photos" / "imagenet_01_7.png", COLOURS["green"])
    make_photo(folder / "sea.png", COLOURS["blue"])


@pytest.fixture
def plain(place):
    """Four plain pictures, of four classes: one grid."""
    (place / "photos").mkdir()
    colours = [COLOURS[name] for name in ("red", "green", "blue")]
    for i, colour in enumerate([*colours, (180, 180, 30)]):
        Image.new("RGB", (16, 16), colour).save(place / "photos" / f"{i}.png")
    return place / "photos"


def table(file):
    with open(file, newline="") as text:
        return list(csv.DictReader(text))


def as_numbers(rows):
    """The rows of a CSV file without times, their numbers as such."""

    def number(text):
        try:
            return float(text)
        except ValueError:
            return text

    return [{k: number(v) for k, v in row.items() if k != "seconds"} for row in rows]


def counted(monkeypatch):
    """The inputs that are explained from now on."""
    calls, plain = [], sample.explain

    def run(model, x, **more):
        calls.append(x)
        return plain(model, x, **more)

    monkeypatch.setattr(sample, "explain", run)
    return calls


def test_the_numbers_are_the_areas_under_the_median_curves(photos, answer, place):
    record = answer("reproduce", "sic", *SMALL, *METHODS)
    rows = {(r["method"], r["ranking"]): r for r in record["rows"]}
    model = model_from("tiny_models:build")
    for objective, kind, column in (
        ("softmax", "softmax", "sic"),
        ("log-likelihood", "loss", "lic"),
    ):
        curves = []
        for file in sorted(photos.iterdir()):
            x = model.preprocess(open_photo(file))
            a = gp.explain(model, x, method=gp.IG(steps=8), objective=objective, baseline="gray")
            curves.append(metrics.information_curves(model, x, a, baseline="gray")[kind])
        expected = metrics.median_curve(curves).auc
        assert rows["ig", "absolute"][column] == pytest.approx(expected, rel=1e-5)
    assert rows["ig", "absolute"]["paper_sic"] == 0.2639
    assert rows["paper", "order"]["paper_lic"] == 0.6655
    assert rows["paper", "absolute"]["paper_lic"] is None
    assert rows["default", "order"]["sic"] > rows["random", "absolute"]["sic"]
    assert {r["photos"] for r in record["rows"]} == {6}

    page = (place / "out" / "sic.md").read_text()
    for text in ("0.2639", "0.8486", "6 photos", "Weights:", "at most 8 gradients"):
        assert text in page
    # Every line of the table has as many cells as its head.
    counts = {len(re.split(r"(?<!\\)\|", line)) for line in page.splitlines() if line[:1] == "|"}
    assert len(counts) == 1
    written = table(place / "out" / "sic.csv")
    assert float(written[0]["sic"]) == pytest.approx(record["rows"][0]["sic"], rel=1e-5)
    per_photo = table(place / "out" / "sic-photos.csv")
    assert len(per_photo) == 6 * 5
    assert {(row["method"], row["ranking"]) for row in per_photo} == set(rows)
    assert len(table(place / "out" / "sic-curves.csv")) == 5 * 100
    if "sic.png" in page:
        assert (place / "out" / "sic.png").read_bytes()[:4] == b"\x89PNG"


def test_random_orders_are_those_of_one_call_for_many_photos(photos, answer, monkeypatch):
    explained = counted(monkeypatch)
    words = ("sic", *SMALL, "--methods", "random", "--objective", "softmax")
    (row,) = answer("reproduce", *words)["rows"]
    model, options = model_from("tiny_models:build"), {"baseline": "gray"}
    many = list(gp.explain_many(model, explained, method="random", **options))
    assert len({tuple(a.order.tolist()) for a in many}) == 6
    curves = [
        metrics.softmax_information_curve(model, x, a, ranking=row["ranking"], **options)
        for x, a in zip(explained, many, strict=True)
    ]
    assert row["sic"] == pytest.approx(metrics.median_curve(curves).auc, rel=1e-5)


def test_a_setting_that_differs_between_the_objectives_is_reported_for_both(photos, answer, place):
    # Ten gradients are three rounds of three for the softmax, ten of one for the log-likelihood.
    words = ("sic", *SMALL, "--budget", "10", "--methods", "ig,default")
    ig, greedy = answer("reproduce", *words)["rows"]
    assert greedy["setting"].startswith("SIC: 3 rounds × 3")
    assert "; LIC: 10 rounds × 1" in greedy["setting"]
    assert (greedy["gradients_sic"], greedy["gradients_lic"]) == (9, 10)
    assert (ig["setting"], ig["gradients"]) == ("10 steps", 10)
    page = (place / "out" / "sic.md").read_text()
    assert f"| {greedy['setting']} | SIC: 9; LIC: 10 |" in page
    assert "cost" not in table(place / "out" / "sic.csv")[0]


@pytest.mark.parametrize("what", ["sic", "figures"])
def test_the_terminal_says_that_it_is_a_quick_look(photos, call, what):
    out = " ".join(call("reproduce", what, *SMALL, "--limit", "2", "--methods", "ig")[1].split())
    assert out.count("Run with at most 8 gradients a method") == 1
    # Random order pays nothing, so nothing is cut.
    out = call("reproduce", "sic", *SMALL, "--limit", "2", "--methods", "random")[1]
    assert "quick look" not in out


def test_the_judge_is_another_network_of_the_same_classes(photos, answer, call):
    words = ("sic", *SMALL, "--limit", "1", "--methods", "ig")
    record = answer("reproduce", *words, "--judge", "tiny_models:other")
    assert 0 < record["rows"][0]["second_opinion"] < 1
    assert any("over the 1 photo for which" in text for text in record["differs"])
    code, _, err = call("reproduce", *words, "--judge", TINY[1])
    assert code == 2
    assert "Expected another network than the explained one" in err


def test_what_was_measured_is_not_measured_again(photos, answer, monkeypatch, place):
    words = ("sic", *SMALL, "--methods", "ig,random")
    first = answer("reproduce", *words, "--limit", "3")
    photo_rows = as_numbers(table(place / "out" / "sic-photos.csv"))
    explained = counted(monkeypatch)
    assert answer("reproduce", *words, "--limit", "3")["rows"] == first["rows"]
    assert explained == []
    answer("reproduce", *words, "--limit", "5")
    assert len(explained) == 2 * 2 * 2  # Two more photos, two methods, two objectives.
    more_rows = as_numbers(table(place / "out" / "sic-photos.csv"))
    assert all(row in more_rows for row in photo_rows)
    explained.clear()
    answer("reproduce", *words, "--limit", "3", "--no-resume")
    assert len(explained) == 3 * 2 * 2


def test_another_default_is_measured_anew(photos, answer, monkeypatch):
    words = ("sic", *SMALL, "--methods", "default", "--limit", "2")
    assert (
        answer("reproduce", *words)["rows"][0]["gradients"] <= 8
    )  # Its budget cuts the default too.
    words = (*words, "--budget", "100")
    assert answer("reproduce", *words)["rows"][0]["gradients_sic"] == 99
    other = gp.GreedyPIG(rounds=4, steps=5)
    monkeypatch.setattr(experiment, "choose", lambda layout, objective: other)
    assert answer("reproduce", *words)["rows"][0]["gradients_sic"] == 20


def test_ctrl_c_keeps_what_was_done_and_going_on_gives_the_same(photos, call, answer, monkeypatch):
    words = ("sic", *SMALL, "--methods", "ig,random")
    whole = answer("reproduce", *words, "--out", "whole")
    calls, plain = [0], sample.explain

    def stopped(*args, **more):
        calls[0] += 1
        if calls[0] == 4:  # In the second of twelve pieces, which has two objectives.
            raise KeyboardInterrupt
        return plain(*args, **more)

    monkeypatch.setattr(sample, "explain", stopped)
    code, out, err = call("reproduce", *words)
    assert code == 1
    assert out == ""
    assert "Stopped sic after 1 of 12" in err
    hint = shlex.split(" ".join(err.split()).split("Go on with: ")[1])
    calls[0] = 100
    record = answer("reproduce", *hint[hint.index("reproduction") + 1 :])
    assert [r["sic"] for r in record["rows"]] == [r["sic"] for r in whole["rows"]]
    assert calls[0] - 100 == 11 * 2


def test_two_ranks_give_the_table_of_one(photos, place):
    words = ("-m", "reproduction", "sic", *SMALL, *METHODS)
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    for out, begin in (("one", ()), ("two", ranks)):
        run = subprocess.run(
            [sys.executable, *begin, *words, "--out", out],
            cwd=place,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert run.returncode == 0, run.stderr
    for file in ("sic.csv", "sic-photos.csv", "sic-curves.csv"):
        agree_in_numbers(*(as_numbers(table(place / out / file)) for out in ("one", "two")))
    assert run.stdout.count("Softmax and loss information curves") == 1  # One speaks for both.


def test_broken_photos_are_listed_and_the_others_measured(photos, answer, call):
    (photos / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    record = answer("reproduce", "sic", *SMALL, "--methods", "random", code=1)
    assert [f["photo"] for f in record["failed"]] == [os.path.join("photos", "cut.jpg")]
    assert record["rows"][0]["photos"] == 6
    _, _, err = call("reproduce", "sic", *SMALL, "--methods", "random")
    assert "cut.jpg" in err


def test_a_photo_that_one_method_fails_on_leaves_the_comparison(photos, answer, monkeypatch):
    plain = sample.explain

    def fails(model, x, **more):
        if isinstance(more["method"], gp.IG) and x.mean() < 0.07:
            raise gp.NonFinite("The gradient is not finite.")
        return plain(model, x, **more)

    monkeypatch.setattr(sample, "explain", fails)
    record = answer("reproduce", "sic", *SMALL, "--methods", "ig,random", code=1)
    assert [f["photo"][-5:] for f in record["failed"]] == ["3.png"]
    assert {r["photos"] for r in record["rows"]} == {6 - 1}


def test_a_warning_names_the_method_and_the_photo(photos, call, monkeypatch):
    plain = sample.explain

    def warns(model, x, **more):
        if isinstance(more["method"], gp.IG):
            warnings.warn("Every score is 0.", stacklevel=2)
        return plain(model, x, **more)

    monkeypatch.setattr(sample, "explain", warns)
    words = ("sic", *SMALL, "--limit", "1", "--objective", "softmax")
    _, _, err = call("reproduce", *words, "--methods", "ig,random")
    (line,) = (line for line in err.splitlines() if "Every score" in line)
    assert re.fullmatch(r"warning: sic, ig: \d\.png: Every score is 0\.", line)


def test_photos_with_another_label_are_named(labelled, answer):
    words = ("--model", "tiny_models:thousand", "--photos", "photos", "--out", "out")
    record = answer("reproduce", "sic", *words, "--methods", "random", "--judge", "none")
    assert any("imagenet_01_7.png" in text and "count" in text for text in record["differs"])


def test_the_pointing_game_is_that_of_the_metric(plain, answer, place, monkeypatch):
    words = ("pointing", *FOUR, "--methods", "ig,paper,random")
    record = answer("reproduce", *words)
    rows = {(r["method"], r["ranking"]): r for r in record["rows"]}
    model = model_from("tiny_models:four")
    images = torch.stack([model.preprocess(open_photo(p)) for p in sorted(plain.iterdir())])
    sure = torch.softmax(model(images), 1).amax(1).argsort(descending=True)
    for (name, ranking), row in rows.items():
        if name == "paper":
            continue
        game = metrics.pointing_game(
            model,
            images[sure],
            method=gp.IG(steps=8) if name == "ig" else "random",
            k=77,  # A tenth of 16 × 16 × 3.
            grids=1,
            ranking=ranking,
            baseline="gray",
        )
        assert row["pointing"] == game.score
        assert row["majority"] == game.majority
        assert row["share"] == pytest.approx(float(game.right.mean()))
    # Blue is in no other picture, so all evidence for it lies in its own.
    cells = table(place / "out" / "pointing-photos.csv")
    blue = [c for c in cells if c["class"] == "blue" and c["method"] != "random"]
    assert len(blue) == 3
    assert {c["hit"] for c in blue} == {"1"}
    assert rows["ig", "signed"]["paper"] == 0.66
    assert rows["ig", "absolute"]["paper"] is None
    assert rows["paper", "order"]["paper"] == 0.83
    assert rows["ig", "signed"]["grids"] == 1
    explained = counted(monkeypatch)
    assert answer("reproduce", *words)["rows"] == record["rows"]
    assert explained == []


def test_too_few_photos_for_a_grid_is_said(photos, call):
    code, _, err = call("reproduce", "pointing", *SMALL, "--limit", "3")
    assert code == 2
    assert "at least 4 photos" in err


def test_figures_keep_the_top_features_and_name_the_photos(photos, answer, place, monkeypatch):
    record = answer("reproduce", "figures", *SMALL, "--methods", "ig,paper")
    rows = record["rows"]
    assert {r["figure"] for r in rows} == {"tabby", "tench", "blocks"}
    assert all(0 < r["gradients"] <= 8 for r in rows)
    assert {r["kept"] for r in rows if r["figure"] != "blocks"} == {19}  # A tenth of 8 × 8 × 3.
    assert {r["paper"] for r in rows if r["figure"] == "tabby"} == {3e-5, 0.9973}
    assert {r["objective"] for r in rows if r["figure"] == "tench"} == {"softmax", "cross-entropy"}
    assert "the most confident photo" in " ".join(record["differs"])
    model = model_from("tiny_models:build")
    ig = next(r for r in rows if r["figure"] == "tabby" and r["method"] == "ig")
    x = model.preprocess(open_photo(photos / ig["photo"]))
    a = gp.explain(model, x, method=gp.IG(steps=8), baseline="gray")
    top = a.scores.abs().flatten().sort(descending=True, stable=True).indices[:19]
    masked = model.baseline("gray").expand_as(x).clone().flatten()
    masked[top] = x.flatten()[top]
    output = torch.softmax(model(masked.view(1, *x.shape)), 1)[0, a.settings["target"]]
    assert ig["probability"] == pytest.approx(float(output), rel=1e-4)
    monkeypatch.setattr(sample, "explain", None)  # Nothing is explained again.
    assert answer("reproduce", "figures", *SMALL, "--methods", "ig,paper")["rows"] == rows


def test_all_is_every_reproduction_on_photos_of_one_s_own(plain, answer, place):
    record = answer("reproduce", "all", *FOUR, "--methods", "ig")
    assert list(record["reproductions"]) == ["sic", "pointing", "resnet", "figures"]
    for name in record["reproductions"]:
        assert (place / "out" / f"{name}.md").exists()
    assert record["reproductions"]["resnet"]["rows"][0]["paper_sic"] == 0.39443


def test_without_assets_one_sentence_names_the_command(call, place, monkeypatch):
    monkeypatch.setenv("GREEDYPIG_ASSETS", str(place / "nowhere"))
    for words in (("sic",), ("sic", *TINY), ("figures", *TINY)):
        code, out, err = call("reproduce", *words)
        assert code == 2
        assert out == ""
        assert "make assets" in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sic", "--methods", "igg"), "Did you mean 'ig'?"),
        (("sic", "--methods", ","), "methods among"),
        (("resnet", "--objective", "log-likelihood"), "objective of resnet"),
        (("pointing", "--methods", "smooth-ig"), "methods of pointing"),
        (("sic", "--judge", "efficientnet-lite9"), "efficientnet-lite0"),
        (("sic", "--photos", "nowhere"), "nothing there"),
        (("sic", "--device", "abacus"), "device"),
        (("graphs",), "got 'graphs'"),
        (("sic", "--rows", "5"), "got --rows 5"),
        (("figures", "--loyalty", "0"), "got --loyalty 0"),
        (("pointing", "--judge", "none"), "got --judge none"),
        (("all", "--seeds", "2"), "got --seeds 2"),
        (("lemmas", "--budget", "9"), "got --budget 9"),
    ],
)
def test_wrong_words_get_one_sentence(photos, call, words, message):
    given = [] if "--photos" in words else ["--photos", "photos"]
    code, _, err = call("reproduce", *words, *TINY, *given)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["sic.md", "sic.png"])
def test_foreign_files_are_left_alone(photos, call, place, name):
    (place / "out").mkdir()
    (place / "out" / name).write_text("my own notes")
    code, _, err = call("reproduce", "sic", *SMALL)
    assert code == 2
    assert "left alone" in err
    assert (place / "out" / name).read_text() == "my own notes"


def test_help_and_its_examples_are_understood(call):
    code, out, _ = call("reproduce", "--help-all")
    assert code == 0
    for option in ("--json", "--out", "--quiet", "--debug"):
        assert option in out
    for line in command.EXAMPLES.splitlines():
        words = line.split()
        assert words[:3] == command.PROGRAM.split()
        assert command.parser(words[3:]).parse_args(words[3:]).what == words[3]
