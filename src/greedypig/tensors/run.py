"""A run carried out: from where a saved run stopped, saved and shown on the way."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

import torch

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.run import Run
from ..results import storage

CALLABLES = ("objective", "loss")
"""What may be a function of the user's own; provenance tells it from others."""


def saved_run(
    resume: Attribution | str | PathLike[str] | None, provenance: dict[str, str]
) -> Attribution | None:
    """The saved run to go on from, of the same model, input and functions."""
    if resume is None:
        return None
    saved = resume if isinstance(resume, Attribution) else storage.load(resume)
    for what in ("model", "input", *CALLABLES):
        if saved.provenance.get(what) != provenance.get(what):
            own = " Try the same function, closing over the same values." * (what in CALLABLES)
            raise InvalidInput(
                f"Expected the {what} of the saved run (got another: fingerprints differ).{own}"
            )
    return saved


def check_checkpoint(checkpoint: str | PathLike[str] | None) -> None:
    """Refuse a file in a folder that is not there, before the run rather than after its rounds."""
    if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
        raise InvalidInput(
            f"Expected checkpoint to be a file in a folder that exists "
            f"(got {fspath(checkpoint)!r})."
        )


class Folder:
    """The results of `explain_many` in a folder, a file for each example, by number."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise InvalidInput(
                f"Expected checkpoint to be a folder for explain_many (got a file, "
                f"{fspath(path)!r})."
            )
        self.path.mkdir(parents=True, exist_ok=True)

    def load(self, number: int) -> Attribution | None:
        """The saved result of this example, if there is one."""
        path = self._file(number)
        return storage.load(path) if path.exists() else None

    def save(self, number: int, a: Attribution) -> None:
        """Keep the result of this example."""
        a.save(self._file(number))

    def checked(self, number: int, saved: Attribution, run: Run) -> Attribution:
        """The saved result; run, which goes on from it, has nothing left to do unless a stopping
        rule now allows more."""
        if next(run, None) is None:
            return saved
        run.finish(None, None)
        a = run.results()[0]
        self.save(number, a)
        return a

    def _file(self, number: int) -> Path:
        return self.path / f"{number:05}.gpig"


class Progress:
    """Reports how many examples are done: a function of the caller's, a line on standard error, or
    nothing. The running examples count by their rounds."""

    def __init__(self, show: bool | Callable[[float, int | None], object], total: int | None):
        self.show, self.total, self.began = show, total, time.monotonic()

    def report(self, done: int, run: Run | None = None) -> None:
        """So many examples are done, and so much of the run."""
        if self.show is False:
            return
        count = float(done)
        if run is not None:
            count += run.objective.b * len(run.state.picks) / max(1, len(run.schedule))
        if callable(self.show):
            self.show(count, self.total)
            return
        of = "" if self.total is None else f" of {self.total:,}"
        left = ""
        if self.total and count:
            seconds = (time.monotonic() - self.began) * (self.total - count) / count
            left = f", {seconds:,.0f} s left"
        end = "\n" if count == self.total else ""
        print(f"\r{count:,.1f}{of} examples{left}   ", end=end, file=sys.stderr, flush=True)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of this package and of what it is built on, for provenance."""
    from greedypig import __version__

    return {
        "greedypig": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
