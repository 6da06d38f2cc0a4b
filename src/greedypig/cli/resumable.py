"""One explanation and its files: Ctrl-C saves the rounds done, and --resume goes on from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

import greedypig as gp

from ..core.errors import GreedyPigError, InvalidFile, InvalidInput, InvalidType, MissingPackage
from ..core.run import Run
from ..core.scorers import cost_of
from .failures import Stopped, Unfit, UsageError, sentence
from .outputs import folder
from .terminal import Terminal

FORWARDS_PER_GRADIENT = 2.5
"""A gradient takes about as long as this many forward passes; for the progress bar alone."""


class Task(Protocol):
    """An explanation that a `Session` runs: of a photo, of a graph's edges, of a node."""

    def explain(self, progress: Progress, resume: gp.Attribution | None) -> gp.Attribution:
        """Run the method, from a saved result if there is one; tell `progress` of the run."""

    def with_notes(self, a: gp.Attribution, source: str, command: str) -> gp.Attribution:
        """The result with its curves and names."""

    def is_complete(self, saved: gp.Attribution) -> bool:
        """Does a saved result have all the notes that this command asks for?"""


class Progress:
    """The run under way: the bar reads it, and its rounds are saved when the command is stopped.

    forwards: forward passes that follow the run, for curves.
    """

    def __init__(self, forwards: int = 0) -> None:
        self.run: Run | None = None
        self.forwards = forwards

    def __call__(self, run: Run) -> None:
        """Take note of a run, before its first round and after every one."""
        self.run = run

    def share(self) -> float:
        """The share of the work that is done; the curves are the rest."""
        if self.run is None:
            return 0.0
        planned = cost_of(self.run.scorer) * self.run.objective.lines * len(self.run.schedule)
        planned = min(planned, self.run.stop.gradients or planned)
        done = FORWARDS_PER_GRADIENT * min(self.run.gradients_used, planned)
        return done / max(FORWARDS_PER_GRADIENT * planned + self.forwards, 1)


@dataclass
class Session:
    """One call of a command for one result: its file, and beside it the rounds of a stopped run."""

    result: Path
    resume: bool
    progress: Progress = field(default_factory=Progress)
    finished: bool = False

    @property
    def partial(self) -> Path:
        """photo.partial.gpig for photo.gpig."""
        return self.result.with_name(f"{self.result.stem}.partial{self.result.suffix}")

    def answer(self, task: Task, source: str, command: str) -> gp.Attribution:
        """The result with its notes, saved; with --resume from the saved rounds."""
        saved = self._saved()
        try:
            a = task.explain(self.progress, saved)
        except (InvalidInput, InvalidType, Unfit) as error:
            hint = "" if saved is None else " Try the options of the stopped run, or no --resume."
            raise Unfit(f"{error}{hint}") from error
        if saved is not None and _is_same(saved, a) and task.is_complete(saved):
            a = saved
        else:
            a = task.with_notes(a, source, command)
        folder(self.result.parent)
        a.save(self.result)
        self.finished = True
        self.partial.unlink(missing_ok=True)
        return a

    def announced(self, terminal: Terminal) -> Session:
        """The same; the terminal names its files when the command is stopped."""
        for file in (self.partial, self.result):
            terminal.keeps(file, self.resume)
        return self

    def keep(self) -> None:
        """Save the rounds done so far, if any, unless the result itself is saved."""
        run = self.progress.run
        if not self.finished and run is not None and run.state.picks:
            folder(self.partial.parent)
            run.results(measure=False)[0].save(self.partial)

    @contextmanager
    def interruptible(self, stopped: str) -> Iterator[None]:
        """Ctrl-C saves the rounds done; settings that do not fit are a wrong command."""
        try:
            yield
        except KeyboardInterrupt:
            self.keep()
            raise Stopped(stopped) from None
        except (UsageError, MissingPackage):
            raise
        except GreedyPigError as error:
            if isinstance(error, OSError):
                raise
            raise UsageError(sentence(error)) from error

    def _saved(self) -> gp.Attribution | None:
        for file in (self.partial, self.result) if self.resume else ():
            if file.exists():
                try:
                    return gp.load(file)
                except InvalidFile as error:
                    raise Unfit(f"{error} Try without --resume, to begin anew.") from error
        return None


def _is_same(saved: gp.Attribution, a: gp.Attribution) -> bool:
    """Is the saved result finished, and did going on from it add nothing?"""
    same = torch.equal(saved.order, a.order) and saved.gradients_used == a.gradients_used
    return same and saved.stop is not gp.StopReason.RUNNING
