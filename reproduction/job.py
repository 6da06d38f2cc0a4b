"""The common part of all reproductions: work in pieces that are kept, then a table, then files.

A job cuts its work into batches of tasks. How it is cut depends on the request alone, so one
process and many do the same batches and get the same numbers. Every task's result is a small file,
whose name holds a digest of all that the result depends on: a run that was stopped goes on from
these files, and processes share the work through them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from greedypig.core.errors import GreedyPigError, InvalidInput, MissingPackage
from greedypig.results.files import write_whole

from .output import Files, Result, Table
from .settings import Contender, Request, Settings

Record = dict[str, Any]
SCHEMA = 3
"""Version of the records of single results."""


def digest(*parts: object) -> str:
    """A short digest for names of files."""
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]


def read_record(path: Path) -> Record:
    """The result in a file; {"error": reason} of what failed or is not there, or not whole."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"error": "It was not measured."}
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(record, allow_nan=False))


@dataclass(frozen=True)
class Task:
    """One result to measure."""

    path: Path
    """The file of the result."""
    item: Any
    """What is measured: hashable, an argument of the batch's `run`."""
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
    def of_one(
        path: Path, item: Any, label: str, run: Callable[[Any], Record], name: str = ""
    ) -> Batch:
        """A batch of a single task."""
        return Batch(label, (Task(path, item, name or label),), lambda items: map(run, items))


class Job(ABC):
    """One run of a reproduction."""

    FILES: ClassVar[tuple[str, ...]]
    """Names of the files that it writes, the page first; {} stands for its own name."""
    contenders: tuple[Contender, ...]

    def __init__(self, name: str, request: Request) -> None:
        self.name, self.request = name, request
        self.settings = Settings.of(name)
        self.more = self.settings.more
        self.outcomes: dict[Any, Record] = {}
        """The results so far, by the item that was measured."""
        self.failed: dict[str, str] = {}
        """What could not be measured, with the reason."""
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Check the request and load what is measured on."""

    def batches(self) -> Iterable[Batch]:
        """The work, in one stage; a job with several stages overrides `stages` instead."""
        return ()

    def stages(self) -> Iterator[list[Batch]]:
        """Batches that may run at the same time; each stage begins after the one before."""
        yield list(self.batches())

    @abstractmethod
    def table(self) -> Table:
        """The numbers so far."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """The setting in sentences; the first is for the terminal too."""

    @abstractmethod
    def write(self, files: Files, table: Table) -> None:
        """Write the CSV files and figures."""

    def about(self) -> dict[str, Any]:
        """Facts for --json."""
        return {}

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
        files.write(self.FILES[0].format(self.name), page)
        return replace(result, files=[files.paths[-1], *files.paths[:-1]])

    def result(self) -> Result:
        """The table with everything around it, from the results so far."""
        table, failed = self.table(), list(self.failed.items())
        if not table.rows:
            raise InvalidInput(
                f"Expected at least one result (got none). The last: {failed[-1][1]}"
            )
        first, *others = self.remarks()
        if any(c.budget is not None for c in self.contenders):
            others.insert(
                0,
                f"Run with at most {self.request.budget:,} gradients a method, fewer than the "
                "paper's: a quick look.",
            )
        remarks = [first, *others, *self.settings.differs]
        about = {"seed": self.request.seed, "budget": self.request.budget} | self.about()
        return Result(self.name, self.settings.title, table, remarks, failed, about)

    # Single results.

    def place(self, folder: str, name: str, *depends: object) -> Path:
        """The file of a single result, given everything that it depends on."""
        file = f"{name}.{digest(SCHEMA, *depends)}.json"
        return self.request.out / "rows" / self.name / folder / file

    def read(self, path: Path) -> Record | None:
        """A result that was measured, and is no failure."""
        record = read_record(path)
        return None if "error" in record else record

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
        for task in (task for batch in batches for task in batch.tasks):
            record = read_record(task.path)
            if "error" in record:
                self.failed.setdefault(task.name, record["error"])
            else:
                self.outcomes[task.item] = record


def _measure(batch: Batch, tasks: Sequence[Task]) -> None:
    done = 0
    try:
        for record in batch.run([task.item for task in tasks]):
            write_record(tasks[done].path, record)
            done += 1
    except (MissingPackage, OSError):
        raise
    except Exception as error:
        if len(tasks) > 1:
            for task in tasks[done:]:  # One of several failed: each alone, to know which.
                _measure(batch, [task])
            return
        text = " ".join(str(error).split())[:300]
        kind = "" if isinstance(error, GreedyPigError) else f"{type(error).__name__}: "
        write_record(tasks[0].path, {"error": f"{kind}{text}"})
