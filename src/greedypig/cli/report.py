"""`greedypig report result.gpig`: the page again, from the file alone. No model is needed."""

from __future__ import annotations

import argparse
import webbrowser
from os import fspath
from os.path import relpath
from pathlib import Path

import greedypig as gp

from .. import report
from ..core.errors import GreedyPigError
from . import options, outputs
from .failures import DONE, FAILED, UsageError, sentence
from .terminal import Terminal

DESCRIPTION = """\
Write the page of saved results again. Everything on it comes from the .gpig file: no model, no
photo and no network connection are needed. With a folder, index.html links
all pages."""
EXAMPLES = """\
  greedypig report photo.gpig --open
  greedypig report results/*.gpig --out pages"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig report`."""
    parser.add_argument("results", nargs="+", metavar="RESULT", help="a .gpig file, or a folder")
    output = options.group(parser, "output")
    output.add_argument(
        "--out",
        metavar="PATH",
        help="a folder for the pages; for one result also a file, x.html (default: beside the "
        "result)",
    )
    output.add_argument("--open", action="store_true", help="show the page in the browser")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write a page for every result; one that fails is reported and does not end the others."""
    sources = _sources(args.results)
    stems = sources if args.out is None else outputs.stems(args.out, sources)
    pages = [stem.with_name(f"{stem.name.removesuffix('.gpig')}.html") for stem in stems]
    outputs.refuse_foreign(pages)
    folders = [args.out, *(given for given in args.results if Path(given).is_dir())]
    folder = next(filter(None, folders), None) if len(sources) > 1 else None
    index = None if folder is None else Path(folder) / "index.html"
    outputs.refuse_foreign([index] if index else [])
    written: dict[Path, gp.Attribution] = {}
    failed: list[dict[str, str]] = []
    for source, page in zip(sources, pages, strict=True):
        try:
            a = gp.load(source)
            report.write(a, page)
        except GreedyPigError as error:
            failed.append({"result": fspath(source), "reason": str(error)})
            terminal.fail(sentence(error))
            continue
        written[page] = a
        terminal.say(f"wrote {outputs.shown(page)}")
    files = list(written)
    if index is not None and written:
        links = {Path(relpath(page, index.parent)).as_posix(): a for page, a in written.items()}
        lost = [(failure["result"], failure["reason"]) for failure in failed]
        report.write_index(links, index, failed=lost)
        files.append(index)
        terminal.say(f"wrote {outputs.shown(index)}")
    for page in files[-1:] if args.open else []:
        webbrowser.open(page.resolve().as_uri())
    terminal.result({"files": [fspath(file) for file in files], "failed": failed})
    return FAILED if failed else DONE


def _sources(given: list[str]) -> list[Path]:
    """The result files that the words mean, each once."""
    files: dict[Path, None] = {}
    for path in map(Path, given):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*.gpig") if not p.name.startswith("."))
        else:
            inside = [path] if path.exists() else []
        if not inside:
            raise UsageError(f"Expected .gpig files at {path} (got none).")
        files.update(dict.fromkeys(inside))
    return list(files)
