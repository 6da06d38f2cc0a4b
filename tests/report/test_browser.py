"""The page in a real browser: it draws what the result says, by hand and by keyboard, in light
and dark, on a phone, and lets nothing in or out."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from test_page import hostile

import greedypig as gp
from greedypig import report
from greedypig.report.render import reduced
from greedypig.results.input_notes import InputNotes
from greedypig.results.picture import (
    SHARES,
    Picture,
    compared_pictures,
    features_within,
    order_ticks,
)
from names import without_address
from seen import COMPARISON, photo, pixels, ranked

pytestmark = pytest.mark.slow

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]  # fmt: skip


def executable() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = os.environ.get("GREEDYPIG_CHROMIUM") or next(
        filter(None, map(shutil.which, names)), None
    )
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium, or set GREEDYPIG_CHROMIUM")
    return found


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    path = executable()
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


class Visit:
    """A page opened from a file, with what it said and asked for."""

    def __init__(self, browser, path, **options):
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("[aria-busy]", state="detached")

    def _hear(self, message) -> None:
        if "willReadFrequently" not in message.text:  # Said of this test's own reading.
            self.said.append(message.text)

    def canvas(self, name: str = "canvas") -> np.ndarray:
        """(h, w, 3) as drawn."""
        flat, height, width = self.page.evaluate(
            "(id) => { const c = document.getElementById(id);"
            "return [[...c.getContext('2d').getImageData(0, 0, c.width, c.height).data],"
            "c.height, c.width]; }",
            name,
        )
        return np.array(flat, np.uint8).reshape(height, width, 4)[..., :3]

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def show(self, view: str) -> None:
        self.page.click(f"#tab-{view}")

    def value(self) -> int:
        return int(self.page.input_value("#k"))

    def slide(self, stop: int) -> None:
        self.page.eval_on_selector(
            "#k", "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", stop
        )


@pytest.fixture
def visit(browser, tmp_path):
    opened = []

    def open_(a, **options) -> Visit:
        path = tmp_path / f"page{len(opened)}.html"
        path.write_text(a if isinstance(a, str) else report.html(a), "utf-8")
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield open_
    for one in opened:
        one.context.close()


def stops(v: Visit) -> list[list[int]]:
    return v.page.evaluate("JSON.parse(document.getElementById('data').textContent).explore.stops")


@pytest.mark.parametrize(
    "features", ["elements", "pixels", gp.grid(3), gp.windows(3)], ids=without_address
)
def test_the_slider_draws_exactly_what_is_kept(visit, features):
    a = photo((3, 8, 9), features=features, method="greedy-pig", rounds=5)
    v, picture = visit(a), Picture.of(a)
    v.show("kept")
    places = stops(v)
    for stop in (0, 1, len(places) // 2, len(places) - 1):
        v.slide(stop)
        assert np.array_equal(v.canvas(), picture.kept(places[stop][0]))
        assert f"{places[stop][1]} of 216 values" in v.text("#told")
    assert np.array_equal(v.canvas(), pixels(8, 9).numpy())  # Everything is the photo.
    assert v.said == []


@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 4, 5)])
def test_other_numbers_of_channels_are_drawn_as_kept_too(visit, shape):
    a = ranked(shape).with_notes({"kind": "image"}, picture=pixels(4, 5))
    v = visit(a)
    v.show("kept")
    for stop, (k, _) in enumerate(stops(v)):
        v.slide(stop)
        assert np.abs(v.canvas().astype(int) - Picture.of(a).kept(k)).max() <= 1


def test_a_large_picture_is_drawn_from_some_of_its_pixels(visit, monkeypatch):
    a = photo((3, 9, 10))
    full = len(report.explore.explorer_data(a, InputNotes.of(a), Picture.of(a))["ranks"])
    monkeypatch.setattr(report.explore, "MOST", 2 * full)
    v, picture = visit(a), Picture.of(a)
    assert "drawn at 5 × 5 pixels, from one of every 2 × 2" in v.text("#view")
    v.show("photo")
    assert np.array_equal(v.canvas(), reduced(picture.pixels, 2))
    v.show("kept")
    v.slide(len(stops(v)) // 2)
    k, kept = stops(v)[v.value()]
    part = replace(picture, pixels=reduced(picture.pixels, 2), baseline=picture.baseline[::2, ::2],
                   ranks=picture.ranks[:, ::2, ::2])  # fmt: skip
    assert np.array_equal(v.canvas(), part.kept(k))
    assert f"{kept} of 270 values" in v.text("#told")  # Counted over the whole picture.
    box = v.page.locator("#canvas").bounding_box()
    v.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    rank = picture.first[4, 2] + 1
    assert picture.ranks[:, 4, 2].min() + 1 == rank
    assert f"Row 5, column 3: ranked as number {rank} of 270" in v.text("#place")


def test_the_probability_is_read_off_the_curve_at_the_slider(visit):
    v = visit(photo((3, 8, 8)))
    v.page.click("text='50 %'")
    share = stops(v)[v.value()][1] / 192
    assert share == 0.5
    chart = "figure:has(#curve-probability)"
    assert "espresso 1.000 (whole photo 0.750)" in v.text("#told")  # Measured.
    assert "efficientnet-lite0 itself 1.000" in v.text(chart)
    v.slide(v.value() + 1)
    share = stops(v)[v.value()][1] / 192
    expected = np.interp(share, [0.5, 1], [1.0, 0.75])
    assert f"espresso {expected:.3f} (whole photo 0.750)" in v.text("#told")
    assert f"efficientnet-lite0 itself {expected:.3f}" in v.text(chart)
    v.page.click(".preset:text-is('all')")
    assert "espresso 0.750 (whole photo 0.750)" in v.text("#told")


def test_presets_take_no_more_than_they_say_and_tell_what_was_measured_there(visit):
    line = {"softmax": {"fractions": [0, 0.05, 0.4, 1], "values": [0, 0.1, 0.4, 0.75]}}
    about = {"curves": line, "kept": {"0.1": 0.33}, "comparison": COMPARISON}
    groups = torch.arange(27).repeat_interleave(8).reshape(3, 8, 9)  # 3.7 % of the numbers each.
    v = visit(photo((3, 8, 9), features=groups, about=about))
    v.page.click("text='10 %'")
    assert stops(v)[v.value()] == [2, 16]  # Three groups are nearer to 10 %, and more.
    assert "7.41 %: 16 of 216 values (2 groups). espresso 0.330" in v.text("#told")
    assert "efficientnet-lite0 itself 0.330" in v.text("figure:has(#curve-probability)")
    assert "greedy-pig " in v.text("figure:has(#curve-methods)")  # Its units are its own.


def test_methods_are_read_where_they_were_measured(visit):
    line = {"fractions": [0, 0.09, 0.11, 1], "values": [0, 0.5, 0.6, 0.7]}
    rows = {"greedy-pig": {"curve": line, "kept": {"0.01": 0.011, "0.05": 0.333, "0.1": 0.781}},
            "ig": {"curve": line}}  # fmt: skip
    for options in ({}, {"features": gp.grid(2)}):  # Whole squares take less than they could.
        v = visit(photo((3, 8, 9), about={"comparison": rows}, **options))
        chart = "figure:has(#curve-methods) .read"
        v.page.click("text='10 %'")
        assert v.text(chart) == "At 10 %: greedy-pig 0.781; ig 0.550"
        v.slide(v.value() + 1)
        assert "greedy-pig " in v.text(chart)
        assert "At 10 %:" not in v.text(chart)
    v = visit(photo((3, 8, 9), about={"comparison": rows}))
    v.page.click(".preset:text-is('5 %')")
    assert "At 5 %: greedy-pig 0.333;" in v.text("figure:has(#curve-methods) .read")


def test_windows_that_cover_everything_leave_nothing_to_the_last_score(visit):
    a = photo((3, 8, 9), features=gp.windows(3), method="greedy-pig", rounds=5)
    assert a.selected < a.features.count
    v = visit(a)
    v.page.click(".preset:text-is('all')")
    assert "last score" not in v.text("#told")


def test_a_stopped_run_has_colours_for_what_it_took_and_says_what_ranks_the_rest(visit):
    a = photo((3, 8, 9), features="pixels", method="greedy-pig", k=6, rounds=2)
    v = visit(a)
    v.page.click("#tab-heat")
    assert "no round selected have importance 0" in v.text("#key-note")
    v.page.click("#tab-kept")
    assert not v.page.is_visible("#key-note")
    v.page.click("#tab-order")
    v.page.click(".preset:text-is('all')")
    assert v.text("#ticks").split() == ["1", "2", "6"]
    taken = Picture.of(a).first
    shown = v.canvas()
    assert (shown[taken == 5] == [0x44, 0x01, 0x54]).all()  # The last one taken: the scale's end.
    assert (shown[taken == 0] == [0xFD, 0xE7, 0x25]).all()
    assert (shown[taken >= 6] == 184).all()
    whole = visit(photo((3, 8, 9)))
    whole.page.click("#tab-heat")
    assert not whole.page.is_visible("#key-note")


def test_views_show_importance_overlay_order_and_photo(visit):
    a = photo((3, 8, 9))
    v, picture = visit(a), Picture.of(a)
    v.page.click("#tab-heat")
    heat = v.canvas().astype(int).sum(-1)
    level = picture.importance
    assert heat.flat[level.argmax()] == heat.max()
    # Cividis rises in lightness: brighter is more important, everywhere.
    light = v.canvas() @ np.array([0.2126, 0.7152, 0.0722])
    assert np.corrcoef(light.reshape(-1), level.reshape(-1))[0, 1] > 0.98
    assert "1: ranked first" in v.text("#key")
    v.page.click("#tab-photo")
    assert np.array_equal(v.canvas(), picture.pixels)
    v.page.click("#tab-overlay")
    before = v.canvas()
    v.page.eval_on_selector(
        "#opacity", "e => { e.value = 0; e.dispatchEvent(new Event('input')); }"
    )
    gray = np.round(0.6 * (picture.pixels @ np.array([0.299, 0.587, 0.114])))
    assert np.abs(v.canvas()[..., 0] - gray).max() <= 1
    kept = picture.first < stops(v)[v.value()][0]
    changed = (before != v.canvas()).any(-1)
    assert kept.any()
    assert not changed[~kept].any()  # The map covers the top k alone.
    assert changed[kept].mean() > 0.9
    v.page.click("#tab-order")
    v.slide(3)
    taken = picture.first < stops(v)[3][0]
    assert np.array_equal((v.canvas() == 184).all(-1), ~taken)
    assert v.said == []


def test_the_map_is_dark_where_the_input_is_the_baseline(visit):
    x = torch.rand(3, 8, 9) + 0.1
    x[:, :, 4:] = 0
    a = gp.explain(lambda rows: rows.flatten(1).square().sum(1), x, outputs="values")
    v = visit(a)
    v.page.click("#tab-heat")
    light = v.canvas() @ np.array([0.2126, 0.7152, 0.0722])
    assert (light[:, 4:] == light.min()).all()
    level = Picture.of(a).importance
    assert np.corrcoef(light.reshape(-1), level.reshape(-1))[0, 1] > 0.98


def test_what_was_ranked_at_once_is_not_told_as_selected(visit):
    words = ["Ranked", "Selected"]
    for method, (told, untold) in {"ig": words, "greedy-pig": words[::-1]}.items():
        v = visit(photo((3, 8, 9), method=method))
        v.page.click("#tab-order")
        assert f"{told} as number … of 216" in v.text("#key-note")
        v.page.hover("#canvas")
        page = v.text("#view") + v.text("#place")
        assert untold.lower() not in page.lower()
        assert ("round" in page) == (method != "ig")


TICKS = """() => {
  const bar = document.getElementById('ramp').getBoundingClientRect();
  return [...document.querySelectorAll('#ticks span')].map((s, i, all) => {
    const b = s.getBoundingClientRect();
    const at = i === 0 ? b.left : i === all.length - 1 ? b.right : (b.left + b.right) / 2;
    return [s.textContent, (at - bar.left) / bar.width, b.left, b.right];
  });
}"""
RAMP = "() => [...document.getElementById('ramp').getContext('2d').getImageData(0, 0, 256, 1).data]"


def ramp(v: Visit) -> np.ndarray:
    """(256, 3): the legend's bar as drawn."""
    return np.array(v.page.evaluate(RAMP)).reshape(256, 4)[:, :3]


@pytest.mark.parametrize("width", [360, 1300])
def test_the_order_s_legend_has_ticks_where_their_colours_are(visit, width):
    a = photo((3, 100, 100))
    v = visit(a, viewport={"width": width, "height": 900})
    v.page.click("#tab-order")
    v.page.click(".preset:text-is('all')")
    found = v.page.evaluate(TICKS)
    picture = Picture.of(a)
    ticks = order_ticks(int(picture.first.max()) + 1)
    assert [text for text, *_ in found] == [f"{tick:,}" for tick in ticks]
    assert len(found) >= 4
    assert "square-root scale" in v.text("#key-note")
    drawn = v.canvas()
    for text, place, *_ in found:
        number = int(text.replace(",", ""))
        near = np.abs(picture.first + 1 - number).argmin()
        there = ramp(v)[min(round(255 * place), 255)]
        assert np.abs(drawn.reshape(-1, 3)[near].astype(int) - there).max() <= 12, text
    assert all(left[3] < right[2] for left, right in pairwise(found))  # They do not touch.


def test_the_overlay_s_legend_is_as_opaque_as_the_map(visit):
    a = photo((3, 8, 9))
    v = visit(a)
    v.page.eval_on_selector(
        "#opacity", "(e) => { e.value = 100; e.dispatchEvent(new Event('input')); }"
    )
    opaque = ramp(v)
    for percent in (65, 20, 100):
        v.page.eval_on_selector(
            "#opacity", "(e, p) => { e.value = p; e.dispatchEvent(new Event('input')); }", percent
        )
        over = percent / 100
        assert np.abs(ramp(v) - (over * opaque + (1 - over) * 0.6 * 128)).max() <= 1


def test_a_place_tells_its_rank_by_pointer_and_by_keys(visit):
    a = photo((3, 8, 9), method="greedy-pig", rounds=3)
    v, picture = visit(a), Picture.of(a)
    box = v.page.locator("#canvas").bounding_box()
    x, y = box["x"] + 2.5 / 9 * box["width"], box["y"] + 1.5 / 8 * box["height"]
    v.page.mouse.move(x, y)
    rank = picture.first[1, 2] + 1
    assert f"Row 2, column 3: first selected as number {rank} of 216" in v.text("#place")
    assert f"red {picture.ranks[0, 1, 2] + 1}" in v.text("#place")
    v.page.focus("#canvas")
    v.page.keyboard.press("ArrowRight")
    v.page.keyboard.press("ArrowDown")
    assert f"Row 3, column 4: first selected as number {picture.first[2, 3] + 1} " in v.text(
        "#place"
    )
    for _ in range(20):
        v.page.keyboard.press("ArrowUp")
    assert "Row 1, column 4" in v.text("#place")


def test_everything_works_from_the_keyboard(visit):
    v = visit(photo((3, 8, 9)))
    v.page.keyboard.press("Tab")
    assert v.page.evaluate("document.activeElement.className") == "skip"
    v.page.keyboard.press("Tab")
    assert v.page.evaluate("document.activeElement.id") == "tab-overlay"
    v.page.keyboard.press("ArrowRight")
    assert v.page.get_attribute("#tab-kept", "aria-selected") == "true"
    assert v.page.get_attribute("#tab-overlay", "tabindex") == "-1"
    v.page.keyboard.press("Home")
    assert v.page.get_attribute("#tab-overlay", "aria-selected") == "true"
    v.page.keyboard.press("ArrowLeft")  # Around the corner.
    assert v.page.get_attribute("#tab-order", "aria-selected") == "true"
    v.page.keyboard.press("Tab")
    assert v.page.evaluate("document.activeElement.id") == "canvas"
    v.page.keyboard.press("Tab")
    assert v.page.evaluate("document.activeElement.id") == "k"
    before, drawn = v.value(), v.canvas()
    v.page.keyboard.press("ArrowRight")
    assert v.value() == before + 1
    assert not np.array_equal(v.canvas(), drawn)
    assert "of 216 values" in v.page.get_attribute("#k", "aria-valuetext")


def test_play_runs_to_everything_and_is_not_offered_to_those_who_want_no_motion(visit):
    v = visit(photo((3, 2, 2)))
    v.show("kept")
    v.slide(0)
    v.page.click("#play")
    for _ in range(100):
        v.page.wait_for_timeout(50)
        if v.text("#play") == "Play":
            break
    assert v.value() == len(stops(v)) - 1
    assert np.array_equal(v.canvas(), pixels(2, 2).numpy())
    still = visit(photo((3, 2, 2)), reduced_motion="reduce")
    assert not still.page.is_visible("#play")


def test_nothing_is_asked_of_any_network(visit):
    for a in (photo(about={"comparison": COMPARISON}), ranked((6,)), hostile()):
        v = visit(a)
        assert len(v.asked) == 1
        assert v.asked[0].startswith("file:")
        assert v.said == []
    v = visit(report.index_html({"a.html": photo()}))
    assert [u.split(":")[0] for u in v.asked if not u.startswith("data:")] == ["file"]
    assert v.page.evaluate("[...document.images].every((i) => i.naturalWidth === 5)")


def test_hostile_text_runs_nothing(visit):
    v = visit(hostile())
    for tab in v.page.query_selector_all("[role=tab]"):
        tab.click()
    v.page.hover("#canvas")
    assert v.page.evaluate("window.hacked") is None
    assert v.page.evaluate("document.images.length") == 0
    assert "window.hacked=1" in v.text("h1")


def test_the_policy_stops_what_would_get_past_the_escaping(visit):
    inside = (
        "<script>window.hacked=1</script><p style='color:red' id='p'>x</p>"
        "<img src='https://example.org/x.png' onerror='window.hacked=2'>"
        "<iframe src='https://example.org/'></iframe>"
    )
    v = visit(report.html(photo()).replace("</main>", inside + "</main>"))
    v.page.evaluate("fetch('https://example.org/').catch(() => 0)")
    assert v.page.evaluate("window.hacked") is None
    assert (
        v.page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    )
    assert len([s for s in v.said if "Content Security Policy" in s]) >= 4


CONTRAST = """() => {
  const lum = (c) => { const v = c.map((x) => { x /= 255;
    return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const rgb = (s) => (s.match(/[\\d.]+/g) || []).map(Number);
  const worst = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('script,style,noscript')) continue;
    let b = e, back = [0, 0, 0, 0];
    while (b) { back = rgb(getComputedStyle(b).backgroundColor);
      if (back.length === 3 || back[3] > 0) break; b = b.parentElement; }
    const style = getComputedStyle(e);
    const fore = rgb(e instanceof SVGElement ? style.fill : style.color);
    const [x, y] = [lum(fore), lum(back)].sort((p, q) => q - p);
    worst.push([(x + 0.05) / (y + 0.05), e.tagName + '.' + e.getAttribute('class') + '#' + e.id]);
  }
  return worst.sort((p, q) => p[0] - q[0]).slice(0, 5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(visit, scheme):
    v = visit(photo(about={"comparison": COMPARISON}), color_scheme=scheme)
    v.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    worst = v.page.evaluate(CONTRAST)
    assert worst[0][0] >= 4.5, worst
    dark = v.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", dark))) < 200) == (scheme == "dark")


@pytest.mark.parametrize("name", ["espresso", "Donaudampfschifffahrtsgesellschaft" * 6])
def test_a_phone_s_width_is_enough(visit, name):
    about = {"class": name, "source": name + ".jpg", "predictions": [[name, 0.75]],
             "comparison": {name: COMPARISON["ig"]}}  # fmt: skip
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    for page in (photo(about=about), ranked((6,), names=[name + str(i) for i in range(6)])):
        v = visit(page, **phone)
        assert v.page.evaluate("document.documentElement.scrollWidth") <= 360
    v = visit(report.index_html({"a.html": photo(about=about)}), **phone)
    assert v.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("width", [360, 390, 1300])
def test_a_chart_s_texts_are_not_cut_off(visit, width):
    about = {"comparison": COMPARISON}
    v = visit(photo(about=about), viewport={"width": width, "height": 740})
    boxes = v.page.eval_on_selector_all(
        "svg.chart text",
        "(all) => all.map((t) => { const b = t.getBBox(); return [t.textContent, b.x, b.x + "
        "b.width, t.ownerSVGElement.viewBox.baseVal.width]; })",
    )
    assert "100\u202f%" in [text for text, *_ in boxes]
    assert [box for box in boxes if box[1] < 0 or box[2] > box[3]] == []


def test_a_tap_tells_a_place(visit):
    v = visit(photo(), has_touch=True, viewport={"width": 360, "height": 740})
    v.page.tap("#canvas")
    assert "ranked as number" in v.text("#place")


def test_print_leaves_the_controls_out(visit):
    v = visit(photo())
    v.page.emulate_media(media="print")
    assert not v.page.is_visible("#k")
    assert not v.page.is_visible("[role=tablist]")
    assert v.page.is_visible("#canvas")
    assert v.page.is_visible("#told")


def test_controls_and_pictures_have_names(visit):
    v = visit(photo(about={"comparison": COMPARISON}))
    unnamed = v.page.evaluate(
        "() => [...document.querySelectorAll('button, input, canvas, svg[role=img], pre')]"
        ".filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') ||"
        " (e.labels && e.labels.length))).map((e) => e.outerHTML)"
    )
    assert unnamed == []
    assert v.page.evaluate("document.querySelectorAll('h1').length") == 1
    assert v.page.evaluate("document.documentElement.lang") == "en"


def test_without_scripts_the_page_still_reads(visit):
    v = visit(photo(), java_script_enabled=False)
    assert "enough for espresso" in v.text(".answer")
    assert "switched off" in " ".join(v.text("noscript").split())
    assert v.page.is_visible("svg#curve-probability")


def at(v: Visit, chart: str, share: float) -> tuple[float, float]:
    """The place on the screen of a share, in the middle of a chart's height."""
    left, _, width, _ = v.page.evaluate(
        "(id) => JSON.parse(document.getElementById('data').textContent).charts"
        ".find((c) => c.id === id).box",
        chart,
    )
    svg = v.page.locator(f"#{chart}")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    return box["x"] + (left + share * width) / 640 * box["width"], box["y"] + box["height"] / 2


def test_pointing_at_a_curve_reads_it_and_clicking_or_dragging_moves_the_slider(visit):
    v = visit(photo((3, 8, 8)))
    before = v.value()
    reading = "figure:has(#curve-probability) .read"
    shown = v.text(reading)
    x, y = at(v, "curve-probability", 0.25)
    v.page.mouse.move(x, y)
    assert "itself 0.5" in v.text(reading)
    assert v.value() == before
    v.page.mouse.move(2, 2)
    assert v.text(reading) == shown  # The slider's share again.
    v.page.mouse.move(x, y)
    v.page.mouse.down()
    assert stops(v)[v.value()][1] == pytest.approx(0.25 * 192, abs=2)
    v.page.mouse.move(*at(v, "curve-probability", 0.75))
    v.page.mouse.up()
    assert stops(v)[v.value()][1] == pytest.approx(0.75 * 192, abs=4)
    share = stops(v)[v.value()][1] / 192
    assert f"espresso {np.interp(share, [0.5, 1], [1.0, 0.75]):.3f}" in v.text("#told")
    assert v.said == []


def test_regions_among_the_best_are_outlined(visit):
    a = photo((3, 12, 12), features=gp.grid(6), method="greedy-pig")
    v, picture = visit(a), Picture.of(a)
    v.page.click(".preset:text-is('50 %')")
    kept = picture.first < stops(v)[v.value()][0]
    assert kept.sum() == 72
    white = (v.canvas() == 255).all(-1)
    ranks = picture.first
    across = np.zeros_like(kept)
    across[:, :-1] |= (ranks[:, 1:] != ranks[:, :-1]) & (kept[:, 1:] | kept[:, :-1])
    across[:-1] |= (ranks[1:] != ranks[:-1]) & (kept[1:] | kept[:-1])
    assert np.array_equal(white, across)


def saved(v: Visit, click: str) -> bytes:
    with v.page.expect_download() as download:
        v.page.click(click)
    return Path(download.value.path()).read_bytes()


NAMES = ["age", "bmi, measured", "bp", "s1"]


def test_tables_are_sorted_filtered_and_saved_as_they_are_shown(visit):
    v = visit(ranked((4,), names=NAMES, method="greedy-pig", per_round=1))
    section = "section:has(h2:text-is('First features'))"
    names = f"{section} tbody td:nth-child(2)"
    ranking = v.page.locator(names).all_inner_texts()
    v.page.click(f"{section} thead button:text-is('feature')")
    assert v.page.locator(names).all_inner_texts() == sorted(NAMES)
    v.page.click(f"{section} thead button:text-is('feature')")
    assert v.page.locator(names).all_inner_texts() == sorted(NAMES, reverse=True)
    assert v.page.get_attribute(f"{section} thead th:nth-child(2)", "aria-sort") == "descending"
    v.page.click(f"{section} thead button:text-is('gain in G')")
    assert v.page.locator(names).all_inner_texts() == ranking[::-1]  # The least gain first.
    v.page.fill(f"{section} input[type=search]", "B")
    assert v.page.locator(f"{section} tbody tr:visible").count() == 2
    assert "2 of 4 rows" in v.text(f"{section} .tools output")
    rows = list(csv.reader(saved(v, f"{section} button:text-is('CSV')").decode().splitlines()))
    assert rows[0] == ["place", "feature", "gain in G", "round"]
    kept = [name for name in ranking[::-1] if "b" in name]
    assert [row[1] for row in rows[1:]] == kept
    records = json.loads(saved(v, f"{section} button:text-is('JSON')"))
    assert [record["feature"] for record in records] == kept
    assert isinstance(records[0]["gain in G"], float)
    v.context.grant_permissions(["clipboard-read", "clipboard-write"])
    v.page.click(f"{section} button:text-is('Copy list')")
    v.page.wait_for_selector(f"{section} button:text-is('Copied')")
    assert ast.literal_eval(v.page.evaluate("navigator.clipboard.readText()")) == kept
    assert v.said == []


def test_pictures_and_charts_are_saved(visit):
    v = visit(photo((3, 8, 9)))
    for click in ("#save", "figure:has(#curve-probability) button:text-is('PNG')"):
        assert saved(v, click).startswith(b"\x89PNG")
    points = saved(v, "figure:has(#curve-probability) button:text-is('CSV')").decode()
    assert points.splitlines()[:2] == ["line,x,y", "efficientnet-lite0 itself,0,0"]
    assert v.said == []


def test_one_slider_moves_the_pictures_of_all_methods(visit):
    a, b = photo((3, 10, 9)), photo((3, 10, 9), seed=1, features=gp.grid(3))
    line = {"fractions": [0, 0.2, 1], "values": [0, 0.5, 0.75]}
    rows = {name: {"curve": line} for name in ("one", "other")}
    v = visit(a.with_notes({"comparison": rows}, **compared_pictures([a, b])))
    for index in (0, 5, 9, 15):
        v.page.eval_on_selector(
            "#compare-k", "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", index
        )
        for i, each in enumerate((a, b)):
            kept = Picture.of(each).kept(features_within(each, SHARES[index]))
            assert np.array_equal(v.canvas(f"method-{i}"), kept)
    assert "100 % of the photo; the whole photo gives 0.750" in v.text("#compare-told")
    v.page.mouse.move(*at(v, "curve-methods", 0.2))
    v.page.mouse.down()
    v.page.mouse.up()
    assert "20 % of the photo" in v.text("#compare-told")
    assert v.text("#method-1-told") == "espresso 0.500"
    v.page.hover("#method-0")
    assert "one within" in v.text("#compare-place")
    v.page.check("#faded")
    assert not np.array_equal(v.canvas("method-1"), kept)
    assert v.said == []
