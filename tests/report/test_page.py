"""The page as text: it holds what the result holds, escapes all of it, and is always the same."""

import base64
import hashlib
import html
import re
import struct
import sys
import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig import report
from greedypig.report import explore
from greedypig.report.chart import scale
from greedypig.report.render import environment, png, reduced
from greedypig.results.input_notes import InputNotes
from greedypig.results.picture import Picture, compared_pictures
from names import without_address
from seen import ABOUT, COMPARISON, hostile, photo, pixels, ranked, unmeasured


def visible(page: str) -> str:
    """The text between the tags, without data and code."""
    body = page[page.index("<body>") :]
    body = re.sub(r"<(script|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\u00a0", " ")
    return re.sub(r"\s+", " ", text)


def test_the_summary_says_in_plain_words_how_sure_the_model_is_with_how_little():
    text = visible(report.html(photo()))
    assert "With only 1 % of the features" in text
    assert "the model predicts espresso with 0.020 " in text
    assert "with 5 % it is 0.100 " in text
    assert "the whole photo gives 0.750 " in text


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.022, "0.022"),
        (0.0004, "less than 0.001"),
        (0.9919, "0.992"),
        (0.5, "0.500"),
        (0.9996, "more than 0.999"),
        (1.0, "1.000"),
    ],
)
def test_neither_0_nor_1_is_said_of_a_probability_that_is_neither(p, said):
    text = visible(report.html(photo(about={"probability": p})))
    assert f"the whole photo gives {said}" in text


def test_shares_in_sentences_have_two_digits():
    line = {"softmax": {"fractions": [0, 0.0404, 0.232, 1], "values": [0, 0.7, 0.9, 0.75]}}
    kept = {"0.01": 0.02, "0.05": 0.72, "0.1": 0.8}
    text = visible(report.html(photo(about={"curves": line, "kept": kept})))
    assert (
        "5 % of the photo is enough for espresso (95 % of the rise: 0.720, whole photo 0.750)."
        in text
    )
    assert "23 % of the features give a higher probability (0.900)" in text


def test_log_likelihood_is_no_advice_for_a_class_that_the_model_does_not_predict():
    advice = 'objective="log-likelihood"'
    assert advice in visible(report.html(photo()))
    other = {"predictions": [["cup", 0.8], ["espresso", 0.75]]}
    page = visible(report.html(photo(about=other)))
    assert "higher probability" in page
    assert "second opinion" in page
    assert advice not in page
    cranes = {"class": "crane", "predictions": [["crane", 0.8], ["crane", 0.75]]}
    assert advice not in visible(report.html(photo(about=cranes)))  # Two classes of one name.


def test_a_part_that_outdoes_the_whole_is_warned_of_with_the_second_opinion():
    text = visible(report.html(photo()))
    assert "50 % of the features give a higher probability (1.000) than" in text
    assert "the whole photo (0.750)" in text
    assert "mobilenet-v2 gives the same features 0.250 (the whole photo: 0.500)" in text
    assert "log-likelihood" in text
    for probability in (0.901, 1.0):  # A little more is found of nearly every photo.
        calm = visible(report.html(photo(about={"probability": probability})))
        assert "higher probability" not in calm


def test_the_smallest_part_that_lies_above_the_whole_is_told():
    line = {"fractions": [0, 0.05, 0.1, 0.8, 1], "values": [0, 0.55, 0.7, 0.95, 0.4]}
    about = {"curves": {"softmax": line}, "kept": {}, "probability": 0.4}
    text = visible(report.html(photo(about=about)))
    assert "▲ 5 % of the features give a higher probability (0.550)" in text


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([0, 0.2, 0.8, 0.75], "50 % of the photo is enough for espresso (95 % of the rise: 0.800,"),
        ([0, 0.8, 0.1, 0.75], "25 % of the photo is enough for espresso (95 % of the rise: 0.800,"),
        ([0, 0.2, 0.7, 0.75], "No smaller part of the photo is enough for espresso (0.750)."),
        ([0.7, 0.7, 0.747, 0.75], "No smaller part of the photo is enough for espresso (0.750)."),
        ([0.8, 0.9, 0.7, 0.75], "The photo makes espresso no more probable (0.750, the baseline"),
    ],
)
def test_the_answer_is_the_smallest_share_with_most_of_the_rise(values, answer):
    line = {"fractions": [0, 0.25, 0.5, 1], "values": values}
    page = report.html(photo(about={"curves": {"softmax": line}, "kept": {}}))
    assert answer in visible(page)
    assert page.index(answer[-20:].replace(" %", "\u00a0%")) < page.index('id="canvas"')


def test_the_answer_of_a_row_names_the_features_that_are_enough():
    def model(x):
        return torch.stack([8 * x[:, 0] + 4 * x[:, 1], 4 + 0 * x[:, 0]], 1)

    a = gp.explain(model, torch.ones(5), target=0, names=list("abcde"),
                   method=gp.GreedyPIG(per_round=1))  # fmt: skip
    text = visible(report.html(a))
    beside = "(95 % of the rise: 0.982, all more than 0.999)"
    assert f"1 of 5 features is enough for output 0 {beside}: a." in text


def test_the_answer_of_a_picture_without_curves_is_a_share_of_it():
    class Model(torch.nn.Module):
        def forward(self, x):
            first = 8 * x[:, 0, 0, 0]  # All that counts.
            return torch.stack([first, 2 + 0 * first], 1)

    a = gp.explain(Model(), torch.ones(3, 8, 8), target=0, baseline="zero",
                   method=gp.GreedyPIG(rounds=20))  # fmt: skip
    assert Picture.of(a) is not None
    counted = replace(a, settings={**a.settings, "objective": "log-likelihood"},
                      values=a.values.clone().fill_(-0.1), full_value=0.0)  # fmt: skip
    counted.values[0] = -6
    told = "With 0.52 % of the photo, G is −0.1 for output 0 (nothing −6, everything 0)."
    assert told in visible(report.html(counted))
    text = visible(report.html(a))
    assert (
        "0.52 % of the photo is enough for output 0 (95 % of the rise: 0.998, whole photo 0.998)."
        in text
    )
    assert "The first 3 of" not in text


@pytest.mark.parametrize(
    ("kind", "objective", "whole"),
    [
        ("image", "softmax", "photo"),
        (None, "softmax", "input"),
        (None, "increase", None),
        ("table", "softmax", None),
        ("graph", "softmax", None),
    ],
)
def test_log_likelihood_is_advised_where_it_can_be_chosen(kind, objective, whole):
    shape = (3, 4, 5) if kind == "image" else (6,)
    a = ranked(shape, method="greedy-pig", rounds=3)
    a = replace(a, values=a.values + 99).with_notes({"kind": kind, "objective": objective})
    text = visible(report.html(a))
    assert "give a higher G" in text
    assert ("log-likelihood" in text) == (whole is not None)
    assert whole is None or f"to match the {whole}'s own prediction" in text
    assert ("a second network" in text) == (kind in (None, "image"))


def test_the_answer_of_a_counterfactual_is_what_cannot_be_missed():
    line = {"fractions": [0, 0.1, 0.2, 1], "values": [0.75, 0.3, 0.5, 0.1]}
    about = {"curves": {"deletion": line}, "objective": "counterfactual", "kept": {}}
    text = visible(report.html(photo(about=about)))
    assert "Without 100 % of the photo, espresso falls from 0.750 to 0.100." in text


def test_warnings_of_the_run_are_lines_of_their_own():
    text = visible(report.html(photo(about={"warnings": ["Something is odd."]})))
    assert "▲ Something is odd." in text


def test_values_of_features_stand_beside_their_names():
    a = ranked((3,), names=["age", "bmi", "bp"])
    assert "value" not in re.findall("<th scope=.col.[^>]*>(.*?)</th>", report.html(a))[:3]
    page = report.html(a.with_notes(x=torch.tensor([52.0, -1.5, 0.25])))
    rows = re.findall(r'<th scope="row">(\d)</th>\s*<td>(\w+)</td>\s*<td>(.*?)</td>', page)
    assert sorted((name, value) for _, name, value in rows) == [
        ("age", "52"), ("bmi", "−1.5"), ("bp", "0.25")]  # fmt: skip


def test_a_comparison_with_pictures_is_titled_as_one_and_shows_them_all():
    a, b = photo((3, 8, 9)), photo((3, 8, 9), seed=1)
    rows = {name: {"curve": {"fractions": [0, 0.2, 1], "values": [0, high, 0.75]}}
            for name, high in (("mine", 0.3), ("theirs", 0.74))}  # fmt: skip
    noted = a.with_notes({"comparison": rows}, **compared_pictures([a, b]))
    page = report.html(noted)
    text = visible(page)
    assert "2 methods compared on photo.jpg: espresso" in text
    assert '<p class="eyebrow">photo.jpg · efficientnet-lite0</p>' in page  # No method's own.
    assert "<title>Comparison" in page
    assert "theirs keeps espresso (0.750) with 20 % of the photo; mine needs 100 %." in text
    assert page.count('<canvas id="method-') == 2
    assert len(page) < 200_000


def test_only_an_order_of_a_method_says_what_the_model_used():
    for method, used in (("greedy-pig", True), ("ig", True), ("random", False)):
        footer = visible(report.html(photo(method=method))).partition("from the result alone.")[2]
        assert ("model used" in footer) == used


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"method": "greedy-pig", "rounds": 3, "steps": 2}, "3 rounds × 2 midpoints, geometric"),
        ({"method": "ig", "steps": 4}, "ig: 4 steps"),
        ({"method": "smooth-ig"}, "smooth-ig: 25 samples × 50 steps"),
        ({"method": gp.SteadyPIG(rounds=2, views=2)}, "steady-pig: 2 rounds × 2 views"),
    ],
    ids=["greedy", "one-shot", "smooth", "views"],
)
def test_the_method_s_setting_and_the_seed_are_on_the_page(options, told):
    assert told in visible(report.html(photo(**options)))


def test_predictions_settings_versions_and_cost_are_on_the_page():
    a = photo()
    text = visible(report.html(a))
    parts = ["coffee mug", "0.062", "efficientnet-lite0", "photo.jpg", a.provenance["input"]]
    for part in [*parts, str(a.gradients_used)]:
        assert part in text, part
    assert "Do it again" not in text
    told = visible(report.html(photo(about={"command": "greedypig explain photo.jpg"})))
    assert "greedypig explain photo.jpg" in told


def test_methods_side_by_side_are_a_table_with_the_best_in_bold():
    page = report.html(photo(about={"comparison": COMPARISON}))
    assert "<b>0.900</b>" in page
    assert "<b>0.500</b>" in page
    assert "Other methods" in page
    assert '<td class="num">0.250</td>' in page  # The only one: there is none to outdo.
    assert "The best of a column with an arrow is bold" in page
    assert "Other methods" not in report.html(photo())


def test_the_least_excess_is_bold_and_equals_are_alike():
    rows = {"a": 0.2, "b": 0.0001, "c": 0.0, "d": 0.05}
    notes = {name: {"excess": value, "gradients": 5} for name, value in rows.items()}
    page = report.html(photo(about={"comparison": notes}))
    assert page.count("<b>0.000</b>") == 2  # As written there is nothing between them.
    assert "<b>0.0" not in page.replace("<b>0.000</b>", "").split("Methods side by side")[1]
    assert "<b>5</b>" not in page
    alone = report.html(photo(about={"comparison": {"a": notes["a"]}}))
    assert "is bold" not in alone


def test_a_judge_s_curves_of_all_methods_are_a_chart_of_their_own():
    second = {"fractions": [0, 1], "values": [0.1, 0.3], "judge": "mobilenet-v2"}
    rows = {name: {**row, "second_opinion_curve": second} for name, row in COMPARISON.items()}
    page = report.html(photo(about={"comparison": rows}))
    assert "second opinion by mobilenet-v2" in page
    chart = page[page.index('id="curve-methods-second"') :]
    assert len(re.findall("<polyline", chart[: chart.index("</svg>")])) == 2
    assert "curve-methods-second" not in report.html(photo(about={"comparison": COMPARISON}))


def test_a_method_s_line_looks_the_same_on_every_page():
    def classes(*names):
        line = {"fractions": [0, 1], "values": [0.1, 0.7]}
        page = report.html(photo(about={"comparison": {name: {"curve": line} for name in names}}))
        chart = page[page.index('id="curve-methods"') :]
        drawn = re.findall(r'<polyline class="([^"]+)"', chart)[: len(names)]
        sampled = re.findall(r'<line class="(line [^"]+)"', chart)[: len(names)]
        assert drawn == sampled  # The legend's samples are of the lines.
        return dict(zip(names, drawn, strict=True))

    one, other = classes("greedy-pig", "ig", "random"), classes("mine", "random", "ig")
    assert one["ig"] == other["ig"] == "line c1 d1"
    assert one["random"] == other["random"]
    assert len(set(other.values())) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: ranked((6,), names=["age", "bmi", "bp", "s1", "s2", "s3"]),
        lambda: ranked((5, 4)),
        lambda: gp.maximize(gp.objective(lambda m: m.sum(1), 3), gp.GreedyPIG(per_round=1)),
        lambda: ranked((1,)),
        lambda: unmeasured(ranked((6,), method="greedy-pig", rounds=2)),
    ],
    ids=["row", "embeddings", "set function", "one feature", "no values"],
)
def test_results_without_a_picture_get_bars_rounds_and_values(make):
    a = make()
    text = visible(report.html(a))
    assert "First features" in text
    assert str(a.top(1)[0]) in text or "x[" in text
    assert f"Rounds ({len(a.picks)})" in text
    assert ("after each round" in text) == bool(a.values.isfinite().any())
    assert ("not measured" in text) == bool(a.values.isnan().any())


def test_g_below_0_is_told_with_proper_minus_signs():
    a = ranked((4,), method="greedy-pig", rounds=2)
    a = replace(a, values=torch.tensor([-0.86, -0.9, -0.992], dtype=torch.float64),
                full_value=-0.5, totals=(-0.25, -0.125))  # fmt: skip
    page = report.html(a)
    assert "G is −0.86 with nothing and −0.992 with the 4 selected; everything gives −0.5" in (
        re.sub(r" (?=[;.])", "", visible(page))
    )
    assert not re.search(r"(?<![\w–-])-\d", visible(page).partition("Settings")[0])
    assert not re.search(r"-\d", re.search(r'<svg class="chart".*?aria-label="([^"]*)"', page)[1])


def test_curves_of_edges_and_columns_are_over_shares_of_these():
    for kind, word in (("graph", "edges"), ("table", "columns"), (None, "features")):
        a = ranked((6,), method="greedy-pig", rounds=3).with_notes({"kind": kind})
        for text in (visible(report.html(a)), a._repr_html_()):
            assert f"share of the {word} kept" in text


def test_pages_of_pictures_whatever_a_feature_is():
    groups = torch.arange(48).view(3, 4, 4) % 7
    for features in ("pixels", gp.grid(2), gp.windows(2), gp.windows(3, stride=2), groups):
        a = ranked((3, 4, 4), features=features, method="greedy-pig", rounds=3)
        page = report.html(a.with_notes(ABOUT, picture=pixels(4, 4)))
        assert 'id="canvas"' in page


def test_the_page_is_the_same_from_the_saved_file(tmp_path):
    for a in (photo(about={"comparison": COMPARISON}), ranked((6,)), hostile()):
        a.save(tmp_path / "a.gpig")
        assert report.html(gp.load(tmp_path / "a.gpig")) == report.html(a)


def test_writing_writes_the_page_and_nothing_else(tmp_path):
    report.write(photo(), tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text("utf-8") == report.html(photo())
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def large(side, features, comparison=False):
    """The worst case for the page's size: a picture, a baseline and ranks of pure noise."""
    a = gp.explain(lambda x: x.mean((1, 2, 3)).unsqueeze(1), torch.zeros(3, side, side),
                   method="random", features=features)  # fmt: skip
    noise = {"picture": pixels(side, side), "baseline": pixels(side, side, seed=2)}
    if comparison:
        rows = {f"method {i}": {"gradients": i} for i in range(6)}
        return a.with_notes({**ABOUT, "comparison": rows}, **noise, **compared_pictures([a] * 6))
    return a.with_notes(ABOUT, **noise)


@pytest.mark.parametrize("side", [224, 512, 1024])
@pytest.mark.parametrize("features", ["elements", "pixels", gp.grid(16)], ids=without_address)
def test_a_photo_s_page_is_below_one_and_a_half_megabytes(side, features):
    page = report.html(large(side, features))
    assert len(page.encode()) < 1_500_000
    assert ("To keep this page small" in page) == (side > 224)


@pytest.mark.parametrize("side", [224, 512])
def test_a_comparison_s_page_is_below_one_and_a_half_megabytes(side):
    page = report.html(large(side, "elements", comparison=True))
    assert len(page.encode()) < 1_500_000
    assert "The same share of the photo by each method" in page


def test_a_large_picture_of_large_features_is_drawn_from_every_pixel():
    a = gp.explain(lambda x: x.mean((1, 2, 3)).unsqueeze(1), torch.zeros(3, 512, 512),
                   method="random", features=gp.grid(16))  # fmt: skip
    ramp = torch.arange(512).div(2).byte().expand(3, 512, 512).permute(1, 2, 0)
    page = report.html(a.with_notes(ABOUT, picture=ramp.contiguous()))
    assert len(page.encode()) < 200_000
    assert "To keep this page small" not in page


def test_squares_of_pixels_are_averaged_also_at_the_edges():
    picture = np.arange(15, dtype=np.uint8).reshape(3, 5, 1).repeat(3, 2)
    small = reduced(picture, 2)[..., 0]
    assert small.tolist() == [[3, 5, 6], [10, 12, 14]]
    assert np.array_equal(reduced(picture, 1), picture)
    assert reduced(picture, 9).shape == (1, 1, 3)


def test_stops_of_the_presets_are_counted_as_curves_count():
    def counted(ranks, total):
        return [count for _, count in explore.slider_stops(ranks.reshape(3, 1, 502), total, total)]

    counts = counted(np.arange(1506), 1506)
    assert 15 in counts
    assert 75 in counts
    assert 151 in counts  # 150.6, to the nearest.
    pairs = counted(np.arange(753).repeat(2), 753)
    assert all(count % 2 == 0 for count in pairs)
    assert 150 in pairs  # 75 whole pairs fit into 150.6.


def test_tinted_pixels_are_explained_where_single_colours_are_taken():
    assert "looks tinted" in report.html(photo())
    assert "looks tinted" not in report.html(photo(features=gp.grid(2)))


def test_slider_stops_run_from_nothing_to_everything_and_each_adds_something():
    ranks = np.random.default_rng(0).permutation(5000).reshape(1, 50, 100)
    stops = explore.slider_stops(ranks, 5000, 1234)
    assert stops[0] == [0, 0]
    assert stops[-1] == [5000, 5000]
    assert [1234, 1234] in stops  # Where the selection ended.
    assert all(a[1] < b[1] for a, b in pairwise(stops))
    assert [s for s in stops if s[1] in (500, 2500)] == [[500, 500], [2500, 2500]]  # Presets.
    assert len(stops) <= 127


def test_ranks_on_the_page_are_the_result_s_own():
    a = photo()
    data = explore.explorer_data(a, InputNotes.of(a), Picture.of(a))
    raw = np.frombuffer(zlib.decompress(base64.b64decode(data["ranks"])), np.uint8)
    planes = raw.reshape(-1, a.features.n).astype(int)
    found = 256 ** np.arange(len(planes)) @ planes
    assert np.array_equal(found, Picture.of(a).ranks.reshape(-1))


# Safety.


def test_hostile_text_stays_text_everywhere():
    page = report.html(hostile())
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == 2  # The data and our own code.
    assert page.count("</script>") == 2
    assert page.count("</style>") == 1
    assert "\u202e" not in page
    assert "window.hacked=1" in visible(page)  # Told, as text.


def test_the_policy_allows_this_page_s_own_code_by_hash_and_nothing_else():
    page = report.html(photo())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r'\sstyle="', page)  # Inline styles would need unsafe-inline.
    assert not re.search(r"\son\w+=", re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S))
    assert "http://" not in page
    assert "https://" not in page


def test_odd_notes_are_refused_and_no_page_is_written(tmp_path):
    with pytest.raises(gp.InvalidInput, match=r"^Expected"):
        report.write(photo(about={"probability": "high"}), tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(gp.InvalidType, match=r"Try gp\.load"):
        report.html("a.gpig")


def test_a_missing_jinja2_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    environment.cache_clear()
    with pytest.raises(gp.MissingPackage, match=r"jinja2.*greedypig\[cli\]"):
        report.html(photo())


# Parts.


def test_escaping_leaves_letters_and_removes_disguise():
    def escape(text):
        return environment().from_string("{{ text }}").render(text=text)

    assert html.unescape(escape("çup & <b>\"'")) == "çup & <b>\"'"
    assert not set(escape("çup & <b>\"'")) & set("<>\"'")
    assert escape("a\u202eb\x00") == "a�b�"
    assert escape("می\u200cخواهم 50\u00a0%") == "می\u200cخواهم 50\u00a0%"


def test_pictures_are_lossless():
    image = pixels(5, 7).numpy()
    raw = base64.b64decode(png(image).split(",")[1])
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", raw[16:24]) == (7, 5)
    start = raw.index(b"IDAT")
    length = struct.unpack(">I", raw[start - 4 : start])[0]
    rows = np.frombuffer(zlib.decompress(raw[start + 4 : start + 4 + length]), np.uint8)
    assert np.array_equal(rows.reshape(5, 22)[:, 1:].reshape(5, 7, 3), image)


@pytest.mark.parametrize(
    "ends", [(0, 1), (0, 0.5), (-3, 4), (1e-9, 2e-9), (5, 5), (0, 0), (-7, -2), (0, 8.7), (-1e6, 3)]
)
def test_scales_hold_the_data_between_round_ticks(ends):
    low, high, ticks = scale(*ends)
    assert low <= ends[0] + 1e-12
    assert high >= ends[1] - 1e-12
    assert low < high
    assert 2 <= len(ticks) <= 8
    assert ticks[0] == pytest.approx(low)
    assert ticks[-1] == pytest.approx(high)


# Many results.


def test_the_index_links_every_page_with_pictures_and_numbers(tmp_path):
    results = {"a/photo 1.html": photo(), "row.html": ranked((6,))}
    report.write_index(results, tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert 'href="./a/photo%201.html"' in page
    assert page.count("<img") == 2
    assert "espresso" in visible(page)
    assert "1 of 2, marked ▲" in visible(page)
    assert page.count("<script") == 2  # Its data and our own code.


def test_index_links_are_paths_whatever_they_look_like():
    page = report.index_html({"javascript:alert(1)": hostile()})
    assert 'href="./javascript%3Aalert%281%29"' in page
    assert page.count("<script") == 2


def test_an_index_of_nothing_is_refused():
    with pytest.raises(gp.InvalidInput, match="at least one"):
        report.index_html({})
    with pytest.raises(gp.InvalidType, match="by the path"):
        report.index_html([photo()])
    with pytest.raises(gp.InvalidType, match="an Attribution"):
        report.index_html({"a.html": 3})


def test_an_index_shows_second_opinions_where_there_are_any():
    without = photo(about={"curves": {}})
    page = report.index_html({"a.html": photo(), "b.html": without})
    assert page.count("second opinion, AUC") == 1
    assert "0.250</td>" in page  # Half of 0.5, straight from nothing to everything.
    assert "second opinion, AUC" not in report.index_html({"b.html": without})
