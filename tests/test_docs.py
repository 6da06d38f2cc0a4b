"""Every Python example of README and docs runs as written; every example script works."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import greedypig
from greedypig.core import registry
from greedypig.network.assets_folder import assets_folder
from greedypig.text.pretrained import NAMES as TEXT_MODELS
from tools import notebooks

ROOT = Path(__file__).parent.parent
PARTS = ("metrics", "models", "plots", "report")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NEEDED = {
    "captum": "captum", "gp.plots": "matplotlib", "PIL": "PIL", "sklearn": "sklearn",
    "gp.superpixels(": "skimage", "gp.FeatureSelector(": "sklearn",
    "torch_geometric": "torch_geometric", "greedypig.tables": "pyarrow",
    'main(["select"': "pyarrow", "transformers": "transformers", "gp.explain_text(": "transformers",
    "gp.ContextCite(": "sklearn",
}  # fmt: skip
"""What a page's examples import → the package."""


def lacks_models(text: str) -> bool:
    """Does it name a text model that is not here?"""
    return any(name in text and not is_here(name) for name in TEXT_MODELS)


def is_here(name: str) -> bool:
    return (assets_folder() / name / "config.json").is_file()


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def short(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=short)
def test_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for word, package in NEEDED.items():
        if word in page.read_text():
            pytest.importorskip(package)
    namespace: dict[str, object] = {"__name__": "example"}
    every = [block for block in blocks(page) if not lacks_models(block)]
    for i, block in enumerate(every):
        exec(compile(block, f"{page.name}, block {i + 1}", "exec"), namespace)
    if not every:
        pytest.skip("needs make assets")
    assert namespace["gp"].__name__ == "greedypig"


def public_names():
    yield from ((name, name) for name in greedypig.__all__)
    for part in PARTS:
        yield from ((f"{part}.{name}", name) for name in getattr(greedypig, part).__all__)


@pytest.mark.parametrize(("full", "name"), list(public_names()), ids=lambda text: text)
def test_every_public_name_is_shown_in_an_example(full, name):
    shown = "\n".join(block for page in PAGES for block in blocks(page))
    assert re.search(rf"\b{name}\b", shown), f"gp.{full} is in no example of README and docs"


OWN_PAGE = {
    name: page
    for page in sorted((ROOT / "docs/reference").glob("*.md"))
    for name in re.findall(r"^::: greedypig\.(\w+)$", page.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("name", [n for n in greedypig.__all__ if n not in PARTS])
def test_every_function_and_class_is_used_in_the_example_of_its_reference_page(name):
    assert name in OWN_PAGE, f"gp.{name} has no line in docs/reference"
    assert re.search(rf"\bgp\.{name}\b", "\n".join(blocks(OWN_PAGE[name])))


EXAMPLED = [n for n in greedypig.__all__ if ">>>" in (getattr(greedypig, n).__doc__ or "")]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLED)
def test_examples_of_docstrings_give_what_they_say(name, tmp_path, monkeypatch):
    if name == "explain_photo":
        data = Path(pytest.importorskip("skimage").__file__).parent / "data"
        shutil.copy(data / "coffee.png", tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {"gp": greedypig, "torch": torch}
    tests = doctest.DocTestFinder(recurse=False).find(getattr(greedypig, name), name, globs=names)
    results = [doctest.DocTestRunner().run(test) for test in tests]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


def test_the_set_function_example_gives_what_its_page_says():
    gp = greedypig
    weights = torch.tensor([3.0, 1.0, 2.0, 0.5])
    objective = gp.objective(lambda m: 3 * m[:, :2].amax(1) + m[:, 2:] @ weights[2:], 4)
    assert gp.maximize(objective, gp.IG()).scores.tolist() == pytest.approx([1.5, 1.5, 2, 0.5])
    assert gp.maximize(objective, gp.GreedyPIG(per_round=1)).order.tolist() == [2, 0, 3, 1]
    assert gp.best_subset(objective, k=2) == ((0, 2), 5.0)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_between_pages_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


EXAMPLES = {
    # Script → packages it needs, what it says, what it writes.
    "photo.py": (("PIL", "skimage"), "espresso, probability 0.95", ("photo.html", "photo.png")),
    "graph.py": (("matplotlib",), "with 30 % of the edges: accuracy", ("graph.png",)),
    "occlusion.py": ((), "in rounds:     ['copy 1', 'weaker',", ()),
    "table.py": (("pyarrow", "sklearn"), "only these 5, retrained: log-loss 0.", ("tumours.csv",)),
    "text.py": (
        ("transformers",),
        "Try make assets"
        if lacks_models(" ".join(TEXT_MODELS))
        else "positive: 1 of 4 sentences are enough",
        (),
    ),
    "time_series.py": ((), "channel 1, steps 50–59: probability", ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_script_runs(script, tmp_path):
    packages, said, files = EXAMPLES[script.name]
    for package in packages:
        pytest.importorskip(package, reason="needs an extra")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    for file in files:
        assert (tmp_path / "out" / file).stat().st_size > 10_000


NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path):
    for package in ("nbclient", "ipykernel", "matplotlib", "skimage", "sklearn", "pandas"):
        pytest.importorskip(package, reason="needs an extra")
    if path.stem in ("from_captum", "from_pyg"):
        pytest.importorskip({"from_captum": "captum", "from_pyg": "torch_geometric"}[path.stem])
    if lacks_models(path.read_text()):
        pytest.skip("needs make assets")
    notebooks.execute(path, save=False)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_saved_with_its_outputs_and_small(path):
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert any(cell["outputs"] for cell in cells)
    assert path.stat().st_size < notebooks.LARGEST
    streams = [output.get("name") for cell in cells for output in cell["outputs"]]
    assert "stderr" not in streams, "a warning is in the outputs"


def test_the_table_of_methods_is_that_of_the_registry():
    table = (ROOT / "docs" / "tensors.md").read_text()
    rows = re.findall(r'^\| `"([a-z-]+)"` \| (?:`gp\.(\w+)\(.*\)`)? \| ([a-z, ]+) \|', table, re.M)
    kinds = {"everything": set(registry.EVERY)}
    shown = {name: (title, kinds.get(words, set(words.split(", ")))) for name, title, words in rows}
    assert shown == {
        entry.name: (entry.title if entry.title in greedypig.__all__ else "", set(entry.kinds))
        for entry in registry.METHODS.values()
    }
