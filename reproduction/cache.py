"""Single results on disk, one small file each, so that a run can stop and go on.

A file's name holds a digest of everything that its content depends on: a file that is there holds
what would be computed again. Files are written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from greedypig.results.files import write_whole

SCHEMA = 2


def digest(*parts: object) -> str:
    """A short digest for names of files."""
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]


def place(folder: Path, name: str, *depends: object) -> Path:
    """The file of the result called `name`, given everything that it depends on."""
    return folder / f"{name}.{digest(SCHEMA, *depends)}.json"


def read(path: Path) -> dict[str, Any] | None:
    """A result that is there and whole, else None. A failure is {"error": reason}."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(record, allow_nan=False))
