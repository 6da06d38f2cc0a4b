"""The paper's tables and figures, measured anew, with its numbers beside ours.

`REPRODUCTIONS` names them. Each is a subclass of `Job`; its settings and the paper's numbers are in
the TOML file of its name. `run("sic", Request(out=Path("out")))` is `python -m reproduction sic`.
"""

from __future__ import annotations

from importlib import import_module

from greedypig.core.errors import InvalidInput

from .job import Job
from .output import Result, Table
from .settings import Contender, Request, Settings

__all__ = ["REPRODUCTIONS", "Contender", "Job", "Request", "Result", "Settings", "Table", "run"]

REPRODUCTIONS = {
    "sic": "softmax and loss information curves of five methods, MobileNetV2 (Figure 2)",
    "pointing": "the pointing game on 2 × 2 grids, MobileNetV2 (Figure 3)",
    "resnet": "softmax information curve of PIG and Greedy PIG, ResNet50 (appendix)",
    "figures": "the tabby and tench pictures: top 15,000, two objectives, blocks (appendix)",
    "graph": "graphs compressed to a share of their edges, and nodes explained (Figure 4)",
    "lemmas": "copies of the best column: IG takes them all, Greedy PIG does not (Section 4)",
    "criteo": "loss after retraining on the top k columns of a table (the Criteo table)",
}
"""Every reproduction, in the order of `all`, each in a line."""
CLASSES = {
    "sic": "curves:Curves",
    "pointing": "pointing:Pointing",
    "resnet": "curves:Curves",
    "figures": "figures:Figures",
    "graph": "graph:Compression",
    "lemmas": "lemmas:Lemmas",
    "criteo": "criteo:Retraining",
}


def job_class(name: str) -> type[Job]:
    """The class of the reproduction called `name`."""
    if name not in CLASSES:
        raise InvalidInput(f"Expected a reproduction: {', '.join(CLASSES)} (got {name!r}).")
    module, _, title = CLASSES[name].partition(":")
    job: type[Job] = getattr(import_module(f"{__name__}.{module}"), title)
    return job


def run(name: str, request: Request) -> Result:
    """Measure what is not measured yet, and write the files."""
    return job_class(name)(name, request).run()
