"""The results of `greedypig select`: a table for the terminal, files for people and programs."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import greedypig as gp

from .. import plots, report
from ..results import table_notes
from ..results.files import write_whole
from ..results.table_notes import ColumnNotes, Loss
from ..results.wording import count
from ..tables import Schema, Summary
from . import outputs
from .select_job import Selection
from .terminal import BOLD, DIM, Terminal, duration

STEM = "selection"
CSV_HEAD = ["method", "k", "loss", "loss_standard_error", "accuracy", "accuracy_standard_error",
            "r2", "columns", "warnings"]  # fmt: skip
CSV_MARK = ",".join(CSV_HEAD[:4]).encode()
ALL, CONSTANT = "all columns", "constant prediction"
R2_WORDS = "R² of these losses: 1 − loss / variance of the label, both on the validation rows."
Rows = Mapping[str, list[str]]
"""Method → a cell for every k."""


def refuse_foreign(folder: Path) -> None:
    """Refuse to overwrite files of others, before any work is done."""
    endings = ("md", "png", "gpig", "html")
    outputs.refuse_foreign(folder / f"{STEM}.{ending}" for ending in endings)
    outputs.refuse_foreign([folder / f"{STEM}.csv"], CSV_MARK)


@dataclass(frozen=True, eq=False)
class Report:
    """The first method's result with everything in its notes, and what is written of it."""

    selection: Selection
    result: gp.Attribution
    notes: ColumnNotes

    @staticmethod
    def of(selection: Selection, *, source: str, command: str) -> Report:
        """Put everything into the notes of the first method's result."""
        plan, label = selection.plan, selection.schema.label
        retrained, constant = selection.retrained, selection.constant
        rate = retrained.accuracy_all
        about = {
            "label": label.name, "metric": table_notes.METRICS[label.task],
            "train_rows": selection.train.rows, "valid_rows": selection.valid.rows,
            "seeds": plan.seeds, "ks": list(plan.ks), "task": label.in_words(),
            "losses": _by_method(retrained.losses), "accuracies": _by_method(retrained.accuracies),
            "loss_all": _plain(retrained.loss_all),
            "accuracy_all": None if rate is None else _plain(rate),
            "orders": {m: rankings[0] for m, rankings in selection.orders.items()},
            "kinds": _kinds(selection.schema.only(selection.train.schema.names)),
            "network": selection.network, "network_loss": selection.network_loss,
            "constant": None if constant is None else asdict(constant),
            "left_out": list(selection.left_out), "warnings": list(selection.warnings),
        }  # fmt: skip
        a = next(iter(selection.results.values())).with_notes({
            "kind": "table", "source": source, "model": selection.network,
            "baseline": plan.baseline, "objective": selection.train.schema.loss,
            "command": command, table_notes.KEY: about,
        })  # fmt: skip
        notes = ColumnNotes.of(a)
        assert notes is not None
        return Report(selection, a, notes)

    def write(self, folder: Path, *, page: bool) -> list[Path]:
        """The result, the table as Markdown and CSV, the figure and the page."""
        files = [folder / f"{STEM}.{ending}" for ending in ("gpig", "md", "csv")]
        self.result.save(files[0])
        write_whole(files[1], self._markdown())
        write_whole(files[2], _csv(self.notes))
        if importlib.util.find_spec("matplotlib") is not None:
            outputs.save_figure(plots.selected_columns(self.result), folder / f"{STEM}.png")
            files.append(folder / f"{STEM}.png")
        if page:
            report.write(self.result, folder / f"{STEM}.html")
            files.append(folder / f"{STEM}.html")
        return files

    def tell(self, terminal: Terminal, files: list[Path]) -> None:
        """The table for people."""
        notes, a, say = self.notes, self.result, terminal.say
        head = (
            f"{a.about['source']}: {a.features.units} columns, {notes.train_rows:,} training "
            f"rows, {notes.valid_rows:,} validation rows; label {notes.label}{_task(notes)}"
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
        spent = a.about.get("gradient_batches", 0)
        say(terminal.wrapped(
            f"{count(int(spent), 'gradient batch', 'gradient batches')} for the order, "
            f"{duration(self.selection.seconds)} in all. Wrote {outputs.shown(files[0].parent)}: "
            f"{', '.join(f.name for f in files)}"
        ))  # fmt: skip

    def _markdown(self) -> str:
        notes, a = self.notes, self.result
        own = notes.network_loss
        seeds = f"mean of {notes.seeds} seeds ± standard error" if notes.seeds > 1 else "one seed"
        heads = " | ".join(f"k = {k}" for k in notes.ks)
        lines = [
            "# greedypig select",
            "",
            f"{a.about['source']}: {a.features.units} columns, label {notes.label}{_task(notes)}; "
            f"{notes.train_rows:,} training rows, {notes.valid_rows:,} validation rows.",
            f"Explained: {notes.network}, validation {notes.metric} "
            f"{'unknown' if own is None else notes.figure(own)}; baseline "
            f"{a.about['baseline']}; {a.about.get('gradient_batches', 0):,} gradient batches a "
            "method.",
            f"Validation {notes.metric} after retraining on the top k columns, {seeds}, "
            "lower is better. The same rows decided when trainings ended.",
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

    def record(self, files: list[str]) -> dict[str, Any]:
        """The object of --json."""
        notes, a, plan = self.notes, self.result, self.selection.plan
        train, retrained = self.selection.train, self.selection.retrained

        return {
            "order": a.top(a.features.units),
            "selected": a.selected,
            "useful": notes.useful,
            "left_out": list(notes.left_out),
            "warnings": list(notes.warnings),
            "losses": _by_method(retrained.losses),
            "accuracies": _by_method(retrained.accuracies),
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
            "seconds": self.selection.seconds,
            "stop": a.stop.name.lower(),
            "settings": dict(a.settings) | {
                "label": notes.label, "ks": list(plan.ks), "seeds": plan.seeds, "seed": plan.seed,
                "methods": list(plan.methods), "model": notes.network, "network_loss":
                notes.network_loss, "mask_finetune": plan.finetune, "rate": plan.rate,
                "valid_share": train.share if train.part is not None else None,
                "epochs": plan.effort.longest(train), "batch_size": train.batch_size},
            "files": files,
        }  # fmt: skip


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
        r2 = None if loss is None else notes.r_squared(loss)
        return "–" if r2 is None else f"{r2:.4f}"

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
    """Whether the columns help at all, and how the first method compares with integrated
    gradients, as far as the errors can tell."""
    method, cautions = next(iter(notes.losses)), notes.cautions()
    if method == "ig" or "ig" not in notes.losses:
        return cautions
    ks = "; ".join(f"k = {k}: {notes.verdict(method, 'ig', k)}" for k in notes.ks)
    return [*cautions, f"{ks}."]


def _cell(notes: ColumnNotes, loss: Loss | None) -> str:
    return "–" if loss is None else notes.shown(loss)


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
        number = notes.r_squared(loss)
        return "" if number is None else number

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


def _by_method(by_method: Mapping[str, Mapping[int, Summary]]) -> dict[str, dict[str, Any]]:
    return {m: {str(k): _plain(s) for k, s in by_k.items()} for m, by_k in by_method.items()}


def _plain(summary: Summary) -> dict[str, float | None]:
    return {"mean": summary.mean, "standard_error": summary.standard_error}


def _kinds(schema: Schema) -> dict[str, str]:
    """Every column in a few words."""
    kinds = {}
    for number in schema.numbers:
        kinds[number.name] = ("number" + (", by its logarithm" if number.log else "")
                             + _missing(number.missing))  # fmt: skip
    for category in schema.categories:
        known = len(category.values)
        kinds[category.name] = f"category of {known:,}{_missing(category.missing)}"
    return kinds


def _missing(share: float) -> str:
    return f", {100 * share:.2g} % missing" if share > 0 else ""
