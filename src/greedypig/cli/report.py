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
from . import outputs
from .failures import DONE, FAILED, UsageError
from .terminal import Terminal


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write a page for every result; one that fails is reported and does not end the others."""
    sources = _sources(args.results)
    stems = sources if args.out is None else outputs.stems(args.out, sources)
    pages = [stem.with_name(f"{stem.name.removesuffix('.gpig')}.html") for stem in stems]
    folders = [path for path in (args.out, *args.results) if path and Path(path).is_dir()]
    index = Path(folders[0]) / "index.html" if folders and len(sources) > 1 else None
    outputs.refuse_foreign([*pages, *([] if index is None else [index])])
    written: dict[Path, gp.Attribution] = {}
    failed: dict[str, str] = {}
    for source, page in zip(sources, pages, strict=True):
        try:
            a = gp.load(source)
            report.write(a, page)
        except GreedyPigError as error:
            failed[fspath(source)] = reason = terminal.sentence(error)
            terminal.fail(reason)
            terminal.result({"result": fspath(source), "error": reason})
        else:
            written[page] = a
            terminal.say(f"wrote {outputs.shown(page)}")
            terminal.result({"result": fspath(source), "files": [fspath(page)]})
    files = list(written)
    if index is not None and written:
        links = {Path(relpath(page, index.parent)).as_posix(): a for page, a in written.items()}
        report.write_index(links, index, failed=list(failed.items()))
        files.append(index)
        terminal.say(f"wrote {outputs.shown(index)}")
    if args.open and files:
        webbrowser.open(files[-1].resolve().as_uri())
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
