"""What a notebook shows of results: self-contained, escaped, in light and in dark."""

import re
import sys
from html.parser import HTMLParser

import pytest
from test_browser import FLAGS, executable

import greedypig as gp
from greedypig import report
from greedypig.report import notebook
from greedypig.results.kinds import notes_of
from nets import cnn, mlp, picture, row
from seen import photo, ranked, unmeasured

pytest.importorskip("jinja2")
ONE = gp.GreedyPIG(per_round=1, steps=2)
TAGS = """div style p table thead tbody tr th td figure figcaption img span svg line polyline text
circle br"""
EVIL = "<script>alert(1)</script>\"'&\u202e"


class Seen(HTMLParser):
    """Tags with their attributes, and texts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.said, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)


def evil_rows():
    model = mlp()
    model.classes = [EVIL] * 4
    names = [f"{EVIL}{i}" for i in range(6)]
    return list(gp.explain_many(model, [row(s) for s in range(3)], names=names, method=ONE))


def shown():
    rows, compared = evil_rows(), {"comparison": {EVIL: {"sic_auc": 0.5, "gradients": 9}}}
    noted = {"source": EVIL, "class": EVIL, "warnings": [EVIL]}
    return {
        "row": rows[0],
        "photo": photo(about=noted | compared),
        "own picture": gp.explain(cnn(), picture(), method=ONE),
        "groups": ranked((3, 8, 8), features=gp.grid(4)),
        "no values": unmeasured(ranked((6,))),
        "no round": gp.explain(mlp(), row(), target=0, stop=gp.Stop(value=1e-9)),
        "rows": gp.summary(rows),
        "photos": gp.summary([photo(about=noted)] * 3),
        "mixed": gp.summary([rows[0], photo()]),
        "none": gp.summary([]),
        "methods": gp.comparison({EVIL: rows[0], "ig": rows[1]}),
        "photo methods": gp.comparison({EVIL: photo(about=noted), "ig": photo()}),
    }


@pytest.mark.parametrize("name", shown())
def test_a_notebook_shows_whole_html_without_scripts_links_or_unescaped_texts(name):
    html = shown()[name]._repr_html_()
    seen = Seen(html)
    assert seen.open == []
    assert {tag for tag, _ in seen.tags} <= set(TAGS.split())
    for _, attributes in seen.tags:
        assert not [key for key in attributes if key.startswith("on") or key == "href"]
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
    assert "alert(1)</script>" not in html
    assert "\u202e" not in html
    assert "http" not in html
    assert "nan" not in re.sub(r"base64,[^\"]*", "", html)


def test_the_class_the_first_features_with_values_and_the_cost_are_told():
    a = gp.explain(mlp(), row(), names=["age", *"bcdef"], method=ONE)
    said = " ".join(Seen(a._repr_html_()).said)
    assert f"output {a.settings['target']}" in said
    assert f"age = {float(row()[0]):.4g}".replace("-", "−") in said
    assert "greedy-pig · 6 rounds · 12 gradients" in said
    assert notes_of(a).answer() in said


def test_a_notebook_says_the_sentence_and_the_warnings_of_the_page():
    lost = {"softmax": {"fractions": [0, 0.1, 0.5, 1], "values": [0, 0.8, 0.1, 0.75]}}
    about = {"curves": lost, "kept": {}, "warnings": ["Something is odd."]}
    for a in (photo(), photo(about=about)):
        said = " ".join(Seen(a._repr_html_()).said)
        cautions = [line for line, _ in notes_of(a).cautions()]
        assert cautions
        for line in (notes_of(a).answer(), *cautions):
            assert line in said
            assert line.replace(" %", "\u00a0%") in report.html(a) or line in report.html(a)
    assert "▲ This explanation does not hold: 10 % of the features give 0.800" in said
    assert "▲ Something is odd." in said


def test_pictures_are_shown_with_their_best_features():
    seen = Seen(photo()._repr_html_())
    assert [tag for tag, _ in seen.tags].count("img") == 2
    said = " ".join(seen.said)
    assert "espresso 0.750" in said
    assert "probability over the share of the features" in said


def test_a_comparison_tells_each_method_s_numbers():
    said = " ".join(Seen(gp.comparison({"mine": photo(), "ig": photo()})._repr_html_()).said)
    assert "mine: best 10 %" in said
    assert "SIC AUC ↑" in said
    assert "0.688" in said or "0.687" in said


def test_a_summary_tells_what_it_leaves_out():
    summary = gp.summary(gp.explain_many(mlp(12), [row(s, 12) for s in range(30)], method=ONE))
    said = " ".join(Seen(summary._repr_html_()).said)
    assert "30 results" in said
    assert "4 more features" in said
    assert "22 more · 720 gradients" in said
    assert len(summary._repr_html_()) < 40_000


def test_without_jinja_the_plain_text_is_left(monkeypatch):
    from greedypig.report.render import environment

    a = ranked((6,))
    environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert a._repr_html_() is None
    assert gp.summary([a])._repr_html_() is None
    assert gp.comparison({"a": a})._repr_html_() is None
    assert repr(a).startswith("Attribution(ig")


def test_show_opens_the_page_where_there_is_a_screen_and_says_its_path_elsewhere(
    monkeypatch, capsys, tmp_path
):
    opened = []
    monkeypatch.setattr(notebook.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(notebook.webbrowser, "open", lambda uri: opened.append(uri) or True)
    monkeypatch.setattr(notebook.sys, "platform", "linux")
    for variable in ("CI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    path = photo(about={"source": "a/b <c>.jpg"}).show()
    assert path == str(tmp_path / "b-c-.html")
    assert capsys.readouterr().out == f"{path}\n"
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    photo().show()
    assert opened == [(tmp_path / "photo.html").as_uri()]
    monkeypatch.setenv("CI", "1")
    photo().show()
    assert len(opened) == 1


def test_to_html_writes_the_page(tmp_path):
    photo().to_html(tmp_path / "photo.html")
    assert (tmp_path / "photo.html").read_text() == gp.report.html(photo())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 820])
def test_cards_are_readable_in_light_and_dark_and_fit_their_cell(scheme, width, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    cards = "".join(thing._repr_html_() for thing in shown().values())
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8><body>{cards}")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=executable(), args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto((tmp_path / "notebook.html").as_uri())
        levels = page.evaluate(
            """() => [...document.querySelectorAll('.greedypig')].map(card => {
                const level = colour =>
                    colour.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + +b, 0);
                const style = getComputedStyle(card);
                return [level(style.backgroundColor), level(style.color)];
            })"""
        )
        assert len(levels) == len(shown())
        for paper, ink in levels:
            assert (paper > ink) == (scheme == "light")
            assert abs(paper - ink) > 400
        # A notebook's own theme comes before the system's.
        page.evaluate("document.body.dataset.jpThemeLight = 'true'")
        colour = "getComputedStyle(document.querySelector('.greedypig')).backgroundColor"
        assert page.evaluate(colour) == "rgb(255, 255, 255)"
        overflow = page.evaluate(
            """() => [...document.querySelectorAll('.greedypig')].filter(
                card => card.scrollWidth > card.clientWidth).length"""
        )
        assert overflow == 0
        browser.close()
