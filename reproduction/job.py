"""The common part of all reproductions: work in pieces that are kept, then a table, then files.

A job cuts its work into batches of tasks. How it is cut depends on the request alone, so one
process and many do the same batches and get the same numbers. Every task's result is a small file:
a run that was stopped goes on from them, and processes share the work through them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from greedypig.core.errors import GreedyPigError, InvalidInput, MissingPackage

from . import cache
from .output import Files, Result, Table
from .settings import Contender, Request, Settings

Item = TypeVar("Item")
Record = dict[str, Any]
TOGETHER = 4
"""Items that one batch explains side by side."""


@dataclass(frozen=True)
class Task:
    """One result to measure."""

    path: Path
    """The file of the result."""
    item: Any
    """What is measured: an argument of the batch's `run`."""
    name: str
    """How a failure is listed."""


@dataclass(frozen=True)
class Batch:
    """Tasks that run together."""

    label: str
    tasks: tuple[Task, ...]
    run: Callable[[Sequence[Any]], Iterable[Record]]
    """From the items of some of the tasks to their results, in order."""

    @staticmethod
    def of_one(path: Path, item: Any, label: str, run: Callable[[Any], Record]) -> Batch:
        """A batch of a single task."""
        return Batch(label, (Task(path, item, label),), lambda items: map(run, items))


class Job(ABC):
    """One run of a reproduction."""

    FILES: ClassVar[tuple[str, ...]]
    """Names of the files that it writes, the page first; {} stands for its own name."""
    contenders: tuple[Contender, ...]

    def __init__(self, name: str, request: Request) -> None:
        self.name, self.request = name, request
        self.settings = Settings.of(name)
        self.more = self.settings.more
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Check the request and load what is measured on."""

    def batches(self) -> Iterable[Batch]:
        """The work, in one stage; a job with several stages overrides `stages` instead."""
        return ()

    @abstractmethod
    def table(self) -> Table:
        """The numbers so far."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """The setting and what differs from the paper's; the first two are for the terminal."""

    @abstractmethod
    def write(self, files: Files, table: Table) -> None:
        """Write the CSV files and figures."""

    def about(self) -> dict[str, Any]:
        """Facts for --json."""
        return {}

    def stages(self) -> Iterator[list[Batch]]:
        """Batches that may run at the same time; each stage begins after the one before."""
        yield list(self.batches())

    def run(self) -> Result:
        """Measure what is not measured yet; the first of several processes writes the files."""
        for batches in self.stages():
            self.work(batches)
        result = self.result()
        if not self.request.group.first:
            return result
        files = Files(self.request.out)
        self.write(files, result.table)
        page = result.markdown(self.request.command(self.name), files.pictures)
        files.text(self.FILES[0].format(self.name), page)
        return replace(result, files=[files.paths[-1], *files.paths[:-1]])

    def result(self) -> Result:
        """The table with everything around it, from the results so far."""
        failed, table = self.failures(), self.table()
        if not table.rows:
            reason = failed[-1][1] if failed else "nothing was asked for."
            raise InvalidInput(f"Expected at least one result (got none). The last: {reason}")
        remarks = self.remarks()
        about = {"seed": self.request.seed, "budget": self.request.budget} | self.about()
        return Result(self.name, self.settings.title, table, remarks + self.closing(),
                      list(dict.fromkeys([*remarks[:2], *self.quick_look()])), failed,
                      about)  # fmt: skip

    def closing(self) -> list[str]:
        """The last remarks: that a budget cut the run, and what differs."""
        quick = self.quick_look()
        knobs = [f"Uncut: {text}" if quick else text for text in self.settings.knobs]
        return [*quick, *self.settings.differs, *knobs]

    def quick_look(self) -> list[str]:
        """The remark that a budget has cut some of the methods; none where it has not."""
        if all(c.budget is None for c in self.contenders):
            return []
        return [f"Run with at most {self.request.budget:,} gradients a method, fewer than the "
                "paper's: a quick look."]  # fmt: skip

    # Single results.

    def place(self, folder: str, name: str, *depends: object) -> Path:
        """The file of a single result, given everything that it depends on."""
        return cache.place(self.request.out / "rows" / self.name / folder, name, *depends)

    def read(self, path: Path) -> Record | None:
        """A result that was measured, and is no failure."""
        record = cache.read(path)
        return None if record is None or "error" in record else record

    def failures(self) -> list[tuple[str, str]]:
        """What was not measured, each once, with the reason."""
        reasons: dict[str, str] = {}
        for batches in self.stages():
            for task in (task for batch in batches for task in batch.tasks):
                record = cache.read(task.path) or {"error": "It was not measured."}
                if "error" in record:
                    reasons.setdefault(task.name, record["error"])
        return list(reasons.items())

    def work(self, batches: Sequence[Batch]) -> None:
        """Do this process's share of what is not done yet, and wait for the others.

        A task that fails leaves the reason as its result, and is tried again the next time.
        """
        request = self.request
        share = request.group.share(batches)
        for i, batch in enumerate(share):
            request.progress(batch.label, i, len(share))
            left = [t for t in batch.tasks if not (request.resume and self.read(t.path))]
            if left:
                _measure(batch, left)
        request.progress("", len(share), len(share))
        request.group.barrier()


def _measure(batch: Batch, tasks: Sequence[Task]) -> None:
    done = 0
    try:
        for record in batch.run([task.item for task in tasks]):
            cache.write(tasks[done].path, record)
            done += 1
    except (MissingPackage, OSError):
        raise
    except Exception as error:
        if len(tasks) == 1:
            cache.write(tasks[0].path, {"error": _sentence(error)})
            return
        for task in tasks[done:]:  # One of several failed: each alone, to know which.
            _measure(batch, [task])


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, GreedyPigError) else f"{type(error).__name__}: {text}"


def in_turn(
    items: Sequence[Item], contenders: Sequence[Contender]
) -> Iterator[tuple[Contender, tuple[Item, ...]]]:
    """Some items for every contender: all contenders on some items before the next ones.

    A run that is stopped thus leaves whole comparisons on some photos.
    """
    for start in range(0, len(items), TOGETHER):
        for contender in contenders:
            yield contender, tuple(items[start : start + TOGETHER])
