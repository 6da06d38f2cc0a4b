"""Who may import whom: every room has a rank and imports only rooms of lower rank."""

import ast
from pathlib import Path

import pytest

import greedypig

ROOT = Path(greedypig.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
RANK = {
    "core": 0, "network": 1, "results": 2, "plots": 3, "report": 3, "tensors": 3, "metrics": 4,
    "images": 5, "graphs": 5, "tables": 5, "text": 5, "adapters": 6, "cli": 7,
}  # fmt: skip
DRAWN = {"plots", "report"}
"""Drawn from a result alone: these rooms see `core` and `results` only."""


def imported(path: Path) -> set[str]:
    """What the file imports when it is imported: rooms, and other packages by their names."""
    package = ["greedypig", *path.relative_to(ROOT).parts[:-1]]
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            inside = base[0] == "greedypig"
            names |= {base[1]} if inside and len(base) > 1 else {a.name for a in node.names}
            names = names if inside else names | {base[0]}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_rooms_import_only_rooms_of_lower_rank(path):
    parts = path.relative_to(ROOT).parts
    if len(parts) > 1:
        below = (
            {"core", "results"}
            if parts[0] in DRAWN
            else {r for r in RANK if RANK[r] < RANK[parts[0]]}
        )
        assert imported(path) & set(RANK) <= below | {parts[0]}


def test_every_room_has_a_rank_and_the_root_holds_three_modules():
    assert {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()} <= set(RANK)
    assert len(list(ROOT.glob("*.py"))) <= 3
