"""`make docs`: the site holds every public name, needs no network, and opens from disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import greedypig as gp

ROOT = Path(__file__).parents[1]
PARTS = ("metrics", "models", "plots", "report")


def public_names() -> list[str]:
    names = [name for name in gp.__all__ if name not in PARTS]
    return names + [f"{part}.{name}" for part in PARTS for name in getattr(gp, part).__all__]


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(p.read_text() for p in (ROOT / "docs/reference").glob("*.md"))
    listed = re.findall(r"^::: greedypig\.([\w.]+)$", pages, re.MULTILINE)
    assert sorted(listed) == sorted({*listed}), "a name is listed twice"
    further = ("adapters.", "tensors.", "core.facts.", "results.")
    ours = [name for name in listed if not name.startswith(further)]
    assert sorted(ours) == sorted(public_names())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason='needs pip install "greedypig[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_site_describes_parameters_and_needs_no_network(site: Path) -> None:
    page = (site / "reference/explain.html").read_text()
    assert re.search(r"<code>target</code>.*?the class to explain", page, re.DOTALL)
    assert "Returns:" in page
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)', path.read_text()
        )
        assert not loaded, f"{path.name} loads {loaded}"


@pytest.mark.slow
def test_links_of_the_site_lead_to_files(site: Path) -> None:
    for path in site.rglob("*.html"):
        if path.name == "404.html":
            continue
        for link in re.findall(r'<a[^>]+href="([^"#?]+)', path.read_text()):
            if not link.startswith(("http", "mailto", "data:")):
                assert (path.parent / link).resolve().exists(), f"{path.relative_to(site)}: {link}"


@pytest.mark.slow
def test_search_works_on_a_page_opened_from_disk(site: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs Chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 844})
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto((site / "index.html").as_uri())
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wide) == 0
            if width < 1000:
                page.locator("header label.md-header__button[for=__search]").click()
            page.locator("input.md-search__input").click()
            page.keyboard.type("superpixels")
            page.get_by_text("Photos and pictures").first.wait_for(timeout=10_000)
            assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
        browser.close()
