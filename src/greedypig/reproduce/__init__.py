"""The paper's tables and figures, measured anew, with its numbers beside ours.

One module per table or figure, named in `MODULES`. It defines `ABOUT` (one line), `FILES` (what it
writes) and `run(request) -> Result`; its settings and the paper's numbers are in the TOML file of
its name. What photos and methods need in common is in `sample` (photos), `engine` (resumable work
on several processes), `shelf` (results of single photos) and `information` (curves).
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from ..core.errors import InvalidInput
from .request import Request, Result, Table
from .settings import Settings

__all__ = ["MODULES", "Reproduction", "Request", "Result", "Settings", "Table", "reproduction"]

MODULES = ("sic", "pointing", "resnet", "figures")
"""The reproductions there are, in the order of `all`."""


class Reproduction(Protocol):
    """What a reproduction's module defines."""

    ABOUT: str
    FILES: tuple[str, ...]

    def run(self, request: Request) -> Result:
        """Measure what is not measured yet and write the files."""


def reproduction(name: str) -> Reproduction:
    """The module of the reproduction called `name`."""
    if name not in MODULES:
        raise InvalidInput(f"Expected a reproduction: {', '.join(MODULES)} (got {name!r}).")
    module: Reproduction = import_module(f"{__name__}.{name}")
    return module
