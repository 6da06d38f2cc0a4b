"""The one road from a question to its result: checkpoints, rounds, progress, what is measured last.

Every way to explain something ends here, so a guarantee that is given here is given everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import torch

from .attribution import Attribution
from .errors import Argument, InvalidInput, InvalidType, OtherQuestion
from .features import Features
from .methods import MethodLike
from .progress import Progress, ProgressLike
from .question import Question
from .run import Run
from .stopping import Stop, StopReason

PathOrText: TypeAlias = str | PathLike[str]
CALLABLES = ("objective", "loss")
"""Functions of the caller's own that provenance tells from others."""
BETWEEN = 1.0
"""Seconds between two writings of a checkpoint, at least."""


def carry_out(
    question: Question,
    method: MethodLike,
    *,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int | tuple[int, int] = 0,
    checkpoint: PathOrText | None = None,
    saves: Sequence[PathOrText] = (),
    progress: ProgressLike = None,
    writes: bool = True,
) -> list[Attribution]:
    """The result of each of the question's problems by a method.

    checkpoint: a file, for one problem. If it is there, it must be of this question, and the run
    goes on from it. Rounds are saved to it, and in the end the result. saves: files of several
    problems, which are written alike. writes: does this process write them? progress: is told the
    rounds done and all rounds.
    """
    run = Run(question, method, k=k, stop=stop, seed=seed)
    saved = None if checkpoint is None else _saved(checkpoint, run)
    if saved is not None:
        run.go_on_from(saved)
    rounds_before = len(run.state.picks)
    paths = [*saves] if checkpoint is None else [checkpoint]
    keep = _Keeper(run, paths if writes else [])
    told = Progress(progress)
    told(len(run.state.picks), _planned(run))
    try:
        for state in run:
            keep.now_and_then()
            told(len(state.picks), _planned(run))
    finally:  # An error or Ctrl-C leaves the rounds done.
        told.end()
        keep.rounds()
    finished = saved is not None and saved.stop is not StopReason.RUNNING
    if saved is not None and finished and len(run.state.picks) == rounds_before:
        return [saved]
    with torch.inference_mode(False):
        results = [question.finish(b, attribution) for b, attribution in enumerate(run.results())]
    for path, attribution in zip(keep.paths, results, strict=False):
        attribution.save(path)
    return results


def _planned(run: Run) -> int:
    """How many rounds there are, as far as the schedule and the gradients allow."""
    rounds, limit = len(run.schedule), run.stop.gradients
    if limit is None or not run.cost:
        return rounds
    return min(rounds, len(run.state.picks) + (limit - run.state.gradients) // run.cost)


class _Keeper:
    """Writes the rounds done to a file for each problem."""

    def __init__(self, run: Run, paths: Sequence[PathOrText]) -> None:
        self.run, self.paths = run, paths
        self.written, self.time = len(run.state.picks), time.monotonic()

    def now_and_then(self) -> None:
        """Write the rounds if the last writing is some time ago."""
        if self.paths and time.monotonic() - self.time >= BETWEEN:
            self.rounds()
            self.time = time.monotonic()

    def rounds(self) -> None:
        """Write the rounds that are not written."""
        done = len(self.run.state.picks)
        if self.paths and done > self.written:
            reason, self.run.reason = self.run.reason, StopReason.RUNNING
            for path, attribution in zip(self.paths, self.run.results(measure=False), strict=True):
                attribution.save(path)
            self.written, self.run.reason = done, reason


def check_checkpoint(checkpoint: PathOrText | None) -> None:
    """Refuse a file in a folder that is not there, before the run rather than after its rounds."""
    if not isinstance(checkpoint, str | PathLike | None):
        raise InvalidType(
            f"Expected checkpoint to be a path (got {checkpoint!r}).", argument="checkpoint"
        )
    if checkpoint is None:
        return
    if not fspath(checkpoint) or not Path(checkpoint).absolute().parent.is_dir():
        raise InvalidInput(
            f"Expected checkpoint to be a file in a folder that exists "
            f"(got {fspath(checkpoint)!r}).",
            argument="checkpoint",
        )


def _saved(checkpoint: PathOrText, run: Run) -> Attribution | None:
    """The saved rounds of this question; None where there is no file."""
    check_checkpoint(checkpoint)
    if run.objective.b > 1:
        raise InvalidInput(
            f"Expected one problem for checkpoint (got {run.objective.b}).", argument="checkpoint"
        )
    if not Path(checkpoint).exists():
        return None
    load: Callable[[PathOrText], Attribution]
    load = import_module("greedypig.results.storage").load  # Files are above this room.
    saved = load(checkpoint)
    if difference := _difference(saved, run):
        raise OtherQuestion(*difference, checkpoint=fspath(checkpoint))
    return saved


def _difference(saved: Attribution, run: Run) -> tuple[str | Argument, ...]:
    """What the saved run was asked otherwise than this one, in a sentence; else nothing."""
    provenance = run.question.records[0].provenance
    for what in ("model", "input", "held-out rows", *CALLABLES):
        if saved.provenance.get(what) != provenance.get(what):
            return (f"Expected the {what} of the saved run (got another: fingerprints differ).",)
    if not _same_features(saved.features, run.features):
        return ("Expected the features of the saved run (got others).",)
    names = {*run.settings[0], *saved.settings} - {"batch_size"}
    for name in sorted(names, key=lambda name: (name != "method", name)):
        before, now = saved.settings.get(name), run.settings[0].get(name)
        if before != now:  # Batches change the last bits at most.
            setting = Argument(name, before)
            return "Expected the settings of the saved run, ", setting, f" (got {now!r})."
    return ()


def _same_features(one: Features, other: Features) -> bool:
    (settings, tensors), (others, other_tensors) = one.state(), other.state()
    return settings == others and all(
        torch.equal(tensors[name].cpu(), other_tensors[name].cpu()) for name in tensors
    )
