"""`greedypig compare photo.jpg`: several methods on the same photos, by the same curves."""

from __future__ import annotations

import argparse
from os import fspath
from pathlib import Path
from typing import Any

import greedypig as gp

from ..core.methods import GreedyPIG, as_method
from ..tensors.methods import within
from . import compare_output, options, outputs
from .compare_output import Comparison
from .explain import PhotoRun, Question, explained, failed_record, new_session, photo_names
from .failures import DONE, FAILED, UsageError
from .methods import Search
from .terminal import Terminal

DESCRIPTION = """\
Explain photos by several methods and compare them. SIC AUC: the area under the softmax information
curve, the probability with only the best features (higher is better). LIC AUC: the area under the
loss information curve, the distance from the whole photo's prediction (lower is better). With
several photos both are of the median curve. One-shot methods rank features by absolute score, as in
the paper. Writes a table (Markdown and CSV), a figure, a page and every result into a folder."""
EXAMPLES = """\
  greedypig compare photo.jpg
  greedypig compare holiday/ --judge mobilenet-v2 --out results
  greedypig compare photo.jpg --methods steady-pig,greedy-pig,paper,ig --budget 100"""
TITLES = {"paper": "greedy-pig (paper)", "regions": "greedy-pig (regions)"}
"""The titles of methods that are no method's own name."""
NAMES = (
    *("steady-pig", "greedy-pig", "paper", "sequential-gradient", "ig", "smooth-ig", "blur-ig"),
    *("guided-ig", "gradient", "regions", "random"),
)
"""The methods as they are typed."""
USUAL = tuple(name for name in NAMES if name not in ("paper", "gradient"))


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig compare`."""
    options.add_photos(parser)
    options.add_model(parser)
    method = options.group(parser, "method")
    words = (
        f"the methods to run: {', '.join(NAMES)}; paper is Greedy PIG in the paper's setting (100 "
        "rounds of 20 gradients, slow), regions is Greedy PIG on superpixels (default: all but "
        "paper and gradient)"
    )
    names = options.names_of(NAMES)
    method.add_argument("--methods", type=names, metavar="A,B,…", default=USUAL, help=words)
    words = (
        "about N gradients for every method (default: its own number), by more or fewer rounds and "
        "steps; the paper's setting never takes more than its own"
    )
    method.add_argument("--budget", type=options.whole, metavar="N", help=words)
    options.add_features(method)
    options.add_hardware(parser)
    options.add_folder(parser, "photo-comparison, or comparison for several photos")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run every method on every photo, print the table, write the files."""
    if args.objective == "counterfactual":
        raise UsageError(
            "Expected an objective of what is present (got --objective counterfactual): methods "
            "are compared by the prediction with only the best features, and a counterfactual is "
            "about the prediction without them. Try greedypig explain --objective counterfactual."
        )
    names = photo_names(args.photos)
    usual = f"{next(iter(names)).stem}-comparison" if len(names) == 1 else "comparison"
    folder = outputs.result_folder(args.out, usual)
    folders = dict(zip(names, outputs.stems(fspath(folder), list(names)), strict=True))
    outputs.refuse_foreign(each / "comparison.html" for each in folders.values())
    outputs.refuse_foreign(folder / f"comparison.{ending}" for ending in compare_output.ENDINGS)
    runs = []
    for path, name in names.items():
        for method in args.methods:
            session = new_session(folders[path] / f"{_slug(method)}.gpig", args)
            search = Search(method_of(method, args.budget))
            features = gp.superpixels() if method == "regions" else None
            runs.append(PhotoRun(path, name, session, search, features, TITLES.get(method, method)))
    outputs.refuse_foreign(each.session.result for each in runs)
    question = Question.of(args, terminal, ranking="absolute")
    results: dict[str, dict[Path, gp.Attribution]] = {}
    failed: dict[str, str] = {}
    with terminal.bar("") as bar:
        for each, a in explained(question, runs, terminal, bar, failed):
            results.setdefault(each.method, {})[each.path] = a
    # A photo that failed with one method is left out of all.
    whole = [path for path in names if fspath(path) not in failed]
    comparison = Comparison(
        {method: {path: photos[path] for path in whole} for method, photos in results.items()}
        if whole
        else {}
    )
    files: list[Path] = []
    if whole:
        files = compare_output.write(comparison, folder, folders, failed)
        compare_output.show(comparison, terminal, files, args.budget)
    record = compare_output.record(comparison, args, files)
    terminal.result(record | {"failed": failed_record(failed)})
    return FAILED if failed else DONE


def method_of(name: str, budget: int | None) -> Any:
    """The method of that name; with a budget it takes about that many gradients."""
    if name == "paper":
        method: Any = GreedyPIG(rounds=100, steps=20, schedule="equal")
    else:
        method = as_method("greedy-pig" if name == "regions" else name)
    return method if budget is None else within(method, budget, stretch=name != "paper")


def _slug(method: str) -> str:
    """The name of a method's file."""
    return f"greedy-pig-{method}" if method in TITLES else method
