"""`greedypig select train.parquet --label y`: which columns a model uses, checked by retraining."""

from __future__ import annotations

import argparse
import csv
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import InvalidFile, InvalidInput, InvalidType
from ..tables import Reading, Table, criteo_reading, open_table
from ..tables.distributed import joined, own_device, restarted
from . import options, outputs, select_output
from .failures import DONE, Stopped, UsageError
from .select_job import METHODS, USUAL_METHODS, Plan, SelectJob
from .select_output import ENDINGS, STEM
from .terminal import Terminal

DESCRIPTION = """\
Train a network on a table (or take yours), rank its columns by Greedy PIG, and check the ranking:
fresh networks are trained on the top k columns, for every k and seed, beside integrated gradients
and random columns. Writes the result, a table (Markdown and CSV), a figure and a page into a
folder. Tables are read piece by piece and need not fit in memory: CSV, TSV (also .gz), Parquet,
Arrow; a file, a folder or a quoted pattern. Criteo's files are recognised. Every finished round and
training is kept; --resume goes on. On several processes, with the same result:
torchrun --nproc-per-node 4 -m greedypig select train.parquet --label y"""
EXAMPLES = """\
  greedypig select train.parquet --label clicked --k 5,10,20,30
  greedypig select 'days/*.parquet' --valid last.parquet --label clicked
  greedypig select people.csv --label income --drop id --categorical zip --k 3,5 --seeds 5
  greedypig select rows.parquet --label y --model my_models:build --json > answer.json"""
SAME = ("ks", "seeds", "seed", "methods", "model", "epochs")
"""Options that a plan takes as they are."""
TASKS = {"classification": "classes", "regression": "number"}
CRITEO = {"label", "I1", "I13", "C1", "C26"}
"""Columns by which Criteo's tables are recognised."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig select`."""
    count: dict[str, Any] = {"type": options.whole, "metavar": "N"}
    texts: dict[str, Any] = {"metavar": "A,B,…", "action": "append", "default": []}
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="file, folder, quoted pattern")

    add = options.group(parser, "columns").add_argument
    add("--label", metavar="NAME", help="the column to predict")
    add("--task", choices=TASKS, help="(default: found from the label's values)")
    add("--drop", **texts, help="leave these columns out; may be given again")
    words = "take these columns as categories, also if they number the rows"
    add("--categorical", **texts, help=f"{words}; may be given again")

    add = options.group(parser, "model").add_argument
    words = "package.module:factory of your trained model; the factory may take the table's schema"
    add("--model", metavar="NAME", help=f"{words} (default: a network is trained)")
    words = "validation rows (default: a tenth of the table, more of a small one)"
    add("--valid", metavar="TABLE", help=words)
    add("--seeds", **count, default=3, help="trainings of each set of columns (default: 3)")
    words = "most epochs; training ends when the validation loss does not fall"
    add("--epochs", **count, help=f"{words} (default: 20, of small tables 3,000 batches)")

    add = options.group(parser, "method").add_argument
    words = "those of 5,10,20,30 that are fewer than all; of up to 20 columns 1,2,3,5,7,10"
    words = f"how many columns to keep (default: {words})"
    add("--k", dest="ks", type=_ks, default=(), metavar="N,M,…", help=words)
    usual = ",".join(USUAL_METHODS)
    words = f"of {', '.join(METHODS)}; the first is reported in full (default: {usual})"
    add("--methods", type=_methods, default=USUAL_METHODS, metavar="A,B,…", help=words)

    options.add_hardware(parser, batch_size=False)
    add = options.group(parser, "output").add_argument
    words = "folder of the results (default: the table's name and -selection)"
    add("--out", metavar="FOLDER", help=words)
    options.add_resume(options.group(parser, "output"))


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Do the job, on one process or on many."""
    with joined(args.device) as group:
        if not group.first:  # One process speaks for all.
            terminal.follow()
        try:
            opened, plan = _plan(args)
            folder = outputs.folder(Path(args.out or _folder_name(args.tables[0])))
            outputs.refuse_foreign(folder / f"{STEM}.{ending}" for ending in ENDINGS)
            device = options.device(own_device(args.device))
            with terminal.bar(Path(opened[0].source).name) as bar:
                job = SelectJob(opened, plan, folder, bar, device=device, group=group)
                try:
                    job.run(args.resume or restarted())
                except KeyboardInterrupt:
                    raise Stopped(f"Stopped while {job.stage}.") from None
        except (InvalidInput, InvalidType, InvalidFile) as error:
            raise UsageError(str(error)) from error
        if group.first:
            select_output.report(job, terminal)
    return DONE


def _plan(args: argparse.Namespace) -> tuple[list[Table], Plan]:
    """The tables opened and the options read; whatever is wrong is a wrong command."""
    table = open_table(*args.tables)
    is_criteo = set(table.kinds) >= CRITEO
    label = args.label or ("label" if is_criteo else None)
    if label is None:
        raise UsageError(
            f"Expected --label, the column to predict, of {', '.join(list(table.kinds)[:12])}"
            f"{', …' if len(table.kinds) > 12 else ''} (got none)."
        )
    table.check(label)
    categorical, drop = _columns(args.categorical, table), _columns(args.drop, table)
    table = table.without([name for name in drop if name != label])
    columns = len(table.kinds) - 1
    if not 0 < max(args.ks, default=1) <= columns:
        raise UsageError(
            f"Expected --k of at most {columns}, the number of columns besides the label "
            f"(got {max(args.ks, default=1)}). Try --k {columns}."
        )
    further = [] if args.valid is None else [open_table(args.valid, keep=table.kinds)]
    training = {file.path.resolve() for file in table.files}
    for file in (file for valid in further for file in valid.files):
        if file.path.resolve() in training:
            warnings.warn(
                f"{outputs.shown(file.path)} is among the training rows and the validation rows: "
                "losses will be too low. Try --valid with rows of its own, or none.",
                stacklevel=2,
            )
    task: Any = TASKS.get(args.task)
    keep = None if args.model else ()  # A model takes all the columns that it knows.
    reading = Reading(categorical, keep=keep, task=task)
    if is_criteo and not (categorical or drop):
        reading = criteo_reading(task=task, keep=keep)
    same = {name: getattr(args, name) for name in SAME}
    return [table, *further], Plan(label, reading, **same)


def _ks(text: str) -> tuple[int, ...]:
    """The type of --k."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(sorted({options.whole(part) for part in parts}))


def _methods(text: str) -> tuple[str, ...]:
    """The type of --methods."""
    names = options.names_of(METHODS)(text)
    if names[0] == "random":
        raise argparse.ArgumentTypeError("expected a method that ranks columns first, got none")
    return names


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


__all__ = ["DESCRIPTION", "EXAMPLES", "configure", "run"]
