"""One explanation that may take several sittings: what is done is kept, and taken up again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

import greedypig as gp

from ..core.errors import (
    GreedyPigError,
    InvalidFile,
    InvalidInput,
    InvalidType,
    MissingPackage,
)
from .failures import Stopped, Unfit, UsageError, sentence
from .outputs import folder
from .photo_job import Watch
from .terminal import Terminal

PARTIAL = ".partial"


class Question(Protocol):
    """What is asked about an input: of a photo, or of a graph."""

    def explain(
        self, x: Tensor, search: Mapping[str, Any], watch: Watch, resume: gp.Attribution | None
    ) -> gp.Attribution:
        """The explanation alone."""

    def with_notes(self, a: gp.Attribution, x: Tensor, source: str, command: str) -> gp.Attribution:
        """The explanation with all that is told of it."""

    def told(self, saved: gp.Attribution) -> bool:
        """Does a saved result tell all that is asked for now?"""


@dataclass(frozen=True)
class Paid:
    """What earlier sittings have paid."""

    gradients: int = 0
    seconds: float = 0.0


@dataclass
class Sitting:
    """The result's file, and beside it what is kept of a run that was stopped."""

    result: Path
    resume: bool
    watch: Watch = field(default_factory=Watch)
    before: Paid = Paid()
    finished: bool = False

    @property
    def partial(self) -> Path:
        """photo.partial.gpig for photo.gpig."""
        return self.result.with_name(f"{self.result.stem}{PARTIAL}{self.result.suffix}")

    def answer(
        self, question: Question, search: Mapping[str, Any], x: Tensor, source: str, command: str
    ) -> gp.Attribution:
        """The result with its notes, saved; an earlier sitting's is taken up if asked for."""
        saved = self._saved()
        if saved is not None:
            self.before = Paid(saved.gradients_used, saved.seconds)
        try:
            a = question.explain(x, search, self.watch, saved)
        except (InvalidInput, InvalidType) as error:
            hint = "" if saved is None else " Try the options of the stopped run, or no --resume."
            raise Unfit(f"{error}{hint}") from error
        if saved is not None and _nothing_new(saved, a, question):
            a = saved
        else:
            self.watch.measuring = True
            a = question.with_notes(a, x, source, command)
        folder(self.result.parent)
        a.save(self.result)
        self.finished = True
        self.partial.unlink(missing_ok=True)
        return a

    def watched_by(self, terminal: Terminal) -> Sitting:
        """The same, with its files told when the command is stopped."""
        for file in (self.partial, self.result):
            terminal.keeps(file, self.resume)
        return self

    def keep(self) -> None:
        """Save the rounds done so far, if any, unless the result itself is saved."""
        rounds = None if self.finished else self.watch.so_far()
        if rounds is not None:
            folder(self.partial.parent)
            rounds.save(self.partial)

    @contextmanager
    def minded(self, stopped: str) -> Iterator[None]:
        """While it runs: Ctrl-C keeps what is done, a mistake is one of the command."""
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
        if not self.resume:
            return None
        for file in (self.partial, self.result):
            if file.exists():
                try:
                    return gp.load(file)
                except InvalidFile as error:
                    raise Unfit(f"{error} Try without --resume, to begin anew.") from error
        return None


def _nothing_new(saved: gp.Attribution, a: gp.Attribution, question: Question) -> bool:
    """Is the saved result whole, and does it tell all that is asked for now?"""
    same = torch.equal(saved.order, a.order) and saved.gradients_used == a.gradients_used
    return same and question.told(saved) and saved.stop is not gp.StopReason.RUNNING
