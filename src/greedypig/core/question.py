"""What is asked: a set function, its features, and what a result records of where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from torch import Tensor

from .attribution import Attribution
from .errors import InvalidInput
from .facts import Facts
from .features import Elements, Features
from .objective import Objective
from .revisions import Revision
from .rounds import State
from .rules import StopRule
from .two_sided import as_objective

FactsAndTensors: TypeAlias = tuple[Facts, Mapping[str, Tensor]]
"""Facts and tensors, as `Attribution.with_notes` takes them."""

Memory: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Tensor]]
"""Facts by name, and tensors, that a run that goes on needs."""


def _no_notes() -> FactsAndTensors:
    return Facts(), {}


def _no_memory() -> Memory:
    return {}, {}


def _no_take_up(saved: Attribution) -> None:
    """Nothing is taken from the saved result."""


def _unchanged(problem: int, attribution: Attribution) -> Attribution:
    return attribution


def alone_among(revisions: Sequence[Revision], rules: Sequence[StopRule]) -> list[str]:
    """The names of those that look at one problem alone: every revision, and some rules."""
    names = [revision.name for revision in revisions]
    return names + [rule.name for rule in rules if not rule.side_by_side]


@dataclass(frozen=True)
class Record:
    """What the result of one problem records beside the run."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything that was asked, but for the method's own knobs."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, and digests of the model, the input and functions of the caller's."""
    notes: Callable[[], FactsAndTensors] = _no_notes
    """What people are told; asked whenever a result is made."""
    example: int = 0
    """The place in the caller's list of examples; random numbers depend on it."""


@dataclass(frozen=True, eq=False)
class Question:
    """An objective and its features, for b problems side by side."""

    objective: Objective
    features: Features
    records: tuple[Record, ...]
    """One for each problem."""
    known: Mapping[int, Tensor] = field(default_factory=dict)
    """(b,) G(S) after this number of rounds, where it is known before the run."""
    full: Tensor | None = None
    """(b,) G of everything, where it is known before the run."""
    finish: Callable[[int, Attribution], Attribution] = _unchanged
    """(problem, its result) → its result with what is measured once the search is over."""
    memory: Callable[[], Memory] = _no_memory
    """What was paid and measured up to now and is not in the state; asked after every step."""
    take_up: Callable[[Attribution], object] = _no_take_up
    """Takes the memory from the saved result that the run goes on from."""

    def __post_init__(self) -> None:
        if self.features.n != self.objective.n:
            raise InvalidInput(
                f"Expected features over {self.objective.n} values (got {self.features.n})."
            )

    @staticmethod
    def of(objective: Any, features: Features | None = None) -> Question:
        """A set function alone."""
        asked = as_objective(objective)
        records = (Record(),) * asked.b
        return Question(asked, features or Elements(asked.n), records)

    def examples(self, first: int = 0) -> tuple[int, ...]:
        """The place of every problem in the caller's list of examples."""
        return tuple(first + record.example for record in self.records)

    def settings(
        self, *parts: Mapping[str, Any], examples: Sequence[int]
    ) -> tuple[dict[str, Any], ...]:
        """What each result records of how it was made; of equal names the last one wins."""
        knobs = {name: value for part in parts for name, value in part.items()}
        return tuple(
            {**record.settings, **knobs, **({"example": place} if place else {})}
            for record, place in zip(self.records, examples, strict=True)
        )

    def check(self, revisions: Sequence[Revision], rules: Sequence[StopRule]) -> None:
        """Refuse features that a revision does not fit, and what looks at one problem alone where
        there are several."""
        for revision in revisions:
            revision.check(self.features)
        alone = alone_among(revisions, rules)
        if alone and self.objective.b > 1:
            raise InvalidInput(
                f"Expected one problem for {alone[0]} (got {self.objective.b}). "
                "Try one after the other."
            )

    def start(self) -> State:
        """The state before the first round."""
        state = State.start(self.objective, self.features)
        return replace(state, values=self.known, full_values=self.full)
