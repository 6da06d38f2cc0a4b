"""The paper's tables and figures, measured anew, with its numbers beside ours.

One module per table or figure, named in `MODULES`. It defines `FILES` (what it writes) and
`run(request) -> Result`; its settings and the paper's numbers are in the TOML file of its name.
What they need in common is in `photos`, `resumable` (work that several processes share), `cache`
(results of single photos) and `curves`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from greedypig.core.errors import InvalidInput

from .request import Request, Result, Table, TableRequest
from .settings import Settings

__all__ = [
    "MODULES", "OF_PHOTOS", "Reproduction", "Request", "Result", "Settings", "Table",
    "TableRequest", "reproduction",
]  # fmt: skip

MODULES = {
    "sic": "softmax and loss information curves of five methods, MobileNetV2 (Figure 2)",
    "pointing": "the pointing game on 2 × 2 grids, MobileNetV2 (Figure 3)",
    "resnet": "softmax information curve of PIG and Greedy PIG, ResNet50 (appendix)",
    "figures": "the tabby and tench pictures: top 15,000, two objectives, blocks (appendix)",
    "graph": "graphs compressed to a share of their edges, and nodes explained (Figure 4)",
    "lemmas": "copies of the best column: IG takes them all, Greedy PIG does not (Section 4)",
    "criteo": "loss after retraining on the top k columns of a table (the Criteo table)",
}
"""The reproductions there are, in the order of `all`, each in a line."""

OF_PHOTOS = ("sic", "pointing", "resnet", "figures")
"""Those that --photos is about."""


class Reproduction(Protocol):
    """What a reproduction's module defines."""

    FILES: tuple[str, ...]

    def run(self, request: Request) -> Result:
        """Measure what is not measured yet and write the files."""


def reproduction(name: str) -> Reproduction:
    """The module of the reproduction called `name`."""
    if name not in MODULES:
        raise InvalidInput(f"Expected a reproduction: {', '.join(MODULES)} (got {name!r}).")
    module: Reproduction = import_module(f"{__name__}.{name}")
    return module
