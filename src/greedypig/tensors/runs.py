"""A problem carried out: from where a saved run stopped, saved and shown on the way."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike, fspath
from pathlib import Path

import torch

from ..core.attribution import Attribution, Round
from ..core.errors import InvalidInput
from ..core.rounds import Problem, Rounds
from ..results import storage

CALLABLES = ("objective", "loss")
"""What may be a function of the user's own, and is then told from others in the provenance."""


def carry_out(
    problem: Problem,
    *,
    resume: Attribution | str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[Rounds], object] = False,
    result: Callable[[Rounds], Attribution] = Rounds.attribution,
) -> Attribution:
    """Run one problem to its end. `result` makes of the rounds what is saved and returned."""
    if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
        raise InvalidInput(
            f"Expected checkpoint to be a file in a folder that is there (got "
            f"{fspath(checkpoint)!r})."
        )
    if resume is not None:
        take_up(problem, resume)
    events = Rounds(problem)
    if checkpoint is None and not progress:
        events.finish()
        return result(events)
    watch = progress if callable(progress) else None
    try:
        if watch is not None:
            watch(events)
        for done in events:
            if checkpoint is not None:
                result(events).save(checkpoint)
            if watch is not None:
                watch(events)
            elif progress:
                _show(done, len(problem.schedule))
    finally:
        if progress and watch is None:
            _show(None, 0)
    return result(events)


def take_up(problem: Problem, resume: Attribution | str | PathLike[str]) -> Attribution:
    """Put a problem where a saved run of it stopped; the saved run."""
    saved = resume if isinstance(resume, Attribution) else storage.load(resume)
    for what in ("model", "input", *CALLABLES):
        if saved.provenance.get(what) != problem.provenance.get(what):
            own = " Try the same function, closing over the same values." * (what in CALLABLES)
            raise InvalidInput(
                f"Expected the {what} of the saved run (got another: fingerprints differ).{own}"
            )
    problem.resume(saved)
    return saved


def _show(done: Round | None, rounds: int) -> None:
    if not sys.stderr.isatty():
        return
    if done is None:
        sys.stderr.write("\r\x1b[K")
    else:
        sys.stderr.write(
            f"\r\x1b[Kround {done.index + 1}/{rounds}, {done.gradients_used} gradients, "
            f"{done.seconds:.1f} s"
        )
    sys.stderr.flush()


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Of this package and what it stands on, for provenance."""
    try:
        own = version("greedypig")
    except PackageNotFoundError:
        own = "unknown"
    return {"greedypig": own, "torch": str(torch.__version__), "python": platform.python_version()}
