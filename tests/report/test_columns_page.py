"""The page and the figures of a selection of columns: every number is there, no foreign code."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

import greedypig as gp
from greedypig import plots, report
from greedypig.results.table_notes import ColumnNotes

NAMES = ["age", "zip", "debt", "hour"]


def loss(mean, error=0.01):
    return {"mean": mean, "standard_error": error}


SELECTION = {
    "label": "bought", "metric": "log-loss", "train_rows": 900, "valid_rows": 100, "seeds": 3,
    "ks": [1, 3],
    "losses": {
        "greedy-pig": {"1": loss(0.51), "3": loss(0.4321)},
        "ig": {"1": loss(0.52, 0.02), "3": loss(0.5)},
        "random": {"1": loss(0.61), "3": loss(0.58)},
    },
    "accuracies": {"greedy-pig": {"1": loss(0.7), "3": loss(0.8)}},
    "loss_all": loss(0.4299), "accuracy_all": loss(0.81),
    "orders": {"greedy-pig": NAMES, "ig": NAMES[::-1]},
    "kinds": dict.fromkeys(NAMES, "number"),
    "network": "TabularMLP", "network_loss": 0.43,
}  # fmt: skip


def selected(**changes):
    weights = torch.tensor([4.0, 3.0, 2.0, 1.0])
    objective = gp.objective(lambda m: m @ weights - 10, 4)
    a = gp.maximize(objective, gp.GreedyPIG(per_round=1), features=gp.Elements(4, NAMES))
    return a.with_notes({"kind": "table", "source": "t.parquet", "command": "greedypig select …",
                         "selection": {**SELECTION, **changes}})  # fmt: skip


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def test_every_loss_is_on_the_page_and_the_best_is_bold():
    a = selected()
    page = report.html(a)
    text = " ".join(Reader(page).words)
    assert "area" not in text  # Of a loss over columns it means nothing.
    assert "-0.0000" not in text
    for number in ("0.5100", "0.4321", "0.5200", "0.5000", "0.6100", "0.5800", "0.4299"):
        assert number in text
    assert "<b>0.4321</b>" in page
    assert "<b>0.5000</b>" not in page
    assert "Which columns predict “bought”?" in text
    assert "3 of 4" in text
    assert "greedy-pig ahead of ig by 0.0679" in text
    assert report.html(a) == page


CONSTANT = {"loss": 0.6789, "accuracy": 0.55, "variance": None}
NUMBER = {"metric": "squared error", "accuracies": {}, "accuracy_all": None}


def test_a_constant_answer_is_beside_the_others():
    page = report.html(selected(constant=CONSTANT))
    text = " ".join(Reader(page).words)
    assert "0.6789" in text
    assert "do not help" not in text
    lines = [a for t, a in Reader(page).tags if t == "line" and a.get("class") == "constant"]
    assert len(lines) == 2  # In the picture and in its legend.
    # Files from before it was measured.
    assert "constant prediction" not in report.html(selected())


def test_a_number_has_its_units_and_r_squared():
    page = report.html(selected(constant=CONSTANT | {"loss": 4.0, "variance": 4.0}, **NUMBER))
    text = " ".join(Reader(page).words)
    assert "in squared units of" in text
    assert "R²: 1 − loss / variance of the label" in text
    assert "of the standardised label" in text
    assert "R²" not in report.html(selected(constant=CONSTANT))


def test_warnings_stand_below_the_answer():
    page = report.html(selected(warnings=["'id' numbers the rows."]))
    assert "▲ &#39;id&#39; numbers the rows." in page
    assert page.index('class="answer"') < page.index("numbers the rows") < page.index("<section")


def test_a_constant_answer_far_away_does_not_press_the_picture_flat():
    page = report.html(selected(constant=CONSTANT | {"loss": 7.5}))
    assert "7.5000, lies outside of the chart" in page
    assert 'class="constant"' not in page


def visible_cautions(page):
    """The warnings above all numbers."""
    return " ".join(re.findall(r'<div class="warn".*?</div>', page, re.DOTALL))


def test_columns_no_better_than_a_constant_answer_are_told():
    page = report.html(selected(constant=CONSTANT | {"loss": 0.4298}))
    assert "0.4298" in visible_cautions(page)
    few = selected(constant=CONSTANT | {"loss": 0.44}, loss_all=loss(0.6))  # A few are better.
    assert "0.4400" not in visible_cautions(report.html(few))


def test_a_network_no_better_than_a_constant_answer_is_told_though_few_columns_are():
    asked = {"constant": CONSTANT | {"loss": 0.6}, "network_loss": 0.7}
    cautions = visible_cautions(report.html(selected(**asked)))
    assert "0.7000" in cautions
    assert "0.6000" in cautions
    for fine in ({"network_loss": 0.5}, {"network_loss": None}):
        assert "0.6000" not in visible_cautions(report.html(selected(**asked | fine)))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_squared_errors_of_any_scale_are_readable(scale):
    losses = {
        m: {k: loss(v["mean"] * scale, v["standard_error"] * scale) for k, v in by.items()}
        for m, by in SELECTION["losses"].items()
    }
    constant = {"loss": 0.81 * scale, "accuracy": None, "variance": 0.8 * scale}
    a = selected(losses=losses, loss_all=loss(0.4299 * scale, 0.01 * scale), constant=constant,
                 valid_rows=5000, **NUMBER)  # fmt: skip
    text = " ".join(Reader(report.html(a)).words)
    assert f"{0.4321 * scale:.5g}" in text
    notes = ColumnNotes.of(a)
    assert notes.verdict("greedy-pig", "ig", 3) == f"greedy-pig ahead of ig by {0.0679 * scale:.5g}"


def test_the_task_is_on_the_page():
    assert "bought: 2 classes: no (75 %)" in report.html(selected(task="2 classes: no (75 %)"))


def test_error_bars_and_points_lie_where_the_numbers_are():
    tags = Reader(report.html(selected())).tags
    dots = [a for t, a in tags if t == "circle" and a["class"] == "c0"]
    bars = [a for t, a in tags if t == "line" and a.get("class") == "c0 error"]
    assert len(dots) == len(bars) == 2
    for dot, bar in zip(dots, bars, strict=True):
        middle = (float(bar["y1"]) + float(bar["y2"])) / 2
        assert middle == pytest.approx(float(dot["cy"]), abs=0.02)
    heights = [float(d["cy"]) for d in dots]
    assert heights[1] > heights[0]  # A lower loss is drawn lower.


def test_a_stranger_s_words_stay_words():
    bad = "<script>alert(1)</script>"
    page = report.html(selected(label=bad, network=bad, orders={bad: [bad]}, kinds={bad: bad}))
    assert bad not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    "changes",
    [
        {"ks": "1"}, {"losses": []}, {"loss_all": 3}, {"label": 5}, {"seeds": None},
        {"loss_all": {"mean": "0.1"}}, {"orders": {"ig": [1]}}, {"kinds": ["a"]},
        {"losses": {"ig": {"1": {"mean": True}}}}, {"losses": {}}, {"losses": {"ig": {}}},
        {"task": 2}, {"constant": 1.0},
        {"constant": {"loss": "x"}},
    ],
)  # fmt: skip
def test_notes_that_are_no_notes_are_refused(changes):
    with pytest.raises(gp.InvalidInput):
        report.html(selected(**changes))


def test_other_results_have_no_such_notes():
    a = gp.maximize(gp.objective(lambda m: m.sum(1), 2), gp.GreedyPIG(per_round=1))
    with pytest.raises(gp.InvalidInput, match="retrained"):
        plots.selected_columns(a)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (loss(0.5), loss(0.6), "greedy-pig ahead of ig by 0.1000"),
        (loss(0.6), loss(0.5), "greedy-pig behind ig by 0.1000"),
        (loss(0.5, 0.3), loss(0.6, 0.4),
         "greedy-pig ahead of ig by 0.1000, within the noise (± 2.1515 with 3 seeds)"),
        (loss(0.5, None), loss(0.6),
         "greedy-pig ahead of ig by 0.1000 (one seed, no error estimate)"),
        (loss(0.5), loss(0.5), "greedy-pig and ig have the same loss"),
    ],
)  # fmt: skip
def test_the_verdict_says_what_the_errors_allow(ours, theirs, said):
    by = {"losses": {"greedy-pig": {"1": ours}, "ig": {"1": theirs}}}
    many = ColumnNotes.of(selected(**by, valid_rows=5000)).verdict("greedy-pig", "ig", 1)
    assert many == said
    few = ColumnNotes.of(selected(**by, valid_rows=100)).verdict("greedy-pig", "ig", 1)
    sure = said.endswith("by 0.1000")
    assert few.startswith(said)
    assert ("only 100 validation rows" in few) == sure


def test_the_figure_shows_the_numbers():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    a = selected()
    figure = plots.selected_columns(a)
    ax, way = figure.axes
    lines = {c.get_label(): c for c in ax.containers}
    assert set(lines) == {"greedy-pig", "ig", "random"}
    assert lines["greedy-pig"].lines[0].get_ydata().tolist() == [0.51, 0.4321]
    assert "validation log-loss" in ax.get_ylabel()
    assert not any("constant" in t.get_text() for t in ax.get_legend().get_texts())
    drawn = plots.panel(selected(constant=CONSTANT)).axes[0]
    assert "constant prediction: 0.6789" in [t.get_text() for t in drawn.get_legend().get_texts()]
    assert [line.get_ydata()[0] for line in drawn.lines if "constant" in line.get_label()] == [
        0.6789
    ]
    assert [t.get_text() for t in way.get_xticklabels()] == ["none", *NAMES]
    assert way.lines[0].get_ydata().tolist() == [10, 6, 3, 1, 0]
    assert len(plots.selected_columns(replace(a, picks=(2, 1, 1))).axes) == 1
    assert re.search("which columns predict bought", figure.get_suptitle())


@pytest.mark.parametrize(
    ("enough", "losses", "useful"),
    [
        (2, {"1": loss(0.5), "3": loss(0.5)}, 2),
        (0, {"1": loss(0.5), "3": loss(0.5)}, 0),
        (0, {"1": loss(0.9), "3": loss(0.5)}, 3),  # Retraining tells that 3 are better than 1.
        (2, {"1": loss(0.9), "3": loss(0.5)}, 2),  # That 1 is too few is no news.
        (1, {"1": loss(0.9), "3": loss(0.8)}, None),  # All columns are better than 3.
        (None, {"1": loss(0.5), "3": loss(0.5)}, None),
    ],
)
def test_nothing_is_gained_only_where_retraining_agrees(enough, losses, useful):
    a = selected(losses={"greedy-pig": losses}, loss_all=loss(0.5))
    a = a.with_notes({"held_out": {"columns": enough}})
    notes = ColumnNotes.of(a)
    assert notes.useful == useful
    assert bool(notes.gained()) == (useful is not None)
    assert notes.gained() in html.unescape(report.html(a))


@pytest.mark.parametrize(("enough", "k"), [(4, 4), (3, 3), (2, 3), (0, 1), (None, 3)])
def test_the_headline_keeps_the_columns_after_which_nothing_is_gained(enough, k):
    losses = {"1": loss(0.44, 0.1), "3": loss(0.431), "4": loss(0.43)}
    a = selected(ks=[1, 3, 4], losses={"greedy-pig": losses}, loss_all=loss(0.43))
    a = a.with_notes({"held_out": {"columns": enough}})
    text = html.unescape(report.html(a))
    mean = losses[str(k)]["mean"]
    assert f"{k} of 4 columns give a validation log-loss of {mean:.4f}; all" in text
    assert enough is None or ColumnNotes.of(a).gained() in text


def test_warnings_are_on_the_page_as_text():
    page = report.html(selected(warnings=["'zip' <b>leaks</b>"]))
    assert "<b>leaks" not in page
    assert "'zip' <b>leaks</b>" in html.unescape(page)
    with pytest.raises(ValueError, match="warnings"):
        ColumnNotes.of(selected(warnings=[3]))
