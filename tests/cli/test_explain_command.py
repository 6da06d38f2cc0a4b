"""`greedypig explain`: what it prints, what it writes, and what it says when something is wrong."""

import json
import os

import pytest
import torch
from PIL import Image

import greedypig as gp
from conftest import TINY, make_photo


def test_the_answer_is_the_library_s(answer, place):
    import tiny_models

    from greedypig.images import model_from, open_photo

    record = answer("explain", "photo.png", *TINY)
    model = model_from("tiny_models:build")
    x = model.preprocess(open_photo("photo.png"))
    a = gp.explain(model, x, baseline="gray")
    assert record["order"] == a.order.tolist()
    assert record["gradients"] == a.gradients_used
    probability = torch.softmax(tiny_models.build()(x.unsqueeze(0))[0], 0).detach()
    assert record["class"] == "red"
    assert record["probability"] == pytest.approx(float(probability[1]), abs=1e-6)
    assert record["files"] == ["photo.gpig", "photo.html"]


def test_the_curve_is_the_probability_of_what_is_kept(answer, place):
    from greedypig.images import model_from, open_photo

    record = answer("explain", "photo.png", *TINY)
    model = model_from("tiny_models:build")
    x = model.preprocess(open_photo("photo.png"))
    a = gp.load("photo.gpig")
    for share, told in record["kept"].items():
        shown = torch.where(a.mask(round(float(share) * x.numel())), x, model.baseline("gray"))
        found = torch.softmax(model(shown.unsqueeze(0))[0], 0)[record["target"]]
        assert told == pytest.approx(float(found), abs=1e-5)
    curve = record["curve"]
    assert len(curve["fractions"]) == len(curve["values"]) == 100
    assert curve["fractions"][0] == 0
    assert curve["fractions"][-1] == 1
    assert curve["values"][-1] == pytest.approx(record["probability"], abs=1e-5)
    area = torch.trapezoid(torch.tensor(curve["values"]), torch.tensor(curve["fractions"]))
    assert curve["auc"] == pytest.approx(float(area), abs=1e-4)


def test_people_read_class_probabilities_cost_and_files(call):
    code, out, err = call("explain", "photo.png", *TINY)
    assert code == 0
    assert err == ""
    assert out.startswith("photo.png: red, probability 0.")
    for words in ("method greedy-pig (default): 20 rounds", "only the best   1 %",
                  "only the best  10 %", "100 gradients",
                  "wrote photo.gpig, photo.html"):  # fmt: skip
        assert words in out
    assert "\x1b" not in out


def test_a_part_that_is_more_certain_than_the_photo_is_told(call, answer):
    record = answer("explain", "photo.png", *TINY)
    # Red pixels alone beat the photo, whose black ground says "dark".
    assert record["excess"]["probability"] > record["probability"] + 0.01
    _, out, _ = call("explain", "photo.png", *TINY)
    assert "higher probability" in out
    assert "--objective log-likelihood" in out


def test_without_excess_there_is_no_warning(call, answer, place):
    # Every black pixel in place of a gray one speaks for "dark": nothing beats all of them.
    Image.new("RGB", (8, 8), "black").save(place / "night.png")
    assert answer("explain", "night.png", *TINY)["excess"] is None
    assert "higher probability" not in call("explain", "night.png", *TINY)[1]


def test_results_go_to_the_current_directory_or_to_out(call, place):
    (place / "deep").mkdir()
    make_photo(place / "deep" / "a.b.png")
    assert call("explain", "deep/a.b.png", *TINY)[0] == 0
    assert (place / "a.b.gpig").exists()
    assert (place / "a.b.html").exists()
    assert call("explain", "photo.png", *TINY, "--out", "new/folder", "--no-html")[0] == 0
    assert sorted(p.name for p in (place / "new/folder").iterdir()) == ["photo.gpig"]
    assert call("explain", "photo.png", *TINY, "--out", "new/named.html")[0] == 0
    assert (place / "new/named.gpig").exists()
    assert (place / "new/named.html").exists()


@pytest.mark.parametrize("name", ["photo.gpig", "photo.html"])
def test_a_foreign_file_is_never_overwritten(call, place, name):
    (place / name).write_text("my own notes")
    code, out, err = call("explain", "photo.png", *TINY)
    assert code == 2
    assert out == ""
    assert name in err
    assert (place / name).read_text() == "my own notes"


def test_a_run_may_be_repeated(call):
    first = call("explain", "photo.png", *TINY)[1]
    again = call("explain", "photo.png", *TINY)[1]
    assert first.splitlines()[:5] == again.splitlines()[:5]


@pytest.mark.slow
def test_pictures_of_a_counterfactual_show_what_is_left(call, place):
    words = ("explain", "photo.png", *TINY, "--objective", "counterfactual", "--features", "pixels")
    assert call(*words, "--rounds", "4", "--pictures", "--out", "o")[0] == 0
    assert (place / "o" / "photo-without.png").exists()
    assert not (place / "o" / "photo-kept.png").exists()


@pytest.mark.slow
def test_pictures_are_written_and_tell_who_made_them(call, place):
    pytest.importorskip("matplotlib")
    assert call("explain", "photo.png", *TINY, "--pictures", "--out", "o")[0] == 0
    for name in ("kept", "heatmap", "overlay", "order", "curve"):
        with Image.open(place / "o" / f"photo-{name}.png") as picture:
            assert picture.width > 200
            assert picture.info["Software"].startswith("greedypig")
    assert call("explain", "photo.png", *TINY, "--pictures", "--out", "o")[0] == 0


@pytest.mark.parametrize(("word", "units"), [("elements", 192), ("pixels", 64), ("grid:4", 4),
                                             ("windows:3", 36)])  # fmt: skip
def test_features_by_name(answer, word, units):
    record = answer("explain", "photo.png", *TINY, "--features", word, "--no-html")
    assert sorted(record["order"]) == list(range(units))


def test_one_patch_a_round(answer):
    words = ("--features", "windows:3", "--per-round", "1", "--k", "3", "--steps", "2", "--no-html")
    record = answer("explain", "photo.png", *TINY, *words)
    assert record["selected"] == 3
    assert record["gradients"] == 3 * 2
    assert record["stop"] == "k"


def test_superpixels_by_name(answer):
    pytest.importorskip("skimage")
    record = answer("explain", "photo.png", *TINY, "--features", "superpixels:4", "--no-html")
    assert 1 < len(record["order"]) < 64


def test_knobs_reach_the_run(answer):
    knobs = ("--rounds", "4", "--steps", "3", "--schedule", "equal", "--k", "40", "--seed", "7",
             "--no-html", "--baseline", "black", "--objective", "log-likelihood")  # fmt: skip
    record = answer("explain", "photo.png", *TINY, *knobs)
    assert record["gradients"] == 12
    assert record["selected"] == 40
    assert record["stop"] == "k"
    settings = record["settings"]
    assert settings["seed"] == 7
    assert settings["baseline"] == "black"
    assert settings["objective"] == "log-likelihood"
    assert answer("explain", "photo.png", *TINY, "--budget", "20")["gradients"] == 20
    record = answer("explain", "photo.png", *TINY, "--schedule", "5,6,7", "--no-html")
    assert record["selected"] == 18


@pytest.mark.parametrize(
    ("words", "rounds", "steps"),
    [((), 4, 5), (("--baseline", "black,white"), 3, 3), (("--schedule", "equal"), 4, 5),
     (("--rounds", "8"), 4, 5), (("--steps", "4"), 5, 4)],
)  # fmt: skip
def test_a_budget_plans_the_rounds_unless_they_are_named(answer, words, rounds, steps):
    record = answer("explain", "photo.png", *TINY, "--budget", "20", "--no-html", *words)
    planned = not {"--rounds", "--steps"} & set(words)
    assert record["stop"] == ("all" if planned else "gradients")
    lines = 2 if "--baseline" in words else 1
    assert record["gradients"] == rounds * steps * lines <= 20
    assert record["settings"]["steps"] == steps


def test_the_method_is_named_and_its_knobs_are_set(answer):
    quick = ("explain", "photo.png", *TINY, "--no-html", "--json")
    assert answer(*quick)["method"] == "greedy-pig"
    assert answer(*quick, "--method", "ig")["method"] == "ig"
    matched = answer(*quick, "--objective", "log-likelihood")
    assert matched["method"] == "sequential-gradient"
    assert matched["gradients"] == 100
    steady = answer(*quick, "--method", "steady-pig", "--rounds", "5", "--steps", "2")
    assert (steady["method"], steady["gradients"]) == ("steady-pig", 10)
    assert steady["settings"]["views"] == 2
    ratio = answer(*quick, "--ratio", "7")["settings"]
    assert ratio["ratio"] == 7


def test_gain_takes_features_with_a_positive_score_alone(answer):
    record = answer("explain", "photo.png", *TINY, "--no-html", "--gain")
    assert record["stop"] == "no_gain"
    assert 0 < record["selected"] < 192


def test_reach_stops_at_a_share_of_the_whole_photo_s_value(answer):
    words = ("explain", "photo.png", *TINY, "--no-html", "--per-round", "4", "--reach", "0.9")
    record = answer(*words)
    assert record["stop"] == "value"
    a = gp.load("photo.gpig")
    assert float(a.values[-1]) >= 0.9 * a.full_value > float(a.values[-2])


def test_a_margin_against_a_named_rival(answer):
    record = answer("explain", "photo.png", *TINY, "--objective", "margin:blue", "--no-html")
    assert record["settings"]["rival"] == 3


def test_several_baselines_are_averaged(answer):
    record = answer("explain", "photo.png", *TINY, "--baseline", "black,white", "--no-html")
    assert record["settings"]["baseline"] == ["black", "white"]
    assert record["gradients"] == 200


def test_a_judge_gives_a_second_opinion(answer, call):
    judged = ("explain", "photo.png", *TINY, "--judge", "tiny_models:other")
    record = answer(*judged)
    second = record["curves"]["second-opinion"]
    assert second["judge"] == "tiny_models:other"
    assert second["values"] != record["curves"]["softmax"]["values"]
    told = " ".join(call(*judged)[1].split())
    assert f"{second['auc']:.3f} by the judge tiny_models:other" in told


def test_a_second_opinion_has_its_column_and_its_median(call, answer, place, monkeypatch):
    make_photo(place / "green.png", (30, 200, 40))
    judged = ("explain", ".", *TINY, "--judge", "tiny_models:other", "--no-html")
    found = {r["photo"]: r["curves"] for r in answer(*judged)["results"]}
    _, out, _ = call(*judged)
    lines = out.splitlines()
    assert lines[0].startswith("method greedy-pig (default)")
    assert lines[1].split()[-2:] == ["AUC", "judge"]
    for name, curves in found.items():
        row = next(line.split() for line in lines if line.startswith(name))
        areas = [f"{curves[kind]['auc']:.3f}" for kind in ("softmax", "second-opinion")]
        assert [word for word in row if word != "▲"][-2:] == areas
    own, second = (sum(c[kind]["auc"] for c in found.values()) / 2
                   for kind in ("softmax", "second-opinion"))  # fmt: skip
    assert (f"AUC {own:.3f} by tiny_models:build, {second:.3f} by the judge "
            "tiny_models:other") in " ".join(out.split())  # fmt: skip
    for width, heads in ((60, ["all", "10", "%", "AUC", "judge"]),
                         (40, ["all", "10", "%", "judge"])):  # fmt: skip
        monkeypatch.setenv("COLUMNS", str(width))
        lines = call(*judged)[1].splitlines()
        head = next(line for line in lines if line.startswith("photo "))
        assert head.split()[2:] == heads
        assert max(map(len, lines)) <= width


def test_beside_a_class_asked_for_stands_what_the_network_says(call, place):
    make_photo(place / "green.png", (30, 200, 40))
    _, out, _ = call("explain", ".", *TINY, "--class", "red", "--no-html")
    lines = out.splitlines()
    assert lines[1].startswith("red in every photo")
    assert "prediction" in lines[2]
    row = next(line for line in lines if line.startswith("green.png"))
    saved = gp.load(place / "green.gpig").about
    assert f"green, {saved['predictions'][0][1]:.3f}" in row
    assert f" {saved['probability']:.3f} " in row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "command"),
    [
        ("log-likelihood", ("explain",)),
        ("counterfactual", ("explain",)),
        ("log-likelihood", ("compare", "--methods", "ig", "--budget", "5")),
    ],
)
def test_a_class_that_the_objective_does_not_look_at_is_warned_of(call, command, objective):
    words = (*command, "photo.png", *TINY, "--objective", objective)
    code, _, err = call(*words, "--class", "blue")
    assert code == 0
    assert err.startswith("warning: --class blue does not change the explanation")
    assert f"--objective {objective}" in err
    assert "warning" not in call(*words)[2]
    assert "warning" not in call(*command, "photo.png", *TINY, "--class", "blue")[2]


@pytest.mark.slow
def test_photos_of_equal_names_are_told_apart(call, place):
    for folder, colour in (("one", (230, 60, 40)), ("two", (30, 200, 40))):
        (place / "many" / folder).mkdir(parents=True)
        make_photo(place / "many" / folder / "x.png", colour)
    _, out, _ = call("explain", "many", *TINY, "--out", "o")
    named = [line.split()[0] for line in out.splitlines()[2:4]]
    assert named == [os.path.join("one", "x.png"), os.path.join("two", "x.png")]
    index = (place / "o" / "index.html").read_text()
    assert "one/x.png" in index
    _, out, _ = call("explain", "many/one/x.png", "many/two/x.png", *TINY, "--no-html")
    assert [line.split()[0] for line in out.splitlines()[2:4]] == [
        os.path.join("many", "one", "x.png"), os.path.join("many", "two", "x.png"),
    ]  # fmt: skip
    call("compare", "many", *TINY, "--methods", "random", "--out", "c")
    assert "- two/x.png: green" in (place / "c" / "comparison.md").read_text()


@pytest.mark.parametrize("command", [("explain", "--no-html"), ("compare", "--methods", "random")])
def test_a_photo_that_was_enlarged_a_lot_is_told(call, place, command):
    Image.new("RGB", (3, 1), (200, 30, 30)).save(place / "small.png")
    _, _, err = call(*command, "photo.png", "small.png", *TINY, "--out", "o")
    told = " ".join(err.split())
    assert told.endswith(" small.png (3×1 enlarged to 8×8).")
    assert "photo.png" not in told


@pytest.mark.slow
def test_superpixels_tell_how_many_were_made(call, answer):
    pytest.importorskip("skimage")
    words = ("explain", "photo.png", *TINY, "--features", "superpixels:4", "--no-html")
    made = len(answer(*words)["order"])
    assert f"  {made} regions, 4 requested" in call(*words)[1]
    assert f"{made} regions per photo, 4 requested." in call("explain", ".", *words[2:])[1]


@pytest.mark.parametrize(("words", "way"), [
    (("--steps", "5", "--budget", "4"), "Try --budget 5, or --steps 4."),
    (("--method", "smooth-ig", "--steps", "50", "--budget", "100"),
     "Try --budget 1250, or --steps 4."),
    (("--steps", "5", "--budget", "1", "--baseline", "black,white"), "Try --budget 10."),
])  # fmt: skip
def test_a_budget_without_room_for_a_round_names_the_way_out(call, words, way):
    code, _, err = call("explain", "photo.png", *TINY, "--no-html", *words)
    assert code == 2
    assert err.endswith(f" {way}\n")
    for option in way.removeprefix("Try ").removesuffix(".").split(", or "):
        # Of an option given twice the last counts.
        assert call("explain", "photo.png", *TINY, "--no-html", *words, *option.split())[0] == 0


def test_many_photos_and_a_folder_with_broken_files(call, answer, place):
    folder = place / "many"
    (folder / "below").mkdir(parents=True)
    make_photo(folder / "a.png")
    make_photo(folder / "below" / "a.png", (30, 200, 40))
    (folder / "text.jpg").write_text("not a photo")
    (folder / "empty.png").touch()
    whole = make_photo(folder / "cut.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    code, out, err = call("explain", "many", *TINY, "--out", "o")
    assert code == 1
    assert "red" in out
    assert "green" in out
    for name in ("text.jpg", "empty.png", "cut.png"):
        assert name in err
    assert "3 of 5 could not be explained" in err
    names = sorted(p.name for p in (place / "o").iterdir())
    assert names == ["a-2.gpig", "a-2.html", "a.gpig", "a.html", "index.html"]
    record = answer("explain", "many", *TINY, "--out", "o", code=1)
    assert [r["class"] for r in record["results"]] == ["red", "green"]
    assert len(record["failed"]) == 3
    assert record["files"][-1] == "o/index.html"


def test_a_missing_photo_does_not_end_the_others(answer):
    record = answer("explain", "photo.png", "gone.png", *TINY, code=1)
    assert len(record["results"]) == 1
    assert "gone.png" in record["failed"][0]["photo"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone.png", "gone.png"),
        ("empty.png", "zero bytes"),
        ("text.png", "photo"),
        ("bare", "none"),
    ],
)
def test_what_is_no_photo_is_said_in_one_sentence(call, place, name, said):
    (place / "empty.png").touch()
    (place / "text.png").write_text("hello")
    (place / "bare").mkdir()
    code, out, err = call("explain", name, *TINY)
    assert code == 1
    assert out == ""
    assert err.startswith("error: Expected")
    assert said in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_an_unreadable_photo_and_a_read_only_folder(call, place):
    (place / "photo.png").chmod(0)
    assert call("explain", "photo.png", *TINY)[0] == 1
    (place / "closed").mkdir(mode=0o500)
    assert call("explain", "photo.png", *TINY, "--out", "closed")[0] == 2


def test_out_below_a_file_is_refused(call):
    code, _, err = call("explain", "photo.png", *TINY, "--out", "photo.png/o")
    assert code == 2
    assert "folder" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--class", "ret"], '"red"'),
        (["--class", "99"], "from 0 to 3"),
        (["--objective", "sofmax"], "softmax"),
        (["--objective", "margin:purple"], "classes"),
        (["--baseline", "grey"], "gray"),
        (["--features", "grid"], "grid:16"),
        (["--features", "grid:0"], "grid:16"),
        (["--method", "greedypig"], "greedy-pig"),
        (["--method", "ig", "--rounds", "3"], "--method ig"),
        (["--method", "sequential-gradient", "--steps", "3"], "steps"),
        (["--schedule", "1,x"], "geometric"),
        (["--schedule", "1,2", "--rounds", "3"], "--rounds"),
        (["--schedule", "1,2", "--per-round", "3"], "--per-round"),
        (["--schedule", "geometric", "--per-round", "3"], "--per-round"),
        (["--method", "ig", "--per-round", "3"], "--per-round with a greedy method"),
        (["--per-round", "0"], "at least 1"),
        (["--k", "1000000"], "192"),
        (["--rounds", "0"], "at least 1"),
        (["--steps", "many"], "at least 1"),
        (["--budget", "0"], "at least 1"),
        (["--ratio", "0"], "--ratio"),
        (["--method", "ig", "--ratio", "2"], "--ratio with a greedy method"),
        (["--reach", "-1"], "reach"),
        (["--device", "toaster"], "cpu"),
        (["--judge", "no-such-model"], "mobilenet-v2"),
        (["--weights", "w.pth"], "weights"),
        (["--rouns", "3"], "did you mean --rounds?"),
    ],
)
def test_a_wrong_command_is_exit_code_2_and_one_sentence(call, words, said):
    code, out, err = call("explain", "photo.png", *TINY, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("efficientnet-lite", "efficientnet-lite0"),
        ("tiny_models.build", "tiny_models:build"),
        ("tiny_models:gone", "gone"),
        ("no_such_module:build", "no_such_module"),
        ("tiny_models:crash", "the weights are gone"),
    ],
)
def test_a_model_that_is_not_there(call, model, said):
    code, _, err = call("explain", "photo.png", "--model", model)
    assert code == 2
    assert said in err


def test_missing_weights_name_the_command_that_brings_them(call, monkeypatch, tmp_path):
    monkeypatch.setenv("GREEDYPIG_ASSETS", str(tmp_path / "none"))
    code, _, err = call("explain", "photo.png", "--model", "mobilenet-v2")
    assert code == 2
    assert "weights of mobilenet-v2" in err
    assert "Try" in err


def test_a_network_that_fails_on_a_photo_is_told_and_the_traceback_asked_for(call, capsys):
    from greedypig.cli.main import main

    code, _, err = call("explain", "photo.png", "--model", "tiny_models:nan")
    assert code in (1, 2)
    assert err.startswith("error: Expected")
    main(["explain", "photo.png", "--model", "tiny_models:gone", "--debug"])
    assert "Traceback" in capsys.readouterr().err


def test_quiet_says_nothing_but_failures(call):
    assert call("explain", "photo.png", *TINY, "--quiet") == (0, "", "")
    code, out, err = call("explain", "gone.png", *TINY, "--quiet")
    assert (code, out) == (1, "")
    assert err


@pytest.mark.parametrize(
    "name", ["ein Bild ü 図.png", "two  spaces.png", "-dash.png", "a'b\"c.png"]
)
def test_unusual_names(call, place, name):
    make_photo(place / name)
    code, out, _ = call("explain", *TINY, "--no-html", "--", name)
    assert code == 0
    assert name in out
    assert (place / name).with_suffix(".gpig").exists()


def test_a_narrow_terminal_gets_short_lines(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    for words in (["photo.png"], ["photo.png", "photo.png", "."]):
        _, out, _ = call("explain", *words, *TINY, "--no-html")
        assert max(map(len, out.splitlines())) <= 40


def test_every_number_of_the_json_is_a_number(call):
    _, out, _ = call("explain", "photo.png", *TINY, "--json", "--objective", "log-probability")
    json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert out.count("\n") == 1


def test_a_share_of_larger_units_tells_how_many_fit(call):
    # 16 blocks of 12 numbers: none fits into 1 or 5 % of 192 numbers, one into 10 %.
    _, out, _ = call("explain", "photo.png", *TINY, "--features", "grid:2", "--rounds", "2")
    told = [line.split("  ")[-1] for line in out.splitlines() if "only the best" in line]
    none = "less than one of 16 squares"
    assert told == [none, none, "1 of 16 squares, whole"]
    _, out, _ = call("explain", "photo.png", *TINY, "--features", "grid:8", "--rounds", "1")
    assert "less than the only square" in out


def test_one_shot_explanations_are_measured_in_their_own_order(answer, place):
    record = answer("explain", "photo.png", *TINY, "--method", "ig")
    a = gp.load(place / "photo.gpig")
    assert record["order"] == a.order.tolist()
    assert torch.equal(a.order, a.last_scores.sort(descending=True, stable=True).indices)
    assert a.about["ranking"] == "signed"
