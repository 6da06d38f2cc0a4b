"""`greedypig compare`: the same photos, every method, one table."""

import csv

import pytest
import torch
from PIL import Image

import greedypig as gp
from conftest import TINY, make_photo
from greedypig import metrics
from greedypig.cli import compare
from greedypig.cli.commands import COMPARED
from greedypig.images import model_from, open_photo

FEW = ("--methods", "greedy-pig,ig,random")
WITHOUT_GRADIENTS = ("leave-one-out", "marginal-gains", "random")


@pytest.mark.slow
def test_every_method_is_there_unless_it_is_slow(answer):
    pytest.importorskip("skimage")
    record = answer("compare", "photo.png", "--model", "tiny_models:wide", "--budget", "30")
    assert list(record["methods"]) == [
        "steady-pig", "greedy-pig", "sequential-gradient", "ig", "smooth-ig", "blur-ig",
        "guided-ig", "random", "greedy-pig (regions)",
    ]  # fmt: skip
    for name, row in record["methods"].items():
        gradients = row["gradients"]
        assert gradients == 0 if name == "random" else 25 <= gradients <= 30, name
        assert 0 < row["sic_auc"] < 1
        assert row["lic_auc"] > 0
        assert row["seconds"] > 0
    best = max(record["methods"], key=lambda name: record["methods"][name]["sic_auc"])
    assert record["order"][0] == best


@pytest.mark.slow
def test_the_numbers_are_those_of_the_metrics(answer):
    record = answer("compare", "photo.png", *TINY, *FEW)
    model = model_from("tiny_models:build")
    x = model.preprocess(open_photo("photo.png"))
    for name in ("greedy-pig", "ig"):
        a = gp.explain(model, x, baseline="gray", method=name)
        curves = metrics.information_curves(model, x, a)
        row = record["methods"][name]
        assert row["sic_auc"] == pytest.approx(curves["softmax"].auc, abs=1e-6)
        assert row["lic_auc"] == pytest.approx(curves["loss"].auc, abs=1e-6)
        assert row["gradients"] == a.gradients_used


@pytest.mark.slow
def test_curves_and_points_of_several_photos_are_medians(answer, place):
    make_photo(place / "b.png", (220, 90, 90))
    make_photo(place / "c.png", (160, 20, 20))
    names = ("photo", "b", "c")
    record = answer("compare", *(f"{name}.png" for name in names), *TINY, *FEW)
    alone = [gp.load(place / "comparison" / name / "ig.gpig").about for name in names]
    values = [about.curves["softmax"].values.tolist() for about in alone]
    median = torch.tensor(values, dtype=torch.float64).median(0).values
    assert record["methods"]["ig"]["curves"]["softmax"]["values"] == pytest.approx(median.tolist())
    index = (place / "comparison" / "comparison.html").read_text()
    for name in names:
        assert f'href="./{name}/comparison.html"' in index
        page = (place / "comparison" / name / "comparison.html").read_text()
        assert all(method in page for method in record["methods"])


@pytest.mark.slow
def test_files_hold_the_table(call, answer, place):
    pytest.importorskip("matplotlib")
    judged = ("compare", "photo.png", *TINY, *FEW, "--judge", "tiny_models:other", "--budget", "20")
    record = answer(*judged)
    folder = place / "photo-comparison"
    assert sorted(p.name for p in folder.iterdir()) == [
        "comparison.csv", "comparison.gpig", "comparison.html", "comparison.md", "comparison.png",
        "photo",
    ]  # fmt: skip
    with (folder / "comparison.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    noted = gp.load(folder / "comparison.gpig").about.comparison
    for name, row in record["methods"].items():
        assert float(rows[name]["second_opinion_auc"]) == row["second_opinion_auc"]
        assert rows[name]["setting"] == row["setting"]
        assert f"| {name} | {row['sic_auc']:.3f} |" in (folder / "comparison.md").read_text()
        alone = gp.load(folder / "photo" / f"{name}.gpig").about
        assert noted[name].kept == alone.kept
        values = alone.curves["second-opinion"].values.tolist()
        assert noted[name].second.values.tolist() == pytest.approx(values)
        assert noted[name].second.judge == "tiny_models:other"
    saved = sorted(p.name for p in (folder / "photo").iterdir())
    assert saved == ["greedy-pig.gpig", "ig.gpig", "random.gpig"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [100, 60, 50])
def test_people_read_a_table_that_fits(call, answer, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words = ("compare", "photo.png", *TINY, *FEW, "--judge", "tiny_models:other")
    methods = answer(*words)["methods"]
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("photo.png: red")
    for row in methods.values():
        for column in ("sic_auc", "lic_auc", "second_opinion_auc"):
            assert f" {row[column]:.3f} " in out
    assert max(map(len, lines)) <= width


@pytest.mark.slow
def test_a_budget_sets_rounds_and_steps_and_says_how(call, answer, place):
    methods = "greedy-pig,paper,ig,smooth-ig,random"
    words = ("compare", "photo.png", *TINY, "--methods", methods, "--budget", "50", "--out", "o")
    record = answer(*words)
    spent = {name: row["gradients"] for name, row in record["methods"].items()}
    assert 45 <= spent.pop("greedy-pig") <= 50
    assert 45 <= spent.pop("greedy-pig (paper)") <= 50
    assert spent == {"ig": 50, "smooth-ig": 50, "random": 0}
    settings = {name: row["setting"] for name, row in record["methods"].items()}
    assert settings["ig"] == "50 steps"
    assert settings["smooth-ig"] == "25 samples × 2 steps"
    assert settings["random"] == ""
    text = " ".join(call(*words)[1].split())
    assert f"Within 50 gradients: greedy-pig {settings['greedy-pig']}; greedy-pig (paper) " in text
    assert "| 25 samples × 2 steps |" in (place / "o/comparison.md").read_text()


@pytest.mark.slow
def test_the_paper_s_setting_takes_2000_gradients(answer):
    record = answer("compare", "photo.png", *TINY, "--methods", "paper")
    assert record["methods"]["greedy-pig (paper)"]["gradients"] == 2000


@pytest.mark.usefixtures("quick_figures")
def test_broken_photos_leave_the_comparison_and_are_listed(answer, place):
    (place / "text.png").write_text("hello")
    words = ("photo.png", *TINY, "--methods", "ig,random", "--budget", "5", "--out", "o")
    record = answer("compare", "text.png", *words, code=1)
    assert [p["photo"] for p in record["photos"]] == ["photo.png"]
    (broken,) = record["failed"]
    _, _, left_out = (place / "o/comparison.md").read_text().partition("Left out")
    assert f"- text.png: {broken['error']}" in left_out
    answer("compare", *words)
    assert "Left out" not in (place / "o/comparison.md").read_text()


@pytest.mark.usefixtures("quick_figures")
def test_warnings_name_the_photo_and_the_method(call, place):
    for name in ("gray.png", "ash.png"):  # The input is the baseline: no method finds anything.
        Image.new("RGB", (8, 8), (128, 128, 128)).save(place / name)
    words = (*TINY, "--baseline", str(128 / 255))
    methods = ("--methods", "greedy-pig,ig", "--budget", "5")
    _, _, err = call("compare", "photo.png", "gray.png", "ash.png", *words, *methods)
    warned = [line for line in err.splitlines() if "Every score" in line]
    for name in ("gray.png", "ash.png"):
        for method in ("greedy-pig", "ig"):
            begin = f"warning: {name}, {method}: Every score of the first round"
            assert sum(line.startswith(begin) for line in warned) == 1
    assert len(warned) == 4
    _, _, err = call("explain", "photo.png", "gray.png", *words, "--no-html", "--rounds", "1")
    assert "warning: gray.png: Every score" in err
    assert "warning: Every score" in call("explain", "gray.png", *words, "--rounds", "1")[2]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--methods", "greedy"], "'greedy'"),
        (["--methods", ","], "names with commas"),
        (["--out", "x.html"], "folder"),
        (["--budget", "0"], "at least 1"),
        (["--judge", "tiny_models:crash"], "the weights are gone"),
        (["--objective", "counterfactual"], "greedypig explain --objective counterfactual"),
    ],
)
def test_a_wrong_comparison_is_exit_code_2(call, words, part):
    code, out, err = call("compare", "photo.png", *TINY, *words)
    assert code == 2
    assert out == ""
    assert part in err


def test_a_foreign_table_is_left_alone(call, place):
    (place / "photo-comparison").mkdir()
    (place / "photo-comparison/comparison.csv").write_text("a,b\n1,2\n")
    code, _, err = call("compare", "photo.png", *TINY, *FEW)
    assert code == 2
    assert "comparison.csv" in err


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("budget", [1, 7, 100, 1000])
def test_budgets_are_kept(name, budget):
    method = compare.method_of(name, budget)
    rounds = len(method.picks(gp.Elements(3 * 224 * 224)))
    gradients = rounds * method.round_scorer.cost
    least = 2 if name == "two-sided-pig" else 1
    assert gradients <= max(budget, least)
    assert gradients >= 0.7 * budget or name in (*WITHOUT_GRADIENTS, "gradient")


@pytest.mark.usefixtures("quick_figures")
def test_a_one_shot_method_is_measured_by_absolute_score(answer, place):
    # Black speaks against "red": its negative scores are large, so the two rankings differ.
    answer("compare", "photo.png", *TINY, "--methods", "ig", "--budget", "10", "--out", "o")
    a = gp.load(place / "o/photo/ig.gpig")
    keys = a.last_scores.abs()
    assert torch.equal(keys[a.order], keys.sort(descending=True).values)
    net = model_from(TINY[1])
    x, gray = net.preprocess(open_photo("photo.png")), net.baseline("gray")
    shown = torch.where(a.mask(round(0.1 * x.numel())), x, gray)
    by_hand = torch.softmax(net(shown[None])[0].double(), 0)[a.about.target]
    assert a.about.kept[0.1] == pytest.approx(float(by_hand), abs=1e-6)


def test_every_photo_has_random_numbers_of_its_own(answer, place):
    make_photo(place / "b.png", (220, 90, 90))
    answer("compare", "photo.png", "b.png", *TINY, "--methods", "random", "--seed", "5")
    orders = []
    for number, name in enumerate(("photo", "b")):
        a = gp.load(place / "comparison" / name / "random.gpig")
        model = model_from("tiny_models:build")
        x = model.preprocess(open_photo(place / f"{name}.png"))
        alone = gp.explain_photo(x, model, method="random", ranking="absolute", seed=(5, number))
        assert torch.equal(a.order, alone.order)
        orders.append(a.order)
    assert not torch.equal(*orders)
