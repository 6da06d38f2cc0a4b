"""`python -m reproduction sic`: the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from os import fspath
from pathlib import Path
from typing import Any

from greedypig.cli import options, outputs
from greedypig.cli.failures import DONE, FAILED, Stopped, UsageError
from greedypig.cli.main import command_parser, run_program
from greedypig.cli.terminal import BOLD, DIM, Terminal
from greedypig.core.errors import GreedyPigError, InvalidInput, InvalidType
from greedypig.images.networks.pretrained import NAMES as MODELS
from greedypig.results.wording import count
from greedypig.tables.distributed import Group, joined, own_device

from . import OF_PHOTOS, REPRODUCTIONS, Request, Result, Table, job_class
from . import run as reproduce
from .output import MARK as PAGE_MARK

PROGRAM = "python -m reproduction"
ALL = "all"
HELP = "the paper's tables and figures measured anew, its numbers beside ours"
DESCRIPTION = """\
Measure the paper's tables and figures anew. Each writes a Markdown table with the paper's numbers,
ours, the setting and what differs, CSV files, and a figure. Photos, graphs and weights are those of
'make assets' unless --photos, --graphs or --model name others. Single results are kept in the
folder of the results: a run that was stopped goes on where it was, and a larger --limit only adds
photos. The paper's setting costs 2,000 gradients a photo, method and objective; --budget 100 is a
quick look. On several processes, with the same tables:
torchrun --nproc-per-node 4 -m reproduction sic"""
EXAMPLES = """\
  python -m reproduction sic --limit 4 --budget 50
  python -m reproduction pointing
  python -m reproduction lemmas
  python -m reproduction criteo --rows 100000 --tables generated kdd
  python -m reproduction criteo --tables criteo/train.txt
  python -m reproduction graph --panels cora,pubmed
  python -m reproduction all --photos imagenet/val --limit 1466"""
OUT = "out/reproduction"
SHORTER = {
    " AUC": "", " ↑": "", " ↓": "", ",": "", "second opinion": "2nd", "gradients": "grad.",
    "probability kept ": "", " from the whole photo": "", "more than half": "> half",
    "accuracy": "acc.", "agreement": "agr.", " edges": "",
}  # fmt: skip
"""Shorter words of headings for narrow terminals."""
LEFT_OUT = ("setting", "photo", "share", "claim", "accuracy_40", "accuracy_50", "agreement_40",
            "same", "kept")  # fmt: skip
"""Columns that narrow terminals do not show."""
BASELINES = ("zero", "mean", "conditional")


def names(text: str) -> list[str]:
    """The type of lists with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """The type of lists of whole numbers."""
    words = names(text)
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"expected whole numbers ≥ 1 with commas, got {text!r}")
    return sorted({int(word) for word in words})


def baselines(text: str) -> list[str]:
    """The type of --baseline."""
    words = names(text)
    if not words or not set(words) <= set(BASELINES):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(BASELINES)}, got {text!r}")
    return words


TABLE, GRAPH = ("criteo",), ("graph",)
Option = tuple[str, str, Callable[[str], Any] | None, str, str, tuple[str, ...]]
OPTIONS: tuple[Option, ...] = (
    # group, option, type, metavar, help, the reproductions that use it
    ("photos", "photos", None, "DIR", "your own ImageNet folder or photos; labels are read from "
     "folder or file names (default: the photos of 'make assets')", OF_PHOTOS),
    ("photos", "limit", options.whole, "N", "number of photos, drawn by the seed (default: all)",
     OF_PHOTOS),
    ("graphs", "graphs", str, "DIR", "a folder with cora.npz, pubmed.npz and perhaps ogbn_arxiv as "
     "OGB ships it (default: the graphs of 'make assets')", GRAPH),
    ("graphs", "panels", names, "A,B,…", "of cora, pubmed, arxiv (default: all)", GRAPH),
    ("graphs", "seeds", options.whole, "N", "networks trained for each graph (default: 5)", GRAPH),
    ("method", "methods", names, "A,B,…", "for photos: ig, smooth-ig, blur-ig, guided-ig, paper "
     "(Greedy PIG in the paper's setting), default (our default), random; for tables: ig, "
     "greedy-1, greedy-5, permutation, random, truth (default: all of the table)",
     tuple(REPRODUCTIONS)),
    ("method", "objective", str, "NAME", "only softmax, or only log-likelihood",
     (*OF_PHOTOS, *GRAPH)),
    ("method", "budget", options.whole, "N", "at most N gradients a method (for tables: gradient "
     "batches), for a quick look; the result says so", (*OF_PHOTOS, *GRAPH, *TABLE)),
    ("model", "model", str, "NAME", f"another network than the paper's: {', '.join(MODELS)}, "
     "package.module:factory", OF_PHOTOS),
    ("model", "weights", str, "FILE", "weights of a built-in model (.pth)", OF_PHOTOS),
    ("model", "judge", str, "MODEL", "network of the second opinion, or none (default: "
     "efficientnet-lite0)", ("sic", "resnet")),
    ("tables", "tables", None, "TABLE", "generated, kdd, adult, or paths of tables, also Criteo's "
     "own files (default: generated, and those that 'make assets' brought)", TABLE),
    ("tables", "label", str, "NAME", "the label of tables given by their path", TABLE),
    ("tables", "rows", options.whole, "N", "rows of the generated table", TABLE),
    ("tables", "loyalty", float, "R", "correlation of the generated table's copies with their "
     "source (default: 0.99)", TABLE),
    ("tables", "k", numbers, "K,K,…", "columns kept (default: 5,10,20,30)", TABLE),
    ("tables", "baseline", baselines, "A,B", f"of {', '.join(BASELINES)} (default: zero)", TABLE),
    ("tables", "models", options.whole, "N", "networks trained on all columns", TABLE),
    ("tables", "selections", options.whole, "N", "selections of every network", TABLE),
    ("tables", "retrainings", options.whole, "N", "fresh networks for every selection", TABLE),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m reproduction`."""
    lines = "; ".join(f"{name}: {line}" for name, line in REPRODUCTIONS.items())
    parser.add_argument("what", choices=[*REPRODUCTIONS, ALL], metavar="WHAT",
                        help=f"{lines}; {ALL}")  # fmt: skip
    for group, name, kind, metavar, text, _ in OPTIONS:
        several: dict[str, Any] = {"nargs": "+"} if kind is None else {"type": kind}
        options.group(parser, group).add_argument(f"--{name}", metavar=metavar, help=text,
                                                  **several)  # fmt: skip
    tables = options.group(parser, "tables")
    tables.add_argument(
        "--mask-finetune",
        action="store_true",
        help="also select by networks fine-tuned with columns masked at random",
    )
    tables.add_argument("--start", choices=("zero", "rate"), default="zero",
                        help="output bias of a fresh network: zero, as the paper's, or the label's "
                        "rate, as in 'greedypig select' (default: zero)")  # fmt: skip
    output = options.group(parser, "output")
    output.add_argument("--out", metavar="FOLDER", default=OUT, help="(default: %(default)s)")
    output.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep what was measured before; --no-resume measures it again",
    )
    options.add_hardware(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run one reproduction or all, and print the tables."""
    with joined(args.device) as group:
        if not group.first:  # One process speaks for all.
            terminal.follow()
        # With photos of one's own, `all` is all that is about photos.
        every = OF_PHOTOS if args.photos is not None else REPRODUCTIONS
        chosen = list(every) if args.what == ALL else [args.what]
        _refuse_unused(args, chosen)
        out = outputs.folder(Path(args.out))
        for name in chosen:
            files = [out / file.format(name) for file in job_class(name).FILES]
            outputs.refuse_foreign([f for f in files if f.suffix == ".png"])
            outputs.refuse_foreign([f for f in files if f.suffix == ".md"], PAGE_MARK.encode())
        results = [_one(name, args, terminal, out, group) for name in chosen]
        failed = [failure for result in results for failure in result.failed]
        if failed:
            terminal.note(f"{len(failed)} left out: {', '.join(Path(n).name for n, _ in failed)}")
        records = {result.name: _record(result) for result in results}
        terminal.result(records[args.what] if args.what != ALL else {"reproductions": records})
        return FAILED if failed and group.first else DONE


def _refuse_unused(args: argparse.Namespace, chosen: Sequence[str]) -> None:
    """Refuse an option that nothing that is run uses."""
    users = {name: by for _, name, _, _, _, by in OPTIONS}
    users |= {"mask_finetune": TABLE, "start": TABLE}
    for name, by in users.items():
        value = getattr(args, name)
        unset = value is None or value is False or (name, value) == ("start", "zero")
        if not unset and not set(by) & set(chosen):
            raise UsageError(
                f"Expected --{name.replace('_', '-')} with {_either(by)} (got it with "
                f"{_either(chosen)}, which does not use it)."
            )
    if args.mask_finetune and "conditional" in (args.baseline or ()):
        raise UsageError("Expected --baseline zero or mean with --mask-finetune, whose masks "
                         "differ from row to row (got conditional).")  # fmt: skip


def _either(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _one(
    name: str, args: argparse.Namespace, terminal: Terminal, out: Path, group: Group
) -> Result:
    done, total = 0, 0
    with terminal.bar(name) as bar:

        def progress(label: str, at: int, of: int) -> None:
            nonlocal done, total
            done, total = at, of
            terminal.subject = f"{name}, {label}" if label else ""
            bar.label = f"{name}: {label}"
            bar.follow(lambda: at, max(of, 1))

        try:
            result = reproduce(name, _request(args, out, group, progress))
        except KeyboardInterrupt:
            raise Stopped(
                f"Stopped {name} after {done} of {count(total, 'piece')} of its work."
            ) from None
        except (InvalidInput, InvalidType) as error:
            raise UsageError(str(error)) from error
    # A process that ends early, with an exit code of its own, would end the one that writes.
    group.barrier()
    _print(result, terminal)
    return result


def _request(args: argparse.Namespace, out: Path, group: Group, progress: Any) -> Request:
    try:
        device = options.device(own_device(args.device))
    except GreedyPigError as error:
        raise UsageError(str(error)) from error
    given = {f.name: getattr(args, f.name) for f in fields(Request) if hasattr(args, f.name)}
    own = {"out": out, "device": device, "batch_size": args.batch_size or "auto"}
    return Request(**given | own, group=group, progress=progress)


def _print(result: Result, terminal: Terminal) -> None:
    """The table for people."""
    table = result.table
    terminal.say(result.title, BOLD)
    lines = _lines(table, {k: h for k, h in table.columns.items() if k != "setting"})
    if len(lines[0]) > terminal.width:
        lines = _lines(table, _short(table))
    terminal.say(lines[0], DIM)
    for line in lines[1:]:
        terminal.say(line)
    terminal.say()
    for remark in result.spoken:
        terminal.say(remark)
    if result.files:
        folder = outputs.shown(result.files[0].parent)
        written = ", ".join(f.name for f in result.files)
        terminal.say(f"Wrote {folder}: {written}")


def _lines(table: Table, columns: Mapping[str, str]) -> list[str]:
    """The table in columns of equal width, its head first."""
    cells = [list(columns.values())]
    cells += [[table.cell(row, column) for column in columns] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = [table.is_text(column) for column in columns]
    return [
        "  ".join(
            f"{text:<{width}}" if text_column else f"{text:>{width}}"
            for text, width, text_column in zip(row, widths, left, strict=True)
        )
        for row in cells
    ]


def _short(table: Table) -> dict[str, str]:
    """Columns for a narrow terminal: methods by their short names."""
    heads = {}
    for key, head in table.columns.items():
        if key not in LEFT_OUT:
            for long, short in SHORTER.items():
                head = head.replace(long, short)
            heads[{"title": "method", "graph": "panel"}.get(key, key)] = head
    if any(row.get("ranking") for row in table.rows):
        heads = {"method": heads.pop("method"), "ranking": "ranked by", **heads}
    return heads


def _record(result: Result) -> dict[str, Any]:
    """The object of --json."""
    return {
        "reproduction": result.name,
        "rows": [dict(row) for row in result.table.rows],
        "settings": dict(result.about),
        "differs": list(result.remarks),
        "failed": [{"photo": name, "reason": reason} for name, reason in result.failed],
        "files": [fspath(file) for file in result.files],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    own = sys.modules[__name__]
    return run_program(lambda _: command_parser(PROGRAM, own), argv, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
