"""One explanation and its files: Ctrl-C saves the rounds done, and --resume goes on from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import greedypig as gp

from ..core.errors import BudgetTooSmall, InvalidFile, InvalidInput, InvalidType
from ..core.run import Run
from ..core.scorers import cost_of
from .failures import Stopped, Unfit, UsageError
from .outputs import folder

Explain: TypeAlias = Callable[[gp.Attribution | None], gp.Attribution]
FORWARDS_PER_GRADIENT = 2.5
"""A gradient takes about as long as this many forward passes; for the progress bar alone."""


@dataclass
class Session:
    """One call of a command for one result: its file, and beside it the rounds of a stopped run.

    It is called with the run, before its first round and after every one, as `progress=`.
    """

    result: Path
    resume: bool
    forwards: int = 0
    """Forward passes that follow the run, for the progress bar."""
    run: Run | None = None
    """The run under way."""
    finished: bool = False

    def __call__(self, run: Run) -> None:
        """Take note of the run."""
        self.run = run

    def share(self) -> float:
        """The share of the work that is done; the curves are the rest."""
        if self.run is None:
            return 0.0
        g = self.run.objective
        planned = cost_of(self.run.scorer) * g.lines * g.sides * len(self.run.schedule)
        planned = min(planned, self.run.stop.gradients or planned)
        done = FORWARDS_PER_GRADIENT * min(self.run.gradients_used, planned)
        return done / max(FORWARDS_PER_GRADIENT * planned + self.forwards, 1)

    @property
    def partial(self) -> Path:
        """photo.partial.gpig for photo.gpig."""
        return self.result.with_name(f"{self.result.stem}.partial{self.result.suffix}")

    def answer(self, explain: Explain, stopped: str) -> gp.Attribution:
        """The result, saved; with --resume from the saved rounds.

        explain: gives the result from a saved one or None, and calls the session with its run.
        stopped: says what was stopped by Ctrl-C, after the rounds done were saved.
        """
        try:
            return self._answer(explain)
        except KeyboardInterrupt:
            self._keep()
            raise Stopped(stopped) from None

    def _answer(self, explain: Explain) -> gp.Attribution:
        saved = self._saved()
        try:
            a = explain(saved)
        except BudgetTooSmall as error:  # It is too small for every input.
            raise UsageError(*error.pieces) from error
        except (InvalidInput, InvalidType, Unfit) as error:
            if saved is None or self.partial.exists():
                hint = (
                    "" if saved is None else "Try the options of the stopped run, or no --resume."
                )
                raise Unfit(*error.pieces, advice=hint) from error
            a = explain(None)  # The result was that of an earlier run with other settings.
        folder(self.result.parent)
        a.save(self.result)
        self.finished = True
        self.partial.unlink(missing_ok=True)
        return a

    def _keep(self) -> None:
        """Save the rounds done so far, if any, unless the result itself is saved."""
        if not self.finished and self.run is not None and self.run.state.picks:
            folder(self.partial.parent)
            self.run.results(measure=False)[0].save(self.partial)

    def _saved(self) -> gp.Attribution | None:
        """The saved rounds or result to go on from. A new run forgets rounds of other settings."""
        if not self.resume:
            self.partial.unlink(missing_ok=True)
            return None
        for file in (self.partial, self.result):
            if file.exists():
                try:
                    return gp.load(file)
                except InvalidFile as error:
                    raise Unfit(
                        *error.pieces, advice="Try without --resume, to begin anew."
                    ) from error
        return None
