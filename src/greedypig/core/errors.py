"""The few things that can go wrong, each also the builtin a caller would expect to catch.

Messages read "Expected … (got …). Try …" and name shapes, never tensor contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .attribution import Attribution

NAMED = 6
"""Names that a sentence lists."""


class GreedyPigError(Exception):
    """Root of every error raised on purpose by this package."""


class InvalidInput(GreedyPigError, ValueError):
    """An argument has the wrong value, shape or range."""


class OtherQuestion(InvalidInput):
    """A checkpoint is of another question; `difference` says what was asked otherwise."""

    def __init__(self, difference: str, checkpoint: str) -> None:
        super().__init__(
            f"{difference} Try that question again, or another file than "
            f"checkpoint={checkpoint!r}, which was not changed."
        )
        self.difference = difference


class BudgetTooSmall(InvalidInput):
    """The budget does not reach for one round; `needed` gradients would."""

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(
            f"Expected a budget of at least one round's {needed} gradients (got {budget}). "
            f"Try gradients={needed}, or fewer steps."
        )
        self.needed, self.budget = needed, budget


class InvalidType(GreedyPigError, TypeError):
    """An argument has the wrong type or dtype."""


class NotDifferentiable(GreedyPigError, ValueError):
    """The objective has no gradient with respect to its features."""


class NonFinite(GreedyPigError, ArithmeticError):
    """A value or gradient is NaN or infinite; `so_far` holds the results of the rounds before."""

    so_far: tuple[Attribution, ...] = ()
    round: int | None = None
    """The round that failed, from 1; None outside of rounds."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.round is None else f"{text} This was in round {self.round}."


class InvalidFile(GreedyPigError, ValueError):
    """A file is corrupt, truncated, foreign, or written by a newer version."""


class DiskFull(GreedyPigError, OSError):
    """There is no space for a file; no part of it was written."""


class MissingPackage(GreedyPigError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


def listed(texts: Sequence[str], most: int = NAMED) -> str:
    """Texts for a sentence; of many the first few."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def quoted(names: Sequence[str]) -> str:
    """Names for a sentence, in quotation marks; of many the first few."""
    return listed([repr(name) for name in names])


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about a name: a suggestion if there is a near one, else nothing."""
    near = get_close_matches(name.lower(), list(names), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def first_line(error: BaseException) -> str:
    """The start of another library's message, for a sentence."""
    return (str(error).strip().splitlines() or [""])[0][:160]
