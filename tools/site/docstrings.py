"""A griffe extension: our docstrings' lines "rounds, k: how many …" as tables of parameters."""

from __future__ import annotations

import re
from typing import Any

import griffe

LINE = re.compile(r"^(\w+(?:, \w+)*): (?=\S)")
WITHIN = re.compile(r"(?<=[.;]) (?=[a-z_]+(?:, [a-z_]+)*: )")
"""Where a next one begins in the same line: "rounds: how many. ratio: last over first"."""
RETURNS = {
    "Attribution": "What was selected, in which order, with which scores, and what it cost.",
    "Iterator[Attribution]": "One result for every example, in their order.",
    "Curve": "The curve; `.auc` is the area under it.",
    "Objective": "What `gp.maximize` and `gp.rounds` take.",
    "Figure": "A matplotlib figure; `.savefig(path)` writes it.",
    "Axes": "The matplotlib axes that were drawn on.",
}


def with_sections(text: str, known: set[str] | None, returns: str = "") -> str:
    """The docstring with one section for the lines that describe parameters.

    known: the names of the parameters; None takes every name.
    """
    text, mark, examples = text.partition("\nExamples:\n")
    body: list[str] = []
    entries: list[tuple[list[str], list[str]]] = []
    inside = False
    for line in text.splitlines():
        for part in WITHIN.split(line.rstrip()) if inside or LINE.match(line) else [line]:
            match = LINE.match(part)
            names = match[1].split(", ") if match else []
            if match and (known is None or set(names) <= known):
                entries.append((names, [part[match.end() :]]))
                inside = True
            elif inside and part and (part.startswith(" ") or known is None):
                entries[-1][1].append(part.strip())
            else:
                body.append(part)
                inside = False
    sections = ["\n".join(body).rstrip()]
    if entries:
        rows = [f"    {name}: {' '.join(text)}" for names, text in entries for name in names]
        sections.append("Args:\n" + "\n".join(rows))
    if returns in RETURNS:
        sections.append(f"Returns:\n    {RETURNS[returns]}")
    return "\n\n".join([*sections, mark + examples]).rstrip()


class PlainDocstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Parameters and what is returned."""
        if func.docstring:
            known = {p.name for p in func.parameters}
            returns = str(func.returns or "")
            func.docstring.value = with_sections(func.docstring.value, known, returns)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """The arguments of a dataclass or of `__init__`, which may be those of a parent."""
        if cls.docstring:
            cls.docstring.value = with_sections(cls.docstring.value, None)
