"""What a reproduction is asked for, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from greedypig.tables.distributed import ALONE, Group

Progress = Callable[[str, int, int], object]
"""Told before every piece of work: what it is, how many pieces are done, how many there are."""


def _silent(label: str, done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class TableRequest:
    """What is asked of reproductions on tables; None is as the settings say."""

    tables: Sequence[str] | None = None
    """"generated", names of tables of `make assets`, paths of one's own."""
    label: str | None = None
    """Of tables of one's own."""
    rows: int | None = None
    """Of the generated table."""
    loyalty: float | None = None
    """How like their source the copies of the generated table are: a correlation."""
    k: Sequence[int] | None = None
    baselines: Sequence[str] | None = None
    models: int | None = None
    selections: int | None = None
    retrainings: int | None = None
    mask_finetune: bool = False
    """Also select by copies of the networks that were fine-tuned with columns masked?"""
    start: str = "zero"
    """Where fresh networks' outputs start: at 0, or at the label's "rate"."""

    def words(self) -> dict[str, Any]:
        """The options that were given, for the command's words; of paths only the names."""
        lists = {"k": self.k, "baseline": self.baselines}
        lists["tables"] = self.tables and [Path(t).name for t in self.tables]
        given: dict[str, Any] = {n: ",".join(map(str, v)) for n, v in lists.items() if v}
        for name in ("rows", "loyalty", "label", "models", "selections", "retrainings"):
            given[name] = getattr(self, name)
        given["start"] = None if self.start == "zero" else self.start
        return given


@dataclass(frozen=True)
class Request:
    """One run of a reproduction; what is None is as its settings say."""

    out: Path
    """Folder of the results, and of what is kept of runs that were stopped."""
    photos: Sequence[str] | None = None
    """Photos and folders; None takes those of `make assets`."""
    graphs: str | None = None
    """Folder of graphs; None takes those of `make assets`."""
    panels: Sequence[str] | None = None
    """Only these graphs of the figure."""
    seeds: int | None = None
    """How many networks are trained for a graph."""
    limit: int | None = None
    """How many photos, drawn by the seed; a larger number only adds to them."""
    methods: Sequence[str] | None = None
    objective: str | None = None
    """Only the part with this objective."""
    model: str | None = None
    weights: str | None = None
    judge: str | None = None
    """Network for the second opinion; "none" for none."""
    budget: int | None = None
    """Most gradients of a method with knobs: for a quick look."""
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    batch_size: int | Literal["auto"] = "auto"
    tables: TableRequest = field(default_factory=TableRequest)
    resume: bool = True
    """Take results that are there already?"""
    group: Group = ALONE
    progress: Progress = _silent

    def words(self, name: str) -> str:
        """The command's words that tell what was measured; no paths."""
        given = {
            "photos": "DIR" if self.photos is not None else None,
            "graphs": "DIR" if self.graphs is not None else None,
            "panels": ",".join(self.panels) if self.panels is not None else None,
            "seeds": self.seeds,
            "limit": self.limit,
            "methods": ",".join(self.methods) if self.methods is not None else None,
            "objective": self.objective,
            "budget": self.budget,
            "model": self.model,
            "weights": "FILE" if self.weights is not None else None,
            "judge": self.judge,
            **self.tables.words(),
            "seed": self.seed or None,
        }
        flags = ["--mask-finetune"] if self.tables.mask_finetune else []
        said = [f"--{k} {v}" for k, v in given.items() if v is not None]
        return " ".join([name, *said, *flags])


@dataclass(frozen=True)
class Table:
    """Numbers of ours beside the paper's."""

    columns: Mapping[str, str]
    """From a column's key to its heading."""
    rows: Sequence[Mapping[str, Any]]
    formats: Mapping[str, str] = field(default_factory=dict)
    """How to write a column's numbers; three decimals otherwise."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """From a column to the one that holds its standard error."""
    digits: Mapping[str, int] = field(default_factory=dict)
    """Decimals of a column's standard error; three otherwise."""


@dataclass(frozen=True)
class Result:
    """What was found, for people, for files and for programs."""

    name: str
    title: str
    table: Table
    remarks: Sequence[str] = ()
    """The setting and what differs from the paper's, a sentence or two each."""
    failed: Sequence[tuple[str, str]] = ()
    """Photos that could not be read or explained, each with the reason."""
    files: Sequence[Path] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """Model, judge, seed and the like, for --json."""
    spoken: Sequence[str] | None = None
    """The remarks for the terminal, whose table shows no errors; None for the first two."""
