"""`python -m reproduction sic`: the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from os import fspath
from pathlib import Path
from typing import Any

from greedypig.cli import options, outputs
from greedypig.cli.commands import Command
from greedypig.cli.failures import DONE, FAILED, Stopped, UsageError
from greedypig.cli.main import command_parser, run_program
from greedypig.cli.terminal import Terminal
from greedypig.core.errors import InvalidInput, InvalidType
from greedypig.network.distributed import Group, joined, own_device

from . import REPRODUCTIONS
from .experiment import MARK, Experiment

PROGRAM = "python -m reproduction"
DESCRIPTION = """\
Measure the paper's tables and figures anew. Each writes a Markdown table with the paper's numbers,
ours, the setting and what differs, CSV files, and a figure. Photos, graphs and weights are those of
'make assets' unless --photos, --graphs or --model name others. Single results are kept in the
folder of the results: a run that was stopped goes on where it was, and a larger --limit only adds
photos. The paper's setting costs 2,000 gradients a photo, method and objective; --budget 100 is a
quick look. 'python -m reproduction WHAT --help' shows the options of one. On several processes,
with the same tables: torchrun --nproc-per-node 4 -m reproduction sic"""
EXAMPLES = """\
  python -m reproduction sic --limit 4 --budget 50
  python -m reproduction pointing
  python -m reproduction lemmas
  python -m reproduction criteo --rows 100000 --tables generated kdd
  python -m reproduction criteo --tables criteo/train.txt
  python -m reproduction graph --panels cora,pubmed
  python -m reproduction all --photos imagenet/val --limit 1466"""
ALL = "all"
BASELINES = ("zero", "mean", "conditional")
PHOTOS = ("sic", "pointing", "resnet", "figures")
USED = {
    "sic": "photos limit model judge methods objective budget",
    "pointing": "photos limit model methods objective budget",
    "resnet": "photos limit model judge methods objective budget",
    "figures": "photos limit model methods objective budget",
    "graph": "graphs panels seeds methods budget",
    "lemmas": "methods",
    "criteo": "tables label rows loyalty k baseline models selections mask_finetune start methods "
    "budget",
    "text-evidence": "limit methods",
    "text-faithfulness": "limit parts methods",
}
"""The options of each reproduction."""


def names(text: str) -> list[str]:
    """The type of lists with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """The type of lists of whole numbers."""
    return sorted({options.whole(word) for word in names(text)})


def baselines(text: str) -> list[str]:
    """The type of --baseline."""
    if not set(names(text)) <= set(BASELINES):
        raise options.WrongValue(f"some of {', '.join(BASELINES)}", text, BASELINES)
    return names(text)


WHOLE, NAMES = {"type": options.whole, "metavar": "N"}, {"type": names, "metavar": "A,B"}
OPTIONS: dict[str, dict[str, Any]] = {
    "photos": {"nargs": "+", "metavar": "DIR", "help": "your own ImageNet folder or photos"},
    "limit": {**WHOLE, "help": "photos, drawn by the seed (default: all); texts of every kind"},
    "parts": {**NAMES, "help": "of words, sentences, answers, evidence (default: all)"},
    "model": {"metavar": "NAME", "help": "another network, also yours: package.module:factory"},
    "judge": {"metavar": "NAME", "help": "network of the second opinion, or none"},
    "graphs": {"metavar": "DIR", "help": "a folder with cora.npz, pubmed.npz, OGB's ogbn_arxiv"},
    "panels": {**NAMES, "help": "of cora, pubmed, arxiv (default: all)"},
    "seeds": {**WHOLE, "help": "networks trained for each graph (default: 5)"},
    "tables": {"nargs": "+", "metavar": "TABLE", "help": "generated, kdd, adult, or paths"},
    "label": {"metavar": "NAME", "help": "label of tables given by their path (default: label)"},
    "rows": {**WHOLE, "help": "rows of the generated table"},
    "loyalty": {"type": float, "metavar": "R", "help": "correlation of its copies (default: 0.99)"},
    "k": {"type": numbers, "metavar": "K,K", "help": "columns kept (default: 5,10,20,30)"},
    "baseline": {"type": baselines, "metavar": "A,B", "help": f"of {', '.join(BASELINES)}"},
    "models": {**WHOLE, "help": "networks trained on all columns"},
    "selections": {**WHOLE, "help": "selections of every network"},
    "mask_finetune": {"action": "store_true", "help": "select also after fine-tuning with masks"},
    "start": {
        "choices": ("zero", "rate"),
        "default": "zero",
        "help": "output bias of fresh networks",
    },
    "methods": {**NAMES, "help": "some of the methods, as the CSV files name them"},
    "objective": {"metavar": "NAME", "help": "only softmax, or only log-likelihood"},
    "budget": {**WHOLE, "help": "gradients (tables: batches) of a method at most"},
}


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with the options of the reproductions that the words name."""
    what = next((word for word in words if word in (*REPRODUCTIONS, ALL)), None)
    # With --photos, `all` is every reproduction about photos.
    every = list(PHOTOS) if "--photos" in words else list(REPRODUCTIONS)
    chosen = every if what == ALL else [what] if what is not None else []

    def configure(parser: argparse.ArgumentParser) -> None:
        lines = "; ".join(f"{name}: {line}" for name, line in REPRODUCTIONS.items())
        choices = [*REPRODUCTIONS, ALL]
        parser.add_argument("what", choices=choices, metavar="WHAT", help=f"{lines}; {ALL}")
        parser.set_defaults(chosen=chosen)
        used = {option for name in chosen for option in USED[name].split()}
        add = options.group(parser, "experiment").add_argument
        for name, option in OPTIONS.items():
            if name in used:
                add(f"--{name.replace('_', '-')}", **option)
        add = options.group(parser, "output").add_argument
        add("--out", metavar="FOLDER", default="out/reproduction", help="(default: %(default)s)")
        resume = argparse.BooleanOptionalAction
        add("--resume", action=resume, default=True, help="keep what was measured before")
        options.add_hardware(parser, batch_size=False)

    return command_parser(PROGRAM, Command("", DESCRIPTION, EXAMPLES, configure), run)


def run(args: Namespace, terminal: Terminal) -> int:
    """Run one reproduction or all, and print the tables."""
    with joined(args.device) as group:
        if not group.first:  # Only one process prints.
            terminal.follow()
        out = outputs.folder(Path(args.out))
        for name in args.chosen:
            outputs.refuse_foreign([out / f"{name}.md"], MARK.encode())
            pictures = module_of(name).PICTURES
            outputs.refuse_foreign([out / picture.format(name) for picture in pictures])
        done = [_one(name, args, terminal, group) for name in args.chosen]
        failed = [failure for experiment in done for failure in experiment.failed]
        if failed:
            terminal.note(
                f"{len(failed)} left out: {', '.join(Path(name).name for name in failed)}"
            )
        records = {experiment.name: _record(experiment) for experiment in done}
        terminal.result(records[args.what] if args.what != ALL else {"reproductions": records})
        return FAILED if failed and group.first else DONE


def module_of(name: str) -> Any:
    """The module of a reproduction."""
    module = "sic" if name == "resnet" else name.replace("-", ".")
    return import_module(f"{__package__}.{module}")


def _one(name: str, args: Namespace, terminal: Terminal, group: Group) -> Experiment:
    done, total = 0, 0
    with terminal.bar(name) as bar:

        def progress(label: str, at: int, of: int) -> None:
            nonlocal done, total
            done, total = at, of
            terminal.subject = f"{name}, {label}" if label else ""
            bar.label = f"{name}: {label}"
            bar.follow(lambda: at, max(of, 1))

        try:
            device = options.device(own_device(args.device))
            words = command(name, args)
            experiment = Experiment(
                name, args, command=words, device=device, group=group, progress=progress
            )
            module_of(name).reproduce(experiment)
        except KeyboardInterrupt:
            raise Stopped(f"Stopped {name} after {done} of {total} pieces of its work.") from None
        except (InvalidInput, InvalidType, FileNotFoundError) as error:
            raise UsageError(str(error)) from error
    group.barrier()  # A process that ends early would end the one that writes.
    _print(experiment, terminal)
    return experiment


def command(name: str, args: Namespace) -> str:
    """The options that decide what is measured, as they are typed; without folders."""
    words = [name]
    for option in (*OPTIONS, "seed"):
        default = OPTIONS.get(option, {"default": 0}).get("default")
        value = getattr(args, option) if option in f"{USED[name]} seed".split() else None
        if value is None or value is False or value == default:
            continue
        if option in ("photos", "graphs"):
            value = "DIR"
        elif option == "tables":
            value = " ".join(Path(each).name for each in value)
        elif isinstance(value, list):
            value = ",".join(map(str, value))
        words.append(f"--{option.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    return " ".join(words)


def _print(experiment: Experiment, terminal: Terminal) -> None:
    """The table for people, and the first remarks."""
    table = experiment.table
    columns = [column for column in table.columns if column != "setting"]
    rows = [[table.cell(row, column) for column in columns] for row in table.rows]
    terminal.say(experiment.settings["title"])
    terminal.table([table.columns[column] for column in columns], rows, names=len(columns))
    for remark in experiment.remarks[:2]:
        terminal.say(remark)
    if experiment.files:
        names = ", ".join(file.name for file in experiment.files)
        terminal.say(f"Wrote {outputs.shown(experiment.out)}: {names}")


def _record(experiment: Experiment) -> dict[str, Any]:
    """The object of --json."""
    failed = experiment.failed.items()
    return {
        "reproduction": experiment.name,
        "rows": [dict(row) for row in experiment.table.rows],
        "settings": experiment.about,
        "differs": list(experiment.remarks),
        "failed": [{"photo": name, "reason": reason} for name, reason in failed],
        "files": [fspath(file) for file in experiment.files],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run_program(parser, argv, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
