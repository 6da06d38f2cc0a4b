"""What `greedypig select` tells: a table for the terminal, files for people and for programs."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import plots, report
from ..results.files import write_whole
from ..results.table_notes import ColumnNotes, Loss
from ..results.wording import count
from . import outputs
from .select_notes import Found
from .select_options import Plan
from .terminal import BOLD, DIM, Terminal, duration

STEM = "selection"
CSV_HEAD = ["method", "k", "loss", "loss_standard_error", "accuracy", "accuracy_standard_error",
            "r2", "columns", "warnings"]  # fmt: skip
CSV_MARK = ",".join(CSV_HEAD[:4]).encode()
ALL, CONSTANT = "all columns", "constant answer"


R2_WORDS = "R² of these losses: 1 − loss / variance of the label, both on the validation rows."
Rows = Mapping[str, list[str]]
"""Method → a cell for every k."""


def refuse_foreign(folder: Path) -> None:
    """Refuse to overwrite files of others, before any work is done."""
    endings = ("md", "png", "gpig", "html")
    outputs.refuse_foreign(folder / f"{STEM}.{ending}" for ending in endings)
    outputs.refuse_foreign([folder / f"{STEM}.csv"], CSV_MARK)


def write(found: Found, folder: Path, *, page: bool) -> list[Path]:
    """The result, the table as Markdown and CSV, the figure and the page."""
    files = [folder / f"{STEM}.{ending}" for ending in ("gpig", "md", "csv")]
    found.result.save(files[0])
    write_whole(files[1], _markdown(found))
    write_whole(files[2], _csv(found.notes))
    if importlib.util.find_spec("matplotlib") is not None:
        outputs.save_figure(plots.selected_columns(found.result), folder / f"{STEM}.png")
        files.append(folder / f"{STEM}.png")
    if page:
        report.write(found.result, folder / f"{STEM}.html")
        files.append(folder / f"{STEM}.html")
    return files


def tell(found: Found, terminal: Terminal, files: list[Path]) -> None:
    """The table for people."""
    notes, a, say = found.notes, found.result, terminal.say
    head = (
        f"{a.about['source']}: {a.features.units} columns, {notes.train_rows:,} rows to learn "
        f"from, {notes.valid_rows:,} to judge; label {notes.label}{_task(notes)}"
    )
    say(terminal.style(terminal.wrapped(head), BOLD))
    best, rest = _cut(notes, a.top(min(max(notes.ks), 10)))
    say(terminal.wrapped(f"best first: {', '.join(best) or 'none'}", "  ", "    "))
    if rest:
        say(terminal.wrapped(f"nothing gained by: {', '.join(rest)}", "  ", "    "))
    say()
    errors = _tell_rows(notes, _loss_rows(notes), terminal)
    say()
    meaning = f"validation {notes.metric} after retraining on the top k, lower is better"
    seeds = f"mean of {notes.seeds} seeds" if notes.seeds > 1 else "one seed"
    say(terminal.wrapped(f"{meaning}; {seeds}{' ± standard error' if errors else ''}"))
    if rows := _r2_rows(notes):
        say()
        _tell_rows(notes, rows, terminal)
        say()
        say(terminal.wrapped(R2_WORDS))
    for line in remarks(notes):
        say(terminal.wrapped(line))
    if gained := notes.gained():
        say(terminal.wrapped(gained))
    spent = found.result.about.get("gradient_batches", 0)
    say(terminal.wrapped(
        f"{count(int(spent), 'gradient batch', 'gradient batches')} for the order, "
        f"{duration(found.seconds)} in all. Wrote {outputs.shown(files[0].parent)}: "
        f"{', '.join(f.name for f in files)}"
    ))  # fmt: skip


def _cut(notes: ColumnNotes, order: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns of the first method's order that bring something, and the others."""
    useful = len(order) if notes.useful is None else notes.useful
    return list(order[:useful]), list(order[useful:])


def _tell_rows(notes: ColumnNotes, cells: Rows, terminal: Terminal) -> bool:
    """Methods by k; the least loss of each k is bold. Are there errors, and room for them?"""
    first = max(len(name) for name in cells)
    width = max(len(c) for row in cells.values() for c in row)
    if first + len(notes.ks) * (width + 2) > terminal.width:
        cells = {m: [c.split(" ")[0] for c in row] for m, row in cells.items()}
        width = max(len(c) for row in cells.values() for c in row)
    head = f"{'k':{first}}" + "".join(f"  {k:>{width}}" for k in notes.ks)
    terminal.say(terminal.style(head, DIM))
    lowest = [min(by[k].mean for by in notes.losses.values() if k in by) for k in notes.ks]
    for method, row in cells.items():
        line = f"{method:{first}}"
        for k, least, cell in zip(notes.ks, lowest, row, strict=True):
            own = notes.losses.get(method, {}).get(k)
            text = f"  {cell:>{width}}"
            line += terminal.style(text, BOLD) if own and own.mean == least else text
        terminal.say(line)
    return any("±" in cell for row in cells.values() for cell in row)


def _loss_rows(notes: ColumnNotes) -> Rows:
    rows = {m: [_cell(notes, by.get(k)) for k in notes.ks] for m, by in notes.losses.items()}
    if notes.constant is not None:
        rows[CONSTANT] = [notes.figure(notes.constant.loss)] * len(notes.ks)
    return rows | {ALL: [_cell(notes, notes.loss_all)] * len(notes.ks)}


def _r2_rows(notes: ColumnNotes) -> Rows:
    """R² of every mean loss; nothing for classes."""
    if notes.constant is None or not notes.constant.variance:
        return {}

    def cell(loss: float | None) -> str:
        found = None if loss is None else notes.r_squared(loss)
        return "–" if found is None else f"{found:.4f}"

    rows = {
        m: [cell(by[k].mean if k in by else None) for k in notes.ks]
        for m, by in notes.losses.items()
    }
    return rows | {
        CONSTANT: [cell(notes.constant.loss)] * len(notes.ks),
        ALL: [cell(notes.loss_all.mean)] * len(notes.ks),
    }


def _task(notes: ColumnNotes) -> str:
    return f": {notes.task}" if notes.task else ""


def remarks(notes: ColumnNotes) -> list[str]:
    """Whether the columns help at all, and how the first method does beside integrated gradients,
    as far as the errors can tell."""
    said = notes.cautions()
    method = next(iter(notes.losses))
    if method == "ig" or "ig" not in notes.losses:
        return said
    ks = "; ".join(f"k = {k}: {notes.verdict(method, 'ig', k)}" for k in notes.ks)
    return [*said, f"{ks}."]


def _cell(notes: ColumnNotes, loss: Loss | None) -> str:
    return "–" if loss is None else notes.shown(loss)


def _markdown(found: Found) -> str:
    notes, a = found.notes, found.result
    own = notes.network_loss
    heads = " | ".join(f"k = {k}" for k in notes.ks)
    lines = [
        "# greedypig select",
        "",
        f"{a.about['source']}: {a.features.units} columns, label {notes.label}{_task(notes)}; "
        f"{notes.train_rows:,} rows to learn from, {notes.valid_rows:,} to judge.",
        f"Explained: {notes.network}, validation {notes.metric} "
        f"{'unknown' if own is None else notes.figure(own)}; baseline "
        f"{a.about['baseline']}; {a.about.get('gradient_batches', 0):,} gradient batches a method.",
        f"Validation {notes.metric} after retraining on the top k columns, "
        f"{f'mean of {notes.seeds} seeds ± standard error' if notes.seeds > 1 else 'one seed'}, "
        "lower is better. The same rows ended the trainings.",
        *_markdown_rows(heads, _loss_rows(notes)),
    ]  # fmt: skip
    if rows := _r2_rows(notes):
        lines += ["", R2_WORDS, *_markdown_rows(heads, rows)]
    # Blank lines between sentences: Markdown joins lines.
    for sentence in (*remarks(notes), notes.gained()):
        lines += ["", sentence] if sentence else []
    if notes.warnings:
        lines += ["", "## Warnings", "", *(f"- {_escaped(words)}" for words in notes.warnings)]
    lines += ["", "## Columns, best first", ""]
    for i, (method, order) in enumerate(notes.orders.items()):
        shown = [_escaped(c) for c in order[: max(notes.ks)]]
        best, rest = _cut(notes, shown) if i == 0 else (shown, [])
        if method != "random":
            tail = f"; nothing gained by: {', '.join(rest)}" if rest else ""
            lines.append(f"- {method}: {', '.join(best) or 'none'}{tail}")
    return "\n".join(lines) + "\n"


def _markdown_rows(heads: str, rows: Rows) -> list[str]:
    head = ["", f"| method | {heads} |", "|---|" + "---:|" * (heads.count("|") + 1)]
    return head + [f"| {method} | {' | '.join(cells)} |" for method, cells in rows.items()]


def _escaped(name: str) -> str:
    return name.replace("|", r"\|")


def _csv(notes: ColumnNotes) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_HEAD)

    def r2(loss: float) -> float | str:
        found = notes.r_squared(loss)
        return "" if found is None else found

    for method, by in notes.losses.items():
        for k, loss in by.items():
            rate = notes.accuracies.get(method, {}).get(k)
            # Random columns differ from seed to seed.
            names = "" if method == "random" else _listed(notes.orders[method][:k])
            writer.writerow([method, k, *_pair(loss), *_pair(rate), r2(loss.mean), names, ""])
    n, same = len(notes.kinds), notes.constant
    if same is not None:
        rate = None if same.accuracy is None else Loss(same.accuracy, None)
        writer.writerow([CONSTANT, 0, same.loss, "", *_pair(rate), r2(same.loss), "", ""])
    whole = notes.loss_all
    # Of the whole table, so beside all its columns. A line of comment would not be CSV.
    warned = _listed(notes.warnings) if notes.warnings else ""
    writer.writerow([ALL, n, *_pair(whole), *_pair(notes.accuracy_all), r2(whole.mean), "", warned])
    return text.getvalue()


def _listed(names: Sequence[str]) -> str:
    """As JSON: a name may hold any sign."""
    return json.dumps(list(names), ensure_ascii=False)


def _pair(loss: Loss | None) -> tuple[Any, Any]:
    if loss is None:
        return "", ""
    return loss.mean, "" if loss.error is None else loss.error


def record(found: Found, plan: Plan, files: list[str]) -> dict[str, Any]:
    """The object of --json."""
    notes, a = found.notes, found.result

    def plain(loss: Loss) -> dict[str, float | None]:
        return {"mean": loss.mean, "standard_error": loss.error}

    return {
        "order": a.top(a.features.units),
        "selected": a.selected,
        "useful": notes.useful,
        "left_out": list(notes.left_out),
        "warnings": list(notes.warnings),
        "losses": {m: {str(k): plain(v) for k, v in by.items()} for m, by in notes.losses.items()},
        "accuracies": {
            m: {str(k): plain(v) for k, v in by.items()} for m, by in notes.accuracies.items()
        },
        "loss_all": notes.loss_all.mean,
        "loss_all_standard_error": notes.loss_all.error,
        "accuracy_all": None if notes.accuracy_all is None else notes.accuracy_all.mean,
        "loss_constant": None if notes.constant is None else notes.constant.loss,
        "accuracy_constant": None if notes.constant is None else notes.constant.accuracy,
        "r2": {m: {str(k): notes.r_squared(v.mean) for k, v in by.items()}
               for m, by in notes.losses.items()} if _r2_rows(notes) else {},
        "r2_all": notes.r_squared(notes.loss_all.mean),
        "metric": notes.metric,
        "task": notes.task,
        "orders": {m: list(order) for m, order in notes.orders.items()},
        "path": [None if v != v else v for v in a.values.tolist()],
        "gradients": a.gradients_used,
        "gradient_batches": a.about.get("gradient_batches"),
        "rows": {"train": notes.train_rows, "valid": notes.valid_rows},
        "seconds": found.seconds,
        "stop": a.stop.name.lower(),
        "settings": dict(a.settings) | {
            "label": notes.label, "ks": list(plan.ks), "seeds": plan.seeds, "seed": plan.seed,
            "methods": list(plan.methods), "model": notes.network, "network_loss":
            notes.network_loss, "mask_finetune": plan.finetune, "rate": plan.rate, **found.used},
        "files": files,
    }  # fmt: skip
