"""`greedypig report result.gpig`: the page again, from the file alone. No model is needed."""

from __future__ import annotations

import argparse
import webbrowser
from os import fspath
from pathlib import Path

import greedypig as gp

from .. import report
from ..core.errors import GreedyPigError
from ..results.wording import count
from . import options, outputs
from .failures import DONE, FAILED, UsageError, sentence
from .terminal import Terminal

HELP = "the interactive page again, from a result's file alone"
DESCRIPTION = """\
Write the page of saved results again. Everything on it comes from the .gpig file: no model, no
photo and no network connection are needed."""
EXAMPLES = """\
  greedypig report photo.gpig --open
  greedypig report results/*.gpig --out pages"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `greedypig report`."""
    parser.add_argument("results", nargs="+", metavar="RESULT", help="a .gpig file, or a folder")
    output = options.group(parser, "output")
    output.add_argument("--out", metavar="PATH",
                        help="a folder for the pages; for one result also a file, x.html "
                        "(default: beside the result)")  # fmt: skip
    output.add_argument("--open", action="store_true", help="show the page in the browser")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write a page for every result; one that fails is reported and does not end the others."""
    sources = _sources(args.results)
    pages = _pages(args.out, sources)
    outputs.refuse_foreign(pages)
    done: dict[Path, gp.Attribution] = {}
    failed: list[tuple[str, str]] = []
    for source, page in zip(sources, pages, strict=True):
        try:
            a = gp.load(source)
            report.write(a, page)
        except (GreedyPigError, FileNotFoundError, IsADirectoryError) as error:
            failed.append((fspath(source), str(error)))
            terminal.fail(sentence(error))
            continue
        done[page] = a
        terminal.say(f"wrote {outputs.shown(page)}")
    if len(pages) > 1 and failed:
        terminal.note(
            f"{len(failed)} of {count(len(pages), 'file')} could not be read: "
            + ", ".join(name for name, _ in failed)
        )
    if args.open:
        for page in done:
            webbrowser.open(page.resolve().as_uri())
    terminal.result(
        {"files": [fspath(page) for page in done],
         "failed": [{"result": name, "reason": reason} for name, reason in failed]}
    )  # fmt: skip
    return FAILED if failed else DONE


def _sources(given: list[str]) -> list[Path]:
    found: dict[Path, None] = {}
    for text in given:
        path = Path(text)
        if not path.is_dir():
            found[path] = None
            continue
        inside = sorted(p for p in path.rglob("*.gpig") if not p.name.startswith("."))
        if not inside:
            raise UsageError(f"Expected .gpig files in {path} (got a folder with none).")
        found.update(dict.fromkeys(inside))
    return list(found)


def _pages(out: str | None, sources: list[Path]) -> list[Path]:
    if out is None:
        return [source.with_name(source.stem + ".html") for source in sources]
    return [stem.with_name(stem.name + ".html") for stem in outputs.stems(out, sources)]
