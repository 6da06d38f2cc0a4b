"""Bringing assets: what is complete is left alone, what fails does not stop the rest.

`manifest.json` in the assets folder says which files were written for an asset, from which
archives, with which SHA-256. An asset is complete if all of that still holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greedypig.core.errors import GreedyPigError, InvalidInput
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.results.files import write_whole

from .archives import Archives, sha256_of
from .catalogue import CATALOGUE, Asset

__all__ = ["Outcome", "bring"]

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Outcome:
    """What became of one asset."""

    asset: Asset
    state: str
    """"there" (it was complete), "brought" or "failed"."""
    files: int = 0
    size: int = 0
    """Bytes of its files."""
    error: str = ""
    """Where it failed: one sentence."""


def bring(names: Iterable[str] = (), *, into: Path | None = None) -> Iterator[Outcome]:
    """Brings the assets of these names, or all: one outcome after the other, as they are done."""
    wanted = list(dict.fromkeys(names)) or list(CATALOGUE)
    unknown = [name for name in wanted if name not in CATALOGUE]
    if unknown:
        raise InvalidInput(
            f"Expected assets among {', '.join(CATALOGUE)} (got {', '.join(unknown)})."
        )
    return (_bring(CATALOGUE[name], into or assets_folder()) for name in wanted)


def _bring(asset: Asset, into: Path) -> Outcome:
    try:
        entry = _manifest(into).get(asset.name)
        state = "there"
        if not _complete(asset, entry, into):
            entry, state = _write(asset, into), "brought"
            _note(asset, entry, into)
    except (GreedyPigError, OSError) as error:
        return Outcome(asset, "failed", error=" ".join(str(error).split()))
    assert entry is not None
    paths = [into / name for name in entry["files"]]
    return Outcome(asset, state, len(paths), sum(path.stat().st_size for path in paths))


def _write(asset: Asset, into: Path) -> dict[str, Any]:
    archives = Archives(into / "dl")
    files = {}
    for name, content in asset.files(archives):
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.is_file() and target.read_bytes() == content):
            write_whole(target, content)
        files[name] = sha256_of(into / name)
    return {"from": _sources(asset), "files": files}


def _complete(asset: Asset, entry: Any, into: Path) -> bool:
    try:
        return bool(
            entry["from"] == _sources(asset)
            and entry["files"]
            and all(sha256_of(into / name) == digest for name, digest in entry["files"].items())
        )
    except (OSError, TypeError, KeyError, AttributeError):
        return False  # No entry, a damaged one, or a file that is gone: it is brought anew.


def _sources(asset: Asset) -> dict[str, str]:
    return {archive.file: archive.sha256 for archive in asset.archives}


def _manifest(into: Path) -> dict[str, Any]:
    try:
        content = json.loads((into / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _note(asset: Asset, entry: dict[str, Any], into: Path) -> None:
    manifest = _manifest(into) | {asset.name: entry}
    into.mkdir(parents=True, exist_ok=True)
    write_whole(into / _MANIFEST, json.dumps(manifest, indent=1) + "\n")
