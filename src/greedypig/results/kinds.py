"""The kinds of results: the class of the facts of each, and the functions that draw it.

Classes and functions are named by texts and imported when they are first needed. So a photo's file
is read without the modules of graphs and texts, and drawing never needs the room that explained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.facts import Facts
from ..core.records import plain
from .wording import Caution

FACTS = {
    "plain": "core.facts:Facts",
    "tensor": "results.input_notes:TensorFacts",
    "image": "results.input_notes:ImageFacts",
    "graph": "results.graph_notes:EdgeFacts",
    "graph-compression": "results.graph_notes:CompressionFacts",
    "graph-node": "results.graph_notes:NodeFacts",
    "table": "results.table_notes:TableFacts",
    "text": "results.text_notes:TextFacts",
}
"""From the kind that a file names to the class of its facts."""


class Notes(Protocol):
    """Facts of a result with the sentences that follow from its numbers, read once."""

    @classmethod
    def of(cls, a: Attribution) -> Notes:
        """The notes of a result."""

    def answer(self) -> str:
        """The result in one sentence."""

    def cautions(self) -> list[Caution]:
        """Reasons to doubt it."""

    def rows(self) -> list[list[str]]:
        """The numbers behind the answer as a table, its heads first."""


@dataclass(frozen=True)
class View:
    """How results of a kind are shown; a photo, a row or a set function if nothing is said."""

    notes: str = "results.input_notes:InputNotes"
    page: str = "report.page:input_html"
    """(result, notes) → the page."""
    cell: str = "report.notebook:input_cell"
    """Result → what a notebook shows of it, for the template."""
    panel: str = ""
    """Result → the figure of all at a glance; "" is that of an input."""
    comparison: str = "plots.figures:input_comparison"
    """(results by method, share) → the figure of several methods."""
    comparison_cell: str = "report.notebook:input_comparison_cell"
    """Results by method → what a notebook shows of them, for the template."""


VIEWS = {
    "graph-compression": View(
        "results.graph_notes:CompressionNotes",
        page="report.graphs:compression_html",
        panel="plots.graphs:compression",
    ),
    "graph-node": View(
        "results.graph_notes:NodeNotes",
        page="report.graphs:node_html",
        panel="plots.graphs:node_panel",
    ),
    "selection": View(
        "results.table_notes:ColumnNotes",
        page="report.columns:columns_html",
        panel="plots.columns:selected_columns",
    ),
    "text": View(
        "results.text_notes:TextNotes",
        page="report.text:text_html",
        cell="report.notebook:text_cell",
        panel="plots.text:text_panel",
        comparison="plots.text:text_comparison",
        comparison_cell="report.notebook:text_comparison_cell",
    ),
}
"""From `Facts.view` to how results are shown."""


def find(a: Attribution, part: str) -> Any:
    """The function or class that a part of the result's `View` names; None for ""."""
    name = getattr(VIEWS.get(a.about.view, View()), part)
    return _named(name) if name else None


def notes_of(a: Attribution, view: str | None = None, expected: str = "") -> Any:
    """The notes of a result. view: the one that is needed; `expected` says it in the error."""
    if view not in (None, a.about.view):
        raise InvalidInput(f"Expected {expected} (got another). Try plots.panel.")
    return find(a, "notes").of(a)


def facts_of(record: Mapping[str, Any]) -> Facts:
    """Facts as JSON holds them, checked. Those of an unknown kind are all `extra`."""
    kind = record.get("kind")
    if kind is not None and not isinstance(kind, str):
        raise InvalidInput(f"Expected kind in the notes as text (got {kind!r:.60}).")
    # Before kinds were named, only results of rows had none.
    name = FACTS.get("tensor" if kind is None else kind)
    if name is None:
        return Facts(extra=dict(record))
    facts: Facts = _named(name).read(record)
    return facts


def changed(facts: Facts, changes: Mapping[str, Any]) -> Facts:
    """Facts with others added, or in the place of those of the same name."""
    try:
        given = json.loads(json.dumps(plain(changes), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"Expected facts that JSON can hold (got: {error}). "
            "Try plain numbers, text, lists and dicts; None for a number that is missing."
        ) from error
    named = {facts.KEYS.get(name, name): value for name, value in given.items()}
    return facts_of(facts.record() | named)


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(import_module(f"greedypig.{module}"), name)
