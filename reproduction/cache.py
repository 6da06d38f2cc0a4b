"""Results of single photos on disk, one small file each, so that a run can stop and go on.

A file's name holds a digest of all that its content depends on: what is found there is what would
be computed again. Files are written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greedypig.results.files import write_whole

from .settings import digest

SCHEMA = 1


@dataclass(frozen=True)
class Shelf:
    """The folder of a reproduction's single results."""

    folder: Path

    def place(self, group: str, name: str, *depends: object) -> Path:
        """Where the result called `name` of `group` lies, given all that it depends on."""
        return self.folder / group / f"{name}.{digest(SCHEMA, *depends)}.json"


def read(path: Path) -> dict[str, Any] | None:
    """A result that is there and whole, else None."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(record, allow_nan=False))
