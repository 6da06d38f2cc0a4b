"""What a reproduction is asked for, and its settings with the paper's numbers.

Everything that could be argued about is in a TOML file: which network, which methods with which
knobs, what the paper reports. A `Request` holds what the command line asks on top of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from greedypig.core.errors import InvalidInput, did_you_mean
from greedypig.core.layout import Layout
from greedypig.core.methods import with_knobs
from greedypig.tables.distributed import ALONE, Group
from greedypig.tensors.methods import choose, within

OBJECTIVES = ("softmax", "log-likelihood")
PHOTO = Layout("tensor", ("x",), ((3, 224, 224),))
"""What the networks of the paper see."""
NOT_IN_COMMAND = ("out", "device", "resume", "group", "progress")


@dataclass(frozen=True)
class Request:
    """One run of a reproduction; None takes what its settings say."""

    out: Path
    """Folder of the results, and of the single results that a stopped run goes on from."""
    photos: Sequence[str] | None = None
    graphs: str | None = None
    panels: Sequence[str] | None = None
    seeds: int | None = None
    """Networks trained for each graph."""
    limit: int | None = None
    """Number of photos, drawn by the seed; a larger number only adds photos."""
    methods: Sequence[str] | None = None
    objective: str | None = None
    budget: int | None = None
    """Gradients of a method at most, for a quick look."""
    model: str | None = None
    judge: str | None = None
    """Network of the second opinion; "none" for none."""
    tables: Sequence[str] | None = None
    """"generated", names of tables of `make assets`, or paths."""
    label: str | None = None
    """Label column of tables given by path."""
    rows: int | None = None
    loyalty: float | None = None
    """Correlation of the generated table's copies with their source."""
    k: Sequence[int] | None = None
    baseline: Sequence[str] | None = None
    models: int | None = None
    selections: int | None = None
    mask_finetune: bool = False
    """Also select by networks that were fine-tuned with columns masked at random."""
    start: str = "zero"
    """Output bias of a fresh network: "zero", or the label's "rate"."""
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    resume: bool = True
    """Keep results that were measured before."""
    group: Group = ALONE
    progress: Callable[[str, int, int], object] = lambda label, done, total: None
    """Called before every piece of work: its label, pieces done, pieces in all."""

    def command(self, name: str) -> str:
        """The options that decide what is measured, as they are typed; without folders."""
        words = [name]
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in NOT_IN_COMMAND or value is None or value == option.default:
                continue
            if option.name in ("photos", "graphs"):
                value = "DIR"
            elif option.name == "tables":
                value = " ".join(Path(v).name for v in value)
            elif isinstance(value, Sequence) and not isinstance(value, str):
                value = ",".join(map(str, value))
            words.append(f"--{option.name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
        return " ".join(words)


@dataclass(frozen=True)
class Contender:
    """A method as it runs in a reproduction."""

    name: str
    """Its name in --methods and in files."""
    title: str
    """Its name in tables; the paper's where the paper has it."""
    knobs: Mapping[str, Any]
    """The name of its method and its knobs; empty for what `gp.explain` chooses."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's numbers."""
    rankings: tuple[str | None, ...] = (None,)
    """How its features are ranked; None is the default of the method."""
    budget: int | None = None
    """Gradients at most; None where that cuts nothing."""

    def __hash__(self) -> int:
        return hash(self.name)

    def method(self, objective: str = OBJECTIVES[0]) -> Any:
        """The method for this objective, within the budget."""
        knobs = dict(self.knobs)
        method = choose(PHOTO, objective)
        if knobs:
            method = with_knobs(knobs.pop("method"), **knobs)
        return method if self.budget is None else within(method, self.budget)

    def within(self, budget: int) -> Contender:
        """The same with at most `budget` gradients; its title says so where that changes it."""
        cut = replace(self, budget=budget, title=f"{self.title} (cut)")
        changes = any(cut.method(o) != self.method(o) for o in OBJECTIVES)
        return cut if changes else self


@dataclass(frozen=True)
class Settings:
    """The TOML file of a reproduction."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    differs: tuple[str, ...]
    """How our setting differs from the paper's."""
    paper: Mapping[str, Any]
    """The paper's setting."""
    more: Mapping[str, Any]
    """The rest of the file."""

    @staticmethod
    def of(name: str) -> Settings:
        """The settings of the reproduction called `name`."""
        content = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
        contenders = tuple(
            Contender(m["name"], m["title"], m["method"], m.get("paper", {}), rankings)
            for m in content.pop("methods")
            for rankings in [tuple(m.get("rankings", (None,)))]
        )
        title, differs = content.pop("title"), tuple(content.pop("differs"))
        return Settings(name, title, contenders, differs, content.pop("paper", {}), content)

    def chosen(
        self, names: Sequence[str] | None, budget: int | None = None
    ) -> tuple[Contender, ...]:
        """The contenders of these names, in the order of the file; None takes all."""
        known = [c.name for c in self.contenders]
        for name in names or ():
            if name not in known:
                raise InvalidInput(
                    f"Expected methods of {self.name} among {', '.join(known)} (got {name!r})."
                    f"{did_you_mean(name, known)}"
                )
        wanted = [c for c in self.contenders if names is None or c.name in names]
        if not wanted:
            raise InvalidInput(f"Expected methods among {', '.join(known)} (got none).")
        return tuple(c if budget is None else c.within(budget) for c in wanted)
