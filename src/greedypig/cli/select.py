"""`greedypig select train.parquet --label y`: which columns a model uses, checked by retraining."""

from __future__ import annotations

import argparse
import csv
import re
import warnings
from collections.abc import Sequence
from os import fspath
from pathlib import Path
from typing import Any

from ..core.errors import InvalidFile, InvalidInput, InvalidType
from ..tables import Reading, Table, TextLayout, criteo_reading, open_table
from ..tables.distributed import Group, joined, own_device, restarted
from . import options, outputs, select_output
from .failures import DONE, Stopped, UsageError
from .select_job import METHODS, USUAL_METHODS, Plan, SelectJob
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
  greedypig select 'days/*.parquet' --valid last.parquet --label clicked --budget 5000
  greedypig select people.csv --label income --drop id --categorical zip --k 3,5 --seeds 5
  greedypig select rows.parquet --label y --model my_models:build --json > answer.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig select`."""
    parser.add_argument("tables", nargs="+", metavar="TABLE",
                        help="a file, a folder or a quoted pattern")  # fmt: skip
    _add_columns(parser)
    _add_model(parser)
    _add_method(parser)
    hardware = options.group(parser, "hardware")
    hardware.add_argument("--seed", type=int, default=0,
                          help="seed of everything random (default: 0)")  # fmt: skip
    hardware.add_argument("--device", default="cpu", help="cpu, cuda (under torchrun a GPU for "
                          "each process), cuda:1, mps (default: cpu)")  # fmt: skip
    output = options.group(parser, "output")
    output.add_argument("--out", metavar="FOLDER",
                        help="folder of the results (default: the table's name and -selection)",
                        )  # fmt: skip
    output.add_argument("--no-html", action="store_true", help="write no page")
    options.add_resume(output)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    group = options.group(parser, "columns")
    group.add_argument("--label", metavar="NAME", help="the column to predict")
    group.add_argument("--task", choices=("classification", "regression"),
                       help="(default: found from the label's values)")  # fmt: skip
    for name, what in (("drop", "leave these columns out"),
                       ("keep", "rank these columns although they number the rows"),
                       ("categorical", "take these columns as categories"),
                       ("numeric", "take these columns as numbers")):  # fmt: skip
        group.add_argument(f"--{name}", metavar="A,B,…", action="append", default=[],
                           help=f"{what}; may be given again")  # fmt: skip
    group.add_argument("--names", metavar="A,B,…",
                       help="names of all columns, for text without a line of names")  # fmt: skip
    group.add_argument("--separator", metavar="SIGN", help="separator of text (default: found)")
    group.add_argument("--decimal", choices=(".", ","), default=".",
                       help="decimal sign of numbers in text (default: .)")  # fmt: skip


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = options.group(parser, "model")
    group.add_argument("--model", metavar="NAME",
                       help="package.module:factory of your trained model; the factory may take "
                       "the table's schema (default: a network is trained)")  # fmt: skip
    group.add_argument("--outputs", choices=("logits", "probabilities"), default="logits",
                       help="what --model returns, for classes (default: %(default)s)",
                       )  # fmt: skip
    group.add_argument("--valid", metavar="TABLE",
                       help="validation rows (default: a share of the table)")  # fmt: skip
    group.add_argument("--valid-share", type=float, metavar="SHARE",
                       help="share of the rows for validation, without --valid (default: 0.1, of "
                       "small tables up to 0.3)")  # fmt: skip
    group.add_argument("--seeds", type=options.whole, default=3, metavar="N",
                       help="trainings of each set of columns (default: %(default)s)")  # fmt: skip
    group.add_argument("--epochs", type=options.whole, metavar="N",
                       help="most epochs; training ends when the validation loss does not fall "
                       "(default: 20, of small tables 3,000 batches)")  # fmt: skip
    group.add_argument("--rate", type=float, default=1e-3,
                       help="learning rate of Adam (default: %(default)s)")  # fmt: skip
    group.add_argument("--batch-size", type=options.whole, metavar="N",
                       help="rows of a batch, about (default: 512, of small tables fewer)",
                       )  # fmt: skip
    group.add_argument("--mask-finetune", type=options.whole, nargs="?", const=200, metavar="N",
                       help="first train a copy of the model for N batches with random columns "
                       "absent (N: 200)")  # fmt: skip


def _add_method(parser: argparse.ArgumentParser) -> None:
    group = options.group(parser, "method")
    group.add_argument("--k", metavar="N,M,…", help="how many columns to keep (default: those of "
                       "5,10,20,30 that are fewer than all; of up to 20 columns 1,2,3,5,7,10)",
                       )  # fmt: skip
    group.add_argument("--methods", metavar="A,B,…", default=",".join(USUAL_METHODS),
                       help=f"of {', '.join(METHODS)}; the first is reported in full "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--steps", type=options.whole, metavar="N",
                       help="points of the path of greedy-pig (default: 5)")  # fmt: skip
    group.add_argument("--budget", type=options.whole, metavar="N",
                       help="gradient batches of every method (default: 40 batches for each "
                       "gradient of greedy-pig)")  # fmt: skip
    group.add_argument("--baseline", choices=("zero", "mean", "conditional"),
                       help="what an absent column looks like: zero (of the standardised number, "
                       "of the embedding), mean, or conditional: imputed by linear regression on "
                       "the selected columns (default: conditional; zero with --model or "
                       "--mask-finetune)")  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Do the job, on one process or on many."""
    with joined(args.device) as group:
        if not group.first:  # One process speaks for all.
            terminal.follow()
        return _run(args, terminal, group)


def _run(args: argparse.Namespace, terminal: Terminal, group: Group) -> int:
    try:
        table, valid, plan = _plan(args)
        shared = _warn_of_shared_files(table, valid)
        folder = outputs.folder(Path(args.out or _folder_name(args.tables)))
        select_output.refuse_foreign(folder)
        device = options.device(own_device(args.device))
    except (InvalidInput, InvalidType, InvalidFile) as error:
        raise UsageError(str(error)) from error
    job = SelectJob(table, valid, plan, folder, device=device, group=group, warnings=shared)
    terminal.keeps(job.evidence, args.resume or restarted(), job.work)
    with terminal.bar(Path(table.source).name) as bar:
        try:
            job.open(args.resume or restarted())
            selection = job.run(bar)
        except KeyboardInterrupt:
            raise Stopped(f"Stopped while {job.stage}.") from None
        except (InvalidInput, InvalidType) as error:
            raise UsageError(str(error)) from error
    if not group.first:
        return DONE
    report = select_output.Report.of(
        selection, source=Path(table.source).name, command=terminal.command_line()
    )
    files = report.write(folder, page=not args.no_html)
    report.tell(terminal, files)
    terminal.result(report.record([fspath(file) for file in files]))
    return DONE


def _plan(args: argparse.Namespace) -> tuple[Table, Table | None, Plan]:
    """The tables opened and the options read; whatever is wrong is a wrong command."""
    layout = TextLayout(_sign(args.separator), _listed(args.names) or None, decimal=args.decimal)
    layout_given = None if layout == TextLayout() else layout
    table = open_table(*args.tables, layout=layout_given)
    is_criteo = {"label", "I1", "I13", "C1", "C26"} <= set(table.kinds)
    label = args.label or ("label" if is_criteo else None)
    if label is None:
        raise UsageError(
            f"Expected --label, the column to predict, of {', '.join(list(table.kinds)[:12])}"
            f"{', …' if len(table.kinds) > 12 else ''} (got none)."
        )
    table.check(label)
    drop, keep, categorical, numeric = (
        _columns(given, table) for given in (args.drop, args.keep, args.categorical, args.numeric)
    )
    table = table.without([n for n in drop if n != label])
    valid = (
        None if args.valid is None
        else open_table(args.valid, layout=layout_given, keep=table.kinds)
    )  # fmt: skip
    task: Any = {"classification": "classes", "regression": "number", None: None}[args.task]
    kept = None if args.model is not None else keep  # A model takes the columns that it knows.
    if is_criteo and not (categorical or numeric or drop):
        reading = criteo_reading(task=task, keep=kept)
    else:
        reading = Reading(categorical, numeric, keep=kept, task=task)
    _check(args)
    return table, valid, Plan(
        label=label, reading=reading, ks=_ks(args.k, len(table.kinds) - 1), seeds=args.seeds,
        seed=args.seed, methods=_methods(args.methods), steps=args.steps, budget=args.budget,
        baseline=args.baseline, finetune=args.mask_finetune,
        model=args.model, outputs=args.outputs, valid_share=args.valid_share, epochs=args.epochs,
        rate=args.rate, batch_size=args.batch_size,
    )  # fmt: skip


def _check(args: argparse.Namespace) -> None:
    """Options that do not fit each other, or are out of range."""
    if args.valid_share is not None and not 0 < args.valid_share < 1:
        raise UsageError(f"Expected --valid-share between 0 and 1 (got {args.valid_share:g}).")
    if args.mask_finetune is not None and args.baseline == "conditional":
        raise UsageError("Expected --baseline zero or mean with --mask-finetune, whose masks "
                         "differ from row to row (got conditional).")  # fmt: skip
    if args.outputs != "logits" and args.model is None:
        raise UsageError("Expected --outputs only with --model (got no model).")
    if not args.rate > 0:
        raise UsageError(f"Expected --rate above 0 (got {args.rate:g}).")


def _warn_of_shared_files(table: Table, valid: Table | None) -> list[str]:
    ours = {file.path.resolve() for file in table.files}
    shared = [file.path for file in (valid.files if valid else ()) if file.path.resolve() in ours]
    texts = [
        f"{outputs.shown(path)} is among the training rows and the validation rows: losses will be "
        "too low. Try --valid with rows of its own, or none."
        for path in shared[:1]
    ]
    for text in texts:
        warnings.warn(text, stacklevel=2)
    return texts


def _ks(text: str | None, columns: int) -> tuple[int, ...]:
    """How many columns to keep; empty where that is to be decided by the columns."""
    if columns < 1:
        raise UsageError("Expected columns besides the label (got none).")
    if text is None:
        return ()
    parts = _words(text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"Expected --k as whole numbers ≥ 1 with commas (got {text!r}).")
    ks = tuple(sorted({int(part) for part in parts}))
    if ks[-1] > columns:
        raise UsageError(
            f"Expected --k of at most {columns}, the number of columns besides the label "
            f"(got {ks[-1]})."
        )
    return ks


def _methods(text: str) -> tuple[str, ...]:
    names = _words(text)
    for name in names:
        if name not in METHODS:
            raise UsageError(f"Expected --methods among {', '.join(METHODS)} (got {name!r}).")
    if not names or names[0] == "random":
        raise UsageError("Expected a method that ranks first in --methods (got none or random).")
    return tuple(dict.fromkeys(names))


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _columns(given: Sequence[str], table: Table) -> tuple[str, ...]:
    """Columns named by an option, all its times together: a name with commas is one where the
    table has it, or in quotes."""
    names: list[str] = []
    for text in given:
        names += [text] if text in table.kinds else _listed(text)
    return tuple(dict.fromkeys(names))


def _listed(text: str | None) -> tuple[str, ...]:
    """Names with commas between them, those in quotes with commas of their own."""
    fields = next(csv.reader([text or ""], skipinitialspace=True), [])
    return tuple(name.strip() for name in fields if name.strip())


def _sign(text: str | None) -> str | None:
    sign = {"tab": "\t", "\\t": "\t"}.get(text or "", text)
    if sign is not None and len(sign) != 1:
        raise UsageError(f"Expected --separator as one sign, or tab (got {text!r}).")
    return sign


def _folder_name(tables: list[str]) -> str:
    first = Path(tables[0])
    stem = re.sub(r"[*?\[\]]", "", first.name.split(".")[0]).strip() or first.parent.name or "table"
    return f"{stem}-selection"


__all__ = ["DESCRIPTION", "EXAMPLES", "configure", "run"]
