"""`greedypig select train.parquet --label y`: which columns a model uses, checked by retraining."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from os import fspath
from pathlib import Path
from typing import Any

import greedypig as gp

from .. import plots
from .. import report as pages
from ..core.errors import InvalidFile, InvalidInput, InvalidType
from ..core.records import plain_fields
from ..network.distributed import Group, joined, own_device, restarted
from ..results import table_notes
from ..results.files import write_whole
from ..results.table_notes import ColumnNotes, Summary
from ..results.wording import count
from ..tables import SelectJob, Table, open_table
from . import options, outputs
from .commands import TASKS
from .failures import DONE, Stopped, UsageError
from .terminal import BOLD, Terminal, duration

SAME = ("label", "valid", "model", "methods", "seeds", "epochs", "seed")
"""Options that a job takes as they are."""
STEM, ENDINGS = "selection", ("gpig", "md", "csv", "png", "html")
CSV_HEAD = "method,k,loss,loss_standard_error,accuracy,accuracy_standard_error,r2,columns"


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Do the job, on one process or on many."""
    with joined(args.device) as group:
        if not group.first:  # One process speaks for all.
            terminal.follow()
        try:
            job = _job(args, group)
            outputs.folder(job.folder)
            outputs.refuse_foreign(job.folder / f"{STEM}.{ending}" for ending in ENDINGS)
            with terminal.bar(Path(job.tables[0].source).name) as bar:
                bar.follow(lambda: job.share, 1)

                def follow(*_: object) -> None:
                    bar.label = job.stage + job.detail

                try:
                    a = job.run(resume=args.resume or restarted(), progress=follow)
                except KeyboardInterrupt:
                    raise Stopped(f"Stopped while {job.stage}.") from None
        except (InvalidInput, InvalidType, InvalidFile) as error:
            raise UsageError(*error.pieces) from error
        if group.first:
            _report(job, a, terminal)
    return DONE


def _job(args: argparse.Namespace, group: Group) -> SelectJob:
    """The job of the command line."""
    table = open_table(*args.tables)
    return SelectJob(
        table,
        drop=_columns(args.drop, table),
        categorical=_columns(args.categorical, table),
        task=args.task and TASKS[args.task],
        ks=args.k,
        folder=args.out or _folder_name(args.tables[0]),
        device=options.device(own_device(args.device)),
        group=group,
        **{name: getattr(args, name) for name in SAME},
    )


def _columns(texts: Sequence[str], table: Table) -> tuple[str, ...]:
    """Columns named by an option, all its times together: a name with commas is one where the
    table has it, or in quotes."""
    names: list[str] = []
    for text in texts:
        parts = [text] if text in table.kinds else next(csv.reader([text], skipinitialspace=True))
        names += [part.strip() for part in parts if part.strip()]
    return tuple(dict.fromkeys(names))


def _folder_name(table: str) -> str:
    path = Path(table)
    stem = re.sub(r"[*?\[\]]", "", path.name.split(".")[0]).strip() or path.parent.name or "table"
    return f"{stem}-selection"


def _report(job: SelectJob, a: gp.Attribution, terminal: Terminal) -> None:
    """Write the files of a job that is done, and print what it found."""
    facts: Any = a.about
    told = tuple(terminal.sentence(warning) for warning in job.warnings)
    selection = replace(facts.selection, warnings=told)
    a = a.with_notes({"command": terminal.command_line(), "selection": selection})
    notes = ColumnNotes.of(a)
    files = _write(a, notes, job.folder)
    _tell(a, notes, terminal)
    terminal.say(
        f"{count(a.gradients_used, 'gradient')} for the order, {duration(job.seconds)} in all; "
        f"{outputs.wrote(files)}"
    )
    terminal.result(_record(job, a, notes) | {"files": [fspath(file) for file in files]})


def _write(a: gp.Attribution, notes: ColumnNotes, folder: Path) -> list[Path]:
    """The result, the table as Markdown and CSV, the figure and the page."""
    result, table, numbers, figure, page = (folder / f"{STEM}.{ending}" for ending in ENDINGS)
    a.save(result)
    write_whole(table, _markdown(a, notes))
    outputs.write_csv(numbers, _csv(notes))
    pages.write(a, page)
    if importlib.util.find_spec("matplotlib") is None:
        return [result, table, numbers, page]
    outputs.save_figure(plots.selected_columns(a), figure)
    return [result, table, numbers, figure, page]


def _tables(notes: ColumnNotes, errors: bool = True) -> list[tuple[str, list[list[str]]]]:
    """The losses, and R² of a number to predict: a sentence, then a row for each method.

    errors: with their standard errors.
    """
    seeds = f"mean of {notes.seeds} seeds" if notes.seeds > 1 else "one seed"
    seeds += " ± standard error" if errors and notes.seeds > 1 else ""
    words = (
        f"Validation {notes.metric}{notes.unit} after retraining on the top k, lower is better; "
        f"{seeds}."
    )
    losses = notes.rows(errors=errors)
    tables = [(words, losses)]
    if r_squared := notes.r_squared_rows():
        tables.append((table_notes.R2, [losses[0], *r_squared]))
    return tables


def _head(a: gp.Attribution, notes: ColumnNotes) -> str:
    return (
        f"{a.about.source}: {a.features.count} columns, {notes.train_rows:,} training rows, "
        f"{notes.valid_rows:,} validation rows; label {notes.label}: {notes.task}"
    )


def _remarks(notes: ColumnNotes) -> list[str]:
    """Whether the columns help at all, how the first method compares with integrated gradients, as
    far as the errors can tell, and after which column nothing is gained."""
    remarks, method = notes.doubts(), next(iter(notes.losses))
    if method != "ig" and "ig" in notes.losses:
        verdicts: dict[str, list[str]] = {}
        for k in notes.ks:
            verdicts.setdefault(notes.verdict(method, "ig", k), []).append(str(k))
        parts = (f"k = {', '.join(ks)}: {verdict}" for verdict, ks in verdicts.items())
        remarks.append(f"{'; '.join(parts)}.")
    return [remark for remark in (*remarks, notes.gained()) if remark]


def _tell(a: gp.Attribution, notes: ColumnNotes, terminal: Terminal) -> None:
    """Print the tables for people."""
    terminal.say(_head(a, notes), BOLD)
    terminal.say(f"best first: {', '.join(a.top(min(max(notes.ks), 10)))}")
    for words, rows in _tables(notes, errors=terminal.width >= 20 + 17 * len(notes.ks)):
        terminal.say(words)
        terminal.table(rows[0], rows[1:])
    for remark in _remarks(notes):
        terminal.say(remark)


def _markdown(a: gp.Attribution, notes: ColumnNotes) -> str:
    loss = "unknown" if notes.network_loss is None else notes.figure(notes.network_loss)
    parts = [
        "# greedypig select",
        f"{_head(a, notes)}.",
        f"Explained: {notes.network}, validation {notes.metric} {loss}; baseline "
        f"{a.about.baseline}; {count(a.gradients_used, 'gradient')}.",
    ]
    for words, rows in _tables(notes):
        parts += [words, outputs.markdown_table(rows[0], rows[1:])]
    parts += _remarks(notes)
    if notes.warnings:
        parts += ["## Warnings", "\n".join(f"- {text}" for text in notes.warnings)]
    orders = [
        f"- {method}: {', '.join(order[: max(notes.ks)])}"
        for method, order in notes.orders.items()
        if method != "random"
    ]
    return "\n\n".join([*parts, "## Columns, best first", "\n".join(orders)]) + "\n"


def _csv(notes: ColumnNotes) -> list[list[Any]]:
    """The heads, then a row for each method and k."""

    def row(
        method: str, k: int, loss: Summary, rate: Summary | None, columns: str = ""
    ) -> list[Any]:
        accuracy = (None, None) if rate is None else (rate.mean, rate.standard_error)
        return [
            method,
            k,
            loss.mean,
            loss.standard_error,
            *accuracy,
            notes.r_squared(loss.mean),
            columns,
        ]

    rows: list[list[Any]] = [CSV_HEAD.split(",")]
    for method, by_k in notes.losses.items():
        for k, loss in by_k.items():
            # Random columns differ from seed to seed. As JSON, as a name may hold any sign.
            names = [] if method == "random" else list(notes.orders[method][:k])
            columns = json.dumps(names, ensure_ascii=False) if names else ""
            rows.append(row(method, k, loss, notes.accuracies.get(method, {}).get(k), columns))
    if (constant := notes.constant) is not None:
        rate = None if constant.accuracy is None else Summary(constant.accuracy)
        rows.append(row("constant prediction", 0, Summary(constant.loss), rate))
    rows.append(row("all columns", len(notes.kinds), notes.loss_all, notes.accuracy_all))
    return rows


def _record(job: SelectJob, a: gp.Attribution, notes: ColumnNotes) -> dict[str, Any]:
    """The object of --json."""
    record = plain_fields(notes, defaults=True)
    del record["columns"], record["without_gain"]  # `order` and `useful` say so.
    r2 = {} if job.constant.variance is None else notes.losses
    return record | {
        "order": a.top(a.features.count),
        "useful": notes.useful,
        "loss_all": notes.loss_all.mean,
        "accuracy_all": None if notes.accuracy_all is None else notes.accuracy_all.mean,
        "loss_constant": job.constant.loss,
        "r2": {m: {str(k): notes.r_squared(v.mean) for k, v in by.items()} for m, by in r2.items()},
        "path": [None if value != value else value for value in a.values.tolist()],
        "method": a.method,
        "gradients": a.gradients_used,
        "rows": {"train": notes.train_rows, "valid": notes.valid_rows},
        "seconds": job.seconds,
        "settings": dict(a.settings)
        | asdict(job.plan)
        | {
            "model": notes.network,
            "valid_share": None if job.train.part is None else job.train.share,
            "epochs": job.effort.longest(job.train),
            "batch_size": job.train.batch_size,
        },
    }
