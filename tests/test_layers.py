"""Who may import whom. The layers of the architecture, read from the source without running it."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import greedypig

ROOT = Path(greedypig.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

MIDDLE = {
    "domains",
    "targets",
    "alike",
    "baselines",
    "chain",
    "fast",
    "fingerprint",
    "frozen",
    "held",
    "kept",
    "soft_kinks",
    "storage",
    "whole_file",
}
MAY_IMPORT: dict[str, set[str]] = {
    # Part of the package → the parts it may import besides itself.
    "core": set(),
    "sparse": set(),
    "models": {"core", "sparse"},
    "labels": {"core", "models"},
    "own_model": {"core", "models", "targets"},
    "model_spec": {"core", "models", "own_model"},
    "photos": {"core", "models", "labels", "model_spec"},
    "starting": set(),
    "assets": {"core", "models", "starting", "whole_file"},
    **{part: {"core", "sparse"} | MIDDLE for part in MIDDLE},
    "methods": {"core", "domains"},
    "budgets": {"core", "methods"},
    # What a person sees is drawn from a result alone: no model, no domain, no autograd.
    "looks": set(),
    "wording": set(),
    "notes": {"core", "wording"},
    "places": {"core", "notes", "wording"},
    "plots": {"core", "looks", "notes", "wording", "places", "column_notes", "graph_notes"},
    "report": {"core", "looks", "notes", "wording", "places", "column_notes", "graph_notes",
               "whole_file"},
    "metrics": {"core", "methods", "explain"} | MIDDLE,
    "runs": {"core", "storage"},
    "explain": {"core", "methods", "runs"} | MIDDLE,
    "edge_runs": {"core", "methods", "runs"} | MIDDLE,
    "graphs": {"core", "methods", "runs", "edge_runs"} | MIDDLE,
    # Graphs of files and their network: whoever explains them is above.
    "graph_data": {"core", "sparse", "models", "assets", "graphs", "edge_runs"} | MIDDLE,
    "graph_notes": {"core", "notes"},
    "distributed": {"core"},
    "selection": {"core", "runs", "distributed"} | MIDDLE,
    "finetune": {"core", "distributed"} | MIDDLE,
    "tables": {"core", "models", "distributed"} | MIDDLE,
    "column_notes": {"core", "notes", "estimates"},
    "estimates": set(),
    "adapters": {"core", "methods", "explain", "edge_runs", "graphs", "selection", "metrics",
                 "models"} | MIDDLE,
    # The user of everything but the command line, which calls it.
    "reproduce": {"core", "methods", "explain", "metrics", "models", "plots", "assets", "photos",
                  "labels", "model_spec", "distributed", "graph_data", "edge_runs", "tables",
                  "selection", "finetune", "estimates", "budgets", "wording"} | MIDDLE,
}  # fmt: skip
MEASURED = ("curve", "curves", "pair", "quality", "ranking", "sweep")
"""Metrics of an explanation that is there already: figures draw from them, so they make none."""
ADAPTER = {"torch_geometric": "pyg"}
EXCEPTIONS = {("core/attribution.py", "storage")}
"""Attribution.save: one convenience, imported when it is called."""


class Import(NamedTuple):
    file: str
    line: int
    part: str
    """First name below greedypig, or the whole outside package's name."""
    inside: bool
    lazy: bool
    """Inside a function, or for the type checker only."""


def module_of(path: Path) -> list[str]:
    names = ["greedypig", *path.relative_to(ROOT).with_suffix("").parts]
    return names[:-1] if names[-1] == "__init__" else names


def imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    own = module_of(path)
    package = own if path.name == "__init__.py" else own[:-1]
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            # `from . import storage` names a module in its list, `from .storage import x` before.
            targets = [[*base, a.name] if base == ["greedypig"] else base for a in node.names]
        else:
            continue
        lazy, above = False, parents.get(node)
        while above is not None:
            typing_only = isinstance(above, ast.If) and "TYPE_CHECKING" in ast.unparse(above.test)
            lazy |= typing_only or isinstance(above, ast.FunctionDef)
            above = parents.get(above)
        for target in targets:
            inside = target[0] == "greedypig"
            part = (target[1] if len(target) > 1 else "") if inside else target[0]
            yield Import(path.relative_to(ROOT).as_posix(), node.lineno, part, inside, lazy)


def part_of(path: Path) -> str:
    return module_of(path)[1] if len(module_of(path)) > 1 else ""


ALL = [entry for path in FILES for entry in imports(path)]


def test_the_walk_sees_imports_of_every_form():
    seen = {(i.file, i.part) for i in ALL}
    assert ("runs.py", "storage") in seen  # from . import storage
    assert ("explain.py", "core") in seen  # from .core.rounds import …
    assert ("domains/tensor.py", "frozen") in seen  # from ..frozen import …
    assert ("core/attribution.py", "storage") in seen  # from greedypig.storage import …
    assert ("core/rounds.py", "torch") in seen


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_parts_import_only_what_lies_below(path):
    part = part_of(path)
    if part in ("", "__main__", "cli"):
        pytest.skip("the top may import everything")
    allowed = MAY_IMPORT[part] | {part}
    for entry in imports(path):
        if entry.inside and entry.part not in allowed:
            assert (entry.file, entry.part) in EXCEPTIONS, entry
            assert entry.lazy, entry


def test_metrics_of_a_finished_explanation_do_not_explain():
    for entry in ALL:
        if entry.file in {f"metrics/{name}.py" for name in MEASURED}:
            assert entry.part not in ("explain", "methods"), entry


def test_the_core_knows_torch_and_the_standard_library_only():
    for entry in ALL:
        if entry.file.startswith("core/") and not entry.inside:
            assert entry.part == "torch" or entry.part in sys.stdlib_module_names, entry


def test_models_know_of_the_core_its_errors_and_its_guard_of_the_random_state_only():
    for entry in ALL:
        if entry.file.startswith("models/") and entry.inside and entry.part == "core":
            text = (ROOT / entry.file).read_text().splitlines()[entry.line - 1]
            assert "core.errors import" in text or "core.randomness import" in text, entry


def test_nobody_imports_the_command_line_but_its_entry():
    own = ("cli/", "__main__.py")
    assert not [i for i in ALL if i.inside and i.part == "cli" and not i.file.startswith(own)]


def test_optional_packages_are_imported_where_they_are_used():
    """At the head of their adapter, or inside a function."""
    optional = {"matplotlib", "PIL", "captum", "scipy", "skimage", "sklearn", "pandas", "networkx",
                "pyarrow", "polars", "torch_geometric"}  # fmt: skip
    for entry in ALL:
        if not entry.inside and entry.part in optional:
            assert entry.lazy or entry.file == f"adapters/{ADAPTER.get(entry.part, entry.part)}.py"


def calls_of_autograd(path: Path) -> list[int]:
    """Lines that ask for gradients: torch.autograd.…, .backward(…), torch.func.grad and kin."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if "autograd" in text or node.attr == "backward" or text.startswith("torch.func.grad"):
                lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and "autograd" in (node.module or ""):
            lines.append(node.lineno)
    return lines


TRAINS = {"finetune.py", "tables/training.py"}
"""Files whose purpose is to train a network: there gradients are for the parameters."""


def test_only_the_objective_calls_autograd():
    found = {p.relative_to(ROOT).as_posix() for p in FILES if calls_of_autograd(p)}
    # Functions that know their own gradient ask for none: a product that training a GCN needs to be
    # quick, and ReLU with another slope.
    assert found == {"core/objective.py", "models/gcn.py", "soft_kinks.py"} | TRAINS


def test_only_one_file_knows_ranks():
    for path in FILES:
        text = path.read_text()
        knows = "torch.distributed" in text or "WORLD_SIZE" in text
        assert knows == (path.name == "distributed.py"), path


def test_nothing_hides_in_utils():
    names = {p.stem for p in ROOT.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}


def test_the_core_never_speaks_of_pixels_edges_or_columns():
    for path in (ROOT / "core").glob("*.py"):
        tree = ast.parse(path.read_text())
        words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        words |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        words |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        spoken = {w for w in words for bad in ("pixel", "image", "edge_index", "column", "token")
                  if bad in w.lower()}  # fmt: skip
        assert not spoken, path


def test_no_user_error_is_a_bare_assert_or_a_plain_builtin():
    """Errors raised on purpose are ours; a bare builtin has no common root to catch."""
    plain = {"ValueError", "TypeError", "RuntimeError", "Exception", "KeyError"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                assert name not in plain, (path.name, node.lineno, name)
