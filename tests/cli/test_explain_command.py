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
    for share, probability in record["kept"].items():
        shown = torch.where(a.mask(round(float(share) * x.numel())), x, model.baseline("gray"))
        by_hand = torch.softmax(model(shown.unsqueeze(0))[0], 0)[record["target"]]
        assert probability == pytest.approx(float(by_hand), abs=1e-5)
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
    for words in ("method greedy-pig: 20 rounds", "only the best   1 %",
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "first"), [("softmax", "kept"), ("counterfactual", "without")]
)
def test_pictures_are_written_and_tell_who_made_them(call, place, objective, first):
    pytest.importorskip("matplotlib")
    words = ("explain", "photo.png", *TINY, "--objective", objective, "--rounds", "4")
    assert call(*words, "--pictures", "--out", "o")[0] == 0
    names = sorted(p.name for p in (place / "o").glob("*.png"))
    wanted = ("curve", "heatmap", "order", "overlay", first)
    assert names == sorted(f"photo-{name}.png" for name in wanted)
    with Image.open(place / "o" / f"photo-{first}.png") as picture:
        assert picture.width > 200
        assert picture.info["Software"].startswith("greedypig")


@pytest.mark.parametrize(
    ("word", "count"), [("elements", 192), ("pixels", 64), ("grid:4", 4), ("windows:3", 36)]
)
def test_features_by_name(answer, word, count):
    record = answer("explain", "photo.png", *TINY, "--features", word, "--no-html")
    assert sorted(record["order"]) == list(range(count))


def test_superpixels_by_name(answer):
    pytest.importorskip("skimage")
    record = answer("explain", "photo.png", *TINY, "--features", "superpixels:4", "--no-html")
    assert 1 < len(record["order"]) < 64


def test_knobs_reach_the_run(answer):
    knobs = ("--rounds", "4", "--steps", "3", "--k", "40", "--seed", "7", "--no-html",
             "--baseline", "black", "--objective", "log-likelihood")  # fmt: skip
    record = answer("explain", "photo.png", *TINY, *knobs)
    assert record["gradients"] == 12
    assert record["selected"] == 40
    assert record["stop"] == "k"
    settings = record["settings"]
    assert settings["seed"] == 7
    assert settings["baseline"] == "black"
    assert settings["objective"] == "log-likelihood"
    assert answer("explain", "photo.png", *TINY, "--budget", "20")["gradients"] == 20
    patches = ("--features", "windows:3", "--rounds", "3", "--k", "3", "--steps", "2")
    record = answer("explain", "photo.png", *TINY, *patches, "--no-html")
    assert (record["selected"], record["gradients"], record["stop"]) == (3, 3 * 2, "k")
    record = answer("explain", "photo.png", *TINY, "--objective", "margin:blue", "--no-html")
    assert record["settings"]["rival"] == 3
    record = answer("explain", "photo.png", *TINY, "--baseline", "black,white", "--no-html")
    assert record["settings"]["baseline"] == ["black", "white"]
    assert record["gradients"] == 200


@pytest.mark.parametrize(
    ("words", "rounds", "steps"),
    [
        ((), 4, 5),
        (("--baseline", "black,white"), 3, 3),
        (("--rounds", "8"), 4, 5),
        (("--steps", "4"), 5, 4),
    ],
)
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


def test_a_table_of_several_photos(answers, call, place):
    make_photo(place / "green.png", (30, 200, 40))
    words = ("explain", ".", *TINY, "--judge", "tiny_models:other", "--class", "red", "--no-html")
    records = answers(*words)
    _, out, _ = call(*words)
    _, head, *lines = out.splitlines()
    assert " ".join(head.split()) == "photo class all 1 % 5 % 10 % AUC judge"
    for record, line in zip(records, lines, strict=False):
        numbers = [record["probability"], *record["kept"].values()]
        numbers += [record["curves"][kind]["auc"] for kind in ("softmax", "second-opinion")]
        cells = [record["photo"], "red", *(f"{number:.3f}" for number in numbers)]
        assert [word for word in line.split() if word != "▲"] == cells
    assert [record["photo"] for record in records] == ["green.png", "photo.png"]
    assert "2 photos, 200 gradients" in out


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
    for photos in (["many"], ["many/one/x.png", "many/two/x.png"]):
        _, out, _ = call("explain", *photos, *TINY, "--out", "o")
        named = [line.split()[0] for line in out.splitlines()[2:4]]
        assert named == [os.path.join("many", folder, "x.png") for folder in ("one", "two")]
    assert "one/x.png" in (place / "o" / "index.html").read_text()


def test_many_photos_and_a_folder_with_broken_files(call, answers, place):
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
    assert err.count("error: ") == 3
    names = sorted(p.name for p in (place / "o").iterdir())
    assert names == ["a-2.gpig", "a-2.html", "a.gpig", "a.html", "index.html"]
    records = answers("explain", "many", *TINY, "--out", "o", code=1)
    assert [r["class"] for r in records if "class" in r] == ["red", "green"]
    assert [set(r) for r in records if "error" in r] == [{"photo", "error"}] * 3
    assert records[0]["files"] == ["o/a.gpig", "o/a.html", "o/index.html"]


@pytest.mark.parametrize(("content", "reason"), [("", "zero bytes"), ("hello", "photo")])
def test_a_broken_photo_is_said_in_one_sentence_also_when_quiet(call, place, content, reason):
    (place / "broken.png").write_text(content)
    code, out, err = call("explain", "broken.png", *TINY, "--quiet")
    assert (code, out) == (1, "")
    assert err.startswith("error: Expected")
    assert reason in err
    assert call("explain", "photo.png", *TINY, "--quiet") == (0, "", "")


OTHERS = {
    "t.csv": "select t.csv --label",
    "t.CSV.GZ": "select t.CSV.GZ --label",
    "t.parquet": "select t.parquet --label",
    "g.npz": "compress g.npz",
    "chat.json": "explain-text chat.json",
    "a.gpig": "report a.gpig",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_for_another_command_names_that_command(call, place, name):
    (place / name).write_text("greedypig,y\n1,0\n")
    code, _, err = call("explain", name, *TINY)
    assert code == 1
    assert f"{name} (got another kind of file). Try greedypig {OTHERS[name]}" in " ".join(
        err.split()
    )


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
    ("words", "part"),
    [
        (["--class", "ret"], '"red"'),
        (["--class", "99"], "from 0 to 3"),
        (["--objective", "sofmax"], "softmax"),
        (["--objective", "margin:purple"], "classes"),
        (["--baseline", "grey"], "gray"),
        (["--features", "grid"], "grid:16"),
        (["--features", "grid:0"], "grid:16"),
        (["--method", "greedypig"], "greedy-pig"),
        (["--method", "ig", "--rounds", "3"], "Expected no --rounds for method 'ig'"),
        (["--method", "sequential-gradient", "--steps", "3"], "steps"),
        (["--k", "1000000"], "Expected --k to be a whole number from 1 to 192"),
        (["--rounds", "0"], "at least 1"),
        (["--steps", "many"], "at least 1"),
        (["--steps", "5", "--budget", "4"], "Expected --budget to be at least 5"),
        (["--device", "toaster"], "cpu"),
        (["--device", "meta"], "cpu"),
        (["--judge", "no-such-model"], "mobilenet-v2"),
        (["--rouns", "3"], "--rounds"),
    ],
)
def test_a_wrong_command_is_exit_code_2_and_one_sentence(call, words, part):
    code, out, err = call("explain", "photo.png", *TINY, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert part in err


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("efficientnet-lite", "efficientnet-lite0"),
        ("tiny_models.build", "tiny_models:build"),
        ("tiny_models:gone", "gone"),
        ("no_such_module:build", "no_such_module"),
        ("tiny_models:crash", "the weights are gone"),
    ],
)
def test_a_model_that_is_not_there(call, model, part):
    code, _, err = call("explain", "photo.png", "--model", model)
    assert code == 2
    assert part in err


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


@pytest.mark.parametrize(
    "name", ["ein Bild ü 図.png", "two  spaces.png", "-dash.png", "a'b\"c.png"]
)
def test_unusual_names(call, place, name):
    make_photo(place / name)
    code, out, _ = call("explain", *TINY, "--no-html", "--", name)
    assert code == 0
    assert name in out
    assert (place / name).with_suffix(".gpig").exists()


def test_every_number_of_the_json_is_a_number(call):
    _, out, _ = call("explain", "photo.png", *TINY, "--json", "--objective", "log-probability")
    json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert out.count("\n") == 1


def test_one_shot_explanations_are_measured_in_their_own_order(answer, place):
    record = answer("explain", "photo.png", *TINY, "--method", "ig")
    a = gp.load(place / "photo.gpig")
    assert record["order"] == a.order.tolist()
    assert torch.equal(a.order, a.last_scores.sort(descending=True, stable=True).indices)
    assert a.about.ranking == "signed"


def test_a_time_limit_ends_the_search_after_the_round_under_way(answer):
    record = answer("explain", "photo.png", *TINY, "--seconds", "0.000001")
    assert record["stop"] == "seconds"
    assert 0 < record["selected"] < len(record["order"])
