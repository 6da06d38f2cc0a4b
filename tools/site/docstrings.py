"""A griffe extension: our docstrings' lines "rounds, k: how many …" as tables of parameters."""

from __future__ import annotations

import re
from typing import Any

import griffe

LINE = re.compile(r"^(\w+(?:, \w+)*): (?=\S)")
RETURNS = {
    "Attribution": "What was selected, in which order, with which scores, and what it cost.",
    "Iterator[Attribution]": "One result for every example, in their order.",
    "Curve": "The curve; `.auc` is the area under it.",
    "Objective": "What `gp.maximize` and `gp.rounds` take.",
    "Figure": "A matplotlib figure; `.savefig(path)` writes it.",
    "Axes": "The matplotlib axes that were drawn on.",
}


def with_sections(text: str, known: set[str], title: str, returns: str = "") -> str:
    """The docstring with one section for the lines that describe `known` names."""
    body: list[str] = []
    described: list[str] = []
    inside = False
    for line in text.splitlines():
        match = LINE.match(line)
        if match and set(match[1].split(", ")) <= known:
            inside = True
            described.append(line)
        elif inside and line.startswith(" "):
            described.append(line)
        else:
            inside = False
            body.append(line)
    sections = ["\n".join(body).rstrip()]
    if described:
        sections.append(f"{title}:\n" + "\n".join(_expanded(described)))
    if returns in RETURNS:
        sections.append(f"Returns:\n    {RETURNS[returns]}")
    return "\n\n".join(sections)


def _expanded(lines: list[str]) -> list[str]:
    """One entry for each name: "k, stop: as in …" becomes two."""
    entries: list[tuple[list[str], list[str]]] = []
    for line in lines:
        match = LINE.match(line)
        if match:
            entries.append((match[1].split(", "), [line[match.end() :]]))
        else:
            entries[-1][1].append(line.strip())
    return [f"    {name}: {' '.join(text)}" for names, text in entries for name in names]


class PlainDocstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Parameters and what is returned."""
        if func.docstring:
            known = {p.name for p in func.parameters}
            returns = str(func.returns or "")
            func.docstring.value = with_sections(func.docstring.value, known, "Args", returns)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """The fields of a class, which are the arguments of a dataclass."""
        if cls.docstring:
            known = {name for name, member in cls.members.items() if member.is_attribute}
            cls.docstring.value = with_sections(cls.docstring.value, known, "Attributes")
