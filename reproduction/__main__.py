"""`python -m reproduction sic`: the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from os import fspath
from pathlib import Path
from typing import Any

from greedypig.cli import options, outputs
from greedypig.cli.failures import DONE, FAILED, Stopped, UsageError
from greedypig.cli.main import command_parser, run_program
from greedypig.cli.terminal import Terminal
from greedypig.core.errors import InvalidInput, InvalidType
from greedypig.tables.distributed import Group, joined, own_device

from . import REPRODUCTIONS, Request, Result, job_class
from . import run as reproduce
from .output import MARK

PROGRAM = "python -m reproduction"
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
ALL = "all"
PHOTOS, GRAPH, TABLE = ("sic", "pointing", "resnet", "figures"), ("graph",), ("criteo",)
BASELINES = ("zero", "mean", "conditional")


def names(text: str) -> list[str]:
    """The type of lists with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """The type of lists of whole numbers."""
    return sorted({options.whole(word) for word in names(text)})


def baselines(text: str) -> list[str]:
    """The type of --baseline."""
    if not set(names(text)) <= set(BASELINES):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(BASELINES)}, got {text!r}")
    return names(text)


USERS = {
    **dict.fromkeys(("photos", "limit", "model"), PHOTOS),
    "judge": ("sic", "resnet"),
    **dict.fromkeys(("graphs", "panels", "seeds"), GRAPH),
    "objective": (*PHOTOS, *GRAPH),
    "budget": (*PHOTOS, *GRAPH, *TABLE),
    **dict.fromkeys(("tables", "label", "rows", "loyalty", "k", "baseline"), TABLE),
    **dict.fromkeys(("models", "selections", "mask_finetune", "start"), TABLE),
}
"""The reproductions that use an option, where not all do."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m reproduction`."""
    whole = options.whole
    lines = "; ".join(f"{name}: {line}" for name, line in REPRODUCTIONS.items())
    what = [*REPRODUCTIONS, ALL]
    parser.add_argument("what", choices=what, metavar="WHAT", help=f"{lines}; {ALL}")
    add = options.group(parser, "photos").add_argument
    add("--photos", nargs="+", metavar="DIR", help="your own ImageNet folder or photos")
    add("--limit", type=whole, metavar="N", help="photos, drawn by the seed (default: all)")
    add("--model", metavar="NAME", help="another network, also yours: package.module:factory")
    add("--judge", metavar="NAME", help="network of the second opinion, or none")
    add = options.group(parser, "graphs").add_argument
    add("--graphs", metavar="DIR", help="a folder with cora.npz, pubmed.npz, OGB's ogbn_arxiv")
    add("--panels", type=names, metavar="A,B", help="of cora, pubmed, arxiv (default: all)")
    add("--seeds", type=whole, metavar="N", help="networks trained for each graph (default: 5)")
    add = options.group(parser, "method").add_argument
    add("--methods", type=names, metavar="A,B", help="some of the methods, as the CSV files say")
    add("--objective", metavar="NAME", help="only softmax, or only log-likelihood")
    add("--budget", type=whole, metavar="N", help="gradients (tables: batches) of a method at most")
    add = options.group(parser, "tables").add_argument
    add("--tables", nargs="+", metavar="TABLE", help="generated, kdd, adult, or paths of tables")
    add("--label", metavar="NAME", help="label of tables given by their path (default: label)")
    add("--rows", type=whole, metavar="N", help="rows of the generated table")
    add("--loyalty", type=float, metavar="R", help="correlation of its copies (default: 0.99)")
    add("--k", type=numbers, metavar="K,K", help="columns kept (default: 5,10,20,30)")
    add("--baseline", type=baselines, metavar="A,B", help=f"of {', '.join(BASELINES)}")
    add("--models", type=whole, metavar="N", help="networks trained on all columns")
    add("--selections", type=whole, metavar="N", help="selections of every network")
    add("--mask-finetune", action="store_true", help="select also after fine-tuning with masks")
    add("--start", choices=("zero", "rate"), default="zero", help="output bias of fresh networks")
    add = options.group(parser, "output").add_argument
    add("--out", metavar="FOLDER", default="out/reproduction", help="(default: %(default)s)")
    resume = argparse.BooleanOptionalAction
    add("--resume", action=resume, default=True, help="keep what was measured before")
    options.add_hardware(parser, batch_size=False)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run one reproduction or all, and print the tables."""
    with joined(args.device) as group:
        if not group.first:  # One process speaks for all.
            terminal.follow()
        # With photos of one's own, `all` is all that is about photos.
        every = PHOTOS if args.photos is not None else tuple(REPRODUCTIONS)
        chosen = every if args.what == ALL else (args.what,)
        _refuse_unused(args, chosen)
        out = outputs.folder(Path(args.out))
        for name in chosen:
            page, *others = [out / file.format(name) for file in job_class(name).FILES]
            outputs.refuse_foreign([page], MARK.encode())
            outputs.refuse_foreign([file for file in others if file.suffix == ".png"])
        results = [_one(name, args, terminal, out, group) for name in chosen]
        failed = [failure for result in results for failure in result.failed]
        if failed:
            terminal.note(f"{len(failed)} left out: {', '.join(Path(n).name for n, _ in failed)}")
        records = {result.name: _record(result) for result in results}
        terminal.result(records[args.what] if args.what != ALL else {"reproductions": records})
        return FAILED if failed and group.first else DONE


def _refuse_unused(args: argparse.Namespace, chosen: Sequence[str]) -> None:
    """Refuse an option that nothing that is run uses."""
    defaults = {option.name: option.default for option in fields(Request)}
    for name, users in USERS.items():
        if getattr(args, name) != defaults[name] and not set(users) & set(chosen):
            raise UsageError(
                f"Expected --{name.replace('_', '-')} with {', '.join(users)} (got it with "
                f"{', '.join(chosen)})."
            )
    if args.mask_finetune and "conditional" in (args.baseline or ()):
        raise UsageError("Expected --baseline zero or mean with --mask-finetune (got conditional).")


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

        given = {f.name: getattr(args, f.name) for f in fields(Request) if hasattr(args, f.name)}
        try:
            device = options.device(own_device(args.device))
            own = {"out": out, "device": device, "group": group, "progress": progress}
            result = reproduce(name, Request(**given | own))
        except KeyboardInterrupt:
            raise Stopped(f"Stopped {name} after {done} of {total} pieces of its work.") from None
        except (InvalidInput, InvalidType, FileNotFoundError) as error:
            raise UsageError(str(error)) from error
    group.barrier()  # A process that ends early would end the one that writes.
    _print(result, terminal)
    return result


def _print(result: Result, terminal: Terminal) -> None:
    """The table for people, and the first remarks."""
    table = result.table
    columns = [column for column in table.columns if column != "setting"]
    rows = [[table.cell(row, column) for column in columns] for row in table.rows]
    terminal.say(result.title)
    terminal.table([table.columns[column] for column in columns], rows, names=len(columns))
    for remark in result.remarks[:2]:
        terminal.say(remark)
    if result.files:
        folder = outputs.shown(result.files[0].parent)
        terminal.say(f"Wrote {folder}: {', '.join(f.name for f in result.files)}")


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
