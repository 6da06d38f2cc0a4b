"""A reproduction's settings and the paper's numbers, from the TOML file of its name.

Everything that could be argued about lies in that file: which network, which methods with which
knobs, what the paper reports. The code around it measures.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.resources import files
from typing import Any

from greedypig.core.errors import InvalidInput
from greedypig.core.layout import Layout
from greedypig.core.methods import with_knobs
from greedypig.tensors.methods import choose, within

OBJECTIVES = ("softmax", "log-likelihood")
"""What reproductions climb."""
PHOTO = (3, 224, 224)
"""What networks for photos take, where nothing else is known."""


@dataclass(frozen=True)
class Contender:
    """A method as it runs in a reproduction."""

    name: str
    """For --methods and in files."""
    title: str
    """In tables, as the paper calls it where it has it."""
    knobs: Mapping[str, Any]
    """The name of its method and its knobs; none of them takes what `gp.explain` chooses."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """What the paper reports of it."""
    rankings: tuple[str | None, ...] = (None,)
    """How its features are ranked; None is the usual way of its kind."""
    budget: int | None = None
    """Gradients at most."""
    shape: tuple[int, ...] = PHOTO
    """Of the network's input."""

    def method(self, objective: str = OBJECTIVES[0]) -> Any:
        """The method for this objective, within the budget."""
        method = self._uncut(objective)
        return method if self.budget is None else within(method, self.budget)

    def _uncut(self, objective: str) -> Any:
        if not self.knobs:
            return choose(Layout("tensor", ("x",), (self.shape,)), objective)
        knobs = dict(self.knobs)
        return with_knobs(knobs.pop("method"), **knobs)

    def meaning(self, objective: str = OBJECTIVES[0]) -> str:
        """The method with all its knobs: two runs with the same meaning give the same result."""
        return repr(self.method(objective))

    def within(self, budget: int | None, shape: tuple[int, ...] = PHOTO) -> Contender:
        """The same with at most `budget` gradients; its title says so where that changes it."""
        contender = replace(self, budget=budget, shape=shape)
        if budget is None:
            return contender
        cut = any(contender.method(o) != contender._uncut(o) for o in OBJECTIVES)
        return replace(contender, title=f"{self.title} (cut)") if cut else replace(contender, budget=None)


@dataclass(frozen=True)
class Settings:
    """The file of a reproduction."""

    name: str
    title: str
    model: str
    judge: str | None
    contenders: tuple[Contender, ...]
    differs: tuple[str, ...]
    """How our setting differs from the paper's, whatever is run."""
    knobs: tuple[str, ...]
    """The same of what a budget cuts: true of the methods as the file has them."""
    paper: Mapping[str, Any]
    """The paper's numbers and setting beside those of the methods."""
    more: Mapping[str, Any]
    """What else the file says."""

    @staticmethod
    def of(name: str) -> Settings:
        """The settings of the reproduction called `name`."""
        text = (files("reproduction") / f"{name}.toml").read_text(encoding="utf-8")
        read = tomllib.loads(text)
        contenders = tuple(
            Contender(m["name"], m["title"], m["method"], m.get("paper", {}),
                      tuple(r or None for r in m.get("rankings", ("",))))
            for m in read.pop("methods", ())
        )  # fmt: skip
        known = {key: read.pop(key, None) for key in ("title", "model", "judge")}
        return Settings(
            name, contenders=contenders, differs=tuple(read.pop("differs", ())),
            knobs=tuple(read.pop("knobs", ())), paper=read.pop("paper", {}), more=read, **known,
        )  # fmt: skip

    def closing(self, quick: Sequence[str]) -> list[str]:
        """The last remarks: that a budget cut the run, if `quick` says so, and what differs."""
        knobs = [f"Uncut: {text}" for text in self.knobs] if quick else self.knobs
        return [*quick, *self.differs, *knobs]

    def chosen(
        self,
        names: Sequence[str] | None,
        budget: int | None = None,
        shape: tuple[int, ...] = PHOTO,
    ) -> tuple[Contender, ...]:
        """The contenders called `names`, in the order of the file; all for None. shape: of the
        network's input, which a method within a budget may depend on."""
        known = [c.name for c in self.contenders]
        for name in names or ():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise InvalidInput(
                    f"Expected methods of {self.name} among {', '.join(known)} (got {name!r})."
                    f"{hint}"
                )
        wanted = [c for c in self.contenders if names is None or c.name in names]
        if not wanted:
            raise InvalidInput(f"Expected methods among {', '.join(known)} (got none).")
        return tuple(c.within(budget, shape) for c in wanted)


def quick_look(contenders: Sequence[Contender]) -> list[str]:
    """The remark that a budget has cut some of the methods; none where it has not."""
    return [
        f"Run with at most {budget:,} gradients a method, fewer than the paper's: a quick look."
        for budget in {c.budget for c in contenders if c.budget is not None}
    ]


def digest(*parts: object) -> str:
    """A short digest for names of files."""
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
