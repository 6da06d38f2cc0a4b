"""Options that the commands for graphs share, and what their words mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..graphs.files import KINDS
from ..graphs.objectives import OBJECTIVES
from . import options
from .failures import UsageError
from .methods import add_rounds


def add_graph(parser: argparse.ArgumentParser) -> None:
    """The graph and how to read it."""
    parser.add_argument("graph", metavar="GRAPH", help=KINDS)
    group = options.group(parser, "graph")
    group.add_argument(
        "--nodes", metavar="FILE", help="the table of nodes, for an edge list as CSV or Parquet"
    )
    group.add_argument(
        "--label", metavar="NAME", help="its column of classes (default: label, y or class)"
    )
    group.add_argument(
        "--directed",
        action="store_true",
        help="keep the directions of edges (default: an edge in one direction counts as both)",
    )


def add_network(parser: argparse.ArgumentParser) -> None:
    """Your own network, or how the paper's is trained."""
    group = options.group(parser, "model")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="package.module:factory for your own, called as model(x, edge_index, edge_weight) "
        "(default: the paper's GCN, trained here)",
    )
    group.add_argument(
        "--weights", metavar="FILE", help="weights of the model, .safetensors or .pt: no training"
    )
    group.add_argument("--hidden", type=options.whole, metavar="N",
                       help="width of the GCN (default: 64; 256 in large graphs)")  # fmt: skip
    group.add_argument("--layers", type=options.whole, metavar="N", help="its layers (default: 3)")
    group.add_argument("--epochs", type=options.whole, metavar="N",
                       help="epochs of training (default: 300; large graphs: 100)")  # fmt: skip


def add_search(group: argparse._ArgumentGroup, objective: str = "log-probability") -> None:
    """What is maximised, by default `objective`, and the rounds."""
    names = [name for name in OBJECTIVES if name != "label-loss"]
    group.add_argument(
        "--objective",
        default=objective,
        choices=names,
        metavar="NAME",
        help=f"what to maximise: {', '.join(names)} (default: %(default)s)",
    )
    add_rounds(group, per_round=False)


def add_output(parser: argparse.ArgumentParser, ending: str) -> None:
    """The folder of the results; `folder_name` makes the default of the same ending."""
    group = options.group(parser, "output")
    group.add_argument("--out", metavar="FOLDER",
                       help=f"folder of the results (default: graph-{ending})")  # fmt: skip
    options.add_resume(group)


def share(text: str) -> float:
    """The type of --keep: 0.5 or 50%."""
    plain = text.strip().removesuffix("%").strip()
    try:
        number = float(plain) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        number = -1
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(
            f"expected a share above 0 and up to 1, such as 0.5 or 50%, got {text!r}"
        )
    return number


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options that were given."""
    return {n: getattr(args, n) for n in names if getattr(args, n, None) is not None}


def folder_name(args: argparse.Namespace, graph_name: str, ending: str) -> Path:
    """The folder of the results: --out, else the graph's name with an ending, here."""
    if args.out is None:
        return Path(f"{graph_name}-{ending}")
    if Path(args.out).suffix.lower() in (".gpig", ".html", ".npz"):
        raise UsageError(f"Expected a folder as --out (got {args.out}).")
    return Path(args.out)
