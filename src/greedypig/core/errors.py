"""The few things that can go wrong, each also the builtin a caller would expect to catch.

Messages read "Expected … (got …). Try …" and name shapes, never tensor contents. A message that the
command line shows names parameters as `Argument`s, which the command line writes as its options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .attribution import Attribution

NAMED = 6
"""Names that a sentence lists."""


@dataclass(frozen=True)
class Argument:
    """A parameter in a message, alone or with a value: target, or features='words'."""

    name: str
    value: Any = ...

    def __str__(self) -> str:
        return self.name if self.value is ... else f"{self.name}={self.value!r}"


Advice: TypeAlias = "str | Argument | tuple[str | Argument, ...]"
"""What to do, in pieces; an argument alone stands for "Try features='words'."."""


class Message(Exception):
    """A sentence, and an advice after it, whose pieces are texts and arguments.

    argument: the name of the parameter it is about, by default the first in the sentence.
    """

    def __init__(
        self, *sentence: str | Argument, argument: str | None = None, advice: Advice = ""
    ) -> None:
        super().__init__("".join(map(str, sentence)))
        if isinstance(advice, Argument):
            advice = ("Try ", advice, ".")
        self.sentence, self._advice = sentence, (advice,) if isinstance(advice, str) else advice
        names = (piece.name for piece in sentence if isinstance(piece, Argument))
        self.argument = next(names, None) if argument is None else argument

    @property
    def advice(self) -> str:
        """What to do, in a sentence; empty where the advice is part of the message."""
        return "".join(map(str, self._advice))

    @property
    def pieces(self) -> tuple[str | Argument, ...]:
        """The texts and arguments that `str` joins."""
        return (*self.sentence, " ", *self._advice) if self.advice else self.sentence

    def __str__(self) -> str:
        return "".join(map(str, self.pieces))


class GreedyPigError(Message):
    """Root of every error raised on purpose by this package."""


class GreedyPigWarning(Message, UserWarning):
    """A warning that names parameters."""


class InvalidInput(GreedyPigError, ValueError):
    """An argument has the wrong value, shape or range."""


class OtherQuestion(InvalidInput):
    """A checkpoint is of another question; the sentence says what was asked otherwise."""

    def __init__(self, *difference: str | Argument, checkpoint: str) -> None:
        file = Argument("checkpoint", checkpoint)
        super().__init__(
            *difference,
            advice=(
                "Try that question again, or another file than ",
                file,
                ". It was not changed.",
            ),
        )


class BudgetTooSmall(InvalidInput):
    """The budget does not reach for one round; `needed` gradients would."""

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(
            *("Expected ", Argument("gradients")),
            f" to be at least {needed}, the cost of one round (got {budget}).",
            advice=("Try ", Argument("gradients", needed), ", or fewer ", Argument("steps"), "."),
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

    @property
    def pieces(self) -> tuple[str | Argument, ...]:
        """The texts and arguments that `str` joins, with the round."""
        where = () if self.round is None else (f" This was in round {self.round}.",)
        return (*super().pieces, *where)


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


def levels_to_caller() -> int:
    """The stacklevel of the first frame outside this package, seen from our caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] != "greedypig":
            break
        frame, level = frame.f_back, level + 1
    return level
