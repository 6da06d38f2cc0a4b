"""`python -m reproduction sic`: the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from os import fspath
from pathlib import Path
from typing import Any

from greedypig.cli import options, outputs
from greedypig.cli.failures import DONE, FAILED, Stopped, UsageError
from greedypig.cli.main import command_parser, run_program
from greedypig.cli.terminal import BOLD, DIM, Bar, Terminal
from greedypig.core.errors import GreedyPigError, InvalidInput, InvalidType
from greedypig.images.networks.pretrained import NAMES as MODELS
from greedypig.results.wording import count
from greedypig.tables.distributed import Group, joined, own_device

from . import MODULES, OF_PHOTOS, Request, Result, Table, TableRequest, reproduction
from .tables import MARK as PAGE_MARK
from .tables import cell

PROGRAM = "python -m reproduction"
ALL = "all"
SHORTER = {
    " AUC": "", " ↑": "", " ↓": "", ",": "", "second opinion": "2nd", "gradients": "grad.",
    "probability kept ": "", " from the whole photo": "", "more than half": "> half",
    "accuracy": "acc.", "agreement": "agr.", " edges": "",
}  # fmt: skip
"""Words of headings for narrow terminals."""
LEFT_OUT = ("setting", "photo", "share", "claim", "accuracy_40", "accuracy_50", "agreement_40",
            "same", "kept")  # fmt: skip
"""Columns that narrow terminals go without."""
BASELINES = ("zero", "mean", "conditional")
STARTS = ("zero", "rate")
TIMES = {
    "models": "networks trained on all columns",
    "selections": "selections of every network",
    "retrainings": "fresh networks for every chosen set of columns",
}
MEANT_FOR = {
    **dict.fromkeys(("photos", "limit", "model", "weights"), OF_PHOTOS),
    "judge": ("sic", "resnet"),
    "objective": (*OF_PHOTOS, "graph"),
    "budget": (*OF_PHOTOS, "graph", "criteo"),
    **dict.fromkeys(("graphs", "panels", "seeds"), ("graph",)),
    **dict.fromkeys(
        ("tables", "label", "rows", "loyalty", "k", "baseline", *TIMES, "mask_finetune", "start"),
        ("criteo",),
    ),
}
"""Options that not every reproduction looks at, each with those that do."""
OUT = "out/reproduction"
HELP = "the paper's tables and figures measured anew, its numbers beside ours"
DESCRIPTION = """\
Measure the paper's tables and figures anew. Each writes a Markdown table with the paper's numbers,
ours, the setting and what differs, CSV files, and a figure. Photos, graphs and weights are those of
'make assets' unless --photos, --graphs or --model name others. What is measured is kept in the
folder of the results, piece by piece: a run that was stopped goes on where it was, and a larger
--limit only adds to what is there. The paper's setting costs 2,000 gradients a photo, method and
objective; --budget 100 is a quick look. On several processes, with the same tables:
torchrun --nproc-per-node 4 -m reproduction sic"""
EXAMPLES = """\
  python -m reproduction sic --limit 4 --budget 50
  python -m reproduction pointing
  python -m reproduction lemmas
  python -m reproduction criteo --rows 100000 --tables generated kdd
  python -m reproduction criteo --tables criteo/train.txt
  python -m reproduction graph --panels cora,pubmed
  python -m reproduction all --photos imagenet/val --limit 1466"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m reproduction`."""
    about = "; ".join(f"{name}: {line}" for name, line in MODULES.items())
    parser.add_argument("what", choices=[*MODULES, ALL], metavar="WHAT", help=f"{about}; {ALL}")
    group = parser.add_argument_group("the photos")
    group.add_argument(
        "--photos",
        nargs="+",
        metavar="DIR",
        help="your own ImageNet folder or photos; labels are read from folder or file names "
        "(default: the photos of 'make assets')",
    )
    group.add_argument(
        "--limit",
        type=options.whole,
        metavar="N",
        help="N photos, drawn by the seed (default: all)",
    )
    group = parser.add_argument_group("the graphs")
    group.add_argument(
        "--graphs",
        metavar="DIR",
        help="a folder with cora.npz, pubmed.npz and perhaps ogbn_arxiv as OGB ships it "
        "(default: the graphs of 'make assets')",
    )
    group.add_argument("--panels", metavar="A,B,…", help="of cora, pubmed, arxiv (default: all)")
    group.add_argument("--seeds", type=options.whole, metavar="N",
                       help="networks trained for each graph (default: 5)")  # fmt: skip
    group = parser.add_argument_group("the setting")
    group.add_argument(
        "--methods",
        metavar="A,B,…",
        help="of photos: ig, smooth-ig, blur-ig, guided-ig, paper (Greedy PIG in the paper's "
        "setting), greedy-pig (our default), random; of tables: ig, greedy-1, greedy-5, "
        "permutation, random, truth (default: all of the table)",
    )
    group.add_argument("--objective", metavar="NAME", help="only softmax, or only log-likelihood")
    group.add_argument(
        "--budget",
        type=options.whole,
        metavar="N",
        help="at most N gradients a method, of tables gradient batches, for a quick look; methods "
        "are cut as in compare, none grows, and the result says so",
    )
    group.add_argument(
        "--model",
        metavar="NAME",
        help=f"another network than the paper's: {', '.join(MODELS)}, package.module:factory",
    )
    group.add_argument("--weights", metavar="FILE", help="weights of a built-in model (.pth)")
    group.add_argument(
        "--judge",
        metavar="MODEL",
        help="network for the second opinion, or none (default: efficientnet-lite0)",
    )
    _add_tables(parser.add_argument_group("tables (criteo)"))
    group = parser.add_argument_group("the results")
    group.add_argument("--out", metavar="FOLDER", default=OUT, help="(default: %(default)s)")
    group.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep what was measured before; --no-resume measures all of it again",
    )
    options.add_machine(parser)


def _add_tables(group: Any) -> None:
    """What is asked of tables."""
    group.add_argument(
        "--tables",
        nargs="+",
        metavar="TABLE",
        help="generated, kdd, adult, or paths of tables, Criteo's own files among them (default: "
        "generated, and those that 'make assets' brought)",
    )
    group.add_argument("--label", metavar="NAME", help="the label of tables given by their path")
    group.add_argument(
        "--rows", type=options.whole, metavar="N", help="rows of the generated table"
    )
    group.add_argument(
        "--loyalty",
        type=float,
        metavar="R",
        help="correlation of the generated table's copies with their source (default: 0.99)",
    )
    group.add_argument("--k", metavar="K,K,…", help="columns kept (default: 5,10,20,30)")
    group.add_argument(
        "--baseline", metavar="A,B", help="of zero, mean, conditional (default: zero)"
    )
    for what, about in TIMES.items():
        group.add_argument(f"--{what}", type=options.whole, metavar="N", help=about)
    group.add_argument(
        "--mask-finetune",
        action="store_true",
        help="also select by networks fine-tuned with columns masked at random",
    )
    group.add_argument(
        "--start",
        choices=STARTS,
        default=STARTS[0],
        help="output bias of a fresh network: zero, as the paper's, or the label's rate, as the "
        "networks of 'greedypig select' have it (default: zero)",
    )


def _of_tables(args: argparse.Namespace) -> TableRequest:
    ks = None
    if args.k is not None:
        words = [word.strip() for word in args.k.split(",") if word.strip()]
        if not words or not all(word.isdecimal() and int(word) for word in words):
            raise UsageError(f"Expected --k as whole numbers ≥ 1 with commas (got {args.k!r}).")
        ks = sorted({int(word) for word in words})
    baselines = None
    if args.baseline is not None:
        baselines = [word.strip() for word in args.baseline.split(",") if word.strip()]
        if not baselines or not set(baselines) <= set(BASELINES):
            raise UsageError(
                f"Expected --baseline of {', '.join(BASELINES)} (got {args.baseline!r})."
            )
        if args.mask_finetune and "conditional" in baselines:
            raise UsageError("Expected --baseline zero or mean with --mask-finetune, whose masks "
                             "differ from row to row (got conditional).")  # fmt: skip
    return TableRequest(
        args.tables, args.label, args.rows, args.loyalty, ks, baselines, args.models,
        args.selections, args.retrainings, args.mask_finetune, args.start,
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run one reproduction or all, tell the tables."""
    with joined(args.device) as group:
        if not group.first:  # One process speaks for all.
            terminal.follow()
        # With photos of one's own, all is all that is about photos.
        every = OF_PHOTOS if args.photos is not None else MODULES
        names = list(every) if args.what == ALL else [args.what]
        _refuse_idle(args, names)
        out = outputs.folder(Path(args.out))
        for name in names:
            terminal.keeps(out / "rows" / name, args.resume)
            files = [out / file for file in reproduction(name).FILES]
            outputs.refuse_foreign([f for f in files if f.suffix == ".png"])
            outputs.refuse_foreign([f for f in files if f.suffix == ".md"], PAGE_MARK.encode())
        results = [_one(name, args, terminal, out, group) for name in names]
        failed = [f for result in results for f in result.failed]
        if failed:
            terminal.note(f"{len(failed)} left out: {', '.join(Path(n).name for n, _ in failed)}")
        records = {result.name: _record(result) for result in results}
        terminal.result(records[args.what] if args.what != ALL else {"reproductions": records})
        return FAILED if failed and group.first else DONE


def _refuse_idle(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse an option that nothing that is run would look at."""
    for option, meant in MEANT_FOR.items():
        value = getattr(args, option)
        usual = value is None or value is False or (option == "start" and value == STARTS[0])
        if not usual and not set(meant) & set(names):
            raise UsageError(
                f"Expected --{option.replace('_', '-')} with {_either(meant)} (got it with "
                f"{_either(names)}, where it means nothing)."
            )


def _either(names: Sequence[str]) -> str:
    *others, last = names
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
            _follow(bar, f"{name}: {label}", at, of)

        try:
            result = reproduction(name).run(_request(args, out, group, progress))
        except KeyboardInterrupt:
            raise Stopped(
                f"Stopped {name} after {done} of {count(total, 'piece')} of its work."
            ) from None
        except (InvalidInput, InvalidType) as error:
            raise UsageError(str(error)) from error
    # A process that ends early, with an exit code of its own, would end the one that writes.
    group.barrier()
    _tell(result, terminal)
    return result


def _request(args: argparse.Namespace, out: Path, group: Group, progress: Any) -> Request:
    chosen, panels = (
        None if text is None else [word.strip() for word in text.split(",") if word.strip()]
        for text in (args.methods, args.panels)
    )
    try:
        device = options.device(own_device(args.device))
    except GreedyPigError as error:
        raise UsageError(str(error)) from error
    return Request(
        out, photos=args.photos, graphs=args.graphs, panels=panels, seeds=args.seeds,
        limit=args.limit, methods=chosen, objective=args.objective,
        model=args.model, weights=args.weights, judge=args.judge, budget=args.budget,
        seed=args.seed, device=device, batch_size=args.batch_size or "auto", resume=args.resume,
        group=group, progress=progress, tables=_of_tables(args),
    )  # fmt: skip


def _follow(bar: Bar, label: str, done: int, total: int) -> None:
    bar.label = label
    bar.follow(lambda: done, max(total, 1))


def _tell(result: Result, terminal: Terminal) -> None:
    """The table for people."""
    say, table = terminal.say, result.table
    say(terminal.style(terminal.wrapped(result.title), BOLD))
    lines = _lines(table, {k: h for k, h in table.columns.items() if k != "setting"})
    if len(lines[0]) > terminal.width:
        lines = _lines(table, _short(table))
    say(terminal.style(lines[0], DIM))
    for line in lines[1:]:
        say(line)
    say()
    for remark in result.remarks[:2] if result.spoken is None else result.spoken:
        say(terminal.wrapped(remark))
    if result.files:
        where = outputs.shown(result.files[0].parent)
        say(terminal.wrapped(f"Wrote {where}: {', '.join(f.name for f in result.files)}"))


def _lines(table: Table, columns: Mapping[str, str]) -> list[str]:
    """The table in columns of equal width, its head first."""
    cells = [[cell(table, row, c) for c in columns] for row in table.rows]
    heads = list(columns.values())
    widths = [max(len(h), *(len(row[i]) for row in cells)) for i, h in enumerate(heads)]
    texts = [any(isinstance(row.get(c), str) for row in table.rows) for c in columns]
    return [
        "  ".join(
            f"{text:<{w}}" if left else f"{text:>{w}}"
            for text, w, left in zip(row, widths, texts, strict=True)
        )
        for row in [heads, *cells]
    ]


def _short(table: Table) -> dict[str, str]:
    """Columns for a narrow terminal: methods by the names they are called by."""
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
    return run_program(command_parser(PROGRAM, own), {PROGRAM: own}, argv, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
