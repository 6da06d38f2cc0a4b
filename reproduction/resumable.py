"""Photos × methods → one small result each: resumable, and shared among processes.

The work is cut into batches of a few photos that run in lockstep. How it is cut depends on the
photos and methods alone, so one process and many do the same batches and find the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from greedypig.core.errors import GreedyPigError, MissingPackage

from . import cache
from .request import Request
from .settings import Contender

Item = TypeVar("Item")


@dataclass(frozen=True)
class Task:
    """One result that is wanted."""

    place: Path
    """Its file."""
    what: Any
    """What it is about."""


@dataclass(frozen=True)
class Batch:
    """Tasks that run together."""

    label: str
    """For the progress bar."""
    tasks: tuple[Task, ...]
    run: Callable[[Sequence[Any]], Iterator[dict[str, Any]]]
    """From what some of the tasks are about to their results, in order."""


def carry_out(batches: Sequence[Batch], request: Request) -> None:
    """Do this process's share of what is not done yet, and wait for the others.

    A task that fails leaves the reason as its result, and is tried again the next time.
    """
    own = request.group.share(batches)
    for i, batch in enumerate(own):
        request.progress(batch.label, i, len(own))
        left = [t for t in batch.tasks if not (request.resume and _done(t))]
        if left:
            _do(batch, left)
    request.progress("", len(own), len(own))
    request.group.barrier()


TOGETHER = 4
"""Items that one piece of work explains side by side."""


def in_turn(
    items: Sequence[Item], contenders: Sequence[Contender]
) -> Iterator[tuple[Contender, tuple[Item, ...]]]:
    """Batches of items for every contender: all contenders on some items before the next ones.

    A run that is stopped thus leaves whole comparisons on some photos.
    """
    for start in range(0, len(items), TOGETHER):
        for contender in contenders:
            yield contender, tuple(items[start : start + TOGETHER])


def _done(task: Task) -> bool:
    found = cache.read(task.place)
    return found is not None and "error" not in found


def _do(batch: Batch, tasks: Sequence[Task]) -> None:
    done = 0
    try:
        for record in batch.run([task.what for task in tasks]):
            cache.write(tasks[done].place, record)
            done += 1
    except (MissingPackage, OSError):
        raise
    except Exception as error:
        if len(tasks) == 1:
            cache.write(tasks[0].place, {"error": _sentence(error)})
            return
        # One of several failed: each alone, to know which.
        for task in tasks[done:]:
            _do(batch, [task])


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, GreedyPigError) else f"{type(error).__name__}: {text}"
