"""`greedypig compare`: the same photos, every method, one table."""

import csv

import pytest
import torch
from PIL import Image

import greedypig as gp
from conftest import TINY, make_photo
from greedypig import metrics
from greedypig.cli import compare
from greedypig.cli.compare_output import Comparison
from greedypig.cli.resumable import Progress
from greedypig.core.methods import picks_of, scorer_of
from greedypig.core.scorers import cost_of
from greedypig.images import model_from, open_photo

FEW = ("--methods", "greedy-pig,ig,random")


@pytest.mark.slow
def test_every_method_is_there_unless_it_is_slow(answer):
    pytest.importorskip("skimage")
    record = answer("compare", "photo.png", "--model", "tiny_models:wide", "--budget", "30")
    assert list(record["methods"]) == [
        "steady-pig", "greedy-pig", "sequential-gradient", "ig", "smooth-ig", "blur-ig",
        "guided-ig", "greedy-pig (regions)", "random",
    ]  # fmt: skip
    for name, row in record["methods"].items():
        paid = 0 if name == "random" else row["gradients"]
        assert paid == 0 or 25 <= paid <= 30, name
        assert 0 < row["sic_auc"] < 1
        assert row["lic_auc"] > 0
        assert row["seconds"] > 0
    best = max(record["methods"], key=lambda name: record["methods"][name]["sic_auc"])
    assert record["order"][0] == best


@pytest.mark.slow
def test_the_numbers_are_those_of_the_metrics(answer, place):
    from greedypig.images import model_from, open_photo

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
def test_curves_over_several_photos_are_medians(answer, place):
    make_photo(place / "b.png", (220, 90, 90))
    make_photo(place / "c.png", (160, 20, 20))
    alone = [answer("compare", name, *TINY, *FEW)["methods"]["ig"]["curves"]["softmax"]["values"]
             for name in ("photo.png", "b.png", "c.png")]  # fmt: skip
    both = answer("compare", "photo.png", "b.png", "c.png", *TINY, *FEW)
    median = torch.tensor(alone, dtype=torch.float64).median(0).values
    found = torch.tensor(both["methods"]["ig"]["curves"]["softmax"]["values"], dtype=torch.float64)
    assert torch.allclose(found, median)
    index = (place / "comparison" / "comparison.html").read_text()
    for name in ("photo", "b", "c"):
        assert f'href="./{name}/comparison.html"' in index
        page = (place / "comparison" / name / "comparison.html").read_text()
        assert "guided-ig" not in page
        assert all(method in page for method in both["methods"])


@pytest.mark.slow
def test_files_hold_the_table(call, answer, place):
    pytest.importorskip("matplotlib")
    record = answer("compare", "photo.png", *TINY, *FEW, "--judge", "tiny_models:other")
    folder = place / "photo-comparison"
    assert sorted(p.name for p in folder.iterdir()) == [
        "comparison.csv", "comparison.gpig", "comparison.html", "comparison.md", "comparison.png",
        "photo",
    ]  # fmt: skip
    with (folder / "comparison.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    for name, row in record["methods"].items():
        assert float(rows[name]["second_opinion_auc"]) == row["second_opinion_auc"]
        assert f"| {name} | {row['sic_auc']:.3f} |" in (folder / "comparison.md").read_text()
    saved = sorted(p.name for p in (folder / "photo").iterdir())
    assert saved == ["greedy-pig.gpig", "ig.gpig", "random.gpig"]
    code, out, _ = call("compare", "photo.png", *TINY, *FEW, "--judge", "tiny_models:other")
    assert code == 0
    assert "2nd" in out or "second opinion" in out


@pytest.mark.slow
def test_people_read_a_table(call, monkeypatch):
    _, out, err = call("compare", "photo.png", *TINY, *FEW)
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("photo.png: red")
    assert [line.split()[0] for line in lines[2:5]] == ["greedy-pig", "ig", "random"]
    monkeypatch.setenv("COLUMNS", "56")
    _, out, _ = call("compare", "photo.png", *TINY, *FEW)
    assert max(map(len, out.splitlines()[:6])) <= 56


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 60, 50])
def test_a_table_with_a_second_opinion_fits_too(call, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words = ("--methods", "greedy-pig,sequential-gradient", "--judge", "tiny_models:other")
    _, out, _ = call("compare", "photo.png", *TINY, *words)
    assert max(map(len, out.splitlines())) <= width
    heads = next(line for line in out.splitlines() if "SIC" in line)
    assert "2nd" in heads or "second opinion" in heads
    assert ("above" in heads) == (width >= 60)


@pytest.mark.slow
def test_the_paper_s_setting_only_when_asked_for(answer):
    record = answer("compare", "photo.png", *TINY, "--methods", "greedy-pig,paper")
    assert record["methods"]["greedy-pig (paper)"]["gradients"] == 2000
    assert compare.PAPER in compare.chosen(None, paper=True)
    assert compare.PAPER not in compare.chosen(None, paper=False)


@pytest.mark.slow
def test_a_budget_cuts_the_paper_s_setting_too_and_says_how(call, answer, place):
    words = ("compare", "photo.png", *TINY, "--methods", "greedy-pig,paper,ig,random",
             "--budget", "20", "--out", "o")  # fmt: skip
    record = answer(*words)
    paid = {name: row["gradients"] for name, row in record["methods"].items()}
    assert 16 <= paid.pop("greedy-pig") <= 20
    assert paid == {"greedy-pig (paper)": 20, "ig": 20, "random": 0}
    settings = {name: row["setting"] for name, row in record["methods"].items()}
    assert settings["greedy-pig (paper)"] == "4 rounds × 5 midpoints, equal"
    assert settings["ig"] == "20 steps"
    assert settings["random"] == ""
    assert "| 4 rounds × 5 midpoints, equal |" in (place / "o/comparison.md").read_text()
    told = " ".join(call(*words)[1].split())
    default = settings["greedy-pig"]
    assert f"Within 20 gradients: greedy-pig {default}; greedy-pig (paper) 4 rounds × 5" in told


def test_noisy_copies_and_their_steps_are_a_setting(call, place):
    words = ("compare", "photo.png", *TINY, "--methods", "smooth-ig,random", "--budget", "50")
    told = " ".join(call(*words, "--out", "o")[1].split())
    assert "Within 50 gradients: smooth-ig 25 samples × 2 steps" in told
    assert "| 25 samples × 2 steps |" in (place / "o/comparison.md").read_text()


@pytest.mark.slow
def test_no_more_rounds_than_there_are_blocks(answer):
    words = ("compare", "photo.png", *TINY, "--methods", "greedy-pig,paper,sequential-gradient",
             "--features", "grid:4", "--budget", "40", "--out", "o")  # fmt: skip
    rows = answer(*words)["methods"]
    assert rows["greedy-pig"]["setting"] == "4 rounds × 10 midpoints, geometric"
    assert rows["sequential-gradient"]["setting"] == "4 rounds × 1, geometric"
    assert rows["greedy-pig (paper)"]["gradients"] <= 40


@pytest.mark.slow
def test_a_stopped_comparison_goes_on(call, answer, place, monkeypatch):
    whole = answer("compare", "photo.png", *TINY, *FEW, "--out", "whole")
    plain, calls = Progress.__call__, [0]

    def interrupt(self, run):
        plain(self, run)
        calls[0] += run.settings[0]["method"] == "ig"
        if calls[0] == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(Progress, "__call__", interrupt)
        code, _, err = call("compare", "photo.png", *TINY, *FEW, "--out", "o")
    assert code == 1
    assert "after 1 of 3 runs" in err
    assert "compare --resume photo.png" in err
    kept = (place / "o/photo/greedy-pig.gpig").read_bytes()
    again = answer("compare", "--resume", "photo.png", *TINY, *FEW, "--out", "o")
    assert (place / "o/photo/greedy-pig.gpig").read_bytes() == kept
    for name, row in again["methods"].items():
        assert row["sic_auc"] == whole["methods"][name]["sic_auc"]


@pytest.mark.slow
def test_broken_photos_leave_the_comparison_and_are_listed(answer, place):
    (place / "text.png").write_text("hello")
    record = answer("compare", "photo.png", "text.png", *TINY, *FEW, "--out", "o", code=1)
    assert [p["photo"] for p in record["photos"]] == ["photo.png"]
    (broken,) = record["failed"]
    _, _, left_out = (place / "o/comparison.md").read_text().partition("Left out")
    assert f"- text.png: {broken['reason']}" in left_out
    assert "photo.png" not in left_out.replace(broken["reason"], "")
    answer("compare", "photo.png", *TINY, *FEW, "--out", "o")
    assert "Left out" not in (place / "o/comparison.md").read_text()


@pytest.mark.usefixtures("quick_figures")
def test_the_table_for_programs_names_the_settings(answer, place):
    record = answer("compare", "photo.png", *TINY, *FEW, "--budget", "10", "--out", "o")
    with (place / "o/comparison.csv").open() as file:
        told = {row["method"]: row["setting"] for row in csv.DictReader(file)}
    assert told == {name: row["setting"] for name, row in record["methods"].items()}
    assert told["ig"] == "10 steps"


@pytest.mark.usefixtures("quick_figures")
def test_the_comparison_notes_every_method_s_measured_points_and_judgement(answer, place):
    make_photo(place / "b.png", (220, 90, 90))
    judged = ("--judge", "tiny_models:other", "--budget", "10", "--out", "o")
    answer("compare", "photo.png", *TINY, *FEW, *judged)
    noted = gp.load(place / "o/comparison.gpig").about["comparison"]
    for name, row in noted.items():
        alone = gp.load(place / "o/photo" / f"{name}.gpig").about
        assert row["kept"] == alone["kept"]
        assert set(row["kept"]) == {"0.01", "0.05", "0.1"}
        second = alone["curves"]["second-opinion"]
        assert row["second_opinion_curve"]["values"] == pytest.approx(second["values"])
        assert row["second_opinion_curve"]["judge"] == "tiny_models:other"
    answer("compare", "photo.png", *TINY, *FEW, "--budget", "10", "--out", "bare")
    noted = gp.load(place / "bare/comparison.gpig").about["comparison"]
    assert "second_opinion_curve" not in noted["ig"]


@pytest.mark.usefixtures("quick_figures")
def test_of_several_photos_the_points_are_medians(answer, place):
    make_photo(place / "b.png", (220, 90, 90))
    both = ("photo.png", "b.png", *TINY, "--methods", "ig", "--budget", "10", "--out", "o")
    answer("compare", *both)
    alone = [gp.load(place / "o" / name / "ig.gpig") for name in ("photo", "b")]
    table = Comparison({"ig": dict(enumerate(alone))}, "absolute")
    for share, value in table.kept("ig").items():
        assert value == pytest.approx(sum(a.about["kept"][share] for a in alone) / 2)


@pytest.mark.usefixtures("quick_figures")
def test_warnings_name_the_photo_and_the_method(call, place):
    for name in ("gray.png", "ash.png"):  # The input is the baseline: no method finds anything.
        Image.new("RGB", (8, 8), (128, 128, 128)).save(place / name)
    words = (*TINY, "--baseline", str(128 / 255))
    _, _, err = call("compare", "photo.png", "gray.png", "ash.png", *words, "--methods",
                     "greedy-pig,ig", "--budget", "5")  # fmt: skip
    warned = [line for line in err.splitlines() if "Every score" in line]
    for name in ("gray.png", "ash.png"):
        for method in ("greedy-pig", "ig"):
            begin = f"warning: {name}, {method}: Every score of the first round"
            assert sum(line.startswith(begin) for line in warned) == 1
    assert len(warned) == 4
    _, _, err = call("explain", "photo.png", "gray.png", *words, "--no-html", "--rounds", "1")
    assert "warning: gray.png: Every score" in err
    assert "warning: Every score" in call("explain", "gray.png", *words, "--rounds", "1")[2]


@pytest.mark.usefixtures("quick_figures")
def test_one_gradient_is_one(call):
    out = call("compare", "photo.png", *TINY, "--methods", "ig,random", "--budget", "1")[1]
    assert "Within 1 gradient: ig 1 step" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "greedy"], "Did you mean"),
        (["--methods", ","], "none"),
        (["--out", "x.html"], "folder"),
        (["--budget", "0"], "at least 1"),
        (["--judge", "tiny_models:crash"], "the weights are gone"),
    ],
)
def test_a_wrong_comparison_is_exit_code_2(call, words, said):
    code, out, err = call("compare", "photo.png", *TINY, *words)
    assert code == 2
    assert out == ""
    assert said in err


def test_a_foreign_table_is_left_alone(call, place):
    (place / "photo-comparison").mkdir()
    (place / "photo-comparison/comparison.csv").write_text("a,b\n1,2\n")
    code, _, err = call("compare", "photo.png", *TINY, *FEW)
    assert code == 2
    assert "comparison.csv" in err


@pytest.mark.parametrize("name", compare.NAMES)
@pytest.mark.parametrize("budget", [1, 7, 100, 1000])
def test_budgets_are_kept(name, budget):
    x = torch.zeros(3, 224, 224)
    method = compare.method_of(name, "elements", budget, x)
    paid = len(picks_of(method, gp.Elements(x.numel()), None)) * cost_of(scorer_of(method))
    assert paid <= max(budget, 1)
    assert paid >= 0.7 * budget or name in ("random", "gradient")


@pytest.mark.slow
@pytest.mark.parametrize("ranking", ["absolute", "signed"])
def test_a_one_shot_method_is_measured_on_the_order_that_is_shown(answer, place, ranking):
    # Black speaks against "red": its negative scores are large, so the two rankings differ.
    words = ("--methods", "ig,greedy-pig", "--budget", "10", "--ranking", ranking, "--out", ranking)
    record = answer("compare", "photo.png", *TINY, *words)
    assert record["settings"]["ranking"] == ranking
    a = gp.load(place / ranking / "photo" / "ig.gpig")
    keys = a.last_scores.abs() if ranking == "absolute" else a.last_scores
    assert torch.equal(keys[a.order], keys.sort(descending=True).values)
    net = model_from(TINY[1])
    x, gray = net.preprocess(open_photo("photo.png")), net.baseline("gray")
    shown = torch.where(a.mask(round(0.1 * x.numel())), x, gray)
    by_hand = torch.softmax(net(shown[None])[0].double(), 0)[a.about["target"]]
    assert a.about["kept"]["0.1"] == pytest.approx(float(by_hand), abs=1e-6)
    assert ranking in (place / ranking / "comparison.md").read_text()


@pytest.mark.slow
def test_the_two_rankings_of_integrated_gradients_differ(answer):
    words = ("compare", "photo.png", *TINY, "--methods", "ig", "--budget", "10", "--out", "o")
    absolute = answer(*words)["methods"]["ig"]["sic_auc"]
    signed = answer(*words, "--ranking", "signed", "--resume")["methods"]["ig"]["sic_auc"]
    assert signed > absolute + 0.01
    assert answer(*words, "--resume")["methods"]["ig"]["sic_auc"] == pytest.approx(absolute)
