"""`greedypig explain-text --compare`: several methods on the same text, as a table and a page."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import greedypig as gp

from .. import report
from ..core.registry import METHODS, TEXTS, serving
from ..results.comparison import MethodTable
from ..results.text_notes import COLUMNS, TextNotes, compared
from . import outputs
from .terminal import Terminal
from .text_output import ANSWER, record, show_head
from .text_sources import Source

if TYPE_CHECKING:
    from .explain_text import Question

WITH_GRADIENTS = {"greedy-pig", "sequential-gradient", "ig"}
"""Those of the usual methods that take gradients."""


def compare(question: Question, source: Source, stem: Path) -> tuple[Path, gp.Attribution]:
    """Several methods on one text: a table, a page, and every result.

    Returns the page, and what it shows.
    """
    terminal = question.terminal
    folder = outputs.folder(stem.with_name(f"{stem.name}-comparison"))
    page, result, table = (folder / f"comparison.{end}" for end in ("html", "gpig", "csv"))
    outputs.refuse_foreign([page, result, table])
    answer = question.answer(source) if question.answers else None
    results: dict[str, gp.Attribution] = {}
    for method in _methods(question):
        job = question.job(source, folder / method, answer, question.part())
        title = f"{source.name}, {method}"
        results[method] = question.explain(replace(job, method=method, title=title))
    rows = compared(results)
    first = results["greedy-pig"] if "greedy-pig" in results else next(iter(results.values()))
    a = first.with_notes({"methods": rows, "command": terminal.command_line()})
    a.save(result)
    report.write(a, page)
    keys = list(COLUMNS)
    cells = [[name, *(row.numbers.get(key) for key in keys)] for name, row in rows.items()]
    outputs.write_csv(table, [["method", *keys], *cells])
    files = [page, result, table]
    show_comparison(terminal, a, files)
    noted = {name: {key: row.numbers.get(key) for key in keys} for name, row in rows.items()}
    orders = {name: list(row.order) for name, row in rows.items()}
    terminal.result(record(source, a, files) | {"methods": noted, "orders": orders})
    return page, a


def _methods(question: Question) -> list[str]:
    """The methods of --compare; those that were not named are left out where they do not fit."""
    if question.args.methods is not None:
        return list(question.args.methods)
    left_out = set() if importlib.util.find_spec("sklearn") else {"context-cite"}
    if question.args.absent == "deleted":
        left_out |= WITH_GRADIENTS
    usual = serving(METHODS, TEXTS, compared=True)
    return [name for name in usual if name not in left_out]


def show_comparison(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    """The table of a comparison, and what each method selects first."""
    notes = TextNotes.of(a)
    show_head(terminal, notes)
    table = MethodTable(COLUMNS, {name: row.numbers for name, row in notes.methods.items()})
    terminal.table(["", *table.heads], [[name, *cells] for name, cells in table.cells.items()])
    terminal.say(notes.compared_by())
    terminal.say()
    length = max(20, min(terminal.width, 100) - 26)
    firsts = [[name, notes.first(row, length)] for name, row in notes.methods.items()]
    terminal.table(["", f"first {notes.unit}"], firsts, names=2)
    for caution in notes.cautions(ANSWER):
        terminal.caution(caution.line)
    terminal.say(f"{outputs.wrote(files)}, and every result")
