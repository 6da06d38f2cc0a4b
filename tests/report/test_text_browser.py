"""The page of a text in a real browser: slider, methods, pointing, keys, widths and colours."""

import re

import pytest
from test_browser import Visit, browser, visit  # noqa: F401 - Fixtures.
from test_text_page import HOSTILE

import greedypig as gp
from greedypig.results.text_notes import compared
from text_seen import SENTENCES, answered, text_result

pytestmark = pytest.mark.slow


def slide(v: Visit, k: int) -> None:
    """Move the slider to its kth place, which for few parts keeps k of them."""
    v.page.eval_on_selector(
        "#parts-k", "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", k
    )


def kept(v: Visit) -> dict[int, int]:
    """Place → feature of the parts that are shown as kept."""
    return dict(
        v.page.eval_on_selector_all(
            ".part.on", "parts => parts.map(p => [Number(p.dataset.place), Number(p.dataset.part)])"
        )
    )


def test_the_slider_marks_the_first_k_and_tells_what_was_measured(visit):  # noqa: F811
    a = text_result()
    v = visit(a)
    order = a.order.tolist()
    for k in (2, 0, 1, 4, 3):
        slide(v, k)
        assert kept(v) == {i + 1: order[i] for i in range(k)}
        told = v.text("#parts-told")
        assert f"{k} of 4 sentences" in told
        assert f"only these {a.about.only[k]:.3f}" in told
        assert f"the rest deleted {a.about.deleted[k]:.3f}" in told
        assert f"without these {a.about.without[k]:.3f}" in told
        assert ("which is enough" in told) == (k == 2)
        assert v.page.get_attribute("#parts-k", "aria-valuetext") in told
        assert f"At {k} sentences:" in v.text("figure:has(#chart-text) .read")
    assert v.said == []
    assert len(v.asked) == 1


def test_between_measured_counts_the_value_is_about_it(visit):  # noqa: F811
    v = visit(text_result(counts=(0, 2, 4)))
    slide(v, 1)
    assert "only these about 0.500" in v.text("#parts-told")


def test_of_many_words_the_slider_has_all_small_numbers_and_what_was_measured(visit):  # noqa: F811
    n = 3000
    gains = (0.5, 0.2, *(0.0,) * (n - 2))
    counts = (0, 1, 5, 333, n)
    v = visit(text_result(["w"] * n, gains, unit="words", counts=counts, enough=1, twins=[], k=9))
    stops = v.page.evaluate("JSON.parse(document.getElementById('data').textContent).text.stops")
    assert stops[:51] == list(range(51))
    assert set(counts) <= set(stops)
    assert len(stops) < 120
    assert stops[int(v.page.input_value("#parts-k"))] == 9  # As many as were asked for.
    slide(v, stops.index(333))
    assert len(kept(v)) == 333
    assert "333 of 3,000 words" in v.text("#parts-told")


def test_an_answer_is_told_by_token(visit):  # noqa: F811
    v = visit(answered(gains=(-0.1, 2.0, 1.5, -0.2), only=[-8.0, -4.0, -2.0, -2.0, -2.0]))
    assert "only these −2.000 (0.607 a token)" in v.text("#parts-told")


def test_pointing_and_arrow_keys_tell_the_round_and_the_score(visit):  # noqa: F811
    v = visit(text_result())
    v.page.hover("[data-part='2']")
    told = v.text("#parts-place")
    assert "“Paint it red!”: number 2 of 4 by greedy-pig; like number 1; round 2, score 0.3" in told
    v.page.focus("#passage")
    v.page.keyboard.press("ArrowLeft")
    assert "The house is red." in v.text("#parts-place")
    v.page.keyboard.press("ArrowRight")
    v.page.keyboard.press("ArrowRight")
    assert f"“{SENTENCES[0]}”: number 3" in v.text("#parts-place")


def test_another_method_shows_its_own_order(visit):  # noqa: F811
    ours, other = text_result(), text_result(gains=(0.5, 0.1, 0.05, 0.4))
    a = ours.with_notes({"methods": compared({"greedy-pig": ours, "other": other})})
    v = visit(a)
    assert set(kept(v).values()) == {1, 2}
    v.page.select_option("#parts-method", "other")
    assert kept(v) == {1: 0, 2: 3}
    assert "only these 1.000" in v.text("#parts-told")
    v.page.hover("[data-part='3']")
    assert "number 2 of 4 by other" in v.text("#parts-place")


@pytest.mark.parametrize("width", [360, 1300, 2560])
def test_nothing_reaches_over_the_edge(visit, width):  # noqa: F811
    ours = answered([*HOSTILE, "w" * 400], (0.5, 0.4, 0.3, 0.2, 0.1, 0.05), before="<|im_start|>")
    a = ours.with_notes({"methods": compared({"greedy-pig": ours, "ig": ours})})
    v = visit(a, viewport={"width": width, "height": 800})
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width
    assert v.said == []


def luminance(colour: str) -> float:
    numbers = [float(n) for n in re.findall(r"[\d.]+", colour)][:3]
    if colour.startswith("rgb"):
        numbers = [n / 255 for n in numbers]
    red, green, blue = (
        n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("width", "flows"), [(360, True), (1300, False)])
def test_only_wide_screens_scroll_a_long_text_in_its_box(visit, width, flows):  # noqa: F811
    n = 900
    a = text_result(["word"] * n, (0.5,) + (0.0,) * (n - 1), unit="words", counts=(0, 1, n),
                    enough=1, twins=[], k=1)  # fmt: skip
    v = visit(a, viewport={"width": width, "height": 800})
    inside, box = v.page.evaluate(
        "[document.getElementById('passage').scrollHeight, "
        "document.getElementById('passage').clientHeight]"
    )
    assert (inside <= box) == flows


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_parts_can_be_read_on_their_colours(visit, scheme):  # noqa: F811
    gains = (0.5, 0.4, 0.3, 0.2, 0.1, -0.2)
    v = visit(text_result([f"part {i}" for i in range(6)], gains), color_scheme=scheme)
    slide(v, 6)
    pairs = v.page.eval_on_selector_all(
        ".part.on",
        "parts => parts.map(p => [getComputedStyle(p).color, getComputedStyle(p).backgroundColor])",
    )
    assert len({back for _, back in pairs}) >= 4
    for front, back in pairs:
        light, dark = sorted((luminance(front), luminance(back)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_thousands_of_words_move_within_a_moment(visit):  # noqa: F811
    n = 6000
    gains = tuple(0.9 * 0.5**i for i in range(60)) + (0.0,) * (n - 60)
    a = text_result([f"word{i}" for i in range(n)], gains, unit="words", counts=(0, 40, n),
                    method=gp.GreedyPIG(rounds=4), enough=40, twins=[])  # fmt: skip
    v = visit(a)
    milliseconds = v.page.evaluate(
        "() => { const s = document.getElementById('parts-k'), t = performance.now();"
        "s.value = Number(s.max) - 5; s.dispatchEvent(new Event('input'));"
        "return performance.now() - t; }"
    )
    assert 3000 < len(kept(v)) < 6000
    assert milliseconds < 2000


def test_without_scripts_the_parts_are_still_there(visit):  # noqa: F811
    v = visit(text_result(), java_script_enabled=False)
    assert v.page.locator(".part.on").count() == 2


def test_on_paper_the_text_is_whole(visit):  # noqa: F811
    v = visit(text_result())
    v.page.emulate_media(media="print")
    assert not v.page.is_visible("#parts-k")
    assert v.page.is_visible("#passage")
