"""One explanation and its files: rounds are kept, and --resume goes on from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
        try:
            with _folder(self.result.parent):
                remove_stale_parts(self.partial)
                a = self._explained(explain)
                a.save(self.result)
        except KeyboardInterrupt:
            raise Stopped(stopped) from None
        self.partial.unlink(missing_ok=True)
        return a

    def _explained(self, explain: Explain) -> gp.Attribution:
        saved = self._saved()
        try:
            if saved == self.result:
                with suppress(OtherQuestion):  # An earlier run may have had other settings.
                    return explain(saved)
            return explain(self.partial)
        except BudgetTooSmall as error:  # It is too small for every input.
            raise UsageError(*error.pieces) from error
        except OtherQuestion as error:
            hint = "Try the options of the stopped run, or no --resume."
            raise Unfit(*error.sentence, advice=hint) from error
        except (InvalidInput, InvalidType) as error:
            raise Unfit(*error.pieces) from error

    def _saved(self) -> Path | None:
        """The file to go on from, if it is asked for and there: rounds, else a result."""
        if not self.resume:
            self.partial.unlink(missing_ok=True)
        for file in (self.partial, self.result):
            if self.resume and file.exists():
                try:
                    gp.load(file)
                except InvalidFile as error:
                    hint = "Try without --resume, to begin anew."
                    raise Unfit(*error.pieces, advice=hint) from error
                return file
        return None


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make the folder, and remove it again if nothing was written."""
    new = [place for place in (path, *path.parents) if not place.exists()]
    folder(path)
    try:
        yield
    finally:
        for place in new:
            if any(place.iterdir()):
                break
            place.rmdir()
