"""What is asked: a set function, its features, and what a result records of where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from torch import Tensor

from .attribution import Attribution
from .features import Elements, Features
from .objective import Objective
from .rounds import State
from .two_sided import as_objective

FactsAndTensors: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Tensor]]
"""Facts and tensors, as `Attribution.with_notes` takes them."""


def _no_notes() -> FactsAndTensors:
    return {}, {}


def _unchanged(problem: int, attribution: Attribution) -> Attribution:
    return attribution


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
    memory: Callable[[], FactsAndTensors] = _no_notes
    """What was paid and measured up to now and is not in the state; asked after every step."""
    take_up: Callable[[Attribution], object] = id
    """Takes the memory from the saved result that the run goes on from."""

    @staticmethod
    def of(objective: Any, features: Features | None = None) -> Question:
        """A set function alone."""
        asked = as_objective(objective)
        records = (Record(),) * asked.b
        return Question(asked, features or Elements(asked.n), records)

    def start(self) -> State:
        """The state before the first round."""
        state = State.start(self.objective, self.features)
        return replace(state, values=self.known, full_values=self.full)
