"""Who may import whom: every room has a rank and imports only rooms of lower rank."""

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import greedypig

ROOT = Path(greedypig.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
RANKS = """
core
network types
results
plots report tensors
metrics
images graphs tables text
adapters
cli
"""
RANK = {room: rank for rank, rooms in enumerate(RANKS.split("\n")) for room in rooms.split()}
DRAWN = {"plots", "report"}
"""Drawn from a result alone: these rooms see `core` and `results` only."""
OPTIONAL = (
    "matplotlib rich jinja2 PIL pyarrow sklearn captum torch_geometric skimage platformdirs "
    "transformers tokenizers"
)

each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())


def imported(path: Path, nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """What these statements of the file import: rooms of ours, and packages."""
    package = ["greedypig", *path.relative_to(ROOT).parts[:-1]]
    modules: list[list[str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            modules += [alias.name.split(".") for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            modules += [[*base, alias.name] for alias in node.names]
    rooms = {names[1] for names in modules if names[0] == "greedypig" and len(names) > 1}
    return rooms & set(RANK), {names[0] for names in modules} - {"greedypig"}


@each_file
def test_rooms_import_only_rooms_of_lower_rank(path):
    room, *rest = path.relative_to(ROOT).parts
    if rest:
        below = {r for r in RANK if RANK[r] < RANK[room]}
        rooms, _ = imported(path, ast.walk(ast.parse(path.read_text())))
        assert rooms <= ({"core", "results"} if room in DRAWN else below) | {room}


@each_file
def test_packages_that_are_optional_are_imported_where_they_are_used(path):
    _, packages = imported(path, ast.parse(path.read_text()).body)
    assert not packages & set(OPTIONAL.split())
    if path.parent == ROOT / "core":
        assert packages <= sys.stdlib_module_names | {"torch"}


def test_every_room_has_a_rank_and_the_root_holds_five_modules():
    assert {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()} <= set(RANK)
    modules = {path.stem for path in ROOT.glob("*.py")}
    assert modules == {"__init__", "__main__", "compat", "models", "types"}


PRIVATE = re.compile(
    r"torch\._[a-zA-Z]|torch\.utils\._"
    r"|(captum|transformers|torch_geometric|sklearn)[\w.]*(\._| import _)"
    r"|\b_(attn_implementation|edge_mask|loop_mask|apply_sigmoid|cached)\b|\._schema\."
)
"""Private modules, and private attributes of other packages' objects."""


@each_file
def test_private_parts_of_other_packages_are_named_in_compat_alone(path):
    names = [line for line in path.read_text().splitlines() if PRIVATE.search(line)]
    assert bool(names) == (path == ROOT / "compat.py"), names


def test_every_room_may_import_compat():
    path = ROOT / "compat.py"
    rooms, packages = imported(path, ast.walk(ast.parse(path.read_text())))
    assert rooms == {"core"}
    assert packages <= sys.stdlib_module_names | {"torch"}
