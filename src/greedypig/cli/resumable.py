"""One explanation and its files: rounds are kept, and --resume goes on from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import greedypig as gp

from ..core.errors import BudgetTooSmall, InvalidFile, InvalidInput, InvalidType, OtherQuestion
from ..results.files import remove_stale_parts
from .failures import Stopped, Unfit, UsageError
from .outputs import folder

Explain: TypeAlias = Callable[[Path], gp.Attribution]
"""Gives the result; rounds are saved to the path, and taken up from it."""


@dataclass
class Session:
    """One call of a command for one result: its file, and beside it the rounds of a stopped run.

    It is the `progress=` of the call.
    """

    result: Path
    resume: bool
    searching: float = 1.0
    """The share of the work that is the search, for the progress bar."""
    done: float = 0.0
    """The share of the search that is done."""

    def __call__(self, done: float, total: float | None) -> None:
        """Take note of the rounds done."""
        self.done = done / max(1.0, total or 1.0)

    def share(self) -> float:
        """The share of the work that is done."""
        return self.searching * self.done

    @property
    def partial(self) -> Path:
        """photo.partial.gpig for photo.gpig."""
        return self.result.with_name(f"{self.result.stem}.partial{self.result.suffix}")

    def answer(self, explain: Explain, stopped: str) -> gp.Attribution:
        """The result, saved; with --resume from the saved rounds, or from an earlier result.

        stopped: says what was stopped by Ctrl-C, after the rounds done were saved.
        """
        folder(self.result.parent)
        remove_stale_parts(self.partial)
        if not self.resume:
            self.partial.unlink(missing_ok=True)
        try:
            a = self._explained(explain)
        except KeyboardInterrupt:
            raise Stopped(stopped) from None
        a.save(self.result)
        self.partial.unlink(missing_ok=True)
        return a

    def _explained(self, explain: Explain) -> gp.Attribution:
        try:
            if self.resume and self.result.exists() and not self.partial.exists():
                try:
                    return explain(self.result)
                except OtherQuestion:  # An earlier run had other settings.
                    pass
            return explain(self.partial)
        except BudgetTooSmall as error:  # It is too small for every input.
            raise UsageError(*error.pieces) from error
        except OtherQuestion as error:
            hint = "Try the options of the stopped run, or no --resume."
            raise Unfit(*error.sentence, advice=hint) from error
        except InvalidFile as error:
            raise Unfit(*error.pieces, advice="Try without --resume, to begin anew.") from error
        except (InvalidInput, InvalidType) as error:
            raise Unfit(*error.pieces) from error
