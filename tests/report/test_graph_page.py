"""Pages of graphs: from the result alone, sealed, escaped, and alive in a browser."""

import re

import pytest
import torch
from test_browser import Visit, at, browser  # noqa: F401

import greedypig as gp
from graph_seen import compressed, crowd, explained
from greedypig import report
from greedypig.report.chart import LEFT, RIGHT, WIDTH


@pytest.mark.parametrize("make", [compressed, explained, crowd])
def test_the_page_is_the_same_from_the_file(make, tmp_path):
    a = make()
    a.save(tmp_path / "a.gpig")
    assert report.html(gp.load(tmp_path / "a.gpig")) == report.html(a)


def test_a_compression_s_page_tells_its_numbers():
    page = report.html(compressed())
    assert "What 50\u00a0% of the edges keep" in page
    assert "<b>3</b> of 6 edges" in page
    assert "&lt;toy&gt;.npz" in page
    assert "<toy>" not in page
    assert "This graph is generated" in page
    assert page.count('class="line c0 d0"') >= 3
    assert "edges selected" in page
    assert "Accuracy on the test nodes" not in report.html(compressed(accuracy=False))


def test_the_first_edges_are_named_by_their_nodes():
    a = compressed()
    ends = torch.arange(2 * a.features.count).reshape(2, -1)
    edge = int(a.order[0])
    page = report.html(a.with_notes(edges=ends))
    assert f"<td>{edge} – {edge + a.features.count}</td>" in page


def test_pages_warn_where_a_part_outdoes_the_whole():
    page = report.html(compressed())
    assert "of the edges give a higher G (−0.400) than all edges (−0.500)" in page
    half = (LEFT + WIDTH - RIGHT) / 2
    assert page.count(f'<line class="kept" x1="{half:g}') == 3  # The kept half, in every chart.
    assert "With 50 % of the edges" in page.replace("\u00a0", " ")
    assert 'class="warn"' not in report.html(explained())
    page = report.html(explained().with_notes({"probability": 0.45}))
    assert "The first 2 edges give a higher probability (0.600) than all edges (0.450)" in page
    page = report.html(explained().with_notes({"probability": 0.55, "alone": 0.7}))
    assert "The node alone gives a higher probability (0.700) than all edges (0.550)" in page
    assert "The first 2 edges give" not in page


def test_a_node_s_page_tells_its_edges_in_order():
    page = report.html(explained())
    assert "Why “biology” for node paper &lt;0&gt;?" in page
    assert "its own class" not in page
    assert "The node’s own class is art &amp; craft." in page
    assert [int(n) for n in re.findall(r'class="rank" data-edge="(\d+)"', page)] == [1, 2, 3, 4]
    assert "paper <" not in page
    assert "25.0" in page  # Random growth's share.
    assert "maximise the log-likelihood" in page
    assert [n in page for n in ("−0.700", "−0.200", "−0.900")] == [
        True
    ] * 3  # G: last, all, random.
    assert "no edge within" in report.html(explained(edges=()))


def test_the_slider_grows_the_subgraph(browser, tmp_path):  # noqa: F811
    report.write(crowd(), tmp_path / "a.html")
    visit = Visit(browser, tmp_path / "a.html")
    page = visit.page
    assert page.locator(".bond:not(.later)").count() == 32
    assert "32 of 32 edges" in visit.text("#grown")
    page.evaluate("""() => { const s = document.getElementById('grow'); s.value = 6;
                             s.dispatchEvent(new Event('input')); }""")
    assert page.locator(".bond:not(.later)").count() == 6
    assert page.locator(".spot:not(.later)").count() == 7
    assert "6 of 32 edges: theory 0.646" in visit.text("#grown")
    assert visit.said == []
    assert len(visit.asked) == 1  # The page itself.


def test_pointing_at_a_chart_reads_all_charts(browser, tmp_path):  # noqa: F811
    report.write(compressed(), tmp_path / "a.html")
    visit = Visit(browser, tmp_path / "a.html", viewport={"width": 1200, "height": 900})
    visit.page.hover("#chart-agreement")
    said = visit.page.locator(".read").all_inner_texts()
    assert len(said) == 3
    assert all("Greedy PIG " in text for text in said)
    assert visit.said == []


def test_clicking_a_chart_moves_the_slider_of_the_edges(browser, tmp_path):  # noqa: F811
    report.write(crowd(), tmp_path / "a.html")
    visit = Visit(browser, tmp_path / "a.html", viewport={"width": 1200, "height": 900})
    visit.page.mouse.move(*at(visit, "chart-node", 0.25))
    visit.page.mouse.down()
    visit.page.mouse.up()
    assert visit.page.input_value("#grow") == "8"
    assert visit.page.locator(".bond:not(.later)").count() == 8
    assert "At 8 edges: theory" in visit.text("figure:has(#chart-node) .read")
    assert "8 of 32 edges" in visit.page.get_attribute("#grow", "aria-valuetext")


def test_a_compression_is_read_by_slider_and_keys(browser, tmp_path):  # noqa: F811
    report.write(compressed(), tmp_path / "a.html")
    visit = Visit(browser, tmp_path / "a.html", viewport={"width": 1200, "height": 900})
    reading = "figure:has(#chart-agreement) .read"
    assert "At 50 %" in visit.text(reading)
    visit.page.focus("#share")
    visit.page.keyboard.press("End")
    assert "At 100 %" in visit.text(reading)
    visit.page.mouse.move(*at(visit, "chart-agreement", 0.25))
    visit.page.mouse.down()
    visit.page.mouse.up()
    assert float(visit.page.input_value("#share")) == pytest.approx(25, abs=0.5)
    assert visit.said == []


def test_names_in_the_drawing_do_not_collide(browser, tmp_path):  # noqa: F811
    report.write(crowd(), tmp_path / "a.html")
    visit = Visit(browser, tmp_path / "a.html", viewport={"width": 1200, "height": 900})
    hits = visit.page.evaluate("""() => {
      const boxes = [...document.querySelectorAll('.who')].map((t) => t.getBoundingClientRect());
      let hits = 0;
      boxes.forEach((a, i) => boxes.slice(0, i).forEach((b) => {
        if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) hits++;
      }));
      return [boxes.length, hits];
    }""")
    assert hits == [31, 0]


def test_a_phone_needs_no_sideways_scrolling(browser, tmp_path):  # noqa: F811
    for name, a in (("a", compressed()), ("b", crowd())):
        report.write(a, tmp_path / f"{name}.html")
        size = {"width": 360, "height": 700}
        visit = Visit(browser, tmp_path / f"{name}.html", viewport=size)
        assert visit.page.evaluate("() => document.documentElement.scrollWidth") <= 360
