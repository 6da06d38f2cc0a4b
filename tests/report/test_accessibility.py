"""axe, the accessibility checker, has nothing to say of any kind of page, in light and dark, on a
phone and on a desk."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from test_browser import browser, visit  # noqa: F401
from test_columns_page import selected
from test_notebook import shown

from graph_seen import compressed, explained
from greedypig import report
from greedypig.results.picture import compared_pictures
from seen import COMPARISON, photo, ranked

pytestmark = pytest.mark.slow


def comparison():
    a, b = photo((3, 8, 9)), photo((3, 8, 9), seed=1)
    line = {"fractions": [0, 0.2, 1], "values": [0, 0.5, 0.75]}
    rows = {"one": {"curve": line, "sic_auc": 0.5}, "other": {"curve": line, "sic_auc": 0.4}}
    return report.html(a.with_notes({"comparison": rows}, **compared_pictures([a, b])))


def index():
    results = {"a.html": photo(), "b.html": ranked((6,))}
    methods = photo(about={"comparison": COMPARISON})
    return report.index_html(results, failed=[("c.jpg", "No picture.")], comparison=methods)


def cards():
    parts = "".join(f"<section>{thing._repr_html_()}</section>" for thing in shown().values())
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Cards</title>'
    return f"{head}<body><main><h1>A notebook</h1>{parts}</main></body></html>"


PAGES = {
    "photo": lambda: report.html(photo((3, 8, 9), about={"comparison": COMPARISON})),
    "row": lambda: report.html(ranked((6,), method="greedy-pig", per_round=1)),
    "comparison": comparison,
    "columns": lambda: report.html(selected()),
    "compression": lambda: report.html(compressed()),
    "node": lambda: report.html(explained()),
    "index": index,
    "notebook": cards,
}


@pytest.fixture(scope="module")
def axe() -> str:
    found = find_spec("axe_playwright_python")
    if found is None:
        pytest.skip("needs the package axe-playwright-python, which brings axe-core")
    return (Path(str(found.origin)).parent / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("width", [360, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing(visit, axe, kind, scheme, width):  # noqa: F811
    v = visit(PAGES[kind](), color_scheme=scheme, viewport={"width": width, "height": 900})
    v.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    v.page.evaluate(axe)
    for tab in v.page.query_selector_all("[role=tab]") or [None]:
        if tab is not None:
            tab.click()
        findings = v.page.evaluate("axe.run().then((result) => result.violations)")
        assert [(f["id"], f["impact"], f["nodes"][0]["html"]) for f in findings] == []
